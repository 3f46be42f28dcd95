# The NFS server of storage/nfs, used by this kernel's own client over the loopback interface.
# TESTS: target/release/examples/export.
. /nicache/guest/lib.sh
server=/usr/local/lib/nicache-tests/export
[ -x $server ] || { echo "set TESTS=target/release/examples/export"; exit 1; }
modprobe nfsv3 2>/dev/null
mkdir -p /srv/exported /mnt/nfs
chmod 1777 /srv/exported
mkfifo /run/nfs.stop
$server /srv/exported 127.0.0.1:2049 /exported </run/nfs.stop >/run/nfs.log 2>&1 &
exec 9>/run/nfs.stop
wait_line /run/nfs.log serving 30 || { cat /run/nfs.log; exit 1; }
options=vers=3,proto=tcp,mountproto=tcp,nolock,addr=127.0.0.1,mountaddr=127.0.0.1,port=2049,mountport=2049
mount -i -t nfs -o $options 127.0.0.1:/exported /mnt/nfs || { dmesg | tail -5; exit 1; }
python3 /nicache/guest/nfs.py /mnt/nfs /srv/exported
failed=$?
cd / || exit
umount /mnt/nfs
# Small requests, and nothing kept by the client, so what asks often takes its time.
mount -i -t nfs -o $options,rsize=4096,wsize=4096,noac,sync 127.0.0.1:/exported /mnt/nfs || exit 1
mkdir /mnt/nfs/again
python3 /nicache/guest/nfs.py /mnt/nfs/again /srv/exported/again many tree || failed=1
umount /mnt/nfs
exec 9>&-
wait
cat /run/nfs.log
exit $failed
