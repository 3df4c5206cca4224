"""runtime/share/ship.py: what ships is as it writes it; one command makes a file of a field report; what it refuses.

Usage: test_ship.py
"""
import json
import hashlib
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SHARE = pathlib.Path(__file__).resolve().parents[1] / "runtime" / "share"


def sealed(lines):
    """These lines as an export."""
    text = "".join(line + "\n" for line in lines)
    return text + json.dumps({"type": "end", "rows": len(lines) - 1, "sha256": hashlib.sha256(text.encode()).hexdigest()}) + "\n"


class Ship(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copy(SHARE / "ship.py", self.folder)
        self.known = (SHARE / "nvidia_h200_features.jsonl").read_text(encoding="utf-8")

    def ship(self, *arguments, text=None):
        done = subprocess.run([sys.executable, self.folder / "ship.py", *arguments], input=text, check=False, encoding="utf-8",
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.returncode, done.stdout, done.stderr

    def test_what_ships(self):
        for path in SHARE.glob("*.jsonl"):
            text = path.read_text(encoding="utf-8")
            self.assertEqual(self.ship(text=text), (0, text, ""), path.name)

    def test_field_report(self):
        report = self.folder / "mine.jsonl"
        slow = self.known.splitlines()[:-1]
        times = [json.loads(line) for line in slow if '"type":"measurement"' in line]
        slower = {**times[0], "kernel": times[1]["kernel"], "problem": times[0]["problem"],
                  "median_us": 1e6, "q1_us": 1e6, "q3_us": 1e6}
        report.write_text(sealed([*slow, json.dumps(slower, separators=(",", ":"))]) + '{"fa2_report":"about"}\n',
                          encoding="utf-8")
        status, said, errors = self.ship(report)
        self.assertEqual(status, 0, errors)
        self.assertRegex(said, r"^\| nvidia_h200_field\.jsonl \| NVIDIA H200 \| `field-report`: \d+ problems, \d+ times, 20")
        self.assertEqual((self.folder / "nvidia_h200_field.jsonl").read_text(encoding="utf-8"), self.known)

    def test_refused(self):
        lines = self.known.splitlines()[:-1]
        device = next(line for line in lines if '"type":"device"' in line)
        other = device.replace("H200", "H201").replace('"id":1', '"id":99')
        self.assertNotEqual(other, device)
        modelled = [line.replace('"modelled":0', '"modelled":1') for line in lines]
        for text, words in ((self.known.replace("fwd_", "fwe_", 1), "was changed"), ("\n".join(lines) + "\n", "was cut"),
                            ("{}\n", "is no export"), ("", "is no export"), (sealed([lines[0], other, *lines[1:]]), "has 2 cards; give a file of one card"),
                            (sealed(modelled), "of a software device"),
                            (sealed([line for line in lines if '"type":"measurement"' not in line]), "has no times")):
            report = self.folder / "mine.jsonl"
            report.write_text(text, encoding="utf-8")
            status, said, errors = self.ship(report)
            self.assertEqual((status, said), (1, ""), words)
            self.assertIn(words, errors)
            self.assertEqual(list(self.folder.glob("*_field.jsonl")), [])
        for report in (self.folder / "nowhere.jsonl", self.folder):
            status, said, errors = self.ship(report)
            self.assertEqual((status, said), (1, ""))
            self.assertRegex(errors, rf"^ship\.py: .*{report.name}")


if __name__ == "__main__":
    unittest.main()
