"""fa2_attn.distributed: ranks as processes with gloo and tensors on the host, whose kernels run on the software device.

Each schedule and layout is compared with one call of all rows, forward and backward: the largest error against fp64
must be at most 1.2 times that of the call. That holds because results are float32 until all are merged.
"""

import os
import socket
import sys
import traceback
import unittest

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing
    import host
except ImportError:
    torch = None

BATCH, HEADS, KV_HEADS, WIDTH = 2, 4, 2, 16


def exact(q, k, v, causal, sinks):
    """(out, lse) in fp64."""
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], 1) for tensor in (k, v))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1), -torch.inf)
    if sinks is not None:
        column = sinks.double()[None, :, None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat((scores, column), -1)
        v = torch.cat((v, torch.zeros_like(v[..., :1, :])), 2)
    return (scores.softmax(-1) @ v).transpose(1, 2), scores.logsumexp(-1)


def run(function, tensors, d_out):
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    out, lse = function(*leaves)
    return [out.detach(), lse.detach(), *torch.autograd.grad(out, leaves, d_out)]


def error(made, wanted):
    return (made.double() - wanted).square().mean().sqrt().item()


class Rank:
    def __init__(self, rank, ranks):
        self.rank, self.ranks = rank, ranks

    def tensors(self, length, seed=1):
        """q, k, v and d_out of the whole sequence, alike on all ranks."""
        generator = torch.Generator().manual_seed(seed)
        return [torch.randn((BATCH, length, heads, WIDTH), generator=generator).bfloat16()
                for heads in (HEADS, KV_HEADS, KV_HEADS, HEADS)]

    def compare(self, layout, schedule, causal, sinks=None, rows=24):
        from fa2_attn import distributed
        *inputs, d_out = self.tensors(self.ranks * rows)
        wanted = run(lambda *t: exact(*t, causal, sinks), [tensor.double() for tensor in inputs], d_out.double())
        out, lse = host.launch(*inputs, causal=causal, sinks=sinks, return_lse=True)
        single = [out, lse, *host.attention_backward(d_out, *inputs, out, lse, causal=causal, sinks=sinks)]
        *mine, d_mine = (distributed.shard(tensor, layout=layout) for tensor in (*inputs, d_out))
        got = run(lambda *t: distributed.attention(*t, causal=causal, layout=layout, schedule=schedule, sinks=sinks,
                                                   return_lse=True), mine, d_mine)
        places = distributed.positions(self.ranks * rows, layout=layout)
        for i, name in enumerate(("out", "lse", "dq", "dk", "dv")):
            own, one = (made[i].index_select(-1 if name == "lse" else 1, places) for made in (wanted, single))
            assert got[i].dtype == single[i].dtype and got[i].shape == own.shape, name
            most = 1.2 * error(one, own) + 1e-6
            found = error(got[i], own)
            assert found <= most, f"{layout} {schedule} causal={causal}: {name} has error {found}, one call {most / 1.2}"

    def test_layouts(self):
        for layout in ("contiguous", "zigzag", "striped"):
            self.compare(layout, "ring", True)
        self.compare("zigzag", "ring", False)
        self.compare("zigzag", "ring", True, sinks=torch.linspace(-1, 2, HEADS))

    def test_gather(self):
        for layout in ("contiguous", "zigzag"):
            self.compare(layout, "gather", True)
        self.compare("striped", "gather", False)
        self.compare("zigzag", "auto", True, sinks=torch.linspace(-1, 2, HEADS))

    def test_positions(self):
        """window and ALiBi by gathered keys are those of the whole sequence."""
        from fa2_attn import distributed
        q, k, v, _ = self.tensors(self.ranks * 24)
        slopes = torch.linspace(0.1, 0.5, HEADS)
        for given in ({"window": (30, 0)}, {"alibi_slopes": slopes}):
            whole = host.launch(q, k, v, causal=True, **given)
            for layout in ("contiguous", "zigzag"):
                mine = (distributed.shard(tensor, layout=layout) for tensor in (q, k, v))
                got = distributed.attention(*mine, causal=True, layout=layout, **given)
                wanted = distributed.shard(whole, layout=layout)
                assert (got.float() - wanted.float()).abs().max() <= 2e-2, (given, layout)

    def test_shard(self):
        from fa2_attn import distributed
        whole = torch.arange(self.ranks * 8).reshape(1, -1, 1)
        for layout in distributed.LAYOUTS:
            back = distributed.gather(distributed.shard(whole, layout=layout), layout=layout)
            assert torch.equal(back, whole), layout

    def test_refusals(self):
        from fa2_attn import distributed
        q, k, v, _ = self.tensors(24)
        self.refuses(ValueError, "the ranks' calls differ: rank 0 has q [2, 24, 4, 16]",
                     lambda: distributed.attention(q[:, self.rank:], k[:, self.rank:], v[:, self.rank:]))
        self.refuses(ValueError, "rank 1 has", lambda: distributed.attention(q, k, v, causal=self.rank > 0))
        odd = [tensor[:, 1:] for tensor in (q, k, v)]
        self.refuses(ValueError, f"pad the sequence to a multiple of {2 * self.ranks}",
                     lambda: distributed.attention(*odd, causal=True))
        self.refuses(ValueError, "it must be one of", lambda: distributed.attention(q, k, v, layout="spiral"))
        self.refuses(ValueError, "as many of both", lambda: distributed.attention(q[:, :8], k, v, causal=True))
        self.refuses(NotImplementedError, "schedule 'gather' has it",
                     lambda: distributed.attention(q, k, v, causal=True, window=(3, 0), schedule="ring"))
        self.refuses(ValueError, "needs a multiple of", lambda: distributed.positions(self.ranks * 2 + 1))

    def refuses(self, kind, text, function):
        """The same sentence on every rank."""
        try:
            function()
        except kind as error:
            message = str(error)
        else:
            raise AssertionError(f"nothing was raised; expected {text!r}")
        assert text in message, message
        everyone = [None] * self.ranks
        dist.all_gather_object(everyone, message)
        assert all(other == message for other in everyone), everyone

    def test_explain(self):
        from fa2_attn import distributed
        q, k, v, _ = self.tensors(24)
        told = distributed.explain(q, k, v, causal=True)
        assert told["schedule"] == "gather" and "few" in told["reason"], told
        long = torch.empty(1, 8192, 1, 8)
        assert distributed.explain(long, long, long)["schedule"] == "ring"
        assert distributed.explain(long, long, long, window=(3, 0))["schedule"] == "gather"


def work(rank, ranks, port, name):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    host.install()
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    try:
        getattr(Rank(rank, ranks), name)()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    dist.destroy_process_group()


@unittest.skipIf(torch is None, "PyTorch or the software device is missing")
class Distributed(unittest.TestCase):
    def ranks(self, ranks, name):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        torch.multiprocessing.spawn(work, (ranks, port, name), ranks)

    def test_two(self):
        for name in ("test_layouts", "test_gather", "test_positions", "test_shard", "test_refusals", "test_explain"):
            with self.subTest(name):
                self.ranks(2, name)

    def test_four(self):
        self.ranks(4, "test_layouts")


if __name__ == "__main__":
    unittest.main()
