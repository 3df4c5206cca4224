"""fa2_attn.flash_attn's forward and backward alone (_flash_attn_forward and so on), with PyTorch's tensors on the host and
kernels of the software device (on_host.py); and ring-flash-attn on them, where it is installed (ring.py)."""

import importlib.util
import pathlib
import subprocess
import sys
import unittest

try:
    import torch
    import torch.nn.functional as F
    from fa2_attn import flash_attn
except ImportError:
    torch = None

from on_host import OnHost, randn

RING = pathlib.Path(__file__).with_name("ring.py")
SETTINGS = ({}, {"causal": True}, {"window_size": (9, 4)}, {"softcap": 3.0}, {"alibi_slopes": (0.5, 0.25, 0.1, 0.0)})


def settings_of(given):
    """The functions' last arguments, from those of flash_attn_func."""
    slopes = given.get("alibi_slopes")
    return {"softmax_scale": 0.25, "causal": given.get("causal", False), "softcap": given.get("softcap", 0.0),
            **dict(zip(("window_size_left", "window_size_right"), given.get("window_size", (-1, -1)))),
            "alibi_slopes": None if slopes is None else torch.tensor(slopes)}


def forward(q, k, v, dropout_p=0.0, return_softmax=False, **given):
    return flash_attn._flash_attn_forward(q, k, v, dropout_p, return_softmax=return_softmax, **settings_of(given))


def backward(d_out, tensors, out, lse, made, dropout_p=0.0, rng_state=None, **given):
    return flash_attn._flash_attn_backward(d_out, *tensors, out, lse, *made, dropout_p, deterministic=True,
                                           rng_state=rng_state, **settings_of(given))


def public(function, tensors, d_out, *lengths, **given):
    """out, LSE, probabilities and gradients of a public function."""
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    if "alibi_slopes" in given:
        given = {**given, "alibi_slopes": torch.tensor(given["alibi_slopes"])}
    out, *others = function(*leaves, *lengths, softmax_scale=0.25, deterministic=True, return_attn_probs=True, **given)
    return out.detach(), *others, torch.autograd.grad(out, leaves, d_out)


def places(*like):
    """Returns views to write into, and the longer tensors, full of NaN, that they are rows of."""
    whole = [torch.full((*x.shape[:-3], x.shape[-3] + 6, *x.shape[-2:]), torch.nan, dtype=x.dtype) for x in like]
    return [wide.narrow(-3, 2, x.shape[-3]) for wide, x in zip(whole, like)], whole


class Steps(OnHost):
    SHAPES = ((2, 40, 4, 16), *2 * ((2, 56, 2, 16),))

    def assert_untouched_around(self, whole, like):
        for wide, x in zip(whole, like):
            self.assertEqual(int(wide.isnan().sum()), wide.numel() - x.numel())

    def test_as_the_public_functions(self):
        *tensors, d_out = randn(*self.SHAPES, self.SHAPES[0])
        for given in SETTINGS:
            with self.subTest(**given):
                wanted, wanted_lse, _, gradients = public(flash_attn.flash_attn_func, tensors, d_out, **given)
                out, lse, probabilities, rng_state = forward(*tensors, **given)
                self.assert_equal((out, lse), (wanted, wanted_lse))
                self.assertEqual((probabilities.shape, probabilities.dtype), ((0,), torch.float16))
                self.assertEqual((rng_state.shape, rng_state.dtype), ((2,), torch.int64))
                made, whole = places(*tensors)
                sums = backward(d_out, tensors, out, lse, made, **given)
                self.assert_equal(made, gradients)
                self.assert_untouched_around(whole, tensors)
                self.assert_close(sums[..., :40], (d_out.double() * out).sum(-1).transpose(1, 2), 1e-4)
                self.assertEqual((sums.shape, sums.dtype, int(sums[..., 40:].count_nonzero())),
                                 ((2, 4, 128), torch.float32, 0))

    def test_no_autograd(self):
        leaves = [tensor.requires_grad_() for tensor in randn(*self.SHAPES)]
        out, lse, *_ = forward(*leaves)
        self.assertFalse(out.requires_grad or lse.requires_grad)

    def test_gradients_that_are_not_wanted(self):
        *tensors, d_out = randn(*self.SHAPES, self.SHAPES[0])
        out, lse, *_ = forward(*tensors, causal=True)
        every = [torch.empty_like(tensor) for tensor in tensors]
        sums = backward(d_out, tensors, out, lse, every, causal=True)
        for which in range(3):
            made = [torch.empty_like(tensor) if i == which else None for i, tensor in enumerate(tensors)]
            backward(d_out, tensors, out, lse, made, causal=True)
            self.assertTrue(torch.equal(made[which], every[which]))
        self.assertTrue(torch.equal(backward(d_out, tensors, out, lse, [None] * 3, causal=True), sums))

    def test_merged(self):
        """What a ring does: keys in two parts, results merged, and each part's gradients from the merged ones."""
        *tensors, d_out = randn(*self.SHAPES, self.SHAPES[0])
        q, *keys = tensors
        wanted, wanted_lse, _, gradients = public(flash_attn.flash_attn_func, tensors, d_out)
        parts = [[q, *(tensor[:, rows] for tensor in keys)] for rows in (slice(24), slice(24, None))]
        outs, lses = zip(*(forward(*part)[:2] for part in parts))
        lse = torch.stack(lses).logsumexp(0)
        out = sum(out * (one - lse).exp().transpose(1, 2)[..., None] for out, one in zip(outs, lses)).half()
        self.assert_close(out, wanted)
        self.assert_close(lse, wanted_lse)
        dq, dkv = torch.zeros(q.shape), [torch.empty_like(tensor) for tensor in keys]
        for part, rows in zip(parts, (slice(24), slice(24, None))):
            made = [torch.empty_like(q), *(tensor[:, rows] for tensor in dkv)]
            backward(d_out, part, out, lse, made)
            dq += made[0]
        for a, b in zip((dq, *dkv), gradients):
            self.assert_close(a, b, 1e-2)

    def test_dropout(self):
        *tensors, d_out = randn(*self.SHAPES, self.SHAPES[0])
        torch.manual_seed(7)
        wanted, wanted_lse, weights, gradients = public(flash_attn.flash_attn_func, tensors, d_out, dropout_p=0.3)
        torch.manual_seed(7)
        out, lse, probabilities, rng_state = forward(*tensors, dropout_p=0.3, return_softmax=True)
        self.assert_equal((out, lse, probabilities), (wanted, wanted_lse, weights))
        self.assertEqual(int(rng_state[1]), 0)
        self.assertFalse(torch.equal(forward(*tensors, dropout_p=0.3)[0], out))  # another seed
        made = [torch.empty_like(tensor) for tensor in tensors]
        sums = backward(d_out, tensors, out, lse, made, dropout_p=0.3, rng_state=rng_state)
        self.assert_equal(made, gradients)
        self.assert_close(sums[..., :40], 0.7 * (d_out.double() * out).sum(-1).transpose(1, 2), 1e-4)
        with self.assertRaisesRegex(ValueError, "rng_state is None; give the rng_state that forward returned"):
            backward(d_out, tensors, out, lse, made, dropout_p=0.3)
        with self.assertRaisesRegex(ValueError, "return_softmax is True and dropout_p is 0"):
            forward(*tensors, return_softmax=True)

    def test_tensors_that_kernels_cannot_use(self):
        """Strided in the last dimension, unaligned, or transposed, whether read or written."""
        *tensors, d_out = randn(*self.SHAPES, self.SHAPES[0])
        out, lse, *_ = forward(*tensors, causal=True)
        wanted = [torch.empty_like(tensor) for tensor in tensors]
        backward(d_out, tensors, out, lse, wanted, causal=True)

        def strided(x):
            return torch.stack((x, torch.zeros_like(x)), -1)[..., 0]

        def unaligned(x):
            return F.pad(x, (3, 5))[..., 3:19]

        def heads_first(x):
            return x.transpose(1, 2).contiguous().transpose(1, 2)

        for change in (strided, unaligned, heads_first):
            with self.subTest(change=change.__name__):
                changed = [change(tensor) for tensor in tensors]
                self.assert_equal(forward(*changed, causal=True)[:2], (out, lse))
                made = [change(torch.full_like(tensor, torch.nan)) for tensor in tensors]
                odd_lse = lse.transpose(1, 2).contiguous().transpose(1, 2)
                backward(change(d_out), changed, change(out), odd_lse, made, causal=True)
                self.assert_equal(made, wanted)

    def test_rows_that_see_nothing(self):
        """Their LSE is +inf, and backward takes it so."""
        q, k, v, d_out = randn((1, 20, 2, 16), *2 * [(1, 5, 2, 16)], (1, 20, 2, 16))
        out, lse, *_ = forward(q, k, v, causal=True)
        self.assertTrue(lse[..., :15].isposinf().all() and lse[..., 15:].isfinite().all())
        made = [torch.full_like(tensor, torch.nan) for tensor in (q, k, v)]
        backward(d_out, (q, k, v), out, lse, made, causal=True)
        self.assert_equal(made, public(flash_attn.flash_attn_func, (q, k, v), d_out, causal=True)[3])
        self.assertEqual(made[0][:, :15].count_nonzero(), 0)

    def test_empty(self):
        for q, k in (((0, 5, 2, 16), (0, 7, 2, 16)), ((2, 0, 2, 16), (2, 7, 2, 16)), ((2, 5, 2, 16), (2, 0, 2, 16))):
            for more in ({}, {"dropout_p": 0.5}):
                tensors = randn(q, k, k)
                out, lse, _, rng_state = forward(*tensors, **more)
                self.assertEqual((out.shape, lse.shape), (q, (q[0], q[2], q[1])))
                self.assertTrue((out == 0).all() and lse.isposinf().all())
                made = [torch.full_like(tensor, torch.nan) for tensor in tensors]
                sums = backward(out, tensors, out, lse, made, rng_state=rng_state, **more)
                for tensor in (*made, sums):
                    self.assertEqual(tensor.count_nonzero(), 0)

    def test_refusals(self):
        *tensors, d_out = randn(*self.SHAPES, self.SHAPES[0])
        out, lse, *_ = forward(*tensors)
        good = [torch.empty_like(tensor) for tensor in tensors]
        for bad in (good[1][:, 1:], good[1].float()):
            with self.assertRaisesRegex(ValueError, r"dk is \(2, .*it must be \(2, 56, 2, 16\), torch.float16"):
                backward(d_out, tensors, out, lse, (good[0], bad, good[2]))
        with self.assertRaisesRegex((ValueError, NotImplementedError), "multiple of 8"):
            forward(*(tensor[..., :12] for tensor in tensors))

    def test_compiled(self):
        """The compiler sees that the gradients are written."""
        *tensors, d_out = randn(*self.SHAPES, self.SHAPES[0])

        def function(d_out, q, k, v, dq, dk, dv):
            out, lse, *_ = forward(q, k, v, causal=True)
            backward(d_out, (q, k, v), out, lse, (dq, dk, dv), causal=True)
            return out + 1, dq * 2

        made, wanted = ([torch.zeros_like(tensor) for tensor in tensors] for _ in range(2))
        out, twice = function(d_out, *tensors, *wanted)
        got, got_twice = torch.compile(function, backend="aot_eager", fullgraph=True)(d_out, *tensors, *made)
        self.assert_equal((got, got_twice, *made), (out, twice, *wanted))


class Packed(OnHost):
    def setUp(self):
        super().setUp()
        self.bounds = [torch.tensor(bounds, dtype=torch.int32) for bounds in ([3, 12, 12, 30], [0, 20, 24, 50])]
        self.longest = (18, 26)
        self.tensors = randn((34, 4, 16), *2 * [(50, 2, 16)])
        self.d_out, = randn((34, 4, 16))

    def forward(self, *tensors, dropout_p=0.0, given=(), **more):
        return flash_attn._flash_attn_varlen_forward(*tensors, *self.bounds, *self.longest, dropout_p,
                                                     **settings_of(dict(given)), **more)

    def test_as_the_public_functions(self):
        for given in (*SETTINGS, {"dropout_p": 0.3}):
            with self.subTest(**given):
                torch.manual_seed(7)
                wanted, wanted_lse, _, gradients = public(flash_attn.flash_attn_varlen_func, self.tensors, self.d_out,
                                                          *self.bounds, *self.longest, **given)
                torch.manual_seed(7)
                dropout_p = given.get("dropout_p", 0.0)
                out, lse, _, rng_state = self.forward(*self.tensors, dropout_p=dropout_p, given=given)
                self.assert_equal((out, lse), (wanted, wanted_lse))
                made, whole = places(*self.tensors)
                sums = flash_attn._flash_attn_varlen_backward(
                    self.d_out, *self.tensors, out, lse, *made, *self.bounds, *self.longest, dropout_p,
                    deterministic=True, rng_state=rng_state, zero_tensors=True, **settings_of(given))
                self.assert_equal(made, gradients)
                for wide, x in zip(whole, self.tensors):
                    self.assertEqual(int(wide.isnan().sum()), wide.numel() - x.numel())
                exact = (1 - dropout_p) * (self.d_out.double() * out).sum(-1).T
                self.assertEqual(sums.shape, (4, 34 + 3 * 128))
                for b in (0, 2):
                    first, end = self.bounds[0][b:b + 2].tolist()
                    self.assert_close(sums[:, first + 128 * b:end + 128 * b], exact[:, first:end], 1e-4)

    def test_rows_of_no_sequence(self):
        """With zero_tensors their LSE is -inf. A row of a sequence without keys in sight has +inf."""
        self.bounds[1] = torch.tensor([0, 0, 24, 50], dtype=torch.int32)
        for zero, outside in ((True, -torch.inf), (False, torch.inf)):
            out, lse, *_ = self.forward(*self.tensors, zero_tensors=zero)
            self.assertTrue((lse[:, :3] == outside).all() and (lse[:, 30:] == outside).all())
            self.assertTrue(lse[:, 3:12].isposinf().all() and lse[:, 12:30].isfinite().all())
            self.assertEqual((out[:12].count_nonzero(), out[30:].count_nonzero()), (0, 0))

    def test_used_keys(self):
        used = torch.tensor([7, 0, 26], dtype=torch.int32)
        out, lse, *_ = self.forward(*self.tensors, seqused_k=used)
        q, k, v = self.tensors
        for b, keys in ((0, slice(0, 7)), (2, slice(24, 50))):
            rows = slice(*self.bounds[0][b:b + 2].tolist())
            wanted, wanted_lse, *_ = forward(q[None, rows], k[None, keys], v[None, keys])
            self.assert_close(out[rows], wanted[0])
            self.assert_close(lse[:, rows], wanted_lse[0])

    def test_pages(self):
        q, k, v = self.tensors
        table = torch.tensor([[2, 0], [1, 4], [5, 3]], dtype=torch.int32)
        pages = [torch.full((6, 16, 2, 16), torch.nan, dtype=torch.float16) for _ in range(2)]
        for tensor, made in zip((k, v), pages):
            for b, numbers in enumerate(table.tolist()):
                first, end = self.bounds[1][b:b + 2].tolist()
                for i, number in enumerate(numbers):
                    rows = tensor[first + 16 * i:min(end, first + 16 * (i + 1))]
                    made[number, :len(rows)] = rows
        wanted = self.forward(*self.tensors, given={"causal": True})
        got = self.forward(q, *pages, given={"causal": True}, block_table=table)
        self.assert_close(got[0], wanted[0])
        self.assert_close(got[1][:, 3:30], wanted[1][:, 3:30])
        for more in ({"block_table": table}, {"seqused_k": self.bounds[0][1:]}):
            with self.assertRaisesRegex(NotImplementedError, f"probabilities are not computed with {[*more][0]}"):
                self.forward(q, *pages, dropout_p=0.5, return_softmax=True, **more)

    def test_padding_before_keys(self):
        with self.assertRaisesRegex(NotImplementedError, "leftpad"):
            self.forward(*self.tensors, leftpad_k=torch.zeros(3, dtype=torch.int32))


@unittest.skipIf(importlib.util.find_spec("ring_flash_attn") is None, "ring-flash-attn is not installed")
class Ring(OnHost):
    def test_two_ranks(self):
        done = subprocess.run([sys.executable, RING, "--host"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              universal_newlines=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
