"""fa2 against the other attention implementations of a machine: `python -m fa2.bench --help`.

Imports nothing of the package around it, so that tests/bench can run it over a library that is not
installed (--library).
"""
