"""What building the package says where something that it builds with is missing. The build itself: run.sh."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
LIBRARIES = {"lua5.4": ("lua5.4", "5.4.6"), "sqlite3": ("sqlite3", "3.45.1"), "libmd": ("libmd", "1.1.0")}
PROGRAMS = ("bash", "gcc", "pkg-config")
HOOK = """
import sys, types
build = types.ModuleType("scikit_build_core.build")
build.get_requires_for_build_wheel = lambda settings: ["ninja"]
package = types.ModuleType("scikit_build_core")
package.build = build
sys.modules.update({"scikit_build_core": package, "scikit_build_core.build": build})
import build_backend
build_backend.sysconfig.get_path = lambda name: sys.argv[1]
print(build_backend.get_requires_for_build_wheel())
"""


@unittest.skipIf([name for name in PROGRAMS if shutil.which(name) is None], "a compiler or pkg-config is missing")
class Missing(unittest.TestCase):
    def ask(self, without=(), version=None):
        """pip's first question, of a machine without some programs and libraries: (status, what was said)."""
        with tempfile.TemporaryDirectory() as folder:
            for name in PROGRAMS:
                if name not in without:
                    os.symlink(shutil.which(name), os.path.join(folder, name))
            for name, (package, number) in LIBRARIES.items():
                if name not in without:
                    pathlib.Path(folder, f"{package}.pc").write_text(
                        f"Name: {package}\nDescription: none\nVersion: {version or number}\nLibs:\n", encoding="utf-8")
            if "Python.h" not in without:
                pathlib.Path(folder, "Python.h").touch()
            done = subprocess.run([sys.executable, "-c", HOOK, folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  universal_newlines=True, check=False, env={
                                      "PATH": folder, "PKG_CONFIG_LIBDIR": folder, "PKG_CONFIG_PATH": "",
                                      "PYTHONPATH": str(TOP / "runtime/python"), "PYTHONDONTWRITEBYTECODE": "1"})
        return done.returncode, done.stdout

    def test_nothing(self):
        """CMake and Ninja are no matter: pip brings them."""
        status, said = self.ask()
        self.assertEqual(status, 0, said)
        self.assertIn("'ninja'", said)

    def test_each(self):
        """Is named with the command that installs it, and nothing else is."""
        for without, names in (("gcc", "gcc libc6-dev"), ("lua5.4", "liblua5.4-dev"), ("sqlite3", "libsqlite3-dev"),
                               ("libmd", "libmd-dev"), ("Python.h", "python3-dev")):
            status, said = self.ask({without})
            self.assertEqual((status, said), (1, f"fa2 needs what is not here: {names.replace(' ', ', ')} (names of Debian and "
                                                 f"Ubuntu).\nInstall it:  sudo apt-get install -y {names}\n"))

    def test_several(self):
        status, said = self.ask({"gcc", "lua5.4", "libmd"})
        self.assertEqual(status, 1)
        self.assertIn("sudo apt-get install -y gcc libc6-dev liblua5.4-dev libmd-dev\n", said)

    def test_old_sqlite(self):
        status, said = self.ask(version="3.31")
        self.assertEqual(status, 1)
        self.assertIn("install -y libsqlite3-dev\n", said)


if __name__ == "__main__":
    unittest.main()
