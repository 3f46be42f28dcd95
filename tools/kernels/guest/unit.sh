# An application that is a unit of the machine, in a control group of version 2: followed from its
# next start on, again after that, and in a group below its own.
. /nicache/guest/lib.sh
root=/sys/fs/cgroup
grep -q " $root cgroup2 " /proc/mounts || mount -t cgroup2 cgroup2 $root || exit 1
unit=$root/system.slice/app.service
mkdir -p $unit /srv/unit
cat >/srv/unit/app.py <<'P'
import http.server, os, socketserver, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        with open(sys.argv[2], "rb") as file:
            body = file.read()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self):
        return "client"

    def log_message(self, *of):
        pass

if os.path.exists(sys.argv[1]):
    os.unlink(sys.argv[1])
server = socketserver.UnixStreamServer(sys.argv[1], Handler)
os.chmod(sys.argv[1], 0o666)
server.serve_forever()
P
head -c 500 /dev/zero | tr '\0' a >/srv/unit/text
cat >/srv/unit.conf <<'C'
worker_processes 1;
error_log /dev/null;
pid /srv/unit.pid;
events { worker_connections 512; }
http {
    access_log off;
    server { listen 80; location / { proxy_pass http://unix:/srv/unit/app.sock; } }
}
C

# start_app GROUP
start_app() {
    mkdir -p "$1"
    sh -c "echo \$\$ >$1/cgroup.procs && exec python3 /srv/unit/app.py /srv/unit/app.sock /srv/unit/text" &
    app=$!
}

cat >/srv/serve <<'S'
#!/bin/sh
while :; do nginx -c /srv/unit.conf -g 'daemon off;'; done
S
chmod +x /srv/serve
nicache run --name unit --subnet 10.93.0.0/30 --follow-unit app.service -- /srv/serve \
    >/run/unit.log 2>&1 &
pid=$!
url=http://10.93.0.2/page
wait_http $url 240 || exit 1
# Where the watcher comes late, dynamic pages are kept once nginx is started again.
if grep -q 'watcher is not ready' /run/unit.log; then
    wait_line /run/unit.log 'watcher is ready' 240 || exit 1
    kill -QUIT "$(cat /srv/unit.pid)"
    sleep 2
    wait_http $url 60 || exit 1
fi
ok=yes
stale=0
for group in $unit $unit $unit/payload; do
    start_app $group
    for _ in $(seq 60); do
        curl -s -m 3 $url | grep -q '^a*$\|version' && break
        sleep 0.5
    done
    before=$(counter unit hits_dynamic)
    for _ in $(seq 120); do
        curl -s -o /dev/null -m 10 $url
        [ "$(counter unit hits_dynamic)" -ge $((before + 5)) ] && break
        sleep 0.3
    done
    hits=$(($(counter unit hits_dynamic) - before))
    seen=$(edits $url /srv/unit/text 5 0.5)
    echo "$group: $hits hits, $seen"
    [ $hits -ge 5 ] || ok=no
    [[ $seen == *"stale=0" ]] || stale=$((stale + 1))
    kill $app
    wait $app
done
result unit "hits=$(counter unit hits_dynamic)" "stale_runs=$stale" "cgroup=$(stat -fc %T $root)"
cut -c1-400 /run/unit.log | head -20
kill $pid
wait $pid
[ $ok = yes ] && [ $stale = 0 ]
