"""fa2's C interface (runtime/include/fa2.h) over PyTorch tensors, by ctypes. For the benchmark only."""
import ctypes
from ctypes import POINTER, byref, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p

import torch

DTYPES = {"fp16": (0, torch.float16), "bf16": (1, torch.bfloat16)}
SIZES = ("batch", "heads_q", "heads_kv", "seq_q", "seq_k", "head_dim")
FEATURES = ("causal", "softcap", "window", "window_left", "window_right")  # in a shape file, those but causal may lack
SOFTCAP = 30.0


class Problem(ctypes.Structure):
    _fields_ = [("op", c_int), ("dtype", c_int), *((name, c_int32) for name in SIZES + FEATURES),
                ("reserved", c_int32 * 19)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("stride_batch", c_int64), ("stride_seq", c_int64), ("stride_head", c_int64)]

    @classmethod
    def of(cls, tensor):
        """A [batch, heads, seq, head_dim] PyTorch tensor, whatever its strides. Borrows its memory."""
        batch, head, seq, _ = tensor.stride()
        return cls(tensor.data_ptr(), batch, seq, head)


class ForwardArgs(ctypes.Structure):
    _fields_ = [(name, Tensor) for name in "qkvo"] + [
        ("lse", c_void_p), ("softmax_scale", c_float), ("workspace", c_void_p), ("workspace_bytes", c_size_t),
        ("softcap", c_float)]


class Config(ctypes.Structure):
    _fields_ = [("database", c_char_p), ("device_plus_one", c_int), ("arch", c_int), ("read_only", c_int),
                ("log", c_void_p), ("log_user", c_void_p)]


class Explanation(ctypes.Structure):
    _fields_ = [("struct_bytes", c_size_t), ("rule", c_int), ("measured", c_int), ("tuned_problem", Problem),
                ("median_us", c_double), ("device", c_char * 128), ("variant", c_char * 256), ("target", c_char * 16),
                ("registers", c_int), ("spill_bytes", c_int), ("smem_bytes", c_int), ("reason", c_char * 512)]


class Fa2Error(RuntimeError):
    """A status other than FA2_OK, with fa2_last_message()."""


class Context:
    """A fa2_context on the device that PyTorch uses. problem arguments are rows of a shape file.

    arch: 0, or an older SM whose kernels are to run here as PTX, chosen by the cost model.
    """

    def __init__(self, library, database, arch=0):
        torch.zeros(1, device="cuda")  # makes PyTorch's CUDA context the current one, which fa2 then takes
        self._lib = ctypes.CDLL(str(library))
        self._lib.fa2_last_message.restype = c_char_p
        self._lib.fa2_rule_string.restype = c_char_p
        for name, args in {"create": (POINTER(Config), POINTER(c_void_p)), "destroy": (c_void_p,)}.items():
            getattr(self._lib, "fa2_context_" + name).argtypes = args
        self._lib.fa2_prepare.argtypes = (c_void_p, POINTER(Problem))
        self._lib.fa2_workspace_size.argtypes = (c_void_p, POINTER(Problem), POINTER(c_size_t))
        self._lib.fa2_forward.argtypes = (c_void_p, POINTER(Problem), POINTER(ForwardArgs), c_void_p)
        self._lib.fa2_explain.argtypes = (c_void_p, POINTER(Problem), POINTER(Explanation))
        self._context = c_void_p()
        config = Config(database=str(database).encode(), read_only=1, arch=arch)
        self._check(self._lib.fa2_context_create(byref(config), byref(self._context)))

    def close(self):
        torch.cuda.synchronize()
        self._lib.fa2_context_destroy(self._context)

    def forward_call(self, shape, q, k, v, out):
        """Prepare the problem; return a function that launches it on PyTorch's current stream."""
        problem = self._problem(shape)
        self._check(self._lib.fa2_prepare(self._context, byref(problem)))
        size = c_size_t()
        self._check(self._lib.fa2_workspace_size(self._context, byref(problem), byref(size)))
        workspace = torch.empty(size.value, dtype=torch.uint8, device="cuda")
        args = ForwardArgs(Tensor.of(q), Tensor.of(k), Tensor.of(v), Tensor.of(out), workspace_bytes=size.value,
                           workspace=workspace.data_ptr() if size.value else None, softcap=SOFTCAP)

        def call(_keep=(q, k, v, out, workspace)):
            stream = torch.cuda.current_stream().cuda_stream
            self._check(self._lib.fa2_forward(self._context, byref(problem), byref(args), stream))
            return out

        return call

    def explain(self, shape):
        """(rule, variant) of the kernel that this problem gets."""
        problem, explanation = self._problem(shape), Explanation(struct_bytes=ctypes.sizeof(Explanation))
        self._check(self._lib.fa2_explain(self._context, byref(problem), byref(explanation)))
        return self._lib.fa2_rule_string(explanation.rule).decode(), explanation.variant.decode()

    @staticmethod
    def _problem(shape):
        numbers = {name: int(shape.get(name) or 0) for name in SIZES + FEATURES}
        return Problem(dtype=DTYPES[shape["dtype"]][0], **numbers)

    def _check(self, status):
        if status != 0:
            raise Fa2Error(self._lib.fa2_last_message().decode())
