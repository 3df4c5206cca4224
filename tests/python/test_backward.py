"""fa2.attention_backward: numbers, layouts, packed tensors, what is not wanted, refusals."""

import ctypes
import gc
import math
import unittest

import device
import fa2_attn as fa2
import reference
from device import ExchangeTensor, OnHost, Tensor


def forward(q, k, v, **settings):
    """(out, lse, d_out) of tensors that make their own outputs."""
    out, lse = fa2.attention(q, k, v, return_lse=True, **settings)
    d_out, _, _ = reference.tensors(*((out.shape[0], out.shape[2]) if settings.get("layout") != "bhsd" else ()),
                                    seq_q=out.shape[1], head_dim=out.shape[3], dtype=q.dtype, seed=2)
    return out, lse, d_out


class Gradients(unittest.TestCase):
    # sums over rows of values around 1, whose factors are rounded
    TOLERANCE = {"fp16": 0.02, "bf16": 0.15, "fp32": 2e-5}

    def assert_right(self, got, wanted, dtype="fp16"):
        for name, gradient, values in zip(("dq", "dk", "dv", "dsinks"), got, wanted):
            self.assertLess(reference.worst(gradient.get(), values), self.TOLERANCE[dtype], name)

    def compare(self, q, k, v, **settings):
        out, lse, d_out = forward(q, k, v, **settings)
        got = fa2.attention_backward(d_out, q, k, v, out, lse, **settings)
        device.synchronize()
        self.assertEqual([(t.shape, t.dtype) for t in got], [(t.shape, t.dtype) for t in (q, k, v)])
        self.assert_right(got, reference.gradients(d_out, q, k, v, **settings), q.dtype)

    def test_plain(self):
        self.compare(*reference.tensors(kind=ExchangeTensor))

    def test_causal_with_groups_and_lengths(self):
        q, k, v = reference.tensors(batch=2, heads_q=4, heads_kv=2, seq_q=17, seq_k=50, kind=ExchangeTensor)
        self.compare(q, k, v, causal=True)
        self.compare(q, k, v, scale=0.5)

    def test_bf16(self):
        self.compare(*reference.tensors(dtype="bf16", kind=ExchangeTensor), causal=True)

    def test_fp32(self):
        self.compare(*reference.tensors(heads_q=4, seq_q=17, seq_k=50, dtype="fp32", kind=ExchangeTensor), causal=True)

    def test_fewer_columns_of_v(self):
        """As if V and dO had columns of 0."""
        q, k, v = reference.tensors(seq_q=20, seq_k=30, head_dim=24, kind=ExchangeTensor)
        out, lse, d_out = forward(q, k, v.part(3, 0, 16), causal=True)
        got = fa2.attention_backward(d_out, q, k, v.part(3, 0, 16), out, lse, causal=True)
        device.synchronize()
        self.assertEqual(got[2].shape, (*v.shape[:3], 16))
        padded, rows = Tensor((*out.shape[:3], 24)), d_out.get()
        padded.set([x for row in range(len(rows) // 16) for x in (*rows[16 * row:16 * row + 16], *8 * [0.0])])
        dq, dk, dv, *_ = reference.gradients(padded, q, k, v, causal=True)
        cut = [x for row in range(len(dv) // 24) for x in dv[24 * row:24 * row + 16]]
        self.assert_right(got, (dq, dk, cut))
        with self.assertRaisesRegex(ValueError, "dimension 3"):
            fa2.attention_backward(padded, q, k, v.part(3, 0, 16), out, lse, causal=True)

    def test_rows_that_see_nothing(self):
        self.compare(*reference.tensors(heads_q=1, seq_q=20, seq_k=5, kind=ExchangeTensor), causal=True)

    def test_packed(self):
        """One tensor for the gradients of one tensor."""
        packed, d_packed = ExchangeTensor((2, 33, 3, 2, 16)), Tensor((2, 33, 3, 2, 16))
        for i, tensor in enumerate(reference.tensors(batch=2, seq_q=33)):
            packed.selected(2, i).set(tensor.get())
        q, k, v = (packed.selected(2, i) for i in range(3))
        dq, dk, dv = (d_packed.selected(2, i) for i in range(3))
        out, lse, d_out = forward(q, k, v)
        got = fa2.attention_backward(d_out, q, k, v, out, lse, dq=dq, dk=dk, dv=dv)
        self.assertTrue(all(a is b for a, b in zip(got, (dq, dk, dv))))
        device.synchronize()
        self.assert_right(got, reference.gradients(d_out, q, k, v))

    def test_bhsd(self):
        q, k, v = reference.tensors(batch=2, seq_q=24, seq_k=31, kind=ExchangeTensor)
        out, lse, d_out = forward(q, k, v)
        got = fa2.attention_backward(*(t.permuted(0, 2, 1, 3) for t in (d_out, q, k, v, out)), lse, layout="bhsd")
        device.synchronize()
        self.assert_right([t.permuted(0, 2, 1, 3) for t in got], reference.gradients(d_out, q, k, v))

    def test_what_is_not_wanted(self):
        q, k, v = reference.tensors(kind=ExchangeTensor)
        out, lse, d_out = forward(q, k, v)
        wanted = reference.gradients(d_out, q, k, v)
        for chosen in ((1, 0, 0), (0, 1, 1), (0, 0, 1)):
            settings = dict(zip(("dq", "dk", "dv"), map(bool, chosen)))
            got = fa2.attention_backward(d_out, q, k, v, out, lse, **settings)
            device.synchronize()
            self.assertEqual([t is not None for t in got], [bool(c) for c in chosen])
            self.assert_right([t for t in got if t], [w for w, c in zip(wanted, chosen) if c])
        with self.assertRaisesRegex(ValueError, "at least one gradient is wanted"):
            fa2.attention_backward(d_out, q, k, v, out, lse, dq=False, dk=False, dv=False)

    def test_deterministic(self):
        q, k, v = reference.tensors(heads_q=1, seq_q=70, seq_k=150, head_dim=64, kind=ExchangeTensor)
        out, lse, d_out = forward(q, k, v)
        with self.subTest("problem"):
            problem = fa2.problem(q, k, v, op="backward", deterministic=True)
            self.assertEqual((problem["op"], problem["deterministic"]), ("backward", 1))
        got = [[t.get() for t in fa2.attention_backward(d_out, q, k, v, out, lse, deterministic=True)]
               for _ in range(2)]
        self.assertEqual(got[0], got[1])

    def test_features(self):
        q, k, v = reference.tensors(heads_q=1, seq_q=20, seq_k=40, kind=ExchangeTensor)
        for settings in ({"window": (7, 3)}, {"window": (5, -1), "causal": True}, {"softcap": 2.0}):
            with self.subTest(**settings):
                self.compare(q, k, v, **settings)

    def test_features_with_tensors(self):
        q, k, v = reference.tensors(heads_q=2, seq_q=20, seq_k=40, kind=ExchangeTensor)
        values = [((i * 7) % 11 - 5) / 8 for i in range(2 * 20 * 40)]
        for settings in ({"alibi_slopes": Tensor((2,), "fp32").set([0.5, 0.125]), "causal": True},
                         {"bias": Tensor((1, 2, 20, 40), "fp32").set(values)}):
            with self.subTest(**settings):
                self.compare(q, k, v, **settings)

    def test_dropout(self):
        q, k, v = reference.tensors(batch=2, heads_q=2, seq_q=20, seq_k=40, kind=ExchangeTensor)
        for seed in (5, Tensor((1,), "int64").set([5])):
            settings = {"causal": True, "dropout_p": 0.17, "dropout_seed": seed}
            out, lse, d_out = forward(q, k, v, **settings)
            got = fa2.attention_backward(d_out, q, k, v, out, lse, **settings)
            device.synchronize()
            self.assert_right(got, reference.gradients(d_out, q, k, v, causal=True, factors=reference.dropped(q, k, 0.17, 5)))
        with self.assertRaisesRegex(ValueError, "dropout_p is given without dropout_seed"):
            fa2.attention_backward(d_out, q, k, v, out, lse, dropout_p=0.25)

    def test_packed_sequences(self):
        lengths_q, lengths_k = (5, 0, 21), (9, 4, 24)
        q, _, _ = reference.tensors(seq_q=26, kind=ExchangeTensor)
        d_out, _, _ = reference.tensors(seq_q=26, kind=ExchangeTensor, seed=3)
        _, k, v = reference.tensors(seq_q=37, kind=ExchangeTensor, seed=2)
        starts = [[sum(lengths[:i]) for i in range(4)] for lengths in (lengths_q, lengths_k)]
        cu_seqlens = [Tensor((4,), "int32").set(one) for one in starts]
        settings = {"causal": True, "cu_seqlens_q": cu_seqlens[0], "cu_seqlens_k": cu_seqlens[1], "max_seqlen_q": 21,
                    "max_seqlen_k": 24}
        wanted = [[], [], []]
        for a, b, c, d in zip(starts[0], starts[0][1:], starts[1], starts[1][1:]):
            one = (tensor.part(1, a, b) for tensor in (d_out, q)), (tensor.part(1, c, d) for tensor in (k, v))
            found = (reference.gradients(*one[0], *one[1], causal=True) if b > a
                     else ([], *2 * [[0.0] * (d - c) * 32]))
            for every, values in zip(wanted, found):
                every += values
        rows = [tensor.selected(0, 0) for tensor in (d_out, q, k, v)]
        out, lse = fa2.attention(*rows[1:], return_lse=True, **settings)
        got = fa2.attention_backward(*rows, out, lse, **settings)
        device.synchronize()
        self.assertEqual([tensor.shape for tensor in got], [tensor.shape for tensor in rows[1:]])
        self.assert_right(got, wanted)
        heads_first = [tensor.permuted(1, 0, 2) for tensor in (*rows, out)]
        got = fa2.attention_backward(*heads_first, lse, layout="bhsd", **settings)
        device.synchronize()
        self.assert_right([tensor.permuted(1, 0, 2) for tensor in got], wanted)

    def test_rows_of_no_sequence(self):
        """They are 0, and LSE of them -infinity; what they hold counts for nothing."""
        nan, starts = float("nan"), Tensor((3,), "int32").set([2, 9, 16])
        settings = {"causal": True, "cu_seqlens_q": starts, "cu_seqlens_k": starts, "max_seqlen_q": 7, "max_seqlen_k": 7,
                    "sinks": Tensor((2,), "fp32").set([1.0, -0.5])}
        tensors = reference.tensors(seq_q=20, heads_q=2, kind=ExchangeTensor)
        q, k, v = rows = [tensor.selected(0, 0) for tensor in tensors]
        for tensor in rows:
            for part in (tensor.part(0, 0, 2), tensor.part(0, 16, 20)):
                part.set([nan] * len(part.get()))
        out, dq, dk, dv = (Tensor(q.shape).set([nan] * len(q.get())) for _ in range(4))
        lse = Tensor((2, 20), "fp32").set([nan] * 40)
        _, lse = fa2.attention(*rows, out=out, return_lse=True, **settings)
        _, _, _, dsinks = fa2.attention_backward(q, *rows, out, lse, dq=dq, dk=dk, dv=dv, dsinks=True, **settings)
        device.synchronize()
        self.assertTrue(all(math.isfinite(x) for x in dsinks.get()))
        for tensor in (out, dq, dk, dv):
            self.assertTrue(all(math.isfinite(x) for x in tensor.get()))
            self.assertEqual(set(tensor.part(0, 0, 2).get() + tensor.part(0, 16, 20).get()), {0.0})
        of_rows = lse.get()
        self.assertEqual([x == -math.inf for x in of_rows], 2 * [not 2 <= row < 16 for row in range(20)])

    def test_sinks(self):
        q, k, v = reference.tensors(heads_q=2, seq_q=20, seq_k=40, kind=ExchangeTensor)
        sinks = Tensor((2,), "fp32").set([1.0, -0.5])
        out, lse, d_out = forward(q, k, v, sinks=sinks)
        got = fa2.attention_backward(d_out, q, k, v, out, lse, sinks=sinks, dsinks=True)
        device.synchronize()
        self.assertEqual((len(got), got[3].shape, got[3].dtype), (4, (2,), "fp32"))
        self.assert_right(got, reference.gradients(d_out, q, k, v, sinks=sinks))
        self.assertEqual(len(fa2.attention_backward(d_out, q, k, v, out, lse, sinks=sinks)), 3)
        with self.assertRaisesRegex(ValueError, "dsinks is wanted, and there are no sinks"):
            fa2.attention_backward(d_out, q, k, v, out, lse, dsinks=True)

    def test_bias(self):
        q, k, v = reference.tensors(heads_q=2, seq_q=20, seq_k=40, kind=ExchangeTensor)
        row = [((j * 7) % 11 - 5) / 8 for j in range(40)]
        bias, full = Tensor((1, 1, 1, 40), "fp16").set(row), Tensor((1, 2, 20, 40), "fp16").set(40 * row)
        for deterministic in (False, True):
            out, lse, d_out = forward(q, k, v, bias=bias, softcap=1.5)
            got = fa2.attention_backward(d_out, q, k, v, out, lse, bias=bias, softcap=1.5, dbias=True,
                                         deterministic=deterministic)
            device.synchronize()
            *wanted, _, of_all = reference.gradients(d_out, q, k, v, bias=full, softcap=1.5)
            shape = (1, 2, 20, 40) if deterministic else (1, 1, 1, 40)
            self.assertEqual((len(got), got[3].shape, got[3].dtype), (4, shape, "fp32"))
            self.assert_right(got[:3], wanted)
            summed = of_all if deterministic else [sum(of_all[j::40]) for j in range(40)]
            self.assertLess(reference.worst(got[3].get(), summed), 0.02)
        for missing in ({}, {"bias": Tensor((1, 1, 1, 40), "bool").set([1] * 40)}):
            with self.assertRaisesRegex(ValueError, "dbias is wanted, and there is no bias of numbers"):
                fa2.attention_backward(d_out, q, k, v, out, lse, dbias=True, **missing)

    def test_workspace_is_lent(self):
        q, k, v = reference.tensors(kind=ExchangeTensor, heads_q=1, seq_q=300, seq_k=40, head_dim=64)  # rows are prepared
        out, lse, d_out = forward(q, k, v)
        with fa2.Context() as context:
            self.assertGreater(context.workspace_size(fa2.problem(q, k, v, op="backward")), 0)
            gradients = [Tensor(t.shape) for t in (q, k, v)]
            before = ExchangeTensor.allocated
            fa2.attention_backward(d_out, q, k, v, out, lse, context=context,
                                   **dict(zip(("dq", "dk", "dv"), gradients)))
            self.assertEqual(ExchangeTensor.allocated - before, 1)
            device.synchronize()
            self.assert_right(gradients, reference.gradients(d_out, q, k, v))
        self.assertEqual(device.lent(), 0)

    def test_nothing_is_kept(self):
        q, k, v = reference.tensors(kind=ExchangeTensor, heads_q=1, seq_q=8)
        out, lse, d_out = forward(q, k, v)
        fa2.attention_backward(d_out, q, k, v, out, lse)
        gc.collect()
        before = device.live()
        for _ in range(5):
            fa2.attention_backward(d_out, q, k, v, out, lse)
            with self.assertRaises(ValueError):
                fa2.attention_backward(d_out, q, k, v, out, out)
        gc.collect()
        self.assertEqual((device.live(), device.lent()), (before, 0))


class Refusals(unittest.TestCase):
    def setUp(self):
        self.tensors = dict(zip("qkv", reference.tensors(kind=ExchangeTensor)))
        out, lse, d_out = forward(*self.tensors.values())
        self.tensors.update(out=out, lse=lse, d_out=d_out)
        self.dq = Tensor(out.shape).set([7.0] * 40 * 2 * 16)

    def refused(self, kind, text, **changed):
        given = {**self.tensors, "dq": self.dq, **changed}
        with self.assertRaisesRegex(kind, text):
            fa2.attention_backward(*[given.pop(name) for name in ("d_out", "q", "k", "v", "out", "lse")], **given)
        device.synchronize()
        self.assertEqual(set(self.dq.get()), {7.0})

    def test_tensors(self):
        self.refused(ValueError, r"lse must be \[1, 2, 40\] float32", lse=self.tensors["out"])
        self.refused(ValueError, r"lse must be \[1, 2, 40\] float32", lse=Tensor((1, 2, 39), "fp32"))
        self.refused(ValueError, "contiguous", lse=Tensor((1, 40, 2), "fp32").permuted(0, 2, 1))
        self.refused(ValueError, "d_out has in dimension 1 39 and q has 40", d_out=Tensor((1, 39, 2, 16)))
        self.refused(ValueError, "out is bfloat16 and q float16", out=Tensor((1, 40, 2, 16), "bf16"))
        self.refused(ValueError, "dk has in dimension 1 41 and k has 40", dk=Tensor((1, 41, 2, 16)))
        self.refused(ValueError, "last dimension of d_out", d_out=Tensor((1, 40, 16, 2)).permuted(0, 1, 3, 2))
        self.refused(ValueError, "dk", dk=self.tensors["v"])  # what is written is nothing else's memory
        self.refused(TypeError, "d_out is a .*None", d_out=None)

    def test_inputs(self):
        """As forward has it."""
        q, k, v = (self.tensors[name] for name in "qkv")
        self.refused(ValueError, "k is not on a CUDA device", k=k.as_type(OnHost))
        self.refused(ValueError, "d_out is not on a CUDA device", d_out=self.tensors["d_out"].as_type(OnHost))
        self.refused(ValueError, "v is bfloat16 and q float16", v=Tensor(v.shape, "bf16"))
        self.refused(ValueError, "q has 3 dimensions; it must have 4", q=Tensor(q.shape[1:]))
        self.refused(ValueError, "the last dimension of k has stride 2; it must be 1",
                     k=Tensor((1, 40, 16, 2)).permuted(0, 1, 3, 2))

    def test_capture(self):
        """Of what was not prepared."""
        context, stream, graph = fa2.Context(), device.new_stream(), ctypes.c_void_p()
        device.enter(0)
        device.check(device.driver.cuStreamBeginCapture_v2(stream, 2))
        try:
            self.refused(fa2.Error, "not prepared and the stream is being captured", context=context, stream=stream.value)
        finally:
            device.check(device.driver.cuStreamEndCapture(stream, ctypes.byref(graph)))

    def test_lse_is_missing(self):
        with self.assertRaisesRegex(TypeError, "missing its argument 'lse'"):
            fa2.attention_backward(*list(self.tensors.values())[:5])

    def test_operations(self):
        with self.assertRaisesRegex(ValueError, 'op is \'sideways\'; it must be "forward" or "backward"'):
            fa2.problem(*(self.tensors[name] for name in "qkv"), op="sideways")


class Differentiable(unittest.TestCase):
    def test_is_asked_of_the_library(self):
        """Before forward runs; of features of inference when the gradient is asked for."""
        q, k, v = reference.tensors(kind=ExchangeTensor, seq_q=8)
        numbers, table = Tensor((1,), "int32").set([0]), Tensor((1, 3), "int32").set([0] * 3)
        pages = [ExchangeTensor((4, 16, 2, 16)).set([1.0] * 4 * 16 * 2 * 16) for _ in range(2)]
        out = Tensor(q.shape).set([7.0] * 8 * 2 * 16)
        new = {"k_new": k.part(1, 0, 2), "v_new": v.part(1, 0, 2)}
        with self.assertRaisesRegex(NotImplementedError, "none for this call yet .*append is 1.*no_grad"):
            fa2._native.launch(q, *(Tensor((1, 48, 2, 16)) for _ in range(2)), differentiable=True, out=out, **new)
        device.synchronize()
        self.assertEqual(set(out.get()), {7.0})
        for name, settings, keys in (("seqused", {"seqused_k": numbers}, (k, v)), ("leftpad", {"leftpad": numbers}, (k, v)),
                                     ("cache_rows", {"cache_rows": numbers}, (k, v)),
                                     ("paged", {"block_table": table}, pages)):
            made, lse = fa2._native.launch(q, *keys, differentiable=True, return_lse=True, **settings)
            wanted = fa2.attention(q, *keys, **settings)
            device.synchronize()
            self.assertEqual(made.get(), wanted.get())
            with self.assertRaisesRegex(NotImplementedError, f"{name} is 1; the operation backward has no {name}"):
                fa2.attention_backward(made, q, *keys, wanted, lse, **settings)
        for settings in ({}, {"softcap": 2.0}, {"window": (3, 3)}):
            fa2._native.launch(q, k, v, differentiable=True, out=out, **settings)


if __name__ == "__main__":
    unittest.main()
