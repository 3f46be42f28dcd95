# What `make run` runs once it is built: nicache with its own demonstration site, whose pages are
# then asked for and edited.
. /nicache/guest/lib.sh
nicache run >/run/demo.log 2>&1 &
pid=$!
if ! wait_line /run/demo.log 'is served through' 240; then
    cut -c1-600 /run/demo.log
    kill $pid
    exit 1
fi
url=$(sed -n 's/.*\(http:[^ ]*\) is served.*/\1/p' /run/demo.log | head -1)
folder=$(sed -n 's/.*folder=\([^ ]*\).*/\1/p' /run/demo.log | head -1)
for _ in 1 2 3 4 5 6 7 8; do
    curl -s -o /dev/null "$url"
    sleep 0.3
done
seen=$(edits "${url}index.html" "$folder/index.html" 15 | tail -1)
name=$(nicache status --json 2>/dev/null | sed -n 's/.*"name": *"\([^"]*\)".*/\1/p' | head -1)
hits=$(counter "${name:-nic0}" hits)
cut -c1-300 /run/demo.log
nicache status | head -40
result demo "hits=$hits" "$seen"
kill $pid
wait $pid
[ "$hits" -gt 5 ] && [[ $seen == *"stale=0" ]]
