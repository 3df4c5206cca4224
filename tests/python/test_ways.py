"""Which way a call goes, on tensors of the software device that pass for PyTorch's: without PyTorch."""

import gc
import sys
import types
import unittest
from unittest import mock

import device
import fa2_attn as fa2
import reference
from device import ExchangeTensor, Tensor
from fa2_attn import _frameworks, _native

_describe = _frameworks.describe


class Passing(ExchangeTensor):
    """Of PyTorch's own type, as far as fa2 is told."""

    requires_grad = False


def describe(kind):
    return (_frameworks._TORCH, *6 * [None]) if kind is Passing else _describe(kind)


def sdpa_of(slow):
    """fa2_attn.torch.sdpa, beside a function for what does not go straight to a kernel."""
    module = types.ModuleType("beside")
    module._sdpa = slow
    return _native.make_sdpa(module, False)


def restore():
    """PyTorch's functions, where another test has brought them."""
    ways = sys.modules.get("fa2_attn._dispatch")
    if ways is not None:
        _native.set_torch(ways.dispatch, ways.differentiable, ways._apply_plain, *ways._watching)


class Ways(unittest.TestCase):
    def setUp(self):
        _native.set_torch(lambda *unused: "dispatcher", lambda *unused: "autograd", lambda *given: ("plain", given[0]),
                          lambda: True, lambda: False)
        self.addCleanup(restore)
        patch = mock.patch.object(_frameworks, "describe", describe)
        patch.start()
        self.addCleanup(patch.stop)
        self.tensors = reference.tensors(kind=Passing)
        self.out = Tensor(self.tensors[0].shape)

    def test_dropout(self):
        """Only a seed that must be drawn is PyTorch's affair."""
        fa2.attention(*self.tensors, out=self.out)
        device.synchronize()
        plain = self.out.get()
        for p in (0.0, 0, False, None):
            with self.subTest(p):
                out = Tensor(self.out.shape)
                self.assertIs(fa2.attention(*self.tensors, dropout_p=p, stream=0, out=out), out)
                device.synchronize()
                self.assertEqual(out.get(), plain)
        self.assertEqual(fa2.attention(*self.tensors, dropout_p=0.25), "dispatcher")
        self.assertIs(fa2.attention(*self.tensors, dropout_p=0.25, dropout_seed=3, out=self.out), self.out)
        self.assertEqual(fa2.attention(*self.tensors, dropout_p=1e-9), "dispatcher")

        class Wrong:
            def __bool__(self):
                raise RuntimeError("neither")

        with self.assertRaisesRegex(RuntimeError, "neither"):
            fa2.attention(*self.tensors, dropout_p=Wrong())

    def test_autograd(self):
        """What is plain goes the short way, with what it takes as it was given."""
        Passing.requires_grad = True
        self.addCleanup(setattr, Passing, "requires_grad", False)
        q, k, v = self.tensors
        self.assertEqual(fa2.attention(q, k, v), ("plain", (None,) * 7))
        self.assertEqual(fa2.attention(q, k, v, causal=True, window=(3, 1), softcap=2.0, scale=0.5, layout="bshd"),
                         ("plain", (True, (3, 1), 2.0, 0.5, "bshd", None, None)))
        self.assertEqual(fa2.attention(q, k, v, return_lse=False, out=None, dropout_p=0.0), ("plain", (None,) * 7))
        for more in ({"return_lse": True}, {"out": self.out}, {"sinks": q}, {"dropout_p": 0.5, "dropout_seed": 1},
                     {"k_new": k, "v_new": v}, {"stream": 0}):
            self.assertEqual(fa2.attention(q, k, v, **more), "autograd")
        sdpa = sdpa_of(lambda *arguments: "python")
        heads_first = [tensor.permuted(0, 2, 1, 3) for tensor in self.tensors]
        self.assertEqual(sdpa(*heads_first, is_causal=True, scale=0.5), ("plain", (True, None, None, 0.5, "bhsd", None, None)))
        self.assertEqual(sdpa(*heads_first, dropout_p=0.5), "python")

    def test_plain_autograd(self):
        """What a Function without features does forward and backward is what calls without autograd do."""
        asked = {"records": False, "deterministic": False}
        _native.set_torch(*3 * [lambda *unused: None], lambda: asked["records"], lambda: asked["deterministic"])

        class Node:
            needs_input_grad = False, True, True, True

            def save_for_backward(self, *tensors):
                self.saved_tensors = tensors

            class _forward_cls:
                backward = staticmethod(lambda ctx, d_out: ("Python", ctx, d_out))

        _native.plain_node(Node)
        q, k, v = self.tensors = reference.tensors(seq_q=20, seq_k=30, kind=ExchangeTensor)
        d_out = reference.tensors(seq_q=20, seed=2)[0]
        out, lse = fa2.attention(q, k, v, causal=True, scale=0.5, return_lse=True)
        gradients = fa2.attention_backward(d_out, q, k, v, out, lse, causal=True, scale=0.5)
        node, settings = Node(), (True, None, None, 0.5, None, None, False)
        self.assertIs(_native.plain_forward(node, settings, q, k, v), node.saved_tensors[0])
        self.assertIs(node.settings, settings)
        self.assertEqual(node.saved_tensors[2:], (q, k, v))
        none, *made = node.apply(d_out)
        device.synchronize()
        self.assertIsNone(none)
        for got, wanted in zip((*node.saved_tensors[:2], *made), (out, lse, *gradients)):
            self.assertEqual(got.get(), wanted.get())
        node.needs_input_grad = False, True, False, True
        self.assertEqual([x is None for x in node.apply(d_out)], [True, False, True, False])
        for own in (True, False):  # whoever asks for it
            asked["deterministic"] = not own
            with fa2.Context("") as context, self.assertLogs("fa2_attn") as logs:
                node.settings = (*settings[:5], context, own)
                node.apply(d_out)
                device.synchronize()
            self.assertIn("deterministic=1", "".join(logs.output))
        asked["deterministic"] = False
        asked["records"] = True
        self.assertEqual(node.apply(d_out), ("Python", node, d_out))
        asked["records"], node.saved_tensors = False, node.saved_tensors[:4]  # as of packed ones
        self.assertEqual(node.apply(d_out)[0], "Python")

    def test_plain_autograd_that_fails(self):
        """At each step: the exception comes through, and nothing is kept."""
        class Failing(Exception):
            pass

        def failing(*unused):
            raise Failing

        class Node:
            needs_input_grad = False, True, True, True
            save_for_backward = lambda self, *tensors: None
            _forward_cls = None

        def node(**attributes):
            return type("Node", (Node,), attributes)()

        q, k, v = tensors = reference.tensors(seq_q=20, kind=ExchangeTensor)
        d_out = reference.tensors(seq_q=20, seed=2)[0]
        settings = (*6 * [None], False)
        out, lse = fa2.attention(q, k, v, return_lse=True)
        saved = out, lse, *tensors
        right = {"settings": settings, "saved_tensors": saved}
        _native.set_torch(*3 * [lambda *unused: None], lambda: False, lambda: False)
        fixed = [node(save_for_backward=failing), node(settings=property(lambda self: settings)), None]

        def forward(ctx, given=settings):
            return lambda: _native.plain_forward(ctx, given, *tensors)

        def backward(**attributes):
            ctx = node(**{**right, **attributes})
            _native.plain_node(type(ctx))
            return lambda: ctx.apply(d_out)

        fails = property(failing)
        cases = [(Failing, forward(fixed[0])), (AttributeError, forward(fixed[1])), (AttributeError, forward(fixed[2])),
                 (ValueError, forward(node(), (None, 3, *5 * [None]))), (TypeError, forward(node(), (*5 * [None], 3, None))),
                 (Failing, backward(saved_tensors=fails)), (Failing, backward(settings=fails)),
                 (Failing, backward(needs_input_grad=fails)), (IndexError, backward(needs_input_grad=(True,))),
                 (TypeError, backward(settings=())),
                 (Failing, backward(settings=(*6 * [None], type("Wrong", (), {"__bool__": failing})()))),
                 (ValueError, backward(needs_input_grad=4 * (False,))), (ValueError, backward(saved_tensors=(q, q, q, k, v))),
                 (AttributeError, backward(saved_tensors=saved[:4])),
                 (AttributeError, backward(saved_tensors=None))]
        objects = (*saved, d_out, settings)
        for kind, function in cases:
            counts = []
            for _ in range(3):
                with self.assertRaises(kind):
                    function()
                gc.collect()
                counts.append(([sys.getrefcount(x) for x in objects], device.live(), device.lent()))
            self.assertEqual(counts[1], counts[2], kind)
        self.assertEqual(device.lent(), 0)
        for asked in ((failing, lambda: False), (lambda: False, failing)):
            _native.set_torch(*3 * [lambda *unused: None], *asked)
            with self.assertRaises(Failing):
                backward()()
        _native.set_torch(*3 * [lambda *unused: None], lambda: False, lambda: False)
        self.assertEqual(len(backward()()), 4)

    def test_plain_autograd_of_packed_tensors(self):
        class Packed(ExchangeTensor):
            def unbind(self, dimension):
                return [self.selected(self.shape.index(self.parts), i).as_type(ExchangeTensor) for i in range(self.parts)]

        class Node:
            def save_for_backward(self, *tensors):
                self.saved_tensors = tensors

        q, _, _ = reference.tensors(kind=ExchangeTensor)
        batch, length, heads, width = q.shape
        for parts, before in ((3, ()), (2, (q,))):
            packed = Packed((batch, length, parts, heads, width))
            packed.parts = parts
            rows = reference.tensors(batch, heads * parts, seq_q=length, head_dim=width, seed=4)[0]
            packed.set(rows.get())
            node = Node()
            out = _native.plain_forward(node, (*5 * [None], None, False), *before, packed)
            wanted = fa2.attention(*before, *packed.unbind(-3))
            device.synchronize()
            self.assertEqual(out.get(), wanted.get())
            self.assertEqual(node.saved_tensors[2:], (*before, packed))
        for wrong in ((packed,), (q, q, packed)):
            with self.assertRaises((ValueError, TypeError)):
                _native.plain_forward(node, (*5 * [None], None, False), *wrong)
        with self.assertRaisesRegex(TypeError, "settings"):
            _native.plain_forward(node, (None,), q, q, q)
        for few in ((node,), (node, (), q, q, q, q)):
            with self.assertRaisesRegex(TypeError, "arguments"):
                _native.plain_forward(*few)
        with self.assertRaisesRegex(TypeError, "type"):
            _native.plain_node(node)

    def test_new_keys_that_lack_others(self):
        """In the same words by each way, before anybody is asked."""
        q, k, v = self.tensors
        for watched, needed in ((False, False), (False, True), (True, False)):
            _native.set_torch(lambda *unused: "dispatcher", lambda *unused: "autograd", lambda *unused: "plain",
                              lambda: True, lambda: False, lambda watched=watched: watched)
            Passing.requires_grad = needed
            self.addCleanup(setattr, Passing, "requires_grad", False)
            for given, text in (({"k_new": k}, "k_new and v_new are given together"),
                                ({"v_new": v}, "k_new and v_new are given together"),
                                ({"k_new": k, "v_new": v, "rotary_cos": q}, "rotary_cos and rotary_sin are given together"),
                                ({"rotary_cos": q, "rotary_sin": q}, "rotary embedding is of new keys")):
                with self.subTest(watched=watched, needed=needed, text=text), self.assertRaisesRegex(ValueError, text):
                    fa2.attention(q, k, v, out=self.out, **given)

    def test_dropout_of_sdpa(self):
        sdpa = sdpa_of(lambda *arguments: ("python", arguments[4]))
        tensors = [tensor.permuted(0, 2, 1, 3) for tensor in self.tensors]
        for p in (0.0, 0, False):
            self.assertNotIsInstance(sdpa(*tensors, dropout_p=p), tuple)
        for name, kind in (("dropout_p", "number"), ("is_causal", "bool"), ("enable_gqa", "bool")):  # PyTorch's, too
            with self.assertRaisesRegex(TypeError, f"{name} is None; it must be a {kind}"):
                sdpa(*tensors, **{name: None})
        self.assertEqual(sdpa(*tensors, dropout_p=0.5), ("python", 0.5))
        with self.assertRaises(TypeError):
            sdpa(*tensors, dropout_p="x")
        few = tensors[0].part(1, 0, 1)
        self.assertEqual(sdpa(tensors[0], few, few), ("python", None))
        self.assertNotIsInstance(sdpa(tensors[0], few, few, enable_gqa=True), tuple)

    def test_scale_of_sdpa(self):
        """One that kernels cannot take is not mistaken for none."""
        sdpa = sdpa_of(lambda *arguments: ("python", arguments[6]))
        tensors = [tensor.permuted(0, 2, 1, 3) for tensor in self.tensors]  # [B, H, S, D]

        def values(**settings):
            out = sdpa(*tensors, **settings)
            device.synchronize()
            return out.get()

        plain = values()
        self.assertEqual(values(scale=None), plain)
        self.assertEqual(values(scale=0.25), plain)  # 1 / sqrt(16)
        self.assertNotEqual(values(scale=1), plain)
        for scale in (0.0, 0, False, -0.5, 1e-60, float("inf"), 1e60):
            self.assertEqual(sdpa(*tensors, scale=scale), ("python", scale))
        self.assertEqual(sdpa(*tensors, scale=float("nan"))[0], "python")


if __name__ == "__main__":
    unittest.main()
