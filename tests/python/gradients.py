"""Outputs and gradients through autograd over a random sample of FlashAttention's test grid.

    python tests/python/gradients.py [--cases 2400] [--seed 1] [--workers N] [--seconds 900]

Needs a GPU and PyTorch; exits with 77 without. On a card where nothing was compiled yet, compiling about 500 kernels takes
most of the time. One process per core compiles them. If FA2_DB names a file, they are kept there.

The bound is FlashAttention's own: twice the error of PyTorch's operations in the tensors' own precision, three times for
gradients, plus 1e-5. Errors are against an fp32 computation. Prints the worst quotient of error and bound for each result.
Exits with 1 if one is above 1, or if the time was too short for all cases. Deterministic cases run twice and are compared
bit by bit.
"""

import argparse
import collections
import concurrent.futures
import itertools
import logging
import multiprocessing
import os
import random
import sys
import time

import torch
import torch.nn.functional as F

import fa2_attn as fa2
import fa2_attn.torch

DTYPES = (torch.float16, torch.bfloat16)
DIMS = (32, 64, 96, 128, 192, 256)
FEATURED_DIMS = (64, 128)  # for features, which are compiled into kernels of their own
LENGTHS = ((113, 203), (128, 217), (113, 211), (108, 256), (256, 512), (512, 256), (1024, 1024), (1023, 1024),
           (1024, 1023), (1, 239), (3, 799), (97, 97), (128, 128), (200, 200), (384, 384), (768, 768))
HEADS = ((6, 6), (6, 2), (4, 1))
SIZES = 4  # for each class
WAYS = ("attention", "attention, bhsd", "operation", "packed sequences", "kv packed", "qkv packed", "views")
DROPPED = 44  # of 256
# The features of a case. A window's bound of 0 stands for a random one. The first two kinds have all dimensions.
KINDS = ({}, {"causal": True}, {"window": (0, 0)}, {"causal": True, "window": (0, -1)}, {"causal": True, "softcap": 5.0},
         {"alibi": True}, {"causal": True, "alibi": True}, {"dropout": True}, {"causal": True, "dropout": True},
         {"causal": True, "alibi": True, "dropout": True}, {"causal": True, "sinks": True},
         {"causal": True, "deterministic": True})
Case = collections.namedtuple("Case", "way dtype dim heads heads_kv seq_q seq_k causal window softcap alibi dropout sinks "
                                      "deterministic scale batch seed")


def shapes(rng):
    """Yields the shapes of cases: SIZES for each class of kernels."""
    for number, kind in enumerate(KINDS):
        for dim, dtype in itertools.product(DIMS if number < 2 else FEATURED_DIMS, DTYPES):
            for seq_q, seq_k in rng.sample(LENGTHS, SIZES):
                heads, heads_kv = rng.choice(HEADS)
                if seq_q == seq_k and rng.random() < 0.5:
                    heads_kv = heads  # for packed tensors
                shape = {"dtype": dtype, "dim": dim, "heads": heads, "heads_kv": heads_kv, "seq_q": seq_q,
                         "seq_k": seq_k, "causal": False, "window": None, "softcap": None, "alibi": False,
                         "dropout": False, "sinks": False, "deterministic": False, "batch": rng.choice((1, 2, 3)), **kind}
                if shape["window"]:
                    shape["window"] = tuple(bound if bound < 0 else rng.randrange(seq_k) for bound in shape["window"])
                yield shape


def has_packed_gradients(dropout):
    """Returns whether the library has gradients of packed sequences."""
    try:
        fa2_attn._native.check_differentiable({"heads_q": 1, "seq_q": 1, "head_dim": 8, "varlen": 1, "dropout": int(dropout)})
    except NotImplementedError:
        return False
    return True


def sample(count, seed):
    rng = random.Random(seed)
    known = list(shapes(rng))
    packs_sequences = [has_packed_gradients(dropout) for dropout in (False, True)]
    for number in range(count):
        shape = known[number] if number < len(known) else rng.choice(known)
        packs = shape["seq_q"] == shape["seq_k"] and shape["heads"] == shape["heads_kv"]
        ways = [way for way in (WAYS if packs else WAYS[:5])
                if way != "packed sequences" or packs_sequences[shape["dropout"]]]
        yield Case(way=rng.choice(ways), scale=rng.choice((None, None, 0.2)), seed=number, **shape)


# ---- dropout ----


def key_bytes(plane, i, odd, seed):
    """Returns the bytes [..., 16] of rows, or of pairs of columns, i. The byte at `odd` is made odd."""
    low, four = 0xffffffff, torch.arange(4, device=i.device)
    counter = (i // 32 * 32 + i % 8 * 4)[..., None] + four
    x = [torch.zeros_like(counter), torch.zeros_like(counter), counter, torch.zeros_like(counter) + plane[..., None]]
    key = [seed & low, seed >> 32 & low]
    for _ in range(7):
        a, b = 0xd2511f53 * x[0], 0xcd9e8d57 * x[2]
        x = [(b >> 32 & low) ^ x[1] ^ key[0], b & low, (a >> 32 & low) ^ x[3] ^ key[1], a & low]
        key = [key[0] + 0x9e3779b9 & low, key[1] + 0xbb67ae85 & low]
    word = torch.stack(x, -1).gather(-1, (i // 8 % 4)[..., None, None].expand(*counter.shape, 1))
    of_bytes = (word >> 8 * four & 0xff).flatten(-2)
    of_bytes[..., odd] |= 1
    return of_bytes.double()


def kept(batch, heads, seq_q, seq_k, seed, dropped, device):
    """Returns the mask of fa2.dropout_mask, bool [B, H, Sq, Sk], computed on the device. It drops `dropped` of 256."""
    plane, row = torch.meshgrid(*(torch.arange(n, device=device) for n in (batch * heads, seq_q)), indexing="ij")
    pair = torch.arange((seq_k + 1) // 2, device=device)
    of_pairs = key_bytes(torch.full_like(pair, 0xffffffff), pair, 1, seed)
    number = (key_bytes(plane, row, 0, seed) @ of_pairs.T).long()  # exact; GPUs have no integer products
    byte = torch.stack((number & 0xff, number >> 8 & 0xff), -1).flatten(-2)[..., :seq_k]
    return (byte >= dropped).reshape(batch, heads, seq_q, seq_k)


# ---- attention with PyTorch's operations ----


def hidden(seq_q, seq_k, causal, window, device):
    """Returns a mask that is True where a query does not see a key."""
    places = torch.arange(seq_q, device=device)[:, None] + seq_k - seq_q
    keys = torch.arange(seq_k, device=device)
    left, right = window or (-1, -1)
    unseen = torch.zeros((seq_q, seq_k), dtype=torch.bool, device=device)
    if causal:
        unseen |= keys > places
    if left >= 0:
        unseen |= keys < places - left
    if right >= 0:
        unseen |= keys > places + right
    return unseen


def extras(case):
    """Returns slopes, sinks and the dropout's mask of a case; None for each that it does not have."""
    generator = torch.Generator("cuda").manual_seed(case.seed + 1000000)
    slopes = 0.3 * torch.rand((case.batch, case.heads), device="cuda", generator=generator) if case.alibi else None
    sinks = torch.randn(case.heads, device="cuda", generator=generator) if case.sinks else None
    mask = kept(case.batch, case.heads, case.seq_q, case.seq_k, case.seed, DROPPED, "cuda") if case.dropout else None
    return slopes, sinks, mask


def plain(q, k, v, case, slopes, sinks, mask):
    """Computes attention with PyTorch's operations, in the tensors' own precision."""
    heads = q.shape[2] // k.shape[2]
    q, k, v = q.transpose(1, 2), *(t.transpose(1, 2).repeat_interleave(heads, 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) * (case.scale or q.shape[-1] ** -0.5)
    if case.softcap:
        scores = case.softcap * torch.tanh(scores / case.softcap)
    if slopes is not None:
        places = torch.arange(q.shape[2], device=q.device)[:, None] + k.shape[2] - q.shape[2]
        away = (places - torch.arange(k.shape[2], device=q.device)).abs()
        scores = scores - (slopes[:, :, None, None] * away).to(scores.dtype)
    unseen = hidden(q.shape[2], k.shape[2], case.causal, case.window, q.device)
    scores = scores.masked_fill(unseen, -torch.inf)
    if sinks is not None:
        column = sinks.to(scores.dtype)[None, :, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat((scores, column), -1)
        unseen = F.pad(unseen, (0, 1))
    weights = scores.softmax(-1).masked_fill(unseen.all(-1, keepdim=True), 0)[..., :k.shape[2]]
    if mask is not None:
        weights = weights.masked_fill(~mask, 0) / (1 - DROPPED / 256)
    return (weights @ v).transpose(1, 2)


# ---- packed sequences ----


def lengths_of(case):
    """Returns (queries, keys) of each sequence of a batch. The case gives the longest ones."""
    rng = random.Random(case.seed)
    pairs = [(rng.randint(1, case.seq_q), rng.randint(1, case.seq_k)) for _ in range(case.batch - 1)]
    return [(case.seq_q, case.seq_k), *pairs]


def starts_of(lengths):
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device="cuda")


def plain_packed(q, k, v, case, slopes, sinks, mask):
    """Does the same for packed tensors [T, H, D], sequence by sequence."""
    queries, keys = zip(*lengths_of(case))
    parts = [tensor.split(lengths) for tensor, lengths in ((q, queries), (k, keys), (v, keys))]
    return torch.cat([plain(*(part[None] for part in one), case, None if slopes is None else slopes[b:b + 1], sinks,
                            None if mask is None else mask[b:b + 1, :, :one[0].shape[0], :one[1].shape[0]])[0]
                      for b, one in enumerate(zip(*parts))])


def inputs(case):
    """Returns the leaves, and a function that makes q, k and v of them."""
    generator = torch.Generator("cuda").manual_seed(case.seed)

    def make(*shape):
        return torch.randn(shape, device="cuda", dtype=case.dtype, generator=generator).requires_grad_()

    queries, keys = (case.batch, case.seq_q, case.heads, case.dim), (case.batch, case.seq_k, case.heads_kv, case.dim)
    if case.way == "packed sequences":
        queries, keys = ((sum(lengths), *shape[2:]) for lengths, shape in zip(zip(*lengths_of(case)), (queries, keys)))
    if case.way in ("qkv packed", "views"):
        return [make(case.batch, case.seq_q, 3, case.heads, case.dim)], lambda qkv: qkv.unbind(2)
    if case.way == "kv packed":
        return ([make(*queries), make(case.batch, case.seq_k, 2, case.heads_kv, case.dim)],
                lambda q, kv: (q, *kv.unbind(2)))
    return [make(*queries), make(*keys), make(*keys)], lambda *qkv: qkv


def ours(case, leaves, split, slopes, sinks):
    settings = {"causal": case.causal, "softcap": case.softcap or 0.0, "scale": case.scale, "alibi_slopes": slopes,
                "sinks": sinks}
    if case.dropout:
        settings.update(dropout_p=DROPPED / 256, dropout_seed=torch.tensor([case.seed], device="cuda"))
    q, k, v = split(*leaves)
    if case.way == "operation":
        left, right = case.window or (-1, -1)
        return torch.ops.fa2.attention(q, k, v, window_left=left, window_right=right, **settings)[0]
    settings["window"] = case.window
    if case.way == "packed sequences":
        starts = map(starts_of, zip(*lengths_of(case)))
        settings.update(zip(("cu_seqlens_q", "cu_seqlens_k"), starts), max_seqlen_q=case.seq_q, max_seqlen_k=case.seq_k)
    if case.way.endswith(" packed"):
        return fa2_attn.torch.attention_packed(*leaves, **settings)
    if case.way == "attention, bhsd":
        heads_first = [tensor.transpose(1, 2) for tensor in (q, k, v)]
        return fa2.attention(*heads_first, layout="bhsd", **settings).transpose(1, 2)
    return fa2.attention(q, k, v, **settings)


def with_gradients(out, leaves, d_out):
    return [out.detach(), *torch.autograd.grad(out, leaves, d_out)]


def quotients(case):
    """Returns {result: error over bound}. It is infinite if the bits of a deterministic case change."""
    leaves, split = inputs(case)
    slopes, sinks, mask = extras(case)
    torch.use_deterministic_algorithms(case.deterministic)
    try:
        out = ours(case, leaves, split, slopes, sinks)
        d_out = torch.randn(out.shape, device="cuda", dtype=case.dtype,
                            generator=torch.Generator("cuda").manual_seed(-1 - case.seed))
        got = with_gradients(out, leaves, d_out)
        again = with_gradients(ours(case, leaves, split, slopes, sinks), leaves, d_out) if case.deterministic else got
    finally:
        torch.use_deterministic_algorithms(False)
    maths = plain_packed if case.way == "packed sequences" else plain
    own = with_gradients(maths(*split(*leaves), case, slopes, sinks, mask), leaves, d_out)
    exact_leaves = [leaf.detach().float().requires_grad_() for leaf in leaves]
    exact = with_gradients(maths(*split(*exact_leaves), case, slopes, sinks, mask), exact_leaves, d_out.float())
    names = ("out", *(("d_qkv",), ("dq", "d_kv"), ("dq", "dk", "dv"))[len(leaves) - 1])
    found = []
    for name, a, b, c in zip(names, got, own, exact):
        bound = (2 if name == "out" else 3) * (b.float() - c).abs().max() + 1e-5
        found.append((name, (a.float() - c).abs().max() / bound))
    values = torch.stack([value for _, value in found]).tolist()
    same = all(torch.equal(a, b) for a, b in zip(got, again))
    return dict(zip(names, (float("inf") if value != value or not same else value for value in values)))


# ---- side by side ----


def class_of(case):
    """Returns the fields of a case that decide which kernels are compiled for it."""
    return (str(case.dtype), case.dim, case.causal, case.window is not None, bool(case.softcap), case.alibi, case.dropout,
            case.sinks, case.deterministic, case.way == "packed sequences")


def begin_worker():
    logging.getLogger("fa2_attn").setLevel(logging.ERROR)  # that nothing was tuned is known
    torch.set_num_threads(1)


def found_in(cases):
    """Returns (case, quotients) for each case of one class. So few processes need the kernels of a class."""
    return [(case, quotients(case)) for case in cases]


def all_found(cases, workers, end):
    """Yields (case, quotients) of all cases, until the time is over."""
    classes = {}
    for case in cases:
        classes.setdefault(class_of(case), []).append(case)
    spawn = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(workers, mp_context=spawn, initializer=begin_worker)
    try:
        waiting = [pool.submit(found_in, of_class) for of_class in classes.values()]
        for done in concurrent.futures.as_completed(waiting, timeout=end - time.time()):
            yield from done.result()
    except concurrent.futures.TimeoutError:
        print("the time is over", flush=True)
        for process in pool._processes.values():
            process.terminate()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=2400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=min(32, len(os.sched_getaffinity(0))))
    parser.add_argument("--seconds", type=float, default=900)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: PyTorch has no GPU here")
        sys.exit(77)
    begin, worst, wrong, done = time.time(), {}, 0, 0
    cases = list(sample(arguments.cases, arguments.seed))
    for case, found in all_found(cases, arguments.workers, begin + arguments.seconds):
        done += 1
        for name, value in found.items():
            worst[name] = max(worst.get(name, (0.0, None)), (value, case), key=lambda pair: pair[0])
        if max(found.values()) > 1:
            wrong += 1
            print("wrong:", case, {name: round(value, 3) for name, value in found.items()}, flush=True)
    print(f"{done} of {len(cases)} cases, {wrong} wrong, {time.time() - begin:.1f} s; the worst error / bound:")
    for name, (value, case) in worst.items():
        print(f"  {name:6} {value:.3f}  {case}")
    sys.exit(wrong > 0 or done < len(cases))


if __name__ == "__main__":
    main()
