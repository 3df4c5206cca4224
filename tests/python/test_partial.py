"""fa2_attn.attention_partial, and gradients that are added: results over parts of the keys against those over all."""

import unittest

import device
import fa2_attn
import reference
from device import ExchangeTensor

TOLERANCE = {"fp16": 2e-3, "bf16": 1e-2}


def zeros(like):
    return ExchangeTensor(like.shape, "fp32").set([0.0] * len(like.get()))


class Partial(unittest.TestCase):
    def setUp(self):
        self.q, self.k, self.v = reference.tensors(batch=2, heads_q=4, heads_kv=2, seq_q=17, seq_k=50,
                                                   kind=ExchangeTensor)

    def parts(self):
        return [(self.k.part(1, first, last), self.v.part(1, first, last)) for first, last in ((0, 20), (20, 50))]

    def merged(self, **settings):
        (k, v), (later_k, later_v) = self.parts()
        out, lse = fa2_attn.attention_partial(self.q, k, v, **settings)
        again = fa2_attn.attention_partial(self.q, later_k, later_v, out=out, lse=lse, partial="merge")
        device.synchronize()
        self.assertIs(again[0], out)
        self.assertIs(again[1], lse)
        return out, lse

    def test_numbers(self):
        out, lse = self.merged()
        self.assertEqual((out.dtype, out.shape, lse.shape), ("fp32", self.q.shape, (2, 4, 17)))
        wanted, wanted_lse = reference.attention(self.q, self.k, self.v)
        self.assertLess(reference.worst(out.get(), wanted), TOLERANCE["fp16"])
        self.assertLess(reference.worst(lse.get(), wanted_lse), 1e-4)

    def test_sinks_of_one_call(self):
        sinks = ExchangeTensor((4,), "fp32").set([-1.0, 0.0, 1.0, 2.0])
        out, lse = self.merged(sinks=sinks)
        wanted, wanted_lse = reference.attention(self.q, self.k, self.v, sinks=sinks)
        self.assertLess(reference.worst(out.get(), wanted), TOLERANCE["fp16"])
        self.assertLess(reference.worst(lse.get(), wanted_lse), 1e-4)

    def test_an_empty_beginning(self):
        """LSE of -infinity begins a result, whatever out holds; a call without keys changes nothing."""
        out = ExchangeTensor(self.q.shape, "fp32").set([float("nan")] * len(self.q.get()))
        lse = ExchangeTensor((2, 4, 17), "fp32").set([-float("inf")] * (2 * 4 * 17))
        fa2_attn.attention_partial(self.q, self.k, self.v, out=out, lse=lse, partial="merge")
        fa2_attn.attention_partial(self.q, self.k.part(1, 0, 0), self.v.part(1, 0, 0), out=out, lse=lse, partial="merge")
        device.synchronize()
        self.assertLess(reference.worst(out.get(), reference.attention(self.q, self.k, self.v)[0]), TOLERANCE["fp16"])

    def test_carried(self):
        """The last part's call writes the type of q: the merged numbers, rounded once."""
        (k, v), (later_k, later_v) = self.parts()
        wanted, wanted_lse = self.merged()
        carried, lse = fa2_attn.attention_partial(self.q, k, v)
        out, same = fa2_attn.attention_partial(self.q, later_k, later_v, carried=carried, lse=lse)
        rounded = ExchangeTensor(self.q.shape, "fp16")
        device.synchronize()
        self.assertIs(same, lse)
        self.assertEqual((out.dtype, out.shape), ("fp16", self.q.shape))
        self.assertEqual(out.get(), rounded.set(wanted.get()).get())
        self.assertEqual(lse.get(), wanted_lse.get())

    def test_carried_refusals(self):
        (k, v), _ = self.parts()
        carried, lse = fa2_attn.attention_partial(self.q, k, v)
        for text, given in (("lse is not", {"carried": carried}),
                            ("carried are both given", {"carried": carried, "lse": lse, "partial": "merge"}),
                            ("a partial result is float32", {"carried": self.q, "lse": lse})):
            with self.assertRaisesRegex(ValueError, text):
                fa2_attn.attention_partial(self.q, k, v, **given)
        with self.assertRaisesRegex(ValueError, "k has no rows: with carried"):
            fa2_attn.attention_partial(self.q, self.k.part(1, 0, 0), self.v.part(1, 0, 0), carried=carried, lse=lse)

    def test_dropout_of_parts(self):
        """Parts of the rows, keys and heads drop what one call on all of them drops."""
        q, k, v = reference.tensors(batch=2, heads_q=4, heads_kv=2, seq_q=80, seq_k=150, kind=ExchangeTensor)
        drops = {"dropout_p": 0.3, "dropout_seed": 9}
        whole = fa2_attn.attention(q, k, v, **drops)
        own = q.part(1, 64, 80).part(2, 2, 4)
        keys = [[tensor.part(1, *rows).part(2, 1, 2) for tensor in (k, v)] for rows in ((0, 64), (64, 150))]
        out, lse = fa2_attn.attention_partial(own, *keys[0], dropout_origin=(64, 0, 2, 4), **drops)
        fa2_attn.attention_partial(own, *keys[1], out=out, lse=lse, partial="merge", dropout_origin=[64, 64, 2, 4], **drops)
        device.synchronize()
        self.assertLess(reference.worst(out.get(), whole.part(1, 64, 80).part(2, 2, 4).get()), TOLERANCE["fp16"])
        for text, origin in (("dropout_origin.row is 32; it must be a multiple of 64", (32, 0, 0, 0)),
                             ("dropout_origin.column is -64; it must be a multiple of 64", (0, -64, 0, 0)),
                             ("dropout_origin.heads is 3; it must be from 4 to .*: the call has 2 heads from head 2 on",
                              (0, 0, 2, 3)),
                             ("must be four numbers of 32 bits", (64, 64)), ("must be four numbers", (0, 0, 1.5, 4)),
                             ("must be four numbers", (1 << 40, 0, 0, 0)), ("dropout_origin is 64; it must be four", 64)):
            with self.assertRaisesRegex(ValueError, text):
                fa2_attn.attention_partial(own, *keys[0], dropout_origin=origin, **drops)

    def test_alibi_of_parts(self):
        """Rows and keys of a part have the distances of the whole."""
        q, k, v = reference.tensors(batch=1, heads_q=4, heads_kv=2, seq_q=40, seq_k=40, kind=ExchangeTensor)
        slopes = ExchangeTensor((4,), "fp32").set([0.1, 0.3, 1.0, 0.01])
        whole = fa2_attn.attention(q, k, v, alibi_slopes=slopes)
        own = q.part(1, 24, 40)
        # Queries 24 to 39 see keys 0 to 15 from a place 24 further on than by their numbers, and keys 16 to 39 from 0.
        out, lse = fa2_attn.attention_partial(own, k.part(1, 0, 16), v.part(1, 0, 16), alibi_slopes=slopes,
                                              distance_shift=24)
        fa2_attn.attention_partial(own, k.part(1, 16, 40), v.part(1, 16, 40), alibi_slopes=slopes, out=out, lse=lse,
                                   partial="merge", distance_shift=None)
        device.synchronize()
        self.assertLess(reference.worst(out.get(), whole.part(1, 24, 40).get()), TOLERANCE["fp16"])
        for error, text, shift in ((ValueError, "distance_shift is nan; it must be from -1.67772e", float("nan")),
                                   (TypeError, "distance_shift is 'far'; it must be a number", "far")):
            with self.assertRaisesRegex(error, text):
                fa2_attn.attention_partial(own, k, v, alibi_slopes=slopes, distance_shift=shift)
        with self.assertRaisesRegex(ValueError, "distance_shift is -1; .*because the problem is causal"):
            fa2_attn.attention_partial(own, k, v, alibi_slopes=slopes, causal=True, distance_shift=-1)

    def test_gradients(self):
        out, lse = fa2_attn.attention(self.q, self.k, self.v, return_lse=True)
        d_out, _, _ = reference.tensors(batch=2, heads_q=4, seq_q=17, seed=2, kind=ExchangeTensor)
        wanted = reference.gradients(d_out, self.q, self.k, self.v)
        written = fa2_attn.attention_backward(d_out, self.q, self.k, self.v, out, lse, partial="write")
        added = [zeros(tensor) for tensor in (self.q, self.k, self.v)]
        for first, last in ((0, 20), (20, 50)):
            keys = [tensor.part(1, first, last) for tensor in (self.k, self.v, added[1], added[2])]
            fa2_attn.attention_backward(d_out, self.q, *keys[:2], out, lse, partial="merge", dq=added[0], dk=keys[2],
                                   dv=keys[3])
        device.synchronize()
        for name, one, sums, values in zip(("dq", "dk", "dv"), written, added, wanted):
            self.assertEqual(one.dtype, "fp32")
            self.assertLess(reference.worst(one.get(), values), 0.02, name)
            self.assertLess(reference.worst(sums.get(), values), 0.02, name)

    def merge(self, dtype, **given):
        parts = [fa2_attn.attention_partial(self.q, k, v) for k, v in self.parts()]
        empty = ([float("nan")] * len(self.q.get()), [-float("inf")] * (2 * 4 * 17))
        device.synchronize()
        outs = [out.get() for out, _ in parts] + [empty[0]]
        lses = [lse.get() for _, lse in parts] + [empty[1]]
        return fa2_attn.merge(ExchangeTensor((3, *self.q.shape), "fp32").set(sum(outs, [])),
                              ExchangeTensor((3, 2, 4, 17), "fp32").set(sum(lses, [])), dtype=dtype, **given)

    def test_several(self):
        """merge: two results and an empty one, in each type."""
        wanted, wanted_lse = reference.attention(self.q, self.k, self.v)
        for dtype, mine in (("float32", "fp32"), ("float16", "fp16")):
            out, lse = self.merge(dtype)
            device.synchronize()
            self.assertEqual((out.dtype, out.shape, lse.shape), (mine, self.q.shape, (2, 4, 17)))
            self.assertLess(reference.worst(out.get(), wanted), TOLERANCE["fp16"])
            self.assertLess(reference.worst(lse.get(), wanted_lse), 1e-4)
        out = ExchangeTensor(self.q.shape, "fp32")
        self.assertIs(self.merge(None, out=out)[0], out)

    def test_refusals_of_merge(self):
        parts, lse = ExchangeTensor((2, *self.q.shape), "fp32"), ExchangeTensor((2, 2, 4, 17), "fp32")
        rows = ExchangeTensor(self.q.shape, "fp32").strides[:3]
        for text, arguments, given in (
                ("must be float32 .N, B, S, H, D.", (self.q, lse), {}),
                ("parts_lse has heads 17 and parts has 4", (parts, ExchangeTensor((2, 2, 17, 4), "fp32")), {}),
                ("parts_lse has partial results 1 and parts has 2", (parts, ExchangeTensor((1, 2, 4, 17), "fp32")), {}),
                ("must be float16, bfloat16 or float32", (parts, lse), {"dtype": "int8"}),
                ("must be float16, bfloat16 or float32", (parts, lse), {"dtype": "notfloat16"}),
                ("out is float32 and dtype float16; give one of them", (parts, lse),
                 {"out": ExchangeTensor(self.q.shape, "fp32"), "dtype": "float16"}),
                ("with a contiguous last dimension", (parts, lse),
                 {"out": ExchangeTensor(self.q.shape, "fp32", strides=(*rows, 0))}),
                ("out has 5 dimensions; it must have 4", (parts, lse), {"out": parts}),
                ("o shares memory with parts", (parts, lse),
                 {"out": ExchangeTensor(self.q.shape, "fp32", parts.device, parts.memory)})):
            with self.assertRaisesRegex(ValueError, text):
                fa2_attn.merge(*arguments, **given)

    def test_problems(self):
        explained = fa2_attn.explain(heads_q=4, seq_q=64, head_dim=16, partial=2)
        self.assertIn("partial=2", explained["variant"])

    def test_refusals(self):
        out, lse = self.merged()
        half = fa2_attn.attention(self.q, self.k, self.v)
        for text, given in (("must be \"write\" or \"merge\"", {"partial": "add"}),
                            ("not both given", {"partial": "merge", "out": out}),
                            ("out is float16; a partial result is float32", {"out": half, "lse": lse}),
                            ("lse must be", {"out": out, "lse": out})):
            with self.assertRaisesRegex(ValueError, text):
                fa2_attn.attention_partial(self.q, self.k, self.v, **given)
        with self.assertRaisesRegex(ValueError, "dk is not given: give the float32 tensor"):
            fa2_attn.attention_backward(half, self.q, self.k, self.v, half, lse, partial="merge", dq=zeros(self.q))
        with self.assertRaisesRegex(ValueError, "dq is float16; a partial result is float32"):
            fa2_attn.attention_backward(half, self.q, self.k, self.v, half, lse, partial="write", dq=half)

    def test_gradients_without_keys(self):
        """dsinks needs O and LSE alone, but a call without keys runs no kernel: it is refused, never 0."""
        sinks = ExchangeTensor((4,), "fp32").set([-1.0, 0.0, 1.0, 2.0])
        out, lse = fa2_attn.attention(self.q, self.k, self.v, sinks=sinks, return_lse=True)
        none = self.k.part(1, 0, 0), self.v.part(1, 0, 0)
        with self.assertRaisesRegex(ValueError, "k has no rows: with partial, take dsinks from a call that has keys"):
            fa2_attn.attention_backward(out, self.q, *none, out, lse, sinks=sinks, dsinks=True, partial="write")
        dq = fa2_attn.attention_backward(out, self.q, *none, out, lse, sinks=sinks, partial="write")[0]
        device.synchronize()
        self.assertEqual(set(dq.get()), {0.0})
        no_rows = self.q.part(1, 0, 0), out.part(1, 0, 0), lse.part(2, 0, 0)
        q, no_out, no_lse = no_rows
        *_, dsinks = fa2_attn.attention_backward(no_out, q, self.k, self.v, no_out, no_lse, sinks=sinks, dsinks=True,
                                                 partial="write")
        device.synchronize()
        self.assertEqual(list(dsinks.get()), [0.0] * 4)


if __name__ == "__main__":
    unittest.main()
