"""Describes array libraries to the extension module. It asks once for each type of tensor."""

import functools
import importlib
import os
import sys
from typing import Any, Callable, List, Optional, Tuple, TypeVar, cast

from . import _native

_Description = Tuple[int, Optional[Callable[..., Any]], Optional[Callable[..., Any]], Optional[Callable[..., Any]],
                     Optional[Callable[..., Any]], Optional[Callable[..., Any]], Optional[Callable[..., Any]]]

_ANY, _TORCH, _TORCH_SUBTYPE = range(3)  # fa2py_kind

_Function = TypeVar("_Function", bound=Callable[..., Any])


def suggesting(function: _Function) -> _Function:
    """Decorates a function: an unknown keyword is refused with the name that is near."""
    code = function.__code__
    known = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        for name in keywords:
            if name not in known:
                raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}"
                                f"{_native.suggestion(name, known)}")
        return function(*args, **keywords)
    return cast(_Function, call)


def need(name: str, title: str, needer: str) -> None:
    """Imports a library for `needer`. If it is not installed, the error says what is missing and how to install it."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ModuleNotFoundError(f"{needer} needs {title}, which this Python does not have: install it by "
                                  f"`{sys.executable} -m pip install {name}`", name=name) from None


def log(message: str, level: int) -> None:
    """Passes a line of the library on. Imports logging here, because that takes as long as the rest of fa2.

    level: a fa2_log_level, 1 to 4.
    """
    import logging
    levels = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)
    logging.getLogger("fa2_attn").log(levels[level - 1], "%s", message)


def warn_of_old_name() -> None:
    """Names an installation from the time when this package was called fa2. PyPI's fa2 has no module _native."""
    for entry in sys.path:
        folder = os.path.join(entry, "fa2")
        if os.path.exists(os.path.join(folder, "_native.abi3.so")):
            import warnings
            warnings.warn(f"{folder} is an older installation of fa2_attn, from when it was called fa2. Both bring the "
                          f"command fa2-tune and the operations torch.ops.fa2: remove it by `{sys.executable} -m pip "
                          "uninstall fa2`, and install fa2-attn again", stacklevel=3)


_in_graph: List[Any] = []  # functions to pass to torch.compile when torch._dynamo is imported


def allow_in_graph(function: Any) -> Any:
    """torch.compiler.allow_in_graph, delayed until torch._dynamo is imported, because importing it takes seconds."""
    if "torch._dynamo" in sys.modules:
        _tell_compiler(function)
    else:
        if not _in_graph:
            sys.meta_path.insert(0, _CompilerFinder())
        _in_graph.append(function)
    return function


def _tell_compiler(*functions: Any) -> None:
    compiler: Any = importlib.import_module("torch.compiler")
    for function in functions:
        compiler.allow_in_graph(function)


class _CompilerFinder:
    """Stays in sys.meta_path until torch._dynamo is imported. Other finders find the module itself."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch._dynamo":
            return None
        others: List[Any] = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(name, path, target) for finder in others)
        spec: Any = next((spec for spec in found if spec is not None), None)
        if spec is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_tell(module: Any) -> None:
            execute(module)
            if self in sys.meta_path:  # removed only now, because a program may look for the module and not import it
                sys.meta_path.remove(self)
            _tell_compiler(*_in_graph)
            _in_graph.clear()

        spec.loader.exec_module = execute_and_tell
        return spec


def describe(kind: type) -> _Description:
    """Returns (kind, empty_like, empty, stream, plain, copy, lends) of a type: see fa2py_framework in native.h."""
    library = sys.modules.get(kind.__module__.partition(".")[0])
    torch = sys.modules.get("torch")
    if torch is not None and issubclass(kind, torch.Tensor):
        return _torch(torch, kind)
    if library is not None and library.__name__ == "cupy":
        return _cupy(library)
    return _ANY, None, None, None, None, None, None


def _torch(torch: Any, kind: type) -> _Description:
    importlib.import_module("fa2_attn.torch")  # gives PyTorch's dispatcher to the extension module

    def empty(like: Any, shape: Tuple[int, ...], dtype: str) -> Any:
        return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)

    def stream(device: int) -> Any:
        return torch.cuda.current_stream(device).cuda_stream

    def copy(tensor: Any) -> Any:
        return tensor.clone(memory_format=torch.contiguous_format)

    def lends(tensor: Any) -> bool:
        return not tensor.is_meta and not tensor.is_nested and tensor.layout is torch.strided

    exact = kind in (torch.Tensor, torch.nn.Parameter)
    # before PyTorch 2.10 the module calls __dlpack__, which refuses tensors that require a gradient: hence detach
    return _TORCH if exact else _TORCH_SUBTYPE, torch.empty_like, empty, stream, torch.Tensor.detach, copy, lends


def _cupy(cupy: Any) -> _Description:
    def empty(like: Any, shape: Tuple[int, ...], dtype: str) -> Any:
        with like.device:
            return cupy.empty(shape, dtype)

    def empty_like(like: Any) -> Any:
        with like.device:
            return cupy.empty_like(like)

    def stream(device: int) -> Any:
        with cupy.cuda.Device(device):
            return cupy.cuda.get_current_stream().ptr

    def copy(array: Any) -> Any:
        with array.device:
            return array.copy()

    return _ANY, empty_like, empty, stream, None, copy, None


def _driver_cuda() -> int:
    """Returns the major CUDA version of the driver, 0 without a driver."""
    import ctypes
    version = ctypes.c_int()
    for name in filter(None, (os.environ.get("FA2_CUDA_LIBRARY"), "libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1")):
        try:
            if ctypes.CDLL(name).cuDriverGetVersion(ctypes.byref(version)) == 0:
                return version.value // 1000
        except (OSError, AttributeError):
            continue
    return 0


def nvrtc() -> Optional[str]:
    """Returns the path of the newest NVRTC in NVIDIA's Python packages that the driver supports, or None."""
    from pathlib import Path
    newest = _driver_cuda() or 13
    for major, folder in ((13, "cu13"), (12, "cuda_nvrtc")):
        for path in sys.path if major <= newest else ():
            found = Path(path or ".", "nvidia", folder, "lib", f"libnvrtc.so.{major}")
            if found.exists():
                return str(found.resolve())
    return None


def find_nvrtc() -> None:
    """Sets FA2_NVRTC_LIBRARY for the library unless the user did. Call it before a device is opened."""
    if not os.environ.get("FA2_NVRTC_LIBRARY"):
        found = nvrtc()
        if found is not None:
            os.environ["FA2_NVRTC_LIBRARY"] = found
