# Gateways of two machines (two secrets, two initiator names) want one unit. With TESTS=.../tgt,
# what storage/initiator/tests/tgt.rs says of reservations, on the kernel's own target (LIO); else
# `nicache nfs` itself on TARGETS (tgt, lio): the second one is refused, one that was killed gets
# the unit again, and one that is told to takes it from the other, which then ends.
. /nicache/guest/lib.sh
modules="fuse loop ext4 crc32c_generic target_core_mod target_core_file iscsi_target_mod"
for module in $modules; do modprobe $module 2>/dev/null; done
name=iqn.2026-11.org.nicache:unit
unit=iscsi://127.0.0.1/$name/1
image=/var/tmp/unit
failed=0

tgt() {
    mkdir -p /run/tgtd
    tgtd --foreground --iscsi portal=127.0.0.1:3260 >/run/tgtd.log 2>&1 &
    target=$!
    for _ in $(seq 120); do
        tgtadm --lld iscsi --op show --mode target >/dev/null 2>&1 && break
        sleep 0.5
    done
    tgtadm --lld iscsi --op new --mode target --tid 1 --targetname $name
    tgtadm --lld iscsi --op new --mode logicalunit --tid 1 --lun 1 --backing-store $image
    tgtadm --lld iscsi --op bind --mode target --tid 1 --initiator-address ALL
}
end_tgt() { kill -KILL $target; wait $target 2>/dev/null; }

lio() {
    local config=/sys/kernel/config/target
    mount -t configfs config /sys/kernel/config 2>/dev/null
    # Here it keeps registrations for the time after a loss of power.
    mkdir -p /var/target/pr $config/core/fileio_0/unit $config/iscsi/$name/tpgt_1/lun/lun_1 ||
        return 1
    echo "fd_dev_name=$image,fd_dev_size=$(stat -c %s $image),fd_buffered_io=1" >$config/core/fileio_0/unit/control
    echo 1 >$config/core/fileio_0/unit/enable
    ln -s $config/core/fileio_0/unit $config/iscsi/$name/tpgt_1/lun/lun_1/unit
    mkdir $config/iscsi/$name/tpgt_1/np/127.0.0.1:3260
    for set in authentication=0 generate_node_acls=1 demo_mode_write_protect=0 \
        cache_dynamic_acls=1; do
        echo ${set#*=} >$config/iscsi/$name/tpgt_1/attrib/${set%=*}
    done
    echo 1 >$config/iscsi/$name/tpgt_1/enable
}
end_lio() { echo 0 >/sys/kernel/config/target/iscsi/$name/tpgt_1/enable; }

# gateway MACHINE [OPTION...]: starts one in the background; $gateway is its process.
gateway() {
    local machine=$1
    shift
    : >/run/$machine.log
    nicache nfs $unit --export '/data *(rw,insecure)' --listen 127.0.0.1:0 \
        --state /var/tmp/$machine --initiator iqn.2026-11.org.nicache:$machine \
        --memory 32M --name $machine --json "$@" >/run/$machine.log 2>/run/$machine.err &
    gateway=$!
}
serves() { wait_line /run/$1.log '"serving"' 60 ||
    { echo "fence: $1 does not serve"; cat /run/$1.err; failed=1; }; }
# ended PROCESS STATUS MACHINE WORDS
ended() {
    wait $1
    local status=$?
    [ $status = "$2" ] && { [ -z "$4" ] || grep -q "$4" /run/$3.err; } && return
    echo "fence: $3 ended with $status"
    cat /run/$3.err
    failed=1
}

# Without gateways, as TESTS=.../tgt (storage/initiator/tests/tgt.rs) does it: on the kernel's own
# target.
if [ -x /usr/local/lib/nicache-tests/tgt ]; then
    truncate -s 256M $image
    lio || exit 1
    NICACHE_TEST_UNIT=$unit /usr/local/lib/nicache-tests/tgt --exact \
        --nocapture a_reserved_unit_is_one_gateways_until_another_takes_it_over || failed=1
    result fence target=lio test failed=$failed
    exit $failed
fi

for kind in ${TARGETS:-tgt}; do
    rm -rf $image /var/tmp/one /var/tmp/two
    truncate -s 256M $image
    $kind || { echo "fence: no target $kind"; failed=1; continue; }
    gateway one --mkfs
    one=$gateway
    serves one
    gateway two
    ended $gateway 1 two "another gateway has reserved the unit"
    kill -KILL $one
    ended $one 137 one ""
    gateway two
    ended $gateway 1 two "another gateway has reserved the unit"
    gateway one
    one=$gateway
    serves one
    gateway two --take-over
    two=$gateway
    serves two
    # It asks for nothing, and hears of it all the same.
    ended $one 1 one "another gateway has taken the unit\|another initiator has reserved the unit"
    gateway one
    ended $gateway 1 one "another gateway has reserved the unit"
    kill -TERM $two
    ended $two 0 two ""
    gateway one
    one=$gateway
    serves one
    kill -TERM $one
    ended $one 0 one ""
    end_$kind
    e2fsck -fn $image >/run/fsck.log 2>&1 || { cat /run/fsck.log; failed=1; }
    result fence target=$kind failed=$failed
done
exit $failed
