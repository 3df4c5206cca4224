#!/usr/bin/env python3
"""Which share of P kernels drop on a card, compared with fa2.dropout_mask.

    python3 tests/bench/dropout_rate.py [--p 0.17 0.1 0.001 0.5 0.9] [--heads 64] [--seq 4096] [--dtype fp16]

The fa2 package must be importable, PyTorch installed. Some ten seconds of a card and of a processor for each p.

Q is 0, so all of P is 1 / seq. V is 1 in column c of key first + c and 0 elsewhere, so column c of O is not 0 where the
element of that key was kept. A line for each p: how many of heads * seq * seq elements are dropped, how far that is
from p and in standard deviations, the mean of O * seq, which should be 1, and how many elements of the first and the
fourth head differ from fa2_attn.dropout_mask. Exit status 1: an element differs, or the share is further from p than 2^-16
and four standard deviations.
"""
import argparse
import math
import sys

import fa2_attn as fa2
import torch

DIM = 128


def kept_columns(q, k, p, seed):
    """For each DIM keys: the number of the first, and bool [heads, seq, DIM]; and the sum of O * seq."""
    seq = q.shape[1]
    for first in range(0, seq, DIM):
        v = torch.zeros_like(k)
        v[:, first:first + DIM] = torch.eye(DIM, device="cuda", dtype=k.dtype)[None, :, None]
        out = fa2.attention(q, k, v, dropout_p=p, dropout_seed=seed)[0].transpose(0, 1)
        yield first, out != 0, float(out.double().sum()) * seq


def differing(kept, head, p, seed):
    """Elements of a head that differ from the host's mask."""
    seq = kept.shape[0]
    problem = {"batch": head + 1, "heads_q": 1, "seq_q": seq, "seq_k": seq, "head_dim": DIM, "dropout": 1}
    mask = torch.frombuffer(bytearray(fa2.dropout_mask(problem, p, seed)), dtype=torch.uint8)
    return int((mask[head * seq * seq:].view(seq, seq).bool() != kept).sum())


def measure(args, p):
    """Prints a line; whether all is well."""
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[args.dtype]
    q, k = (torch.zeros(1, args.seq, args.heads, DIM, device="cuda", dtype=dtype) for _ in range(2))
    all_count, kept_count, total = args.heads * args.seq ** 2, 0, 0.0
    compared = {head: torch.empty(args.seq, args.seq, dtype=torch.bool) for head in {0, min(3, args.heads - 1)}}
    for first, kept, of_tile in kept_columns(q, k, p, 20):
        kept_count += int(kept.sum())
        total += of_tile
        for head, mask in compared.items():
            mask[:, first:first + DIM] = kept[head].cpu()
    share = 1 - kept_count / all_count
    sigma = math.sqrt(p * (1 - p) / all_count)
    wrong = sum(differing(mask, head, p, 20) for head, mask in compared.items())
    print(f"p = {p}: {share:.8f} of {all_count} dropped, {share - p:+.2e}, {(share - p) / sigma:+.2f} sigma; "
          f"mean {total / all_count:.6f}; {wrong} elements are not as fa2.dropout_mask says")
    return wrong == 0 and abs(share - p) < 2 ** -16 + 4 * sigma


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--p", type=float, nargs="+", default=[0.17, 0.1, 0.001, 0.5, 0.9])
    parser.add_argument("--heads", type=int, default=64)
    parser.add_argument("--seq", type=int, default=4096, help="a multiple of 128")
    parser.add_argument("--dtype", choices=("fp16", "bf16"), default="fp16")
    args = parser.parse_args()
    return 0 if all([measure(args, p) for p in args.p]) else 1


if __name__ == "__main__":
    sys.exit(main())
