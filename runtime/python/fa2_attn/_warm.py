"""warm: makes ready what a PyTorch model will call, before its first request."""

from typing import TYPE_CHECKING, Any, Callable, List, Optional

from . import _frameworks, _native

if TYPE_CHECKING:
    from ._native import Context, Explanation


@_frameworks.suggesting
def warm(model: Callable[..., Any], inputs: Any, *, backward: bool = False,
         context: "Optional[Context]" = None) -> "List[Explanation]":
    """Runs a PyTorch model once to see what it calls, and makes the kernel of each call ready.

    inputs: what the model takes: a tuple of its arguments, a dict of its keywords, or one tensor. Their sizes decide
    which problems are made ready; other sizes of the same kind then cost little.
    backward: also the gradients of the model's floating-point outputs. `.grad` of its parameters stays as it is.
    context: where the kernels are made ready. None: the default context of the inputs' device.

    The run launches no kernel of attention: its calls give zeros. So it writes nothing to caches. Calls of
    fa2_attn.distributed, attention_partial and attention_backward are not seen, and run as they are. Kernels that are
    not in the database are compiled, a second each, and stored there, so that other processes find them, too.

    Returns a dict for each problem, as explain does. Calls with strides that no tensor map has (fa2_prepare in fa2.h)
    may still compile once.
    """
    from . import _recording
    made: "List[Explanation]" = []
    for device, problem in _recording.problems_of(model, inputs, backward):
        own = _native.default_context(device) if context is None else context
        own.prepare(problem)
        made.append(own.explain(problem))
    return made
