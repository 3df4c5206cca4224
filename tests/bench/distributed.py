#!/usr/bin/env python3
"""Attention over several GPUs (fa2_attn.distributed): rates, errors, masks, the choice of a schedule, merging, training.

    python tests/bench/distributed.py [--ranks 2] [--parts rate,error,masks,auto,merge,train] [--rounds 7] [--host]

rate    microseconds of forward, and of forward and backward, of the slowest rank (median), for 8192 and 32768 rows per
        GPU; and the share of the rate that one GPU has alone. One GPU alone computes causal attention of as many rows as
        each rank has; P ranks together compute P^2 times as much, each P times. ring-flash-attn is timed if it is
        installed, on fa2's kernels and on PyTorch's FlashAttention-2.
error   root mean square of out, dq, dk and dv against fp32, as a multiple of one call's in bf16.
masks   windows, dropout and ALiBi in the ring: how many elements of out equal one call's bit for bit, and the greatest difference.
auto    20 shapes: the schedule that 'auto' takes by its model, its time over that of the fastest one; and the same after
        the first five shapes were timed by tune().
merge   fa2_attn.merge of 2 and 8 results: bytes per second as a share of a copy's.
train   a GPT with 32768 tokens, 100 steps: loss over several GPUs and on one, from one seed.

Causal, zigzag, 32 heads of q and 8 of k and v, D = 128, bf16, unless said. The line of a part names what is wanted of it.
Needs PyTorch with NCCL and a GPU for each rank; exits with 77 without. --host: tiny shapes with gloo, whose kernels run on
the software device (tests/python/host.py), to try this program.
"""

import argparse
import functools
import logging
import os
import random
import socket
import statistics
import sys
import time
import types
from typing import Any, Callable, Dict, List, Tuple

import torch
import torch.distributed as dist
import torch.multiprocessing
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
PARTS = ("rate", "error", "masks", "auto", "merge", "train")
ONE = "one GPU"  # begins the names of calls that have one rank's share of the work


class Bench:
    def __init__(self, given: argparse.Namespace) -> None:
        self.host, self.rounds = given.host, 1 if given.host else given.rounds
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.device = "cpu" if given.host else "cuda"
        self.heads, self.kv_heads, self.width = (4, 2, 16) if given.host else (32, 8, 128)
        self.alone = [dist.new_group([rank]) for rank in range(self.ranks)][self.rank] if given.host else None

    def say(self, *words: Any) -> None:
        if self.rank == 0:
            print(*words, flush=True)

    def wait(self) -> None:
        if not self.host:
            torch.cuda.synchronize()

    def tensors(self, rows: int, batch: int = 1, heads: int = 0, kv_heads: int = 0,
                seed: int = 1) -> List[torch.Tensor]:
        """q, k, v and the gradient of out, alike on all ranks."""
        generator = torch.Generator().manual_seed(seed)
        heads, kv_heads = heads or self.heads, kv_heads or self.kv_heads
        return [torch.randn((batch, rows, count, self.width), generator=generator).bfloat16().to(self.device)
                for count in (heads, kv_heads, kv_heads, heads)]

    def in_turns(self, calls: Dict[str, Callable[[], Any]], layers: int = 4) -> Dict[str, float]:
        """Median over rounds of the slowest rank's time of each call, of several that follow each other as layers do.

        The calls take turns, so that all of them meet the same heat. A GPU's clock depends on the power that it has
        drawn in the last tenth of a second. So each call is repeated before it is timed, and calls of one GPU follow
        each other as many times more often as they have less work. The device waits for the host before the first layer
        only, 550 us in a ring's forward: a part of that counts in each layer's time, the less the more layers there
        are."""
        times = torch.empty((len(calls), self.rounds), device=self.device)
        for turn in range(-1, self.rounds):  # the first one is not counted
            for i, (name, call) in enumerate(calls.items()):
                count = 1 if self.host else layers * (self.ranks if name.startswith(ONE) else 1)
                for timed in (False, turn >= 0):
                    self.wait()
                    dist.barrier()
                    begin = time.perf_counter()
                    for _ in range(count):
                        call()
                    self.wait()
                    if timed:
                        times[i, turn] = 1e6 * (time.perf_counter() - begin) / count
        dist.all_reduce(times, dist.ReduceOp.MAX)
        return {name: statistics.median(row) for name, row in zip(calls, times.tolist())}

    def microseconds(self, call: Callable[[], Any]) -> float:
        return self.in_turns({"": call})[""]

    def one(self, *tensors: torch.Tensor, **settings: Any) -> torch.Tensor:
        """One GPU's attention."""
        import fa2_attn.torch
        from fa2_attn import distributed
        if self.host:  # no kernel of PyTorch's dispatcher has tensors on the host
            made: Any = distributed.attention(*tensors, group=self.alone, layout="contiguous", schedule="gather",
                                              **settings)
        else:
            made = fa2_attn.torch.attention(*tensors, **settings)
        return made  # type: ignore[no-any-return]


# ---- rates ----


def ring_flash_attn() -> Any:
    """Imports ring-flash-attn on fa2's kernels, without its adapter for transformers; None: not installed."""
    from fa2_attn import flash_attn
    flash_attn.install(replace=True)
    adapter: Any = types.ModuleType("ring_flash_attn.adapters")
    adapter.substitute_hf_flash_attn = adapter.update_ring_flash_attn_params = None
    sys.modules[adapter.__name__] = adapter
    try:
        import ring_flash_attn as found
    except ImportError:
        return None
    return found


def pytorchs_forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float, softmax_scale: float,
                     causal: bool, window_size_left: int, window_size_right: int, softcap: float, alibi_slopes: Any,
                     return_softmax: bool) -> Tuple[Any, ...]:
    """flash-attn's step as ring-flash-attn calls it, by PyTorch's FlashAttention-2."""
    out, lse, *_ = torch.ops.aten._flash_attention_forward(
        q, k, v, None, None, q.shape[1], k.shape[1], 0.0, causal, False, scale=softmax_scale)
    return out, lse, None, None


def pytorchs_backward(dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor,
                      softmax_lse: torch.Tensor, dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor,
                      dropout_p: float, softmax_scale: float, causal: bool, window_size_left: int,
                      window_size_right: int, softcap: float, alibi_slopes: Any, deterministic: bool,
                      rng_state: Any = None) -> None:
    """The same, backward. Its copies of the gradients take less than a hundredth of its time."""
    unused = torch.empty(2, dtype=torch.int64, device=q.device)
    made = torch.ops.aten._flash_attention_backward(
        dout, q, k, v, out, softmax_lse, None, None, q.shape[1], k.shape[1], 0.0, causal, unused, unused,
        scale=softmax_scale)
    for gradient, part in zip((dq, dk, dv), made):
        gradient.copy_(part)


def zigzag_peers() -> Dict[str, Callable[..., Any]]:
    """ring-flash-attn on fa2's kernels and on PyTorch's FlashAttention-2, if it is installed."""
    if ring_flash_attn() is None:
        return {}
    loop: Any = sys.modules["ring_flash_attn.zigzag_ring_flash_attn"]
    fa2: Any = sys.modules["flash_attn.flash_attn_interface"]

    def run(steps: Tuple[Any, Any], *tensors: torch.Tensor) -> Any:
        loop._flash_attn_forward, loop._flash_attn_backward = steps  # backward, which follows, finds them there
        return loop.zigzag_ring_flash_attn_func(*tensors, causal=True)

    return {"ring-flash-attn, fa2": functools.partial(run, (fa2._flash_attn_forward, fa2._flash_attn_backward)),
            "ring-flash-attn, FA2": functools.partial(run, (pytorchs_forward, pytorchs_backward))}


def rate_of(bench: Bench, rows: int) -> None:
    from fa2_attn import distributed
    *leaves, d_out = bench.tensors(rows)
    leaves = [tensor.requires_grad_() for tensor in leaves]
    ways: Dict[str, Callable[..., Any]] = {ONE: lambda *t: bench.one(*t, causal=True)}
    for schedule in ("ring", "gather", "ulysses"):
        ways[schedule] = lambda *t, how=schedule: distributed.attention(*t, causal=True, schedule=how)
    ways.update({} if bench.host else zigzag_peers())
    calls: Dict[str, Callable[[], Any]] = {}
    for name, function in ways.items():
        def forward(run: Callable[..., Any] = function) -> None:
            with torch.no_grad():
                run(*leaves)

        def both(run: Callable[..., Any] = function) -> None:
            torch.autograd.grad(run(*leaves), leaves, d_out)

        calls.update({name + " forward": forward, name + " both": both})
    layers = 32 if rows < 32768 else 4
    times = bench.in_turns(calls, layers)
    bench.say(f"{rows:6} rows, {layers} layers")
    for name in ways:
        work = 1 if name == ONE else bench.ranks
        bench.say(f"{rows:6} rows  {name:20}", *(
            f"{title} {times[name + title]:9.1f} us {work * times[ONE + title] / times[name + title]:6.1%}"
            for title in (" forward", " both")))


def rate(bench: Bench) -> None:
    bench.say("rate: ring at 8192 rows at least 88 % and 90 % (aim 93 %, 95 %), at 32768 rows 95 % (98 %); "
              "ring-flash-attn takes at least 1.1 times as long on fa2's kernels, 1.5 times on FlashAttention-2")
    for rows in (48,) if bench.host else (8192, 32768):
        rate_of(bench, rows)


# ---- errors and masks ----


def error(bench: Bench) -> None:
    from fa2_attn import distributed
    bench.say("error: at most 1.2 times one call's (aim 1.0)")
    rows = (24 if bench.host else 2048) * bench.ranks
    *inputs, d_out = bench.tensors(rows)

    def run(function: Callable[..., torch.Tensor], tensors: List[torch.Tensor],
            gradient: torch.Tensor) -> List[torch.Tensor]:
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        out = function(*leaves)
        return [out.detach(), *torch.autograd.grad(out, leaves, gradient)]

    def exact(*tensors: torch.Tensor) -> torch.Tensor:
        q, k, v = (tensor.transpose(1, 2) for tensor in tensors)
        k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], 1) for tensor in (k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)

    wanted = run(exact, [tensor.double() for tensor in inputs], d_out.double())
    single = run(lambda *t: bench.one(*t, causal=True), inputs, d_out)
    for schedule in ("ring", "gather", "ulysses"):
        mine = [distributed.shard(tensor) for tensor in (*inputs, d_out)]
        got = run(lambda *t, how=schedule: distributed.attention(*t, causal=True, schedule=how), mine[:3], mine[3])
        factors = []
        for own, one, right in zip(got, single, wanted):
            rms = [(made.double() - place).square().mean().sqrt() for made, place in
                   ((own, distributed.shard(right)), (distributed.shard(one), distributed.shard(right)))]
            factor = rms[0] / rms[1]
            dist.all_reduce(factor, dist.ReduceOp.MAX)
            factors.append(f"{factor.item():.3f}")
        bench.say(f"error {schedule:8} out, dq, dk, dv:", *factors)


def bits_apart(a: torch.Tensor, b: torch.Tensor) -> Tuple[float, float, float]:
    """Returns the share of equal elements, the share of those that differ by one rounding of their size at most, and the
    greatest difference in roundings of the head's ordinary element, or of its own size if it is larger. One rounding: the
    distance of neighbours in bf16. An element whose terms nearly cancel is small, and sums of fp32 in another order may
    differ by many of its own roundings."""
    apart, size = (a.float() - b.float()).abs(), torch.maximum(a.float().abs(), b.float().abs()).clamp_min(2.0 ** -126)

    def roundings(sizes: torch.Tensor) -> torch.Tensor:
        return apart / 2.0 ** (sizes.log2().floor() - 7)

    return ((a == b).float().mean().item(), (roundings(size) <= 1).float().mean().item(),
            roundings(torch.maximum(size, size.square().mean((0, 1, 3), keepdim=True).sqrt())).max().item())


def masks(bench: Bench) -> None:
    from fa2_attn import distributed
    bench.say("masks: the bits of one GPU, or one rounding apart; sums of fp32 have another order than in one call")
    rows = (128 if bench.host else 4096) * bench.ranks
    q, k, v, _ = bench.tensors(rows)
    cases: Dict[str, Dict[str, Any]] = {f"window {width}": {"window": (width, 0)}
                                        for width in ((17,) if bench.host else (100, 1000, 5000))}
    cases["dropout"] = {"dropout_p": 0.17, "dropout_seed": 5}
    cases["ALiBi"] = {"alibi_slopes": 2.0 ** -torch.arange(1, bench.heads + 1, device=bench.device)}
    for layout in ("contiguous", "zigzag", "striped"):
        for name, given in cases.items():
            if layout == "striped" and name == "dropout":
                continue  # the ring refuses it
            whole = bench.one(q, k, v, causal=True, **given)
            mine = [distributed.shard(tensor, layout=layout) for tensor in (q, k, v)]
            got = distributed.attention(*mine, causal=True, layout=layout, schedule="ring", **given)
            equal, within, units = bits_apart(got, distributed.shard(whole, layout=layout))
            bench.say(f"masks {layout:10} {name:12}: {equal:.2%} of the elements have the bits of one GPU, {within:.3%} "
                      f"are within one rounding of their size; the greatest difference is {units:.1f} roundings of "
                      "an element of the head's ordinary size")


# ---- the choice of a schedule ----


def auto(bench: Bench) -> None:
    from fa2_attn import distributed
    bench.say("auto: at most 1.05 of the fastest (aim 1.02)")
    chance = random.Random(39)
    shapes = [(chance.choice((1, 2, 4)), 2 ** chance.randint(9, 14), *chance.choice(((32, 8), (32, 32), (16, 2), (8, 8))))
              for _ in range(20)]
    if bench.host:
        shapes = [(1, 16, 4, 2), (1, 32, 4, 4)]
    settled: Dict[Any, Dict[str, float]] = {}
    for title, tuned in (("by the model", 0), ("after tune() of some", 5)):
        ratios = []
        for number, shape in enumerate(shapes):
            batch, rows, heads, kv_heads = shape
            q, k, v, _ = bench.tensors(rows, batch, heads, kv_heads)
            if number < tuned:
                distributed.tune(q, k, v, causal=True, rounds=bench.rounds)
            if shape not in settled:
                settled[shape] = {how: bench.microseconds(
                    lambda how=how: distributed.attention(q, k, v, causal=True, schedule=how))
                    for how in ("ring", "gather", "ulysses")}
            told = distributed.explain(q, k, v, causal=True)
            times = settled[shape]
            ratios.append(times[told["schedule"]] / min(times.values()))
            bench.say(f"auto {title}: {batch} x {rows} rows, {heads}/{kv_heads} heads: {told['schedule']} "
                      f"{ratios[-1]:.3f};", ", ".join(f"{how} {us:.0f} us" for how, us in times.items()), "|",
                      told["reason"])
        bench.say(f"auto {title}: mean {statistics.mean(ratios):.3f}, worst {max(ratios):.3f}")


# ---- merging ----


def merge(bench: Bench) -> None:
    import fa2_attn
    if bench.host:
        bench.say("merge: not on the host")
        return
    bench.say("merge: at least 85 % of a copy's bandwidth (aim 95 %)")
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copied = 2 * source.numel() / bench.microseconds(lambda: target.copy_(source))
    del source, target
    for count in (2, 8):
        for dtype in (torch.bfloat16, torch.float32):
            parts = torch.randn(count, 1, 16384, bench.heads, bench.width, device="cuda")
            lse = torch.randn(count, 1, bench.heads, 16384, device="cuda")
            out = torch.empty(parts.shape[1:], dtype=dtype, device="cuda")
            if bench.rank == 0:  # merging into fp32 counts as fp16 with partial=1
                fa2_attn.tune(f"op=merge,Hq={bench.heads},Sq=16384,Sk={count},D={bench.width}," +
                              ("dtype=bf16" if dtype == torch.bfloat16 else "dtype=fp16,partial=1"))
            dist.barrier()
            moved = 4 * (parts.numel() + lse.numel()) + out.element_size() * out.numel()
            rate_here = moved / bench.microseconds(lambda: fa2_attn.merge(parts, lse, out=out))
            bench.say(f"merge {count} to {dtype}: {rate_here / 1e6:.3f} TB/s, {rate_here / copied:.1%} of a copy's "
                      f"{copied / 1e6:.3f}")


# ---- training ----


class Layer(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = (torch.nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, attend: Callable[..., torch.Tensor]) -> torch.Tensor:
        q, k, v = self.qkv(self.first(x)).view(*x.shape[:2], 3, self.heads, -1).bfloat16().unbind(2)
        x = x + self.out(attend(q, k, v).flatten(2).float())
        return x + self.down(F.gelu(self.up(self.second(x))))


class Gpt(torch.nn.Module):
    def __init__(self, length: int, layers: int, heads: int, width: int) -> None:
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(256, width), torch.nn.Embedding(length, width)
        self.layers = torch.nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.end = torch.nn.Linear(width, 256)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor,
                attend: Callable[..., torch.Tensor]) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(positions)
        for layer in self.layers:
            x = layer(x, attend)
        logits: torch.Tensor = self.end(x)
        return logits


def losses(bench: Bench, steps: int, length: int, sizes: Tuple[int, int, int], several: bool) -> List[float]:
    from pydoc_data.topics import topics

    from fa2_attn import distributed
    text = torch.tensor(list("".join(topics.values()).encode()), device=bench.device)
    torch.manual_seed(39)
    model = Gpt(length, *sizes).to(bench.device)
    optimizer, found = torch.optim.AdamW(model.parameters(), lr=3e-4), []
    positions = distributed.positions(length, device=bench.device) if several else \
        torch.arange(length, device=bench.device)
    attend: Callable[..., torch.Tensor] = distributed.attention if several else bench.one
    for step in range(steps):
        begin = step * length % (len(text) - length - 1)
        window = text[begin:begin + length + 1]
        logits = model(window[positions][None], positions, lambda q, k, v: attend(q, k, v, causal=True))
        loss = F.cross_entropy(logits[0], window[positions + 1])
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters() if several else ():
            dist.all_reduce(parameter.grad)
            parameter.grad /= bench.ranks
        shown = loss.detach().clone()
        if several:
            dist.all_reduce(shown)
            shown /= bench.ranks
        optimizer.step()
        found.append(shown.item())
    return found


def train(bench: Bench) -> None:
    bench.say("train: the loss within 0.2 %")
    steps, length, sizes = (2, 64, (1, 2, 32)) if bench.host else (100, 32768, (4, 8, 512))
    several, alone = (losses(bench, steps, length, sizes, which) for which in (True, False))
    apart = [abs(a / b - 1) for a, b in zip(several, alone)]
    bench.say(f"train: loss {several[0]:.4f} to {several[-1]:.4f}, on one GPU {alone[-1]:.4f}; at most {max(apart):.3%} "
              f"apart, in the end {apart[-1]:.3%}")


# ---- the program ----


def work(rank: int, given: argparse.Namespace, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    logging.getLogger("fa2_attn").setLevel(logging.ERROR)
    if given.host:
        sys.path.insert(0, os.path.join(HERE, "..", "python"))
        import host
        torch.set_num_threads(1)
        host.install()
    else:
        torch.cuda.set_device(rank)
    dist.init_process_group("gloo" if given.host else "nccl", rank=rank, world_size=given.ranks)
    bench = Bench(given)
    for part in given.parts.split(","):
        globals()[part](bench)
    dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--host", action="store_true")
    given = parser.parse_args()
    unknown = sorted(set(given.parts.split(",")) - set(PARTS))
    if unknown:
        parser.error(f"--parts: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if not given.host and torch.cuda.device_count() < given.ranks:
        print(f"skipped: {given.ranks} ranks need as many GPUs; there are {torch.cuda.device_count()}")
        return 77
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(work, (given, port), given.ranks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
