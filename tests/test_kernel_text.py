#!/usr/bin/env python3
"""Is the text of the kernels C++ that tools can read?

- Each header (templates/**/*.cuh) parses alone after the configuration of a family that includes it, and no header is
  without such a family. Needs NVRTC; the families and their variants are those of bench/gate.txt.
- No line has more than 120 columns. Headers hold no template language, and are formatted as templates/.clang-format says (if clang-format is found).
- What is still generated is counted: template lines, spliced values, and C++ in strings of Lua. So are the lines of the
  longest device function, and of the longest step of a mainloop. No count may grow beyond its bar; lower the bar when
  it falls.

Usage: test_kernel_text.py RUN_LUA. Exit status 77: NVRTC was not found, the rest is as it should be.
"""
import glob
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "bench"))
import gate  # pylint: disable=wrong-import-position

TOP = os.path.dirname(HERE)
TEMPLATES = os.path.join(TOP, "templates")

# The most that there may be: lines that begin with '@', values $(...), strings of Lua that hold C++; and lines of a
# function's head and body, and of a step's body.
BARS = {"template lines": 150, "spliced values": 100, "strings of C++ in Lua": 0,
        "lines of a device function": 100, "lines of a mainloop step": 40}
CPP = re.compile(r"\bk[A-Z]\w+|\bcoord\.|\bp\.[a-z]|::|\bconst |\bauto |\bsmem\b|\buint32\b|\bunsigned\b|\[m\]|^ \* |"
                 r"\(p\)|\(\)$|range\.|tiles\.|batch_head")
NOT_CPP = re.compile(r"\w*|\^.*")  # a word, or a pattern


def kernel_files(ending):
    files = glob.glob(os.path.join(TEMPLATES, "**", "*" + ending), recursive=True)
    return sorted(os.path.relpath(file, TEMPLATES) for file in files
                  if not os.path.relpath(file, TEMPLATES).startswith("bench/"))


def text_of(file):
    with open(os.path.join(TEMPLATES, file), encoding="utf-8") as opened:
        return opened.read()


def count_generated():
    texts = [text_of(file) for file in kernel_files(".cu.in")]
    strings = []
    for folder in ("core", "features", "ops", "paths"):
        for path in glob.glob(os.path.join(TOP, "gen", folder, "*.lua")):
            with open(path, encoding="utf-8") as file:
                code = re.sub(r"--.*", "", file.read())
            strings += re.findall(r'"((?:[^"\\\n]|\\.)*)"', code)
    return {
        "template lines": sum(len(re.findall(r"^\s*@", text, flags=re.M)) for text in texts),
        "spliced values": sum(text.count("$(") for text in texts),
        "strings of C++ in Lua": sum(1 for string in strings if CPP.search(string) and not NOT_CPP.fullmatch(string)),
    }


def body_end(lines, first):
    """The line of the brace that closes what the line before `first` opens: the next one that is indented as little."""
    indent = re.match(r" *", lines[first - 1])[0]
    return next(i for i in range(first, len(lines)) if lines[i].startswith(indent + "}"))


def device_functions(file):
    """(lines, name) of each function with a body."""
    lines = text_of(file).splitlines()
    for i, line in enumerate(lines):
        if not re.fullmatch(r" *\{", line):
            continue
        head = i - 1
        while head > 0 and lines[head].strip() and "__device__" not in lines[head] and lines[head][-1] not in ";}":
            head -= 1
        if "__device__" in lines[head]:
            name = re.search(r"(\w+)\(", " ".join(lines[head:i]).split("__forceinline__")[-1])
            yield body_end(lines, i + 1) - head + 1, f"{name[1] if name else '?'} in {file}"


def steps(file):
    """(lines, place) of the body of each step of a mainloop: a loop that is not unrolled, a lambda or a function."""
    lines = text_of(file).splitlines()
    for i, line in enumerate(lines):
        is_loop = re.match(r" +(for|while) .*\{$", line) and i > 0 and "#pragma unroll 1" in lines[i - 1]
        named = re.search(r"\b(mainloop_step|step_of_part|step) = \[|void (mainloop_step|step_of_part|step)\(", line)
        if is_loop or named:
            first = next(j for j in range(i, len(lines)) if lines[j].endswith("{")) + 1
            yield body_end(lines, first) - first, f"templates/{file}:{i + 1}"


def count_lengths():
    headers = kernel_files(".cuh")
    longest = max(found for file in headers for found in device_functions(file))
    step = max(found for file in headers for found in steps(file))
    print(f"the longest: {longest[1]}; {step[1]}")
    return {"lines of a device function": longest[0], "lines of a mainloop step": step[0]}


def check_counts():
    bad = 0
    for name, count in (count_generated() | count_lengths()).items():
        print(f"{name}: {count}, at most {BARS[name]}")
        if count > BARS[name]:
            bad += 1
    return bad


def check_width():
    bad = 0
    for file in kernel_files(".cuh") + kernel_files(".cu.in") + kernel_files(".def"):
        for number, line in enumerate(text_of(file).splitlines(), 1):
            if len(line) > 120:
                print(f"templates/{file}:{number}: {len(line)} columns, at most 120")
                bad += 1
    return bad


def check_plain():
    bad = 0
    for file in kernel_files(".cuh"):
        for number, line in enumerate(text_of(file).splitlines(), 1):
            if line.lstrip().startswith("@") or "$(" in line:
                print(f"templates/{file}:{number}: a header holds template language: {line.strip()}")
                bad += 1
    return bad


def check_format():
    clang_format = shutil.which("clang-format")
    if not clang_format:
        print("clang-format was not found: formatting is not checked")
        return 0
    headers = [os.path.join(TEMPLATES, file) for file in kernel_files(".cuh")]
    done = subprocess.run([clang_format, "--dry-run", "-Werror", *headers], capture_output=True, text=True, check=False)
    print(done.stderr[:2000], end="")
    return 1 if done.returncode else 0


def default_variants():
    """The shortest text of each family in the sample: (arch, variant)."""
    shortest = {}
    for _, arch, variant in gate.read_sample(r" (fwd|bwd|merge)_"):
        family = variant.split(" ")[0]
        if family not in shortest or len(variant) < len(shortest[family][1]):
            shortest[family] = (arch, variant)
    return list(shortest.values())


def outermost(configurations):
    """The one that includes the others, directly or not."""
    included = {name for file in configurations for name in re.findall(r'@ include "([^"]+)"', text_of(file))}
    remaining, = configurations - included
    return remaining


def jobs_of(run_lua):
    """(arch, line for kernel_alone.lua): each header once, with the first family that includes it."""
    jobs, seen = [], set()
    variants = gate.read_sample(r" (fwd|bwd|merge)_")
    texts = gate.expand(TOP, [variant for _, _, variant in variants], run_lua)
    plain = {variant for _, variant in default_variants()}
    order = sorted(range(len(variants)), key=lambda i: variants[i][2] not in plain)
    for i in order:
        _, arch, variant = variants[i]
        files = re.findall(r'^#line \d+ "templates/([^"]+)"', texts[i], flags=re.M)
        configuration = outermost({file for file in files if file.endswith("config.cu.in")})
        for file in files:
            if file.endswith(".cuh") and file not in seen:
                seen.add(file)
                jobs.append((arch, f"{configuration} {file} {variant}"))
    return jobs, sorted(set(kernel_files(".cuh")) - seen)


def compile_alone(job):
    text, arch = job
    try:
        gate.compile_text(text, arch, "PTX")
        return None
    except ValueError as error:
        return str(error)


def check_alone(run_lua):
    jobs, unused = jobs_of(run_lua)
    for file in unused:
        print(f"templates/{file} is in no kernel of the sample")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([os.path.abspath(run_lua), os.path.join(HERE, "kernel_alone.lua"), folder], cwd=TOP, text=True,
                       input="".join(line + "\n" for _, line in jobs), check=True)
        texts = []
        for number in range(1, len(jobs) + 1):
            with open(os.path.join(folder, f"{number}.cu"), encoding="utf-8") as file:
                texts.append(file.read())
    with multiprocessing.Pool() as pool:
        messages = pool.map(compile_alone, [(text, arch) for text, (arch, _) in zip(texts, jobs)], chunksize=1)
    bad = 0
    for message, (_, line) in zip(messages, jobs):
        if message:
            bad += 1
            print(f"templates/{line.split(' ')[1]} does not parse alone:\n" + "\n".join(message.splitlines()[:6]))
    print(f"{len(jobs) - bad} of {len(jobs)} headers parse alone")
    return bad + len(unused)


def main():
    bad = check_counts() + check_width() + check_plain() + check_format()
    if gate.find_nvrtc() is None:
        print("skipped: NVRTC was not found, so whether headers parse is not checked")
        return 1 if bad else 77
    return 1 if bad + check_alone(sys.argv[1]) else 0


if __name__ == "__main__":
    sys.exit(main())
