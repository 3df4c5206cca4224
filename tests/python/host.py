"""PyTorch's tensors on the host, and fa2's operations on them by kernels of the software device.

What fa2_attn.torch and what lies above it do with a tensor they do wherever it is; only the kernels want a device. install()
puts in the extension module's place functions that copy the storages to the device, launch there, and copy back what
was written, until remove() is called: so everything between a program and the kernels is tried without a GPU.
"""

import ctypes
import warnings

import torch

import device
from device import ExchangeTensor
import fa2_attn as fa2
from fa2_attn import _dispatch, _native, _operations, flash_attn

DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.int32: "int32",
          torch.int64: "int64", torch.bool: "bool"}

NUMBERS = ("window", "max_seqlen_q", "max_seqlen_k")  # which may be tensors, and stay on the host

_launch, _backward, _problem = _native.launch, _native.attention_backward, _native.problem
_partial = _native.attention_partial


class Lender:
    """Tensors as they lie, views of one storage as views of one."""

    def __init__(self):
        self.memories = {}

    def lend(self, value):
        if not isinstance(value, torch.Tensor):
            return value
        storage = value.untyped_storage()
        memory = self.memories.get(storage.data_ptr())
        if memory is None:
            memory = self.memories[storage.data_ptr()] = device.Memory(0, storage.nbytes())
            device.check(device.driver.cuMemcpyHtoD_v2(memory.address, ctypes.c_void_p(storage.data_ptr()),
                                                       ctypes.c_size_t(storage.nbytes())))
        return ExchangeTensor(value.shape, DTYPES[value.dtype], 0, memory, value.stride() or (1,), value.storage_offset())

    def lend_named(self, keywords):
        return {name: value if name in NUMBERS else self.lend(value) for name, value in keywords.items()}

    def fetch(self, *tensors):
        """What was written into them."""
        device.synchronize()
        for tensor in tensors:
            storage = tensor.untyped_storage()
            device.check(device.driver.cuMemcpyDtoH_v2(
                ctypes.c_void_p(storage.data_ptr()), self.memories[storage.data_ptr()].address,
                ctypes.c_size_t(storage.nbytes())))


def _of_device(tensor):
    """A new tensor with a device's float32 values."""
    made = torch.empty(tensor.shape, dtype=torch.float32)
    device.enter(0)
    device.check(device.driver.cuMemcpyDtoH_v2(ctypes.c_void_p(made.data_ptr()), tensor.memory.address,
                                               ctypes.c_size_t(tensor.memory.size)))
    return made


def launch(q, k, v, out=None, return_lse=False, **keywords):
    lender = Lender()
    if out is None:
        out = torch.empty_like(q) if v.shape[-1] == q.shape[-1] else q.new_empty((*q.shape[:-1], v.shape[-1]))
    got = _launch(*map(lender.lend, (q, k, v)), out=lender.lend(out), return_lse=return_lse,
                  **lender.lend_named(keywords))
    lender.fetch(out, *((k, v) if keywords.get("k_new") is not None else ()))
    return (out, _of_device(got[1])) if return_lse else out


def problem(*tensors, **keywords):
    lender = Lender()
    return _problem(*map(lender.lend, tensors), **lender.lend_named(keywords))


def attention(q, k, v, **keywords):
    """fa2.attention, whose straight way to the kernel is in C."""
    tensors = [value for value in (q, k, v, *keywords.values()) if isinstance(value, torch.Tensor)]
    if _dispatch.is_unwatched(*tensors) and not _dispatch.needs_gradient(*tensors):
        return launch(q, k, v, **keywords)
    return fa2.attention(q, k, v, **keywords)


def attention_backward(d_out, q, k, v, out, lse, dq=None, dk=None, dv=None, dsinks=False, dbias=False, **keywords):
    lender = Lender()
    dtype = torch.float32 if keywords.get("partial") else q.dtype
    made = [None if given is False else given if isinstance(given, torch.Tensor) else torch.empty_like(like, dtype=dtype)
            for given, like in zip((dq, dk, dv), (q, k, v))]
    named = {name: False if tensor is None else lender.lend(tensor) for name, tensor in zip(("dq", "dk", "dv"), made)}
    got = _backward(*map(lender.lend, (d_out.contiguous(), q, k, v, out, lse)), **named, dsinks=dsinks, dbias=dbias,
                    **lender.lend_named(keywords))
    lender.fetch(*(tensor for tensor in made if tensor is not None))
    return (*made, *map(_of_device, got[3:]))


def attention_partial(q, k, v, out=None, lse=None, **keywords):
    lender = Lender()
    if out is None and "cu_seqlens_q" in keywords:
        out = q.new_empty((*q.shape[:-1], v.shape[-1]), dtype=torch.float32)
        lse = q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)
    elif out is None:
        heads = 1 if keywords.get("layout") == "bhsd" else 2
        out = q.new_empty((*q.shape[:-1], v.shape[-1]), dtype=torch.float32)
        lse = q.new_empty((q.shape[0], q.shape[heads], q.shape[3 - heads]), dtype=torch.float32)
    _partial(*map(lender.lend, (q, k, v)), out=lender.lend(out), lse=lender.lend(lse), **lender.lend_named(keywords))
    lender.fetch(out, lse)
    return out, lse


def plain_forward(ctx, settings, *tensors):
    """The extension module's, by the launch above; backward is then the Function's own, of all tensors."""
    out, lse = launch(*_operations._unpacked(tensors), return_lse=True, differentiable=True,
                      **dict(zip(_dispatch._PLAIN, settings)))
    ctx.save_for_backward(out, lse, *tensors)
    ctx.settings = settings
    return out


_forward, _Node = _dispatch._Plain.forward, _dispatch._Plain._backward_cls
_apply = _Node.apply
_installed = []


def install():
    """From now on, in this process, until remove() is called."""
    _native.launch, _native.attention_backward, flash_attn.attention = launch, attention_backward, attention
    _native.problem = problem
    _native.attention_partial = attention_partial
    _dispatch._Plain.forward, _Node.apply = staticmethod(plain_forward), torch.autograd.function.BackwardCFunction.apply
    library = torch.library.Library("fa2", "IMPL", "CPU")
    warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel")  # once in a process
    for name, kernel in (("attention", _operations._cuda), ("attention_packed", _operations._cuda_packed),
                         ("attention_append", _operations._cuda_append),
                         ("attention_backward", _operations._cuda_backward)):
        library.impl(name, kernel, allow_override=True)
    _installed.append(library)


def remove():
    _native.launch, _native.attention_backward, flash_attn.attention = _launch, _backward, fa2.attention
    _native.problem = _problem
    _native.attention_partial = _partial
    _dispatch._Plain.forward, _Node.apply = staticmethod(_forward), _apply
    _installed.pop()._destroy()
