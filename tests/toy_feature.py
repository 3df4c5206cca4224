#!/usr/bin/env python3
"""Adds a small feature to a copy of the product, and builds and tunes the copy on the software device.

    toy_feature.py FOLDER LIBFA2SIM [CMAKE-OPTION...]
    toy_feature.py      only checks that README.md, "Add a feature", names the files

FOLDER gets the copy and its build. toy_feature.patch is the feature: a number per head is added to each of the head's
scores, forward only. It may touch at most FILES_MOST product files. The verification of the copy must pass the kernels,
and find one that reads another head's number. Where Python's headers are, the extension module must know the keyword.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

TESTS = pathlib.Path(__file__).resolve().parent
PRODUCT = ("cache", "gen", "runtime", "templates", "tuner")
FILES_MOST = 10
SHAPE = "Hq=2,Hkv=1,Sq=48,Sk=80,D=16,head_bias=1"
KERNEL = "templates/forward/terms.cuh"
RIGHT, WRONG = "p.features.head_bias[coord.query_head(p, row)]", "p.features.head_bias[0]"
KEYWORD = """
import inspect, _native
assert ("head_bias", "head_bias", False, False) in _native.OPERANDS, _native.OPERANDS
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


def check_readme():
    readme = (TESTS.parent / "README.md").read_text(encoding="utf-8")
    section = readme.partition("\n## Add a feature\n")[2].partition("\n## ")[0]
    patch = (TESTS / "toy_feature.patch").read_text(encoding="utf-8")
    files = re.findall(r"^\+\+\+ b/(\S+)", patch, re.M)
    missing = [name for name in files if f"`{name.replace('head_bias', 'NAME')}`" not in section]
    if missing or not files:
        sys.exit(f'README.md, "Add a feature", does not name {", ".join(missing) or "anything"}')


def tune(build, sim, name, status, overlay):
    return run(build / "tuner/fa2-tune", "--device", "0", "--shape", SHAPE, status=status, cwd=build,
               FA2_CUDA_LIBRARY=str(sim), FA2_SIM_CARD="rtx3060", FA2_GEN_PATH=str(overlay), FA2_SHARE="",
               FA2_DB=str(build / f"{name}.db"))


def check(said, pattern):
    if re.search(pattern, said) is None:
        sys.exit(f"not said: {pattern}\n{said}")


def main(folder, sim, *options):
    check_readme()
    folder, sim = pathlib.Path(folder).resolve(), pathlib.Path(sim).resolve()
    copy, build, wrong = folder / "copy", folder / "build", folder / "wrong"
    shutil.rmtree(folder, ignore_errors=True)
    for name in PRODUCT:
        shutil.copytree(TESTS.parent / name, copy / name)
    shutil.copy(TESTS.parent / "CMakeLists.txt", copy)

    said = run("patch", "-p1", "-d", copy, "-i", TESTS / "toy_feature.patch")
    touched = re.findall(r"^patching file (\S+)", said, re.M)
    print(f"the feature touches {len(touched)} product files: {', '.join(touched)}")
    if not 0 < len(touched) <= FILES_MOST:
        sys.exit(f"at most {FILES_MOST} are wanted")

    has_python = pathlib.Path(sysconfig.get_path("include"), "Python.h").exists()
    python = [f"-DFA2_PYTHON={'ON' if has_python else 'OFF'}", f"-DPython_EXECUTABLE={sys.executable}"]
    run("cmake", "-S", copy, "-B", build, "-DFA2_TESTS=OFF", *python, *options)
    run("cmake", "--build", build, "-j2", "--target", "fa2-tune", *(["fa2_python"] if has_python else []))
    if has_python:
        run(sys.executable, "-c", KEYWORD, cwd=build / "runtime/python")
        check((build / "runtime/python/_native.pyi").read_text(encoding="utf-8"), "head_bias: Any = None")

    few = TESTS / "sim/few"
    check(tune(build, sim, "right", 0, few), r"2 verified\n.*, 0 of them failed")
    shutil.copytree(few, wrong)
    (wrong / KERNEL).parent.mkdir(parents=True)
    text = (copy / KERNEL).read_text(encoding="utf-8")
    (wrong / KERNEL).write_text(text.replace(RIGHT, WRONG), encoding="utf-8")
    check(tune(build, sim, "wrong", 1, wrong), r"head_bias=1: failed: no variant can run \(wrong: 2\)")
    shutil.rmtree(folder)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(*sys.argv[1:])
    else:
        check_readme()
