from os import PathLike
from typing import (Any, Callable, Dict, Iterable, List, Literal, NoReturn, Optional, Sequence, Tuple, TypedDict,
                    TypeVar, Union, final, overload)

__version__: str

_Tensor = TypeVar("_Tensor")
_Layout = Literal["bshd", "bhsd"]
_Window = Union[Sequence[Optional[int]], Iterable[Any], None]  # two numbers, also in an array or a tensor

class Error(RuntimeError):
    status: str

class Explanation(TypedDict):
    """The result of Context.explain and fa2.explain. fa2.explain says which values can be None."""
    problem: Dict[str, Any]
    rule: Literal["exact", "nearest", "arch", "shipped", "default"]
    measured: bool
    tuned_problem: Optional[Dict[str, Any]]
    median_us: float
    estimate_us: float
    device: str
    variant: str
    target: str
    registers: int
    spill_bytes: int
    smem_bytes: int
    reason: str
    runner_up_us: float
    runner_up: str
    model_us: Optional[float]
    candidates: Optional[List[Dict[str, Any]]]

@final
class Context:
    def __new__(cls, database: Union[str, bytes, PathLike[str], None] = None, *, device: int = 0,
                arch: Union[str, int, None] = None, read_only: bool = False,
                log: Optional[Callable[[str], Any]] = None, never_compile: bool = False,
                check_numbers: bool = False) -> Context: ...
    @property
    def device(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def prepare(self, problem: Dict[str, Any], /) -> None: ...
    def workspace_size(self, problem: Dict[str, Any], /) -> int: ...
    def explain(self, problem: Dict[str, Any], /) -> Explanation: ...
    def close(self) -> None: ...
    def __enter__(self) -> Context: ...
    def __exit__(self, *unused: Any) -> None: ...

@overload
def attention(q: _Tensor, k: Any, v: Any, *, causal: bool = False, window: _Window = None, softcap: Optional[float] = None,
              scale: Optional[float] = None, layout: _Layout = "bshd", alibi_slopes: Any = None, sinks: Any = None,
              seqused_k: Any = None, bias: Any = None, dropout_seed: Any = None, cu_seqlens_q: Any = None,
              cu_seqlens_k: Any = None, block_table: Any = None, leftpad: Any = None, cache_rows: Any = None,
              k_new: Any = None, v_new: Any = None, rotary_cos: Any = None, rotary_sin: Any = None, dropout_p: Optional[float] = 0.0,
              max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None, rotary_interleaved: bool = False,
              out: Optional[_Tensor] = None,
              return_lse: Literal[False] = False, context: Optional[Context] = None,
              stream: Any = None) -> _Tensor: ...
@overload
def attention(q: _Tensor, k: Any, v: Any, *, causal: bool = False, window: _Window = None, softcap: Optional[float] = None,
              scale: Optional[float] = None, layout: _Layout = "bshd", alibi_slopes: Any = None, sinks: Any = None,
              seqused_k: Any = None, bias: Any = None, dropout_seed: Any = None, cu_seqlens_q: Any = None,
              cu_seqlens_k: Any = None, block_table: Any = None, leftpad: Any = None, cache_rows: Any = None,
              k_new: Any = None, v_new: Any = None, rotary_cos: Any = None, rotary_sin: Any = None, dropout_p: Optional[float] = 0.0,
              max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None, rotary_interleaved: bool = False,
              out: Optional[_Tensor] = None,
              return_lse: Literal[True], context: Optional[Context] = None,
              stream: Any = None) -> Tuple[_Tensor, _Tensor]: ...
@overload
def attention(q: _Tensor, k: Any, v: Any, *, causal: bool = False, window: _Window = None, softcap: Optional[float] = None,
              scale: Optional[float] = None, layout: _Layout = "bshd", alibi_slopes: Any = None, sinks: Any = None,
              seqused_k: Any = None, bias: Any = None, dropout_seed: Any = None, cu_seqlens_q: Any = None,
              cu_seqlens_k: Any = None, block_table: Any = None, leftpad: Any = None, cache_rows: Any = None,
              k_new: Any = None, v_new: Any = None, rotary_cos: Any = None, rotary_sin: Any = None, dropout_p: Optional[float] = 0.0,
              max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None, rotary_interleaved: bool = False,
              out: Optional[_Tensor] = None,
              return_lse: bool, context: Optional[Context] = None,
              stream: Any = None) -> Union[_Tensor, Tuple[_Tensor, _Tensor]]: ...
def attention_backward(d_out: _Tensor, q: _Tensor, k: Any, v: Any, out: Any, lse: Any, *,
                       causal: bool = False, window: _Window = None, softcap: Optional[float] = None,
                       scale: Optional[float] = None, layout: _Layout = "bshd", alibi_slopes: Any = None, sinks: Any = None,
                       seqused_k: Any = None, bias: Any = None, dropout_seed: Any = None, cu_seqlens_q: Any = None,
                       cu_seqlens_k: Any = None, block_table: Any = None, leftpad: Any = None, cache_rows: Any = None,
                       k_new: Any = None, v_new: Any = None, rotary_cos: Any = None, rotary_sin: Any = None, dropout_p: Optional[float] = 0.0,
                       max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None, rotary_interleaved: bool = False,
                       context: Optional[Context] = None,
                       stream: Any = None, deterministic: bool = False, dq: Any = None, dk: Any = None,
                       dv: Any = None, dsinks: bool = False, dbias: bool = False) -> Tuple[Any, ...]: ...
def launch(q: Any, k: Any, v: Any, **keywords: Any) -> Any: ...
def problem(q: Any, k: Any, v: Any, *, causal: bool = False, window: _Window = None, softcap: Optional[float] = None,
            scale: Optional[float] = None, layout: _Layout = "bshd", alibi_slopes: Any = None, sinks: Any = None,
            seqused_k: Any = None, bias: Any = None, dropout_seed: Any = None, cu_seqlens_q: Any = None,
            cu_seqlens_k: Any = None, block_table: Any = None, leftpad: Any = None, cache_rows: Any = None,
            k_new: Any = None, v_new: Any = None, rotary_cos: Any = None, rotary_sin: Any = None, dropout_p: Optional[float] = 0.0,
            max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None, rotary_interleaved: bool = False,
            op: Literal["forward", "backward"] = "forward",
            deterministic: bool = False) -> Dict[str, Any]: ...
def dropout_mask(problem: Dict[str, Any], dropout_p: float, dropout_seed: int, offset: int = 0, /) -> bytearray: ...
def check_differentiable(problem: Dict[str, Any], /) -> None: ...
def problem_keys() -> Dict[str, str]: ...
def problem_text(problem: Dict[str, Any], /) -> str: ...
def raise_status(status: str, message: str, /) -> NoReturn: ...
def default_context(device: int, /) -> Context: ...
def set_default_context(context: Context, /) -> None: ...
def window(window: Any, /) -> Tuple[int, int]: ...
def keep(object: Any, /) -> Any: ...
def set_torch(dispatcher: Callable[..., Any], autograd: Callable[..., Any], plain_autograd: Callable[..., Any],
              grad_enabled: Callable[[], bool], deterministic: Callable[[], bool],
              *watchers: Callable[[], Any]) -> None: ...
def plain_forward(ctx: Any, settings: Tuple[Any, ...], /, *tensors: Any) -> Any: ...
def plain_node(type: type, /) -> None: ...
def make_sdpa(module: Any, in_place: bool, /) -> Callable[..., Any]: ...
