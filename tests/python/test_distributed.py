"""fa2_attn.distributed: ranks as processes with gloo and tensors on the host, whose kernels run on the software device.

Each schedule and layout is compared with one call of all rows, forward and backward: the error against fp64 must be at
most 1.2 times the error of the call. That holds because results are float32 until all are merged. Masks are compared
with masks in fp64, so a key too many or too few is seen.
"""

import os
import socket
import sys
import traceback
import unittest
import unittest.mock

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing
    import host
except ImportError:
    torch = None

BATCH, HEADS, KV_HEADS, WIDTH = 2, 4, 2, 16


def exact(q, k, v, causal, sinks, window=None, slopes=None, kept=1.0):
    """(out, lse) in fp64. kept: factors of the softmax."""
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], 1) for tensor in (k, v))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1), -torch.inf)
    distance = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])[None, :]
    if slopes is not None:
        scores = scores - slopes.double()[:, None, None] * distance.abs()
    if window is not None:
        left, right = (bound if bound is not None and bound >= 0 else 1 << 30 for bound in window)
        scores = scores.masked_fill((distance > left) | (-distance > right), -torch.inf)
    if sinks is not None:
        column = sinks.double()[None, :, None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat((scores, column), -1)
    weights = scores.softmax(-1)[..., :k.shape[2]] * kept
    return (weights @ v).transpose(1, 2), scores.logsumexp(-1)


def kept_of(q, k, v, p, seed, offset=0):
    """The factors of dropout in one call."""
    from fa2_attn import _native
    mask = _native.dropout_mask(host.problem(q, k, v), p, seed, offset)
    return torch.frombuffer(mask, dtype=torch.uint8).view(q.shape[0], q.shape[2], q.shape[1], k.shape[1]).double() / (1 - p)


def run(function, tensors, d_out):
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    out, lse = function(*leaves)
    return [out.detach(), lse.detach(), *torch.autograd.grad(out, leaves, d_out)]


def error(made, wanted):
    return (made.double() - wanted).square().mean().sqrt().item()


class Rank:
    def __init__(self, rank, ranks):
        self.rank, self.ranks = rank, ranks

    def tensors(self, length, seed=1, dtype=None):
        """q, k, v and d_out of the whole sequence, alike on all ranks."""
        generator = torch.Generator().manual_seed(seed)
        return [torch.randn((BATCH, length, heads, WIDTH), generator=generator).to(dtype or torch.bfloat16)
                for heads in (HEADS, KV_HEADS, KV_HEADS, HEADS)]

    def compare(self, layout, schedule, causal, sinks=None, rows=24, window=None, slopes=None,
                dtype=None, dropout=None):
        """dropout: probability, seed, and the offset of a seed that is a tensor."""
        from fa2_attn import distributed
        *inputs, d_out = self.tensors(self.ranks * rows, dtype=dtype)
        kept = kept_of(*inputs, *dropout) if dropout is not None else 1.0
        drops = {} if dropout is None else {
            "dropout_p": dropout[0], "dropout_seed": dropout[1] if len(dropout) < 3 else torch.tensor(dropout[1:])}
        wanted = run(lambda *t: exact(*t, causal, sinks, window, slopes, kept), [tensor.double() for tensor in inputs],
                     d_out.double())
        out, lse = host.launch(*inputs, causal=causal, sinks=sinks, window=window, alibi_slopes=slopes,
                               return_lse=True, **drops)
        single = [out, lse, *host.attention_backward(d_out, *inputs, out, lse, causal=causal, sinks=sinks,
                                                          window=window, alibi_slopes=slopes, **drops)]
        *mine, d_mine = (distributed.shard(tensor, layout=layout) for tensor in (*inputs, d_out))
        got = run(lambda *t: distributed.attention(*t, causal=causal, layout=layout, schedule=schedule, sinks=sinks,
                                                   window=window, alibi_slopes=slopes, return_lse=True, **drops), mine,
                  d_mine)
        places = distributed.positions(self.ranks * rows, layout=layout)
        for i, name in enumerate(("out", "lse", "dq", "dk", "dv")):
            own, one = (made[i].index_select(-1 if name == "lse" else 1, places) for made in (wanted, single))
            assert got[i].dtype == single[i].dtype and got[i].shape == own.shape, name
            most = 1.2 * error(one, own) + 1e-6
            found = error(got[i], own)
            assert found <= most, f"{layout} {schedule} causal={causal} {window}: {name} has error {found}, one call {most / 1.2}"

    def test_layouts(self):
        for layout in ("contiguous", "zigzag", "striped"):
            self.compare(layout, "ring", True)
        self.compare("zigzag", "ring", False)
        self.compare("zigzag", "ring", True, sinks=torch.linspace(-1, 2, HEADS))
        self.compare("zigzag", "ring", True, dtype=torch.float32)
        with unittest.mock.patch("fa2_attn._steps._JOINED_BYTES", 0):  # the first keys are too many for one message
            self.compare("zigzag", "ring", True)

    def test_windows(self):
        """Windows in the ring: rows of other ranks that lie partly in the window, and some that see nothing of a rank."""
        for layout in ("contiguous", "zigzag", "striped"):
            self.compare(layout, "ring", True, window=(17, 0))
        self.compare("zigzag", "ring", False, window=(9, 20))
        self.compare("striped", "ring", False, window=(30, 5))
        self.compare("zigzag", "ring", True, window=(5, 0), sinks=torch.linspace(-1, 2, HEADS))

    def test_alibi(self):
        """ALiBi in the ring, with slopes of which some leave nothing of far keys and some nearly all."""
        from fa2_attn import distributed
        slopes = torch.tensor([0.01, 0.1, 0.7, 4.0])
        for layout in ("contiguous", "zigzag", "striped"):
            self.compare(layout, "ring", True, slopes=slopes)
        for layout in ("zigzag", "striped"):
            self.compare(layout, "ring", False, slopes=slopes)
            self.compare(layout, "ring", True, slopes=slopes, window=(19, 0), sinks=torch.linspace(-1, 2, HEADS))
        for layout, window in (("contiguous", (5, 3)), ("zigzag", (9, 20)), ("striped", (30, 5)), ("striped", (3, 1))):
            self.compare(layout, "ring", False, slopes=slopes, window=window)
        self.compare("striped", "ring", True, rows=256, slopes=slopes)  # as exact as a short sequence
        q, k, v, d_out = self.tensors(24)
        for layout in ("contiguous", "zigzag", "striped"):
            ring, one = (run(lambda *t: distributed.attention(*t, layout=layout, schedule=schedule, alibi_slopes=slopes,
                                                              return_lse=True), [q[:, :8].contiguous(), k, v],
                             d_out[:, :8]) for schedule in ("ring", "ulysses"))
            assert all(error(*both) < 2e-3 for both in zip(ring, one)), f"{layout}: fewer queries than keys"

    def test_ulysses(self):
        for layout in ("contiguous", "zigzag", "striped"):
            self.compare(layout, "ulysses", True, window=(20, 0), sinks=torch.linspace(-1, 2, HEADS))
        self.compare("zigzag", "ulysses", False)

    def packed(self, layout, schedule, causal, **given):
        """Packed sequences against each sequence alone."""
        from fa2_attn import distributed
        lengths = [8 * self.ranks, 2 * self.ranks, 14 * self.ranks]
        bounds = [0, *torch.tensor(lengths).cumsum(0).tolist()]
        *inputs, d_out = (tensor[0] for tensor in self.tensors(bounds[-1]))
        mine = [distributed.shard(tensor, layout=layout, cu_seqlens=bounds) for tensor in (*inputs, d_out)]
        leaves = [tensor.requires_grad_() for tensor in mine[:3]]
        out, lse = distributed.attention(*leaves, causal=causal, layout=layout, schedule=schedule, cu_seqlens=bounds,
                                         return_lse=True, **given)
        got = [out, *torch.autograd.grad(out, leaves, mine[3])]
        whole = [distributed.gather(tensor, layout=layout, cu_seqlens=bounds) for tensor in got]
        whole_lse = distributed.gather(lse, 1, layout=layout, cu_seqlens=bounds)
        for begin, end in zip(bounds, bounds[1:]):
            one = [tensor[None, begin:end].double() for tensor in (*inputs, d_out)]
            wanted = run(lambda *t: exact(*t, causal, None, given.get("window")), one[:3], one[3])
            for name, made, right in zip(("out", "dq", "dk", "dv"), whole, [wanted[0], *wanted[2:]]):
                found = (made[begin:end].double() - right[0]).abs().max().item()
                assert found < 0.06, (layout, schedule, causal, begin, name, found)
            assert (whole_lse[:, begin:end] - wanted[1][0]).abs().max() < 1e-3, (layout, schedule, "lse")

    def test_packed(self):
        for layout in ("contiguous", "zigzag", "striped"):
            self.packed(layout, "ring", True)
        self.packed("zigzag", "ring", False)
        self.packed("zigzag", "gather", True, window=(7, 0))
        self.packed("contiguous", "gather", False)
        self.packed("zigzag", "ulysses", True, window=(7, 0))

    def test_dropout(self):
        """Each schedule drops what one call on the whole sequence drops: windows make its parts begin anywhere."""
        drops = (0.25, 5)
        self.compare("contiguous", "ring", True, rows=64, dropout=drops)
        self.compare("zigzag", "ring", True, rows=128, dropout=drops, sinks=torch.linspace(-1, 2, HEADS))
        self.compare("zigzag", "ring", True, rows=128, dropout=drops, window=(77, 0))
        self.compare("contiguous", "ring", False, rows=64, dropout=(0.25, 5, 3), window=(30, 41))
        self.compare("contiguous", "ring", True, rows=64, dropout=drops, slopes=torch.tensor([0.01, 0.1, 0.7, 4.0]))
        self.compare("zigzag", "gather", True, rows=128, dropout=drops)
        self.compare("zigzag", "gather", False, rows=128, dropout=(0.25, 5, 3))

    def test_dropout_of_heads(self):
        drops = (0.25, 5)
        self.compare("striped", "ulysses", True, rows=24, dropout=drops)
        self.compare("zigzag", "auto", False, rows=24, dropout=(0.25, 5, 3))

    def test_dropout_refusals(self):
        from fa2_attn import distributed
        q, k, v, _ = self.tensors(24)
        given = {"causal": True, "dropout_p": 0.25, "dropout_seed": 5}
        for schedule in ("ring", "gather"):
            self.refuses(NotImplementedError, "needs pieces of a multiple of 64 rows, and q has pieces of 12: pad the "
                         "sequence to a multiple of 256", lambda: distributed.attention(
                             q, k, v, schedule=schedule, **given))
            self.refuses(NotImplementedError, f"schedule '{schedule}': dropout of packed sequences", lambda:
                         distributed.attention(q[0], k[0], v[0], cu_seqlens=[0, 48], schedule=schedule, **given))
        self.refuses(NotImplementedError, "striped rows are not", lambda: distributed.attention(
            q, k, v, layout="striped", schedule="ring", **given))
        rows = self.tensors(64)[0], k, v
        self.refuses(NotImplementedError, "and k has pieces of 24", lambda: distributed.attention(
            *rows, layout="contiguous", schedule="ring", dropout_p=0.25, dropout_seed=5))
        told = distributed.explain(q, k, v, dropout_p=0.25)
        assert told["schedule"] == "ulysses" and "it alone serves this call; not ring: dropout" in told["reason"], told

    def test_one_rank(self):
        from fa2_attn import distributed
        self.compare("zigzag", "auto", True)
        q, k, v, _ = self.tensors(24)
        assert "there is one rank" in distributed.explain(q, k, v, causal=True)["reason"]
        times = distributed.tune(q, k, v, causal=True, rounds=1)
        assert sorted(times) == ["gather", "ring", "ulysses"] and min(times.values()) > 0, times

    def test_gather(self):
        for layout in ("contiguous", "zigzag"):
            self.compare(layout, "gather", True)
        self.compare("striped", "gather", False)
        self.compare("zigzag", "auto", True, sinks=torch.linspace(-1, 2, HEADS))

    def test_twice(self):
        """Backward leaves what forward saved as it was."""
        from fa2_attn import distributed
        *inputs, d_out = self.tensors(self.ranks * 24)
        *leaves, d_mine = (distributed.shard(tensor) for tensor in (*inputs, d_out))
        leaves = [tensor.requires_grad_() for tensor in leaves]
        for schedule in ("gather", "ring"):
            out = distributed.attention(*leaves, causal=True, schedule=schedule, deterministic=True)
            first, second = (torch.autograd.grad(out, leaves, d_mine, retain_graph=True) for _ in range(2))
            assert all(torch.equal(one, other) for one, other in zip(first, second)), schedule

    def test_inference(self):
        """A call under inference_mode leaves tensors to later calls; these have a gradient there."""
        from fa2_attn import distributed
        whole = torch.arange(self.ranks * 20.).reshape(1, -1, 1).requires_grad_()
        with torch.inference_mode():
            distributed.shard(whole)
        part = distributed.shard(whole)
        gradient, = torch.autograd.grad(part, whole, torch.ones_like(part))
        assert gradient.sum() == 20 and gradient[:, distributed.positions(self.ranks * 20)].all(), gradient

    def test_rates(self):
        """The rate of packed sequences follows from their lengths, not from one sequence of all rows."""
        from fa2_attn import distributed
        q, k, v = (torch.zeros(4096, heads, WIDTH).bfloat16() for heads in (HEADS, KV_HEADS, KV_HEADS))
        rates = [distributed._flop_per_us(q, k, v, distributed._make_call(
            {**distributed._DEFAULTS, "causal": True, "cu_seqlens": range(0, 4096 * self.ranks + 1, step)}))
            for step in (4096 * self.ranks, 1024 * self.ranks)]
        assert 0.5 < rates[1] / rates[0] < 2, rates

    def test_positions(self):
        """Window and ALiBi by gathered keys are as in the whole sequence."""
        from fa2_attn import distributed
        q, k, v, _ = self.tensors(self.ranks * 24)
        slopes = torch.linspace(0.1, 0.5, HEADS)
        for given in ({"window": (30, 0)}, {"alibi_slopes": slopes}):
            whole = host.launch(q, k, v, causal=True, **given)
            for layout, schedule in (("contiguous", "gather"), ("zigzag", "gather"), ("striped", "ulysses")):
                mine = (distributed.shard(tensor, layout=layout) for tensor in (q, k, v))
                got = distributed.attention(*mine, causal=True, layout=layout, schedule=schedule, **given)
                wanted = distributed.shard(whole, layout=layout)
                assert (got.float() - wanted.float()).abs().max() <= 2e-2, (given, layout)

    def test_ring_flash_attn(self):
        """Its functions have the results of attention, in all forms."""
        from fa2_attn import distributed, ring_flash_attn
        q, k, v, d_out = self.tensors(self.ranks * 24)
        for kind, layout in (("ring", "contiguous"), ("zigzag_ring", "zigzag"), ("stripe", "striped")):
            *mine, d_mine = (distributed.shard(tensor, layout=layout) for tensor in (q, k, v, d_out))
            wanted = run(lambda *t: distributed.attention(*t, causal=True, scale=0.3, layout=layout, schedule="ring",
                                                          deterministic=True, return_lse=True), mine, d_mine)
            function = getattr(ring_flash_attn, kind + "_flash_attn_func")
            got = run(lambda *t: function(*t, 0.0, 0.3, True, deterministic=True, return_attn_probs=True)[:2], mine,
                      d_mine)
            assert all(torch.equal(one, other) for one, other in zip(got, wanted)), layout
            of_two, of_one = (getattr(ring_flash_attn, f"{kind}_flash_attn_{form}_func")
                              for form in ("kvpacked", "qkvpacked"))
            out = of_two(mine[0], torch.stack(mine[1:], 2), softmax_scale=0.3, causal=True)
            assert torch.equal(out, wanted[0]), layout
            out, lse, none = of_one(torch.stack((mine[1], mine[1], mine[2]), 2), causal=True, return_attn_probs=True)
            alone = distributed.attention(mine[1], *mine[1:], causal=True, layout=layout, schedule="ring")
            assert torch.equal(out, alone) and lse.shape == (BATCH, KV_HEADS, 24) and none is None, layout
        lengths = [8 * self.ranks, 2 * self.ranks, 14 * self.ranks]
        bounds = [0, *torch.tensor(lengths).cumsum(0).tolist()]
        own = torch.tensor([bound // self.ranks for bound in bounds], dtype=torch.int32)
        for kind, layout in (("ring", "contiguous"), ("zigzag_ring", "zigzag")):
            mine = [distributed.shard(tensor[0], layout=layout, cu_seqlens=bounds) for tensor in (q, k, v)]
            wanted = distributed.attention(*mine, causal=True, layout=layout, schedule="ring", cu_seqlens=bounds)
            named = f"{kind}_flash_attn_varlen"
            out = getattr(ring_flash_attn, named + "_func")(*mine, own, 14, causal=True)
            packed = getattr(ring_flash_attn, named + "_kvpacked_func")(mine[0], torch.stack(mine[1:], 1), own.tolist(),
                                                                        14, causal=True)
            assert torch.equal(out, wanted) and torch.equal(packed, wanted), layout

    def test_context_parallel(self):
        """PyTorch shards the buffers; attention within sees the whole sequence, with gradients."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.experimental._attention import context_parallel_unshard
        from fa2_attn.context_parallel import context_parallel
        functional, original = torch.nn.functional, torch.nn.functional.scaled_dot_product_attention
        mesh = init_device_mesh("cpu", (self.ranks,))
        *inputs, d_out = (tensor.transpose(1, 2).contiguous() for tensor in self.tensors(self.ranks * 24))
        rows = [tensor.transpose(1, 2) for tensor in (*inputs, d_out)]
        wanted = run(lambda *t: exact(*t, True, None), [tensor.double() for tensor in rows[:3]], rows[3].double())
        buffers = [tensor.clone() for tensor in (*inputs, d_out)]
        with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[2] * 4, no_restore_buffers={buffers[3]}):
            leaves = [tensor.detach().clone().requires_grad_() for tensor in buffers[:3]]
            out = functional.scaled_dot_product_attention(*leaves, is_causal=True, enable_gqa=True)
            made = [out, *torch.autograd.grad(out, leaves, buffers[3].clone())]
            assert made[0].shape[2] == 24, made[0].shape
            self.refuses(NotImplementedError, "attn_mask is given", lambda: functional.scaled_dot_product_attention(
                *leaves, attn_mask=torch.ones(1)))
            self.refuses(ValueError, "set enable_gqa", lambda: functional.scaled_dot_product_attention(*leaves))
            for name in ("is_causal", "enable_gqa"):
                self.refuses(TypeError, f"{name} is 'no'; a bool is wanted",
                             lambda: functional.scaled_dot_product_attention(*leaves, **{"enable_gqa": True, name: "no"}))
            whole = context_parallel_unshard(mesh, [tensor.detach().contiguous() for tensor in made], [2] * 4)
        assert functional.scaled_dot_product_attention is original
        assert all(torch.equal(one, other) for one, other in zip(buffers[:3], inputs)), "buffers are restored"
        for one, right in zip(whole, (wanted[0], *wanted[2:])):
            found = (one.transpose(1, 2).double() - right).abs().max().item()
            assert found < 0.06, found
        self.refuses(ValueError, "buffers is empty",
                     lambda: context_parallel(mesh, buffers=[], buffer_seq_dims=[]).__enter__())

    def test_shard(self):
        from fa2_attn import distributed
        whole = torch.arange(self.ranks * 8).reshape(1, -1, 1)
        for layout in distributed.LAYOUTS:
            back = distributed.gather(distributed.shard(whole, layout=layout), layout=layout)
            assert torch.equal(back, whole), layout
            lse = whole.reshape(1, 1, -1)  # its rows are last
            assert torch.equal(distributed.gather(distributed.shard(lse, -1, layout=layout), -1, layout=layout), lse)
        self.refuses(ValueError, "dim is 3, and the tensor is [1,", lambda: distributed.gather(whole, 3))
        rows = torch.zeros(self.ranks * 8, 2)
        for function, end in ((distributed.shard, 4), (distributed.gather, 4), (distributed.shard, self.ranks * 16)):
            self.refuses(ValueError, f"cu_seqlens ends with {end}, and the tensor has",
                         lambda: function(rows, cu_seqlens=[0, end]))

    def test_refusals(self):
        from fa2_attn import distributed
        q, k, v, _ = self.tensors(24)
        # Only what differs is named.
        self.refuses(ValueError, "^the ranks' calls differ: q is [2, 24, 4, 16] bfloat16 on rank 0 and [2, 23, 4, 16] "
                     "bfloat16 on rank 1$", lambda: distributed.attention(q[:, self.rank:], k, v))
        self.refuses(ValueError, "^the ranks' calls differ: causal is False on rank 0 and True on rank 1; window is "
                     "not given on rank 0 and (7, -1) on rank 1$", lambda: distributed.attention(
                         q, k, v, causal=self.rank > 0, window=(7, 0) if self.rank > 0 else None))
        self.refuses(ValueError, "^the ranks' calls differ: function is attention on rank 0 and tune on rank 1$",
                     lambda: (distributed.tune if self.rank == 1 else distributed.attention)(q[:1], k[:1], v[:1]))
        odd = [tensor[:, 1:] for tensor in (q, k, v)]
        self.refuses(ValueError, f"pad the sequence to a multiple of {2 * self.ranks}",
                     lambda: distributed.attention(*odd, causal=True))
        self.refuses(ValueError, "it must be one of", lambda: distributed.attention(q, k, v, layout="spiral"))
        self.refuses(ValueError, "as many of both", lambda: distributed.attention(q[:, :8], k, v, causal=True))
        slopes = torch.linspace(0.1, 0.5, HEADS)
        packed = torch.tensor([0, 8, 24])
        self.refuses(NotImplementedError, "schedule 'ring': ALiBi in packed sequences: the distances between",
                     lambda: distributed.attention(q[0], k[0], v[0], cu_seqlens=packed * self.ranks, alibi_slopes=slopes,
                                                   schedule="ring"))
        three = [tensor[:, :, :1].expand(-1, -1, 3, -1) for tensor in (q, k, v)]
        self.refuses(NotImplementedError, "q has 3 heads, which 2 ranks cannot share",
                     lambda: distributed.attention(*three, schedule="ulysses"))
        self.refuses(ValueError, "needs a multiple of", lambda: distributed.positions(self.ranks * 2 + 1))
        packed = [tensor[0] for tensor in (q, k, v)]
        self.refuses(ValueError, "sequence 1 has 5 rows; layout 'zigzag' on 2 ranks needs a multiple of 4: pad it to 8",
                     lambda: distributed.attention(*packed, cu_seqlens=[0, 8, 13, 48]))
        self.refuses(ValueError, "cu_seqlens ends with 24, and 2 ranks with 24 rows each have 48",
                     lambda: distributed.attention(*packed, cu_seqlens=[0, 24]))
        self.refuses(ValueError, "dropout_p is 1.0", lambda: distributed.attention(q, k, v, dropout_p=1.0))
        self.refuses(ValueError, "rank is 2 of 2 ranks", lambda: distributed.positions(48, rank=2, ranks=2))
        self.refuses(ValueError, "the sequence has 23 rows; layout 'zigzag'", lambda: distributed.shard(q[:, 1:]))
        self.refuses(ValueError, "rounds is 0", lambda: distributed.tune(q, k, v, rounds=0))
        self.refuses(ValueError, "rounds is 1 on rank 0 and 2 on rank 1",
                     lambda: distributed.tune(q, k, v, rounds=1 + self.rank))
        self.refuses(ValueError, "rounds is 3 on rank 0 and 'few' on rank 1",
                     lambda: distributed.tune(q, k, v, rounds="few" if self.rank == 1 else 3))
        self.refuses(ValueError, "schedule is 'ring'; tune times all schedules: leave it out",
                     lambda: distributed.tune(q, k, v, schedule="ring" if self.rank == 1 else "auto"))
        self.refuses(TypeError, "tune() got an unexpected keyword argument 'sink', did you mean sinks?",
                     lambda: distributed.tune(q, k, v, sink=None))
        # What the kernels refuse is refused before keys travel, so the group goes on. So is what one rank alone has wrong.
        for text, given in (("softcap is -1.0; it must be finite", {"softcap": -1.0}),
                            ("sinks must be float32", {"sinks": torch.zeros(HEADS + 1)}),
                            ("scale is -1.0", {"scale": -1.0}),
                            ("dropout_seed is -1", {"dropout_p": 0.5, "dropout_seed": -1 if self.rank == 1 else 1,
                                                    "schedule": "ulysses"})):
            self.refuses(ValueError, text, lambda: distributed.attention(q, k, v, **{"schedule": "ring", **given}))
            distributed.attention(q, k, v, schedule="ring", layout="contiguous")
        self.refuses(ValueError, "v has seq 16 and k has 24", lambda: distributed.attention(
            q, k, v[:, :16], schedule="ring"))
        self.refuse_texts(q, k, v)
        for number in range(2):  # the second time, too
            places = {"positions": distributed.positions(self.ranks * 24)} if self.rank == 1 else {}
            self.refuses(ValueError, "the ranks' calls differ", lambda: distributed.attention(q, k, v, **places))
        self.refuses(ValueError, "group is 5; it must be a process group", lambda: distributed.attention(q, k, v, group=5))
        self.refuses(NotImplementedError, "alibi_slopes requires a gradient", lambda: distributed.attention(
            q, k, v, causal=True, alibi_slopes=slopes.clone().requires_grad_()))
        uneven = q[:, :8], k[:, :16], v[:, :16]
        told = distributed.explain(*uneven, alibi_slopes=slopes)
        assert "not gather: ALiBi without a causal mask" in told["reason"], told
        # An error on one rank alone is raised on all.
        alone = {"window": "wide"} if self.rank == 1 else {}
        self.refuses(ValueError, "window is 'wide'", lambda: distributed.attention(q, k, v, **alone))
        alone = {"cu_seqlens": 5} if self.rank == 1 else {}
        self.refuses(TypeError, "not iterable", lambda: distributed.attention(q, k, v, **alone))
        alone = {"dropout_p": 10 ** 400} if self.rank == 1 else {}
        self.refuses(RuntimeError, "OverflowError: ", lambda: distributed.attention(q, k, v, **alone))
        learned = q.clone().requires_grad_(self.rank == 1)
        self.refuses(ValueError, "a gradient is not wanted on rank 0 and wanted on rank 1",
                     lambda: distributed.attention(learned, k, v))
        places = distributed.positions(48)
        distributed.attention(q, k, v, causal=True, positions=places)
        swapped = places.flip(0) if self.rank == 1 else places
        self.refuses(ValueError, "positions do not fit the layout: row 0 of rank 1 is at position 35, and layout "
                     "'zigzag' has position 12", lambda: distributed.attention(q, k, v, causal=True, positions=swapped))

    def refuse_texts(self, q, k, v):
        """Switches are bools, also where one rank alone has something else."""
        import numpy
        from fa2_attn import distributed, ring_flash_attn
        functions = ((distributed.attention, ("causal", "deterministic", "return_lse")),
                     (distributed.explain, ("causal", "deterministic", "return_lse")),
                     (ring_flash_attn.zigzag_ring_flash_attn_func, ("causal", "deterministic", "return_attn_probs")))
        for function, names in functions:
            for name in names:
                for value in ("no", [], 2, 0.0):
                    given = {name: value} if self.rank == 1 else {}
                    self.refuses(TypeError, f"{name} is {value!r}; a bool is wanted",
                                 lambda: function(q, k, v, **given))
        packed = [tensor[0] for tensor in (q, k, v)]
        *lengths, keys = ring_flash_attn.llama3_flash_attn_prepare_cu_seqlens([0, 48], False, self.rank, self.ranks)
        for name in ("causal", "deterministic", "return_attn_probs"):
            self.refuses(TypeError, f"{name} is 'no'; a bool is wanted", lambda: (
                ring_flash_attn.llama3_flash_attn_varlen_func(*packed, *lengths, 1, keys, **{name: "no"})))
        out, _ = distributed.attention(q, k, v, causal=numpy.bool_(True), return_lse=1)
        assert torch.equal(out, distributed.attention(q, k, v, causal=True, return_lse=0)), "what counts as a bool"

    def test_empty(self):
        """No batch, rows or heads: as in one call, and nothing moves."""
        from fa2_attn import distributed, ring_flash_attn
        q, k, v, _ = self.tensors(24)
        sinks = torch.linspace(-1, 2, HEADS)
        cases = {"q has no rows": (q[:, :0], k[:, :0], v[:, :0]), "q has no batch": (q[:0], k[:0], v[:0]),
                 "q has no heads": (q[:, :, :0], k[:, :, :0], v[:, :, :0]), "k has no rows": (q, k[:, :0], v[:, :0])}
        for said, tensors in cases.items():
            for schedule in distributed.SCHEDULES:
                given = {"sinks": sinks, "causal": said != "k has no rows"} if "heads" not in said else {"causal": True}
                wanted = host.launch(*tensors, return_lse=True, **given)
                got = run(lambda *t: distributed.attention(*t, schedule=schedule, return_lse=True, **given), tensors,
                          torch.ones_like(wanted[0]))
                for one, right in zip(got, (*wanted, *map(torch.zeros_like, tensors))):
                    assert torch.equal(one, right) and one.dtype == right.dtype, (said, schedule)
                told = distributed.explain(*tensors, schedule=schedule, **given)
                assert told == {"schedule": "none", "reason": said + ": nothing is computed, and nothing moves"}, told
            assert distributed.tune(*tensors, **given) == {}, said
        learned = sinks.clone().requires_grad_()
        out = distributed.attention(q, k[:, :0], v[:, :0], sinks=learned)
        assert not torch.autograd.grad(out, learned, torch.ones_like(out))[0].any()
        packed = [tensor[0, :0] for tensor in (q, k, v)]
        out, lse = distributed.attention(*packed, cu_seqlens=[0, 0], causal=True, return_lse=True)
        assert out.shape == (0, HEADS, WIDTH) and lse.shape == (HEADS, 0), (out.shape, lse.shape)
        self.refuses(ValueError, "as many of both", lambda: distributed.attention(*cases["k has no rows"], causal=True))
        self.refuses(ValueError, "sinks must be float32", lambda: distributed.attention(
            *cases["q has no rows"], sinks=sinks[1:]))
        self.refuses(ValueError, "q is [2, 24, 4, 16] bfloat16 on rank 0 and [2, 0, 4, 16] bfloat16 on rank 1; k is ",
                     lambda: distributed.attention(*(cases["q has no rows"] if self.rank == 1 else (q, k, v))))
        whole = distributed.gather(distributed.shard(q[:, :0]))
        assert whole.shape == (BATCH, 0, HEADS, WIDTH), whole.shape
        lengths = torch.tensor([0, 0], dtype=torch.int32)
        for said, tensors in (("q has no tokens", packed), ("k has no heads", (q[0], k[0, :, :0], v[0, :, :0]))):
            self.refuses(ValueError, said + ": llama3 functions need at least one", lambda: (
                ring_flash_attn.llama3_flash_attn_varlen_func(*tensors, lengths, lengths, 0, 0, 1, slice(0, 0))))

    def test_autocast(self):
        """q, k and v are cast to autocast's type, and gradients come back in theirs."""
        from fa2_attn import distributed, ring_flash_attn
        *inputs, d_out = self.tensors(24, dtype=torch.float32)
        rounded = [tensor.to(torch.bfloat16) for tensor in (*inputs, d_out)]
        given = {"causal": True, "return_lse": True, "deterministic": True}
        for schedule in distributed.SCHEDULES[1:]:
            wanted = run(lambda *t: distributed.attention(*t, schedule=schedule, **given), rounded[:3], rounded[3])
            with torch.autocast("cpu", dtype=torch.bfloat16):
                got = run(lambda *t: distributed.attention(*t, schedule=schedule, **given), inputs, rounded[3])
            assert [tensor.dtype for tensor in got] == [torch.bfloat16] + 4 * [torch.float32], schedule
            assert all(torch.equal(one.float(), other.float()) for one, other in zip(got, wanted)), schedule
        *lengths, keys = ring_flash_attn.llama3_flash_attn_prepare_cu_seqlens([0, 48], True, self.rank, self.ranks)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert distributed.explain(*inputs)["schedule"] in distributed.SCHEDULES
            out = ring_flash_attn.llama3_flash_attn_varlen_func(*(tensor[0] for tensor in inputs), *lengths, 1, keys,
                                                                causal=True)
            assert out.dtype == torch.bfloat16
            mixed = inputs if self.rank == 1 else rounded[:3]  # the same call once they are cast
            assert distributed.attention(*mixed, causal=True).dtype == torch.bfloat16
        self.refuses(ValueError, "q is [2, 24, 4, 16] bfloat16 on rank 0 and [2, 24, 4, 16] float32 on rank 1; k is",
                     lambda: distributed.attention(*mixed, scale=0.5))

    def refuses(self, kind, text, function):
        """The same sentence on every rank. ^text$: nothing else."""
        try:
            function()
        except kind as error:
            message = str(error)
        else:
            raise AssertionError(f"nothing was raised; expected {text!r}")
        assert message == text[1:-1] if text.startswith("^") else text in message, message
        everyone = [None] * self.ranks
        dist.all_gather_object(everyone, message)
        assert all(other == message for other in everyone), everyone

    def test_explain(self):
        from fa2_attn import distributed
        q, k, v, _ = self.tensors(24)
        told = distributed.explain(q, k, v, causal=True)
        assert told["schedule"] in ("ring", "gather", "ulysses") and "by the model: " in told["reason"], told
        assert "the host needs " in told["reason"], told
        assert "GB/s" in told["reason"] and told == distributed.explain(q, k, v, causal=True), told
        # All that attention takes.
        drops = {"dropout_p": 0.25, "dropout_seed": 5, "positions": distributed.positions(24 * self.ranks),
                 "return_lse": True}
        assert distributed.explain(q, k, v, causal=True, **drops)["schedule"] == "ulysses"
        self.refuses(ValueError, "dropout_seed is -1", lambda: distributed.explain(
            q, k, v, **{**drops, "dropout_seed": -1}))
        assert list(distributed.tune(q, k, v, causal=True, rounds=1, schedule="auto", **drops)) == ["ulysses"]
        state = torch.get_rng_state()
        distributed.explain(q, k, v, dropout_p=0.25)
        assert torch.equal(torch.get_rng_state(), state), "explain draws no seed"
        asked = distributed.explain(q, k, v, schedule="gather")
        assert asked == {"schedule": "gather", "reason": "schedule='gather' was asked for"}, asked
        slopes = torch.linspace(0.1, 0.5, HEADS)
        alone = distributed.explain(q[0], k[0], v[0], alibi_slopes=slopes, cu_seqlens=torch.tensor([0, 24 * self.ranks]))
        assert alone["schedule"] == "ulysses" and "it alone serves this call; not ring: ALiBi" in alone["reason"], alone
        times = distributed.tune(q, k, v, causal=True, rounds=1)
        assert sorted(times) == ["gather", "ring", "ulysses"] and min(times.values()) > 0, times
        told = distributed.explain(q, k, v, causal=True)
        least = min(times.values())
        assert 0.9 * times[told["schedule"]] <= least and "by times that tune() took" in told["reason"], told
        assert (times[told["schedule"]] > least) == ("stays" in told["reason"]), told
        # Calls with a gradient are another kind.
        learned = distributed.explain(q.clone().requires_grad_(), k, v, causal=True)
        assert "by the model: " in learned["reason"], learned
        sinks = torch.zeros(HEADS, requires_grad=True)
        times = distributed.tune(q, k, v, causal=True, sinks=sinks, rounds=1)
        assert sorted(times) == ["gather", "ring", "ulysses"], times
        everyone = [None] * self.ranks
        dist.all_gather_object(everyone, told)
        assert all(other == told for other in everyone), everyone

    def test_one_dies(self):
        """A rank that ends: the others are told in which step."""
        import datetime
        from fa2_attn import distributed
        group = dist.new_group(timeout=datetime.timedelta(seconds=3))
        q, k, v, _ = self.tensors(24)
        distributed.attention(q, k, v, causal=True, schedule="ring", group=group)
        if self.rank == 1:
            return
        try:
            distributed.attention(q, k, v, causal=True, schedule="ring", group=group)
        except RuntimeError as error:
            assert "passing on keys in step 1 of 2 from rank 1 to rank 0 failed: " in str(error), error
        else:
            raise AssertionError("nothing was raised")


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
    os._exit(0)  # threads that PyTorch keeps for a mesh may abort an ordinary exit


@unittest.skipIf(torch is None, "PyTorch or the software device is missing")
class Model(unittest.TestCase):
    """The model of schedules, on a link of 370 GB/s and kernels of 600 TFLOPS."""

    def best(self, ranks, rows, heads, kv_heads, backward=False, bytes_per_us=370e3, known=None):
        from fa2_attn import _schedules
        flop = 2 * (rows * ranks) ** 2 * heads * 128
        work = _schedules.Work(ranks, True, True, flop, 4 * rows * kv_heads * 128, 4 * rows * heads * 128, 600e6, backward)
        known = known or _schedules.Knowledge()
        known.link = _schedules.Link(10.0, bytes_per_us)
        times = known.times("kind", work, list(_schedules.SCHEDULES))
        return min(times, key=times.get), times, work

    def test_choices(self):
        self.assertEqual(self.best(2, 32768, 32, 8)[0], "ring")     # all but the first keys arrive while a step computes
        self.assertEqual(self.best(8, 1024, 32, 32)[0], "ulysses")  # steps are too short to hide so many keys
        times = self.best(8, 128, 32, 1)[1]
        self.assertLess(times["gather"], times["ring"])             # steps are shorter than their launches
        for backward in (False, True):
            _, fast, _ = self.best(4, 8192, 32, 8, backward)
            _, slow, _ = self.best(4, 8192, 32, 8, backward, bytes_per_us=20e3)
            for schedule in fast:
                self.assertLess(fast[schedule], slow[schedule], schedule)

    def test_backward(self):
        """Where steps are long, backward of a ring takes as long as its kernels: all that travels is beside them."""
        from fa2_attn import _schedules
        for ranks in (2, 4):
            forward, both = (self.best(ranks, 8192, 32, 8, backward)[1]["ring"] for backward in (False, True))
            kernels = 2.5 * 2 * (8192 * ranks) ** 2 * 32 * 128 / ranks / 600e6 + ranks * 2 * _schedules._LAUNCH_US
            self.assertAlmostEqual(both - forward, kernels, places=3)
            forward, both = (self.best(ranks, 8192, 32, 8, backward, bytes_per_us=2e3)[1]["ring"]
                             for backward in (False, True))
            self.assertGreater(both - forward, 2 * kernels)

    def test_host(self):
        """A short call takes what the host needs for it, and a long one what the devices need."""
        from fa2_attn import _schedules
        host = {("ring", False): 600.0, ("gather", False): 300.0, ("ulysses", False): 400.0, ("ring", True): 900.0}
        for rows, best in ((256, "gather"), (32768, "ring")):
            known = _schedules.Knowledge()
            known.host = host
            chosen, times, work = self.best(2, rows, 32, 8, known=known)
            self.assertEqual((chosen, known.fastest(work, times)), (best, best))
            self.assertEqual(times["gather"] == 300.0, rows == 256)
            told = _schedules.why("kind", known, times, chosen)
            self.assertIn("the host needs 300 us for gather, 600 us for ring, 400 us for ulysses", told)
        self.assertEqual(self.best(2, 256, 32, 8, True, known=known)[1]["ring"], 900.0)

    def test_measured(self):
        """Times of one call are its own. Their excess over the model is added to other calls of any size."""
        from fa2_attn import _schedules
        known = _schedules.Knowledge()
        chosen, times, work = self.best(2, 32768, 32, 8, known=known)
        self.assertEqual(chosen, "ring")
        known.add("kind", {**times, "ring": 3 * times["ring"]}, work)
        self.assertEqual(known.times("kind", work, ["ring"])["ring"], 3 * times["ring"])
        self.assertAlmostEqual(known.times("another", work, ["ring"])["ring"], 3 * times["ring"], places=3)
        small = work._replace(flop=work.flop / 1000)
        self.assertGreater(known.times("another", small, ["ring"])["ring"], 2 * times["ring"])
        self.assertAlmostEqual(known.times("another", work, ["gather"])["gather"], times["gather"], places=3)
        self.assertEqual(known.fastest(work, known.times("kind", work, list(times))), "gather")
        known.add("kind", {**times, "ring": times["gather"] / 0.95}, work)
        self.assertEqual(known.fastest(work, known.times("kind", work, list(times))), "ring")  # not surely slower
        self.assertIn("by times that tune() took", _schedules.why("kind", known, times, "ring"))
        self.assertIn("by the model", _schedules.why("another", known, times, "ring"))


@unittest.skipIf(torch is None, "PyTorch or the software device is missing")
class Layouts(unittest.TestCase):
    def test_rows(self):
        from fa2_attn import _layouts
        rows = _layouts.Rows()
        rows.add(slice(2, 4))
        rows.add(slice(6, 9))
        self.assertEqual(rows.missing(slice(0, 10)), [slice(0, 2), slice(4, 6), slice(9, 10)])
        self.assertEqual(rows.missing(slice(3, 7)), [slice(4, 6)])
        self.assertEqual([rows.meets(slice(*one)) for one in ((4, 6), (3, 4), (5, 7), (0, 2))],
                         [False, True, True, False])
        rows.add(slice(0, 7))
        self.assertEqual(rows.missing(slice(0, 10)), [slice(9, 10)])


@unittest.skipIf(torch is None, "PyTorch or the software device is missing")
class Distributed(unittest.TestCase):
    def ranks(self, ranks, name):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        torch.multiprocessing.spawn(work, (ranks, port, name), ranks)

    def test_two(self):
        for name in ("test_layouts", "test_windows", "test_alibi", "test_gather", "test_twice", "test_ulysses",
                     "test_packed", "test_positions", "test_ring_flash_attn", "test_context_parallel",
                     "test_inference", "test_rates", "test_dropout", "test_dropout_of_heads", "test_dropout_refusals",
                     "test_shard", "test_refusals", "test_explain", "test_empty", "test_autocast",
                     "test_one_dies"):
            with self.subTest(name):
                self.ranks(2, name)

    def test_one(self):
        self.ranks(1, "test_one_rank")

    def test_four(self):
        for name in ("test_layouts", "test_windows", "test_dropout"):
            with self.subTest(name):
                self.ranks(4, name)


if __name__ == "__main__":
    unittest.main()
