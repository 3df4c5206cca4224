"""PyTorch's context_parallel, whose attention is fa2_attn.distributed's.

    from fa2_attn.context_parallel import context_parallel
    with context_parallel(mesh, buffers=[tokens, labels], buffer_seq_dims=[1, 1]):
        loss = model(tokens, labels)       # F.scaled_dot_product_attention within sees the ranks' rows

PyTorch's own context_parallel shards the buffers, so context_parallel_unshard works as ever.
Its attention is chosen by a table inside of a private function, to which nothing can be added. So within the context
torch.nn.functional.scaled_dot_product_attention is another function, as it is in PyTorch's own.
"""

import contextlib
from typing import Any, Callable, Iterator, List, Optional, Set

from ._frameworks import need

need("torch", "PyTorch", __name__)

import torch
import torch.nn.functional as F
from torch import Tensor

from . import distributed

__all__ = ["context_parallel"]


def _attention(group: Any, layout: str, schedule: str) -> Callable[..., Tensor]:
    def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None,
                                     dropout_p: float = 0.0, is_causal: bool = False, scale: Optional[float] = None,
                                     enable_gqa: bool = False) -> Tensor:
        if attn_mask is not None:
            raise NotImplementedError("attn_mask is given; attention over several ranks has is_causal alone")
        if key.shape[1] != query.shape[1] and not enable_gqa:
            raise ValueError(f"query has {query.shape[1]} heads and key {key.shape[1]}; set enable_gqa")
        q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
        out, _ = distributed._attend(q, k, v, {"is_causal": is_causal, "enable_gqa": enable_gqa}, group=group,
                                     layout=layout, schedule=schedule, causal=is_causal, scale=scale,
                                     dropout_p=dropout_p)
        return out.transpose(1, 2)

    return scaled_dot_product_attention


def _layout_of(positions: Tensor, group: Any) -> str:
    """Returns the layout in which PyTorch has sharded a sequence."""
    mine = positions.cpu()
    length = len(mine) * torch.distributed.get_world_size(group)
    for layout in ("zigzag", "contiguous"):
        try:
            if torch.equal(distributed.positions(length, layout=layout, group=group), mine):
                return layout
        except ValueError:
            pass  # the length does not fit this layout
    raise NotImplementedError("PyTorch has given this rank other rows than those of layout 'zigzag' or 'contiguous': pad "
                              f"the sequence to a multiple of {2 * torch.distributed.get_world_size(group)}")


def _agreed_layout_of(positions: Tensor, group: Any) -> str:
    """The same, or one error on all ranks if one of them has none."""
    layout, wrong, mine = "", None, None
    try:
        layout = _layout_of(positions, group)
        mine = (("function", "context_parallel"), ("layout", repr(layout)), ("rows", str(len(positions))))
    except NotImplementedError as error:
        wrong = error
    distributed._agree_on(mine, wrong, group)
    return layout


@contextlib.contextmanager
def context_parallel(mesh: Any, *, buffers: List[Tensor], buffer_seq_dims: List[int],
                     no_restore_buffers: Optional[Set[Tensor]] = None, schedule: str = "auto") -> Iterator[None]:
    """Shards buffers as PyTorch's context_parallel does, and computes attention by fa2_attn.distributed.attention.

    mesh, buffers, buffer_seq_dims, no_restore_buffers: as in torch.distributed.tensor.experimental.context_parallel. At
    least one buffer is given: its rows say in which layout the sequence is divided. mesh has one dimension.
    schedule: see distributed.attention.

    Within, F.scaled_dot_product_attention has no attn_mask. Its other arguments are as ever, with the rows of this rank.
    """
    from torch.distributed.tensor.experimental import context_parallel as theirs
    if not buffers:
        raise ValueError("buffers is empty; give what is to be sharded")
    if len(buffers) != len(buffer_seq_dims):
        raise ValueError(f"buffer_seq_dims has {len(buffer_seq_dims)} numbers for {len(buffers)} buffers")
    places = torch.arange(buffers[0].shape[buffer_seq_dims[0]], device=buffers[0].device)
    with theirs(mesh, buffers=[*buffers, places], buffer_seq_dims=[*buffer_seq_dims, 0],
                no_restore_buffers={*(no_restore_buffers or ()), places}):
        group, replaced = mesh.get_group(), F.scaled_dot_product_attention
        layout = _agreed_layout_of(places, group)
        F.scaled_dot_product_attention = _attention(group, layout, schedule)  # type: ignore[assignment]
        try:
            yield
        finally:
            F.scaled_dot_product_attention = replaced
