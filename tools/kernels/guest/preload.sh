# The witness in the server's programs instead of the kernel's: it sees what they change. So the
# server itself changes a page here (WebDAV).
. /nicache/guest/lib.sh
site=/srv/preload
make_site $site
chown -R www-data: $site
sed -i 's/listen 80;/listen 80; client_max_body_size 1m; dav_methods PUT;/; 1i user www-data;' $site.conf
nicache run --name preload --watch preload --subnet 10.94.0.0/30 -- nginx -c $site.conf \
    -g 'daemon off;' >/run/preload.log 2>&1 &
pid=$!
url=http://10.94.0.2
if ! wait_http $url/p1.html 240; then
    cut -c1-600 /run/preload.log
    kill $pid
    wait $pid
    exit 1
fi
stale=0
for edit in $(seq 25); do
    echo "edit $edit" | curl -s -f -o /dev/null -T - $url/p2.html || echo "edit $edit failed"
    for _ in 1 2 3; do
        [ "$(curl -s $url/p2.html)" = "edit $edit" ] || stale=$((stale + 1))
        sleep 0.1
    done
done
hits=$(counter preload hits)
result preload "hits=$hits" "edits=25" "stale=$stale"
cut -c1-400 /run/preload.log | head -10
kill $pid
wait $pid
[ "$hits" -gt 10 ] && [ $stale = 0 ]
