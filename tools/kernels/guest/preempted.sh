# The kernel begins to stop in the middle of its own work (preempt=full) while witnesses at its
# functions are at work: as soon as one was passed over, that is said, and another watcher takes
# over, which watches in another way. OPENERS: processes that open files as fast as they can.
. /nicache/guest/lib.sh
switch=/sys/kernel/debug/sched/preempt
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
[ -w $switch ] || { result preempted "no_such_switch"; exit 0; }
make_site /srv/preempted
nicache run --name preempted --subnet 10.92.0.0/30 -- nginx -c /srv/preempted.conf \
    -g 'daemon off;' >/run/preempted.log 2>&1 &
pid=$!
wait_http http://10.92.0.2/p1.html 240 || exit 1
for _ in 1 2 3 4 5; do curl -s -o /dev/null http://10.92.0.2/p1.html; done
before=$(counter preempted hits)
echo full >$switch
openers=()
for _ in $(seq "${OPENERS:-16}"); do
    timeout 120 sh -c 'while :; do read -r line </proc/self/stat; read -r line </srv/preempted/p3.html; done' 2>/dev/null &
    openers+=($!)
done
told=no
wait_line /run/preempted.log "has passed over a witness" 100 && told=yes
for opener in "${openers[@]}"; do kill "$opener"; done
[ $told = no ] || wait_line /run/preempted.log "another watcher watches" 150
hits=$(counter preempted hits)
seen=$(edits http://10.92.0.2/p2.html /srv/preempted/p2.html 10 | tail -1)
after=$(counter preempted hits)
echo voluntary >$switch
kill $pid
wait $pid
result preempted "hits_before=$before" "told=$told" "hits_after=$((after - hits))" "$seen"
[ "$before" -gt 0 ] && [ "$after" -gt "$hits" ] && [[ $seen == *"stale=0" ]]
