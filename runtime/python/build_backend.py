"""Connects pip to CMake by scikit-build-core, after a check of the tools that fa2 is built with.

If a compiler or library is missing, it names the command that installs it, instead of pages of CMake output. The
headers cuda.h and nvrtc.h come from the toolkit, or else from NVIDIA's Python packages.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from scikit_build_core.build import *  # noqa: F403
from scikit_build_core import build as _build

_TOP = Path(__file__).resolve().parents[2]
_HEADERS = ("cuda.h", "nvrtc.h")


def _setup(script):
    """Returns the words that a function of tuner/setup.sh prints. That file knows package names and versions."""
    return subprocess.run(["bash", "-euc", ". tuner/setup.sh; " + script], cwd=_TOP, check=True,
                          stdout=subprocess.PIPE, universal_newlines=True).stdout.split()


def _check_tools():
    # pip installs CMake and Ninja if they are missing
    missing = [name for name in _setup("missing_packages") if name not in ("cmake", "ninja-build")]
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        missing.append("python3-dev")
    if missing:
        text = (_TOP / "runtime/missing.txt").read_text(encoding="utf-8")
        sys.exit(text.format(names=", ".join(missing), words=" ".join(missing)).rstrip())


def _has_toolkit():
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")] + ["/usr/local/cuda"]
    folders = [Path(home, "include") for home in homes if home] + [Path("/usr/include")]
    return any(all((folder / header).exists() for header in _HEADERS) for folder in folders)


def _header_folders():
    """Returns the include folders of NVIDIA's packages, which pip has put into the build's environment."""
    found = []
    for header in _HEADERS:
        for folder in sys.path:
            matches = sorted(Path(folder).glob(f"nvidia/*/include/{header}"))
            if matches:
                found.append(str(matches[0].parent))
                break
    return ";".join(dict.fromkeys(found))


def _settings(config_settings):
    settings = dict(config_settings or {})
    if not _has_toolkit():
        settings.setdefault("cmake.define.FA2_CUDA_INCLUDE_DIR", _header_folders())
    if not shutil.which("ninja") and not shutil.which("make"):
        settings.setdefault("ninja.make-fallback", "false")
    return settings


def _requires(original, config_settings):
    _check_tools()
    headers = [] if _has_toolkit() else _setup('printf "%s\\n" "${cuda13_packages[@]}"')
    return [*original(config_settings), *headers]


def get_requires_for_build_wheel(config_settings=None):
    return _requires(_build.get_requires_for_build_wheel, config_settings)


def get_requires_for_build_editable(config_settings=None):
    return _requires(_build.get_requires_for_build_editable, config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return _build.build_wheel(wheel_directory, _settings(config_settings), metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _build.build_editable(wheel_directory, _settings(config_settings), metadata_directory)
