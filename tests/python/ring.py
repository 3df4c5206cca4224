"""ring-flash-attn, as PyPI has it, on fa2: its schedules on several ranks, against one attention in fp64.

    python tests/python/ring.py [--ranks 2] [--host] [--own]

Needs PyTorch, `pip install ring-flash-attn`, and a GPU for each rank; exits with 77 without. With --own the functions
are those of fa2_attn.ring_flash_attn, which needs no ring-flash-attn. With --host the ranks
are processes with gloo and tensors on the host, whose kernels run on the software device (host.py). The shapes are
small then. Takes some minutes on GPUs for which nothing was compiled, one with --host.

Prints for each schedule the errors (root mean square) of out, LSE, dq, dk and dv, and in brackets how many times as
large they are as the errors of one call of fa2 in the same type, in the same rows. Both are those of the worst rank.
Exits with 1 if a factor is above 2. ring-flash-attn adds results that were rounded to 16 bits, so factors somewhat
above 1 are its own.
"""

import argparse
import importlib.util
import logging
import os
import socket
import sys
import types

import torch
import torch.distributed as dist
import torch.multiprocessing

from fa2_attn import flash_attn

WORST = 2.0
SETTINGS = {"causal": True, "return_attn_probs": True}
NAMES = ("out", "lse", "dq", "dk", "dv")


def ring_functions(own=False):
    """Imports ring-flash-attn without its adapter, which needs names that newer versions of transformers lack."""
    if own:
        from fa2_attn import ring_flash_attn
        return ring_flash_attn
    flash_attn.install()
    adapter = types.ModuleType("ring_flash_attn.adapters")
    adapter.substitute_hf_flash_attn = adapter.update_ring_flash_attn_params = None
    sys.modules[adapter.__name__] = adapter
    import ring_flash_attn
    return ring_flash_attn


# ---- which rows of a sequence a rank has ----


def contiguous(length, rank, ranks):
    return torch.arange(length).chunk(ranks)[rank]


def zigzag(length, rank, ranks):
    chunks = torch.arange(length).chunk(2 * ranks)
    return torch.cat((chunks[rank], chunks[2 * ranks - 1 - rank]))


def striped(length, rank, ranks):
    return torch.arange(rank, length, ranks)


def of_each(layout):
    """Rows of packed sequences, each of which is divided."""
    return lambda bounds, *ranks: torch.cat([start + layout(end - start, *ranks)
                                             for start, end in zip(bounds, bounds[1:])])


def of_all(bounds, *ranks):
    return contiguous(bounds[-1], *ranks)


# ---- the schedules ----


def llama3(ring, tensors, starts, longest, rank, ranks, settings):
    *lengths, kept = ring.llama3_flash_attn_prepare_cu_seqlens(starts, True, rank, ranks)
    return ring.llama3_flash_attn_varlen_func(*tensors, *lengths, heads_k_stride=1, local_k_slice=kept, **settings)


def packed(name):
    def call(ring, tensors, starts, longest, rank, ranks, settings):
        return getattr(ring, name)(*tensors, starts // ranks, longest // ranks, **settings)

    return call


def batched(name):
    return lambda ring, tensors, settings: getattr(ring, name)(*tensors, **settings)


BATCHED = {"ring": (contiguous, batched("ring_flash_attn_func")),
           "zigzag": (zigzag, batched("zigzag_ring_flash_attn_func")),
           "stripe": (striped, batched("stripe_flash_attn_func"))}
PACKED = {"ring, packed": (of_each(contiguous), packed("ring_flash_attn_varlen_func")),
          "zigzag, packed": (of_each(zigzag), packed("zigzag_ring_flash_attn_varlen_func")),
          "llama3, packed": (of_all, llama3)}


def exact(q, k, v):
    """(out, lse) of one causal sequence, [S, H, D] and [H, S]."""
    q, k, v = (tensor.transpose(0, 1) for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(q.shape[0] // k.shape[0], 0) for tensor in (k, v))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    scores = scores.masked_fill(torch.ones_like(scores[0], dtype=torch.bool).triu(1), -torch.inf)
    return (scores.softmax(-1) @ v).transpose(0, 1), scores.logsumexp(-1)


def exact_batched(q, k, v):
    return [torch.stack(made) for made in zip(*(exact(*one) for one in zip(q, k, v)))]


def exact_packed(bounds):
    def attention(*tensors):
        parts = [exact(*(tensor[start:end] for tensor in tensors)) for start, end in zip(bounds, bounds[1:])]
        outs, lses = zip(*parts)
        return torch.cat(outs), torch.cat(lses, -1)

    return attention


def run(function, tensors, d_out):
    """Returns out, lse and the gradients."""
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    out, lse = function(*leaves)[:2]
    return [out.detach(), lse.detach(), *torch.autograd.grad(out, leaves, d_out)]


def errors(made, wanted):
    return [(a.double() - b).square().mean().sqrt().item() for a, b in zip(made, wanted)]


def report(name, got, single, rank):
    """Prints errors and factors of the worst rank. Returns true if the factors are small enough."""
    factors = [error / max(one, 1e-6) for error, one in zip(got, single)]
    worst = torch.tensor([got, factors], device="cuda" if dist.get_backend() == "nccl" else "cpu")
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    got, factors = worst.tolist()
    if rank == 0:
        print(f"{name:15}", *(f"{which} {error:.1e} ({factor:.2f})"
                              for which, error, factor in zip(NAMES, got, factors)), flush=True)
    return max(factors) <= WORST


class Rank:
    def __init__(self, rank, ranks, on_host, own):
        self.rank, self.ranks, self.ring = rank, ranks, ring_functions(own)
        self.device = torch.device("cpu" if on_host else "cuda")
        self.step = 16 if on_host else 256
        self.heads, self.kv_heads, self.width = (4, 2, 16) if on_host else (16, 4, 128)
        self.generator = torch.Generator().manual_seed(1)

    def tensors(self, *rows):
        """q, k, v and d_out, alike on all ranks."""
        return [torch.randn((*rows, count, self.width), generator=self.generator).to(self.device, torch.bfloat16)
                for count in (self.heads, self.kv_heads, self.kv_heads, self.heads)]

    def compare(self, schedules, given, dim, wanted, one, place, arguments):
        """Returns true if the errors are small enough.

        wanted, one: exact attention, and fa2's, of all rows. place: the argument of a layout.
        """
        *inputs, d_out = given
        exactly = run(wanted, [tensor.double() for tensor in inputs], d_out.double())
        single = run(one, inputs, d_out)
        fine = True
        for name, (layout, function) in schedules.items():
            rows = layout(place, self.rank, self.ranks).to(self.device)
            *mine, d_mine = (tensor.index_select(dim, rows) for tensor in given)
            got = run(lambda *local: function(self.ring, local, *arguments, SETTINGS), mine, d_mine)
            alone, ours = ([tensor.index_select(-1 if i == 1 else dim, rows) for i, tensor in enumerate(made)]
                           for made in (single, exactly))
            fine &= report(name, errors(got, ours), errors(alone, ours), self.rank)
        return fine

    def batched(self):
        length = 4 * self.ranks * self.step
        return self.compare(BATCHED, self.tensors(2, length), 1, exact_batched,
                            lambda *t: flash_attn.flash_attn_func(*t, **SETTINGS), length, ())

    def packed(self):
        bounds = [self.ranks * self.step * i for i in (0, 2, 8, 12)]
        starts, longest = torch.tensor(bounds, dtype=torch.int32, device=self.device), bounds[2] - bounds[1]
        return self.compare(
            PACKED, self.tensors(bounds[-1]), 0, exact_packed(bounds),
            lambda *t: flash_attn.flash_attn_varlen_func(*t, starts, starts, longest, longest, **SETTINGS), bounds,
            (starts, longest, self.rank, self.ranks))


def work(rank, ranks, port, on_host, own):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if on_host:
        import host
        host.install()
    else:
        torch.cuda.set_device(rank)
    logging.getLogger("fa2_attn").setLevel(logging.ERROR)  # nothing was tuned for these shapes
    dist.init_process_group("gloo" if on_host else "nccl", rank=rank, world_size=ranks)
    mine = Rank(rank, ranks, on_host, own)
    fine = [mine.batched(), mine.packed()]
    dist.destroy_process_group()
    sys.exit(not all(fine))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--host", action="store_true", help="on the software device, FA2_CUDA_LIBRARY")
    parser.add_argument("--own", action="store_true", help="fa2_attn.ring_flash_attn's functions")
    given = parser.parse_args()
    if not given.own and importlib.util.find_spec("ring_flash_attn") is None:
        print("skipped: ring-flash-attn is not installed")
        return 77
    if not given.host and torch.cuda.device_count() < given.ranks:
        print(f"skipped: {given.ranks} ranks need as many GPUs; there are {torch.cuda.device_count()}")
        return 77
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    try:
        torch.multiprocessing.spawn(work, (given.ranks, port, given.host, given.own), given.ranks)
    except torch.multiprocessing.ProcessExitedException as error:
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
