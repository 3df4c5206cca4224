"""fa2_attn.torch without a GPU: what PyTorch's tracers see, on tensors that are only shapes."""

import subprocess
import sys
import unittest
import warnings

try:
    import torch
    import torch.nn.functional as F
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    import fa2_attn.torch
except ImportError:
    torch = None
import fa2_attn as fa2


def calls_of(function, *shapes, dtype="float16"):
    """The operations that a function on tensors of these shapes [B, H, S, D] becomes."""
    with FakeTensorMode():
        inputs = [torch.empty(shape, dtype=getattr(torch, dtype), device="cuda") for shape in shapes]
        graph = make_fx(function)(*inputs).graph
    return [(str(node.target), node.args) for node in graph.nodes if node.op == "call_function"]


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Tracing(unittest.TestCase):
    Q, K = (1, 8, 128, 64), (1, 8, 256, 64)

    def settings(self, function, *shapes):
        """The settings of the one call of fa2's operation."""
        found = [args[3:] for name, args in calls_of(function, *shapes) if name == "fa2.attention.default"]
        self.assertEqual(len(found), 1)
        return found[0]

    def test_views_are_not_copied(self):
        names = {name for name, _ in calls_of(lambda q: fa2_attn.torch.sdpa(q, q, q), self.Q)}
        self.assertEqual(names, {"aten.transpose.int", "fa2.attention.default", "<built-in function getitem>"})

    def test_causal_begins_at_the_top_left(self):
        def function(q, k):
            return fa2_attn.torch.sdpa(q, k, k, is_causal=True)

        self.assertEqual(self.settings(function, self.Q, self.Q), (True,))
        self.assertEqual(self.settings(function, self.Q, self.K), (True,))  # of the first 128 keys
        self.assertIn("aten.slice.Tensor", {name for name, _ in calls_of(function, self.Q, self.K)})
        self.assertEqual(self.settings(function, self.K, self.Q), (False, -1, 128))

    def test_odd_shapes(self):
        with FakeTensorMode():
            x = torch.empty((2, 3, 10, 60), dtype=torch.float16, device="cuda")
            for tensor in (x, x[0], x[0, 0], x[None]):
                self.assertEqual(fa2_attn.torch.sdpa(tensor, tensor, tensor).shape, tensor.shape)

    def test_columns_of_value(self):
        """Their own number of them, as it is."""
        with FakeTensorMode():
            q, v = (torch.empty((2, 3, 10, width), dtype=torch.float16, device="cuda") for width in (96, 64))
            for tensors in ((q, q, v), (v, v, q), (q.requires_grad_(), q, v)):
                self.assertEqual(fa2_attn.torch.sdpa(*tensors).shape, (2, 3, 10, tensors[2].shape[-1]))
        names = {name for name, _ in calls_of(lambda q, v: fa2_attn.torch.sdpa(q, q, v), (2, 3, 10, 96), (2, 3, 10, 64))}
        self.assertEqual(names, {"aten.transpose.int", "fa2.attention.default", "<built-in function getitem>"})

    def test_outputs_of_the_operation(self):
        with FakeTensorMode():
            q = torch.empty((2, 4, 30, 16), dtype=torch.bfloat16, device="cuda").transpose(1, 2)
            out, lse = fa2.attention(q, q, q, return_lse=True, window=(3, None))
        self.assertEqual((out.shape, out.stride(), out.dtype), (q.shape, q.stride(), q.dtype))
        self.assertEqual((lse.shape, lse.dtype), ((2, 4, 30), torch.float32))

    def test_gradients(self):
        """What autograd records, and the shapes of what comes out; the engine itself needs a GPU."""
        with FakeTensorMode():
            q, k = (torch.empty(shape, dtype=torch.float16, device="cuda", requires_grad=True) for shape in (self.Q, self.K))
            for function in (fa2_attn.torch.sdpa, fa2.attention, lambda *t: torch.ops.fa2.attention(*t)[0]):
                self.assertTrue(function(q, q, q).requires_grad)
                self.assertTrue(function(q.detach(), q, q).requires_grad)
                with torch.no_grad():
                    self.assertFalse(function(q, q, q).requires_grad)
            out, lse = fa2.attention(q, q, q, return_lse=True)
            self.assertFalse(lse.requires_grad)
            for tensors in ([q, q, q], [q, torch.stack([q, q], 2)], [torch.stack([q, q, q], 2).transpose(1, 3)]):
                for wanted in ([True] * len(tensors) + 2 * [False], [False] * (len(tensors) - 1) + [True, False, False]):
                    made = torch.ops.fa2.attention_backward(out, tensors, out, lse, wanted)
                    self.assertEqual([(tuple(t.shape), t.stride()) for t, w in zip(made, wanted) if w],
                                     [(tuple(t.shape), torch.empty_like(t).stride()) for t, w in zip(tensors, wanted) if w])
                    self.assertEqual([t.numel() for t, w in zip(made, wanted) if not w], [0] * wanted.count(False))

    def test_refusals(self):
        q = torch.zeros((1, 2, 8, 16), dtype=torch.float16)
        for function in (fa2_attn.attention, torch.ops.fa2.attention):
            with self.assertRaisesRegex(ValueError, "CUDA device"):
                function(q, q, q)
        with self.assertRaisesRegex(ValueError, "^q cannot be lent by DLPack: .*$") as raised:  # and nothing of its stack
            fa2.attention(*3 * [q.to("meta")])
        self.assertIs(type(raised.exception.__cause__), RuntimeError)
        with self.assertRaisesRegex(ValueError, "CUDA device"):  # not the stream: without dropout nothing is drawn
            fa2.attention(q, q, q, dropout_p=0.0, stream=0)
        for settings, text in (({"attn_mask": q, "is_causal": True}, "attn_mask"), ({}, "device cpu"),
                               ({"dropout_p": 0.1}, "device cpu"), ({"scale": -1.0}, "scale"), ({"scale": 0.0}, "scale is 0.0")):
            with self.assertRaisesRegex(NotImplementedError, text):
                fa2_attn.torch.sdpa(q, q, q, **settings)
        with FakeTensorMode():
            q, k = (torch.empty((1, heads, 8, 16), dtype=torch.float16, device="cuda") for heads in (4, 2))
            with self.assertRaisesRegex(ValueError, "enable_gqa"):
                fa2_attn.torch.sdpa(q, k, k)
            self.assertEqual(fa2_attn.torch.sdpa(q, k, k, enable_gqa=True).shape, q.shape)

    def test_what_no_kernel_takes(self):
        """Is refused when the graph is made, in the words in which a call is refused."""
        with FakeTensorMode():
            q, wide = (torch.empty((1, 8, 2, width), dtype=torch.float16, device="cuda") for width in (16, 584))
            for kind, text, tensor, settings in (
                    (NotImplementedError, "q is float64; fa2 knows float16, bfloat16 and float32", q.double(), {}),
                    (ValueError, "head_dim is 584", wide, {}), (ValueError, "head_dim is 12", q[..., :12], {}),
                    (ValueError, "bias is torch.float64; it must be", q, {"bias": q.new_empty((1, 1, 8, 8)).double()})):
                with self.assertRaisesRegex(kind, text):
                    fa2.attention(tensor, tensor, tensor, **settings)

    def test_autocast_of_new_keys(self):
        """q, new keys and tables are cast; the caches, which are written to, are as they were given."""
        def function(q, new, table, cache):
            torch.set_autocast_dtype("cuda", torch.float16)
            torch.set_autocast_enabled("cuda", True)
            try:
                return fa2.attention(q, cache, cache, k_new=new, v_new=new, rotary_cos=table, rotary_sin=table)
            finally:
                torch.set_autocast_enabled("cuda", False)

        with FakeTensorMode():
            inputs = [torch.empty(shape, device="cuda") for shape in ((2, 1, 4, 16), (2, 1, 2, 16), (8, 8))]
            cache = torch.empty((2, 8, 2, 16), device="cuda", dtype=torch.float16)
            graph = make_fx(function)(*inputs, cache).graph
        append, = (node for node in graph.nodes if str(node.target) == "fa2.attention_append.default")
        self.assertEqual([argument.meta["val"].dtype for argument in append.args[:7]], [torch.float16] * 7)
        *_, own = (node for node in graph.nodes if node.op == "placeholder")
        self.assertEqual([node is own for node in append.args[:7]], [False, True, True, False, False, False, False])

    def test_imported_anew(self):
        """Modules loaded again, and modules that were forgotten: operations are there once."""
        done = subprocess.run([sys.executable, "-c", (
            "import importlib, sys, torch, fa2_attn.torch\n"
            "q = torch.zeros((1, 8, 2, 16), dtype=torch.float16, requires_grad=True)\n"
            "def ask():\n"
            "    for function in (fa2_attn.attention, torch.ops.fa2.attention, fa2_attn.torch.attention_packed):\n"
            "        try:\n"
            "            function(q, q, q)\n"
            "        except ValueError as refused:\n"
            "            assert 'CUDA device' in str(refused), refused\n"
            "        else:\n"
            "            assert False\n"
            "ask()\n"
            "own = [name for name in sys.modules if name.partition('.')[0] == 'fa2_attn']\n"
            "for name in ('fa2_attn._operations', 'fa2_attn._dispatch', 'fa2_attn.torch', 'fa2_attn'):\n"
            "    importlib.reload(sys.modules[name])\n"
            "ask()\n"
            "for _ in range(2):\n"
            "    for name in own:\n"
            "        del sys.modules[name]\n"
            "    import fa2_attn.torch\n"
            "    ask()\n")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_importing_is_quick(self):
        """`import fa2_attn.torch` brings in none of the compiler's parts, which take seconds; they learn of fa2 when they come."""
        program = (
            "import sys, time, torch\n"
            "{before}\n"
            "known, begin = set(sys.modules), time.process_time()\n"
            "import fa2_attn.torch, fa2_attn.flash_attn\n"
            "spent = time.process_time() - begin\n"
            "slow = ('torch._dynamo', 'torch._inductor', 'torch._export', 'torch.fx', 'torch.distributed', 'sympy', 'triton')\n"
            "print(sorted(name for name in set(sys.modules) - known if name.startswith(slow)), spent < 0.3)\n"
            "{after}\n"
            "q = torch.rand((1, 2, 8, 16))\n"
            "function = lambda q: torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)\n"
            "with fa2_attn.torch.replace_sdpa(), torch.no_grad():\n"
            "    compiled = torch.compile(function, backend='eager', fullgraph=True)(q)\n"
            "print(torch.equal(compiled, function(q)), any(type(x).__name__ == '_CompilerFinder' for x in sys.meta_path))\n")
        look = "import importlib.util; importlib.util.find_spec('torch._dynamo')"  # which imports nothing
        for before, after in (("", ""), ("import torch._dynamo", ""), ("", look)):
            done = subprocess.run([sys.executable, "-W", "ignore", "-c", program.format(before=before, after=after)],
                                  check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  universal_newlines=True)
            self.assertEqual((done.returncode, done.stdout), (0, "[] True\nTrue False\n"), before + after)

    def test_replacing(self):
        torchs = F.scaled_dot_product_attention
        q = torch.rand((1, 2, 8, 16))
        wanted = torchs(q, q, q)
        fa2_attn.torch._said.clear()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with fa2_attn.torch.replace_sdpa(), fa2_attn.torch.replace_sdpa():
                self.assertIsNot(F.scaled_dot_product_attention, torchs)
                for _ in range(2):
                    self.assertTrue(torch.equal(F.scaled_dot_product_attention(q, q, q), wanted))
        self.assertIs(F.scaled_dot_product_attention, torchs)
        self.assertEqual([str(one.message) for one in said],
                         ["fa2: PyTorch's own scaled_dot_product_attention is used where the tensors are on device cpu"])

    def test_compiled_fallback(self):
        def function(q):
            return F.scaled_dot_product_attention(q, q, q, is_causal=True)

        q = torch.rand((1, 2, 8, 16))
        with fa2_attn.torch.replace_sdpa(), torch.no_grad():
            compiled = torch.compile(function, backend="aot_eager", fullgraph=True)(q)
        self.assertTrue(torch.equal(compiled, function(q)))


if __name__ == "__main__":
    unittest.main()
