"""fa2_attn.torch and fa2_attn.flash_attn with PyTorch's tensors on the host and kernels of the software device: what a GPU would
be asked for, small. Skipped without PyTorch or the software device."""

import gc
import unittest
import warnings
import weakref
from unittest import mock

try:
    import torch
    import torch.utils.checkpoint
    from torch._subclasses.fake_tensor import FakeTensorMode
    import fa2_attn as fa2
    import fa2_attn.torch
    from fa2_attn import flash_attn
    import gradients as grid
    import host
except ImportError:
    torch = None

from on_host import OnHost, gradients, randn


def attend(*tensors, **settings):
    """fa2.attention, also without gradients, and compiled."""
    return (fa2.attention if torch.compiler.is_compiling() else host.attention)(*tensors, **settings)


class Permissions(OnHost):
    def test_gradients(self):
        """Permissions to be less exact, by every way; gradients are those without them, of the same output and LSE."""
        from fa2_attn import _recording

        q, k, v = randn((2, 20, 2, 16), *2 * [(2, 30, 2, 16)])
        wanted = gradients(lambda q: fa2.attention(q, k, v), q)
        for words in ({"sums": "fast"}, {"scores": "int8"}, {"sums": "fast", "scores": "int8"},
                      {"scores": "int8", "pv": "fp8"}):
            numbers = dict.fromkeys(words, 1)
            for function in (lambda q: fa2.attention(q, k, v, **words),
                             lambda q: torch.ops.fa2.attention(q, k, v, **numbers)[0]):
                for a, b in zip(gradients(function, q), wanted):
                    self.assert_close(a, b, 5e-2)
            self.assert_close(attend(q, k, v, **words), attend(q, k, v), 5e-2)
            (_, problem), = _recording.problems_of(lambda q: attend(q, k, v, **words), q, False)
            self.assertLessEqual(words.items(), problem.items())
        for wrong in ({"sums": "int8"}, {"scores": "fast"}, {"pv": "int8"}):
            with self.assertRaisesRegex(ValueError, "it must be"):
                attend(q, k, v, **wrong)

    def test_sdpa(self):
        """The problems of sdpa: with a gradient, with a mask, and in PyTorch's place."""
        q, k, v = randn((2, 2, 20, 16), *2 * [(2, 2, 30, 16)])
        mask = torch.ones(20, 30, dtype=torch.bool)
        asked = []

        def attention(*tensors, sums, scores, pv, **settings):
            asked.append((sums, scores, pv))
            return attend(*tensors, sums=sums, scores=scores, pv=pv, **settings)

        def ask(function, *tensors, **settings):
            out = on_device(lambda: function(*tensors, **settings), attention)
            return (out, *asked.pop())

        sdpa, in_place = fa2_attn.torch.sdpa, torch.nn.functional
        wanted, *none = ask(sdpa, q, k, v)
        self.assertEqual(none, 3 * [None])
        for words in (("fast", None, None), (None, "int8", None), ("fast", "int8", None), (None, "int8", "fp8")):
            permitted = dict(zip(fa2._native.PERMISSIONS, words))
            for given in (q, k, v), (q.clone().requires_grad_(), k, v), (q, k, v, mask):
                out, *permissions = ask(sdpa, *given, **permitted)
                self.assertEqual(permissions, [*words])
                self.assert_close(out, wanted, 5e-2)
            with fa2_attn.torch.replace_sdpa(**permitted):
                self.assertEqual(ask(in_place.scaled_dot_product_attention, q, k, v)[1:], words)
                with fa2_attn.torch.replace_sdpa():
                    self.assertEqual(ask(in_place.scaled_dot_product_attention, q, k, v)[1:], (None, None, None))
                self.assertEqual(ask(in_place.scaled_dot_product_attention, q, k, v)[1:], words)
        for wrong in ({"sums": "int8"}, {"pv": "int8"}):
            with self.assertRaisesRegex(ValueError, "it must be"), fa2_attn.torch.replace_sdpa(**wrong):
                pass
            self.assertRaisesRegex(ValueError, "it must be", sdpa, q, k, v, **wrong)
        self.assertRaises(TypeError, sdpa, q, k, v, None, 0.0, False, None, False, "fast")


class Warm(OnHost):
    def test_problems(self):
        """warm prepares each problem of a model once, in the order of the calls, and launches nothing."""
        from fa2_attn import _recording

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones(16, dtype=torch.float16))

            def forward(self, x, causal=True):
                x = x * self.weight
                rows = x.transpose(1, 2)
                for _ in range(2):
                    rows = fa2.attention(rows, rows, rows, causal=causal)
                return {"out": flash_attn.flash_attn_func(rows, rows, rows, window_size=(3, 0), causal=True), "plain": x}

        model, x = Model(), torch.rand(2, 4, 24, 16, dtype=torch.float16)
        found = _recording.problems_of(model, x, False)
        self.assertEqual([device for device, _ in found], [0, 0])
        first, second = (problem for _, problem in found)
        self.assertEqual([first[name] for name in ("batch", "heads_q", "seq_q", "head_dim", "causal")], [2, 4, 24, 16, 1])
        self.assertEqual(second["window_left"], 3)
        self.assertIsNone(model.weight.grad)
        self.assertEqual(_recording.problems_of(model, {"x": x, "causal": False}, False)[0][1].get("causal", 0), 0)
        model.weight.grad = torch.full_like(model.weight, 7)
        ops = [problem.get("op", "forward") for _, problem in _recording.problems_of(model, (x,), True)]
        self.assertEqual(sorted(ops), ["backward", "backward", "forward", "forward"])
        self.assertTrue((model.weight.grad == 7).all())
        with self.assertRaisesRegex(ValueError, "no output of the model requires a gradient"):
            _recording.problems_of(lambda x: x, (x,), True)
        packed = torch.rand(2, 24, 3, 4, 16, dtype=torch.float16)
        (_, problem), = _recording.problems_of(lambda t: fa2_attn.torch.attention_packed(t, softcap=2.0), packed, False)
        self.assertEqual((problem["softcap"], problem["seq_q"]), (1, 24))
        rows = packed[:, :, 0]
        (_, problem), = _recording.problems_of(lambda t: fa2.attention(t, t, t, sums="fast"), rows, False)
        self.assertEqual(problem["sums"], "fast")

    def test_warm(self):
        """The kernels are ready: calls compile nothing more. Its own calls launched nothing, and wrote nothing."""
        q, k, v, new = randn((2, 3, 2, 16), *2 * [(2, 32, 2, 16)], (2, 3, 2, 16))
        before, lengths = k.clone(), torch.tensor([7, 9], dtype=torch.int32)

        def model(q):
            cached = fa2.attention(q, k, v, k_new=new, v_new=new, seqused_k=lengths, causal=True)
            return cached + fa2.attention(q, k, v)

        with fa2.Context("", log=lambda line: None) as context:
            made = fa2.warm(model, q, context=context)
            self.assertEqual([one["problem"].get("append", 0) for one in made], [1, 0])
            self.assertTrue(all(one["variant"] for one in made))
            compiled = context.counters()["compiled"]
            self.assertGreater(compiled, 0)
            self.assertEqual(context.counters()["calls_default"], 0)
            for one in made:
                context.prepare(one["problem"])
            self.assertEqual(context.counters()["compiled"], compiled)
        self.assertTrue(torch.equal(k, before))


class Bias(OnHost):
    def test_gradients(self):
        """A bias for all queries of a head, by every way; deterministic, each of its numbers is a sum of ours."""
        q, k, v, bias = randn((2, 20, 2, 16), *2 * [(2, 30, 1, 16)], (1, 2, 1, 30))

        def exact(q, bias):
            heads = [t.double().transpose(1, 2) for t in (q, k, v)]
            scores = heads[0] @ heads[1].transpose(-1, -2) / 4 + bias.double()
            return (scores.softmax(-1) @ heads[2]).transpose(1, 2)

        def operation(q, bias):
            return torch.ops.fa2.attention(q, k, v, bias=bias)[0]

        def packed(q, bias):
            return fa2_attn.torch.attention_packed(q, torch.stack((k, v), 2), bias=bias)

        def deterministic(q, bias):
            return fa2_attn.torch.attention_packed(q, torch.stack((k, v), 2), bias=bias, deterministic=True)

        wanted = gradients(exact, q, bias)
        for function in (lambda q, bias: fa2.attention(q, k, v, bias=bias), operation, packed, deterministic):
            got = gradients(function, q, bias)
            self.assertEqual((got[2].shape, got[2].dtype), (bias.shape, bias.dtype))
            for a, b in zip(got, wanted):
                self.assert_close(a, b, 2e-2)
            self.assert_close(gradients(lambda bias: function(q, bias), bias)[1], wanted[2], 2e-2)


    def test_gradients_of_a_mask(self):
        """sdpa's, of fewer dimensions than scores, as PyTorch's own."""
        q, k, v = randn((2, 2, 20, 16), *2 * [(2, 2, 30, 16)])
        for mask in randn((20, 30), (2, 1, 20, 30)):
            wanted, got = (on_device(lambda: gradients(lambda q, mask: function(q, k, v, attn_mask=mask), q, mask))
                           for function in (torch.nn.functional.scaled_dot_product_attention, fa2_attn.torch.sdpa))
            self.assertEqual(got[2].shape, mask.shape)
            for a, b in zip(got, wanted):
                self.assert_close(a, b, 2e-2)


class Dropout(OnHost):
    def test_the_ways_draw_alike(self):
        """From one state of the generator; recomputation draws what was drawn."""
        tensors = randn(*3 * [(1, 20, 2, 16)])
        settings = {"causal": True, "dropout_p": 0.3}

        def packed(*t):
            return fa2_attn.torch.attention_packed(*t, **settings, deterministic=True)

        def attention(*t):
            return fa2.attention(*t, **settings)

        def operation(*t):
            seed = torch.randint(2 ** 62, (1,))
            return torch.ops.fa2.attention(*t, True, deterministic=True, dropout_p=0.3, dropout_seed=seed)[0]

        def checkpointed(*t):
            return torch.utils.checkpoint.checkpoint(packed, *t, use_reentrant=False)

        def compiled(*t):
            return torch.compile(packed, backend="aot_eager", fullgraph=True)(*t)

        torch.use_deterministic_algorithms(True)
        try:
            torch.manual_seed(7)
            wanted = gradients(packed, *tensors)
            another = gradients(packed, *tensors)
            self.assertFalse(torch.equal(wanted[0], another[0]))
            for function in (attention, operation, checkpointed, compiled):
                with self.subTest(function.__name__):
                    torch.manual_seed(7)
                    self.assert_equal(gradients(function, *tensors), wanted)
        finally:
            torch.use_deterministic_algorithms(False)
        with torch.no_grad():
            torch.manual_seed(7)
            self.assertTrue(torch.equal(packed(*tensors), wanted[0]))

    def test_seeds(self):
        q, k, v = randn(*3 * [(1, 20, 2, 16)])
        outs = [fa2_attn.torch.attention_packed(q, k, v, dropout_p=0.3, dropout_seed=seed)
                for seed in (5, torch.tensor([5]), 2 ** 64 - 1, torch.tensor([-1]))]
        self.assert_equal(outs, [outs[0], outs[0], outs[2], outs[2]])
        for seed in (-1, 2 ** 64):
            with self.assertRaisesRegex(ValueError, f"^dropout_seed is {seed}; it must be from 0 to "):
                fa2_attn.torch.attention_packed(q, k, v, dropout_p=0.3, dropout_seed=seed)

    def test_truths(self):
        q, k, v = randn(*3 * [(1, 20, 2, 16)])
        for name in ("causal", "deterministic", "return_lse"):
            with self.assertRaisesRegex(TypeError, f"^{name} is 'no'; a bool is wanted$"):
                fa2_attn.torch.attention_packed(q, k, v, **{name: "no"})
        for name in ("is_causal", "enable_gqa"):
            with self.assertRaisesRegex(TypeError, f"^{name} is 'no'; a bool is wanted$"):
                fa2_attn.torch.sdpa(*(t.transpose(1, 2) for t in (q, k, v)), **{name: "no"})

    def test_no_dropout(self):
        q, k, v = randn(*3 * [(1, 20, 2, 16)])
        plain = fa2_attn.torch.attention_packed(q, k, v)
        self.assertTrue(torch.equal(fa2_attn.torch.attention_packed(q, k, v, dropout_p=0.0), plain))
        state = torch.get_rng_state()
        fa2_attn.torch.attention_packed(q, k, v, dropout_p=0.0)
        self.assertTrue(torch.equal(torch.get_rng_state(), state))

    def test_seeds_without_dropout(self):
        """They are dropped, by all ways."""
        qkv, = randn((1, 20, 3, 2, 16))
        q, k, v = tensors = qkv.unbind(2)
        packings = tensors, (q, torch.stack((k, v), 2)), (qkv,)
        wanted = gradients(lambda *t: fa2_attn.torch.attention_packed(*t, deterministic=True), *tensors)
        for seed in (5, torch.tensor([5])):
            settings = {"dropout_p": 0.0, "dropout_seed": seed}

            def packed(*t):
                return fa2_attn.torch.attention_packed(*t, deterministic=True, **settings)

            def compiled(*t):
                torch.compiler.reset()  # which counts how often it was compiled
                return torch.compile(packed, backend="aot_eager", fullgraph=True)(*t)

            for given in packings:
                for function in (packed, compiled):
                    with self.subTest(seed=seed, tensors=len(given), way=function.__name__):
                        out, *made = gradients(function, *given)
                        self.assertTrue(torch.equal(out, wanted[0]))
                        self.assert_close(made[0].select(2, 0) if len(given) == 1 else made[0], wanted[1])
                        with torch.no_grad():
                            self.assertTrue(torch.equal(function(*given), wanted[0]))
            out, *made = gradients(lambda *t: fa2.attention(*t, **settings), *tensors)
            self.assertTrue(torch.equal(out, wanted[0]))
            for got, expected in zip(made, wanted[1:]):
                self.assert_close(got, expected)
        with FakeTensorMode(), torch.no_grad():  # by PyTorch's dispatcher
            fake = torch.empty((1, 20, 2, 16), dtype=torch.float16)
            self.assertEqual(fa2.attention(fake, fake, fake, dropout_p=0.0, dropout_seed=5).shape, fake.shape)

    def test_mask_of_the_grid(self):
        """gradients.py computes it by itself."""
        seed, dropped = (123 << 40) + 99, 44
        problem = {"batch": 2, "heads_q": 3, "seq_q": 37, "seq_k": 75, "head_dim": 8, "dropout": 1}
        wanted = torch.frombuffer(fa2.dropout_mask(problem, dropped / 256, seed), dtype=torch.bool)
        self.assertTrue(torch.equal(grid.kept(2, 3, 37, 75, seed, dropped, "cpu").flatten(), wanted))

    def test_probabilities(self):
        """From the weights that are returned comes the output that is; a row's largest is 1."""
        q, k, v = randn((2, 20, 4, 16), *2 * [(2, 30, 2, 16)])
        for settings in ({}, {"causal": True}, {"window_size": (3, 2), "softcap": 3.0},
                         {"alibi_slopes": torch.tensor([0.5, 0.25, 0.1, 0.0])}):
            out, lse, weights = flash_attn.flash_attn_func(q, k, v, 0.25, return_attn_probs=True, **settings)
            self.assertEqual((weights.shape, weights.dtype), ((2, 4, 128, 128), torch.float16))
            inner = weights[:, :, :20, :30]
            self.assertEqual(weights.count_nonzero(), inner.count_nonzero())
            sums = inner.float().abs().sum(-1, keepdim=True)
            kept = inner.masked_fill(torch.signbit(inner), 0) / (0.75 * sums)
            values = v.float().repeat_interleave(2, 2)
            self.assert_close(out, torch.einsum("bhij,bjhd->bihd", kept, values), 8e-3)
            self.assert_close(inner.abs().amax(-1), torch.ones(()), 1e-9)
            self.assertEqual(lse.shape, (2, 4, 20))
        self.assertIsNone(flash_attn.flash_attn_func(q, k, v, return_attn_probs=True)[2])

    def test_probabilities_of_packed_sequences(self):
        """They are each sequence's own, and times v they give the output."""
        lengths_q, lengths_k = (20, 0, 7), (30, 4, 12)
        q, k, v = randn((27, 4, 16), *2 * [(46, 2, 16)])
        starts = [torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)
                  for lengths in (lengths_q, lengths_k)]
        for settings in ({"causal": True}, {"alibi_slopes": torch.tensor([0.5, 0.25, 0.1, 0.0])}):
            out, _, weights = flash_attn.flash_attn_varlen_func(q, k, v, *starts, 20, 30, 0.25, return_attn_probs=True,
                                                                **settings)
            self.assertEqual((weights.shape, weights.dtype), ((3, 4, 128, 128), torch.float16))
            for b, (rows, keys) in enumerate(zip(lengths_q, lengths_k)):
                inner = weights[b, :, :rows, :keys]
                self.assertEqual(weights[b].count_nonzero(), inner.count_nonzero())
                kept = inner.masked_fill(torch.signbit(inner), 0) / (0.75 * inner.float().abs().sum(-1, keepdim=True))
                values = v[starts[1][b]:starts[1][b + 1]].float().repeat_interleave(2, 1)
                if rows:
                    self.assert_close(out[starts[0][b]:starts[0][b + 1]], torch.einsum("hij,jhd->ihd", kept, values), 8e-3)
                    self.assert_close(inner.abs().amax(-1), torch.ones(()), 1e-9)

    def test_widths(self):
        """Columns of no multiple of 8, and fewer of V: the result has V's."""
        q, k, v = randn((2, 20, 2, 20), *2 * [(2, 30, 2, 20)])
        wanted = flash_attn.flash_attn_func(q, k, v)
        self.assertEqual(wanted.shape, q.shape)
        for columns in (10, 12, 16):
            out = flash_attn.flash_attn_func(q, k, v[..., :columns])
            self.assertEqual(out.shape, (2, 20, 2, columns))
            self.assert_close(out, wanted[..., :columns], 4e-3)


class Windows(OnHost):
    WINDOWS = (((7, 2), torch and torch.tensor([7, 2])), ((7, 2), [7, 2]), ((7, 2), torch and torch.tensor([7, 2]).numpy()),
               ((-1, 2), (2 ** 40, 2)), ((-1, -1), (2 ** 31 - 1, 2 ** 30)), ((-1, -1), (-3, -3)))

    def test_flash_functions(self):
        """A tensor, a list, NumPy's numbers, numbers beyond every length, negative ones: the same outputs and gradients."""
        qkv, = randn((1, 20, 3, 2, 16))
        rows, starts = qkv[0], torch.tensor([0, 12, 20], dtype=torch.int32)
        functions = (lambda qkv, w: flash_attn.flash_attn_qkvpacked_func(qkv, window_size=w),
                     lambda qkv, w: flash_attn.flash_attn_func(*qkv.unbind(2), window_size=w, deterministic=True),
                     lambda qkv, w: flash_attn.flash_attn_varlen_qkvpacked_func(qkv[0], starts, 12, window_size=w),
                     lambda qkv, w: flash_attn.flash_attn_func(*qkv.unbind(2), causal=True, window_size=w),
                     lambda qkv, w: flash_attn.flash_attn_func(*qkv[..., :12].unbind(2), window_size=w),
                     lambda qkv, w: host.attention(*qkv.unbind(2), window=w, return_lse=True)[0],
                     lambda qkv, w: fa2_attn.torch.attention_packed(qkv, window=w))
        for i, function in enumerate(functions):
            for wanted, given in self.WINDOWS:
                with self.subTest(function=i, window=given):
                    expected, got = (gradients(lambda qkv: function(qkv, w), qkv) for w in (wanted, given))
                    self.assertTrue(torch.equal(got[0], expected[0]))
                    self.assert_close(got[1], expected[1])
                    with torch.no_grad():
                        self.assertTrue(torch.equal(function(qkv, given), expected[0]))
        cache = flash_attn.flash_attn_with_kvcache(*qkv.unbind(2), window_size=self.WINDOWS[0][1])
        self.assertTrue(torch.equal(cache, flash_attn.flash_attn_with_kvcache(*qkv.unbind(2), window_size=(7, 2))))

    def test_probabilities(self):
        q, k, v = randn(*3 * [(1, 20, 2, 16)])
        for wanted, given in self.WINDOWS:
            torch.manual_seed(3)
            expected = flash_attn.flash_attn_func(q, k, v, 0.25, window_size=wanted, return_attn_probs=True)
            torch.manual_seed(3)
            self.assert_equal(flash_attn.flash_attn_func(q, k, v, 0.25, window_size=given, return_attn_probs=True), expected)

    def test_changed_after_forward(self):
        """Backward has the window that forward had."""
        qkv, = randn((1, 20, 3, 2, 16))
        for function in (lambda *t, window: fa2.attention(*t, window=window),
                         lambda *t, window: fa2.attention(*t, window=window, sinks=torch.zeros(2)),
                         lambda *t, window: flash_attn.flash_attn_func(*t, window_size=window),
                         lambda *t, window: fa2_attn.torch.attention_packed(*t, window=window)):
            made = []
            for window in ((7, 2), torch.tensor([7, 2]), [7, 2]):
                leaf = qkv.clone().requires_grad_()
                out = function(*leaf.unbind(2), window=window)
                if not isinstance(window, tuple):
                    window[0] = 1
                out.sum().backward()
                made.append(leaf.grad)
            self.assert_close(made[1], made[0])
            self.assert_close(made[2], made[0])

    def test_compiled(self):
        """A list of the program's own, and bounds beyond every length, also by the operation."""
        q, k, v = randn(*3 * [(1, 20, 2, 16)])
        for window in ([7, 2], (2 ** 40, 2)):
            def function(*t):
                return flash_attn.flash_attn_func(*t, window_size=window)

            torch.compiler.reset()
            compiled = gradients(torch.compile(function, backend="aot_eager", fullgraph=True), q, k, v)
            for a, b in zip(compiled, gradients(function, q, k, v)):
                self.assert_close(a, b)
        operation = torch.ops.fa2.attention(q, k, v, window_left=2 ** 40, window_right=2)[0]
        self.assertTrue(torch.equal(operation, host.attention(q, k, v, window=(-1, 2))))
        leaf = q.clone().requires_grad_()
        torch.ops.fa2.attention(leaf, k, v, window_left=2 ** 40, window_right=-5)[0].sum().backward()
        self.assertEqual(leaf.grad.shape, q.shape)

    def test_longest(self):
        """Lengths of packed sequences may be numbers of any kind, too."""
        rows, starts = randn((20, 3, 2, 16))[0], torch.tensor([0, 12, 20], dtype=torch.int32)
        wanted = flash_attn.flash_attn_varlen_qkvpacked_func(rows, starts, 12)
        for longest in (starts.diff().max(), starts.diff().max().numpy()):
            self.assertTrue(torch.equal(flash_attn.flash_attn_varlen_qkvpacked_func(rows, starts, longest), wanted))
            operation, _ = torch.ops.fa2.attention_packed([rows], cu_seqlens_q=starts, cu_seqlens_k=starts,
                                                          max_seqlen_q=int(longest), max_seqlen_k=int(longest))
            self.assertTrue(torch.equal(operation, wanted))


class Inference(OnHost):
    """Calls whose keys lie in caches: forward runs whatever requires a gradient, and backward refuses."""

    def calls(self):
        """{feature: (function of q, k and v, its tensors)}"""
        def numbers(*values):
            return torch.tensor(values, dtype=torch.int32)

        q, k, v = randn((2, 4, 2, 16), *2 * [(2, 32, 2, 16)])
        pages = randn(*2 * [(6, 16, 2, 16)])
        table, starts = torch.tensor([[3, 1], [0, 5]], dtype=torch.int32), numbers(0, 4, 8)
        ends, rows = numbers(0, 30, 50), q.flatten(0, 1)
        caches = randn(*2 * [(5, 32, 2, 16)])

        def packed(q, k, v):
            return flash_attn.flash_attn_varlen_func(q, k, v, starts, ends, 4, 32, causal=True, block_table=table)

        return {"seqused_k": (lambda q, k, v: attend(q, k, v, seqused_k=numbers(20, 7)), (q, k, v)),
                "leftpad": (lambda q, k, v: attend(q, k, v, leftpad=numbers(3, 9)), (q, k, v)),
                "cache_rows": (lambda q, k, v: attend(q, k, v, cache_rows=numbers(4, 2)), (q, *caches)),
                "block_table": (lambda q, k, v: attend(q, k, v, block_table=table), (q, *pages)),
                "packed": (packed, (rows, *pages))}

    def test_eager(self):
        for name, (function, tensors) in self.calls().items():
            with torch.no_grad():
                wanted = function(*tensors)
            for needed in ((True, False, False), (False, True, True), (True, True, True)):
                leaves = [tensor.clone().requires_grad_(need) for tensor, need in zip(tensors, needed)]
                with self.subTest(name, needed=needed):
                    with torch.no_grad():
                        self.assertFalse(function(*leaves).requires_grad)
                    out = function(*leaves)
                    self.assertTrue(out.requires_grad)
                    self.assertTrue(torch.equal(out, wanted))
                    if not needed[1]:
                        leaves[1].zero_()  # as decoding goes on
                    self.refused(name, out)

    def test_operations(self):
        function, tensors = self.calls()["seqused_k"]
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        out, _ = torch.ops.fa2.attention(*leaves, seqused_k=torch.tensor([20, 7], dtype=torch.int32))
        with torch.no_grad():
            self.assertTrue(torch.equal(out, function(*leaves)))
        self.refused("seqused_k", out)

    def test_compiled(self):
        for name, (function, tensors) in self.calls().items():
            leaves = [tensor.clone().requires_grad_() for tensor in tensors]
            with self.subTest(name):
                torch.compiler.reset()
                out = torch.compile(function, backend="aot_eager", fullgraph=True)(*leaves)
                with torch.no_grad():
                    self.assertTrue(torch.equal(out, function(*leaves)))
                self.refused(name, out)

    def refused(self, name, out):
        name = "block_table" if name == "packed" else name
        with self.assertRaisesRegex(NotImplementedError, f"fa2_attn.attention with {name} has no gradient"):
            out.float().sum().backward()

    def test_others_are_refused_at_once(self):
        """A width that backward lacks is a model's, and its training would fail at the first step."""
        leaf = randn((1, 4, 1, 264))[0].requires_grad_()
        with self.assertRaisesRegex(NotImplementedError, "head_dim is 264; backward takes up to 256"):
            fa2.attention(leaf, leaf, leaf)


def on_device(function, attention=attend):
    """fa2_attn.torch.sdpa, whose tensors it takes for a device's."""
    refusal = fa2_attn.torch._refusal

    def elsewhere(*given):
        reason = refusal(*given)
        return None if reason == "the tensors are on device cpu" else reason

    with mock.patch.multiple(fa2_attn.torch, _refusal=elsewhere, attention=attention):
        return function()


class Empty(OnHost):
    """Tensors without batch, queries, keys or tokens: what PyTorch and flash-attn give, and gradients."""
    SHAPES = (((0, 5, 2, 16), (0, 7, 2, 16)), ((2, 0, 2, 16), (2, 7, 2, 16)), ((2, 5, 2, 16), (2, 0, 2, 16)),
              ((2, 0, 2, 16), (2, 0, 2, 16)))

    def check(self, function, *tensors):
        """Forward alone, forward and backward: all that comes is 0, in the shapes of what is given."""
        with torch.no_grad():
            alone = function(*tensors)
        out, *made = gradients(function, *tensors)
        for tensor in (alone, out, *made):
            self.assertEqual(tensor.count_nonzero(), 0)
        self.assertEqual(alone.shape, out.shape)
        self.assertEqual([tensor.shape for tensor in made], [tensor.shape for tensor in tensors])
        return out

    def test_attention(self):
        for q, k in self.SHAPES:
            for settings in ({}, {"causal": True}, {"window": (3, 1)}, {"dropout_p": 0.5}, {"softcap": 2.0}):
                with self.subTest(q=q, k=k, settings=settings):
                    tensors = randn(q, k, k)
                    out = self.check(lambda *t: attend(*t, **settings), *tensors)
                    self.assertEqual(out.shape, q)
                    out, lse = attend(*tensors, return_lse=True, **settings)
                    self.assertEqual((lse.shape, lse.dtype), ((q[0], q[2], q[1]), torch.float32))
                    self.assertTrue(torch.all(lse == -torch.inf))
                    given = torch.ones(q, dtype=torch.float16)
                    self.assertIs(attend(*tensors, out=given, **settings), given)
                    self.assertEqual(given.count_nonzero(), 0)
                    self.check(lambda *t: torch.ops.fa2.attention(*t)[0], *tensors)
                    made = host.attention_backward(out, *tensors, out, lse)
                    self.assertEqual([(tensor.shape, int(tensor.count_nonzero())) for tensor in made],
                                     [(tensor.shape, 0) for tensor in tensors])

    def test_packed_tensors(self):
        for shape in ((0, 5, 3, 2, 16), (2, 0, 3, 2, 16)):
            for deterministic in (False, True):
                self.check(lambda qkv: fa2_attn.torch.attention_packed(qkv, deterministic=deterministic), *randn(shape))
        for q, k in self.SHAPES:
            self.check(fa2_attn.torch.attention_packed, *randn(q, (*k[:2], 2, *k[2:])))

    def test_sdpa(self):
        for q, k in self.SHAPES:
            shapes = [(b, h, s, d) for b, s, h, d in (q, k, k)]
            for causal in (False, True):
                for more in ({}, {"attn_mask": torch.zeros((q[1], k[1]), dtype=torch.bool)}):
                    if causal and more:
                        continue
                    with self.subTest(q=q, k=k, causal=causal, mask=bool(more)):
                        tensors = randn(*shapes)
                        out = on_device(lambda: self.check(
                            lambda *t: fa2_attn.torch.sdpa(*t, is_causal=causal, **more), *tensors))
                        wanted = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=causal)
                        self.assertEqual((out.shape, out.dtype), (wanted.shape, wanted.dtype))

    def test_flash_functions(self):
        for q, k in self.SHAPES:
            for more in ({}, {"deterministic": True}, {"dropout_p": 0.5}, {"causal": True, "alibi_slopes": torch.ones(2)}):
                with self.subTest(q=q, k=k, more=more):
                    for width in (16, 12):
                        tensors = randn((*q[:3], width), *2 * [(*k[:3], width)])
                        self.check(lambda *t: flash_attn.flash_attn_func(*t, **more), *tensors)
                        self.check(lambda q, k, v: flash_attn.flash_attn_kvpacked_func(q, torch.stack((k, v), 2), **more),
                                   *tensors)
                    out, lse, weights = flash_attn.flash_attn_func(*tensors, return_attn_probs=True, **more)
                    self.assertEqual(lse.shape, (q[0], q[2], q[1]))
                    self.assertTrue(torch.all(lse == torch.inf))  # flash-attn's, for rows that see no key
                    if "dropout_p" in more:
                        self.assertEqual((weights.shape, int(weights.count_nonzero())),
                                         ((q[0], q[2], q[1] + -q[1] % 128, k[1] + -k[1] % 128), 0))
            self.assertEqual(flash_attn.flash_attn_with_kvcache(*randn(q, k, k)).count_nonzero(), 0)
        self.check(lambda qkv: flash_attn.flash_attn_qkvpacked_func(qkv), *randn((2, 0, 3, 2, 16)))

    def test_packed_sequences(self):
        def starts(*values):
            return torch.tensor(values, dtype=torch.int32)

        for rows, keys, cu_q, cu_k, longest in ((0, 0, starts(0, 0, 0), starts(0, 0, 0), (0, 0)),
                                                (0, 6, starts(0, 0, 0), starts(0, 2, 6), (0, 4)),
                                                (6, 0, starts(0, 2, 6), starts(0, 0, 0), (4, 0)),
                                                (0, 0, starts(0), starts(0), (0, 0))):
            for more in ({}, {"deterministic": True}, {"dropout_p": 0.5}):
                with self.subTest(rows=rows, keys=keys, sequences=len(cu_q) - 1, more=more):
                    tensors = randn((rows, 2, 16), *2 * [(keys, 2, 16)])
                    self.check(lambda *t: flash_attn.flash_attn_varlen_func(*t, cu_q, cu_k, *longest, **more), *tensors)
                    self.check(lambda q, kv: flash_attn.flash_attn_varlen_kvpacked_func(q, kv, cu_q, cu_k, *longest, **more),
                               tensors[0], torch.stack(tensors[1:], 1))
                    made = flash_attn.flash_attn_varlen_func(*tensors, cu_q, cu_k, *longest, return_attn_probs=True, **more)
                    self.assertEqual(made[1].shape, (2, rows))
        self.check(lambda qkv: flash_attn.flash_attn_varlen_qkvpacked_func(qkv, starts(0, 0), 0), *randn((0, 3, 2, 16)))

    def test_padding(self):
        """A batch without a token goes through flash_attn.bert_padding and back."""
        hidden, mask = torch.ones((2, 4, 8)), torch.zeros((2, 4), dtype=torch.int64)
        for shape in ((2, 4), (0, 4)):
            rows, indices, starts, longest, used = fa2_attn.flash_attn.bert_padding.unpad_input(hidden[:shape[0]], mask[:shape[0]])
            self.assertEqual((rows.shape, starts.tolist(), longest), ((0, 8), [0] * (shape[0] + 1), 0))
            self.assertEqual(fa2_attn.flash_attn.bert_padding.pad_input(rows, indices, *shape).shape, (*shape, 8))
        lengths = fa2_attn.flash_attn.bert_padding.unpad_input_for_concatenated_sequences(hidden, mask)
        self.assertEqual((lengths[0].shape, lengths[2].tolist(), lengths[3]), ((0, 8), [0], 0))

    def test_compiled(self):
        for q, k in self.SHAPES:
            def function(q, k, v):
                return flash_attn.flash_attn_func(q, k, v, causal=True)

            torch.compiler.reset()
            self.check(torch.compile(function, backend="aot_eager", fullgraph=True), *randn(q, k, k))

    def test_longest_is_missing(self):
        """Which is not the same as 0, whoever looks on."""
        q, starts = torch.zeros((0, 2, 16), dtype=torch.float16), torch.tensor([0, 0], dtype=torch.int32)
        given = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "max_seqlen_q": 0}
        for leaf in (q, q.clone().requires_grad_()):
            for function in (attend, fa2_attn.torch.attention_packed):
                with self.assertRaisesRegex(ValueError, "max_seqlen_q and max_seqlen_k must be given beside"):
                    function(leaf, leaf, leaf, **given)
        with FakeTensorMode() as mode, self.assertRaisesRegex(ValueError, "max_seqlen_q and max_seqlen_k must be given"):
            fake = mode.from_tensor(q)
            fa2.attention(fake, fake, fake, **{**given, "cu_seqlens_q": mode.from_tensor(starts)})


class Sdpa(OnHost):
    """The arguments of PyTorch's scaled_dot_product_attention: outputs and gradients are the same."""

    def same(self, *tensors, most=2e-2, **settings):
        wanted = gradients(lambda *t: torch.nn.functional.scaled_dot_product_attention(*t, **settings), *tensors)
        # leaves lie as the tensors do
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        self.assertEqual([leaf.stride() for leaf in leaves], [tensor.stride() for tensor in tensors])
        got = on_device(lambda: gradients(lambda *t: fa2_attn.torch.sdpa(*t, **settings), *tensors))
        with torch.no_grad():
            alone = on_device(lambda: fa2_attn.torch.sdpa(*tensors, **settings))
        self.assertTrue(torch.equal(alone, got[0]))
        for a, b in zip(got, wanted):
            self.assertEqual((a.shape, a.dtype), (b.shape, b.dtype))
            self.assert_close(a, b, most)

    def test_unaligned(self):
        for offset in (1, 4, 7):
            whole = randn((3 * 2 * 2 * 20 * 16 + 8,))[0]
            q, k, v = whole[offset:offset + 3 * 1280].view(3, 2, 2, 20, 16)
            self.same(q, k, v)
            self.same(q, k, v, is_causal=True)

    def test_strides(self):
        odd = randn((2, 2, 20, 18))[0][..., :16]
        strided = randn((2, 2, 20, 32))[0][..., ::2]
        transposed = randn((2, 2, 16, 20))[0].transpose(-1, -2)
        plain = randn((2, 2, 20, 16))[0]
        for tensors in ((odd, plain, plain), (plain, odd, strided), (transposed, transposed, strided), (strided, plain, odd),
                        3 * (plain[:, :, :1].expand(-1, -1, 20, -1),)):
            for settings in ({}, {"is_causal": True}, {"attn_mask": randn((20, 40))[0][:, ::2]}):
                self.same(*tensors, **settings)

    def test_broadcasting(self):
        for shapes in (((3, 2, 20, 16), (1, 2, 30, 16), (1, 2, 30, 16)), ((1, 2, 20, 16), (3, 2, 30, 16), (3, 2, 30, 16)),
                       ((3, 2, 20, 16), (3, 1, 30, 16), (3, 1, 30, 16)), ((3, 2, 20, 16), (2, 30, 16), (30, 16)),
                       ((20, 16), (3, 2, 30, 16), (2, 30, 16)), ((3, 2, 20, 16), (1, 2, 30, 16), (3, 1, 30, 16)),
                       ((3, 1, 20, 16), (1, 2, 30, 16), (1, 1, 30, 16)), ((2, 3, 2, 20, 16), (3, 1, 30, 16), (2, 1, 2, 30, 16)),
                       ((3, 20, 16), (1, 30, 16), (30, 16)), ((20, 16), (30, 16), (30, 12)), ((20, 12), (30, 12), (30, 12))):
            for settings in ({}, {"is_causal": True}):
                with self.subTest(shapes=shapes, settings=settings):
                    self.same(*randn(*shapes), most=4e-2, **settings)
        for shapes in (((3, 4, 20, 16), (1, 2, 30, 16), (1, 2, 30, 16)), ((3, 4, 20, 16), (3, 2, 30, 16), (3, 4, 30, 16))):
            self.same(*randn(*shapes), most=4e-2, enable_gqa=True)

    def test_masks(self):
        for shapes, masks in ((((3, 2, 20, 16), (1, 2, 30, 16)), ((20, 30), (30,), (2, 1, 30), (3, 1, 1, 30), (20, 1))),
                              (((3, 20, 16), (3, 30, 16)), ((20, 30), (3, 20, 30), (1, 1, 30))),
                              (((20, 16), (30, 16)), ((20, 30), (20, 1))),
                              (((2, 3, 2, 20, 16), (3, 2, 30, 16)), ((20, 30), (2, 1, 30), (2, 1, 2, 20, 30)))):
            for mask in masks:
                with self.subTest(shapes=shapes, mask=mask):
                    self.same(*randn(shapes[0], *2 * [shapes[1]]), attn_mask=randn(mask)[0], most=4e-2)
                    seen = torch.rand(mask) < 0.8
                    seen[..., 0] = True
                    self.same(*randn(shapes[0], *2 * [shapes[1]]), attn_mask=seen, most=4e-2)

    def test_replaced(self):
        """In PyTorch's place everything that PyTorch takes goes through, and what it refuses it refuses itself."""
        own = torch.nn.functional.scaled_dot_product_attention
        q, k, wide, double, one = randn((2, 2, 20, 16), (2, 2, 30, 16), (1, 1, 4, 584), (2, 2, 20, 16), (16,))
        wide, double = wide.float(), double.double()

        class Marked(torch.Tensor):
            pass

        class Foreign:
            """No tensor, but PyTorch asks it."""
            @classmethod
            def __torch_function__(cls, function, types, arguments=(), keywords=None):
                return "foreign"

        cases = [((q, k, k), {}), ((wide, wide, wide), {}), ((double, double, double), {"is_causal": True}),
                 ((q, k, k), {"scale": 0.0}), ((q, k, k), {"scale": -1.0}), ((q, k, k), {"dropout_p": 1.0}),
                 ((q, k, k, torch.ones((20, 30), dtype=torch.bool)), {}), ((q, k, k, None, 0.0, True), {}),
                 ((q.as_subclass(Marked), k, k), {}), ((Foreign(), k, k), {})]
        wrong = [((q, k, k), {"dropout_p": None}), ((q, k, k), {"is_causal": None}), ((q, k), {}), ((q, k, k), {"casual": True}),
                 ((one, k, k), {}), ((q, k, k), {"scale": "x"}), ((q, k.double(), k), {}),
                 ((q, k, k), {"attn_mask": torch.ones((3, 20, 30))}), ((q, k, k), {"attn_mask": "x"}), ((1, 2, 3), {})]
        with warnings.catch_warnings(), fa2_attn.torch.replace_sdpa():
            warnings.simplefilter("ignore")
            patched = torch.nn.functional.scaled_dot_product_attention
            self.assertIsNot(patched, own)
            for mode in (lambda function: function(), on_device):
                for arguments, keywords in cases:
                    with self.subTest(arguments=[getattr(x, "shape", x) for x in arguments], **keywords):
                        wanted, got = (mode(lambda: function(*arguments, **keywords)) for function in (own, patched))
                        if isinstance(wanted, str):
                            self.assertEqual(got, wanted)
                        else:
                            self.assertIs(type(got), type(wanted))
                            self.assert_close(got.nan_to_num(), wanted.nan_to_num(), 2e-2)
                for arguments, keywords in wrong:
                    with self.subTest(arguments=[getattr(x, "shape", x) for x in arguments], **keywords):
                        with self.assertRaises(Exception) as wanted:
                            own(*arguments, **keywords)
                        with self.assertRaises(type(wanted.exception)) as got:
                            mode(lambda: patched(*arguments, **keywords))
                        self.assertEqual(str(got.exception), str(wanted.exception))

    def test_replaced_in_a_compiled_function(self):
        """The compiler sees why no kernel serves a call, before the graph runs."""
        def function(*t):
            return torch.nn.functional.scaled_dot_product_attention(*t, is_causal=True)

        for tensor in (randn((1, 2, 20, 16))[0].float(), randn((1, 1, 4, 584))[0], randn((1, 2, 20, 12))[0].double()):
            for leaf in (tensor, tensor.clone().requires_grad_()):
                torch.compiler.reset()
                with warnings.catch_warnings(), fa2_attn.torch.replace_sdpa():
                    warnings.simplefilter("ignore")
                    got = on_device(lambda: torch.compile(function, backend="aot_eager", fullgraph=True)(*3 * [leaf]))
                self.assert_close(got.detach(), function(*3 * [leaf]).detach(), 2e-2)

    def test_refusals(self):
        """fa2 refuses what PyTorch refuses."""
        for shapes in (((3, 2, 20, 16), (2, 2, 30, 16), (2, 2, 30, 16)), ((3, 4, 20, 16), (3, 2, 30, 16), (3, 2, 30, 16)),
                       ((16,), (30, 16), (30, 16))):
            with self.assertRaises(Exception):
                torch.nn.functional.scaled_dot_product_attention(*randn(*shapes))
            with self.assertRaises((ValueError, RuntimeError, NotImplementedError)):
                on_device(lambda: fa2_attn.torch.sdpa(*randn(*shapes)))


class Operations(OnHost):
    def test_plain_calls_go_the_short_way(self):
        """Every function's plain calls have the short path's node of autograd. Calls with a feature do not."""
        q, kv, qkv = (tensor.requires_grad_() for tensor in randn((1, 12, 2, 16), (1, 12, 2, 2, 16), (1, 12, 3, 2, 16)))
        k, v = kv.unbind(2)
        heads = [tensor.transpose(1, 2) for tensor in (q, k, v)]
        for out in (fa2.attention(q, k, v, dropout_p=0.0), flash_attn.flash_attn_func(q, k, v, causal=True),
                    flash_attn.flash_attn_kvpacked_func(q, kv), flash_attn.flash_attn_qkvpacked_func(qkv, deterministic=True),
                    fa2.attention(*heads, layout="bhsd", softcap=2.0), fa2_attn.torch.attention_packed(qkv, causal=True)):
            self.assertEqual(type(out.grad_fn).__name__, "_PlainBackward")
        slopes = torch.ones(2)
        self.assertEqual(type(flash_attn.flash_attn_func(q, k, v, alibi_slopes=slopes).grad_fn).__name__, "_AttentionBackward")

    def test_a_default_device_does_not_watch(self):
        """It is the only function mode that changes nothing here, so calls do not become operations."""
        q, k, v = (tensor.requires_grad_() for tensor in randn(*3 * [(1, 12, 2, 16)]))
        seen = []

        class Watching(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, function, types, arguments=(), keywords=None):
                seen.append(function)
                return function(*arguments, **keywords or {})

        with torch.device("cpu"):
            self.assertEqual(type(fa2.attention(q, k, v).grad_fn).__name__, "_PlainBackward")
            with Watching():
                out = fa2.attention(q, k, v)
        self.assertNotEqual(type(out.grad_fn).__name__, "_PlainBackward")
        self.assertIn("fa2.attention", " ".join(map(str, seen)))

    def test_second_derivatives(self):
        """Refused when they are asked for, by all ways; the first ones are there."""
        q, k, v, qkv = randn(*3 * [(1, 12, 2, 16)], (1, 12, 3, 2, 16))
        ways = (lambda q: fa2.attention(q, k, v, causal=True),
                lambda q: fa2.attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), layout="bhsd"),
                lambda q: fa2.attention(q, k, v, sinks=torch.zeros(2)), lambda q: torch.ops.fa2.attention(q, k, v)[0],
                lambda qkv: fa2_attn.torch.attention_packed(qkv, deterministic=True))
        for way in ways:
            leaf = (qkv if way is ways[-1] else q).detach().requires_grad_()
            wanted, = torch.autograd.grad(way(leaf).float().square().sum(), leaf)
            first, = torch.autograd.grad(way(leaf).float().square().sum(), leaf, create_graph=True)
            self.assert_close(first.detach(), wanted)
            with self.assertRaisesRegex(NotImplementedError, "no second derivatives"):
                first.float().square().sum().backward()

    def test_nodes_of_the_extension(self):
        """The engine calls its apply, which for tensors on the host refuses three tensors and hands over packed
        ones."""
        host._Node.apply = host._apply
        q, k, v, qkv, kv = randn(*3 * [(1, 12, 2, 16)], (1, 12, 3, 2, 16), (1, 12, 2, 2, 16))

        def plain():
            leaf = q.clone().requires_grad_()
            shifted = leaf + 0
            return leaf, shifted, fa2.attention(shifted, k, v, causal=True)

        for _ in range(3):  # an exception ends the engine's work, and is what it was
            leaf, shifted, out = plain()
            self.assertEqual(type(out.grad_fn).__name__, "_PlainBackward")
            with self.assertRaisesRegex(ValueError, "^q is not on a CUDA device"):
                out.sum().backward()
            self.assertIsNone(leaf.grad)
        gone = weakref.ref(shifted)
        del leaf, shifted, out
        gc.collect()
        self.assertIsNone(gone())
        for changed in (1, 2):  # q; what was given back, which is saved, too
            made = plain()
            with torch.no_grad():
                made[changed].mul_(2)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                made[2].sum().backward()

        def packed(*tensors):
            return fa2_attn.torch.attention_packed(*tensors, causal=True, deterministic=True)

        wanted = gradients(packed, q, kv)
        for needed in ((True, False), (False, True)):  # of only some
            leaves = [tensor.clone().requires_grad_(is_needed) for tensor, is_needed in zip((q, kv), needed)]
            seen, out = [], packed(*leaves)
            leaf = leaves[needed.index(True)]
            leaf.register_hook(lambda gradient: seen.append(1) or gradient * 2)
            out.grad_fn.register_prehook(lambda given: seen.append(2))
            out.grad_fn.register_hook(lambda made, given: seen.append([gradient is not None for gradient in made]))
            out.backward(torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(out.dtype))
            self.assertEqual(seen, [2, [*needed], 1])
            self.assertTrue(torch.equal(leaf.grad, 2 * wanted[1 + needed.index(True)]))
            self.assertEqual([one.grad is None for one in leaves], [not one for one in needed])
            with self.assertRaisesRegex(RuntimeError, "a second time"):
                out.sum().backward()
        leaf = qkv.clone().requires_grad_()
        first, = torch.autograd.grad(packed(leaf).float().square().sum(), leaf, create_graph=True)
        with self.assertRaisesRegex(NotImplementedError, "no second derivatives"):
            first.float().sum().backward()
        leaf, _, out = plain()
        first, = torch.autograd.grad(out.float().square().sum(), leaf, create_graph=True)  # the operation's, also of three
        with self.assertRaisesRegex(NotImplementedError, "no second derivatives"):
            first.float().sum().backward()

    def test_opcheck(self):
        q, k, v = randn((2, 12, 4, 16), *2 * [(2, 20, 2, 16)])
        seed, lengths = torch.tensor([3]), torch.tensor([20, 5], dtype=torch.int32)
        table = torch.tensor([[1, 0], [0, 1]], dtype=torch.int32)
        pages = randn(*2 * [(2, 16, 2, 16)])
        starts = torch.tensor([0, 5, 12], dtype=torch.int32)
        dropout = {"dropout_p": 0.25, "dropout_seed": seed}
        varlen = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "max_seqlen_q": 7, "max_seqlen_k": 7}
        for tensors, settings in (((q, k, v), {}), ((q, k, v), {"causal": True, **dropout}),
                                  ((q, k, v), {"seqused_k": lengths}),
                                  ((q, *pages), {"block_table": table, "seqused_k": lengths}),
                                  ((q[0], k[0, :12], v[0, :12]), varlen)):
            with self.subTest(sorted(settings)):
                torch.library.opcheck(torch.ops.fa2.attention.default, tensors, settings)
        torch.library.opcheck(torch.ops.fa2.attention.default, (q, k, v[..., :8]))
        new, angles = randn(*2 * [(2, 3, 2, 16)]), randn(*2 * [(20, 8)])
        torch.library.opcheck(torch.ops.fa2.attention_append.default, (q, k.clone(), v.clone(), *new, *angles, True),
                              {"seqused_k": torch.tensor([5, 17], dtype=torch.int32)})
        rows, = randn((12, 3, 2, 16))
        torch.library.opcheck(torch.ops.fa2.attention_packed.default, ([rows.requires_grad_()],),
                              {**varlen, "deterministic": True})
        for tensor in (q, k, v):
            tensor.requires_grad_()
        torch.library.opcheck(torch.ops.fa2.attention.default, (q, k, v), {**dropout, "deterministic": True})
        qkv, = randn((2, 12, 3, 2, 16))
        torch.library.opcheck(torch.ops.fa2.attention_packed.default, ([qkv.requires_grad_()],),
                              {**dropout, "deterministic": True})
        tensors = [tensor.detach() for tensor in (q, k, v)]
        out, lse = torch.ops.fa2.attention(*tensors, **dropout)
        torch.library.opcheck(torch.ops.fa2.attention_backward.default,
                              (torch.ones_like(out), tensors, out, lse, [True, False, True, False, False]),
                              {**dropout, "deterministic": True})


if __name__ == "__main__":
    unittest.main()
