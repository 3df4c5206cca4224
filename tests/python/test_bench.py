"""fa2_attn.bench: shapes, reports and the picture; the measurement itself where PyTorch and a GPU are."""

import csv
import ctypes
import io
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, NamedTuple

import fa2_attn as fa2
from fa2_attn.bench import __main__ as command
from fa2_attn.bench import picture, report, shapes

try:
    import torch
    HAS_GPU = torch.cuda.is_available()
except ImportError:
    torch, HAS_GPU = None, False


def bench(*arguments):
    """The command; (status, what it wrote)."""
    done = subprocess.run([sys.executable, "-m", "fa2_attn.bench", *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True, check=False)
    return done.returncode, done.stdout


class Times(NamedTuple):
    median: float
    q1: float
    q3: float


@dataclass
class Result:
    """As fa2_attn.bench.measure.Result, which needs PyTorch."""

    shape: shapes.Shape
    which: str
    times: Dict[str, Times]
    missing: Dict[str, str] = field(default_factory=dict)
    differences: Dict[str, tuple] = field(default_factory=dict)
    rule: str = "exact"
    variant: str = "fwd_sm80"
    workspace_bytes: int = 256

    def ratio(self, name):
        return self.times[name].median / self.times["fa2"].median if name in self.times else None


class Shapes(unittest.TestCase):
    def test_texts(self):
        shape = shapes.of_text("Hq=8,Sq=512,D=64")
        self.assertEqual(shape, shapes.Shape(1, 8, 8, 512, 512, 64))
        self.assertEqual(str(shape), "B=1,Hq=8,Hkv=8,Sq=512,Sk=512,D=64,dtype=fp16,causal=0")
        shape = shapes.of_text("B=2,Hq=8,Hkv=2,Sq=1,Sk=9,D=8,dtype=bf16,causal=1,softcap=1,Wl=5")
        self.assertEqual((shape.window, shape.window_left, shape.window_right), (1, 5, -1))
        self.assertEqual(shapes.of_text(str(shape)), shape)

    def test_other_values_for_all(self):
        shape = shapes.changed(shapes.of_text("Hq=8,Sq=512,D=64"), "dtype=bf16,causal=1,Wr=0")
        self.assertEqual((shape.dtype, shape.causal, shape.bounds()), ("bf16", 1, (None, 0)))
        self.assertEqual(shape.seq_q, 512)

    def test_wrong_texts(self):
        for text, said in (("Hq=8,Sq=512", "head_dim is missing"), ("Hq=8,Sq=512,D=64,x=1", "'x=1'"),
                           ("Hq=8,Sq=0,D=64", "seq_q is 0; it must be at least 1"),
                           ("Hq=3,Hkv=2,Sq=1,D=8", "a multiple of heads_kv, 2"),
                           ("Hq=1,Sq=1,D=8,dtype=fp8", "dtype is 'fp8'"), ("Hq=1,Sq=1,D=a", "head_dim is 'a'"),
                           ("Hq=1,Sq=1,D=8,causal=2", "causal is 2; it must be 0 or 1")):
            with self.assertRaisesRegex(ValueError, said.replace("(", "\\(")):
                shapes.of_text(text)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "shapes.csv")
            path.write_text("# a comment\nbatch,heads_q,heads_kv,seq_q,seq_k,head_dim,dtype,causal,window,window_left,"
                            "window_right,origin\n1,8,8,64,64,32,fp16,1,0,0,0,x\n\n1,8,2,64,96,32,bf16,0,1,5,-1,y\n")
            plain, window = shapes.of_file(path)
            self.assertEqual((plain.window, plain.causal, plain.bounds()), (0, 1, (None, 0)))
            self.assertEqual((window.seq_k, window.bounds()), (96, (5, None)))
            path.write_text("heads_q,seq_q,head_dim\n8,64,32\n8,y,32\n")
            with self.assertRaisesRegex(ValueError, "line 3: seq_q is 'y'"):
                shapes.of_file(path)
            path.write_text("heads_q,seq_q,head_dim,alibi,op\n8,64,32,0,backward\n8,64,32,1,forward\n")
            with self.assertRaisesRegex(ValueError, "line 3: alibi is 1; fa2_attn.bench does not measure that"):
                shapes.of_file(path)
            path.write_text("heads_q,seq_q,head_dim,bias,sofcap\n8,64,32,none,\n8,64,32,fp16,0\n8,64,32,,1\n")
            with self.assertRaisesRegex(ValueError, "line 3: bias is fp16; fa2_attn.bench does not measure that"):
                shapes.of_file(path)

    def test_presets_are_those_of_fa2_tune(self):
        self.assertEqual(len(shapes.of_preset("quick")), 6)
        with self.assertRaisesRegex(ValueError, "there are seeds, paper, quick"):
            shapes.of_preset("nope")

    def test_work(self):
        full, causal = (shapes.of_text(f"B=2,Hq=4,Sq=100,D=64,causal={c}") for c in (0, 1))
        flop = 4 * 2 * 4 * 100 * 100 * 64
        self.assertAlmostEqual(full.tflops("forward", 1e6), flop * 1e-12)
        self.assertAlmostEqual(full.tflops("backward", 1e6), 2.5 * flop * 1e-12)
        self.assertAlmostEqual(causal.tflops("both", 1e6), 3.5 * flop * 1e-12 / 2)
        window = shapes.of_text("Hq=1,Sq=10,Sk=12,D=8,Wl=1,Wr=0")  # two keys each, the first query too
        self.assertEqual(window.seen_pairs(), 20)
        self.assertEqual(shapes.of_text("Hq=1,Sq=10,D=8,Wl=1,Wr=0").seen_pairs(), 19)

    def test_a_single_query_has_no_backward(self):
        self.assertEqual(shapes.of_text("Hq=1,Sq=1,Sk=9,D=8").passes(["forward", "both"]), ["forward"])


class Reports(unittest.TestCase):
    def results(self):
        long, decode = (shapes.of_text(f"Hq=8,Sq={s},Sk=512,D=64") for s in (512, 1))
        times = {"fa2": Times(10, 9, 11), "flash": Times(20, 19, 21)}
        return [Result(long, "forward", times, differences={"fa2": (1e-3, 0.5)}),
                Result(long, "backward", {**times, "flash": Times(5, 4, 6)}, missing={"math": "too much <memory>"}),
                Result(decode, "forward", {**times, "copy": Times(8, 8, 8), "flash": Times(10, 9, 11)})]

    def test_summary(self):
        rows = list(report.summary(self.results(), ["flash", "math"]))
        self.assertEqual(rows, [["flash", "forward", "1.414", "1.000", "2.000", "2"],
                                ["flash", "forward, S > 1", "2.000", "2.000", "2.000", "1"],
                                ["flash", "backward", "0.500", "0.500", "0.500", "1"]])
        self.assertEqual([row[-1] for row in report.decoding(self.results())], ["80 %"])

    def test_csv(self):
        target = io.StringIO()
        table = report.CsvFile(target)
        for result in self.results():
            table.add(result)
        rows = list(csv.DictReader(io.StringIO(target.getvalue())))
        self.assertEqual(len(rows), 7)
        self.assertEqual([rows[0][name] for name in ("implementation", "median_us", "max_abs_diff", "rule",
                                                     "workspace_bytes")], ["fa2", "10.00", "0.001", "exact", "256"])
        self.assertEqual((rows[3]["pass"], rows[3]["q1_us"], rows[3]["rule"]), ("backward", "4.00", ""))

    def test_markdown(self):
        text = report.markdown(self.results(), ["flash", "math"], ["a fact"], "x.svg")
        self.assertIn("- math: too much <memory>: B=1,Hq=8,Hkv=8,Sq=512,Sk=512,D=64,dtype=fp16,causal=0 backward", text)
        self.assertIn("| backward | 1 | 8 | 512 | 64 | fp16 |  | 10.0 | 20.0 % | 134 | 5.0 | – | 0.50 | – | – | exact |",
                      text)

    def test_picture(self):
        root = xml.etree.ElementTree.fromstring(picture.svg(self.results(), ["flash", "math"], "GPU <x>"))
        dots = [e for e in root.iter() if e.tag.endswith("circle") and len(e)]
        self.assertEqual(len(dots), 3)
        centres = [float(dot.get("cx")) for dot in dots]
        ones = [float(e.get("x1")) for e in root.iter() if e.tag.endswith("line") and e.get("stroke") == "#333"]
        self.assertEqual(len(ones), 2)  # a line at 1 in each panel
        self.assertGreater(centres[0], ones[0])
        self.assertAlmostEqual(centres[1], ones[0], delta=0.1)
        self.assertLess(centres[2], ones[1])


# Modules as the packages have them: they say what they were asked for, and return V, in version 4 with LSE.
FAKE_PEERS = {
    "flash_attn_interface.py": "def flash_attn_func(q, k, v, **options): CALLS.append(options); return v\n"
                               "CALLS = []\n",
    "flash_attn/cute/__init__.py": "def flash_attn_func(q, k, v, **options): CALLS.append(options); return v, None\n"
                                   "CALLS = []\n",
}


@unittest.skipIf(torch is None, "no PyTorch")
class Peers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for name, text in FAKE_PEERS.items():
            path = Path(folder.name, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="ascii")
        Path(folder.name, "flash_attn", "__init__.py").touch()
        sys.path.insert(0, folder.name)
        self.addCleanup(sys.path.remove, folder.name)
        for name in [name for name in sys.modules if name.split(".")[0] in ("flash_attn", "flash_attn_interface")]:
            del sys.modules[name]

    def test_flash_attention(self):
        from fa2_attn.bench import peers
        self.assertTrue({"fa3", "fa4"} <= set(peers.here()))
        self.assertNotIn("flash_attn", peers.here())  # flash-attn-4 alone is not flash-attn
        shape = shapes.of_text("Hq=2,Sq=4,D=8,causal=1,Wl=3,Wr=0")
        v = torch.arange(64.0).reshape(1, 2, 4, 8)
        for name, module, window in (("fa3", "flash_attn_interface", (3, 0)), ("fa4", "flash_attn.cute", (3, 0))):
            self.assertTrue(torch.equal(peers.make(name, shape)(v, v, v), v), name)
            call = sys.modules[module].CALLS[-1]
            self.assertEqual((call["causal"], call["window_size"]), (True, window))
        shape = shapes.of_text("Hq=2,Sq=4,D=8,Wl=3")
        for name, module, window in (("fa3", "flash_attn_interface", (3, -1)), ("fa4", "flash_attn.cute", (3, None))):
            peers.make(name, shape)(v, v, v)
            self.assertEqual(sys.modules[module].CALLS[-1]["window_size"], window)


class Command(unittest.TestCase):
    def test_the_package_exports_the_library(self):
        library = ctypes.CDLL(fa2._native.__file__)  # what fa2_attn.bench calls where no other is given
        for name in ("fa2_context_create", "fa2_forward", "fa2_backward", "fa2_explain"):
            self.assertTrue(hasattr(library, name), name)

    def test_wrong_arguments(self):
        for arguments, said in ((("--preset", "nope"), "there is no such preset"),
                                (("--passes", "forward,sideways"), "there is no 'sideways'"),
                                (("--shapes", "/nowhere.csv"), "/nowhere.csv"), (("--rounds", "2"), "at least 3"),
                                (("--db", "/nowhere.db"), "--db /nowhere.db: there is no such file")):
            status, text = bench(*arguments)
            self.assertEqual(status, 2, text)
            self.assertIn(said, text)

    def test_permissions(self):
        """Each is an option, and fields and words are those of a problem, in which they have the value 1."""
        self.assertEqual(command._permitted(command._parser().parse_args([])), {})
        args = command._parser().parse_args(["--fast-sums", "--int8-scores", "--fp8"])
        self.assertEqual(command._permitted(args), {
            "fast sums": {"sums": "fast"}, "int8 scores": {"scores": "int8"}, "fp8": {"scores": "int8", "pv": "fp8"}})
        for words in command._permitted(args).values():
            problem = {"heads_q": 8, "seq_q": 64, "head_dim": 64}
            text = fa2._native.problem_text({**problem, **words})
            self.assertEqual(fa2._native.problem_text({**problem, **dict.fromkeys(words, 1)}), text)
            for field, word in words.items():
                self.assertIn(f",{field}={word}", text)

    @unittest.skipIf(torch is not None, "PyTorch is installed")
    def test_without_pytorch(self):
        status, text = bench("--preset", "quick")
        self.assertEqual(status, 2)
        self.assertIn("PyTorch is what fa2 is compared with", text)

    @unittest.skipUnless(HAS_GPU, "no PyTorch that sees a GPU")
    def test_measures(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out")
            status, text = bench("--shape", "B=2,Hq=8,Hkv=2,Sq=512,D=64,causal=1", "--shape", "Hq=8,Sq=1,Sk=512,D=64",
                                 "--peers", "flash", "--rounds", "3", "--deterministic", "--out", out)
            self.assertEqual(status, 0, text)
            with open(f"{out}.csv", newline="") as source:
                rows = list(csv.DictReader(source))
            self.assertEqual({(row["pass"], row["implementation"]) for row in rows if row["seq_q"] == "512"},
                             {(which, name) for which in shapes.PASSES for name in ("fa2", "flash", "deterministic")}
                             - {("forward", "deterministic")})
            self.assertEqual({row["pass"] for row in rows if row["seq_q"] == "1"}, {"forward"})
            self.assertTrue(os.path.getsize(f"{out}.md") and os.path.getsize(f"{out}.svg"))


if __name__ == "__main__":
    unittest.main()
