"""ring-flash-attn's llama3 functions of fa2_attn.ring_flash_attn: ranks as processes with gloo and tensors on the host,
whose kernels run on the software device.

Tokens are cut into equal parts, so sequences lie on two ranks, or on all. Results and gradients are compared with one
call of fa2 on the whole sequences: the error against fp64 must be at most 1.2 times the error of the call.
"""

import importlib.util
import unittest
import unittest.mock

import test_distributed
from test_distributed import HEADS, KV_HEADS, WIDTH, exact, run

try:
    import torch
    import torch.distributed as dist
    import host
except ImportError:
    torch = None

# Sequences that begin and end within a rank's rows, one that ends where they end, an empty one, and one of one token.
BOUNDS = {1: [0, 10, 48], 2: [0, 10, 35, 35, 48], 4: [0, 1, 13, 24, 48]}


def whole(tensors, d_out, bounds, causal, window, slopes):
    """Results and gradients in fp64, sequence by sequence."""
    made = []
    for begin, end in zip(bounds, bounds[1:]):
        *one, d_one = (tensor[None, begin:end].double() for tensor in (*tensors, d_out))
        made += [run(lambda *t: exact(*t, causal, None, window, slopes), one, d_one)] if begin < end else []
    return [torch.cat([one[0] for one in parts], -1 if i == 1 else 0) for i, parts in enumerate(zip(*made))]


class Rank(test_distributed.Rank if torch else object):
    def given(self, dtype=None, width_v=WIDTH):
        q, k, v, d_out = (tensor[0] for tensor in self.tensors(48, dtype=dtype))
        return [q, k, v[..., :width_v].contiguous(), d_out[..., :width_v].contiguous()]

    def own(self, *tensors):
        return [tensor.chunk(self.ranks)[self.rank].clone() for tensor in tensors]

    def call(self, function, tensors, causal=True, stride=1, bounds=None, **settings):
        from fa2_attn import ring_flash_attn
        *lengths, keys = ring_flash_attn.llama3_flash_attn_prepare_cu_seqlens(
            torch.tensor(bounds or BOUNDS[self.ranks], dtype=torch.int32), causal, self.rank, self.ranks)
        return getattr(ring_flash_attn, f"llama3_flash_attn_varlen_{function}")(
            *tensors, *lengths, heads_k_stride=stride, local_k_slice=keys, causal=causal, **settings)

    def compare(self, causal, stride=1, window=None, slopes=None, dtype=None, width_v=WIDTH, **settings):
        bounds = BOUNDS[self.ranks]
        *inputs, d_out = self.given(dtype, width_v)
        wanted = whole(inputs, d_out, bounds, causal, window, slopes)
        cu_seqlens = torch.tensor(bounds, dtype=torch.int32)
        lengths = {"cu_seqlens_q": cu_seqlens, "cu_seqlens_k": cu_seqlens, "max_seqlen_q": 38, "max_seqlen_k": 38,
                   "causal": causal, "window": window, "alibi_slopes": slopes}
        out, lse = host.launch(*inputs, return_lse=True, **lengths)
        single = [out, lse, *host.attention_backward(d_out, *inputs, out, lse, **lengths)]
        *mine, d_mine = self.own(*inputs, d_out)
        got = run(lambda *t: self.call("func", t, causal, stride, window_size=window or (-1, -1), alibi_slopes=slopes,
                                       return_attn_probs=True, **settings)[:2], mine, d_mine)
        for i, name in enumerate(("out", "lse", "dq", "dk", "dv")):
            own, one = (made[i].chunk(self.ranks, -1 if name == "lse" else 0)[self.rank] for made in (wanted, single))
            assert got[i].dtype == single[i].dtype and got[i].shape == own.shape, name
            most = 1.2 * test_distributed.error(one, own) + 1e-6
            found = test_distributed.error(got[i], own)
            assert found <= most, f"causal={causal} {window}: {name} has error {found}, one call {most / 1.2}"

    def test_results(self):
        self.compare(True)
        self.compare(True, stride=KV_HEADS)
        self.compare(False)
        self.compare(True, window=(6, 0), deterministic=True)
        self.compare(True, slopes=torch.tensor([0.01, 0.1, 0.7, 4.0]))
        self.compare(True, dtype=torch.float32)
        self.compare(True, width_v=8)

    def test_again(self):
        """Deterministic gradients have the same bits again, and the packed forms have the same results."""
        *mine, d_mine = self.own(*self.given())
        settings = {"softmax_scale": 0.3, "deterministic": True, "return_attn_probs": True}
        first, second = (run(lambda *t: self.call("func", t, **settings)[:2], mine, d_mine) for _ in range(2))
        assert all(torch.equal(one, other) for one, other in zip(first, second))
        pair = torch.stack(mine[1:], 1).requires_grad_()
        out = self.call("kvpacked_func", (mine[0], pair), softmax_scale=0.3, deterministic=True)
        packed, = torch.autograd.grad(out, pair, d_mine)
        assert torch.equal(out, first[0]) and torch.equal(packed, torch.stack(first[3:], 1))
        alone = self.call("func", (mine[1], *mine[1:]))
        out, lse, none = self.call("qkvpacked_func", (torch.stack((mine[1], *mine[1:]), 1),), return_attn_probs=True)
        assert torch.equal(out, alone) and lse.shape == (KV_HEADS, len(alone)) and none is None

    def test_overlap(self):
        """Each kernel starts after the next heads' transfer has begun, and before anything waits for it."""
        from fa2_attn import _llama3, _native, _steps
        *mine, d_mine = self.own(*self.given())
        seen, begin, wait, launch = [], _llama3.begin_gather, _steps.Passing.wait, _native.launch

        def noted(what, function):
            def call(*given, **named):
                seen.append(what)
                return function(*given, **named)
            return call

        with unittest.mock.patch.object(_llama3, "begin_gather", noted("begin", begin)), \
                unittest.mock.patch.object(_steps.Passing, "wait", noted("wait", wait)), \
                unittest.mock.patch.object(_native, "launch", noted("kernel", launch)):
            self.call("func", mine)
        assert seen == ["begin", "wait", "begin", "kernel", "wait", "kernel"], seen

    def test_dropout(self):
        """The rate that is asked for, other elements on each rank and in each group of heads, and the same in backward:
        out is linear in v, so its gradient times v is out times d_out."""
        q, k, v, d_out = self.given()
        mine = self.own(torch.zeros_like(q), k, torch.ones_like(v), d_out)
        torch.manual_seed(5)
        kept = self.call("func", mine[:3], causal=False, bounds=[0, 48], dropout_p=0.5).float()[..., 0]
        assert abs(kept.mean().item() - 1) < 0.15 and kept.std() > 0.05, (kept.mean(), kept.std())
        assert not torch.equal(kept[:, 0], kept[:, HEADS - 1])
        theirs = [torch.empty_like(kept) for _ in range(self.ranks)]
        dist.all_gather(theirs, kept)
        assert not torch.equal(theirs[0], theirs[1])
        leaf = mine[2].clone().requires_grad_()
        out = self.call("func", (*mine[:2], leaf), causal=False, bounds=[0, 48], dropout_p=0.5)
        dv, = torch.autograd.grad(out, leaf, mine[3])
        sums = torch.stack([(dv.double() * mine[2]).sum(), (out.double() * mine[3]).sum()])
        dist.all_reduce(sums)
        assert abs(sums[0] - sums[1]) < 0.05 * out.double().norm(), sums

    def test_prepare(self):
        """A rank's sequences and the keys that they see, in all cuts of a few bounds."""
        from fa2_attn import ring_flash_attn
        for causal in (True, False):
            for rank in range(self.ranks):
                cu_q, cu_k, longest_q, longest_k, keys = ring_flash_attn.llama3_flash_attn_prepare_cu_seqlens(
                    BOUNDS[2], causal, rank, 2)
                assert cu_q.tolist() == ([0, 10, 24], [0, 11, 11, 24])[rank] and longest_q == (14, 13)[rank]
                right = (24 if causal else 35, 48)[rank]
                assert keys == slice((0, 10)[rank], right) and longest_k == ((14 if causal else 25), 25)[rank]
                assert cu_k.tolist() == ([0, 10, right], [0, 25, 25, 38])[rank] and cu_k.dtype == torch.int32

    @unittest.skipIf(importlib.util.find_spec("ring_flash_attn") is None, "ring-flash-attn is not installed")
    def test_prepare_alike(self):
        """ring-flash-attn's own function returns the same."""
        import ring
        from fa2_attn import ring_flash_attn
        theirs = ring.ring_functions()
        for bounds in ([0, 48], [0, 10, 35, 35, 48], [0, 24, 48], [0, 0, 24, 24, 30, 48], [0, 12, 13, 36, 48]):
            for ranks in (1, 2, 4, 8):
                for rank, causal in ((rank, causal) for rank in range(ranks) for causal in (True, False)):
                    given = torch.tensor(bounds, dtype=torch.int32), causal, rank, ranks
                    mine, other = (of.llama3_flash_attn_prepare_cu_seqlens(*given) for of in (ring_flash_attn, theirs))
                    assert [torch.equal(a, b) for a, b in zip(mine[:2], other)] == [True, True], given
                    assert mine[2:] == other[2:], given

    def test_refusals(self):
        from fa2_attn import ring_flash_attn
        prepare = ring_flash_attn.llama3_flash_attn_prepare_cu_seqlens
        self.refuses(ValueError, "cu_seqlens ends with 47, and 2 ranks need as many tokens each: pad",
                     lambda: prepare([0, 47], True, self.rank, 2))
        self.refuses(ValueError, "cu_seqlens is [0, 5, 4]", lambda: prepare([0, 5, 4], True, self.rank, 2))
        self.refuses(ValueError, "rank is 2 of 2 ranks", lambda: prepare([0, 48], True, 2, 2))
        mine = self.own(*self.given()[:3])
        slopes = torch.linspace(0.1, 0.5, HEADS)
        for kind, text, settings in (
                (ValueError, "heads_k_stride is 3; it must divide the 2 heads of k", {"stride": 3}),
                (ValueError, "heads_k_stride is 0; it must divide", {"stride": 0}),
                (ValueError, "dropout_p is 1.0", {"dropout_p": 1.0}),
                (ValueError, "window is 'wide'", {"window_size": "wide"}),
                (ValueError, "the ranks' calls differ: softmax_scale is 1.0 on rank 0 and 2.0 on rank 1",
                 {"softmax_scale": self.rank + 1.}),
                (ValueError, "alibi_slopes is [3]; it must be [4]", {"alibi_slopes": slopes[:3]}),
                (NotImplementedError, "requires a gradient", {"alibi_slopes": slopes.clone().requires_grad_()}),
                (NotImplementedError, "alibi_slopes need causal=True", {"causal": False, "window_size": (3, 3)}),
                (NotImplementedError, "alibi_slopes need causal=True", {"causal": False, "alibi_slopes": slopes})):
            self.refuses(kind, text, lambda given=settings: self.call("func", mine, **given))
        self.refuses(ValueError, "k must be a tensor [T, H, D]",
                     lambda: self.call("func", (mine[0], mine[1][None], mine[2])))
        self.refuses(ValueError, "q has 24 tokens, k 23", lambda: self.call("func", (mine[0], mine[1][1:], mine[2])))
        self.refuses(ValueError, "q has 3 heads, k 2 and v 2", lambda: self.call("func", (mine[0][:, 1:], *mine[1:])))
        self.refuses(ValueError, "k torch.float16", lambda: self.call("func", (mine[0], mine[1].half(), mine[2])))
        *lengths, keys = prepare(BOUNDS[2], False, self.rank, 2)
        call = ring_flash_attn.llama3_flash_attn_varlen_func
        self.refuses(ValueError, "local_k_slice ends with 35, and the last query of rank 0 is token 23: give causal",
                     lambda: call(*mine, *lengths, 1, keys, causal=True))
        self.refuses(ValueError, "it must be a slice of the 48 tokens", lambda: call(*mine, *lengths, 1, slice(0, 49)))
        self.refuses(ValueError, "they must have as many sequences",
                     lambda: call(*mine, lengths[0][:2], *lengths[1:], 1, keys))
        # An error on one rank alone is raised on all.
        self.refuses(ValueError, "it must be a slice of the 48 tokens", lambda: call(
            *mine, *lengths, 1, slice(0, 49) if self.rank else keys, softmax_scale=0.7))


def work(rank, ranks, port, name):
    with unittest.mock.patch.object(test_distributed, "Rank", Rank):
        test_distributed.work(rank, ranks, port, name)


@unittest.skipIf(torch is None, "PyTorch or the software device is missing")
class Llama3(unittest.TestCase):
    def ranks(self, ranks, name):
        with unittest.mock.patch.object(test_distributed, "work", work):
            test_distributed.Distributed.ranks(self, ranks, name)

    def test_two(self):
        names = ["test_results", "test_again", "test_overlap", "test_dropout", "test_prepare", "test_refusals"]
        if importlib.util.find_spec("ring_flash_attn") is not None:
            names.append("test_prepare_alike")
        for name in names:
            with self.subTest(name):
                self.ranks(2, name)

    def test_others(self):
        for ranks in (1, 4):
            with self.subTest(ranks):
                self.ranks(ranks, "test_results")


if __name__ == "__main__":
    unittest.main()
