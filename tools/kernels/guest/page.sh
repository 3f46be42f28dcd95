# What watching costs a page of PHP and MariaDB, in instructions: boot with ICOUNT=1 and
# TESTS=target/release/examples/witness_cost. No card is in between. PAGE=small: a page with one
# row. PAGE=wordpress: the front page of a WordPress with 20 posts.
. /nicache/guest/lib.sh
cd /srv && mkdir -p page/db page/site && chown -R www-data: page && cd page || exit
mariadb-install-db --no-defaults --user=www-data --auth-root-authentication-method=normal \
    --skip-test-db --datadir=/srv/page/db >/dev/null 2>&1
mariadbd --no-defaults --user=www-data --datadir=/srv/page/db --socket=/srv/page/db.sock \
    --skip-networking >/run/page.db.log 2>&1 &
cat >fpm.conf <<C
[global]
error_log = /dev/null
[www]
user = www-data
listen = /srv/page/fpm.sock
listen.owner = www-data
pm = static
pm.max_children = 1
C
cat >nginx.conf <<C
user www-data;
worker_processes 1;
error_log /dev/null;
pid /srv/page/nginx.pid;
events {}
http {
    access_log off;
    keepalive_requests 100000;
    server {
        listen 127.0.0.1:8080;
        root /srv/page/site;
        location / { include /etc/nginx/fastcgi_params; fastcgi_param SCRIPT_FILENAME \
            /srv/page/site/item.php; fastcgi_pass unix:/srv/page/fpm.sock; }
    }
}
C
cat >site/item.php <<'C'
<?php
$db = new mysqli('localhost', 'root', '', 'site', 0, '/srv/page/db.sock');
$row = $db->query('SELECT title FROM items WHERE id = ' . (int) $_GET['id'])->fetch_row();
echo '<p>', htmlspecialchars($row[0]), '</p>';
C
for _ in $(seq 100); do
    mariadb --no-defaults -u root -S db.sock -e 'CREATE DATABASE site; CREATE TABLE site.items (id INT PRIMARY KEY, title TEXT); INSERT INTO site.items VALUES (1, "one")' 2>/dev/null && break
    sleep 1
done
script=item.php wanted="<p>one</p>"
if [ "${PAGE:-small}" = wordpress ]; then
    script=index.php wanted="Post 20"
    cp -rL /usr/share/wordpress/. site/
    mariadb --no-defaults -u root -S db.sock -e "CREATE USER site@localhost IDENTIFIED BY 'site'; GRANT ALL ON site.* TO site@localhost"
    sed -e 's|@HOST@|127.0.0.1:8080|; s|@SOCKET@|/srv/page/db.sock|; s|@KEYS@||' /nicache/wordpress/wp-config.php >site/wp-config.php
    chown -R www-data: site
    php -d memory_limit=512M /nicache/wordpress/install.php /srv/page/site \
        >/run/page.install.log 2>&1 || { cat /run/page.install.log; exit 1; }
fi
sed -i "s|site/item.php|site/$script|" nginx.conf
php-fpm8.2 --nodaemonize --fpm-config fpm.conf -d opcache.enable=1 >/run/page.fpm.log 2>&1 &
nginx -c /srv/page/nginx.conf -g 'daemon off;' >/run/page.nginx.log 2>&1 &
wait_http "http://127.0.0.1:8080/?id=1" 20 ||
    { curl -sS -m 3 "http://127.0.0.1:8080/?id=1"; cat /run/page.*.log; ls -la; ps ax |
        tail -8; exit 1; }
cat >ask.py <<'C'
import http.client, sys, time
connection = http.client.HTTPConnection("127.0.0.1", 8080)
def ask(count):
    begin = time.monotonic_ns()
    for _ in range(count):
        connection.request("GET", "/?id=1")
        body = connection.getresponse().read()
        assert sys.argv[1].encode() in body, body
    return (time.monotonic_ns() - begin) // count
count = int(sys.argv[2])
ask(count)
print(min(ask(count) for _ in range(6)))
C
count=50
[ "$script" = item.php ] || count=5
without=$(python3 ask.py "$wanted" $count)
mkfifo hold
/usr/local/lib/nicache-tests/witness_cost hold <hold >held 2>&1 &
watcher=$!
exec 3>hold
wait_line held watching 100 || { cat held; exit 1; }
# PROFILE=1: what each program took, too. The counting itself costs some hundred instructions a run.
[ -z "${PROFILE:-}" ] || echo 1 >/proc/sys/kernel/bpf_stats_enabled
# What PHP-FPM had open before is not watched: another child.
with=$(python3 ask.py "$wanted" $count)
exec 3>&-
wait $watcher
grep runs held
result "page ${PAGE:-small}" "without=$without" "with=$with" "more=$(((with - without) * 1000 / without)) per mille"
