"""Which way a call goes, on tensors of the software device that pass for PyTorch's: without PyTorch."""

import sys
import unittest
from unittest import mock

import device
import fa2
import reference
from device import ExchangeTensor, Tensor
from fa2 import _frameworks, _native

_describe = _frameworks.describe


class Passing(ExchangeTensor):
    """Of PyTorch's own type, as far as fa2 is told."""

    requires_grad = False


def describe(kind):
    return (_frameworks._TORCH, *5 * [None]) if kind is Passing else _describe(kind)


def restore():
    """PyTorch's functions, where another test has brought them."""
    operations = sys.modules.get("fa2._operations")
    if operations is not None:
        torch = operations.torch
        _native.set_torch(operations.dispatch, operations.differentiable, torch.is_grad_enabled, *operations._others,
                          torch.is_autocast_enabled)


class Ways(unittest.TestCase):
    def setUp(self):
        _native.set_torch(lambda *unused: "dispatcher", lambda *unused: "autograd", lambda: True)
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


if __name__ == "__main__":
    unittest.main()
