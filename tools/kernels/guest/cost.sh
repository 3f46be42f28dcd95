# What the witness costs, in instructions: boot with ICOUNT=1 and
# TESTS=target/release/examples/witness_cost.
. /nicache/guest/lib.sh
cd /srv && TMPDIR=/srv /usr/local/lib/nicache-tests/witness_cost once | tee /run/cost.log
code=${PIPESTATUS[0]}
while read -r line; do
    case $line in
    "" | without*) ;;
    *) result "$(echo "$line" | sed -E 's/  +/ | /g')" ;;
    esac
done </run/cost.log
exit "$code"
