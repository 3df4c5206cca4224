#!/usr/bin/env bash
# What of the Python package only a GPU can show, one part behind the other: functions and models against PyTorch, the
# gradient grid, what a call costs the host, models' steps and tokens per second, a small GPT trained (on two GPUs,
# too, where there are), and ring-flash-attn on two GPUs (skipped without them, or without it). Each part's output ends
# with its result. Allow an hour on a card for which nothing was compiled yet; FA2_DB names the file that keeps kernels.
# Usage: tests/python/gpu.sh [PYTHON] [PART...]
# parts: torch flash_attn transformers typing grid host_cost models train ring
# PYTHON has fa2 (pip install .), PyTorch and, for their parts, transformers and mypy. Exits with 77 without a GPU,
# with 1 where a part fails.
set -uo pipefail
python=${1:-python3}
shift || true
cd "$(dirname "$0")"
if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    echo "skipped: $python has no PyTorch with a GPU"
    exit 77
fi
[ $# -gt 0 ] || set -- torch flash_attn transformers typing grid host_cost models train ring
failed=0
for part; do
    begin=$SECONDS
    case $part in
    torch) "$python" -m unittest -v test_tracing test_pickle test_torch ;;
    flash_attn | typing) "$python" -m unittest -v "test_$part" ;;
    transformers) "$python" each_alone.py test_transformers ;;
    grid) "$python" gradients.py ;;
    host_cost | models | ring) "$python" "$part.py" ;;
    train) "$python" train.py --tune ;;
    *) echo "there is no part $part" >&2 && false ;;
    esac
    status=$?
    printf '%s: status %d, %d s\n' "$part" $status $((SECONDS - begin))
    [ $status = 0 ] || [ $status = 77 ] || failed=1
done
exit $failed
