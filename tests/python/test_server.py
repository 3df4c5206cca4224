"""Many shapes with one context: bounds of time and memory (server.py)."""

import subprocess
import sys
import unittest
from pathlib import Path

SHAPES = 12000  # the tables are full by then


class Server(unittest.TestCase):
    def test_bounds(self):
        script = Path(__file__).resolve().with_name("server.py")
        for way in ("attention", "packed", "prepare", "workspace_size", "explain"):
            with self.subTest(way):
                done = subprocess.run([sys.executable, script, way, str(SHAPES)], stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, universal_newlines=True, check=False)
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertIn("us with a new context", done.stdout)


if __name__ == "__main__":
    unittest.main()
