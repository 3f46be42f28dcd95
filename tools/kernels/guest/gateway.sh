# `nicache nfs` as operators run it, in front of a unit of tgtd's in this machine, used by this
# kernel's own client over the loopback interface: what programs do with files, a gateway that is
# started again and one that is killed while they do, and what the unit then holds.
. /nicache/guest/lib.sh
for module in fuse loop ext4 nfsv3; do modprobe $module 2>/dev/null; done
image=/var/tmp/unit
unit=iscsi://127.0.0.1/iqn.2026-11.org.nicache:unit/1
options=vers=3,proto=tcp,mountproto=tcp,nolock,addr=127.0.0.1,mountaddr=127.0.0.1,port=2049,mountport=2049
truncate -s 1G $image
mkdir -p /run/tgtd /mnt/nfs /mnt/other
tgtd --foreground --iscsi portal=127.0.0.1:3260 >/run/tgtd.log 2>&1 &
target=$!
for _ in $(seq 120); do
    tgtadm --lld iscsi --op show --mode target >/dev/null 2>&1 && break
    sleep 0.5
done
tgtadm --lld iscsi --op new --mode target --tid 1 --targetname iqn.2026-11.org.nicache:unit
tgtadm --lld iscsi --op new --mode logicalunit --tid 1 --lun 1 --backing-store $image
tgtadm --lld iscsi --op bind --mode target --tid 1 --initiator-address ALL ||
    { cat /run/tgtd.log; exit 1; }

# gateway [OPTION...]: starts one; $gateway is its process.
gateway() {
    : >/run/gateway.log
    nicache nfs $unit --export '/data *(rw,no_root_squash,insecure)' --memory 64M --name nfs0 \
        --json "$@" >/run/gateway.log 2>/run/gateway.err &
    gateway=$!
    wait_line /run/gateway.log '"serving"' 120 || { cat /run/gateway.log /run/gateway.err; exit 1; }
}

# ended STATUS: waits for the gateway, which is to end so.
ended() {
    wait $gateway
    local status=$?
    echo "gateway: ended with $status at $(cut -d' ' -f1 /proc/uptime)"
    [ $status = "$1" ] || { echo "gateway: it ended with $status"; cat /run/gateway.err; failed=1; }
}

# attach FOLDER OPTIONS
attach() { mount -i -t nfs -o "$options,$2" 127.0.0.1:/data "$1" || { dmesg | tail -5; exit 1; }; }

failed=0
gateway --mkfs
attach /mnt/nfs rw
# The same through a client of its own that keeps nothing: what the server has.
attach /mnt/other nosharecache,noac
mkdir /mnt/nfs/basic
python3 /nicache/guest/nfs.py /mnt/nfs/basic /mnt/other/basic ${LEFT_OUT:-many} || failed=1
mkdir /mnt/nfs/files
python3 /nicache/guest/gateway.py /mnt/nfs/files /mnt/other/files || failed=1
nicache why /data/files/kept/large --name nfs0 | head -8

echo "gateway: started again and killed while files are written"
python3 /nicache/guest/durable.py /mnt/nfs/durable /run/durable.stop &
writers=$!
sleep 5
kill -TERM $gateway
ended 0
gateway
for _ in 1 2 3; do
    sleep 5
    kill -KILL $gateway
    ended 137
    gateway
done
sleep 5
touch /run/durable.stop
wait $writers || failed=1
python3 /nicache/guest/gateway.py /mnt/nfs/files /mnt/other/files compare || failed=1
umount /mnt/other
umount /mnt/nfs
nicache status --name nfs0 | sed -n '1,40p'
kill -TERM $gateway
ended 0
# With nothing in any cache.
gateway
attach /mnt/nfs rw
python3 /nicache/guest/gateway.py /mnt/nfs/files /mnt/nfs/files compare || failed=1
umount /mnt/nfs
kill -TERM $gateway
ended 0
# It takes no other signal for its end while a unit is there.
kill -KILL $target
wait $target
e2fsck -fn $image >/run/fsck.log 2>&1 || { cat /run/fsck.log; failed=1; }
echo "gateway: e2fsck: $(tail -1 /run/fsck.log)"
result gateway failed=$failed
exit $failed
