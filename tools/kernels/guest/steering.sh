# The tests of nicache-xdp at interfaces (TESTS: the program `interfaces`); ONLY: names that a
# test's must contain, separated by commas.
. /nicache/guest/lib.sh
cd /tmp || exit
/usr/local/lib/nicache-tests/interfaces --test-threads=2 ${ONLY//,/ } >/run/steering.log 2>&1
status=$?
grep '^test \|panicked\|skipped' /run/steering.log | cut -c1-200
[ $status = 0 ] || grep -A8 'panicked' /run/steering.log | cut -c1-400 | head -60
result steering "$(grep '^test result' /run/steering.log)"
exit $status
