"""fa2.attention: numbers, layouts, exchanges, streams, references."""

import array
import ctypes
import functools
import gc
import math
import sys
import unittest
import warnings

import device
import fa2_attn as fa2
import reference
from device import ExchangeTensor, ManagedTensor, NewerTensor, OldTensor, Tensor


class Numbers(unittest.TestCase):
    def compare(self, q, k, v, **settings):
        out = settings.pop("out", None) or Tensor(q.shape, q.dtype)
        got = fa2.attention(q, k, v, out=out, **settings)
        self.assertIs(got, out)
        device.synchronize()
        wanted, _ = reference.attention(q, k, v, **settings)
        self.assertLess(reference.worst(out.get(), wanted), reference.TOLERANCE[q.dtype])

    def test_plain(self):
        self.compare(*reference.tensors())

    def test_causal_with_groups_and_lengths(self):
        q, k, v = reference.tensors(batch=2, heads_q=4, heads_kv=2, seq_q=17, seq_k=50)
        self.compare(q, k, v, causal=True)
        self.compare(k, k, v, causal=1, scale=0.5)

    def test_bf16(self):
        self.compare(*reference.tensors(dtype="bf16"), causal=True)

    def test_fp32(self):
        q, k, v = reference.tensors(batch=2, heads_q=4, heads_kv=2, seq_q=17, seq_k=50, dtype="fp32")
        self.compare(q, k, v, causal=True)
        self.compare(q, k, v, window=(9, 4))

    def test_fast_sums(self):
        for dtype in ("fp16", "bf16"):
            tensors = reference.tensors(seq_k=50, dtype=dtype)
            out = Tensor(tensors[0].shape, dtype)
            for sums, asked in (("fast", "fast"), ("fp32", None), (None, None)):
                self.assertEqual(fa2.problem(*tensors, sums=sums).get("sums"), asked)
                fa2.attention(*tensors, causal=True, sums=sums, out=out)
                device.synchronize()
                wanted, _ = reference.attention(*tensors, causal=True)
                self.assertLess(reference.worst(out.get(), wanted), reference.TOLERANCE[dtype])
            self.assertNotIn("sums", fa2.problem(*tensors, sums="fast", op="backward"))

    def test_int8_scores(self):
        tensors = reference.tensors(seq_k=50)
        out = Tensor(tensors[0].shape)
        wanted, _ = reference.attention(*tensors, causal=True)
        for scores, asked, most in (("int8", "int8", 0.1), (1, "int8", 0.1), ("exact", None, reference.TOLERANCE["fp16"])):
            self.assertEqual(fa2.problem(*tensors, scores=scores).get("scores"), asked)
            fa2.attention(*tensors, causal=True, scores=scores, out=out)
            device.synchronize()
            self.assertLess(reference.worst(out.get(), wanted), most)
        self.assertNotIn("scores", fa2.problem(*tensors, scores="int8", op="backward"))

    def test_fp8_values(self):
        """The permission changes nothing where no kernel uses it, as on this card."""
        tensors = reference.tensors(seq_k=50)
        out = Tensor(tensors[0].shape)
        wanted, _ = reference.attention(*tensors, causal=True)
        for pv, asked in (("fp8", "fp8"), (1, "fp8"), ("exact", None)):
            self.assertEqual(fa2.problem(*tensors, pv=pv).get("pv"), asked)
            fa2.attention(*tensors, causal=True, pv=pv, out=out)
            device.synchronize()
            self.assertLess(reference.worst(out.get(), wanted), reference.TOLERANCE["fp16"])
        self.assertNotIn("pv", fa2.problem(*tensors, pv="fp8", op="backward"))

    def test_rounding_is_checked(self):
        q, k, v = reference.tensors(heads_q=2, heads_kv=2, seq_q=64, seq_k=64, head_dim=128)
        large = [x * 100 if place % 128 == 5 and place // 128 % 2 == 1 else x for place, x in enumerate(k.get())]
        large = Tensor(k.shape).set(large)  # a column of head 1
        with fa2.Context("", arch="sm_75", check_rounding=1) as context:
            asked = {"heads_q": 2, "seq_q": 64, "head_dim": 128, "scores": "int8"}
            self.assertIn(" qk=int8", context.explain(asked)["variant"])
            said = []
            for keys in (k, large, large):
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    fa2.attention(q, keys, v, scores="int8", out=Tensor(q.shape), context=context)
                said.append([str(warning.message) for warning in caught])
        self.assertEqual([len(each) for each in said], [0, 1, 0])
        self.assertRegex(said[1][0], 'scores="int8" rounded [4-7][0-9] % of the numbers of k in head 1 to 0')

    def test_int8_cache(self):
        for dtype, seq_q, sizes in (("fp16", 3, None), ("bf16", 40, None), ("fp16", 1, (1, 1, 2)), ("fp16", 1, (2, 1, 1))):
            q, k, v = reference.tensors(batch=2, heads_q=4, heads_kv=2, seq_q=seq_q, seq_k=50, dtype=dtype)
            (k8, k_scale, k), (v8, v_scale, v) = reference.in_int8(k, sizes), reference.in_int8(v, sizes)
            scales = {"k_scale": k_scale, "v_scale": v_scale}
            self.assertEqual(fa2.problem(q, k8, v8, **scales)["kv"], "int8")
            wanted, _ = reference.attention(q, k, v, causal=True)
            out = fa2.attention(q, k8, v8, causal=True, out=Tensor(q.shape, dtype), **scales)
            device.synchronize()
            self.assertLess(reference.worst(out.get(), wanted), reference.TOLERANCE[dtype])
            heads = Tensor((2, 4, seq_q, 16), dtype)
            turned = [x.permuted(0, 2, 1, 3) for x in (q, k8, v8)]
            fa2.attention(*turned, causal=True, layout="bhsd", out=heads,
                          **{name: scale.permuted(0, 2, 1) for name, scale in scales.items()})
            device.synchronize()
            self.assertEqual(heads.permuted(0, 2, 1, 3).get(), out.get())

    def test_append_to_int8_cache(self):
        q, k, v = reference.tensors(batch=2, heads_q=4, heads_kv=2, seq_q=3, seq_k=20)
        wanted = [reference.in_int8(x) for x in (k, v)]
        for kind, word, most in (("fp32", "fp32", 1e-6), ("fp16", "fp16", 1e-3)):
            caches = [Tensor(k.shape, "int8").set([0] * 1280) for _ in range(2)]
            k_scale, v_scale = (Tensor((2, 20, 2), kind).set([0.0] * 80) for _ in range(2))
            given = {"k_new": k, "v_new": v, "seqused_k": Tensor((2,), "int32").set([0, 0])}
            asked = fa2.problem(q, *caches, k_scale=k_scale, v_scale=v_scale, **given)
            self.assertEqual((asked["kv"], asked.get("kv_scales", "fp32"), asked["append"]), ("int8", word, 1))
            out = fa2.attention(q, *caches, k_scale=k_scale, v_scale=v_scale, out=Tensor(q.shape), **given)
            device.synchronize()
            for cache, scale, (rounded, scales, _) in zip(caches, (k_scale, v_scale), wanted):
                self.assertLessEqual(reference.worst(cache.get(), rounded.get()), 1)
                self.assertLess(reference.worst(scale.get(), scales.get()), most * 10)
            meant = reference.attention(q, *(rows for _, _, rows in wanted))[0]
            self.assertLess(reference.worst(out.get(), meant), 5 * reference.TOLERANCE["fp16"])
        with self.assertRaisesRegex(ValueError, "k_scale.stride_seq is 0, but append writes a scale for each of 20"):
            fa2.attention(q, *caches, k_scale=Tensor((2, 1, 2), "fp32"), v_scale=Tensor((2, 1, 2), "fp32"),
                          out=Tensor(q.shape), **given)
        with self.assertRaisesRegex(ValueError, "v_scale must be float16"):
            fa2.attention(q, *caches, k_scale=k_scale, v_scale=Tensor((2, 20, 2), "fp32"), out=Tensor(q.shape), **given)

    def test_e4m3_cache(self):
        q, k, _ = reference.tensors(batch=2, heads_q=4, heads_kv=2, seq_q=3, seq_k=50)
        bits = [number * 7919 % 255 % 127 | (number & 1) << 7 for number in range(2 * 50 * 2 * 16)]
        rows = Tensor(k.shape, "uint8").set(bits)
        scale = Tensor((2, 50, 2), "fp32").set([(1 + i % 5) / 400 for i in range(200)])
        meant = Tensor(k.shape, "fp32").set([reference.e4m3(byte) * (1 + i // 16 % 5) / 400 for i, byte in enumerate(bits)])
        self.assertEqual(fa2.problem(q, rows, rows, k_scale=scale, v_scale=scale)["kv"], "fp8")
        out = fa2.attention(q, rows, rows, causal=True, k_scale=scale, v_scale=scale, out=Tensor(q.shape))
        device.synchronize()
        self.assertLess(reference.worst(out.get(), reference.attention(q, meant, meant, causal=True)[0]),
                        reference.TOLERANCE["fp16"])

    def test_rows_that_see_nothing(self):
        q, k, v = reference.tensors(heads_q=1, seq_q=20, seq_k=5)
        self.compare(q, k, v, causal=True)

    def test_packed_views(self):
        packed = Tensor((2, 33, 3, 2, 16))
        q, k, v = reference.tensors(batch=2, seq_q=33)
        for i, tensor in enumerate((q, k, v)):
            packed.selected(2, i).set(tensor.get())
        self.compare(*(packed.selected(2, i) for i in range(3)))

    def test_bhsd(self):
        q, k, v = reference.tensors(batch=2, seq_q=24, seq_k=31)
        wanted, _ = reference.attention(q, k, v)
        out = Tensor((2, 2, 24, 16))
        fa2.attention(*(t.permuted(0, 2, 1, 3) for t in (q, k, v)), layout="bhsd", out=out)
        device.synchronize()
        self.assertLess(reference.worst(out.permuted(0, 2, 1, 3).get(), wanted), reference.TOLERANCE["fp16"])

    def test_lse(self):
        q, k, v = reference.tensors(seq_q=9, seq_k=30, kind=ExchangeTensor)
        out, lse = fa2.attention(q, k, v, return_lse=True, causal=True)
        device.synchronize()
        wanted, wanted_lse = reference.attention(q, k, v, causal=True)
        self.assertEqual((lse.shape, lse.dtype), ((1, 2, 9), "fp32"))
        self.assertLess(reference.worst(out.get(), wanted), reference.TOLERANCE["fp16"])
        self.assertLess(reference.worst(lse.get(), wanted_lse), 1e-3)

    def test_features(self):
        q, k, v = reference.tensors(seq_q=20, seq_k=40)
        for settings in ({"window": (7, 3)}, {"window": (5, -1), "causal": True}, {"softcap": 2.0}):
            with self.subTest(**settings):
                self.compare(q, k, v, **settings)

    def test_windows(self):
        """In whatever holds two numbers; negative ones, and those beyond every length, mean all keys."""
        tensors = reference.tensors(seq_q=40, seq_k=50)

        class Number:
            def __index__(self):
                return 7

        def values(**settings):
            out = Tensor(tensors[0].shape)
            fa2.attention(*tensors, out=out, **settings)
            device.synchronize()
            return out.get()

        for same in ([(7, 2), [7, 2], array.array("q", (7, 2)), (Number(), 2), iter((7, 2))],
                     [None, (-1, -1), (-3, None), (2 ** 31 - 1, 2 ** 30), (2 ** 40, -2 ** 70), (2 ** 29, 2 ** 90)],
                     [(-1, 2), (2 ** 40, 2), (-7, 2), (None, 2)]):
            wanted = values(window=same[0])
            for window in same[1:]:
                self.assertEqual(values(window=window), wanted, window)
        self.assertNotEqual(values(window=(7, 2)), values())
        asked = [fa2.problem(*tensors, window=window) for window in ((2 ** 31 - 1, 2 ** 40), None)]
        self.assertEqual(asked[0], asked[1])

    def test_lengths_on_the_device(self):
        q, k, v = reference.tensors(batch=2, seq_q=4, seq_k=40)
        lengths, out = Tensor((2,), "int32").set([31, 2]), Tensor(q.shape)
        fa2.attention(q, k, v, causal=True, seqused_k=lengths, out=out)
        device.synchronize()
        for b, length in enumerate(lengths.get()):
            one = [tensor.part(0, b, b + 1) for tensor in (q, k, v, out)]
            wanted, _ = reference.attention(one[0], one[1].part(1, 0, length), one[2].part(1, 0, length), causal=True)
            self.assertLess(reference.worst(one[3].get(), wanted), reference.TOLERANCE["fp16"])

    def test_features_with_tensors(self):
        q, k, v = reference.tensors(batch=2, seq_q=20, seq_k=40)
        padded = Tensor((2, 5), "fp32").set([float(i) for i in range(10)])
        for settings in ({"alibi_slopes": Tensor((2,), "fp32").set([0.5, 0.125]), "causal": True},
                         {"alibi_slopes": Tensor((2, 2), "fp32", memory=padded.memory, strides=(5, 1))},
                         {"sinks": Tensor((2,), "fp32").set([1.0, -0.5])}):
            with self.subTest(**settings):
                self.compare(q, k, v, **settings)

    def test_bias(self):
        q, k, v = reference.tensors(batch=2, seq_q=20, seq_k=40)
        one = [((i * 7) % 11 - 5) / 8 for i in range(20 * 40)]
        full = Tensor((2, 2, 20, 40), "fp32").set(one * 4)
        for dtype in ("fp32", "fp16", "bf16"):
            spread, out = Tensor((1, 1, 20, 40), dtype).set(one), Tensor(q.shape)
            fa2.attention(q, k, v, bias=spread, out=out)
            device.synchronize()
            wanted, _ = reference.attention(q, k, v, bias=full)
            self.assertLess(reference.worst(out.get(), wanted), reference.TOLERANCE["fp16"])
        mask = Tensor((2, 1, 1, 40), "bool").set([j % 3 != b for b in range(2) for j in range(40)])
        hidden = Tensor((2, 2, 20, 40), "fp32").set(
            [0.0 if j % 3 != b else -math.inf for b in range(2) for _ in range(40) for j in range(40)])
        fa2.attention(q, k, v, bias=mask, out=out)
        device.synchronize()
        wanted, _ = reference.attention(q, k, v, bias=hidden)
        self.assertLess(reference.worst(out.get(), wanted), reference.TOLERANCE["fp16"])


    def test_dropout(self):
        q, k, v = reference.tensors(batch=2, seq_q=20, seq_k=40, kind=ExchangeTensor)
        factors = reference.dropped(q, k, 0.17, 11, 3)
        share = factors.count(0.0) / len(factors)
        self.assertLess(abs(share - 0.17), 0.03)
        wanted, wanted_lse = reference.attention(q, k, v, causal=True, factors=factors)
        seed = Tensor((2,), "int64").set([11, 3])
        out, lse = fa2.attention(q, k, v, causal=True, dropout_p=0.17, dropout_seed=seed, return_lse=True)
        device.synchronize()
        self.assertLess(reference.worst(out.get(), wanted), 2 * reference.TOLERANCE["fp16"])
        self.assertLess(reference.worst(lse.get(), wanted_lse), 1e-3)
        first = fa2.attention(q, k, v, dropout_p=0.17, dropout_seed=2 ** 64 - 1)
        for other in (Tensor((2,), "int64").set([-1, 0]), Tensor((1,), "int64").set([-1])):
            again = fa2.attention(q, k, v, dropout_p=0.17, dropout_seed=other)
            device.synchronize()
            self.assertEqual(first.get(), again.get())
        self.assertNotEqual(first.get(), fa2.attention(q, k, v, dropout_p=0.17, dropout_seed=12).get())
        self.assertEqual(fa2.attention(q, k, v).get(), fa2.attention(q, k, v, dropout_p=0.0).get())

    def packed(self, lengths_q, lengths_k, **settings):
        """q, k, v [T, H, D], where sequences begin, and per sequence (out, lse) as they should be."""
        q, _, _ = reference.tensors(seq_q=sum(lengths_q), kind=ExchangeTensor)
        _, k, v = reference.tensors(seq_q=sum(lengths_k), kind=ExchangeTensor, seed=2)
        starts = [[sum(lengths[:i]) for i in range(len(lengths) + 1)] for lengths in (lengths_q, lengths_k)]
        wanted = [reference.attention(q.part(1, a, b), k.part(1, c, d), v.part(1, c, d), **settings)
                  for a, b, c, d in zip(starts[0], starts[0][1:], starts[1], starts[1][1:]) if b > a and d > c]
        cu_seqlens = [Tensor((len(s),), "int32").set(s) for s in starts]
        return (*(tensor.selected(0, 0) for tensor in (q, k, v)), *cu_seqlens, wanted)

    def test_packed_sequences(self):
        for lengths_q, lengths_k in (((5, 0, 30), (9, 0, 33)), ((17,), (40,)), ((1, 1, 1), (20, 3, 1))):
            q, k, v, cu_q, cu_k, wanted = self.packed(lengths_q, lengths_k, causal=True)
            lengths = {"cu_seqlens_q": cu_q, "cu_seqlens_k": cu_k, "max_seqlen_q": max(lengths_q),
                       "max_seqlen_k": max(lengths_k)}
            problem = fa2.problem(q, k, v, causal=True, **lengths)
            self.assertEqual([problem[name] for name in ("batch", "seq_q", "seq_k", "varlen", "total_q", "total_k")],
                             [len(lengths_q), max(lengths_q), max(lengths_k), 1, sum(lengths_q), sum(lengths_k)])
            for order in ((0, 1, 2), (1, 0, 2)):
                own = [tensor.permuted(*order) for tensor in (q, k, v)]
                out, lse = fa2.attention(*own, causal=True, return_lse=True, **lengths,
                                         layout="bshd" if order[0] == 0 else "bhsd")
                device.synchronize()
                self.assertEqual((out.shape, lse.shape), (own[0].shape, (2, sum(lengths_q))))
                rows = out.permuted(*order)
                self.assertLess(reference.worst(rows.get(), [x for one, _ in wanted for x in one]),
                                reference.TOLERANCE["fp16"])
                of_heads = [x for h in range(2) for _, one in wanted for x in one[h * len(one) // 2:][:len(one) // 2]]
                self.assertLess(reference.worst(lse.get(), of_heads), 1e-3)

    def test_fewer_columns_of_v(self):
        q, k, v = reference.tensors(seq_q=20, seq_k=30, head_dim=24, kind=ExchangeTensor)
        wanted, _ = reference.attention(q, k, v, causal=True)
        narrow = v.part(3, 0, 16)
        for given in (None, Tensor((1, 20, 2, 16))):
            out = fa2.attention(q, k, narrow, causal=True, out=given)
            device.synchronize()
            self.assertEqual((out.shape, out.dtype), ((1, 20, 2, 16), "fp16"))
            cut = [x for row in range(40) for x in wanted[24 * row:24 * row + 16]]
            self.assertLess(reference.worst(out.get(), cut), reference.TOLERANCE["fp16"])
        shared = fa2.attention(q, k, k.part(3, 0, 16))  # the same memory
        self.assertEqual([fa2.problem(q, k, x).get("v_in_k", 0) for x in (k.part(3, 0, 16), k.part(3, 8, 24), narrow, k)],
                         [1, 0, 0, 0])
        device.synchronize()
        wanted, _ = reference.attention(q, k, k)
        self.assertLess(reference.worst(shared.get(), [x for row in range(40) for x in wanted[24 * row:24 * row + 16]]),
                        reference.TOLERANCE["fp16"])

    def test_pages(self):
        q, k, v = reference.tensors(batch=2, seq_q=3, seq_k=40, kind=ExchangeTensor)
        table = [[3, 0, 5], [1, 4, 2]]
        pages = [ExchangeTensor((6, 16, 2, 16)) for _ in range(2)]
        for tensor, paged in zip((k, v), pages):
            for b in range(2):
                for i, page in enumerate(table[b]):
                    last = min(40, 16 * (i + 1))
                    paged.part(0, page, page + 1).part(1, 0, last - 16 * i).set(
                        tensor.part(0, b, b + 1).part(1, 16 * i, last).get())
        numbers = Tensor((2, 3), "int32", strides=(5, 1)).set([page for row in table for page in row])
        lengths = Tensor((2,), "int32").set([40, 17])
        wanted = [reference.attention(*(t.part(0, b, b + 1).part(1, 0, length) for t, length in
                                        ((q, 3), (k, lengths.get()[b]), (v, lengths.get()[b]))), causal=True)[0]
                  for b in range(2)]
        for most in (None, 40):
            self.assertEqual(fa2.problem(q, *pages, block_table=numbers, max_seqlen_k=most)["seq_k"], most or 48)
            out = fa2.attention(q, *pages, causal=True, block_table=numbers, seqused_k=lengths, max_seqlen_k=most)
            device.synchronize()
            self.assertLess(reference.worst(out.get(), wanted[0] + wanted[1]), reference.TOLERANCE["fp16"])
        packed = q.part(0, 1, 2).selected(0, 0)  # queries of the second sequence alone, packed
        out = fa2.attention(packed, *pages, causal=True, block_table=numbers.part(0, 1, 2), max_seqlen_q=3,
                            max_seqlen_k=17, cu_seqlens_q=Tensor((2,), "int32").set([0, 3]),
                            cu_seqlens_k=Tensor((2,), "int32").set([0, 17]))
        device.synchronize()
        self.assertLess(reference.worst(out.get(), wanted[1]), reference.TOLERANCE["fp16"])


    def test_new_keys(self):
        """Written behind those in use, turned or not, and seen; without lengths they are the last ones."""
        q, k, v = reference.tensors(batch=2, seq_q=3, seq_k=24, heads_kv=1)
        _, k_new, v_new = reference.tensors(batch=2, seq_q=3, heads_kv=1, seed=2)
        cos, sin = (Tensor((24, 8)).set([f(i / 2 / 3 ** t) for i in range(24) for t in range(8)]) for f in (math.cos, math.sin))
        angles = {"rotary_cos": cos, "rotary_sin": sin}

        def turned(values, starts, heads, interleaved):
            made, c, s = list(values), cos.get(), sin.get()
            for row in range(2 * 3 * heads):
                place = starts[row // heads // 3] + row // heads % 3
                for t in range(8):
                    a, b = (2 * t, 2 * t + 1) if interleaved else (t, t + 8)
                    x, y = values[row * 16 + a], values[row * 16 + b]
                    x, y, a, b = x * c[place * 8 + t], y * s[place * 8 + t], row * 16 + a, row * 16 + b
                    made[a], made[b] = x - y, values[a] * s[place * 8 + t] + values[b] * c[place * 8 + t]
            return made

        for starts, settings in (([7, 0], {}), ([21, 21], {}), ([7, 0], angles),
                                 ([7, 0], {**angles, "rotary_interleaved": True})):
            caches, out = [Tensor(t.shape).set(t.get()) for t in (k, v)], Tensor(q.shape)
            lengths = {} if starts == [21, 21] else {"seqused_k": Tensor((2,), "int32").set(starts)}
            for layout in ("bshd", "bhsd"):
                heads_first = [t if layout == "bshd" else t.permuted(0, 2, 1, 3) for t in (q, *caches, out, k_new, v_new)]
                fa2.attention(*heads_first[:3], out=heads_first[3], causal=True, layout=layout, k_new=heads_first[4],
                              v_new=heads_first[5], **lengths, **settings)
            device.synchronize()
            wanted_q, wanted_k = q.get(), k_new.get()
            if settings:
                turn = [settings.get("rotary_interleaved", False)]
                wanted_q, wanted_k = turned(wanted_q, starts, 2, *turn), turned(wanted_k, starts, 1, *turn)
            for b, start in enumerate(starts):
                for cache, old, new in ((caches[0], k, wanted_k), (caches[1], v, v_new.get())):
                    rows = old.get()[b * 24 * 16:(b + 1) * 24 * 16]
                    rows[start * 16:(start + 3) * 16] = new[b * 48:(b + 1) * 48]
                    self.assertLess(reference.worst(cache.get()[b * 24 * 16:(b + 1) * 24 * 16], rows), 2e-3)
                one = Tensor((1, 3, 2, 16)).set(wanted_q[b * 96:(b + 1) * 96])
                seen = [cache.part(0, b, b + 1).part(1, 0, start + 3) for cache in caches]
                wanted, _ = reference.attention(one, *seen, causal=True)
                self.assertLess(reference.worst(out.get()[b * 96:(b + 1) * 96], wanted), 2 * reference.TOLERANCE["fp16"])

    def test_new_keys_of_packed_sequences(self):
        """As many as queries, into pages; as a call for each sequence writes and sees them."""
        q, k, v = reference.tensors(batch=2, seq_q=3, seq_k=32, heads_kv=1)
        _, k_new, v_new = reference.tensors(batch=2, seq_q=3, heads_kv=1, seed=2)
        pages = [Tensor((4, 16, 1, 16)).set(cache.get()) for cache in (k, v)]
        packed = [Tensor((5, *t.shape[2:])).set(t.get()) for t in (q, k_new, v_new)]
        numbers = {name: Tensor((len(values),), "int32").set(values) for name, values in
                   {"cu_seqlens_q": [0, 3, 5], "cu_seqlens_k": [0, 32, 64], "seqused_k": [7, 0]}.items()}
        out = Tensor((5, 2, 16))
        settings = {"out": out, "block_table": Tensor((2, 2), "int32").set([0, 1, 2, 3]), "max_seqlen_q": 3,
                    "max_seqlen_k": 32, "causal": True, **numbers}
        fa2.attention(packed[0], *pages, k_new=packed[1], v_new=packed[2], **settings)
        wanted = []
        for b, (used, rows) in enumerate(((7, 3), (0, 2))):
            own = [t.part(0, b, b + 1).part(1, 0, rows) for t in (q, k_new, v_new)]
            one = Tensor((1, rows, 2, 16))
            fa2.attention(own[0], *(cache.part(0, b, b + 1) for cache in (k, v)), out=one, k_new=own[1], v_new=own[2],
                          causal=True, seqused_k=Tensor((1,), "int32").set([used]))
            device.synchronize()
            wanted += one.get()
        self.assertLess(reference.worst(out.get(), wanted), reference.TOLERANCE["fp16"])
        self.assertEqual([x.get() for x in pages], [x.get() for x in (k, v)])
        with self.assertRaisesRegex(ValueError, "v_new must be packed as q is, with 5 rows, 1 heads and head_dim 16"):
            fa2.attention(packed[0], *pages, k_new=packed[1], v_new=packed[2].part(0, 0, 4), **settings)

    def test_new_keys_where_v_lies_in_k(self):
        q, k, _ = reference.tensors(batch=2, seq_q=2, seq_k=24, heads_kv=1)
        _, k_new, _ = reference.tensors(batch=2, seq_q=2, heads_kv=1, seed=2)
        apart = [k.part(3, 0, 8), k_new.part(3, 0, 8)]
        apart = [Tensor(t.shape).set(t.get()) for t in apart]
        own = Tensor(k.shape).set(k.get())
        outs = [Tensor((2, 2, 2, 8)) for _ in range(2)]
        settings = {"causal": True, "k_new": k_new, "seqused_k": Tensor((2,), "int32").set([22, 5])}
        fa2.attention(q, own, apart[0], v_new=apart[1], out=outs[0], **settings)
        self.assertEqual(fa2.problem(q, k, k.part(3, 0, 8), v_new=k_new.part(3, 0, 8), **settings)["v_in_k"], 1)
        with self.assertRaisesRegex(ValueError, "v_new must be those of k_new"):
            fa2.attention(q, k, k.part(3, 0, 8), v_new=apart[1], out=outs[1], **settings)
        fa2.attention(q, k, k.part(3, 0, 8), v_new=k_new.part(3, 0, 8), out=outs[1], **settings)
        device.synchronize()
        self.assertLess(reference.worst(outs[1].get(), outs[0].get()), reference.TOLERANCE["fp16"])
        self.assertEqual(k.get(), own.get())

    def test_padding_with_a_bias_and_pages(self):
        """A bias has numbers for the padding, too; pages of padding alone may be none."""
        q, k, v = reference.tensors(batch=2, seq_q=3, seq_k=32)
        bias = Tensor((1, 2, 3, 32)).set([math.sin(i) for i in range(192)])
        pads = Tensor((2,), "int32").set([19, 0])
        pages = [Tensor((4, 16, 2, 16)).set(t.get()) for t in (k, v)]
        wanted = [reference.attention(q.part(0, b, b + 1), *(t.part(0, b, b + 1).part(1, pad, 32) for t in (k, v)),
                                      causal=True, bias=bias.part(3, pad, 32))[0] for b, pad in enumerate((19, 0))]
        for tensors, table in (((k, v), None), (pages, Tensor((2, 2), "int32").set([-1, 1, 2, 3]))):
            out = Tensor(q.shape)
            fa2.attention(q, *tensors, out=out, causal=True, bias=bias, leftpad=pads, block_table=table)
            device.synchronize()
            self.assertLess(reference.worst(out.get(), wanted[0] + wanted[1]), reference.TOLERANCE["fp16"])


class Empty(unittest.TestCase):
    """Calls without queries, keys or sequences."""

    def run_empty(self, q, k, v=None, kind=ExchangeTensor, out=None, **settings):
        """(out, lse, dq, dk, dv), each written to before; what is made is of the exchange's library."""
        q, k, v = (kind(shape) for shape in (q, k, v or k))
        out = out or kind((*q.shape[:-1], v.shape[-1]))
        filled(out)
        out, lse = fa2.attention(q, k, v, out=out, return_lse=True, **settings)
        places = [filled(kind(tensor.shape)) for tensor in (q, k, v)]
        made = fa2.attention_backward(out, q, k, v, out, lse, **dict(zip(("dq", "dk", "dv"), places)), **settings)
        device.synchronize()
        return out, lse, *made

    def test_each(self):
        for q, k, v in (((2, 5, 4, 16), (2, 0, 2, 16), None), ((2, 0, 4, 16), (2, 5, 2, 16), None),
                        ((0, 5, 4, 16), (0, 7, 2, 16), None), ((2, 0, 4, 16), (2, 0, 4, 16), None),
                        ((2, 5, 4, 16), (2, 0, 2, 16), (2, 0, 2, 8)), ((2, 5, 0, 16), (2, 7, 0, 16), None)):
            for settings in ({}, {"causal": True, "window": (3, 0), "softcap": 2.0},
                             {"bias": Tensor((1, 1, q[1], k[1]))}, {"dropout_p": 0.5, "dropout_seed": 3}):
                with self.subTest(q=q, k=k, v=v, settings=settings):
                    out, lse, *made = self.run_empty(q, k, v, **settings)
                    self.assertEqual((out.shape, lse.shape), ((*q[:3], (v or k)[3]), (q[0], q[2], q[1])))
                    self.assertEqual([tensor.shape for tensor in made], [q, k, v or k])
                    self.assertLessEqual(set(lse.get()), {-math.inf})
                    for tensor in (out, *made):
                        self.assertLessEqual(set(tensor.get()), {0.0})
                    self.assertEqual(device.lent(), 0)

    def test_sinks(self):
        """They are what a row's LSE is of that sees no key; theirs and a bias's gradients are 0."""
        q, d_out = ExchangeTensor((2, 5, 3, 16)), ExchangeTensor((2, 5, 3, 16))
        k, v, bias = ExchangeTensor((2, 0, 3, 16)), ExchangeTensor((2, 0, 3, 16)), ExchangeTensor((1, 3, 5, 0), "fp32")
        sinks = ExchangeTensor((3,), "fp32").set([1.5, -2.0, 0.25])
        out, lse = fa2.attention(q, k, v, sinks=sinks, bias=bias, return_lse=True)
        *_, dsinks, dbias = fa2.attention_backward(d_out, q, k, v, out, lse, sinks=sinks, bias=bias, dsinks=True,
                                                   dbias=True)
        device.synchronize()
        self.assertEqual(lse.get(), 2 * [*5 * [1.5], *5 * [-2.0], *5 * [0.25]])
        self.assertEqual((set(out.get()), dsinks.get(), dbias.shape), ({0.0}, [0.0] * 3, (1, 3, 5, 0)))
        bias = ExchangeTensor((1, 3, 1, 5), "fp32")
        out, lse = fa2.attention(k, q, d_out, bias=bias, return_lse=True)
        *_, dbias = fa2.attention_backward(v, k, q, d_out, out, lse, bias=bias, dbias=True)
        device.synchronize()
        self.assertEqual((dbias.shape, set(dbias.get())), ((1, 3, 1, 5), {0.0}))

    def test_packed_sequences(self):
        """Without rows of one kind, without sequences, and with lengths that say that there is nothing."""
        def starts(*values):
            return Tensor((len(values),), "int32").set(values)

        three = starts(0, 0, 0)
        for rows, keys, cu_q, cu_k, longest in ((0, 0, three, three, (0, 0)), (0, 6, three, starts(0, 2, 6), (0, 4)),
                                                (6, 0, starts(0, 2, 6), three, (4, 0)), (6, 0, starts(0, 2, 6), three, (4, 9)),
                                                (0, 0, starts(0), starts(0), (0, 0)), (6, 6, three, three, (0, 0))):
            with self.subTest(rows=rows, keys=keys, longest=longest):
                out, lse, *made = self.run_empty((rows, 2, 16), (keys, 2, 16), cu_seqlens_q=cu_q, cu_seqlens_k=cu_k,
                                                 max_seqlen_q=longest[0], max_seqlen_k=longest[1])
                self.assertEqual((out.shape, lse.shape), ((rows, 2, 16), (2, rows)))
                self.assertLessEqual(set(lse.get()), {-math.inf})
                for tensor in (out, *made):
                    self.assertLessEqual(set(tensor.get()), {0.0})

    def test_caches(self):
        """No pages, tables without columns, no rows of a cache; new keys are not written where there is no room."""
        q, lengths = ExchangeTensor((2, 5, 2, 16)), Tensor((2,), "int32").set([0, 0])
        for k, settings in (((0, 16, 2, 16), {"block_table": Tensor((2, 3), "int32")}),
                            ((4, 16, 2, 16), {"block_table": Tensor((2, 0), "int32")}),
                            ((0, 9, 2, 16), {"cache_rows": lengths}), ((2, 0, 2, 16), {"seqused_k": lengths}),
                            ((2, 0, 2, 16), {"k_new": q, "v_new": q})):
            with self.subTest(k=k):
                out = filled(ExchangeTensor(q.shape))
                fa2.attention(q, ExchangeTensor(k), ExchangeTensor(k), out=out, **settings)
                device.synchronize()
                self.assertEqual(set(out.get()), {0.0})
        new = ExchangeTensor((2, 3, 2, 16))
        with self.assertRaisesRegex(ValueError, "seq_q is 0"):  # new keys would have to be written by a kernel
            fa2.attention(ExchangeTensor((2, 0, 2, 16)), *2 * [ExchangeTensor((2, 9, 2, 16))], k_new=new, v_new=new)

    def test_outputs_lie_anywhere(self):
        """Parts of another tensor: what is between its rows stays. Also of a library that gives no memory."""
        for kind in (Tensor, ExchangeTensor):
            whole = filled(kind((2, 5, 6, 32)))
            part = whole.part(2, 1, 3).part(3, 8, 24)
            q, k = kind((2, 5, 2, 16)), kind((2, 0, 2, 16))
            self.assertIs(fa2.attention(q, k, k, out=part), part)
            device.synchronize()
            self.assertEqual(set(part.get()), {0.0})
            self.assertEqual(whole.get().count(7.0), 2 * 5 * 6 * 32 - 2 * 5 * 2 * 16)
        heads_first = filled(Tensor((2, 2, 5, 16)))
        fa2.attention(*(Tensor(shape) for shape in ((2, 2, 5, 16), *2 * [(2, 2, 0, 16)])), out=heads_first, layout="bhsd")
        device.synchronize()
        self.assertEqual(set(heads_first.get()), {0.0})

    def test_nothing_is_launched(self):
        """Nor is a device opened, nor a kernel chosen."""
        context = fa2.Context()
        context.close()
        q, k = ExchangeTensor((2, 5, 2, 16)), ExchangeTensor((2, 0, 2, 16))
        out = fa2.attention(q, k, k, context=context)
        device.synchronize()
        self.assertEqual(set(out.get()), {0.0})


def filled(tensor):
    count = math.prod(tensor.shape)
    return tensor.set([7.0] * count) if count else tensor


class Exchanges(unittest.TestCase):
    def test_all_ways_give_the_same(self):
        q, k, v = reference.tensors()
        wanted, _ = reference.attention(q, k, v)
        for kind in (Tensor, OldTensor, ExchangeTensor, ManagedTensor, NewerTensor):
            with self.subTest(kind=kind.__name__):
                own = [t.as_type(kind) for t in (q, k, v)]
                out = Tensor(q.shape).as_type(kind)
                fa2.attention(*own, out=out)
                device.synchronize()
                self.assertLess(reference.worst(out.get(), wanted), reference.TOLERANCE["fp16"])
                self.assertEqual(device.lent(), 0)

    def test_output_of_the_library(self):
        q, k, v = reference.tensors(kind=ExchangeTensor)
        out = fa2.attention(q, k, v)
        self.assertIsInstance(out, ExchangeTensor)
        self.assertEqual((out.shape, out.dtype), (q.shape, "fp16"))

    def test_libraries_may_be_mixed(self):
        q, k, v = reference.tensors()
        out = fa2.attention(q.as_type(ExchangeTensor), k.as_type(OldTensor), v)
        device.synchronize()
        self.assertLess(reference.worst(out.get(), reference.attention(q, k, v)[0]), reference.TOLERANCE["fp16"])

    def test_streams(self):
        q, k, v = reference.tensors()
        out, stream = Tensor(q.shape), device.new_stream()
        Tensor.asked_streams.clear()
        fa2.attention(q, k, v, out=out)
        self.assertEqual(set(Tensor.asked_streams), {1})  # the default stream
        Tensor.asked_streams.clear()
        fa2.attention(q, k, v, out=out, stream=stream.value)
        self.assertEqual(set(Tensor.asked_streams), {stream.value})
        for names in ({"cuda_stream": stream.value}, {"ptr": stream.value},
                      {"__cuda_stream__": lambda self: (0, stream.value)}):
            Tensor.asked_streams.clear()
            fa2.attention(q, k, v, out=out, stream=type("Stream", (), names)())
            self.assertEqual(set(Tensor.asked_streams), {stream.value})

    def test_workspace(self):
        # one query row and many keys: blocks share the keys, and need memory to combine
        q, k, v = reference.tensors(heads_q=1, seq_q=1, seq_k=6000)
        problem = fa2.problem(q, k, v)
        self.assertEqual(problem["seq_k"], 6000)
        with fa2.Context() as context:
            self.assertGreater(context.workspace_size(problem), 0)
            wanted, _ = reference.attention(q, k, v)
            for kind, stream, lends in ((Tensor, None, 0), (ExchangeTensor, None, 1),
                                        (ExchangeTensor, device.new_stream().value, 0)):
                before, out = ExchangeTensor.allocated, Tensor(q.shape)
                for _ in range(2):
                    fa2.attention(*(t.as_type(kind) for t in (q, k, v)), out=out, context=context, stream=stream)
                device.synchronize()
                self.assertLess(reference.worst(out.get(), wanted), reference.TOLERANCE["fp16"])
                self.assertEqual(ExchangeTensor.allocated - before, 2 * lends)
        self.assertEqual(device.lent(), 0)


class References(unittest.TestCase):
    def test_nothing_is_kept(self):
        for kind in (Tensor, ExchangeTensor):
            q, k, v = reference.tensors(kind=kind, heads_q=1, seq_q=8)
            out = Tensor(q.shape)
            wrong = Tensor((1, 2, 3))
            keyword = "not_" + "interned"
            new = {"k_new": k.part(1, 0, 1), "v_new": v.part(1, 0, 1), "rotary_cos": Tensor((8, 8))}

            def calls(count):
                for _ in range(count):
                    fa2.attention(q, k, v, out=out, causal=False, scale=0.25, window=(-1, None))
                    fa2.problem(q, k, v)
                    fa2.problem(q, k, v, **new, rotary_sin=new["rotary_cos"])
                    for arguments, settings in (((q, k, wrong), {}), ((q, k, v), {"out": wrong}), ((q, k, v), new),
                                                ((q, k, v), {**new, "rotary_sin": wrong}),
                                                ((q, k, v), {keyword: 1}), ((q, k, v), {"layout": "x"})):
                        try:
                            fa2.attention(*arguments, **settings)
                        except (ValueError, TypeError):
                            pass

            objects = (q, k, v, out, wrong, keyword, type(q), *new.values())
            calls(30)
            grown = []
            for _ in range(3):  # what leaks grows each time; caches of ctypes do not
                gc.collect()
                before = [sys.getrefcount(x) for x in objects]
                blocks, memory = sys.getallocatedblocks(), device.live()
                calls(200)
                gc.collect()
                grown.append(sys.getallocatedblocks() - blocks)
                for a, b in zip(before, [sys.getrefcount(x) for x in objects]):
                    self.assertLess(abs(b - a), 10)
                self.assertEqual(device.live(), memory)
                self.assertEqual(device.lent(), 0)
            self.assertLess(min(grown), 100)

    def test_outputs_are_released(self):
        q, k, v = reference.tensors(kind=ExchangeTensor)
        fa2.attention(q, k, v, return_lse=True)
        gc.collect()
        before = device.live()
        for _ in range(5):
            fa2.attention(q, k, v, return_lse=True)
        gc.collect()
        self.assertEqual(device.live(), before)


class Graphs(unittest.TestCase):
    def capture(self, tensors, call=fa2.attention, **settings):
        """Refused first, then prepared; replayed once, its context having been given up."""
        q, _, v = tensors
        out, stream = Tensor((*q.shape[:-1], v.shape[-1])), device.new_stream()
        out.set([7.0] * math.prod(out.shape))
        graph, run = ctypes.c_void_p(), ctypes.c_void_p()
        context = fa2.Context()

        def captured():
            device.enter(0)
            device.check(device.driver.cuStreamBeginCapture_v2(stream, 2))
            try:
                call(*tensors, out=out, stream=stream.value, context=context, **settings)
            finally:
                device.check(device.driver.cuStreamEndCapture(stream, ctypes.byref(graph)))

        with self.assertRaisesRegex(fa2.Error, "not prepared and the stream is being captured") as raised:
            captured()
        self.assertEqual(raised.exception.status, "FA2_E_CAPTURE")
        device.synchronize()
        self.assertEqual(set(out.get()), {7.0})
        context.prepare(fa2.problem(*tensors, **settings))
        captured()
        device.check(device.driver.cuGraphInstantiateWithFlags(ctypes.byref(run), graph, ctypes.c_uint64(0)))
        del context  # the graph goes on
        gc.collect()
        device.check(device.driver.cuGraphLaunch(run, stream))
        device.synchronize()
        return out.get()

    def test_capture(self):
        tensors = reference.tensors(seq_q=12, seq_k=21)
        got = self.capture(tensors)
        self.assertLess(reference.worst(got, reference.attention(*tensors)[0]), reference.TOLERANCE["fp16"])

    def test_capture_of_a_call_with_gradients(self):
        """It asks for what was prepared, where v lies in k, too."""
        q, k, _ = reference.tensors(seq_q=12, seq_k=21, head_dim=24)
        wanted, _ = reference.attention(q, k, k)
        got = self.capture((q, k, k.part(3, 0, 16)), functools.partial(fa2._native.launch, differentiable=True))
        self.assertLess(reference.worst(got, [x for row in range(24) for x in wanted[24 * row:24 * row + 16]]),
                        reference.TOLERANCE["fp16"])

    def test_capture_of_new_keys(self):
        q, k, v = reference.tensors(seq_q=2, seq_k=21)
        _, k_new, v_new = reference.tensors(seq_q=2, seed=2)
        got = self.capture((q, k, v), k_new=k_new, v_new=v_new, seqused_k=Tensor((1,), "int32").set([9]))
        for cache, new in ((k, k_new), (v, v_new)):
            self.assertEqual(cache.part(1, 9, 11).get(), new.get())
        wanted, _ = reference.attention(q, k.part(1, 0, 11), v.part(1, 0, 11))
        self.assertLess(reference.worst(got, wanted), reference.TOLERANCE["fp16"])


if __name__ == "__main__":
    unittest.main()
