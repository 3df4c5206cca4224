#!/bin/sh
# What comes with fa2, on the software device: a fresh database starts with what another machine measured on a card
# of the same kind, and says so. Usage: test_share.sh FA2_TUNE LIBFA2SIM SIM_CLIENT
set -u
[ $# -ge 3 ] || {
    echo "usage: test_share.sh FA2_TUNE LIBFA2SIM SIM_CLIENT" >&2
    exit 2
}
# shellcheck source=tests/sim/few.sh
. "$(dirname "$0")/few.sh"

winner() {
    run 0 list --db "$1" --json
    python3 -c 'import json; print(json.load(open("out"))[0]["variant"])'
}

run 0 --device 0 --shape $shape --db elsewhere.db
mkdir share
cp elsewhere.db share/shipped.db
won=$(winner elsewhere.db)

# ---- without it ----
call 0 1 2 48 16 1 --db none.db
has out "rule       default:"

# ---- with it: a fresh database, the same winner, and no word in the log but that ----
export FA2_SHARE="$folder/share"
call 0 1 2 48 16 1
has out "rule       shipped: nothing of this kind is tuned here"
has out "by what comes with fa2"
has out "$won"
run 0 explain --shape $shape --device 0
has out "rule      shipped: the best estimate, by measurements that come with fa2"
has out "kernel    $won"
run 0 explain --shape $shape --arch sm_86
has out "rule      shipped:"
call 0 1 2 48 16 1 --db ""
has out "rule       default:"
# A problem that was not measured there is estimated from those that were; another class is the model's.
call 0 1 2 80 16 1
has out "rule       shipped:"
call 0 1 2 48 16 0
has out "rule       default:"

# ---- what it led to is compiled once ----
export FA2_NVRTC_LIBRARY=/nonexistent/libnvrtc.so
call 0 1 2 48 16 1
has out "rule       shipped:"
has out "$won"
unset FA2_NVRTC_LIBRARY

# ---- what is measured here comes first; what comes with fa2 is not what a benchmark calls untuned ----
run 0 bench --device 0 --shape $shape --format csv
has out ",chosen,shipped,"
run 0 --device 0 --shape $shape
call 0 1 2 48 16 1
has out "rule       exact:"
call 0 1 2 80 16 1
has out "rule       nearest:"

# ---- it is found beside a program that is called by its name alone ----
mkdir -p installed/bin installed/share
cp "$tune" installed/bin/fa2-tune
cp -r share installed/share/fa2
expect_status 0 "fa2-tune by its name" env -u FA2_SHARE PATH="$folder/installed/bin:$PATH" \
    fa2-tune explain --shape $shape --device 0 --db fresh.db
has out "rule      shipped:"

# ---- of another version: said, and it counts for nothing ----
rm fa2.db
mkdir newer
cp share/shipped.db newer/shipped.db
python3 - <<'END'
import sqlite3
db = sqlite3.connect("newer/shipped.db")
db.execute("UPDATE kernel SET variant = replace(variant, 'fwd_sm80 ', 'fwd_sm81 ')")
db.commit()
END
FA2_SHARE=$folder/newer
run 0 explain --shape $shape --device 0
has out "rule      default:"
has err "kernels that come with fa2 are unknown to this version"
FA2_SHARE=$folder/share
run 0 explain --shape $shape --device 0
lacks err "unknown to this version"

# ---- damaged, cut, not there: said, and no error ----
cp share/shipped.db whole.db
head -c 30000 whole.db >share/shipped.db
call 0 1 2 48 16 1
has out "rule       default:"
run 0 explain --shape $shape --device 0
has err "share/shipped.db: database disk image is malformed"
FA2_SHARE=$folder/nowhere
run 0 explain --shape $shape --device 0
has out "rule      default:"
has err "nowhere: No such file or directory"

# ---- the example's own options ----
call 2 --sofcap 3
has err "attention: there is no option --sofcap"
has err "usage: attention"
call 2 --db
has err "attention: --db needs a value"
call 2 --window 3
has err 'attention: --window cannot be "3"'
call 0 --backward --help
has out "usage: attention"
empty err
summary
