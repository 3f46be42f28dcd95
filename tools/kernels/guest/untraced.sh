# Root turns the kernel's function tracer off while witnesses at functions are at work: that is
# said, and another watcher takes over. It watches in another way where the kernel has one, and
# otherwise says that it cannot; so does a nicache that is started then.
. /nicache/guest/lib.sh
switch=/proc/sys/kernel/ftrace_enabled
[ -w $switch ] || { result untraced "no_such_switch"; exit 0; }
make_site /srv/untraced
failed=0

start() {
    nicache run --name untraced --subnet 10.93.0.0/30 -- nginx -c /srv/untraced.conf \
        -g 'daemon off;' >/run/untraced.log 2>&1 &
    pid=$!
    wait_http http://10.93.0.2/p1.html 240 || exit 1
    for _ in 1 2 3 4 5; do curl -s -o /dev/null http://10.93.0.2/p1.html; done
}
start
before=$(counter untraced hits)
[ "$before" -gt 0 ] || failed=1
echo 0 >$switch
told=no
wait_line /run/untraced.log "no longer calls witnesses" 30 && told=yes
# Where the kernel has no other way, it says so each time.
wait_line /run/untraced.log "another watcher watches\|nothing can be watched" 150
hits=$(counter untraced hits)
seen=$(edits http://10.93.0.2/p2.html /srv/untraced/p2.html 10 | tail -1)
after=$(counter untraced hits)
result untraced "hits_before=$before" "told=$told" "hits_after=$((after - hits))" "$seen"
[[ $seen == *"stale=0" ]] || failed=1
kill $pid
wait $pid
start
seen=$(edits http://10.93.0.2/p2.html /srv/untraced/p2.html 10 | tail -1)
after=$(counter untraced hits)
result untraced_from_the_start "hits=$after" "$seen" "$(grep -ao 'WARN.*' /run/untraced.log | head -1 | cut -c1-200)"
[[ $seen == *"stale=0" ]] && { [ "$after" -gt 0 ] || grep -q "O_DIRECT" /run/untraced.log; } ||
    failed=1
kill $pid
wait $pid
echo 1 >$switch
exit $failed
