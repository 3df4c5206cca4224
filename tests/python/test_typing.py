"""mypy --strict over the package, where mypy and PyTorch are."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
MISSING = [name for name in ("mypy", "torch") if importlib.util.find_spec(name) is None]


@unittest.skipIf(MISSING, f"not installed: {', '.join(MISSING)}")
class Typing(unittest.TestCase):
    def test_strict(self):
        """By pyproject.toml, with the stub file that a build makes."""
        with tempfile.TemporaryDirectory() as cache:
            package = pathlib.Path(cache, "fa2_attn")
            shutil.copytree(TOP / "runtime/python/fa2_attn", package)
            subprocess.run([sys.executable, TOP / "runtime/ops/operands.py", "stub",
                            TOP / "runtime/python/_native.pyi.in", package / "_native.pyi"], check=True)
            done = subprocess.run(
                [sys.executable, "-m", "mypy", "--config-file", TOP / "pyproject.toml", "--cache-dir", cache, package],
                cwd=cache, env={**os.environ, "MYPYPATH": ""}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                universal_newlines=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
