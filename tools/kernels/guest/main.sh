#!/bin/bash
# The first process on the root file system: runs the scripts that the kernel's command line names,
# and switches the machine off.
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t cgroup2 cgroup /sys/fs/cgroup 2>/dev/null
mount -t bpf bpf /sys/fs/bpf 2>/dev/null
mount -o remount,rw /
hostname guest
ip link set lo up
ulimit -n 65536
modprobe tun
install -m 755 /nicache/nicache /usr/local/bin/nicache
[ ! -e /nicache/nicache-lab ] || install -m 755 /nicache/nicache-lab /usr/local/bin/nicache-lab
mkdir -p /usr/local/lib/nicache-tests
cp /nicache/tests/* /usr/local/lib/nicache-tests/ 2>/dev/null
cd /nicache/guest || exit
echo "KERNEL $(uname -r) up $(cut -d' ' -f1 /proc/uptime) s"
for script in $(tr ' ' '\n' </proc/cmdline | sed -n 's/^nicache.run=//p' | tr ',' ' '); do
    echo "BEGIN $script at $(cut -d' ' -f1 /proc/uptime)"
    bash "/nicache/guest/$script.sh" </dev/null 2>&1
    echo "END $script $? at $(cut -d' ' -f1 /proc/uptime)"
done
dmesg | grep -iE 'bug:|warning:|oops|panic|call trace' | head -20
echo "END all"
sync
echo o >/proc/sysrq-trigger
sleep 60
