# PHP and MariaDB from Debian's packages, proven by editors and readers. PROVE: for how long.
# EDITS: in a second; an execution takes one to three seconds here, and one that an edit falls into
# is not kept.
. /nicache/guest/lib.sh
timeout 900 nicache demo php-page --once --seconds 3 --prove "${PROVE:-60s}" \
    --edits-per-second "${EDITS:-0.4}" >/run/php.log 2>&1
code=$?
tr '\r' '\n' </run/php.log | grep -v '^ *$' | tail -25 | cut -c1-240
# Why it failed is often said long before its end.
[ $code = 0 ] || sed 's/\x1b\[[0-9;]*m//g' /run/php.log | tr '\r' '\n' |
    grep -aE 'WARN|ERROR|INFO .*structure|[Nn]ot kept|mostly' | sort | uniq -c | sort -rn | head -20 | cut -c1-400
hits=$(tr '\r' '\n' </run/php.log | sed -n 's/.* \([0-9,]*\) hits.*/\1/p' | tail -1)
result "${LABEL:-php}" "code=$code" "hits=${hits:-?}"
exit $code
