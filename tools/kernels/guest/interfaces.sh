# `nicache attach` on this machine's two network cards (joined by a hub), on a VLAN device, a bridge
# port and a bond over one of them, and on a veth: by every --port, with and without --l0. Each time
# the supervisor is killed at the end. KINDS, PORTS: only these, separated by commas.
#
# link    ok: what is not the card's passes, and every page is the newest; else dead or stale
# left    XDP programs and promiscuity that stay 1 s after the kill
# filters filters of tc while the card works: those of the killed card before are gone (Linux 6.5
#         and older have filters instead of tcx)
. /nicache/guest/lib.sh
kinds=${KINDS:-plain,vlan,bridge-port,bond,veth}
ports=${PORTS:-auto,packet,xdp}
work=/run/interfaces
site=/srv/interfaces
make_site "$site"
sed -i 's/listen 80;/listen 80; listen 8081;/' "$site.conf"
failed=0
# On one connection.
urls=$(printf 'http://192.0.2.1/index.html %.0s' 1 2 3 4 5 6 7 8)

# Their driver, and what the cases need.
cat /sys/bus/{pci,virtio}/devices/*/modalias | xargs -n1 modprobe -q
near=
far=
for path in /sys/class/net/*; do
    [ -e "$path/device" ] || continue
    if [ "$near" ]; then far=$(basename "$path"); else near=$(basename "$path"); fi
done
[ "$far" ] || [ "$kinds" = veth ] || { echo "two network cards are needed: NICS"; exit 2; }
ip netns add client
ip netns add server
ip -n client link set lo up
ip -n server link set lo up
ip link add h0 type veth peer name eth0 netns server
ip -n server addr add 192.0.2.1/24 dev eth0
ip -n server link set eth0 up
ip link set h0 up
if [ "$far" ]; then
    driver=$(basename "$(readlink -f "/sys/class/net/$near/device/driver")")
    ip link set "$near" up
    ip link set "$far" netns client
    ip -n client link set "$far" up
fi
ip netns exec server nginx -c "$site.conf" -g 'daemon off;' &

client() { ip netns exec client "$@"; }
traces() { ip -d link show | grep -c 'prog/xdp\|promiscuity [1-9]'; }
filters() { for name in "$1" h0; do tc filter show dev "$name" ingress; done |
    grep -c '\(wire\|host\)_ingress'; }

# try CASE WIRE INTERFACE_OF_CLIENT ARGUMENTS...
try() {
    local case=$1 wire=$2 there=$3 before link=ok hits=0 l0 xdp left filters said began start
    shift 3
    client ip addr add 192.0.2.2/24 dev "$there"
    before=$(traces)
    began=$SECONDS
    nicache attach --wire "$wire" --host h0 --name it "$@" >"$work.log" 2>&1 &
    local pid=$!
    wait_line "$work.log" "is the card's" 150 || link=dead
    start=$((SECONDS - began))
    xdp=$(ip -d link show | grep -c 'prog/xdp')
    filters=$(filters "$wire")
    # What is not the card's.
    client curl -s -o /dev/null -m 10 --retry 5 \
        --retry-connrefused http://192.0.2.1:8081/p1.html || link=dead
    for turn in 1 2 3; do
        echo "$case $turn" >"$site/index.html"
        [ "$link" = dead ] && break
        for _ in 1 2 3 4; do
            client curl -s -m 15 --fail-early --fail $urls >"$work.got" 2>/dev/null || link=dead
            [ "$(sort -u "$work.got")" = "$case $turn" ] || link=${link/ok/stale}
            sleep 0.2
        done
    done
    # Replies by L0 are counted when the connection comes back.
    sleep 1
    hits=$(counter it hits)
    l0=$(counter it hits_l0)
    [ "${SHOW:-}" ] && nicache status --name it
    { kill -KILL $pid && wait $pid; } 2>/dev/null
    sleep 1
    left=$(($(traces) - before))
    said=$(grep -h 'WARN\|ERROR\|error:\|probe frames\|zero_copy=' "$work.log" | sed 's/^[^ ]* *//' | head -3 | tr '\n"' ' _' | cut -c1-400)
    [ "$link" = ok ] && [ "$hits" -gt 0 ] && [ "$left" -le 0 ] && [ "$filters" -le 2 ] || failed=1
    result "interfaces driver=${driver:-none} case=$case link=$link hits=$hits l0=$l0 xdp=$xdp left=$left filters=$filters start=${start}s said=\"$said\""
    [ "$link" = ok ] || cut -c1-400 "$work.log" | tail -20
    client ip addr flush dev "$there"
}

# tries KIND WIRE INTERFACE_OF_CLIENT
tries() {
    for port in ${ports//,/ }; do
        try "$1-$port" "$2" "$3" --port "$port"
        try "$1-$port-l0" "$2" "$3" --port "$port" --l0
    done
}

for kind in ${kinds//,/ }; do
    case $kind in
    plain) tries plain "$near" "$far" ;;
    vlan)
        ip link add link "$near" name v5 type vlan id 5
        client ip link add link "$far" name c5 type vlan id 5
        ip link set v5 up
        client ip link set c5 up
        tries vlan v5 c5
        ip link del v5
        client ip link del c5
        ;;
    bridge-port)
        ip link add br0 type bridge
        ip link set br0 up
        ip link set "$near" master br0
        tries bridge-port "$near" "$far"
        ip link set "$near" nomaster
        ip link del br0
        ;;
    bond)
        modprobe bonding max_bonds=0
        ip link add b0 type bond mode active-backup miimon 100
        ip link set "$near" down
        ip link set "$near" master b0
        ip link set b0 up
        tries bond b0 "$far"
        ip link set "$near" nomaster
        ip link del b0
        ip link set "$near" up
        ;;
    veth)
        driver=veth
        ip link add w0 type veth peer name eth9 netns client
        ip link set w0 up
        client ip link set eth9 up
        # What XDP sends needs a receive queue there.
        client ethtool -K eth9 gro on
        tries veth w0 eth9
        ip link del w0
        ;;
    esac
done
exit $failed
