"""Calls fa2's C interface (fa2.h) on PyTorch tensors by ctypes: the kernels without the package around them."""

import ctypes
import importlib
from ctypes import POINTER, byref, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, Callable, Mapping, Tuple, Type, TypeVar

import torch

from .shapes import CAP, DTYPES, FIELDS, Shape

FORWARD, BACKWARD = range(2)
Struct = TypeVar("Struct", bound=ctypes.Structure)


class Problem(ctypes.Structure):
    _fields_ = [("struct_bytes", c_size_t), ("op", c_int), ("dtype", c_int),
                *((name, c_int32) for name in FIELDS if name != "dtype"), ("deterministic", c_int32),
                ("others", c_int32 * 17), ("sums", c_int), ("scores", c_int), ("later", c_int32 * 4),
                ("pv", c_int), ("rest", c_int32 * 10)]


assert ctypes.sizeof(Problem) == 200  # `others`, `later` and `rest` stay 0, so their features are off


def _sized(struct: Type[Struct], **members: Any) -> Struct:
    """Creates a struct that begins with its size. The library takes missing members at the end for 0."""
    return struct(struct_bytes=ctypes.sizeof(struct), **members)


class Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("stride_batch", c_int64), ("stride_seq", c_int64), ("stride_head", c_int64)]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "Tensor":
        """Describes a [batch, heads, seq, head_dim] PyTorch tensor with any strides. Borrows its memory."""
        batch, head, seq, _ = tensor.stride()
        return cls(tensor.data_ptr(), batch, seq, head)


def _fields(*tensors: str) -> Any:
    """Returns the fields of a call's arguments that this module uses."""
    return [("struct_bytes", c_size_t), *((name, Tensor) for name in tensors), ("lse", c_void_p),
            ("softmax_scale", c_float), ("workspace", c_void_p), ("workspace_bytes", c_size_t), ("cap", c_float)]


class ForwardArgs(ctypes.Structure):
    _fields_ = _fields("q", "k", "v", "o")


class BackwardArgs(ctypes.Structure):
    _fields_ = _fields("q", "k", "v", "o", "d_o", "dq", "dk", "dv")


class Config(ctypes.Structure):
    _fields_ = [("struct_bytes", c_size_t), ("database", c_char_p), ("device_plus_one", c_int), ("arch", c_int),
                ("read_only", c_int)]


class Explanation(ctypes.Structure):
    _fields_ = [("struct_bytes", c_size_t), ("rule", c_int), ("measured", c_int), ("tuned_problem", Problem),
                ("median_us", c_double), ("device", c_char * 128), ("variant", c_char * 256), ("target", c_char * 16),
                ("registers", c_int), ("spill_bytes", c_int), ("smem_bytes", c_int), ("reason", c_char * 512)]


class Fa2Error(RuntimeError):
    """A status other than FA2_OK, with the text of fa2_last_message()."""


def installed_library() -> str:
    """Returns the path of the installed package's library, which exports all of libfa2.so. Raises ImportError."""
    package = importlib.import_module("fa2_attn")
    importlib.import_module("fa2_attn._frameworks").find_nvrtc()
    return str(package._native.__file__)


class Context:
    """A fa2_context on the device that PyTorch uses.

    database: None means the default one. arch: 0 means this device. An older SM makes its kernels run here as PTX; the
    cost model chooses them. deterministic: gradients only. permissions: fields of the problem that permit less exact
    kernels, in forward: {"sums": 1}.
    """

    def __init__(self, library: str, database: Any = None, arch: int = 0, deterministic: bool = False,
                 permissions: Mapping[str, int] = MappingProxyType({})):
        torch.zeros(1, device="cuda")  # makes PyTorch's CUDA context the current one, which fa2 then uses
        self._lib = ctypes.CDLL(str(library))
        self._deterministic, self.permitted = deterministic, permissions
        self._declare()
        self._context = c_void_p()
        config = _sized(Config, database=None if database is None else str(database).encode(), read_only=1, arch=arch)
        self._check(self._lib.fa2_context_create(byref(config), byref(self._context)))

    def _declare(self) -> None:
        lib = self._lib
        lib.fa2_last_message.restype = lib.fa2_rule_string.restype = c_char_p
        lib.fa2_context_create.argtypes = (POINTER(Config), POINTER(c_void_p))
        lib.fa2_context_destroy.argtypes = (c_void_p,)
        lib.fa2_prepare.argtypes = (c_void_p, POINTER(Problem))
        lib.fa2_workspace_size.argtypes = (c_void_p, POINTER(Problem), POINTER(c_size_t))
        lib.fa2_forward.argtypes = (c_void_p, POINTER(Problem), POINTER(ForwardArgs), c_void_p)
        lib.fa2_backward.argtypes = (c_void_p, POINTER(Problem), POINTER(BackwardArgs), c_void_p)
        lib.fa2_explain.argtypes = (c_void_p, POINTER(Problem), POINTER(Explanation))

    def version(self) -> str:
        number = self._lib.fa2_version()
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def close(self) -> None:
        torch.cuda.synchronize()
        self._lib.fa2_context_destroy(self._context)

    def forward_call(self, shape: Shape, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor,
                     lse: Any = None) -> Callable[[], torch.Tensor]:
        """Prepares the problem. Returns a function that launches it on PyTorch's current stream, into out (and lse)."""
        problem = self._problem(shape, FORWARD)
        workspace, size = self._workspace(problem)
        args = _sized(ForwardArgs, q=Tensor.of(q), k=Tensor.of(k), v=Tensor.of(v), o=Tensor.of(out),
                      lse=lse.data_ptr() if lse is not None else None,
                      workspace=workspace.data_ptr() if size else None, workspace_bytes=size, cap=CAP)

        def call(_keep: Any = (q, k, v, out, lse, workspace)) -> torch.Tensor:
            stream = torch.cuda.current_stream().cuda_stream
            self._check(self._lib.fa2_forward(self._context, byref(problem), byref(args), stream))
            return out

        return call

    def backward_call(self, shape: Shape, tensors: Tuple[torch.Tensor, ...], lse: torch.Tensor,
                      gradients: Tuple[torch.Tensor, ...]) -> Callable[[], Tuple[torch.Tensor, ...]]:
        """Does the same for the gradients (dq, dk, dv). tensors: q, k, v, o, d_o."""
        problem = self._problem(shape, BACKWARD)
        workspace, size = self._workspace(problem)
        names = ("q", "k", "v", "o", "d_o", "dq", "dk", "dv")
        args = _sized(BackwardArgs, **dict(zip(names, map(Tensor.of, (*tensors, *gradients)))), lse=lse.data_ptr(),
                      workspace=workspace.data_ptr() if size else None, workspace_bytes=size, cap=CAP)

        def call(_keep: Any = (tensors, lse, gradients, workspace)) -> Tuple[torch.Tensor, ...]:
            stream = torch.cuda.current_stream().cuda_stream
            self._check(self._lib.fa2_backward(self._context, byref(problem), byref(args), stream))
            return gradients

        return call

    def explain(self, shape: Shape, op: int) -> Tuple[str, str]:
        """Returns (rule, variant) of the kernel that this problem gets."""
        problem, explanation = self._problem(shape, op), _sized(Explanation)
        self._check(self._lib.fa2_explain(self._context, byref(problem), byref(explanation)))
        return self._lib.fa2_rule_string(explanation.rule).decode(), explanation.variant.decode()

    def workspace_bytes(self, shape: Shape, op: int) -> int:
        return self._workspace(self._problem(shape, op))[1]

    def _workspace(self, problem: Problem) -> Tuple[torch.Tensor, int]:
        self._check(self._lib.fa2_prepare(self._context, byref(problem)))
        size = c_size_t()
        self._check(self._lib.fa2_workspace_size(self._context, byref(problem), byref(size)))
        return torch.empty(size.value, dtype=torch.uint8, device="cuda"), size.value

    def _problem(self, shape: Shape, op: int) -> Problem:
        return _sized(Problem, op=op, deterministic=int(self._deterministic and op == BACKWARD),
                      **(self.permitted if op == FORWARD else {}),
                      **{**asdict(shape), "dtype": DTYPES.index(shape.dtype)})

    def _check(self, status: int) -> None:
        if status != 0:
            raise Fa2Error(self._lib.fa2_last_message().decode())
