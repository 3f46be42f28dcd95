# More instances than the kernel takes programs at one function (BPF_MAX_TRAMP_LINKS: 38). The next
# one is refused its witnesses there; it says so, sees system calls at their end, and keeps what it
# can.
. /nicache/guest/lib.sh
mkdir -p /srv/crowd
echo one >/srv/crowd/index.html
chmod -R a+rX /srv/crowd
pids=""
refused=""
for number in $(seq 40); do
    log=/run/crowd$number.log
    nicache serve --name "crowd$number" --subnet "10.94.$number.0/30" --memory 1M \
        --page-cache 1M /srv/crowd >"$log" 2>&1 &
    pids="$pids $!"
    wait_http "http://10.94.$number.2/" 240 || { cut -c1-600 "$log"; exit 1; }
    if grep -q "takes no programs at its functions" "$log"; then
        refused=$number
        break
    fi
done
grep -ao "WARN.*" "/run/crowd${refused:-40}.log" | head -3 | cut -c1-300
LABEL=crowded . /nicache/guest/static.sh
code=$?
# Where system calls are seen at their end anyway, nothing is refused.
told=$(grep -c "takes no programs at its functions" /run/crowded.log)
result crowded_by "instances=${refused:-none}" "told=$told"
kill $pids
wait $pids
exit $code
