# Files by nginx behind `nicache run`, changed in every way. OPTIONS: of `nicache run`; LABEL: of
# the result.
. /nicache/guest/lib.sh
label=${LABEL:-static}
site=/srv/$label
make_site "$site"
interfaces=$(ip -br link show type tun | cut -d' ' -f1)
nicache run --name "$label" ${OPTIONS:-} --subnet 10.90.0.0/30 -- nginx -c "$site.conf" \
    -g 'daemon off;' >"/run/$label.log" 2>&1 &
pid=$!
url=http://10.90.0.2
if ! wait_http $url/p1.html 240; then
    cut -c1-600 "/run/$label.log"
    kill $pid
    wait $pid
    exit 1
fi
for _ in $(seq 8); do
    curl -s -o /dev/null $url/p1.html
    sleep 0.3
done
seen=$(edits $url/p2.html "$site/p2.html" 25)
echo "$seen"
# Replies by L0 are counted when the connection comes back.
sleep 2
hits=$(counter "$label" hits)
l0=$(counter "$label" hits_l0)
[ "${SHOW:-}" ] && nicache status --name "$label"
result "$label" "hits=$hits" "l0=$l0" ${seen##*$'\n'}
cut -c1-400 "/run/$label.log" | head -20
kill $pid
wait $pid
[ "$(ip -br link show type tun | cut -d' ' -f1)" = "$interfaces" ] || { echo "an interface is left"; exit 1; }
[ "$hits" -gt 10 ] && [[ $seen == *"stale=0" ]]
