"""What concerns the process: threads, forks, contexts, devices, missing libraries, exit, reloads."""

import ast
import contextlib
import gc
import importlib
import inspect
import io
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from importlib import metadata
from unittest import mock

import device
import fa2_attn as fa2
import reference
from device import Tensor


def python(program, *arguments, **environment):
    """Run a program in a fresh interpreter; (status, what it wrote)."""
    done = subprocess.run([sys.executable, "-c", program, *arguments], env={**os.environ, **environment},
                          cwd=os.path.dirname(os.path.abspath(__file__)), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True, check=False)
    return done.returncode, done.stdout


class Threads(unittest.TestCase):
    def test_many_meet_one_problem(self):
        q, k, v = reference.tensors(seq_q=23)
        outs, errors = [Tensor(q.shape) for _ in range(8)], []

        def call(out, context):
            try:
                for _ in range(3):
                    fa2.attention(q, k, v, out=out, context=context)
            except Exception as error:  # noqa: BLE001
                errors.append(error)

        for context in (None, fa2.Context()):
            threads = [threading.Thread(target=call, args=(out, context)) for out in outs]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            device.synchronize()
            self.assertEqual(errors, [])
            wanted, _ = reference.attention(q, k, v)
            for out in outs:
                self.assertLess(reference.worst(out.get(), wanted), reference.TOLERANCE["fp16"])

    def test_others_run_while_it_prepares(self):
        ticks, done = [0], threading.Event()

        def tick():
            while not done.wait(0.001):
                ticks[0] += 1

        thread = threading.Thread(target=tick)
        thread.start()
        with fa2.Context("") as context:
            before = ticks[0]
            context.prepare({"heads_q": 1, "seq_q": 64, "head_dim": 24})  # compiles, or reads what was compiled
            during = ticks[0] - before
        done.set()
        thread.join()
        self.assertGreater(during, 3)

    def test_close_while_used(self):
        context = fa2.Context("")
        preparing = threading.Thread(target=context.prepare, args=({"heads_q": 1, "seq_q": 64, "head_dim": 8},))
        preparing.start()
        context.close()
        preparing.join()
        self.assertTrue(context.closed)


class Contexts(unittest.TestCase):
    def test_collected_in_any_order(self):
        q, k, v = reference.tensors()
        out = Tensor(q.shape)
        gc.collect()
        before = device.live()
        contexts = [fa2.Context() for _ in range(4)]
        for context in contexts:
            fa2.attention(q, k, v, out=out, context=context)
        for i in (2, 0, 1, 0):
            del contexts[i]
        del context
        gc.collect()
        self.assertEqual(device.live(), before)

    def test_cycles_are_collected(self):
        said = []
        context = fa2.Context("", log=said.append)
        said.append(context)
        gone = device.live()
        del context, said
        gc.collect()
        self.assertLessEqual(device.live(), gone)

    def test_log(self):
        said = []
        with fa2.Context("", log=said.append) as context:
            context.prepare({"heads_q": 1, "seq_q": 30, "head_dim": 16})
        self.assertTrue(said and all(isinstance(line, str) for line in said))
        with self.assertLogs("fa2_attn", "WARNING"), fa2.Context("") as context:
            context.prepare({"heads_q": 1, "seq_q": 30, "head_dim": 16})

    def test_explain(self):
        with fa2.Context("") as context:
            why = context.explain({"heads_q": 2, "seq_q": 30, "head_dim": 16})
        self.assertEqual((why["rule"], why["measured"]), ("default", False))
        self.assertEqual(why["tuned_problem"]["heads_kv"], 2)
        self.assertIn("d=16", why["variant"])
        self.assertGreater(why["estimate_us"], 0)
        self.assertGreaterEqual(why["runner_up_us"], why["estimate_us"] if why["runner_up"] else 0)

    def test_whose_device(self):
        """What is asked of two devices at once is refused, and no context stands for another's."""
        problem = {"heads_q": 2, "seq_q": 30, "head_dim": 16}
        q, k, v = reference.tensors()
        with fa2.Context("") as context:
            for function in (fa2.explain, fa2.prepare):
                with self.assertRaisesRegex(ValueError, "^device is 1, and the context's device is 0: they must be the same$"):
                    function(device=1, context=context, **problem)
                with self.assertRaisesRegex(ValueError, "^device is 1, and the tensors' device is 0: they must be the same$"):
                    function(q, k, v, device=1)
            with self.assertRaisesRegex(ValueError, "^device is 1, and the tensors' device is 0: they must be the same$"):
                fa2.explain(q, k, v, device=1, database="none.db")
                with self.assertRaisesRegex(TypeError, "^context is 5; it must be a fa2_attn.Context$"):
                    function(context=5, **problem)
            self.assertEqual(fa2.explain(device=0, context=context, **problem)["problem"]["seq_q"], 30)

    def test_words(self):
        """Errors speak of Python's arguments, not of fa2-tune's options or of C's NULL."""
        problem, said, progress = {"heads_q": 2, "seq_q": 30, "head_dim": 16}, [], []
        with tempfile.TemporaryDirectory() as folder:
            foreign, missing = os.path.join(folder, "foreign.db"), os.path.join(folder, "none", "fa2.db")
            with open(foreign, "w", encoding="utf-8") as file:
                file.write("no database" * 200)
            os.chmod(foreign, 0o600)
            nasty = os.path.join(folder, "a\nb\x1b[31m\udcff")
            for call in (lambda path: fa2.Context(path), lambda path: fa2.Context(path, read_only=True),
                         lambda path: fa2.explain(problem, database=path),
                         lambda path: fa2.explain(problem, arch=89, database=path),
                         lambda path: fa2.winners(path), lambda path: fa2.tune(problem, database=path, progress=progress.append)):
                for path in (foreign, missing, folder, os.path.join(nasty, "fa2.db"), ""):
                    try:
                        call(path)
                    except (ValueError, fa2.Error) as error:
                        said.append(str(error))
        q, k, v = reference.tensors()
        for wrong in ({"lse": None}, {"out": None}, {"dq": False, "dk": False, "dv": False}, {"dsinks": True},
                      {"dbias": True}):
            given = {"out": q, "lse": device.Tensor((1, 2, 40), "fp32"), **wrong}
            try:
                fa2.attention_backward(q, q, k, v, **given)
            except (TypeError, ValueError) as error:
                said.append(str(error))
        self.assertGreater(len(said), 20)
        self.assertTrue(any("database= or FA2_DB" in text for text in said), said)
        self.assertTrue(any('database "": expected the path' in text for text in said), said)
        for text in said:
            self.assertNotRegex(text, "--db or|--db \"|NULL|(?m:^fa2-tune: )")
            self.assertTrue(text.replace("\n", "").isprintable(), ascii(text))
        for text in progress:
            self.assertNotIn("\x1b", text)

    def test_names(self):
        """dir() has what is for users, and nothing of the module typing."""
        names = {name for name in dir(fa2) if not name.startswith("_")}
        modules = {name for name in names if isinstance(getattr(fa2, name), type(os))}
        self.assertEqual(names - modules, set(fa2.__all__))

    def test_misspelt(self):
        """A name that is near is suggested: of keywords, and of the fields of a problem."""
        problem = {"heads_q": 2, "seq_q": 30, "head_dim": 16}
        for name in ("device", "check_rounding"):
            with self.assertRaisesRegex(TypeError, f"^{name} is 'x'; it must be a whole number$"):
                fa2.Context(**{name: "x"})
        for wrong, meant in (("caus", "causal"), ("head_dm", "head_dim"), ("SoftCap", "softcap")):
            with self.assertRaisesRegex(ValueError, f"^a problem has no field '{wrong}', did you mean {meant}[?]$"):
                fa2.explain(problem, arch=89, **{wrong: 1})
        with self.assertRaisesRegex(ValueError, "^a problem has no field 'zzz'; it has op, batch, "):
            fa2.explain(problem, arch=89, zzz=1)
        for call, wrong, meant in ((fa2.Context, "check_number", "check_numbers"), (fa2.Context, "databse", "database"),
                                   (fa2.tune, "devise", "device"), (fa2.winners, "data", "database"),
                                   (fa2.warm, "backwards", "backward"), (fa2.counters, "contxt", "context")):
            with self.assertRaisesRegex(TypeError, rf"^{call.__name__}\(\) got an unexpected keyword argument '{wrong}', "
                                                   f"did you mean {meant}[?]$"):
                call(**{wrong: 1})
        with self.assertRaisesRegex(TypeError, "^tune.* got an unexpected keyword argument 'zzz'$"):
            fa2.tune(zzz=1)
        self.assertEqual(fa2._native.suggestion("caus", ("window", "causal")), ", did you mean causal?")
        self.assertEqual(fa2._native.suggestion("zzz", ("window", "causal")), "")

    def test_signatures(self):
        """What help() and editors show is what is taken: as in the stub."""
        stub = ast.parse(pathlib.Path(fa2.__file__).resolve().with_name("_native.pyi").read_text(encoding="utf-8"))
        functions = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
        for name in ("attention", "attention_backward", "problem"):
            arguments = functions[name].args
            self.assertEqual(sorted(inspect.signature(getattr(fa2, name)).parameters),
                             sorted(one.arg for one in arguments.args + arguments.kwonlyargs), name)
        self.assertIn("dbias", inspect.signature(fa2.attention_backward).parameters)

    def test_overloads(self):
        """return_lse may be a bool that is not known beforehand."""
        stub = pathlib.Path(fa2.__file__).resolve().with_name("_native.pyi").read_text(encoding="utf-8")
        taken = re.findall(r"return_lse: ([\w\[\]]+).*?-> (.*?): \.\.\.", stub, re.S)
        self.assertEqual(taken, [("Literal[False]", "_Tensor"), ("Literal[True]", "Tuple[_Tensor, _Tensor]"),
                                 ("bool", "Union[_Tensor, Tuple[_Tensor, _Tensor]]")])

    def test_explain_without_a_device(self):
        """The same keys and, but for what needs code, answers."""
        stub = pathlib.Path(fa2.__file__).resolve().with_name("_native.pyi").read_text(encoding="utf-8")
        keys = re.findall(r"^    (\w+):", stub.split("class Explanation(TypedDict):", 1)[1].split("@final")[0], re.M)
        for problem in ({"heads_q": 2, "seq_q": 32, "head_dim": 16},
                        {"op": "backward", "heads_q": 2, "seq_q": 32, "head_dim": 16, "window_left": 7,
                         "bias": "fp32"}):
            online, offline = fa2.explain(problem), fa2.explain(problem, arch=89)
            self.assertEqual((sorted(online), sorted(offline)), (sorted(keys), sorted(keys)))
            for key in ("problem", "rule", "measured", "median_us", "variant", "smem_bytes", "runner_up"):
                self.assertEqual(online[key], offline[key], key)
            self.assertEqual({**online["problem"], **problem}, online["problem"])
            self.assertAlmostEqual(online["estimate_us"], offline["estimate_us"], 2)
            self.assertEqual((offline["target"], offline["tuned_problem"], online["candidates"]), ("sm_89", None, None))
        with self.assertRaisesRegex(NotImplementedError, "bf16 needs compute capability 8.0"):
            fa2.explain(heads_q=2, seq_q=32, head_dim=16, dtype="bf16", arch=75)
        for text, error, status in (("a kernel does not compile", fa2.Error, "FA2_E_COMPILE"),
                                    ("not supported on this device or by this version", NotImplementedError, None),
                                    ("a status of tomorrow", ValueError, None)):  # of a call that would fail
            answer = [{"rule": None, "status": text, "message": "the driver's words"}]
            with self.assertRaisesRegex(error, "driver's words") as raised:
                with mock.patch("fa2_attn._tuner._ask", return_value=answer):
                    fa2.explain(heads_q=2, seq_q=32, head_dim=16, arch=89)
            self.assertEqual(getattr(raised.exception, "status", None), status)

    def test_ways_that_exclude_each_other(self):
        problem = {"heads_q": 2, "seq_q": 30, "head_dim": 16}
        with fa2.Context("") as context:
            for given, text in (({"arch": "sm_86", "context": context}, "arch is 'sm_86'.*leave out context="),
                                ({"arch": 86, "device": 0}, "arch is 86.*leave out device="),
                                ({"database": "x.db", "context": context},
                                 "database is 'x.db' and a context is given")):
                with self.assertRaisesRegex(ValueError, text):
                    fa2.explain(problem, **given)

    def test_default(self):
        q, k, v = reference.tensors()
        old = fa2._native.default_context(0)
        said = []
        try:
            fa2.set_default_context(fa2.Context("", log=said.append))
            fa2.attention(q, k, v, out=Tensor(q.shape))
            self.assertTrue(said)
        finally:
            fa2.set_default_context(old)

    def test_reload(self):
        q, k, v = reference.tensors()
        for module in (fa2._tuner, fa2._frameworks, fa2):
            importlib.reload(module)
        fa2.attention(q, k, v, out=Tensor(q.shape))
        del sys.modules["fa2_attn._native"]
        again = importlib.import_module("fa2_attn._native")
        again.attention(q, k, v, out=Tensor(q.shape))


class Processes(unittest.TestCase):
    def test_fork(self):
        q, k, v = reference.tensors()
        out = Tensor(q.shape)
        fa2.attention(q, k, v, out=out)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                fa2.attention(q, k, v, out=out)
            except fa2.Error as error:
                status = 0 if "forked" in str(error) and "spawn" in str(error) else 2
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        fa2.attention(q, k, v, out=out)

    def test_fork_while_in_a_call(self):
        """Another thread has the context's lock most of the time: the child is refused at once, whatever it calls."""
        def problem(keys):
            return {"heads_q": 8, "seq_q": 1, "seq_k": keys, "head_dim": 16}

        def prepare():
            keys = 1
            while not done.is_set():
                context.prepare(problem(keys))
                keys += 1

        def refused():
            calls = [lambda: fa2.attention(q, k, v, out=out, context=context), lambda: fa2.attention(q, k, v, out=out),
                     lambda: context.prepare(problem(1)), lambda: context.prepare(problem(999999)),
                     lambda: context.workspace_size(problem(1)), lambda: context.explain(problem(1)), fa2.Context]
            for call in calls:
                try:
                    call()
                    return False
                except fa2.Error as error:
                    if "forked" not in str(error):
                        return False
            context.close()  # leaves the parent's alone
            return True

        q, k, v = reference.tensors()
        out, done = Tensor(q.shape), threading.Event()
        context = fa2.Context("", log=lambda line: None)
        fa2.attention(q, k, v, out=out, context=context)
        thread = threading.Thread(target=prepare)
        thread.start()
        for _ in range(60):
            child = os.fork()
            if child == 0:
                signal.alarm(60)  # a hang ends by it
                status = 1
                try:
                    status = 0 if refused() else 2
                finally:
                    os._exit(status)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
        done.set()
        thread.join()
        fa2.attention(q, k, v, out=out, context=context)

    def test_fork_before_use(self):
        status, said = python(
            "import os, fa2_attn as fa2, reference, device\n"
            "child = os.fork()\n"
            "q, k, v = reference.tensors()\n"
            "fa2.attention(q, k, v, out=device.Tensor(q.shape))\n"
            "assert child == 0 or os.waitpid(child, 0)[1] == 0\n")
        self.assertEqual(status, 0, said)
        self.assertNotRegex(said, "Traceback|Error|rror:")

    def test_exit_with_work_in_flight(self):
        status, said = python(
            "import threading, fa2_attn as fa2, reference, device\n"
            "q, k, v = reference.tensors(seq_q=64)\n"
            "context, out = fa2.Context(), device.Tensor(q.shape)\n"
            "fa2.attention(q, k, v, out=out, context=context, stream=device.new_stream().value)\n"
            "threading.Thread(target=fa2.Context('').prepare, daemon=True,\n"
            "                 args=({'heads_q': 1, 'seq_q': 64, 'head_dim': 32},)).start()\n")
        self.assertEqual(status, 0, said)
        self.assertNotRegex(said, "Traceback|Error|rror:")

    def test_two_devices(self):
        status, said = python(
            "import fa2_attn as fa2, reference, device\n"
            "for number in (1, 0):\n"
            "    q, k, v = reference.tensors(device=number)\n"
            "    out = device.Tensor(q.shape, device=number)\n"
            "    fa2.attention(q, k, v, out=out)\n"
            "    device.synchronize(number)\n"
            "    assert reference.worst(out.get(), reference.attention(q, k, v)[0]) < 0.003\n"
            "    print(fa2.explain(q, k, v)['target'])\n"
            "try:\n"
            "    fa2.attention(q, k, reference.tensors(device=1)[2], out=out)\n"
            "except ValueError as error:\n"
            "    print(error)\n"
            "try:\n"
            "    fa2.attention(q, k, v, out=out, context=fa2.Context(device=1))\n"
            "except ValueError as error:\n"
            "    print(error)\n", FA2_SIM_CARD="t4,l4")
        self.assertEqual(status, 0, said)
        self.assertRegex(said, "(?s)_89.*_75.*v is on CUDA device 1 and q on 0.*context is of CUDA device 1")

    def test_fp8_values(self):
        """On Hopper, kernels that round the softmax and v are chosen where both permissions are given."""
        status, said = python(
            "import fa2_attn as fa2\n"
            "with fa2.Context('', log=lambda line: None) as context:\n"
            "    for words in ({'scores': 'int8', 'pv': 'fp8'}, {'scores': 'int8'}, {'pv': 'fp8'}, {}):\n"
            "        said = context.explain({'heads_q': 16, 'seq_q': 16384, 'head_dim': 128, **words})\n"
            "        print(said['variant'].split()[0], said['problem'].get('pv'))\n", FA2_SIM_CARD="h200", FA2_GEN_PATH="")
        self.assertEqual(status, 0, said)
        self.assertEqual(said, "fwd_bytes_sm90 fp8\nfwd_sm90 None\nfwd_sm90 fp8\nfwd_sm90 None\n")

    def test_no_driver(self):
        status, said = python(
            "import fa2_attn as fa2\n"
            "print(fa2.explain(heads_q=8, seq_q=512, head_dim=64, arch='sm_86', database='none.db')['variant'])\n"
            "try:\n"
            "    fa2.explain(heads_q=8, seq_q=512, head_dim=64)\n"
            "except fa2.Error as error:\n"
            "    print(error.status, error)\n"
            "for asked in (fa2.explain, fa2.prepare):\n"
            "    try:\n"
            "        asked({'heads_q': 8, 'seq_q': 512}, head_dm=64)\n"
            "    except ValueError as error:\n"
            "        print(error)\n", FA2_CUDA_LIBRARY="/nonexistent/libcuda.so.1")
        self.assertEqual(status, 0, said)
        self.assertRegex(said, "^fwd_sm80 d=64 .*\nFA2_E_NO_DRIVER no CUDA driver library found.*arch=.*\n"
                               "(a problem has no field 'head_dm', did you mean head_dim[?]\n){2}$")

    def test_no_nvrtc(self):
        """Said when it is needed; the output is as it was."""
        status, said = python(
            "import fa2_attn as fa2, reference, device\n"
            "q, k, v = reference.tensors()\n"
            "out, context = device.Tensor(q.shape).set([7.0] * 40 * 2 * 16), fa2.Context('', log=lambda line: None)\n"
            "for call in (lambda: context.prepare(fa2.problem(q, k, v)),\n"
            "             lambda: fa2.attention(q, k, v, out=out, context=context)):\n"
            "    try:\n"
            "        call()\n"
            "    except fa2.Error as error:\n"
            "        print(error.status, error)\n"
            "print(set(out.get()))\n", FA2_NVRTC_LIBRARY="/nonexistent/libnvrtc.so.13")
        self.assertEqual(status, 0, said)
        self.assertRegex(said, "^(FA2_E_NO_NVRTC .*no NVRTC library found.*\n){2}{7.0}\n$")

    def test_never_compile(self):
        """What an earlier context compiled serves; what none did is refused, though NVRTC is here."""
        with tempfile.TemporaryDirectory() as folder:
            status, said = python(
                "import os, sys, fa2_attn as fa2, reference\n"
                "path = os.path.join(sys.argv[1], 'fa2.db')\n"
                "known, other = (fa2.problem(*reference.tensors(), causal=causal) for causal in (False, True))\n"
                "with fa2.Context(path, log=lambda line: None) as context:\n"
                "    variant = context.explain(known)['variant']\n"
                "with fa2.Context(path, never_compile=True, log=lambda line: None) as context:\n"
                "    print(context.explain(known)['variant'] == variant)\n"
                "    for call in context.prepare, context.explain:\n"
                "        try:\n"
                "            call(other)\n"
                "        except fa2.Error as error:\n"
                "            print(error.status, error)\n"
                "try:\n"
                "    fa2.Context(path, never_compile=True, arch='sm_86')\n"
                "except ValueError as error:\n"
                "    print(error)\n", folder)
        self.assertEqual(status, 0, said)
        self.assertRegex(said, "^True\n(FA2_E_FORBIDDEN .* the context's config forbids compiling .*\n){2}"
                               "config.never_compile is 1 and config.arch 86; .*\n$")

    def test_nvrtc_of_packages(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("cu13/lib/libnvrtc.so.13", "cuda_nvrtc/lib/libnvrtc.so.12"):
                os.makedirs(os.path.dirname(os.path.join(folder, "nvidia", name)))
                open(os.path.join(folder, "nvidia", name), "w").close()
            status, said = python(
                "import sys; sys.path.append(sys.argv[1])\n"
                "from fa2_attn import _frameworks\n"
                "print(_frameworks.nvrtc())\n"
                "_frameworks._driver_cuda = lambda: 12\n"
                "print(_frameworks.nvrtc())\n", folder, FA2_NVRTC_LIBRARY="")
        self.assertEqual(status, 0, said)
        self.assertRegex(said, r"libnvrtc\.so\.13\n.*libnvrtc\.so\.12\n")


class Watching(unittest.TestCase):
    """Counters and levels of the log."""

    def test_counters(self):
        q, k, v = reference.tensors(seq_q=26)
        with fa2.Context("", log=lambda line: None) as context:
            self.assertEqual(set(context.counters().values()), {0})
            for _ in range(3):
                fa2.attention(q, k, v, out=Tensor(q.shape), context=context)
            with self.assertRaises(ValueError):
                fa2.attention(q, k, v, out=Tensor((1, 2, 3, 4)), context=context)
            counted = fa2.counters(context=context)
            self.assertEqual(counted["calls_default"], 3)
            self.assertEqual((counted["misses"], counted["compiled"], counted["unstored"]), (1, 1, 1))
            self.assertGreater(counted["miss_ns"], counted["compile_ns"])
            device.synchronize()
        with self.assertRaisesRegex(ValueError, "closed"):
            context.counters()
        self.assertEqual(fa2.counters().keys(), counted.keys())

    def test_log_levels(self):
        problem = {"heads_q": 1, "seq_q": 70, "head_dim": 16}
        for level, most in (("error", 0), ("warning", 1), ("info", 1), (None, 1), ("debug", 2)):
            said = []
            with fa2.Context("", log=said.append, log_level=level) as context:
                context.prepare(problem)
            self.assertEqual(len(said), most, level)
        self.assertIn(" by the rule default, ", said[-1])
        with self.assertLogs("fa2_attn", "DEBUG") as logs, fa2.Context("", log_level="debug") as context:
            context.prepare(problem)
        self.assertEqual([record.levelname for record in logs.records], ["WARNING", "DEBUG"])
        with self.assertRaisesRegex(ValueError, "log_level is 'loud'; it must be \"error\", "):
            fa2.Context("", log_level="loud")


class Libraries(unittest.TestCase):
    def test_importing_is_quick(self):
        """Nothing is imported for what most programs never call."""
        said = subprocess.check_output([sys.executable, "-S", "-c", "import sys, fa2_attn; print(*sys.modules)"],
                                       env={**os.environ, "PYTHONPATH": str(pathlib.Path(fa2.__file__).parents[1])},
                                       universal_newlines=True)
        self.assertEqual(set(said.split()) & {"ctypes", "json", "logging", "pathlib", "subprocess", "threading"}, set())

    def test_old_name(self):
        """An installation under the old name is named. ForceAtlas2, which PyPI calls fa2, is left in peace."""
        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder, "fa2")
            package.mkdir()
            package.joinpath("__init__.py").write_text("class ForceAtlas2: pass\n", encoding="utf-8")
            path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
            program = "import fa2, fa2_attn; print(fa2.ForceAtlas2.__name__, fa2_attn.attention.__name__)"
            self.assertEqual(python(program, PYTHONPATH=path), (0, "ForceAtlas2 attention\n"))
            package.joinpath("_native.abi3.so").touch()
            status, said = python(program, PYTHONPATH=path)
            self.assertEqual(status, 0, said)
            self.assertRegex(said, rf"UserWarning: {re.escape(str(package))} is an older installation .* pip uninstall fa2`")
        for file in metadata.files("fa2-attn") or ():  # none of PyPI's fa2
            self.assertNotEqual(file.parts[0], "fa2")

    def test_missing(self):
        for module in ("torch", "flash_attn", "bert_padding", "transformers"):
            status, said = python(f"import sys; sys.modules['torch'] = None; import fa2_attn.{module}")
            self.assertEqual(status, 1)
            self.assertRegex(
                said, rf"\nModuleNotFoundError: fa2_attn\.{module} needs PyTorch, .*`.+ -m pip install torch`\n$")
        status, said = python("import sys, types; from fa2_attn import _frameworks; sys.modules['transformers'] = None\n"
                              "_frameworks.need('transformers', 'its library', 'x')")
        self.assertRegex(said, "x needs its library, .*pip install transformers`")

    def test_broken(self):
        """One that is there, and misses something itself, says so."""
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "torch.py").write_text("import of_torch_itself\n", encoding="utf-8")
            status, said = python("import sys; sys.path.insert(0, sys.argv[1]); import fa2_attn.torch", folder)
        self.assertEqual(status, 1)
        self.assertRegex(said, "No module named 'of_torch_itself'\n$")


class Tuning(unittest.TestCase):
    def test_tune_winners_explain(self):
        problem = {"heads_q": 2, "heads_kv": 1, "seq_q": 32, "seq_k": 48, "head_dim": 16, "causal": 1}
        with tempfile.TemporaryDirectory() as folder:
            database, told = os.path.join(folder, "tuned.db"), []
            with self.assertRaisesRegex(ValueError, f"^{database}: there is no such database; "):
                fa2.winners(database)
            with mock.patch.dict(os.environ, FA2_DB=database):
                self.assertEqual(fa2.winners(), [])
            with open(os.path.join(folder, "damaged.db"), "w", encoding="utf-8") as damaged:
                damaged.write("no database")
            for wrong, text in ((damaged.name, "not a database"), (folder, "is a folder")):
                with self.assertRaisesRegex(fa2.Error, text):
                    fa2.winners(wrong)
            self.assertFalse(os.path.exists(database))
            fa2.tune(problem, database=database, jobs=2, progress=told.append)
            self.assertTrue(told)
            rows = fa2.winners(database)
            self.assertEqual([(row["seq_q"], row["seq_k"], row["heads_kv"]) for row in rows], [(32, 48, 1)])
            why = fa2.explain(problem, database=database)
            self.assertEqual((why["rule"], why["variant"]), ("exact", rows[0]["variant"]))
            offline = fa2.explain(problem, arch="sm_89", database=database)
            self.assertEqual(offline["variant"], why["variant"])
            self.assertEqual(set(offline), set(why))
            self.assertEqual([offline[key] for key in ("problem", "tuned_problem", "device")],
                             [why[key] for key in ("problem", "tuned_problem", "device")])
            self.assertIsNone(why["candidates"])
            self.assertTrue(offline["candidates"])
            self.assertRegex(offline["reason"], "^the cost model chose it for B=1 .* on |^tuned for B=1 .* on ")
            with self.assertRaises(ValueError):
                fa2.tune("B=1,Hq=none", database=database)
            with self.assertRaises(fa2.Error) as raised:
                fa2.tune(problem, device=7, database=database, progress=told.append)
            self.assertEqual(raised.exception.status, "FA2_E_NO_DEVICE")
            self.assertIn("$XDG_CACHE_HOME/fa2/fa2.db", fa2.Context.__doc__)
            for wrong in ({"preset": "sedes"}, {"device": 7}):  # raised, and not printed, too
                with contextlib.redirect_stderr(io.StringIO()) as printed:
                    with self.assertRaises((ValueError, fa2.Error)) as raised:
                        fa2.tune(database=database, **wrong)
                self.assertNotIn(str(raised.exception), printed.getvalue())

    def test_command(self):
        program = os.path.join(os.path.dirname(sys.executable), "fa2-tune")
        if not os.path.exists(program):
            self.skipTest("fa2 is not installed in this environment")
        done = subprocess.run([program, "--version"], stdout=subprocess.PIPE, universal_newlines=True, check=True)
        self.assertEqual(done.stdout.split(), ["fa2-tune", fa2.__version__])


if __name__ == "__main__":
    unittest.main()
