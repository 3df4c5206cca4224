#!/usr/bin/env python3
"""Adds a small feature, element type and tuning axis to a copy of the product, and tunes them on the software device.

    toy_feature.py FOLDER LIBFA2SIM [CMAKE-OPTION...]
    toy_feature.py      only checks that the documents name the files, and that few files name a feature

FOLDER gets the copy and its build.

- toy_feature.patch is the feature: a number per head is added to each of the head's scores, forward only.
- toy_dtype.patch is the element type: fp16 whose two bytes are in the other order.
- toy_axis.patch is the axis: whether O is rescaled for every tile of keys, or only when a maximum has grown enough.

Each patch may touch only so many product files. A document names them. The verification of the copy must pass the
kernels. It must find a kernel that reads another head's number, one that multiplies elements without putting their
bytes in order, and one that never rescales O. Where Python's headers are, the extension module must know the feature's
keyword.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
from typing import NamedTuple

TESTS = pathlib.Path(__file__).resolve().parent
PRODUCT = ("cache", "gen", "runtime", "templates", "tuner")
SHAPE = "Hq=2,Hkv=1,Sq=48,Sk=80,D=16"


class Toy(NamedTuple):
    patch: str
    files_most: int
    document: str
    section: str  # of the document, which names the files
    name: str     # which stands for NAME there
    field: str    # of the shape
    word: str     # of the variants that have it, as `fa2-tune show` prints them
    kernel: str   # the file that has `right`, which `wrong` replaces
    right: str
    wrong: str
    status: int   # of tuning with that fault: 1 if all variants have it


TOYS = (
    Toy("toy_feature.patch", 10, "DEVELOPING.md", "Add a feature", "head_bias", "head_bias=1", "fwd_",
        "templates/forward/terms.cuh", "p.features.head_bias[coord.query_head(p, row)]", "p.features.head_bias[0]", 1),
    Toy("toy_dtype.patch", 12, "templates/README.md", "How to add an element type", "swapped", "dtype=swapped",
        "fwd_", "templates/lib/mma.cuh", "own, swapped::swap(b0)", "own, b0", 1),
    Toy("toy_axis.patch", 5, "templates/README.md", "How to add a tuning axis", "eager", "causal=1", "eager=1",
        "templates/forward/softmax.cuh", "if (kEager || __any", "if (!kEager && __any", 0),
)
# The most product files, without examples, READMEs and shape files, that may have the word of a feature.
NAMED_MOST = {"alibi": 12, "sinks": 12, "softcap": 12}
KEYWORD = """
import inspect, _native
assert ("head_bias", "head_bias", False, False, False) in _native.OPERANDS, _native.OPERANDS
assert "head_bias" in inspect.signature(_native.attention).parameters
assert "head_bias: float32 [Hq]" in _native.attention.__doc__
"""


def run(*command, status=0, cwd=None, **environment):
    """Returns what a command prints. Ends the test if its exit status is another one."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env={**os.environ, **environment}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True, check=False)
    if done.returncode != status:
        sys.exit(f"{' '.join(words)}: exit status {done.returncode}, not {status}\n{done.stdout[-4000:]}")
    return done.stdout


def check_document(toy):
    text = (TESTS.parent / toy.document).read_text(encoding="utf-8")
    section = text.partition(f"\n## {toy.section}\n")[2].partition("\n## ")[0]
    patch = (TESTS / toy.patch).read_text(encoding="utf-8")
    files = re.findall(r"^\+\+\+ b/(\S+)", patch, re.M)
    missing = [name for name in files if f"`{name.replace(toy.name, 'NAME')}`" not in section]
    if missing or not files:
        sys.exit(f'{toy.document}, "{toy.section}", does not name {", ".join(missing) or "anything"}')


def check_named():
    """Fails if more files name a feature than the lists need: code asks the lists."""
    texts = []
    for path in (path for name in PRODUCT for path in (TESTS.parent / name).rglob("*") if path.is_file()):
        if path.suffix != ".pyc" and path.name != "README.md" and not {"examples", "share"} & set(path.parts):
            texts.append(path.read_text(encoding="utf-8", errors="replace"))
    for word, most in NAMED_MOST.items():
        count = sum(re.search(rf"\b{word}\b", text, re.I) is not None for text in texts)
        print(f"{count} files name {word}, at most {most}")
        if not 0 < count <= most:
            sys.exit(f"{word}: let the files ask the lists (DEVELOPING.md, \"Add a feature\")")


def tune(build, sim, toy, status, overlay):
    """Returns the outcomes of the variants that have the toy; `status` is that of tuning."""
    def command(*words, status):
        return run(build / "tuner/fa2-tune", *words, "--shape", f"{SHAPE},{toy.field}", status=status, cwd=build,
                   FA2_CUDA_LIBRARY=str(sim), FA2_SIM_CARD="rtx3060", FA2_GEN_PATH=str(overlay), FA2_SHARE="",
                   FA2_DB=str(build / f"{overlay.name}_{toy.patch}.db"))
    command("--device", "0", status=status)
    return set(re.findall(rf"^[* ] +(\w+) .* {toy.word}", command("show", status=0), re.M))


def check(said, pattern):
    if re.search(pattern, said) is None:
        sys.exit(f"not said: {pattern}\n{said}")


def apply(toy, copy):
    said = run("patch", "-p1", "-d", copy, "-i", TESTS / toy.patch)
    touched = re.findall(r"^patching file (\S+)", said, re.M)
    print(f"{toy.patch} touches {len(touched)} product files: {', '.join(touched)}")
    if not 0 < len(touched) <= toy.files_most:
        sys.exit(f"at most {toy.files_most} are wanted")


def build_copy(copy, build, options):
    has_python = pathlib.Path(sysconfig.get_path("include"), "Python.h").exists()
    python = [f"-DFA2_PYTHON={'ON' if has_python else 'OFF'}", f"-DPython_EXECUTABLE={sys.executable}"]
    run("cmake", "-S", copy, "-B", build, "-DFA2_TESTS=OFF", *python, *options)
    run("cmake", "--build", build, "-j2", "--target", "fa2-tune", *(["fa2_python"] if has_python else []))
    if has_python:
        run(sys.executable, "-c", KEYWORD, cwd=build / "runtime/python")
        check((build / "runtime/python/_native.pyi").read_text(encoding="utf-8"), "head_bias: Any = None")


def verify(toy, copy, build, sim):
    """Tunes kernels as they are, and then with a fault that the verification must find."""
    few, wrong = TESTS / "sim/few", copy.parent / "wrong"
    outcomes = tune(build, sim, toy, 0, few)
    if outcomes != {"ok"}:
        sys.exit(f"{toy.word}: {outcomes or 'no variant'}")
    shutil.copytree(few, wrong)
    (wrong / toy.kernel).parent.mkdir(parents=True)
    text = (copy / toy.kernel).read_text(encoding="utf-8")
    if toy.right not in text:
        sys.exit(f"{toy.kernel} lacks {toy.right}")
    (wrong / toy.kernel).write_text(text.replace(toy.right, toy.wrong), encoding="utf-8")
    outcomes = tune(build, sim, toy, toy.status, wrong)
    if outcomes != {"wrong"}:
        sys.exit(f"{toy.word} with a fault: {outcomes or 'no variant'}")
    shutil.rmtree(wrong)


def main(folder, sim, *options):
    folder, sim = pathlib.Path(folder).resolve(), pathlib.Path(sim).resolve()
    copy, build = folder / "copy", folder / "build"
    shutil.rmtree(folder, ignore_errors=True)
    for name in PRODUCT:
        shutil.copytree(TESTS.parent / name, copy / name)
    shutil.copy(TESTS.parent / "CMakeLists.txt", copy)
    for toy in TOYS:
        apply(toy, copy)
    build_copy(copy, build, options)
    for toy in TOYS:
        verify(toy, copy, build, sim)
    shutil.rmtree(folder)


if __name__ == "__main__":
    for each in TOYS:
        check_document(each)
    if len(sys.argv) > 1:
        main(*sys.argv[1:])
    else:
        check_named()
