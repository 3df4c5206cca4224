#!/usr/bin/env bash
# The Python package as its users get it: `pip install .` into a fresh virtual environment, then its tests on
# the software device, without PyTorch. Usage: tests/python/run.sh LIBFA2SIM [TEST...]
# FA2_NVRTC_DIR: where libnvrtc is, if the library would not find it by itself.
set -euo pipefail
library=$(realpath "$1")
shift
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m venv "$folder/venv"
begin=$SECONDS
"$folder/venv/bin/pip" install -q --disable-pip-version-check -C cmake.define.FA2_WERROR=ON .
printf 'pip install . took %d s\n' $((SECONDS - begin))

# Few variants are enough for what is tested here.
export FA2_CUDA_LIBRARY=$library FA2_SIM_CARD=${FA2_SIM_CARD:-l4} FA2_DB=$folder/fa2.db
export FA2_GEN_PATH=$PWD/tests/sim/few
if [ -n "${FA2_NVRTC_DIR:-}" ] && [ -z "${FA2_NVRTC_LIBRARY:-}" ]; then
    export FA2_NVRTC_LIBRARY
    FA2_NVRTC_LIBRARY=$(ls "$FA2_NVRTC_DIR"/libnvrtc.so.1[23])
fi
cd tests/python
"$folder/venv/bin/python" -X faulthandler -m unittest "$@"
