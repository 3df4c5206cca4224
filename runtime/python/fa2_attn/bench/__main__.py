"""Compare fa2 with the other attention implementations of this machine: same process, same tensors, same rounds.

    python -m fa2_attn.bench --preset quick --tune
    python -m fa2_attn.bench --shape B=4,Hq=16,Sq=4096,D=128 --set dtype=bf16,causal=1 --passes forward,backward,both

Every implementation is captured into a CUDA graph of many calls. The graphs are replayed in rounds, each in a new
random order. It prints a table, and writes OUT.csv, OUT.md and OUT.svg. Backward is timed without autograd's host
work: fa2's by its C function, the others' by the kernels that autograd leaves in a graph. An implementation that does
not take a shape is noted and left out. The exit status is 1 if fa2 fails on a shape or its numbers differ from the
others'. It is 2 if the arguments are wrong.
"""

import argparse
import contextlib
import datetime
import gc
import random
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from . import report, shapes
from .picture import svg

SEED = 20
# {the column's name: (words of the problem's fields, what they permit)}; all of them in forward alone
PERMISSIONS = {"fast sums": ({"sums": "fast"}, "fp16 sums"),
               "int8 scores": ({"scores": "int8"}, "8-bit integers in Q K^T"),
               "fp8": ({"scores": "int8", "pv": "fp8"}, "8-bit integers in Q K^T and e4m3 numbers in P V")}


def _words(text: str, known: Sequence[str], option: str) -> List[str]:
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in known:
            raise ValueError(f"{option} {text}: there is no {word!r}; known are {', '.join(known)}")
    return words


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fa2_attn.bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--preset", action="append", default=[], metavar="NAME", help="shapes of a preset of fa2-tune (default: quick)")
    add("--shapes", action="append", default=[], type=Path, metavar="FILE", help="a shape file, as for fa2-tune")
    add("--shape", action="append", default=[], metavar="TEXT", help="B=1,Hq=8,Hkv=8,Sq=512,Sk=512,D=64,dtype=fp16,"
        "causal=1,Wl=1024,Wr=0")
    add("--set", default="", metavar="TEXT", help="other values for all shapes: dtype=bf16,causal=1,Wl=256,Wr=0")
    add("--passes", default="forward,backward,both", help="of forward, backward, both (default: all three)")
    add("--peers", metavar="LIST", help="of flash, efficient, cudnn, math, flex, flash_attn, fa3, fa4, xformers "
        "(default: all that are here); none: only fa2")
    add("--deterministic", action="store_true", help="fa2's deterministic gradients, too, in the same rounds")
    for name, (_, what) in PERMISSIONS.items():
        add(f"--{name.replace(' ', '-')}", action="store_true", help=f"fa2 with permission for {what}, too, in the "
            "same rounds")
    add("--tune", action="store_true", help="first tune what was not tuned yet, into the database")
    add("--db", type=Path, help="the tuning database (default: that of fa2)")
    add("--out", type=Path, default=Path("fa2-bench"), help="writes OUT.csv, OUT.md and OUT.svg (fa2-bench)")
    add("--rounds", type=int, default=15, help="samples of each implementation (15)")
    add("--library", type=Path, help="a libfa2.so instead of the installed package")
    add("--against", nargs=2, type=Path, metavar=("LIBRARY", "DB"), help="another build of fa2, in the same rounds")
    add("--arch", type=int, default=0, help="run the kernels of this older SM (75, 80, 86 ...) as PTX, untuned")
    return parser


def _permitted(args: argparse.Namespace) -> Dict[str, Dict[str, str]]:
    """Returns {name: {field: word}} of the permissions that were asked for."""
    return {name: words for name, (words, _) in PERMISSIONS.items() if getattr(args, name.replace(" ", "_"))}


def _wanted_shapes(args: argparse.Namespace) -> List[shapes.Shape]:
    found = [shape for name in args.preset for shape in shapes.of_preset(name)]
    found += [shape for path in args.shapes for shape in shapes.of_file(path)]
    found += [shapes.of_text(text) for text in args.shape]
    found = found or shapes.of_preset("quick")
    if args.set:
        found = [shapes.changed(shape, args.set) for shape in found]
    return list(dict.fromkeys(found))


def _tune(args: argparse.Namespace, wanted: List[shapes.Shape], passes: List[str]) -> None:
    from fa2_attn import tune  # imported here, because --library works without an installed package

    texts = []
    for which in ("forward", "backward"):
        if which in passes or "both" in passes:
            op = "" if which == "forward" else "op=backward,"
            texts += [op + str(shape) for shape in wanted if shape.passes([which])]
            texts += [f"op=backward,deterministic=1,{shape}" for shape in wanted
                      if args.deterministic and which == "backward" and shape.passes([which])]
    if "forward" in passes:
        texts += [",".join([*(f"{field}={word}" for field, word in words.items()), str(shape)])
                  for words in _permitted(args).values() for shape in wanted]
    tune(texts, database=args.db)


def _output_of(*command: str) -> str:
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True,
                              check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def _facts(args: argparse.Namespace, version: str) -> List[str]:
    import torch

    p = torch.cuda.get_device_properties(0)
    driver = _output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0")
    return [
        f"GPU: {p.name}, sm_{p.major}{p.minor}, {p.multi_processor_count} SMs; driver {driver}",
        f"fa2 {version}; PyTorch {torch.__version__}, CUDA {torch.version.cuda}, "
        f"cuDNN {torch.backends.cudnn.version()}",
        f"Date: {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC; seed {SEED}; {args.rounds} rounds",
        f"Command: `{shlex.join(['python3', *sys.argv])}`",
    ]


def _contexts(args: argparse.Namespace, stack: contextlib.ExitStack) -> Dict[str, Any]:
    """Returns the contexts of fa2 by their names in tables."""
    from .library import Context, installed_library

    path = str(args.library.resolve() if args.library else installed_library())
    ours = {"fa2": Context(path, args.db, args.arch)}
    if args.deterministic:
        ours["deterministic"] = Context(path, args.db, args.arch, deterministic=True)
    for name, words in _permitted(args).items():
        ours[name] = Context(path, args.db, args.arch, permissions=dict.fromkeys(words, 1))
    if args.against:
        ours["other"] = Context(str(args.against[0].resolve()), args.against[1], args.arch)
    for context in ours.values():
        stack.callback(context.close)
    return ours


_LACK = {"deterministic": "forward", **dict.fromkeys(PERMISSIONS, "backward")}  # passes in which they are fa2


def _run(args: argparse.Namespace, wanted: List[shapes.Shape], passes: List[str], others: List[str]) -> int:
    import torch

    from .measure import measure

    torch.manual_seed(SEED)
    gc.freeze()  # each capture collects garbage; this exempts all that is imported by now
    order = random.Random(SEED)
    results: List[Any] = []
    failed = 0
    with contextlib.ExitStack() as stack:
        ours = _contexts(args, stack)
        columns = [*others, *(name for name in ours if name != "fa2")]
        version = next(iter(ours.values())).version()
        terminal = report.Terminal(wanted, columns)
        table = report.CsvFile(stack.enter_context(open(f"{args.out}.csv", "w", newline="", encoding="utf-8")))
        stack.enter_context(torch.cuda.stream(torch.cuda.Stream()))
        for shape in wanted:
            for which in shape.passes(passes):
                names = {name: own for name, own in ours.items() if _LACK.get(name) != which}
                result = measure(shape, which, names, others, args.rounds, order)
                failure = result.failure(list(ours))
                failed += failure != ""
                results.append(result)
                table.add(result)
                terminal.add(result, failure)
                torch.cuda.empty_cache()  # frees the graphs' memory pools
    facts = _facts(args, version)
    Path(f"{args.out}.md").write_text(report.markdown(results, columns, facts, f"{args.out.name}.svg"),
                                      encoding="utf-8")
    Path(f"{args.out}.svg").write_text(svg(results, columns, facts[0]), encoding="utf-8")
    print()
    report.print_table(report.SUMMARY_HEADER, report.summary(results, columns))
    report.print_table(report.DECODE_HEADER, report.decoding(results))
    print(f"{args.out}.csv, .md and .svg are written; {failed} of {len(results)} measurements failed")
    return 1 if failed else 0


def main() -> int:
    parser = _parser()
    args = parser.parse_args()
    try:
        wanted = _wanted_shapes(args)
        passes = _words(args.passes, shapes.PASSES, "--passes")
        if args.rounds < 3:
            raise ValueError("--rounds: at least 3, for quartiles")
        if args.db and not args.tune and not args.db.is_file():
            raise ValueError(f"--db {args.db}: there is no such file; --tune makes it, or fa2-tune")
    except (OSError, ValueError) as error:
        parser.error(str(error))
    try:
        import torch
    except ImportError:
        parser.error("PyTorch is what fa2 is compared with, and it is not installed here")
    if not torch.cuda.is_available():
        parser.error("PyTorch sees no GPU")
    from . import peers

    try:
        others = [] if args.peers == "none" else (
            _words(args.peers, peers.here(), "--peers") if args.peers else peers.here())
    except ValueError as error:
        parser.error(str(error))
    if args.tune:
        _tune(args, wanted, passes)
    return _run(args, wanted, passes, others)


if __name__ == "__main__":
    sys.exit(main())
