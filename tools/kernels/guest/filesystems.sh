# Files by nginx on file systems other than the root's, changed in every way: what is watched is
# kept, what is not is said; nothing is ever stale.
. /nicache/guest/lib.sh
images=/var/tmp/images
mkdir -p $images /mnt/ext4 /mnt/xfs /mnt/btrfs /mnt/tmpfs
failed=0

# try NAME FOLDER: nicache in front of a site there.
try() {
    local name=$1 folder=$2/site pid url=http://10.91.0.2 seen hits refused
    make_site "$folder"
    nicache run --name "$name" --subnet 10.91.0.0/30 -- nginx -c "$folder.conf" \
        -g 'daemon off;' >"/run/$name.log" 2>&1 &
    pid=$!
    if ! wait_http $url/p1.html 240; then
        cut -c1-400 "/run/$name.log"
        result "$name" dead
        failed=1
    else
        for _ in 1 2 3 4 5; do curl -s -o /dev/null $url/p1.html; done
        seen=$(edits $url/p2.html "$folder/p2.html" 25 | tail -1)
        hits=$(counter "$name" hits)
        refused=$(counter "$name" fill_refused_unwatched_filesystem)
        result "$name" "hits=$hits" "refused_unwatched=$refused" "$seen"
        [ "$hits" -gt 0 ] || nicache status --name "$name" --json | grep -o '"fill_[a-z_]*": *[1-9][0-9]*'
        grep -ao "pages that need .*" "/run/$name.log" | head -2
        [[ $seen == *"stale=0" ]] || failed=1
        [ "$hits" -gt 10 ] || [ "$refused" -gt 0 ] || failed=1
    fi
    kill $pid
    wait $pid
}

# on_image NAME MAKE...: the same on a file system of its own.
on_image() {
    local name=$1
    shift
    truncate -s 600M "$images/$name.img"
    if "$@" "$images/$name.img" >/dev/null && mount -o loop "$images/$name.img" "/mnt/$name"; then
        try "$name" "/mnt/$name"
    else
        result "$name" not_mounted
    fi
}
# FILESYSTEMS: these alone, separated by commas.
wanted() { [ -z "${FILESYSTEMS:-}" ] || [[ ,$FILESYSTEMS, == *",$1,"* ]]; }
modprobe loop
wanted ext4 && on_image ext4 mke2fs -q -t ext4
wanted xfs && on_image xfs mkfs.xfs -q
wanted btrfs && on_image btrfs mkfs.btrfs -q
wanted tmpfs && mount -t tmpfs tmpfs /mnt/tmpfs && try tmpfs /mnt/tmpfs
mkdir -p /var/tmp/o/{lower,upper,work,merged}
wanted overlay && mount -t overlay overlay \
    -o lowerdir=/var/tmp/o/lower,upperdir=/var/tmp/o/upper,workdir=/var/tmp/o/work \
    /var/tmp/o/merged &&
    try overlay /var/tmp/o/merged
exit $failed
