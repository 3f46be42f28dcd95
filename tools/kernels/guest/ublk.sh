# Test programs of nicache-device and nicache-ncache (TESTS) on devices of this kernel's ublk
# driver: mounts, flushes, faults, keys, and servers, owners of mounts and owners of devices that
# are killed. No device may be left, and the kernel may not complain. FILTER: arguments of the
# programs, with commas for spaces.
. /nicache/guest/lib.sh
for module in ublk_drv fuse loop ext4; do modprobe $module 2>/dev/null; done
failed=0
complain() { echo "ublk: $*"; failed=1; }
[ -e /dev/ublk-control ] || { complain "this kernel has no ublk"; exit 1; }

# none_left WORDS: no device is there any longer.
none_left() {
    for _ in $(seq 60); do
        ls /dev/ublk[bc]* >/dev/null 2>&1 || return
        sleep 0.5
    done
    complain "$* left $(echo /dev/ublk[bc]*)"
}

tests=0
for test in /usr/local/lib/nicache-tests/*; do
    [ -x "$test" ] || continue
    tests=$((tests + 1))
    echo "ublk: $(basename $test) ${FILTER:-}"
    # Files there have places, which some tests look at; those of /tmp are in memory.
    TMPDIR=/var/tmp NICACHE_TEST_DEVICE=ublk RUST_BACKTRACE=1 $test --test-threads=2 \
        ${FILTER//,/ } || failed=1
    none_left "$(basename $test)"
done
[ $tests -gt 0 ] || complain "set TESTS to test programs of nicache-device or nicache-ncache"
dmesg | grep -E 'blocked for more than|WARNING:|BUG:|Oops' && complain "the kernel complains"
result ublk tests=$tests failed=$failed
exit $failed
