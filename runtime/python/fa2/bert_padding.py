"""flash_attn.bert_padding: padded batches to packed rows, and back.

    from fa2.bert_padding import unpad_input, pad_input
    rows, indices, cu_seqlens, longest, used = unpad_input(hidden, mask)      # [T, ...] of [B, S, ...]
    hidden = pad_input(rows, indices, B, S)

Which rows there are is asked of the device, so the caller waits for it. Gradients flow through all of them.
"""

from typing import Any, Optional, Tuple

from ._frameworks import need

need("torch", "PyTorch", __name__)

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["index_first_axis", "index_first_axis_residual", "index_put_first_axis", "pad_input", "unpad_input",
           "unpad_input_for_concatenated_sequences"]


class _Take(torch.autograd.Function):
    """Rows by their numbers, each at most once: so nothing need be summed on the way back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, indices: Tensor) -> Tensor:
        ctx.save_for_backward(indices)
        ctx.count = rows.shape[0]
        return rows.index_select(0, indices)

    @staticmethod
    def backward(ctx: Any, d_taken: Tensor) -> Tuple[Tensor, None]:
        return index_put_first_axis(d_taken, ctx.saved_tensors[0], ctx.count), None


class _Put(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, indices: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(indices)
        return rows.new_zeros((count, *rows.shape[1:])).index_copy_(0, indices, rows)

    @staticmethod
    def backward(ctx: Any, d_put: Tensor) -> Tuple[Tensor, None, None]:
        return index_first_axis(d_put, ctx.saved_tensors[0]), None, None


_take: Any = _Take.apply
_put: Any = _Put.apply


def index_first_axis(input: Tensor, indices: Tensor) -> Tensor:
    """The rows of input [N, ...] that indices [T] names, none of them twice: [T, ...]."""
    taken: Tensor = _take(input, indices)
    return taken


def index_put_first_axis(values: Tensor, indices: Tensor, first_axis_dim: int) -> Tensor:
    """[first_axis_dim, ...] with values [T, ...] at the rows that indices [T] names, and 0 elsewhere."""
    put: Tensor = _put(values, indices, first_axis_dim)
    return put


def index_first_axis_residual(input: Tensor, indices: Tensor) -> Tuple[Tensor, Tensor]:
    """(index_first_axis(input, indices), input without its history)."""
    return index_first_axis(input, indices), input.detach()


def _starts(lengths: Tensor) -> Tuple[Tensor, int]:
    """Where sequences of these lengths begin, and the end: int32 [B + 1]; and the longest."""
    return F.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0)), int(lengths.max()) if lengths.numel() else 0


def unpad_input(hidden_states: Tensor, attention_mask: Tensor, unused_mask: Optional[Tensor] = None
                ) -> Tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """The rows of hidden_states [B, S, ...] that a mask [B, S] has, one sequence behind the other.

    unused_mask [B, S]: further rows that are to have a place.
    Returns rows [T, ...], their numbers in [B * S], cu_seqlens int32 [B + 1], the longest sequence's length, and how
    many of each are attention_mask's, int32 [B].
    """
    every = attention_mask if unused_mask is None else attention_mask + unused_mask
    starts, longest = _starts(every.sum(-1, dtype=torch.int32))
    indices = every.flatten().nonzero().flatten()
    return (index_first_axis(hidden_states.flatten(0, 1), indices), indices, starts, longest,
            attention_mask.sum(-1, dtype=torch.int32))


def unpad_input_for_concatenated_sequences(hidden_states: Tensor, attention_mask_in_length: Tensor
                                           ) -> Tuple[Tensor, Tensor, Tensor, int]:
    """unpad_input where a row of the batch holds several sequences, one behind the other from its beginning.

    attention_mask_in_length: integers [B, S]: a row's first ones are its sequences' lengths, the others 0.
    """
    lengths = attention_mask_in_length.flatten()
    starts, longest = _starts(lengths[lengths.nonzero().flatten()])
    ends = attention_mask_in_length.sum(-1, keepdim=True)
    mask = torch.arange(attention_mask_in_length.shape[-1], device=ends.device) < ends
    indices = mask.flatten().nonzero().flatten()
    return index_first_axis(hidden_states.flatten(0, 1), indices), indices, starts, longest


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """[batch, seqlen, ...] of rows [T, ...] and their numbers, 0 elsewhere: unpad_input undone."""
    padded: Tensor = index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(0, (batch, seqlen))
    return padded
