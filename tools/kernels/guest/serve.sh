# Files by `nicache serve`, changed in every way, on the root's file system and on tmpfs.
. /nicache/guest/lib.sh
failed=0

# try NAME FOLDER
try() {
    local name=$1 folder=$2 pid url=http://10.93.0.2 seen blocks
    make_site "$folder"
    nicache serve --name "$name" --subnet 10.93.0.0/30 "$folder" >"/run/$name.log" 2>&1 &
    pid=$!
    if ! wait_http $url/p1.html 240; then
        cut -c1-600 "/run/$name.log"
        result "$name" dead
        failed=1
    else
        for _ in 1 2 3 4 5 6 7 8; do
            curl -s -o /dev/null $url/p1.html
            sleep 0.3
        done
        seen=$(edits $url/p2.html "$folder/p2.html" 25 | tail -1)
        blocks=$(nicache status --name "$name" | sed -n 's/.*blocks [0-9]*: \([0-9]*\) hits.*/\1/p')
        nicache status --name "$name" | head -12
        result "$name" "block_hits=${blocks:-?}" "$seen"
        cut -c1-400 "/run/$name.log" | head -10
        [ "${blocks:-0}" -gt 5 ] && [[ $seen == *"stale=0" ]] || failed=1
    fi
    kill $pid
    wait $pid
}

try serve /srv/serve
mkdir -p /mnt/serve
mount -t tmpfs tmpfs /mnt/serve && try serve-tmpfs /mnt/serve/site
exit $failed
