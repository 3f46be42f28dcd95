# Shared by the scripts of this folder.

# result NAME=VALUE...: one line for the table.
result() { echo "RESULT $*"; }

# counter NAME KEY: a counter of a running nicache; 0 if there is none.
counter() {
    nicache status --name "$1" --json 2>/dev/null | python3 -c '
import json, sys
try:
    status = json.load(sys.stdin)
except ValueError:
    status = {}
def find(value):
    if isinstance(value, dict):
        if sys.argv[1] in value and not isinstance(value[sys.argv[1]], (dict, list)):
            return value[sys.argv[1]]
        for inner in value.values():
            found = find(inner)
            if found is not None:
                return found
print(find(status) or 0)' "$2"
}

# wait_http URL SECONDS
wait_http() {
    for _ in $(seq $(($2 * 2))); do
        curl -s -o /dev/null -m 3 "$1" && return 0
        sleep 0.5
    done
    echo "no answer from $1 within $2 s"
    return 1
}

# wait_line FILE PATTERN SECONDS
wait_line() {
    for _ in $(seq $(($3 * 2))); do
        grep -q "$2" "$1" && return 0
        sleep 0.5
    done
    return 1
}

# make_site FOLDER: pages of 2000 bytes, and nginx's configuration for them in FOLDER.conf.
make_site() {
    mkdir -p "$1"
    for page in 1 2 3 4 5; do head -c 2000 /dev/zero | tr '\0' "$page" >"$1/p$page.html"; done
    echo index >"$1/index.html"
    chmod -R a+rX "$1"
    cat >"$1.conf" <<C
worker_processes 1;
error_log /dev/null;
pid $1.pid;
events { worker_connections 512; }
http {
    access_log off;
    sendfile on;
    keepalive_requests 100000;
    types { text/html html; }
    server { listen 80; root $1; }
}
C
}

# edits URL FILE COUNT: changes FILE in five ways by turns, each followed at once by a request;
# prints "edits=N stale=N".
edits() { python3 /nicache/guest/edits.py "$@"; }
