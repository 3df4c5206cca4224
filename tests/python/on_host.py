"""Tests of PyTorch's tensors on the host with kernels of the software device: what a GPU would be asked for, small.
Skipped without PyTorch or the software device. To be imported by them."""

import unittest

try:
    import torch
    import host
except ImportError:
    torch = None


def randn(*shapes, dtype=None):
    return [torch.randn(shape, dtype=torch.float32).to(dtype or torch.float16) for shape in shapes]


def gradients(function, *tensors):
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    out = function(*leaves)
    d_out = torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(out.dtype)
    return [out.detach(), *torch.autograd.grad(out, leaves, d_out)]


@unittest.skipIf(torch is None, "PyTorch or the software device is missing")
class OnHost(unittest.TestCase):
    def setUp(self):
        host.install()
        self.addCleanup(host.remove)
        torch.manual_seed(1)

    def assert_equal(self, got, wanted):
        self.assertEqual(len(got), len(wanted))
        for a, b in zip(got, wanted):
            self.assertTrue(torch.equal(a, b))

    def assert_close(self, got, wanted, most=4e-3):
        self.assertLess((got.double() - wanted.double()).abs().max().item(), most)
