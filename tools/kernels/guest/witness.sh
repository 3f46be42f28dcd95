# The tests of the witnesses and of the registrar on this kernel. TESTS: the programs, as `cargo
# test -p nicache-watch --no-run` names them.
. /nicache/guest/lib.sh
failed=0
for test in /usr/local/lib/nicache-tests/*; do
    name=$(basename "$test")
    (cd /srv && TMPDIR=/srv "$test" --test-threads 2) >"/run/$name.log" 2>&1 || failed=1
    summary=$(sed -n 's/^test result: \(.*\) passed; \(.*\) failed;.*/\1 passed, \2 failed/p' "/run/$name.log")
    result "$name" "${summary:-did not end}"
    grep -aE '^test .*FAILED|panicked' -A3 "/run/$name.log" | cut -c1-300
done
exit $failed
