"""fa2_attn.flash_attn. Without a GPU: signatures and what becomes of the arguments. With one: numbers."""

import inspect
import subprocess
import sys
import unittest

try:
    import torch
except ImportError:
    torch, HAS_GPU = None, False
else:  # whatever cannot be imported now is a failure, and no reason to skip
    from torch._subclasses.fake_tensor import FakeTensorMode
    from fa2_attn import _dispatch, flash_attn
    from test_torch import HAS_GPU
    from test_tracing import calls_of

SETTINGS = ["dropout_p", "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes", "deterministic",
            "return_attn_probs"]
LENGTHS = ["cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"]
SIGNATURES = {
    "flash_attn_func": ["q", "k", "v", *SETTINGS],
    "flash_attn_kvpacked_func": ["q", "kv", *SETTINGS],
    "flash_attn_qkvpacked_func": ["qkv", *SETTINGS],
    "flash_attn_varlen_func": ["q", "k", "v", *LENGTHS, *SETTINGS, "block_table"],
    "flash_attn_varlen_kvpacked_func": ["q", "kv", *LENGTHS, *SETTINGS],
    "flash_attn_varlen_qkvpacked_func": ["qkv", "cu_seqlens", "max_seqlen", *SETTINGS],
    "flash_attn_with_kvcache": ["q", "k_cache", "v_cache", "k", "v", "rotary_cos", "rotary_sin", "cache_seqlens",
                                "cache_batch_idx", "cache_leftpad", "block_table", "softmax_scale", "causal",
                                "window_size", "softcap", "rotary_interleaved", "alibi_slopes", "num_splits",
                                "return_softmax_lse", "k_scale", "v_scale"],
}
# Forward and backward alone: the names, and how many of the last have which defaults.
SCALARS = ["dropout_p", "softmax_scale", "causal", "window_size_left", "window_size_right", "softcap", "alibi_slopes"]
GIVEN = ["dout", "q", "k", "v", "out", "softmax_lse", "dq", "dk", "dv"]
STEPS = {
    "_flash_attn_forward": (["q", "k", "v", *SCALARS, "return_softmax"], None),
    "_flash_attn_varlen_forward": (["q", "k", "v", *LENGTHS, *SCALARS, "return_softmax", "block_table", "leftpad_k",
                                    "seqused_k", "zero_tensors"], (-1, -1, 0.0, None, False, None, None, None, False)),
    "_flash_attn_backward": ([*GIVEN, *SCALARS, "deterministic", "rng_state"], (None,)),
    "_flash_attn_varlen_backward": ([*GIVEN, *LENGTHS, *SCALARS, "deterministic", "rng_state", "zero_tensors"],
                                    (None, False)),
}


def python(program):
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True, check=False)
    return done.returncode, done.stdout


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Interface(unittest.TestCase):
    def test_signatures(self):
        for name, wanted in SIGNATURES.items():
            self.assertEqual(list(inspect.signature(getattr(flash_attn, name)).parameters), wanted)
        defaults = {name: parameter.default for name, parameter in
                    inspect.signature(flash_attn.flash_attn_func).parameters.items() if name in SETTINGS}
        self.assertEqual(list(defaults.values()), [0.0, None, False, (-1, -1), 0.0, None, False, False])

    def test_signatures_of_steps(self):
        """As ring-flash-attn asks for them."""
        for name, (names, defaults) in STEPS.items():
            function = getattr(flash_attn, name)
            found = inspect.getfullargspec(function)
            self.assertTrue(inspect.isfunction(function))
            self.assertEqual((found.args, found.defaults), (names, defaults))

    def test_what_is_called(self):
        """Packed tensors as they are, the scale of the width that was given, windows and slopes."""
        def settings(function, *shapes):
            return [(name, args[-len(args) + args.index(next(a for a in args if not hasattr(a, "op") and not isinstance(
                a, list))):]) for name, args in calls_of(function, *shapes) if name.startswith("fa2.attention")]

        found = settings(lambda q, k: flash_attn.flash_attn_func(q, k, k, causal=True), (1, 9, 2, 64), (1, 12, 1, 64))
        self.assertEqual(found, [("fa2.attention.default", (True, -1, -1, 0.0, 0.125))])
        found = settings(lambda qkv: flash_attn.flash_attn_qkvpacked_func(qkv, 0.0, 0.5, False, (3, 4)), (1, 9, 3, 2, 64))
        self.assertEqual(found, [("fa2.attention_packed.default", (False, 3, 4, 0.0, 0.5))])
        names = [name for name, _ in calls_of(lambda q, kv: flash_attn.flash_attn_kvpacked_func(q, kv), (1, 9, 2, 20),
                                              (1, 9, 2, 2, 20))]
        self.assertEqual(names.count("aten.constant_pad_nd.default"), 2)
        self.assertIn("aten.slice.Tensor", names)

    def test_odd_strides_are_copied(self):
        with FakeTensorMode():
            wide = torch.empty((2, 8, 3, 40), dtype=torch.float16, device="cuda")
            self.assertIs(_dispatch.readable(wide, 1), wide)
            self.assertEqual(_dispatch.readable(wide[..., ::2], 1).stride(-1), 1)
            self.assertEqual(_dispatch.readable(wide[..., 4:20], 1).storage_offset(), 0)
            self.assertIsNot(_dispatch.readable(wide[..., 4:20], 1), wide)
            fp32 = wide.float()[..., 4:20]  # 16 bytes are four elements
            self.assertIs(_dispatch.readable(fp32, 1), fp32)

    def test_wrong_caches(self):
        with FakeTensorMode():
            q = torch.empty((1, 8, 2, 64), dtype=torch.float16, device="cuda")
            with self.assertRaisesRegex(ValueError, "give v and cache_seqlens"):
                flash_attn.flash_attn_with_kvcache(q, q, q, k=q)
            with self.assertRaisesRegex(ValueError, "room for 8 keys; 5 and 8"):
                flash_attn.flash_attn_with_kvcache(q, q, q, k=q, v=q, cache_seqlens=5)

    def test_padding(self):
        """There and back, with gradients."""
        padding = flash_attn.bert_padding
        hidden = torch.arange(2 * 4 * 3.0).reshape(2, 4, 3).requires_grad_()
        mask, unused = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 1]]), torch.tensor([[0, 0, 1, 0], [0, 0, 0, 0]])
        rows, indices, starts, longest, used = padding.unpad_input(hidden, mask)
        self.assertTrue(torch.equal(rows, hidden[mask.bool()]))
        self.assertEqual((indices.tolist(), starts.tolist(), longest, used.tolist()), ([0, 1, 5, 6, 7], [0, 2, 5], 3, [2, 3]))
        self.assertEqual((starts.dtype, used.dtype), (torch.int32, torch.int32))
        padded = padding.pad_input(rows, indices, 2, 4)
        self.assertTrue(torch.equal(padded, hidden * mask[..., None]))
        weights = torch.randn(2, 4, 3)
        gradient, = torch.autograd.grad((padded * weights).sum(), hidden)
        self.assertTrue(torch.equal(gradient, weights * mask[..., None]))
        rows, indices, starts, longest, used = padding.unpad_input(hidden, mask, unused)
        self.assertEqual((indices.tolist(), starts.tolist(), used.tolist()), ([0, 1, 2, 5, 6, 7], [0, 3, 6], [2, 3]))
        rows, indices, starts, longest = padding.unpad_input_for_concatenated_sequences(
            hidden, torch.tensor([[2, 1, 0, 0], [4, 0, 0, 0]]))
        self.assertEqual((indices.tolist(), starts.tolist(), longest), ([0, 1, 2, 4, 5, 6, 7], [0, 2, 3, 7], 4))
        taken, residual = padding.index_first_axis_residual(hidden.flatten(0, 1), indices)
        self.assertTrue(torch.equal(taken, rows) and not residual.requires_grad)
        self.assertTrue(torch.autograd.gradgradcheck(
            lambda x: padding.index_first_axis(x, indices) ** 3, hidden.detach().double().flatten(0, 1).requires_grad_()))

    def test_install(self):
        """In programs of their own: it changes what they can import."""
        status, said = python("import fa2_attn.flash_attn as own; own.install(); own.install()\n"
                              "import flash_attn, importlib.util\n"
                              "from flash_attn import flash_attn_func\n"
                              "from flash_attn.flash_attn_interface import flash_attn_with_kvcache\n"
                              "from flash_attn.flash_attn_interface import _flash_attn_forward\n"
                              "from flash_attn.flash_attn_interface import _flash_attn_varlen_backward\n"
                              "from flash_attn.flash_attn_interface import _wrapped_flash_attn_forward as wrapped\n"
                              "assert wrapped is _flash_attn_forward is own._flash_attn_forward\n"
                              "from flash_attn.bert_padding import pad_input, unpad_input\n"
                              "assert flash_attn_func is own.flash_attn_func and importlib.util.find_spec('flash_attn')\n"
                              "print(flash_attn.__version__)")
        self.assertEqual((status, said), (0, flash_attn.__version__ + "\n"))
        status, said = python("import sys, types; sys.modules['flash_attn'] = types.ModuleType('flash_attn')\n"
                              "import fa2_attn.flash_attn as own\n"
                              "try: own.install()\n"
                              "except RuntimeError as error: print(error)\n"
                              "own.install(replace=True)\n"
                              "import flash_attn; print(flash_attn.flash_attn_func is own.flash_attn_func)")
        self.assertEqual(status, 0)
        self.assertRegex(said, r"flash-attn is installed here.*replace=True\)\nTrue")


@unittest.skipUnless(HAS_GPU, "PyTorch has no GPU here")
class OnGpu(unittest.TestCase):
    def tensors(self, *shapes):
        generator = torch.Generator("cuda").manual_seed(1)
        return [torch.randn(shape, device="cuda", dtype=torch.float16, generator=generator) for shape in shapes]

    def reference(self, q, k, v, causal=False, slopes=None):
        """(out, lse) in fp64."""
        q, k, v = (tensor.double().transpose(1, 2) for tensor in (q, k, v))
        k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], 1) for tensor in (k, v))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        places = torch.arange(q.shape[2], device="cuda")[:, None] + k.shape[2] - q.shape[2]
        keys = torch.arange(k.shape[2], device="cuda")
        if slopes is not None:
            scores = scores - slopes[:, None, None].double() * (places - keys).abs()
        if causal:
            scores = scores.masked_fill(keys > places, -torch.inf)
        return (scores.softmax(-1).nan_to_num(0) @ v).transpose(1, 2), scores.logsumexp(-1)

    def assert_close(self, got, wanted, bound=3e-3):
        self.assertLess((got.double() - wanted).abs().max().item(), bound)

    def test_numbers(self):
        q, k, v = self.tensors((2, 50, 4, 72), *2 * [(2, 70, 2, 72)])
        for width in (72, 60):  # a view, which is padded
            tensors = [tensor[..., :width] for tensor in (q, k, v)]
            for settings in ({}, {"causal": True}, {"alibi_slopes": torch.tensor([0.5, 0.25, 0.1, 0.0], device="cuda")}):
                out, lse, probs = flash_attn.flash_attn_func(*tensors, return_attn_probs=True, **settings)
                wanted, wanted_lse = self.reference(*tensors, settings.get("causal", False), settings.get("alibi_slopes"))
                self.assert_close(out, wanted)
                self.assert_close(lse, wanted_lse)
                self.assertIsNone(probs)

    def test_rows_that_see_nothing(self):
        q, k = self.tensors((1, 20, 1, 64), (1, 5, 1, 64))
        out, lse, _ = flash_attn.flash_attn_func(q, k, k, causal=True, return_attn_probs=True)
        self.assertEqual(out[0, :15].abs().max().item(), 0)
        self.assertTrue(torch.isposinf(lse[0, 0, :15]).all() and torch.isfinite(lse[0, 0, 15:]).all())

    def test_packed_gradients(self):
        qkv, d_out = self.tensors((2, 60, 3, 2, 60), (2, 60, 2, 60))
        qkv.requires_grad_()
        got, = torch.autograd.grad(flash_attn.flash_attn_qkvpacked_func(qkv, causal=True, deterministic=True), qkv, d_out)
        leaves = [tensor.detach().contiguous().requires_grad_() for tensor in qkv.unbind(2)]
        wanted = torch.autograd.grad(flash_attn.flash_attn_func(*leaves, causal=True, deterministic=True), leaves, d_out)
        self.assertTrue(torch.equal(got, torch.stack(wanted, 2)))

    def test_forward_and_backward_alone(self):
        """They give the bits of autograd, with the same mask of dropout."""
        q, k, v, d_out = self.tensors((2, 50, 4, 72), *2 * [(2, 70, 2, 72)], (2, 50, 4, 72))
        leaves = [tensor.detach().requires_grad_() for tensor in (q, k, v)]
        torch.manual_seed(1)
        wanted = flash_attn.flash_attn_func(*leaves, 0.2, 0.1, True, deterministic=True)
        gradients = torch.autograd.grad(wanted, leaves, d_out)
        settings = (0.2, 0.1, True, -1, -1, 0.0, None)
        torch.manual_seed(1)
        out, lse, _, rng_state = flash_attn._flash_attn_forward(q, k, v, *settings, False)
        made = [torch.empty_like(tensor) for tensor in (q, k, v)]
        flash_attn._flash_attn_backward(d_out, q, k, v, out, lse, *made, *settings, True, rng_state)
        for got, exact in zip((out, *made), (wanted, *gradients)):
            self.assertTrue(torch.equal(got, exact))

    def test_cache(self):
        q, k, v, k_cache, v_cache = self.tensors((2, 3, 4, 64), *2 * [(2, 3, 2, 64)], *2 * [(2, 90, 2, 64)])
        out = flash_attn.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=40, causal=True)
        self.assertTrue(torch.equal(k_cache[:, 40:43], k) and torch.equal(v_cache[:, 40:43], v))
        self.assert_close(out, self.reference(q, k_cache[:, :43], v_cache[:, :43], True)[0])

    def test_cache_with_lengths_on_the_device(self):
        q, k, v, k_cache, v_cache = self.tensors((2, 2, 4, 64), *2 * [(2, 2, 2, 64)], *2 * [(2, 90, 2, 64)])
        lengths = torch.tensor([40, 7], dtype=torch.int32, device="cuda")
        angles = torch.outer(torch.arange(90.0), 1 / 100 ** torch.linspace(0, 1, 16)).cuda()
        cos, sin = angles.cos().half(), angles.sin().half()
        for interleaved in (True, False):
            caches = [cache.clone() for cache in (k_cache, v_cache)]
            out, lse = flash_attn.flash_attn_with_kvcache(
                q, *caches, k, v, rotary_cos=cos, rotary_sin=sin, cache_seqlens=lengths, causal=True,
                rotary_interleaved=interleaved, return_softmax_lse=True)
            for b, length in enumerate(lengths.tolist()):
                new = slice(length, length + 2)
                turned_q, turned_k = (self.turn(x[b:b + 1], cos[new], sin[new], interleaved) for x in (q, k))
                self.assert_close(caches[0][b:b + 1, length:length + 2], turned_k)
                self.assertTrue(torch.equal(caches[1][b, length:length + 2], v[b]))
                used = [cache[b:b + 1, :length + 2] for cache in caches]
                wanted, wanted_lse = self.reference(turned_q.half(), *used, True)
                self.assert_close(out[b:b + 1], wanted)
                self.assert_close(lse[b:b + 1], wanted_lse)

    def turn(self, x, cos, sin, interleaved):
        """By complex numbers; 32 of the dimensions."""
        x = x.double()
        pairs = x[..., :32].unflatten(-1, (16, 2) if interleaved else (2, 16))
        pairs = pairs if interleaved else pairs.transpose(-1, -2)
        turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.complex(
            cos.double(), sin.double())[:, None])
        turned = turned if interleaved else turned.transpose(-1, -2)
        return torch.cat((turned.flatten(-2), x[..., 32:]), -1)

    def test_cache_in_a_graph(self):
        """New keys and lengths that change between replays; the cache is written at each."""
        q, k, v, k_cache, v_cache = self.tensors((2, 1, 4, 64), *2 * [(2, 1, 2, 64)], *2 * [(2, 90, 2, 64)])
        lengths = torch.tensor([40, 7], dtype=torch.int32, device="cuda")
        angles = torch.outer(torch.arange(90.0), 1 / 100 ** torch.linspace(0, 1, 16)).cuda()
        settings = {"rotary_cos": angles.cos().half(), "rotary_sin": angles.sin().half(), "cache_seqlens": lengths,
                    "causal": True}

        def step(*caches):
            return flash_attn.flash_attn_with_kvcache(q, *caches, k, v, **settings)

        own = [cache.clone() for cache in (k_cache, v_cache)]
        step(*(cache.clone() for cache in own))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = step(*own)
        for _ in range(3):
            wanted = step(k_cache, v_cache)
            graph.replay()
            self.assertTrue(torch.equal(out, wanted))
            self.assertTrue(torch.equal(own[0], k_cache) and torch.equal(own[1], v_cache))
            lengths += 1
            q.add_(0.125)

    def test_compiled(self):
        q, k, v = self.tensors(*3 * [(1, 40, 2, 60)])

        def function(*tensors):
            return flash_attn.flash_attn_func(*tensors, causal=True)

        self.assertTrue(torch.equal(torch.compile(function, fullgraph=True)(q, k, v), function(q, k, v)))


if __name__ == "__main__":
    unittest.main()
