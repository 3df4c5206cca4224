"""Runs fa2-tune, the program inside this package: as a command, and to get its answers."""

import os
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Optional, Union, cast

# Functions import modules that only they need, so that `import fa2_attn` is quick.

from . import _frameworks, _native

if TYPE_CHECKING:
    from ._native import Explanation

# The program lies beside the extension module, which may be in another folder than this file.
_PROGRAM = os.path.join(os.path.dirname(_native.__file__), "bin", "fa2-tune")
_SAYS = "fa2-tune: "  # its messages begin so
_FAILED, _WRONG_ARGUMENTS, _NO_DEVICE = 1, 2, 3  # its exit statuses

Problem = Union[str, Mapping[str, Any]]


def main() -> None:
    """The command fa2-tune: replaces this process by the program."""
    import signal

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and the program would inherit that
    _frameworks.find_nvrtc()
    os.execv(_PROGRAM, [_PROGRAM, *sys.argv[1:]])


def _database(database: Union[str, "os.PathLike[str]", None]) -> List[str]:
    return [] if database is None else ["--db", os.fspath(database)]


def _shape(problem: Problem) -> str:
    return problem if isinstance(problem, str) else _native.problem_text(dict(problem))


def _in_python(said: str) -> str:
    """Replaces fa2-tune's options by Python's arguments in a message."""
    for option, argument in (("db", "database"), ("device", "device"), ("arch", "arch"), ("jobs", "jobs"),
                             ("budget", "budget")):
        said = said.replace(f'--{option} "', f'{argument} "')
    return said.replace("--db or FA2_DB", "database= or FA2_DB")


def _error(status: int, said: str) -> Exception:
    lines = (line[len(_SAYS):] if line.startswith(_SAYS) else line for line in said.strip().split("\n"))
    message = _in_python("\n".join(lines)) or f"fa2-tune ended with status {status}"
    if status == _WRONG_ARGUMENTS:
        return ValueError(message)
    error = _native.Error(message)
    error.status = "FA2_E_NO_DEVICE" if status == _NO_DEVICE else "FA2_E_DATABASE"
    return error


def _ask(command: str, *arguments: str) -> Any:
    import json
    import subprocess
    _frameworks.find_nvrtc()
    done = subprocess.run([_PROGRAM, command, *arguments, "--json"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, check=False)
    explains = command == "explain" and done.returncode == _FAILED and done.stdout.startswith("[{")
    if done.returncode != 0 and not explains:  # "a call would fail" is an answer, too
        raise _error(done.returncode, done.stderr)
    return json.loads(done.stdout)


@_frameworks.suggesting
def winners(database: Union[str, "os.PathLike[str]", None] = None) -> List[Dict[str, Any]]:
    """Returns the winners of a tuning database as dicts: device, problem, variant, time, source.

    database: a path; ValueError if there is no such file. None: the default one. Returns [] if there is none, because
    nothing was tuned yet.
    """
    try:
        found: List[Dict[str, Any]] = _ask("list", *_database(database))
    except ValueError as error:
        # fa2-tune's message: its status alone does not tell
        if database is not None or ": there is no such database; " not in str(error):
            raise
        found = []
    return found


def _fields(text: str) -> Dict[str, Any]:
    """Returns the fields of a problem's text "B=1 Hq=8 dtype=fp16"."""
    names = _native.problem_keys()
    pairs = (pair.partition("=") for pair in text.split())
    return {names[key]: int(value) if value.lstrip("-").isdigit() else value for key, _, value in pairs}


def explain_offline(problem: Mapping[str, Any], arch: Union[str, int],
                    database: Union[str, "os.PathLike[str]", None] = None) -> "Explanation":
    """Explains a problem as Context.explain does. fa2-tune itself tells more: all rejected variants, and why."""
    name = arch if isinstance(arch, str) else f"sm_{arch}"
    if name == "all" or "," in name:
        raise ValueError(f"arch={arch!r}: explain() answers for one SM, such as 'sm_86'")
    answer = _ask("explain", "--arch", name, "--shape", _shape(problem), *_database(database))[0]
    if answer["rule"] is None:
        _native.raise_status(answer["status"], answer["message"])
    tuned = answer["tuned_for"]
    kept = ("rule", "reason", "measured", "estimate_us", "variant", "smem_bytes", "model_us", "candidates")
    numbers = ("median_us", "registers", "spill_bytes", "runner_up_us")  # None becomes 0, as in fa2_explanation
    return cast("Explanation", {**{key: answer[key] for key in kept}, **{key: answer[key] or 0 for key in numbers},
                                "problem": _fields(answer["problem"]),
                                "tuned_problem": None if tuned is None else _fields(tuned),
                                "device": answer["tuned_on"] or answer["device"], "target": f"sm_{answer['sm']}",
                                "runner_up": answer["runner_up"] or ""})


@_frameworks.suggesting
def tune(problems: Union[Problem, Iterable[Problem]] = (), *, preset: Union[str, Iterable[str]] = (),
         device: int = 0, arch: Optional[str] = None,
         database: Union[str, "os.PathLike[str]", None] = None, jobs: Optional[int] = None,
         budget: Optional[float] = None, progress: Optional[Callable[[str], Any]] = None) -> Any:
    """Measures which kernels are the best ones here, and stores them in the database.

    problems: one or several. Each is a dict (fa2_attn.problem, fa2_attn.prepare) or a text
    "B=1,Hq=8,Sq=512,D=64,causal=1".
    preset: "seeds", "paper", "quick", "llm", "vision", "diffusion". Without problems and presets: seeds.
    device: the GPU to measure on.
    arch: "sm_80,sm_86" instead compiles for these SMs without a GPU, and the cost model chooses.
    jobs: the number of compiling threads; 0 or None: all processors.
    budget: seconds after which tuning stops. A later call continues.
    progress: a function that is called with each line of progress. Default: the lines go to sys.stderr.

    Returns what `fa2-tune --json` prints. If it is interrupted, finished measurements are kept.
    Contexts notice after a second, and use new results for problems that are new to them. For known problems they keep
    their kernels; set_default_context(Context()) starts anew.
    """
    command = [_PROGRAM, *(["tune", "--device", str(device)] if arch is None else ["build", "--arch", arch])]
    for problem in [problems] if isinstance(problems, (str, Mapping)) else problems:
        command += ["--shape", _shape(problem)]
    for name in [preset] if isinstance(preset, str) else preset:
        command += ["--preset", name]
    if jobs is not None:
        command += ["--jobs", str(jobs)]
    if budget is not None:
        command += ["--budget", str(budget)]
    _frameworks.find_nvrtc()
    return _run([*command, *_database(database), "--json"], progress or _to_stderr)


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


def _run(command: List[str], progress: Callable[[str], Any]) -> Any:
    import json
    import subprocess
    import threading
    output: List[str] = []
    last = held = ""  # held: a message. The last one is the error that is raised
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True) as process:
        assert process.stdout is not None and process.stderr is not None
        reader = threading.Thread(target=lambda pipe: output.append(pipe.read()), args=(process.stdout,))
        reader.start()
        try:
            for line in process.stderr:
                if held:
                    progress(held)
                last = _in_python(line.rstrip("\n"))
                held = last if last.startswith(_SAYS) else ""
                if not held:
                    progress(last)
        except BaseException:  # Ctrl-C, or progress failed: fa2-tune stores its measurements when it is terminated
            process.terminate()
            raise
        finally:
            reader.join()
    if process.returncode != 0:
        raise _error(process.returncode, last)
    if held:
        progress(held)
    return json.loads(output[0])
