# PHP and MariaDB from Debian's packages, proven by editors and readers.
. /nicache/guest/lib.sh
timeout 900 nicache demo php-page --once --seconds 3 --prove 30s >/run/php.log 2>&1
code=$?
tr '\r' '\n' </run/php.log | grep -v '^ *$' | tail -25 | cut -c1-240
# Why it failed is often said long before its end.
[ $code = 0 ] || sed 's/\x1b\[[0-9;]*m//g' /run/php.log | tr '\r' '\n' |
    grep -aE 'WARN|ERROR|[Nn]ot kept|mostly' | sort | uniq -c | sort -rn | head -20 | cut -c1-400
hits=$(tr '\r' '\n' </run/php.log | sed -n 's/.* \([0-9,]*\) hits.*/\1/p' | tail -1)
result "${LABEL:-php}" "code=$code" "hits=${hits:-?}"
exit $code
