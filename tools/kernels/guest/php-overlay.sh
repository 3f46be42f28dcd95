# The same with all its files on an overlay, as in a container.
mkdir -p /mnt/lower /var/tmp/php/upper /var/tmp/php/work
# By another path, because the overlay hides this one.
mount --bind /var/lib /mnt/lower &&
    mount -t overlay overlay \
        -o lowerdir=/mnt/lower,upperdir=/var/tmp/php/upper,workdir=/var/tmp/php/work \
        /var/lib || exit
LABEL=php-overlay . /nicache/guest/php.sh
