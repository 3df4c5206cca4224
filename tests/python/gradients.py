"""Outputs and gradients through autograd over a random sample of FlashAttention's test grid.

    python tests/python/gradients.py [--cases 2000] [--seed 1] [--threads 16] [--seconds 600]

The rule is FlashAttention's own: the error against an fp32 computation is at most twice (gradients: three
times) that of the same maths in the tensors' own precision, plus 1e-5. Kernels are compiled beforehand, by
threads. Prints the worst quotient of error and bound for each result, and exits with 1 if one is above 1 or if
the time was too short for all cases.
"""

import argparse
import collections
import concurrent.futures
import itertools
import random
import sys
import time

import torch

import fa2
import fa2.torch

DTYPES = (torch.float16, torch.bfloat16)
DIMS = (32, 64, 96, 128, 192, 256)
MASKED_DIMS = (64, 128)  # for windows and softcap, which are compiled into kernels of their own
LENGTHS = ((113, 203), (128, 217), (113, 211), (108, 256), (256, 512), (512, 256), (1024, 1024), (1023, 1024),
           (1024, 1023), (1, 239), (3, 799), (97, 97), (128, 128), (200, 200), (384, 384), (768, 768))
HEADS = ((6, 6), (6, 2), (4, 1))
SIZES = 6  # for each class
WAYS = ("attention", "attention, bhsd", "operation", "kv packed", "qkv packed", "views")
# causal, window (0: any bound), softcap
MASKS = ((False, None, None), (True, None, None), (False, (0, 0), None), (True, (0, -1), None), (True, None, 5.0))
Case = collections.namedtuple("Case", "way dtype dim heads heads_kv seq_q seq_k causal window softcap scale batch seed")


def shapes(rng):
    """What kernels are made for: some sizes for each class."""
    for causal, window, softcap in MASKS:
        for dim, dtype in itertools.product(MASKED_DIMS if window or softcap else DIMS, DTYPES):
            for seq_q, seq_k in rng.sample(LENGTHS, SIZES):
                heads, heads_kv = rng.choice(HEADS)
                if seq_q == seq_k and rng.random() < 0.5:
                    heads_kv = heads  # for packed tensors
                bounds = window and tuple(bound if bound < 0 else rng.randrange(seq_k) for bound in window)
                yield {"dtype": dtype, "dim": dim, "heads": heads, "heads_kv": heads_kv, "seq_q": seq_q, "seq_k": seq_k,
                       "causal": causal, "window": bounds, "softcap": softcap, "batch": rng.choice((1, 2, 3))}


def sample(count, seed):
    rng = random.Random(seed)
    known = list(shapes(rng))
    for number in range(count):
        shape = known[number] if number < len(known) else rng.choice(known)
        packs = shape["seq_q"] == shape["seq_k"] and shape["heads"] == shape["heads_kv"]
        yield Case(way=rng.choice(WAYS if packs else WAYS[:4]), scale=rng.choice((None, None, 0.2)), seed=number, **shape)


def hidden(seq_q, seq_k, causal, window, device):
    """Where a query does not see a key."""
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


def plain(q, k, v, case):
    """The same maths, in the tensors' own precision."""
    heads = q.shape[2] // k.shape[2]
    q, k, v = q.transpose(1, 2), *(t.transpose(1, 2).repeat_interleave(heads, 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) * (case.scale or q.shape[-1] ** -0.5)
    if case.softcap:
        scores = case.softcap * torch.tanh(scores / case.softcap)
    if not case.causal and not case.window:
        return (scores.softmax(-1) @ v).transpose(1, 2)
    unseen = hidden(q.shape[2], k.shape[2], case.causal, case.window, q.device)
    weights = scores.masked_fill(unseen, -torch.inf).softmax(-1).masked_fill(unseen.all(-1, keepdim=True), 0)
    return (weights @ v).transpose(1, 2)


def inputs(case):
    """(leaves, a function of them that gives q, k and v)."""
    generator = torch.Generator("cuda").manual_seed(case.seed)

    def make(*shape):
        return torch.randn(shape, device="cuda", dtype=case.dtype, generator=generator).requires_grad_()

    queries = (case.batch, case.seq_q, case.heads, case.dim)
    if case.way in ("qkv packed", "views"):
        return [make(case.batch, case.seq_q, 3, case.heads, case.dim)], lambda qkv: qkv.unbind(2)
    if case.way == "kv packed":
        return ([make(*queries), make(case.batch, case.seq_k, 2, case.heads_kv, case.dim)],
                lambda q, kv: (q, *kv.unbind(2)))
    keys = (case.batch, case.seq_k, case.heads_kv, case.dim)
    return [make(*queries), make(*keys), make(*keys)], lambda *qkv: qkv


def ours(case, leaves, split):
    settings = {"causal": case.causal, "window": case.window, "softcap": case.softcap, "scale": case.scale}
    if case.way.endswith(" packed"):
        return fa2.torch.attention_packed(*leaves, **settings)
    q, k, v = split(*leaves)
    if case.way == "operation":
        return torch.ops.fa2.attention(q, k, v, case.causal, *(case.window or (-1, -1)), case.softcap or 0.0, case.scale)[0]
    if case.way == "attention, bhsd":
        heads_first = [tensor.transpose(1, 2) for tensor in (q, k, v)]
        return fa2.attention(*heads_first, layout="bhsd", **settings).transpose(1, 2)
    return fa2.attention(q, k, v, **settings)


def with_gradients(out, leaves, d_out):
    return [out.detach(), *torch.autograd.grad(out, leaves, d_out)]


def quotients(case):
    """By result: error over bound."""
    leaves, split = inputs(case)
    d_out = torch.randn((case.batch, case.seq_q, case.heads, case.dim), device="cuda", dtype=case.dtype,
                        generator=torch.Generator("cuda").manual_seed(-1 - case.seed))
    got = with_gradients(ours(case, leaves, split), leaves, d_out)
    own = with_gradients(plain(*split(*leaves), case), leaves, d_out)
    exact_leaves = [leaf.detach().float().requires_grad_() for leaf in leaves]
    exact = with_gradients(plain(*split(*exact_leaves), case), exact_leaves, d_out.float())
    names = ("out", *(("d_qkv",), ("dq", "d_kv"), ("dq", "dk", "dv"))[len(leaves) - 1])
    found = []
    for name, a, b, c in zip(names, got, own, exact):
        bound = (2 if name == "out" else 3) * (b.float() - c).abs().max() + 1e-5
        found.append((name, (a.float() - c).abs().max() / bound))
    values = torch.stack([value for _, value in found]).tolist()
    return dict(zip(names, (float("inf") if value != value else value for value in values)))


def prepare(cases, threads):
    """Load the kernels of all cases; returns how many problems that were."""
    problems = {}
    for case in cases:
        fields = {"batch": case.batch, "heads_q": case.heads, "heads_kv": case.heads_kv, "seq_q": case.seq_q,
                  "seq_k": case.seq_k, "head_dim": case.dim, "causal": int(case.causal),
                  "dtype": "fp16" if case.dtype == torch.float16 else "bf16", "softcap": int(bool(case.softcap)),
                  "window": int(bool(case.window))}
        if case.window:
            fields.update(window_left=case.window[0], window_right=-1 if case.causal else case.window[1])
        for op in ("forward", "backward"):
            problems[(op, *fields.values())] = {"op": op, **fields}
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(compile_for, [list(problems.values())[i::threads] for i in range(threads)]))
    for problem in problems.values():
        fa2.prepare(problem)
    return len(problems)


def compile_for(problems):
    """Into the database; contexts, unlike threads of one, compile side by side."""
    with fa2.Context() as context:
        for problem in problems:
            context.prepare(problem)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=600)
    arguments = parser.parse_args()
    end = time.time() + arguments.seconds
    cases = list(sample(arguments.cases, arguments.seed))
    begin = time.time()
    count = prepare(cases, arguments.threads)
    print(f"{count} problems prepared in {time.time() - begin:.1f} s", flush=True)
    begin, worst, wrong, done = time.time(), {}, 0, 0
    for case in cases:
        if time.time() > end:
            break
        done += 1
        found = quotients(case)
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
