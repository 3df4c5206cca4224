"""Bad input: each in fa2's own words, and the output is as it was."""

import enum
import re
import unittest
from unittest import mock

import device
import fa2_attn as fa2
import reference
from device import ExchangeTensor, OnHost, Tensor
from fa2_attn import _frameworks


class ReadOnly(Tensor):
    read_only = True


class Refusals(unittest.TestCase):
    def setUp(self):
        self.q, self.k, self.v = reference.tensors()
        self.out = Tensor(self.q.shape).set([7.0] * 40 * 2 * 16)

    def refused(self, kind, text, *tensors, **settings):
        q, k, v = tensors or (self.q, self.k, self.v)
        settings.setdefault("out", self.out)
        with self.assertRaisesRegex(kind, text):
            fa2.attention(q, k, v, **settings)
        device.synchronize()
        self.assertEqual(set(self.out.get()), {7.0})
        self.assertEqual(device.lent(), 0)

    def test_no_tensors(self):
        self.refused(TypeError, "q is a .*int.*DLPack", 1, 2, 3)
        self.refused(TypeError, "v is a .*None", self.q, self.k, None)
        self.refused(TypeError, "out is a .*str", out="x")

    def test_devices(self):
        self.refused(ValueError, "q is not on a CUDA device.*the CPU", self.q.as_type(OnHost), self.k, self.v)
        self.refused(ValueError, "k is not on a CUDA device", self.q, self.k.as_type(OnHost), self.v)
        self.refused(ValueError, "out is not on a CUDA device", out=self.out.as_type(OnHost))

    def test_dtypes(self):
        self.refused(ValueError, "k is bfloat16 and q float16", self.q, Tensor(self.k.shape, "bf16"), self.v)
        self.refused(ValueError, "out is float32 and q float16", out=Tensor(self.q.shape, "fp32"))
        number = Tensor(self.q.shape, "int32")
        self.refused(NotImplementedError, "q is of another type; fa2 knows float16, bfloat16 and float32", number, number,
                     number, out=number)

    def test_float32(self):
        """Is taken, but not with everything. The message names both."""
        single = [Tensor(tensor.shape, "fp32") for tensor in (self.q, self.k, self.v, self.out)]
        self.refused(NotImplementedError, "softcap is 1; it must be 0 where dtype is fp32", *single[:3], out=single[3],
                     softcap=3.0)

    def test_ranks_and_shapes(self):
        self.refused(ValueError, r"v has 3 dimensions; it must have 4: \[batch, seq, heads, head_dim\]",
                     self.q, self.k, Tensor((40, 2, 16)))
        self.refused(ValueError, r"q has 2 dimensions; it must have 4: \[batch, heads, seq",
                     Tensor((40, 16)), self.k, self.v, layout="bhsd")
        self.refused(ValueError, "v has seq 41 and k has 40", self.q, self.k, Tensor((1, 41, 2, 16)))
        self.refused(ValueError, "k has batch 2 and q has 1", self.q, *2 * [Tensor((2, 40, 2, 16))])
        self.refused(ValueError, "k has head_dim 24 and q has 16", self.q, *2 * [Tensor((1, 40, 2, 24))])
        self.refused(ValueError, "out has in dimension 3 16 and q has 8", self.q, self.k, Tensor((1, 40, 2, 8)))
        self.refused(NotImplementedError, "head_dim_v is 24; it must be below head_dim", self.q, self.k,
                     Tensor((1, 40, 2, 24)), out=Tensor((1, 40, 2, 24)))
        self.refused(ValueError, "out has in dimension 1 41", out=Tensor((1, 41, 2, 16)))
        self.refused(ValueError, "heads_q is 3; it must be a multiple of heads_kv", Tensor((1, 40, 3, 16)), self.k, self.v,
                     out=Tensor((1, 40, 3, 16)))
        empty = Tensor((1, 0, 2, 16))  # is refused what others are
        self.refused(ValueError, "heads_q is 3; it must be a multiple of heads_kv", Tensor((1, 40, 3, 16)), empty, empty,
                     out=Tensor((1, 40, 3, 16)))
        self.refused(ValueError, "heads_kv is 0", self.q, *2 * [Tensor((1, 40, 0, 16))])
        self.refused(ValueError, "head_dim is 12", *3 * [Tensor((1, 0, 2, 12))], out=Tensor((1, 0, 2, 12)))
        self.refused(ValueError, "out has in dimension 1 40", empty, self.k, self.v)
        for function in (fa2.problem, fa2.prepare, fa2.explain):
            with self.assertRaisesRegex(ValueError, "no queries or no keys: such a call is answered without a kernel"):
                function(empty, self.k, self.v)

    def test_strides(self):
        transposed = Tensor((1, 40, 16, 2)).permuted(0, 1, 3, 2)
        self.refused(ValueError, "the last dimension of q has stride 2; it must be 1", transposed, self.k, self.v)
        odd = Tensor((1, 40, 2, 16), strides=(2000, 36, 18, 1))
        self.refused(ValueError, "k.stride_.* multiple of 8", self.q, odd, self.v)
        askew = Tensor((1, 40, 2, 16), memory=device.Memory(0, 4000), offset=4)
        self.refused(ValueError, "q.data is .*16 bytes", askew, self.k, self.v)

    def test_settings(self):
        self.refused(ValueError, "layout is 'sbhd'", layout="sbhd")
        for wrong in ("fp16", 2, 2 ** 70, b"fast"):
            self.refused(ValueError, 'sums is .*; it must be "fp32" or "fast"', sums=wrong)
        for wrong in ("fp8", 2, -1, b"int8"):
            self.refused(ValueError, 'scores is .*; it must be "exact" or "int8"', scores=wrong)
        for wrong in ("int8", 2, -1, b"fp8"):
            self.refused(ValueError, 'pv is .*; it must be "exact" or "fp8"', pv=wrong)
        for wrong in (3, (1, 2, 3), [1], {1: 2, 3: 4}, {1, 2}):
            self.refused(ValueError, rf"^window is {re.escape(repr(wrong))}; it must be two numbers, the keys before and "
                                     r"after the query's own position$", window=wrong)
        for wrong in ((1.5, 2), ("1", 2), (1, (2,))):
            self.refused(TypeError, "^a window's bound is .*; it must be a whole number, or None for all keys$", window=wrong)
        self.refused(ValueError, "scale is -1", scale=-1.0)
        self.refused(ValueError, "scale is nan", scale=float("nan"))
        self.refused(ValueError, "softcap is inf", softcap=float("inf"))
        self.refused(TypeError, "context must be a fa2_attn.Context", context=3)
        self.refused(TypeError, "stream is 'x'; it must be a CUDA stream", stream="x")
        self.refused(TypeError, "unexpected keyword argument 'casual', did you mean causal[?]$", casual=True)
        self.refused(TypeError, "unexpected keyword argument 'caus', did you mean causal[?]$", caus=True)
        self.refused(TypeError, "unexpected keyword argument 'zzz'$", zzz=True)
        for name in ("scale", "softcap", "dropout_p"):
            self.refused(TypeError, f"^{name} is 'x'; it must be a number$", **{name: "x"})
        with self.assertRaisesRegex(TypeError, "missing its argument 'v'"):
            fa2.attention(self.q, self.k)
        with self.assertRaisesRegex(TypeError, "takes 3 positional arguments but 4 were given"):
            fa2.attention(self.q, self.k, self.v, True)

    def test_cache_in_int8(self):
        k8, v8 = Tensor(self.k.shape, "int8"), Tensor(self.v.shape, "int8")
        scale = Tensor(self.k.shape[:3], "fp32")
        both = {"k_scale": scale, "v_scale": scale}
        self.refused(ValueError, "k is int8 and q float16; they must be of one type, or k and v of 8 bits with k_scale", self.q,
                     k8, v8)
        self.refused(ValueError, "k is float16; with k_scale and v_scale it must be int8, float8_e4m3fn or uint8", **both)
        self.refused(ValueError, "k is int8 and v uint8; they must be of one type", self.q, k8, Tensor(self.v.shape, "uint8"),
                     **both)
        self.refused(ValueError, "v_scale.data is NULL, but problem.kv is int8", self.q, k8, v8, k_scale=scale)
        for wrong in (Tensor(self.k.shape[:3], "fp16"), Tensor(self.k.shape[:2], "fp32"), Tensor((1, 2, 40), "fp32")):
            self.refused(ValueError, "v_scale must be float32 .*, as v without its columns", self.q, k8, v8,
                         **{**both, "v_scale": wrong})
        odd = Tensor(self.k.shape, "int8", strides=(2000, 48, 24, 1))
        self.refused(ValueError, "k.stride_head is 24; it must be a multiple of 16 elements", self.q, odd, v8, **both)

    def test_truths(self):
        """A text is no bool, whatever Python makes of it."""
        for name in ("causal", "return_lse", "rotary_interleaved"):
            for wrong in ("no", "", b"x", [], (True,), {}, 0.0, 1.5, 2, -1):
                self.refused(TypeError, rf"^{name} is {re.escape(repr(wrong))}; a bool is wanted$", **{name: wrong})
        for name in ("deterministic", "dsinks", "dbias"):
            with self.assertRaisesRegex(TypeError, f"^{name} is 'no'; a bool is wanted$"):
                fa2.attention_backward(self.out, self.q, self.k, self.v, self.out, self.out, **{name: "no"})
        for name in ("causal", "deterministic"):
            with self.assertRaisesRegex(TypeError, f"^{name} is 'no'; a bool is wanted$"):
                fa2.problem(self.q, self.k, self.v, **{name: "no"})
        for name in ("read_only", "never_compile", "check_numbers"):
            with self.assertRaisesRegex(TypeError, f"^{name} is 'no'; a bool is wanted$"):
                fa2.Context("", **{name: "no"})

        class Scalar:  # as array libraries have
            def __bool__(self):
                return True

        for truth in (True, 1, Scalar()):
            self.assertEqual(fa2.problem(self.q, self.k, self.v, causal=truth)["causal"], 1)
        for truth in (False, 0, None):
            self.assertEqual(fa2.problem(self.q, self.k, self.v, causal=truth)["causal"], 0)

    def test_seeds(self):
        for wrong in (-1, 2 ** 64, -2 ** 70):
            text = rf"^dropout_seed is {wrong}; it must be from 0 to 2\^64 - 1$"
            self.refused(ValueError, text, dropout_p=0.5, dropout_seed=wrong)
            with self.assertRaisesRegex(ValueError, text):
                fa2.dropout_mask({"heads_q": 1, "seq_q": 16, "head_dim": 16}, 0.5, wrong)
        with self.assertRaisesRegex(ValueError, "^offset is -1; it must be from 0"):
            fa2.dropout_mask({"heads_q": 1, "seq_q": 16, "head_dim": 16}, 0.5, 1, -1)

    def test_logs(self):
        for wrong in (5, "print", []):
            with self.assertRaisesRegex(TypeError, rf"^log is {re.escape(repr(wrong))}; it must be a function of one text"):
                fa2.Context("", log=wrong)

    def test_dropout(self):
        self.refused(ValueError, "dropout_p is given without dropout_seed", dropout_p=0.5)
        for wrong in (-0.1, 1.0, float("nan")):
            self.refused(ValueError, "dropout_p is .*; it must be at least 0 and less than 1", dropout_p=wrong)
        for wrong in (Tensor((3,), "int64"), Tensor((1,), "int32"), Tensor((1, 1), "int64"), Tensor((2,), "int64", strides=(2,))):
            self.refused(ValueError, "dropout_seed must be an int, or int64", dropout_p=0.5, dropout_seed=wrong)
        self.refused(TypeError, "dropout_seed is a .*str", dropout_p=0.5, dropout_seed="x")

    def test_packed_sequences(self):
        rows = [tensor.selected(0, 0) for tensor in (self.q, self.k, self.v)]
        starts = Tensor((2,), "int32").set([0, 40])
        given = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "max_seqlen_q": 40, "max_seqlen_k": 40}

        def refused(text, *tensors, kind=ValueError, **changed):
            self.refused(kind, text, *(tensors or rows), **{**given, "out": self.out.selected(0, 0), **changed})

        refused("cu_seqlens_q and cu_seqlens_k are given together", cu_seqlens_k=None)
        refused("max_seqlen_q and max_seqlen_k must be given", max_seqlen_q=None)
        refused("max_seqlen_q is -1; it must be from 0", max_seqlen_q=-1)
        refused("cu_seqlens_q is missing", cu_seqlens_q=None, cu_seqlens_k=None)
        refused(r"q has 4 dimensions; it must have 3: \[seq, heads, head_dim\], as sequences are packed", self.q, *rows[1:])
        refused(r"cu_seqlens_k must be int32 \[batch \+ 1\], with 1 sequences", cu_seqlens_k=Tensor((3,), "int32"))
        refused(r"cu_seqlens_q must be int32", cu_seqlens_q=Tensor((2,), "int64"))

    def test_pages(self):
        pages = [Tensor((4, 16, 2, 16)) for _ in range(2)]
        table = Tensor((1, 3), "int32")
        for wrong in (Tensor((3,), "int32"), Tensor((2, 3), "int32"), Tensor((1, 3), "int64"),
                      Tensor((1, 3), "int32", strides=(6, 2))):
            self.refused(ValueError, r"block_table must be int32 \[batch, pages\], with 1 sequences", self.q, *pages,
                         block_table=wrong)
        self.refused(ValueError, "block_table has 3 pages of 16 keys for a sequence, and max_seqlen_k is 49", self.q,
                     *pages, block_table=table, max_seqlen_k=49)
        self.refused(ValueError, "page is 15; it must be a power of two", self.q, *2 * [Tensor((4, 15, 2, 16))],
                     block_table=table)
        self.refused(ValueError, "v has pages 5 and k has 4", self.q, pages[0], Tensor((5, 16, 2, 16)), block_table=table)

    def test_caches(self):
        numbers = Tensor((1,), "int32").set([0])
        for name in ("leftpad", "cache_rows"):
            self.refused(ValueError, rf"{name} must be int32 \[batch\], with 1 sequences", **{name: Tensor((2,), "int32")})
        self.refused(NotImplementedError, "cache_rows is 1; it must be 0 where paged is 1", self.q,
                     *2 * [Tensor((4, 16, 2, 16))], block_table=Tensor((1, 3), "int32"), cache_rows=numbers)
        self.refused(ValueError, "k has batch 3 and q has 1", self.q, *2 * [Tensor((3, 40, 2, 16))], leftpad=numbers)

    def test_numbers_in_device_memory(self):
        """A context that checks them refuses what counts as the nearest number elsewhere."""
        lengths, outs = Tensor((1,), "int32"), [Tensor(self.q.shape) for _ in range(2)]
        with fa2.Context(check_numbers=True) as context:
            self.refused(ValueError, r"^seqused_k\[0\] is 41; it must be from 0 to 40 \(seq_k\)$",
                         seqused_k=lengths.set([41]), context=context)
            fa2.attention(self.q, self.k, self.v, out=outs[0], seqused_k=lengths)
            fa2.attention(self.q, self.k, self.v, out=outs[1], seqused_k=lengths.set([40]), context=context)
            device.synchronize()
        self.assertEqual(outs[0].get(), outs[1].get())

    def test_new_keys(self):
        new = {"k_new": Tensor((1, 3, 2, 16)), "v_new": Tensor((1, 3, 2, 16))}
        angles = {"rotary_cos": Tensor((40, 8)), "rotary_sin": Tensor((40, 8))}
        before = [tensor.get() for tensor in (self.k, self.v)]

        def refused(text, *tensors, kind=ValueError, **changed):
            self.refused(kind, text, *tensors, **{**new, **angles, **changed})
            self.assertEqual([tensor.get() for tensor in (self.k, self.v)], before)

        refused("k_new and v_new are given together", v_new=None)
        refused("rotary_cos and rotary_sin are given together", rotary_sin=None)
        refused("rotary embedding is of new keys", k_new=None, v_new=None)
        refused("k is read-only", self.q, self.k.as_type(ReadOnly), self.v)
        refused("k_new has 3 dimensions", k_new=Tensor((3, 2, 16)))
        refused("v_new is bfloat16 and q float16", v_new=Tensor((1, 3, 2, 16), "bf16"))
        for wrong in ((2, 3, 2, 16), (1, 3, 1, 16), (1, 3, 2, 24)):
            refused(r"k_new must be \[batch, seq, heads, head_dim\] with 1 sequences of 3 keys, 2 heads and head_dim 16",
                    k_new=Tensor(wrong))
        refused("v_new must be .* of 3 keys", v_new=Tensor((1, 4, 2, 16)))
        refused("append.seq is 41; it must be from 1 to seq_k", **{name: Tensor((1, 41, 2, 16)) for name in new})
        for wrong in (Tensor((40, 8), "fp32"), Tensor((40,)), Tensor((39, 8)), Tensor((40, 8), strides=(16, 1))):
            refused("rotary_sin must be", rotary_sin=wrong)
        refused("rotary.rows is 39; it must be at least seq_k", **{name: Tensor((39, 8)) for name in angles})
        refused("rotary_dim is 8", **{name: Tensor((40, 4)) for name in angles})
        refused("k shares memory with", self.q, self.k, self.v, k_new=self.k.part(1, 0, 3))
        with self.assertRaisesRegex(NotImplementedError, "append is 1"):
            fa2.attention_backward(*4 * [self.q], self.out, Tensor((1, 2, 40), "fp32"), **new,
                                   **{name: Tensor(self.q.shape) for name in ("dq", "dk", "dv")})

    def test_features(self):
        for name, right in (("alibi_slopes", r"\[heads\] or \[batch, heads\]"), ("sinks", r"\[heads\]")):
            for wrong in (Tensor((3,), "fp32"), Tensor((2,)), Tensor((1, 1, 2), "fp32"), Tensor((2, 2), "fp32"),
                          Tensor((2,), "fp32", strides=(2,))):
                self.refused(ValueError, f"{name} must be float32 {right}, with 2 heads", **{name: wrong})
            self.refused(ValueError, f"{name} is not on a CUDA device", **{name: Tensor((2,), "fp32").as_type(OnHost)})
            self.refused(TypeError, f"{name} is a .*float", **{name: 0.5})

    def test_bias(self):
        for wrong in (Tensor((1, 2, 40, 41), "fp32"), Tensor((40, 40), "fp32"), Tensor((1, 1, 40, 40), "int32"),
                      Tensor((2, 1, 40, 40), "fp32"), Tensor((1, 1, 40, 1), "fp32")):
            self.refused(ValueError, r"bias must be .*, here \[1, 2, 40, 40\]", bias=wrong)

    def test_lengths(self):
        for wrong in (Tensor((2,), "int32"), Tensor((1,), "fp32"), Tensor((1, 1), "int32")):
            self.refused(ValueError, r"seqused_k must be int32 \[batch\], with 1 sequences", seqused_k=wrong)

    def test_outputs(self):
        self.refused(ValueError, "out is read-only", out=self.out.as_type(ReadOnly))
        with self.assertRaisesRegex(ValueError, "give out="):
            fa2.attention(self.q, self.k, self.v)

    def test_failing_libraries(self):
        class Failing(Tensor):
            def __dlpack__(self, **unused):
                raise BufferError("not today")

        class Complaining(Tensor):
            def __dlpack__(self, **unused):
                raise RuntimeError("no driver")

        class Lying(Tensor):
            def __dlpack__(self, **unused):
                return "no capsule"

        self.refused(BufferError, "not today", self.q.as_type(Failing), self.k, self.v)
        self.refused(RuntimeError, "^no driver$", self.q, self.k.as_type(Complaining), self.v)
        self.refused(ValueError, "^k answers __dlpack__ with 'no capsule'; it must be a capsule named dltensor",
                     self.q, self.k.as_type(Lying), self.v)

    def test_what_a_library_does_not_lend(self):
        """A line, with the library's own words for it as the cause; what else goes wrong is as it was."""
        class Complaining(Tensor):
            def __dlpack__(self, **unused):
                raise self.error("it is sparse\nframe #0: of its own")

        def describe(kind):
            return (*_describe(kind)[:-1], kind.lends) if issubclass(kind, Complaining) else _describe(kind)

        def broken(tensor):
            raise KeyError("of its own")

        _describe = _frameworks.describe
        with mock.patch.object(_frameworks, "describe", describe):
            for error, lends, raised in ((RuntimeError, False, ValueError), (RuntimeError, True, RuntimeError),
                                         (RecursionError, False, RecursionError), (RuntimeError, None, RuntimeError)):
                kind = type("Kind", (Complaining,), {"error": error, "lends": staticmethod(
                    broken if lends is None else lambda tensor, answer=lends: answer)})
                text = "^k cannot be lent by DLPack: it is sparse$" if raised is ValueError else "^it is sparse\nframe"
                with self.assertRaisesRegex(raised, text) as seen:
                    fa2.attention(self.q, self.k.as_type(kind), self.v, out=self.out)
                self.assertIs(type(seen.exception), raised)
                self.assertEqual(type(seen.exception.__cause__), RuntimeError if raised is ValueError else type(None))

    def test_libraries_that_answer_nonsense(self):
        def answering(method, answer):
            return type("Lying", (Tensor,), {method: lambda self, **unused: answer})

        for answer in ("x", (2,), (2, 0, 0), [2, 0], (2.0, 0), ("2", 0), (2 ** 40, 0), (2, 2 ** 40), (2, -2 ** 70), None):
            lying = self.q.as_type(answering("__dlpack_device__", answer))
            text = f"^q answers __dlpack_device__ with {re.escape(repr(answer))}; it must be a tuple of two numbers"
            self.refused(ValueError, text, lying, self.k, self.v)
            for function in (fa2.problem, fa2.prepare, fa2.explain):
                with self.assertRaisesRegex(ValueError, text):
                    function(lying, self.k, self.v)
        used = self.v.__dlpack__()
        fa2.problem(self.q, self.k, self.v.as_type(answering("__dlpack__", used)))
        for answer in (5, None, used):
            self.refused(ValueError, f"^v answers __dlpack__ with {re.escape(repr(answer))[:12]}.*that nobody has taken yet$",
                         self.q, self.k, self.v.as_type(answering("__dlpack__", answer)))

    def test_a_device_of_an_enumeration(self):
        """As PyTorch and NumPy answer."""
        kind = enum.IntEnum("Kind", {"CUDA": 2})

        class Enumerated(Tensor):
            def __dlpack_device__(self):
                return kind.CUDA, self.device

        fa2.attention(self.q.as_type(Enumerated), self.k, self.v, out=self.out)

    def test_a_number_that_fails(self):
        """Says so itself."""
        class Number:
            def __index__(self):
                raise KeyError("of its own")

        class Failing(Tensor):
            def __dlpack_device__(self):
                return Number(), 0

        self.refused(KeyError, "of its own", self.q.as_type(Failing), self.k, self.v)

    def test_closed_context(self):
        context = fa2.Context()
        context.close()
        self.assertTrue(context.closed)
        self.refused(ValueError, "closed", context=context)
        context.close()

    def test_problems(self):
        for fields, text in (({"heads_q": 2}, "lacks seq_q"),
                             ({"zzz": 2}, "no field 'zzz'; it has op, .*heads_q, .*rotary_dim"),
                             ({"heads": 2}, "no field 'heads', did you mean heads_q[?]$"),
                             ({"heads_q": 2, "seq_q": 4, "head_dim": 12}, "head_dim is 12"),
                             ({"heads_q": 2, "seq_q": 4, "head_dim": 16, "dtype": "fp8"},
                              "^dtype is 'fp8'; it must be one of fp16, bf16, fp32$"),
                             ({"op": "sideways"}, "^op is 'sideways'; it must be one of forward, backward, merge$"),
                             ({"heads_q": 2, "seq_q": 4, "head_dim": 8, "append": 1, "rotary": "halves"},
                              "^rotary_dim is 16; it must be at most head_dim .8.$"),
                             ({"batch": "2"}, "^batch is '2'; it must be a whole number$"),
                             ({"window": "wide"}, "^window is 'wide'; it must be one of 0 .none., 1 .sliding., ")):
            with self.assertRaisesRegex(ValueError, text):
                fa2.explain(fields, device=0)
        asked = fa2.explain({"heads_q": 2, "seq_q": 4, "head_dim": 64, "rotary_dim": 32}, device=0)["problem"]
        self.assertEqual((asked["append"], asked["rotary"], asked["rotary_dim"]), (1, "halves", 32))
        with self.assertRaises(TypeError):
            fa2.Context().prepare("B=1")
        with self.assertRaisesRegex(TypeError, "^dropout is 0.1; it must be 0 or 1: the probability is given with"):
            fa2.explain({"dropout": 0.1}, device=0)

    def test_contexts(self):
        for settings, text in (({"arch": "ampere"}, "arch is 'ampere'"), ({"device": -1}, "device is -1"),
                               ({"device": 64}, "device is 64")):
            with self.assertRaisesRegex(ValueError, text):
                fa2.Context(**settings)
        with self.assertRaises(fa2.Error) as raised:
            fa2.Context(device=9)
        self.assertEqual(raised.exception.status, "FA2_E_NO_DEVICE")

    def test_one_stream_for_all(self):
        ExchangeTensor.stream = device.new_stream().value
        try:
            q, k, v = reference.tensors(kind=ExchangeTensor)
            fa2.attention(q, k, v)
        finally:
            ExchangeTensor.stream = 0


if __name__ == "__main__":
    unittest.main()
