#!/usr/bin/env python3
"""`python -m fa2_attn.bench` out of the source tree, over a library that is not installed.

    python3 tests/bench/compare.py --library build-release/runtime/libfa2.so --db tuned.db --out bench

--help lists what it takes. The benchmark is loaded by its folder: `import fa2_attn` would want the extension module.
"""

import importlib.util
import sys
from pathlib import Path


def load(module: str):
    """A module of the benchmark."""
    if "fa2_bench" not in sys.modules:
        folder = Path(__file__).resolve().parents[2] / "runtime" / "python" / "fa2_attn" / "bench"
        spec = importlib.util.spec_from_file_location("fa2_bench", folder / "__init__.py",
                                                      submodule_search_locations=[str(folder)])
        sys.modules["fa2_bench"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["fa2_bench"])
    return importlib.import_module(f"fa2_bench.{module}")


if __name__ == "__main__":
    sys.exit(load("__main__").main())
