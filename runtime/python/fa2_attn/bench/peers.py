"""Calls the other implementations of this machine: PyTorch's backends, FlexAttention, FlashAttention-2 to -4, xformers.

A peer is a differentiable function of q, k and v, [batch, heads, seq, head_dim]. Its output has that order, too.
`refusal` says why a peer does not take a shape. Other obstacles raise the peer's own errors.
"""

import importlib
import importlib.util
from typing import Any, Callable, Dict, List, Optional

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from .shapes import CAP, Shape

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

# In order of preference: fa2's output is compared with the first one that ran.
SDPA = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
# The modules of a peer, the first of which is taken. FlashAttention-3 is installed from source, or by the package
# fa3-fwd, which has no backward. FlashAttention-4 is the package flash-attn-4.
_PACKAGES = {
    "flash_attn": ("flash_attn.flash_attn_interface",),
    "fa3": ("flash_attn_interface", "fa3_fwd_interface"),
    "fa4": ("flash_attn.cute",),
    "xformers": ("xformers",),
}
ALL = (*SDPA, "flex", *_PACKAGES)
_MATH_BYTES = 2 << 30  # limit of one copy of the scores; "math" holds several copies


def _module(name: str) -> Optional[str]:
    """Returns the name of a peer's module, None if it is not installed."""
    for module in _PACKAGES[name]:
        try:
            if importlib.util.find_spec(module):
                return module
        except ModuleNotFoundError:  # a package above it is missing
            pass
    return None


def here() -> List[str]:
    """Returns the peers of this machine."""
    return [name for name in ALL if name not in _PACKAGES or _module(name)]


def refusal(name: str, shape: Shape) -> Optional[str]:
    if name in SDPA and shape.causal and shape.seq_q != shape.seq_k:
        return "PyTorch aligns the causal mask top-left"
    if shape.cap() and (name in SDPA or name == "xformers"):
        return "does not cap scores"
    if name in SDPA and name != "flash" and shape.window or name == "xformers" and shape.window:
        return "has no window"
    scores = 4 * shape.batch * shape.heads_q * shape.seq_q * shape.seq_k
    if name == "math" and scores > _MATH_BYTES:
        return f"its scores would take {scores / 2**30:.0f} GiB"
    if name == "xformers" and shape.heads_q != shape.heads_kv:
        return "shared keys are another interface of it"
    return None


def _sdpa(name: str, shape: Shape) -> Attention:
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(SDPA[name]):
            return F.scaled_dot_product_attention(q, k, v, is_causal=bool(shape.causal),
                                                  enable_gqa=shape.heads_q != shape.heads_kv)

    return attention


def _flash_window(shape: Shape) -> Attention:
    """PyTorch's bundled FlashAttention-2, by the operation that scaled_dot_product_attention calls."""
    left, right = shape.bounds()

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        out = torch.ops.aten._flash_attention_forward(
            q, k, v, None, None, q.shape[1], k.shape[1], 0.0, bool(shape.causal), False, window_size_left=left,
            window_size_right=right)[0]
        return torch.transpose(out, 1, 2)

    return attention


def _flex(shape: Shape) -> Attention:
    """FlexAttention, compiled for this shape."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    left, right = shape.bounds()
    offset = shape.seq_k - shape.seq_q

    def visible(_b: torch.Tensor, _h: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        seen = j >= 0
        if right is not None:
            seen = seen & (j <= i + offset + right)
        if left is not None:
            seen = seen & (j >= i + offset - left)
        return seen

    def capped(score: torch.Tensor, *_places: torch.Tensor) -> torch.Tensor:
        return CAP * torch.tanh(score / CAP)

    masked = left is not None or right is not None
    mask = create_block_mask(visible, None, None, shape.seq_q, shape.seq_k) if masked else None
    torch._dynamo.reset()  # because it stops compiling a function after eight shapes
    torch._functorch.config.donated_buffer = False  # because several backward calls use one forward here
    compiled: Any = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(q, k, v, score_mod=capped if shape.cap() else None, block_mask=mask,
                                    enable_gqa=shape.heads_q != shape.heads_kv)


def _flash_attn(name: str, shape: Shape) -> Attention:
    """FlashAttention-2, -3 or -4: one function by name, whose window is unbounded at -1, in version 4 at None."""
    function = importlib.import_module(_module(name) or name).flash_attn_func
    window = tuple(-1 if bound is None and name != "fa4" else bound for bound in shape.bounds())
    options: Dict[str, Any] = {**({"window_size": window} if shape.window else {}), **shape.cap()}

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        out = function(q, k, v, causal=bool(shape.causal), **options)
        first: torch.Tensor = out[0] if isinstance(out, tuple) else out  # some versions return LSE, too
        return first.transpose(1, 2)

    return attention


def _xformers(shape: Shape) -> Attention:
    from xformers.ops import memory_efficient_attention
    from xformers.ops.fmha import attn_bias

    bias = attn_bias.LowerTriangularFromBottomRightMask() if shape.causal else None

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        out: torch.Tensor = memory_efficient_attention(q, k, v, attn_bias=bias)
        return out.transpose(1, 2)

    return attention


def make(name: str, shape: Shape) -> Attention:
    """Returns the peer for a shape that it does not refuse. Passes on its exceptions."""
    if name == "flash" and shape.window:
        return _flash_window(shape)
    if name in SDPA:
        return _sdpa(name, shape)
    if name in ("flex", "xformers"):
        return (_flex if name == "flex" else _xformers)(shape)
    return _flash_attn(name, shape)
