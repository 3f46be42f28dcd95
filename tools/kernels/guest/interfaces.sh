#!/bin/bash
# interfaces.sh NIC1 NIC2: a card on whatever network card this machine has, and on a VLAN, a bridge port and a bond over it. Run as root in a machine of its own, whose two
# network cards are joined by a hub. One line per case: RESULT case=.. link=ok|dead hits=N hits_l0=N xdp=N left=N said="...". The status is not 0 if a link is dead, a page is stale, no hit came, or
# something stays attached.
set -u
near=${1:?the card that nicache is on}; far=${2:?the card of the client}
nicache=${NICACHE:-nicache}; patience=${PATIENCE:-120}
work=$(mktemp -d /var/tmp/interfaces.XXXXXX); chmod 755 "$work"; mkdir "$work/site"
failed=0; attached=; server=

cleanup() {
	[ -n "$attached" ] && kill "$attached" 2>/dev/null
	[ -n "$server" ] && kill "$server" 2>/dev/null
	ip netns del cli 2>/dev/null; ip netns del srv 2>/dev/null
	rm -rf "$work"
}
trap cleanup EXIT

ip netns add cli || exit 2; ip netns add srv || exit 2
ip link set "$far" netns cli || exit 2
ip -n cli link set lo up; ip -n cli link set "$far" up; ip link set "$near" up
ip link add h0 type veth peer name eth0 netns srv || exit 2
ip -n srv link set lo up; ip -n srv addr add 192.0.2.1/24 dev eth0; ip -n srv link set eth0 up; ip link set h0 up
cat > "$work/nginx.conf" <<END
pid $work/pid; error_log $work/error.log;
events {}
http { access_log off; keepalive_requests 100000; server { listen 80; listen 8081; root $work/site; } }
END
echo hello > "$work/site/page.html"
ip netns exec srv nginx -c "$work/nginx.conf" -g 'daemon off;' & server=$!

client() { ip netns exec cli "$@"; }
body() { client curl -s -m 10 --fail "$1" 2>/dev/null; }
number() { "$nicache" status --json --name it 2>/dev/null | python3 -c "import json,sys; print(json.load(sys.stdin)['counters'].get('$1') or 0)" 2>/dev/null || echo 0; }

# try CASE WIRE CLIENT_INTERFACE ARGUMENTS...
try() {
	local case=$1 wire=$2 there=$3; shift 3
	local before link=ok hits l0 xdp left said deadline
	client ip addr add 192.0.2.2/24 dev "$there"
	before=$(ip -d link show | grep -c 'promiscuity [1-9]')
	"$nicache" attach --wire "$wire" --host h0 --name it "$@" > "$work/log" 2>&1 & attached=$!
	deadline=$((SECONDS + patience))
	until grep -q "is the card's" "$work/log" || ! kill -0 $attached 2>/dev/null || [ $SECONDS -gt $deadline ]; do sleep 0.2; done
	xdp=$(ip -d link show | grep -c 'prog/xdp')
	# What is not the card's, then what is; new text each time, which must be seen at once.
	for try in 1 2 3 4 5 6; do body http://192.0.2.1:8081/page.html > "$work/got" && break; sleep 1; done
	[ -s "$work/got" ] || link=dead
	for turn in 1 2 3; do
		echo "$case $turn" > "$work/site/page.html"
		for again in 1 2 3 4 5 6 7 8; do
			client curl -s -m 10 --fail http://192.0.2.1/page.html http://192.0.2.1/page.html > "$work/got" 2>/dev/null || link=dead
			[ "$(sort -u "$work/got")" = "$case $turn" ] || link=${link/ok/stale}
			sleep 0.1
		done
	done
	hits=$(number hits); l0=$(number hits_l0)
	kill -KILL $attached; wait $attached 2>/dev/null; attached=
	sleep 1
	left=$(($(ip -d link show | grep -c 'prog/xdp\|promiscuity [1-9]') - before))
	said=$(grep -h 'WARN\|ERROR\|error:' "$work/log" | sed 's/^[^ ]* *//' | head -2 | tr '\n"' ' _' | cut -c1-300)
	[ "$link" = ok ] && [ "$hits" -gt 0 ] && [ "$left" -eq 0 ] || failed=1
	echo "RESULT case=$case link=$link hits=$hits hits_l0=$l0 xdp=$xdp left=$left said=\"$said\""
	client ip addr flush dev "$there"
}

# tries KIND WIRE CLIENT_INTERFACE
tries() {
	for port in auto xdp packet; do
		try "$1-$port" "$2" "$3" --port $port
		try "$1-$port-l0" "$2" "$3" --port $port --l0
	done
}

uname -r; readlink -f "/sys/class/net/$near/device/driver" | sed 's|.*/|driver |'
tries plain "$near" "$far"
if ip link add link "$near" name v5 type vlan id 5 && client ip link add link "$far" name c5 type vlan id 5; then
	ip link set v5 up; client ip link set c5 up
	tries vlan v5 c5
	ip link del v5; client ip link del c5
else
	echo "RESULT case=vlan skipped=\"this kernel has no VLAN devices\""
fi
if ip link add br0 type bridge; then
	ip link set br0 up; ip link set "$near" master br0
	tries bridge-port "$near" "$far"
	ip link set "$near" nomaster; ip link del br0
else
	echo "RESULT case=bridge-port skipped=\"this kernel has no bridges\""
fi
if ip link add b0 type bond mode active-backup; then
	ip link set "$near" down; ip link set "$near" master b0 && ip link set b0 up
	tries bond b0 "$far"
	ip link set "$near" nomaster; ip link del b0
else
	echo "RESULT case=bond skipped=\"this kernel has no bonds\""
fi
exit $failed
