# Every way of changing a file, on each file system that is watched here
# (truth/watch/tests/witness/filesystems), and files that change while the server looks at them
# (truth/watch/tests/registrar/unsettled.rs).
. /nicache/guest/lib.sh
modprobe -a loop xfs btrfs overlay 2>/dev/null
failed=0
# WRITERS: these alone, separated by commas: writers_on, unsettled, overlays.
for test in "witness writers_on" "registrar unsettled" "registrar overlays"; do
    set -- $test
    [ -z "${WRITERS:-}" ] || [[ ,$WRITERS, == *",$2,"* ]] || continue
    "/usr/local/lib/nicache-tests/$1" "$2" --nocapture --test-threads 1 >"/run/$1.log" 2>&1 || failed=1
    grep -a "^RESULT\|^test result\|panicked\|skipped\|Missed" "/run/$1.log" | cut -c1-300
    [ -z "$SHOW" ] || cat "/run/$1.log"
done
exit $failed
