"""mypy --strict over the package, where mypy and PyTorch are."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
MISSING = [name for name in ("mypy", "torch") if importlib.util.find_spec(name) is None]


@unittest.skipIf(MISSING, f"not installed: {', '.join(MISSING)}")
class Typing(unittest.TestCase):
    def test_strict(self):
        """By pyproject.toml."""
        with tempfile.TemporaryDirectory() as cache:
            done = subprocess.run(
                [sys.executable, "-m", "mypy", "--config-file", TOP / "pyproject.toml", "--cache-dir", cache,
                 TOP / "runtime/python/fa2"],
                cwd=cache, env={**os.environ, "MYPYPATH": ""}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                universal_newlines=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
