"""flash_attn.bert_padding: packs padded batches into rows, and unpacks them.

    from fa2_attn.bert_padding import unpad_input, pad_input
    rows, indices, cu_seqlens, longest, used = unpad_input(hidden, mask)      # [T, ...] of [B, S, ...]
    hidden = pad_input(rows, indices, B, S)

Packing waits for the device, to learn which rows are used. All functions have gradients.
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
    """Takes rows by their numbers. Each row is taken at most once, so that backward need not sum."""

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
    """Returns the rows [T, ...] of input [N, ...] that indices [T] names. No index may occur twice."""
    taken: Tensor = _take(input, indices)
    return taken


def index_put_first_axis(values: Tensor, indices: Tensor, first_axis_dim: int) -> Tensor:
    """Returns [first_axis_dim, ...] with values [T, ...] at the rows that indices [T] names, and 0 elsewhere."""
    put: Tensor = _put(values, indices, first_axis_dim)
    return put


def index_first_axis_residual(input: Tensor, indices: Tensor) -> Tuple[Tensor, Tensor]:
    """Returns (index_first_axis(input, indices), input.detach())."""
    return index_first_axis(input, indices), input.detach()


def _starts(lengths: Tensor) -> Tuple[Tensor, int]:
    """Returns where sequences of these lengths begin, and the end, as int32 [B + 1]; and the longest length."""
    return F.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0)), int(lengths.max()) if lengths.numel() else 0


def unpad_input(hidden_states: Tensor, attention_mask: Tensor, unused_mask: Optional[Tensor] = None
                ) -> Tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """Packs the rows of hidden_states [B, S, ...] at which attention_mask [B, S] is set, one sequence after the other.

    unused_mask: [B, S], further rows to keep.
    Returns rows [T, ...], their numbers in [B * S], cu_seqlens int32 [B + 1], the longest sequence's length, and the
    number of rows of each sequence in attention_mask, int32 [B].
    """
    every = attention_mask if unused_mask is None else attention_mask + unused_mask
    starts, longest = _starts(every.sum(-1, dtype=torch.int32))
    indices = every.flatten().nonzero().flatten()
    return (index_first_axis(hidden_states.flatten(0, 1), indices), indices, starts, longest,
            attention_mask.sum(-1, dtype=torch.int32))


def unpad_input_for_concatenated_sequences(hidden_states: Tensor, attention_mask_in_length: Tensor
                                           ) -> Tuple[Tensor, Tensor, Tensor, int]:
    """unpad_input for batches whose rows hold several sequences, one after the other from the beginning of the row.

    attention_mask_in_length: integers [B, S]. A row begins with the lengths of its sequences; the other numbers are 0.
    """
    lengths = attention_mask_in_length.flatten()
    starts, longest = _starts(lengths[lengths.nonzero().flatten()])
    ends = attention_mask_in_length.sum(-1, keepdim=True)
    mask = torch.arange(attention_mask_in_length.shape[-1], device=ends.device) < ends
    indices = mask.flatten().nonzero().flatten()
    return index_first_axis(hidden_states.flatten(0, 1), indices), indices, starts, longest


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """Undoes unpad_input: returns [batch, seqlen, ...] from rows [T, ...] and their numbers, with 0 elsewhere."""
    padded: Tensor = index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(0, (batch, seqlen))
    return padded
