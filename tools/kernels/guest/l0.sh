# The same with L0 at the TAP.
LABEL=l0 OPTIONS=--l0 . /nicache/guest/static.sh
