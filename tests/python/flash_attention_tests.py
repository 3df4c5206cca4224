#!/usr/bin/env python3
"""FlashAttention-2's own test file, tests/test_flash_attn.py, on fa2 and a GPU: a random sample of its 500,000 cases.

Usage: flash_attention_tests.py FOLDER [pytest's arguments]
FOLDER is an unpacked source release of flash-attn 2.8, which is not installed. Its modules are replaced by
fa2_attn.flash_attn.install(), except flash_attn.layers.rotary, with which the tests make what they expect.
FA2_TEST_EACH (40) is the number of cases of each test function, FA2_TEST_SEED says which. Needs pytest and einops.
"""

import collections
import os
import random
import sys

import pytest

import fa2_attn.flash_attn

REPEATING = ("race", "deterministic")  # such tests call the same a hundred times


class Sample:
    def pytest_collection_modifyitems(self, items):
        groups = collections.defaultdict(list)
        for item in items:
            groups[item.originalname].append(item)
        choose = random.Random(int(os.environ.get("FA2_TEST_SEED", "1")))
        each = int(os.environ.get("FA2_TEST_EACH", "40"))
        items[:] = [item for name, group in sorted(groups.items())
                    for item in choose.sample(group, min(len(group), 6 if any(x in name for x in REPEATING) else each))]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = os.path.abspath(sys.argv[1])
    fa2_attn.flash_attn.install()
    sys.modules["flash_attn"].__path__ = [os.path.join(folder, "flash_attn")]
    sys.exit(pytest.main([os.path.join(folder, "tests", "test_flash_attn.py"), "-q", "-p", "no:cacheprovider",
                          *sys.argv[2:]], plugins=[Sample()]))


if __name__ == "__main__":
    main()
