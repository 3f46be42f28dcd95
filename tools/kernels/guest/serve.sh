# Files by `nicache serve`, changed in every way.
. /nicache/guest/lib.sh
make_site /srv/serve
nicache serve --name serve --subnet 10.93.0.0/30 /srv/serve >/run/serve.log 2>&1 &
pid=$!
url=http://10.93.0.2
if ! wait_http $url/p1.html 240; then
    cut -c1-600 /run/serve.log
    kill $pid
    wait $pid
    exit 1
fi
for _ in 1 2 3 4 5 6 7 8; do
    curl -s -o /dev/null $url/p1.html
    sleep 0.3
done
seen=$(edits $url/p2.html /srv/serve/p2.html 25 | tail -1)
blocks=$(nicache status --name serve | sed -n 's/.*blocks [0-9]*: \([0-9]*\) hits.*/\1/p')
nicache status --name serve | head -12
result serve "block_hits=${blocks:-?}" "$seen"
cut -c1-400 /run/serve.log | head -10
kill $pid
wait $pid
[ "${blocks:-0}" -gt 5 ] && [[ $seen == *"stale=0" ]]
