"""fa2_attn.torch on a GPU: numbers. What needs none is in test_tracing.py and test_host.py."""

import contextlib
import copy
import io
import pathlib
import unittest
import warnings

try:
    import torch
    import torch.nn.functional as F
    import torch.utils.checkpoint
    import fa2_attn.torch
    HAS_GPU = torch.cuda.is_available()
except ImportError:
    torch, HAS_GPU = None, False
import fa2_attn as fa2


@unittest.skipUnless(HAS_GPU, "PyTorch has no GPU here")
class OnGpu(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def tensors(self, *shapes, dtype=None):
        return [torch.randn(shape, device="cuda", dtype=dtype or torch.float16) for shape in shapes]

    def assert_right(self, out, q, k, v, **settings):
        """FlashAttention's rule, [B, H, S, D]."""
        exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), **settings)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            plain = F.scaled_dot_product_attention(q, k, v, **settings)
        bound = 2 * (plain.double() - exact).abs().max().item() + 1e-5
        self.assertLessEqual((out.double() - exact).abs().max().item(), bound)

    def test_numbers(self):
        for dtype in (torch.float16, torch.bfloat16):
            for heads_kv, length, keys, dim in ((8, 128, 128, 64), (2, 77, 300, 128), (8, 1, 1000, 64), (4, 50, 50, 60)):
                for causal in (False, True):
                    if causal and keys != length:
                        continue
                    q, k, v = self.tensors((2, 8, length, dim), *2 * [(2, heads_kv, keys, dim)], dtype=dtype)
                    settings = {"is_causal": causal, "enable_gqa": heads_kv != 8}
                    with self.subTest(dtype=dtype, heads_kv=heads_kv, length=length, dim=dim, causal=causal):
                        self.assert_right(fa2_attn.torch.sdpa(q, k, v, **settings), q, k, v, **settings)

    def test_masks(self):
        q, k, v = self.tensors((2, 4, 50, 64), *2 * [(2, 4, 70, 64)])
        hidden = torch.rand((2, 1, 50, 70), device="cuda") < 0.3
        for mask in (~hidden, (~hidden)[:, :, :1], torch.randn((50, 70), device="cuda").half(),
                     torch.randn((1, 4, 50, 1), device="cuda")):
            with self.subTest(mask.shape, dtype=mask.dtype):
                wide = mask if mask.dtype == torch.bool else mask.half()
                exact = F.scaled_dot_product_attention(
                    q.double(), k.double(), v.double(), attn_mask=wide if mask.dtype == torch.bool else mask.double())
                with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # others want masks of all keys
                    plain = F.scaled_dot_product_attention(q, k, v, attn_mask=wide)
                torch.cuda.synchronize()  # a fault before this is not ours
                bound = 2 * (plain.double() - exact).abs().max().item() + 1e-5
                out = fa2_attn.torch.sdpa(q, k, v, attn_mask=mask)
                self.assertLessEqual((out.double() - exact).abs().max().item(), bound)

    def test_readmes(self):
        """The lines that they begin with."""
        top = pathlib.Path(__file__).resolve().parents[2]
        for path, heading, wanted in (("runtime/python/README.md", "# fa2 for Python\n", r"^fwd_\w+ d=64 "),
                                      ("README.md", "## Use it from Python\n", "^$")):
            text = (top / path).read_text(encoding="utf-8").split(heading, 1)[1]
            lines = text.split("```python\n", 1)[1].split("```", 1)[0]
            names = {}
            with self.subTest(path), contextlib.redirect_stdout(io.StringIO()) as said:
                self.assertEqual(len(lines.splitlines()), 5)
                exec(lines, names)
                self.assertRegex(said.getvalue(), wanted)
                q, k, v = (names[name].detach() for name in "qkv")
                for name in "qkv":
                    self.assertTrue(names[name].grad.isfinite().all() and names[name].grad.any())
                self.assert_right(names["out"].detach(), q, k, v, is_causal=True)

    def test_a_diffusion_block(self):
        """As a UNet has it: 40 columns, self-attention over pixels, cross-attention to 77 tokens, through
        replace_sdpa."""
        class Block(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.query, self.out = torch.nn.Linear(160, 160), torch.nn.Linear(160, 160)
                self.kv_text, self.kv_self = torch.nn.Linear(96, 320), torch.nn.Linear(160, 320)

            def attend(self, x, kv):
                q, k, v = (t.unflatten(-1, (4, 40)).transpose(1, 2) for t in (self.query(x), *kv.chunk(2, -1)))
                return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))

            def forward(self, x, text):
                x = self.attend(x, self.kv_self(x))
                return self.attend(x, self.kv_text(text))

        block = Block().cuda()
        x, text = self.tensors((2, 256, 160), (2, 77, 96), dtype=torch.float32)

        def answers(dtype):
            model = copy.deepcopy(block).to(dtype)
            out = model(x.to(dtype), text.to(dtype))
            out.backward(torch.linspace(-1, 1, out.numel(), device="cuda").reshape(out.shape).to(dtype))
            return [out.detach().double(), *(p.grad.double() for p in model.parameters())]

        for dtype in (torch.float16, torch.bfloat16):
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                block.to(dtype).double()  # the same rounded weights for all
                exact, plain = answers(torch.float64), answers(dtype)
            fa2_attn.torch._said.clear()
            with fa2_attn.torch.replace_sdpa():
                got = answers(dtype)
            self.assertEqual(fa2_attn.torch._said, set())
            for a, b, c in zip(got, plain, exact):
                self.assertLessEqual((a - c).abs().max().item(), 3 * (b - c).abs().max().item() + 1e-5)

    def test_gradients_of_sinks(self):
        q, k, v, d_out = self.tensors((2, 50, 4, 64), *2 * [(2, 70, 2, 64)], (2, 50, 4, 64))
        sinks = torch.tensor([1.0, -0.5, 0.0, 2.0], device="cuda", requires_grad=True)
        q.requires_grad_()

        def exact(q, sinks):
            heads = [t.double().transpose(1, 2) for t in (q, k, v)]
            keys, values = (t.repeat_interleave(2, 1) for t in heads[1:])
            scores = heads[0] @ keys.transpose(-1, -2) / 8
            column = sinks.double()[None, :, None, None].expand(2, 4, 50, 1)
            return (torch.cat((scores, column), -1).softmax(-1)[..., :-1] @ values).transpose(1, 2)

        wanted = torch.autograd.grad(exact(q, sinks), (q, sinks), d_out.double())
        for function in (lambda: fa2.attention(q, k, v, sinks=sinks),
                         lambda: torch.ops.fa2.attention(q, k, v, sinks=sinks)[0],
                         lambda: fa2_attn.torch.attention_packed(q, torch.stack((k, v), 2), sinks=sinks)):
            dq, dsinks = torch.autograd.grad(function(), (q, sinks), d_out)
            self.assertLess((dq - wanted[0]).abs().max().item(), 5e-3)
            self.assertLess((dsinks - wanted[1]).abs().max().item(), 2e-2)
        only, = torch.autograd.grad(fa2.attention(q.detach(), k, v, sinks=sinks), sinks, d_out)
        self.assertLess((only - wanted[1]).abs().max().item(), 2e-2)

    def test_gradients_of_a_bias(self):
        q, k, v, d_out = self.tensors((2, 50, 4, 64), *2 * [(2, 70, 2, 64)], (2, 50, 4, 64))
        bias = torch.linspace(-2, 2, 2 * 50 * 70, device="cuda").reshape(2, 1, 50, 70).to(q.dtype).requires_grad_()
        q.requires_grad_()

        def exact(q, bias):
            heads = [t.double().transpose(1, 2) for t in (q, k, v)]
            keys, values = (t.repeat_interleave(2, 1) for t in heads[1:])
            return ((heads[0] @ keys.transpose(-1, -2) / 8 + bias).softmax(-1) @ values).transpose(1, 2)

        wanted = torch.autograd.grad(exact(q, bias.double()), (q, bias), d_out.double())
        for function in (lambda: fa2.attention(q, k, v, bias=bias), lambda: torch.ops.fa2.attention(q, k, v, bias=bias)[0],
                         lambda: fa2_attn.torch.sdpa(*(t.transpose(1, 2) for t in (q, k, v)), attn_mask=bias,
                                                enable_gqa=True).transpose(1, 2),
                         lambda: fa2_attn.torch.attention_packed(q, torch.stack((k, v), 2), bias=bias)):
            dq, dbias = torch.autograd.grad(function(), (q, bias), d_out)
            self.assertEqual((dbias.shape, dbias.dtype), (bias.shape, bias.dtype))
            self.assertLess((dq - wanted[0]).abs().max().item(), 5e-3)
            self.assertLess((dbias - wanted[1]).abs().max().item(), 2e-2)
        only, = torch.autograd.grad(fa2.attention(q.detach(), k, v, bias=bias), bias, d_out)
        self.assertLess((only - wanted[1]).abs().max().item(), 2e-2)

    def test_packed_views_and_layouts(self):
        qkv, = self.tensors((2, 100, 3, 4, 64))
        q, k, v = qkv.unbind(2)
        out, lse = fa2.attention(q, k, v, causal=True, return_lse=True)
        heads = [t.transpose(1, 2) for t in (q, k, v)]
        self.assert_right(out.transpose(1, 2), *heads, is_causal=True)
        self.assertTrue(torch.equal(fa2_attn.torch.sdpa(*heads, is_causal=True).transpose(1, 2), out))
        scores = (heads[0].float() @ heads[1].float().transpose(-1, -2)) / 8
        seen = torch.ones_like(scores, dtype=torch.bool).tril()
        self.assertLess((lse - scores.masked_fill(~seen, -torch.inf).logsumexp(-1)).abs().max().item(), 1e-3)

    def test_the_ways_are_equal(self):
        q, k, v = self.tensors(*3 * [(2, 4, 96, 64)])
        wanted = fa2_attn.torch.sdpa(q, k, v, is_causal=True)
        with fa2_attn.torch.replace_sdpa():
            replaced = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        compiled = torch.compile(lambda *t: fa2_attn.torch.sdpa(*t, is_causal=True), fullgraph=True)(q, k, v)
        operation = torch.ops.fa2.attention(*(t.transpose(1, 2) for t in (q, k, v)), True)[0].transpose(1, 2)
        for other in (replaced, compiled, operation, fa2.attention(q, k, v, causal=True, layout="bhsd")):
            self.assertTrue(torch.equal(other, wanted))

    def test_opcheck(self):
        q, k, v = self.tensors((2, 40, 4, 64), *2 * [(2, 60, 2, 64)])
        for arguments in ((), (True,), (False, -1, -1, 0.0, 0.2, True)):
            torch.library.opcheck(torch.ops.fa2.attention.default, (q, k, v, *arguments))
            for tensor in (q, k, v):
                tensor.requires_grad_(not tensor.requires_grad)
        kv, = self.tensors((2, 60, 2, 2, 64))
        qkv, = self.tensors((2, 40, 3, 4, 64))
        for tensors in ([q, kv.requires_grad_()], [qkv.requires_grad_()]):
            torch.library.opcheck(torch.ops.fa2.attention_packed.default, (tensors, True))
        tensors = [t.detach() for t in (q, k, v)]
        out, lse = fa2.attention(*tensors, return_lse=True)
        for wanted in ([True, True, True, False, False], [False, True, False, False, False]):
            torch.library.opcheck(torch.ops.fa2.attention_backward.default,
                                  (torch.randn_like(out), tensors, out, lse, wanted, False, -1, -1, 0.0, None, True))

    def test_graphs_and_streams(self):
        q, k, v = self.tensors(*3 * [(1, 4, 70, 64)])
        wanted = fa2_attn.torch.sdpa(q, k, v)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.assertTrue(torch.equal(fa2_attn.torch.sdpa(q, k, v), wanted))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = fa2_attn.torch.sdpa(q, k, v)
        q.mul_(0.5)
        graph.replay()
        self.assertTrue(torch.equal(out, fa2_attn.torch.sdpa(q, k, v)))
        other = torch.zeros((1, 4, 70, 200), device="cuda", dtype=torch.float16)
        with self.assertRaisesRegex(fa2.Error, "not prepared"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            fa2_attn.torch.sdpa(other, other, other)

    def test_dropout(self):
        """Of equal weights of unit vectors the output shows what was kept: each way draws, at each call and replay."""
        q = torch.zeros((2, 4, 128, 128), device="cuda", dtype=torch.float16)
        v = torch.eye(128, device="cuda", dtype=torch.float16).expand(2, 4, 128, 128).contiguous()

        def ours(q, v):
            return fa2_attn.torch.sdpa(q, q, v, dropout_p=0.25)

        graph = torch.cuda.CUDAGraph()
        ours(q, v)
        with torch.cuda.graph(graph):
            captured = ours(q, v)

        def replayed(q, v):
            graph.replay()
            return captured.clone()

        def trained(q, v):
            return ours(q.detach().requires_grad_(), v).detach()

        def cast(q, v):
            with torch.autocast("cuda", dtype=torch.float16):
                return ours(q.float(), v.float())

        for name, function in (("eager", ours), ("graph", replayed), ("autograd", trained), ("autocast", cast),
                               ("compiled", torch.compile(ours, fullgraph=True))):
            with self.subTest(name):
                one, other = function(q, v), function(q, v)
                for out in (one, other):
                    kept = out != 0
                    self.assertLess(abs(kept.float().mean().item() - 0.75), 0.01)
                    self.assertLess((out[kept] * 128 * 0.75 - 1).abs().max().item(), 2e-3)
                self.assertLess(abs((one == other).float().mean().item() - 0.625), 0.01)

    def test_dropout_is_drawn_again(self):
        """By checkpoints and by graphs of both passes."""
        tensors = self.tensors(*3 * [(2, 4, 96, 64)])

        def ours(*t):
            return fa2_attn.torch.sdpa(*t, is_causal=True, dropout_p=0.3)

        torch.use_deterministic_algorithms(True)
        try:
            torch.manual_seed(5)
            wanted = self.gradients(ours, *tensors)
            torch.manual_seed(5)
            self.assert_equal(self.gradients(
                lambda *t: torch.utils.checkpoint.checkpoint(ours, *t, use_reentrant=False), *tensors), wanted)
        finally:
            torch.use_deterministic_algorithms(False)
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        graphed = torch.cuda.make_graphed_callables(ours, tuple(leaves))
        outs = [graphed(*leaves).detach().clone() for _ in range(2)]
        self.assertFalse(torch.equal(*outs))
        graphed(*leaves).sum().backward()
        self.assertTrue(all(leaf.grad.isfinite().all() for leaf in leaves))

    def gradients(self, function, *tensors):
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        out = function(*leaves)
        d_out = torch.linspace(-1, 1, out.numel(), device=out.device).reshape(out.shape).to(out.dtype)
        return [out.detach(), *torch.autograd.grad(out, leaves, d_out)]

    def assert_equal(self, got, wanted):
        self.assertEqual(len(got), len(wanted))
        for a, b in zip(got, wanted):
            self.assertTrue(torch.equal(a, b))

    def test_gradients_are_the_same_by_all_ways(self):
        tensors = self.tensors(*3 * [(2, 4, 96, 64)])
        torch.use_deterministic_algorithms(True)
        try:
            def ours(q, k, v):
                return fa2_attn.torch.sdpa(q, k, v, is_causal=True)

            def operation(*t):
                return torch.ops.fa2.attention(*(x.transpose(1, 2) for x in t), True)[0].transpose(1, 2)

            def packed(q, k, v):
                return fa2_attn.torch.attention_packed(torch.stack([q, k, v], 1).permute(0, 3, 1, 2, 4),
                                                  causal=True).transpose(1, 2)

            def checkpointed(*t):
                return torch.utils.checkpoint.checkpoint(ours, *t, use_reentrant=False)

            wanted = self.gradients(ours, *tensors)
            self.assertGreater(wanted[1].abs().max().item(), 0)
            for function in (operation, packed, checkpointed, torch.compile(ours, fullgraph=True),
                             torch.compile(packed, fullgraph=True)):
                self.assert_equal(self.gradients(function, *tensors), wanted)
            for one in range(3):  # the others need none
                q = [t.detach().requires_grad_(i == one) for i, t in enumerate(tensors)]
                out = ours(*q)
                d_out = torch.linspace(-1, 1, out.numel(), device="cuda").reshape(out.shape).half()
                self.assert_equal(torch.autograd.grad(out, q[one], d_out), wanted[1 + one:2 + one])
        finally:
            torch.use_deterministic_algorithms(False)

    def test_gradients_of_odd_shapes(self):
        q, k, v = self.tensors((2, 4, 50, 60), *2 * [(2, 2, 70, 60)])

        def gradients(function, dtype):
            return self.gradients(lambda *t: function(*t, enable_gqa=True), *(t.to(dtype) for t in (q, k, v)))

        got, exact = gradients(fa2_attn.torch.sdpa, torch.float16), gradients(F.scaled_dot_product_attention, torch.float64)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            plain = gradients(F.scaled_dot_product_attention, torch.float16)
        for a, b, c in zip(got, plain, exact):
            self.assertLessEqual((a - c).abs().max().item(), 3 * (b - c).abs().max().item() + 1e-5)
        q.requires_grad_()
        fa2_attn.torch.sdpa(q, q, q).sum().backward()  # whose gradient has no strides
        self.assertIsNotNone(q.grad)

    def test_gradients_of_sums_over_the_sequence(self):
        """What comes from behind is one row, repeated: kernels do not read rows of stride 0, so it is copied."""
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)
        q, k, v = (tensor.requires_grad_() for tensor in self.tensors(*3 * [(2, 40, 4, 64)]))
        for layout, seq in (("bshd", 1), ("bhsd", 2)):
            with self.subTest(layout):
                out = fa2.attention(q, k, v, layout=layout)
                weights = torch.linspace(-1, 1, 64, device="cuda").half()
                got = torch.autograd.grad((out.sum(seq) * weights).sum(), (q, k, v), retain_graph=True)
                wanted = torch.autograd.grad(out, (q, k, v), weights.expand_as(out).contiguous())
                for a, b in zip(got, wanted):
                    self.assertTrue(torch.equal(a, b))

    def test_graphed_training(self):
        class Layer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.qkv = torch.nn.Linear(64, 3 * 64)

            def forward(self, x):
                qkv = self.qkv(x).unflatten(-1, (3, 1, 64))
                return fa2_attn.torch.attention_packed(qkv, causal=True).flatten(-2)

        torch.manual_seed(2)
        x, = self.tensors((2, 80, 64))
        torch.use_deterministic_algorithms(True)
        try:
            with torch.autocast("cuda", dtype=torch.float16, cache_enabled=False):
                layer = Layer().cuda().half()
                layer(x).sum().backward()
                wanted = layer.qkv.weight.grad.clone()
                layer.qkv.weight.grad = None
                graphed = torch.cuda.make_graphed_callables(layer, (x.clone(),))
                for _ in range(2):
                    layer.zero_grad(set_to_none=True)
                    graphed(x).sum().backward()
                    self.assertTrue(torch.equal(layer.qkv.weight.grad, wanted))
        finally:
            torch.use_deterministic_algorithms(False)

    def test_autocast(self):
        q, k, v = self.tensors(*3 * [(1, 4, 64, 64)], dtype=torch.float32)
        leaf = q.clone().requires_grad_()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            fa2_attn.torch.sdpa(leaf, k, v).sum().backward()
        self.assertEqual((leaf.grad.dtype, leaf.grad.shape), (torch.float32, leaf.shape))
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = fa2_attn.torch.sdpa(q, k, v)
        self.assertTrue(torch.equal(out, fa2_attn.torch.sdpa(*(t.bfloat16() for t in (q, k, v)))))
        new, cache, own = *self.tensors((1, 3, 4, 64), dtype=torch.float32), *2 * self.tensors((1, 50, 4, 64))
        own = own.clone()
        settings = {"rotary_cos": torch.rand((50, 32), device="cuda"), "rotary_sin": torch.rand((50, 32), device="cuda")}
        with torch.autocast("cuda", dtype=torch.float16):
            out = fa2.attention(new, cache, cache.clone(), k_new=new, v_new=new, **settings)
        rounded = {name: table.half() for name, table in settings.items()}
        wanted = fa2.attention(new.half(), own, own.clone(), k_new=new.half(), v_new=new.half(), **rounded)
        self.assertTrue(torch.equal(out, wanted) and torch.equal(cache, own))

    def test_what_pytorch_takes(self):
        """Rows that no kernel can read where they lie, and leading dimensions of 1: outputs, and gradients' shapes."""
        whole, = self.tensors((2 * 4 * 50 * 64 + 8,))
        plain, odd, wide, turned, one = self.tensors((2, 4, 50, 64), (2, 4, 50, 66), (2, 4, 50, 128), (2, 4, 64, 50),
                                                     (1, 4, 50, 64))
        unaligned = whole[3:3 + 2 * 4 * 50 * 64].view(2, 4, 50, 64)
        repeated = plain[:, :, :1].expand(-1, -1, 50, -1)
        for tensors in ((unaligned, plain, unaligned), (odd[..., :64], wide[..., ::2], turned.transpose(-1, -2)),
                        (plain, one, one), (one, plain, plain), (plain, plain[:, :1], plain[:, :1]), (plain, one[0], one[0]),
                        (repeated, repeated, repeated)):
            with self.subTest(strides=[tensor.stride() for tensor in tensors]):
                self.assert_right(fa2_attn.torch.sdpa(*tensors, is_causal=True), *tensors, is_causal=True)
                leaves = [tensor.detach().requires_grad_() for tensor in tensors]
                out = fa2_attn.torch.sdpa(*leaves, is_causal=True)
                d_out = torch.randn_like(out)
                got = torch.autograd.grad(out, leaves, d_out)
                # PyTorch 2.11's own gradients are wrong for unaligned storage, so it gets copies.
                copies = [tensor.detach().clone(memory_format=torch.contiguous_format).requires_grad_() for tensor in tensors]
                wanted = torch.autograd.grad(F.scaled_dot_product_attention(*copies, is_causal=True), copies, d_out)
                for a, b in zip(got, wanted):
                    self.assertEqual(a.shape, b.shape)
                    self.assertLess((a - b).abs().max().item(), 0.02 * max(1.0, b.abs().max().item()))

    def test_replaced_in_a_compiled_function(self):
        """What fa2 has no kernel for is seen when the graph is made."""
        def function(q):
            return F.scaled_dot_product_attention(q, q, q, is_causal=True)

        for tensor in (self.tensors((1, 2, 40, 64), dtype=torch.float64)[0], self.tensors((1, 1, 40, 584))[0]):
            torch.compiler.reset()
            with warnings.catch_warnings(), fa2_attn.torch.replace_sdpa(), torch.no_grad():
                warnings.simplefilter("ignore")
                got = torch.compile(function, fullgraph=True)(tensor)
            self.assertLess((got - function(tensor)).abs().max().item(), 1e-2)

    def test_empty(self):
        """As PyTorch's own, with gradients; also in a graph, and beside work on another stream."""
        for q, k in (((0, 2, 5, 64), (0, 2, 7, 64)), ((2, 2, 0, 64), (2, 2, 7, 64)), ((2, 2, 5, 64), (2, 2, 0, 64))):
            leaves = [tensor.requires_grad_() for tensor in self.tensors(q, k, k)]
            out = fa2_attn.torch.sdpa(*leaves)
            self.assertEqual((out.shape, int(out.count_nonzero())), (q, 0))
            for leaf, gradient in zip(leaves, torch.autograd.grad(out, leaves, torch.ones_like(out))):
                self.assertEqual((gradient.shape, int(gradient.count_nonzero())), (leaf.shape, 0))
        q, k = self.tensors((2, 5, 2, 64), (2, 0, 2, 64))
        sinks = torch.tensor([1.5, -2.0], device="cuda")
        out, lse = fa2.attention(q, k, k, return_lse=True)
        self.assertTrue(torch.all(lse == -torch.inf))
        lse = fa2.attention(q, k, k, sinks=sinks, return_lse=True)[1]
        self.assertTrue(torch.equal(lse, sinks[None, :, None].expand(2, 2, 5)))
        whole = torch.ones((2, 5, 4, 128), device="cuda", dtype=torch.float16)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            fa2.attention(q, k, k, out=whole[:, :, 1:3, 32:96])
        graph.replay()
        self.assertEqual(int(whole.count_nonzero()), whole.numel() - q.numel())
        whole.fill_(1)
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(10 ** 7)
            whole.fill_(2)
            fa2.attention(q, k, k, out=whole[:, :, 1:3, 32:96])
        torch.cuda.synchronize()
        self.assertEqual((int(whole.count_nonzero()), whole.max().item()), (whole.numel() - q.numel(), 2))

    def test_features_of_inference(self):
        """Forward runs where a tensor requires a gradient, and backward refuses: eager and compiled."""
        q, k = self.tensors((2, 4, 2, 64), (2, 40, 2, 64))
        numbers = torch.tensor([30, 7], device="cuda", dtype=torch.int32)
        table = torch.tensor([[0, 1], [1, 0]], device="cuda", dtype=torch.int32)
        pages, = self.tensors((2, 16, 2, 64))
        for name, keys, given in (("seqused_k", k, numbers), ("leftpad", k, numbers), ("block_table", pages, table),
                                  ("cache_rows", k, table[0].contiguous())):
            def function(q, k):
                return fa2.attention(q, k, k, causal=True, **{name: given})

            torch.compiler.reset()
            for way in (function, torch.compile(function, fullgraph=True)):
                with self.subTest(name, compiled=way is not function):
                    leaf = q.clone().requires_grad_()
                    out = way(leaf, keys)
                    with torch.no_grad():
                        self.assertTrue(torch.equal(out, function(q, keys)))
                    with self.assertRaisesRegex(NotImplementedError, f"fa2_attn.attention with {name} has no gradient"):
                        out.sum().backward()

    def test_windows(self):
        q, = self.tensors((1, 300, 2, 64))
        wanted = fa2.attention(q, q, q, window=(100, 20))
        for window in ([100, 20], torch.tensor([100, 20]), torch.tensor([100, 20], device="cuda"), torch.tensor([100, 20]).numpy()):
            self.assertTrue(torch.equal(fa2.attention(q, q, q, window=window), wanted))
        self.assertTrue(torch.equal(fa2.attention(q, q, q, window=(2 ** 31 - 1, 2 ** 40)), fa2.attention(q, q, q)))

    def test_float32(self):
        q, k, v = self.tensors((2, 4, 65, 72), *2 * [(2, 4, 130, 72)], dtype=torch.float32)
        for causal in (False, True):
            exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=causal)
            out = fa2_attn.torch.sdpa(q, k, v, is_causal=causal)
            self.assertEqual(out.dtype, torch.float32)
            self.assertLessEqual(((out - exact).abs().sum() / exact.abs().sum()).item(), 2e-6)
            inputs = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
            exactly = [tensor.double().requires_grad_() for tensor in (q, k, v)]
            fa2_attn.torch.sdpa(*inputs, is_causal=causal).square().sum().backward()
            F.scaled_dot_product_attention(*exactly, is_causal=causal).square().sum().backward()
            for got, wanted in zip(inputs, exactly):
                error = (got.grad - wanted.grad).abs().sum() / wanted.grad.abs().sum()
                self.assertLessEqual(error.item(), 4e-6)

    def test_refusals(self):
        q, = self.tensors((1, 4, 64, 64))
        with self.assertRaisesRegex(NotImplementedError, "float64"):
            fa2_attn.torch.sdpa(q.double(), q.double(), q.double())
        q.requires_grad_()
        for settings in ({"out": torch.empty_like(q)}, {"stream": 0}):
            with self.assertRaisesRegex(NotImplementedError, "is only for calls that PyTorch does not"):
                fa2.attention(q, q, q, **settings)
        with self.assertRaisesRegex(NotImplementedError, "no second derivatives"):
            gradient, = torch.autograd.grad(fa2.attention(q, q, q).sum(), q, create_graph=True)
            gradient.sum().backward()


if __name__ == "__main__":
    unittest.main()
