"""Every test of a module in a process of its own, many at a time: for tests that wait for kernels to be compiled, and
that do not measure time. They share the database, so that what one compiled the others find.

    python each_alone.py MODULE [CLASS]

Prints each test's output when it ends; exits with 1 if one failed.
"""

import concurrent.futures
import os
import subprocess
import sys
import time
import unittest


def ids_of(suite):
    return [name for test in suite for name in (ids_of(test) if isinstance(test, unittest.TestSuite) else [test.id()])]


def run(name):
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", "unittest", name], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    return name, done, time.perf_counter() - begin


def main():
    names = ids_of(unittest.defaultTestLoader.loadTestsFromName(".".join(sys.argv[1:])))
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(min(len(names), os.cpu_count())) as pool:
        for done in concurrent.futures.as_completed([pool.submit(run, name) for name in names]):
            name, process, seconds = done.result()
            failed += process.returncode != 0
            print(f"{name}: status {process.returncode}, {seconds:.0f} s\n{process.stdout}", flush=True)
    print(f"{len(names)} tests, {failed} failed")
    sys.exit(failed > 0 or not names)


if __name__ == "__main__":
    main()
