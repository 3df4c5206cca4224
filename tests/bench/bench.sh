#!/usr/bin/env bash
# fa2 against PyTorch's attention on this machine's GPU, in one command: build, tune every shape of
# shapes.csv into a database of its own, compare forward, backward and both together. Writes bench.csv,
# bench.md and bench.svg into FOLDER/bench.
# Needs a python3 with PyTorch (PYTHON=... names another).
#
# tests/bench/bench.sh [FOLDER [OPTION...]]   FOLDER: a finished build; without it build-release is built. Options are
#                                             those of compare.py, for instance --peers flash,cudnn --rounds 7
set -euo pipefail
cd "$(dirname "$0")/../.."

# shellcheck source=tuner/setup.sh
. tuner/setup.sh

folder=${1:-build-release}
python=${PYTHON:-python3}
"$python" -c 'import torch; assert torch.cuda.is_available()' ||
    die "$python has no PyTorch that sees a GPU; PYTHON=... names another"
if [ $# -eq 0 ]; then
    setup_packages
    setup_cuda
    quietly "cmake" cmake --preset release "${cuda_options[@]}"
    quietly "build" cmake --build --preset release
fi

mkdir -p "$folder/bench"
say "tuning into $folder/bench/bench.db"
"$folder/tuner/fa2-tune" tune --device 0 --shapes tests/bench/shapes.csv --op all \
    --db "$folder/bench/bench.db"
say "comparing"
"$python" tests/bench/compare.py --library "$folder/runtime/libfa2.so" \
    --db "$folder/bench/bench.db" --shapes tests/bench/shapes.csv --peers flash,efficient,cudnn \
    --out "$folder/bench/bench" "${@:2}"
