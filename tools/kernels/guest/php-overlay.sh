# The same with all its files on an overlay, as in a container.
mkdir -p /var/tmp/php/upper /var/tmp/php/work
mount -t overlay overlay -o lowerdir=/var/lib,upperdir=/var/tmp/php/upper,workdir=/var/tmp/php/work /var/lib || exit
LABEL=php-overlay . /nicache/guest/php.sh
