# A kernel that stops tasks in the middle of witnesses does so as often as it can: others open,
# change and rename files, more of them than there are processors. Meanwhile a page is edited in
# every way. OPENERS, WRITERS: how many.
. /nicache/guest/lib.sh
make_site /srv/gaps
nicache run --name gaps --subnet 10.94.0.0/30 -- nginx -c /srv/gaps.conf -g 'daemon off;' \
    >/run/gaps.log 2>&1 &
pid=$!
wait_http http://10.94.0.2/p1.html 240 || exit 1
for _ in 1 2 3 4 5; do curl -s -o /dev/null http://10.94.0.2/p1.html; done
others=()
mkdir -p /srv/others
for other in $(seq "${OPENERS:-3}"); do
    timeout 300 sh -c 'while :; do read -r line </proc/self/stat; read -r line </srv/gaps/p3.html; done' 2>/dev/null &
    others+=($!)
done
for other in $(seq "${WRITERS:-3}"); do
    timeout 300 sh -c "while :; do echo x >/srv/others/$other; mv /srv/others/$other /srv/others/$other.old; done" 2>/dev/null &
    others+=($!)
done
seen=$(edits http://10.94.0.2/p2.html /srv/gaps/p2.html "${EDITS:-40}" | tail -1)
for other in "${others[@]}"; do kill "$other"; done
hits=$(counter gaps hits)
for _ in 1 2 3 4 5 6 7 8; do curl -s -o /dev/null http://10.94.0.2/p1.html; sleep 0.3; done
after=$(counter gaps hits)
cut -c1-300 /run/gaps.log | grep -v counters | tail -12
gaps=$(sed -n 's/.*in the middle.*gaps=\([0-9]*\).*/\1/p' /run/gaps.log | tail -1)
kill $pid
wait $pid
result gaps "hits=$hits" "hits_after=$((after - hits))" "gaps_at_least=${gaps:-0}" "$seen"
[ "$after" -gt "$hits" ] && [[ $seen == *"stale=0" ]]
