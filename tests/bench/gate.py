#!/usr/bin/env python3
"""Did a change of the templates change the kernels?

Compiles a fixed sample of variants (gate.txt) from the text before and after a change, and compares the machine code
byte by byte. It needs NVRTC and build/tests/run_lua, and no GPU.

    tests/bench/gate.py BEFORE [AFTER]     BEFORE, AFTER: a git revision, or a folder that holds a source tree;
                                           AFTER is the working tree if it is not given
      --only REGEX                         the variants whose line of gate.txt it matches
      --every N                            each so many-th of these
      --times                              also how long NVRTC takes: both texts of a variant in turns, best of two
      --lines N                            of the SASS that differs, print N lines for each variant (default 20)
    tests/bench/gate.py --stored           compares the PTX of a few variants with the hashes in gate_ptx.txt
    tests/bench/gate.py --store            writes these hashes

- `#line` does not count: it is taken out of both texts. Texts that are equal then are not compiled.
- Equal PTX gives equal machine code, because ptxas is a function of PTX and options. So ptxas runs only where the PTX
  differs, and then the cubins decide: all that a kernel is launched with must be the same, its instructions, registers,
  parameters, shared memory and constants. Variables that no instruction reads do not count: NVRTC makes one of each
  constexpr value of a text.
- What NVRTC made is kept in build/gate (--kept names another folder), by text and options. The SASS of cubins that
  differ is there, too: NUMBER.diff, if nvdisasm is found (a CUDA toolkit has it; or name it in NVDISASM).
- Exit status: 0 if all code is the same, 1 if some differs, 2 if the gate cannot work, and 77 if the stored hashes are
  of another NVRTC.
"""
import argparse
import collections
import ctypes
import difflib
import glob
import hashlib
import math
import multiprocessing
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
SAMPLE, STORED = os.path.join(HERE, "gate.txt"), os.path.join(HERE, "gate_ptx.txt")
# The options of runtime/cuda/compile.c.
OPTIONS = ["--std=c++17", "-default-device", "--no-cache"]


def stop(message):
    print("gate.py: " + message, file=sys.stderr)
    sys.exit(2)


# ---- NVRTC -----------------------------------------------------------------------------------------------------


def find_nvrtc():
    named = os.environ.get("FA2_NVRTC_LIBRARY")
    folders = [os.environ.get("FA2_NVRTC_DIR"), "/usr/local/cuda/lib64", *sorted(glob.glob("/usr/local/cuda-*/lib*"))]
    paths = [named] if named else ["libnvrtc.so.13", "libnvrtc.so.12"] + [
        path for folder in folders if folder for path in sorted(glob.glob(folder + "/libnvrtc.so.1[23]"))]
    for path in paths:
        try:
            return ctypes.CDLL(path)
        except OSError:
            pass
    return None


def version_of(nvrtc):
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def take(nvrtc, what, program):
    """What nvrtcGet{what} gives."""
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    data = ctypes.create_string_buffer(max(size.value, 1))
    getattr(nvrtc, f"nvrtcGet{what}")(program, data)
    return data.raw[:size.value].rstrip(b"\0") if what != "CUBIN" else data.raw[:size.value]


def compile_text(text, arch, kind):
    """PTX or CUBIN of a text, and the seconds of CPU time that it took. A fault of the text raises ValueError."""
    nvrtc, program = find_nvrtc(), ctypes.c_void_p()
    target = ("sm_" if kind == "CUBIN" else "compute_") + arch.removeprefix("sm_")
    options = [f"--gpu-architecture={target}", *OPTIONS]
    begin = time.process_time()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
    status = nvrtc.nvrtcCompileProgram(
        program, len(options), (ctypes.c_char_p * len(options))(*(option.encode() for option in options)))
    seconds = time.process_time() - begin
    code = take(nvrtc, "ProgramLog" if status else kind, program)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    if status:
        raise ValueError(code.decode(errors="replace"))
    return code, seconds


# ---- texts and what is made of them ------------------------------------------------------------------------------


def without_lines(text):
    return re.sub(r"^#line .*\n", "", text, flags=re.M)


VARIABLE = re.compile(rb"^\.global .*? (\w+)(?:\[\d*\])?(?: = .*)?;\n", re.M)


def kernels_of(ptx):
    """PTX without its comments, and without the variables that no instruction reads."""
    ptx = re.sub(rb"^//.*\n", b"", ptx, flags=re.M)
    words = collections.Counter(re.findall(rb"\w+", ptx))
    return VARIABLE.sub(lambda line: b"" if words[line[1]] == 1 else line[0], ptx)


def variables_of(ptx):
    """The variables that instructions read."""
    return sorted(line[0] for line in VARIABLE.finditer(kernels_of(ptx)))


def make(job):
    """One piece of code, kept from run to run. job: (text with #line, arch, kind, folder). Returns it, or a message."""
    text, arch, kind, kept = job
    parts = (without_lines(text), arch, kind, OPTIONS, version_of(find_nvrtc()))
    key = hashlib.sha256(repr(parts).encode()).hexdigest()
    path = os.path.join(kept, key)
    if os.path.exists(path):
        with open(path, "rb") as file:
            return file.read()
    try:
        code, _ = compile_text(without_lines(text), arch, kind)
    except ValueError:
        try:  # again, so that the message names lines of the templates
            compile_text(text, arch, kind)
            return "it compiles only with #line"
        except ValueError as error:
            return str(error)
    with open(f"{path}.{os.getpid()}", "wb") as file:
        file.write(code)
    os.replace(file.name, path)
    return code


def time_pair(job):
    """The least seconds of CPU time of two texts, compiled in turns."""
    texts, arch = job
    seconds = [math.inf, math.inf]
    for _ in range(2):
        for i, text in enumerate(texts):
            seconds[i] = min(seconds[i], compile_text(without_lines(text), arch, "CUBIN")[1])
    return seconds


def expand(tree, variants, run_lua):
    """The texts of the variants, by the templates and scripts of a source tree; None for one that it does not have."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([os.path.abspath(run_lua), os.path.join(HERE, "gate.lua"), folder], cwd=tree, text=True,
                              input="".join(variant + "\n" for variant in variants), capture_output=True, check=False)
        if done.returncode:
            stop(f"run_lua in {tree}: {done.stderr.strip()}")
        texts = []
        for number in range(1, len(variants) + 1):
            path = os.path.join(folder, f"{number}.cu")
            texts.append(open(path, encoding="utf-8").read() if os.path.exists(path) else None)
        return texts


def tree_of(name, folder):
    """The source tree that a revision or a folder is; a revision is checked out below `folder`."""
    if os.path.isdir(name):
        return name
    archive = subprocess.run(["git", "-C", TOP, "archive", name, "gen", "templates"], capture_output=True, check=False)
    if archive.returncode:
        stop(f"'{name}' is neither a folder nor a git revision")
    tree = os.path.join(folder, re.sub(r"\W", "_", name))
    os.makedirs(tree, exist_ok=True)
    subprocess.run(["tar", "-x", "-C", tree], input=archive.stdout, check=True)
    return tree


def read_sample(only):
    """(number, arch, variant) of the lines that are wanted."""
    rows = []
    with open(SAMPLE, encoding="utf-8") as file:
        for number, line in enumerate((line.strip() for line in file if line[0] not in "#\n"), 1):
            if re.search(only, line):
                rows.append((number, *line.split(" ", 1)))
    return rows


# ---- what a cubin holds ------------------------------------------------------------------------------------------


def sections_of(cubin):
    """(name, sh_info, data or size) of each section of an ELF file of 64 bits."""
    offset, = struct.unpack_from("<Q", cubin, 40)
    entry, count, names = struct.unpack_from("<HHH", cubin, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", cubin, offset + i * entry) for i in range(count)]
    name_table = heads[names][4]
    rows = []
    for name, kind, _, _, at, size, _, info, _, _ in heads:
        start = name_table + name
        text = cubin[start:cubin.index(b"\0", start)].decode()
        rows.append((text, info, size if kind == 8 else cubin[at:at + size]))  # 8: it holds no data
    return rows


def code_of(cubin):
    """What kernels are launched with: sections of instructions (whose upper byte of sh_info are the registers),
    constants (parameters among them) and shared memory, by their names."""
    return {name: (info >> 24 if name.startswith(".text") else 0, data) for name, info, data in sections_of(cubin)
            if re.match(r"\.(text|nv\.constant\d*|nv\.shared)\.", name)}


# ---- comparing -------------------------------------------------------------------------------------------------


def find_disassembler():
    paths = [os.environ.get("NVDISASM"), shutil.which("nvdisasm"), *sorted(glob.glob("/usr/local/cuda*/bin/nvdisasm"))]
    return next((path for path in paths if path and os.path.exists(path)), None)


def sass_of(cubin, disassembler):
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([disassembler, "-c", file.name], capture_output=True, text=True, check=False).stdout
    return [re.sub(r"\s*/\*[0-9a-f]+\*/", "", line).rstrip() for line in text.splitlines()]


def show_difference(number, cubins, lines, kept):
    disassembler = find_disassembler()
    if not disassembler:
        print("   nvdisasm was not found: no SASS")
        return
    before, after = (sass_of(cubin, disassembler) for cubin in cubins)
    changes = list(difflib.unified_diff(before, after, "before", "after", lineterm="", n=2))
    path = os.path.join(kept, f"{number}.diff")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in changes)
    print(f"   {len(before)} lines of SASS before, {len(after)} after; {path}")
    for line in changes[:lines]:
        print("   " + line)


class Gate:
    def __init__(self, rows, texts, pool, kept):
        self.rows, self.texts, self.pool, self.kept = rows, texts, pool, kept

    def make_all(self, indexes, kind):
        """For each index the code before and after; stops at a text that does not compile."""
        jobs = [(self.texts[side][i], self.rows[i][1], kind, self.kept) for i in indexes for side in (0, 1)]
        codes = self.pool.map(make, jobs, chunksize=1)
        for (_, arch, _, _), code, i in zip(jobs, codes, [i for i in indexes for _ in (0, 1)]):
            if isinstance(code, str):
                stop(f"{self.rows[i][0]}: {arch} {self.rows[i][2]} does not compile:\n{code}")
        return {i: (codes[2 * n], codes[2 * n + 1]) for n, i in enumerate(indexes)}

    def find_different(self):
        """(indexes of equal texts, of equal code by PTX, of equal cubins; cubins of those that differ, by index)."""
        equal, texts = [], []
        for i in range(len(self.rows)):
            if without_lines(self.texts[0][i]) == without_lines(self.texts[1][i]):
                equal.append(i)
            else:
                texts.append(i)
        ptx = self.make_all(texts, "PTX")
        differing = [i for i in texts if kernels_of(ptx[i][0]) != kernels_of(ptx[i][1])]
        cubins = self.make_all(differing, "CUBIN")
        different = {i: cubins[i] for i in differing if code_of(cubins[i][0]) != code_of(cubins[i][1])
                     or variables_of(ptx[i][0]) != variables_of(ptx[i][1])}
        return equal, [i for i in texts if i not in differing], [i for i in differing if i not in different], different

    def print_times(self, indexes):
        pairs = self.pool.map(time_pair, [((self.texts[0][i], self.texts[1][i]), self.rows[i][1]) for i in indexes],
                              chunksize=1)
        if not pairs:
            return
        ratios = [after / before for before, after in pairs]
        worst = max(range(len(ratios)), key=ratios.__getitem__)
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"NVRTC's time, new / old, of {len(ratios)} kernels: geometric mean {mean:.3f}, "
              f"worst {ratios[worst]:.3f} ({self.rows[indexes[worst]][2]})")


def compare(arguments):
    with tempfile.TemporaryDirectory() as folder, multiprocessing.Pool(arguments.jobs) as pool:
        trees = [tree_of(name, folder) for name in (arguments.before, arguments.after)]
        rows = read_sample(arguments.only)[::arguments.every]
        texts = [expand(tree, [row[2] for row in rows], arguments.run_lua) for tree in trees]
        missing = [i for i in range(len(rows)) if texts[0][i] is None or texts[1][i] is None]
        for i in missing:
            print(f"{rows[i][0]}: no such variant {'before' if texts[0][i] is None else 'after'}: {rows[i][2]}")
        kept = [i for i in range(len(rows)) if i not in missing]
        gate = Gate([rows[i] for i in kept], [[side[i] for i in kept] for side in texts], pool, arguments.kept)
        equal, by_ptx, by_cubin, different = gate.find_different()
        for i, cubins in different.items():
            number, arch, variant = gate.rows[i]
            print(f"{number}: {arch} {variant}: the code differs")
            show_difference(number, cubins, arguments.lines, arguments.kept)
        print(f"{len(kept)} variants: {len(equal)} have the same text, {len(by_ptx)} the same PTX, {len(by_cubin)} the "
              f"same code; {len(different)} differ, {len(missing)} are missing")
        if arguments.times:
            gate.print_times([i for i in range(len(kept)) if i not in equal])
        return 1 if different or missing else 0


# ---- stored hashes ----------------------------------------------------------------------------------------------


def stored_rows():
    """NVRTC's release, and (arch, variant, hash)."""
    with open(STORED, encoding="utf-8") as file:
        lines = [line.strip() for line in file if line[0] not in "#\n"]
    return lines[0], [(line.split(" ")[1], line.split(" ", 2)[2], line.split(" ")[0]) for line in lines[1:]]


def release_of(ptx):
    return re.search(rb"// Cuda compilation tools, (release .*)", ptx).group(1).decode()


def check_stored(arguments):
    release, rows = stored_rows()
    texts = expand(TOP, [variant for _, variant, _ in rows], arguments.run_lua)
    with multiprocessing.Pool(arguments.jobs) as pool:
        jobs = [(text or "", arch, "PTX", arguments.kept) for text, (arch, _, _) in zip(texts, rows)]
        codes = pool.map(make, jobs, chunksize=1)
    bad = 0
    for text, code, (arch, variant, _) in zip(texts, codes, rows):
        if text is None or isinstance(code, str):
            stop(f"{arch} {variant}: " + ("there is no such variant" if text is None else code))
    hashes = [hashlib.sha256(kernels_of(code)).hexdigest()[:32] for code in codes]
    if arguments.store:
        with open(STORED, encoding="utf-8") as file:
            head = [line for line in file if line.startswith("#")]
        with open(STORED, "w", encoding="utf-8") as file:
            file.writelines([*head, release_of(codes[0]) + "\n"])
            file.writelines(f"{new} {arch} {variant}\n" for new, (arch, variant, _) in zip(hashes, rows))
        return 0
    if release_of(codes[0]) != release:
        print(f"skipped: the hashes are of {release}, and this is {release_of(codes[0])}")
        return 77
    for new, (arch, variant, old) in zip(hashes, rows):
        if new != old:
            bad += 1
            print(f"the PTX is another one: {arch} {variant}")
    print(f"{len(rows) - bad} of {len(rows)} variants have the stored PTX"
          + ("; if the change is meant, tests/bench/gate.py --store writes the hashes anew" if bad else ""))
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="?")
    parser.add_argument("after", nargs="?", default=TOP)
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--lines", type=int, default=20)
    parser.add_argument("--stored", action="store_true")
    parser.add_argument("--store", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--kept", default=os.path.join(TOP, "build", "gate"))
    parser.add_argument("--run-lua", default=os.path.join(TOP, "build", "tests", "run_lua"))
    arguments = parser.parse_args()
    if find_nvrtc() is None:
        print("skipped: NVRTC was not found")
        return 77 if arguments.stored else 2
    os.makedirs(arguments.kept, exist_ok=True)
    if arguments.stored or arguments.store:
        return check_stored(arguments)
    if arguments.before is None:
        parser.error("BEFORE is missing")
    return compare(arguments)


if __name__ == "__main__":
    sys.exit(main())
