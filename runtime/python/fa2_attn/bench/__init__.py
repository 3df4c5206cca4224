"""Compares fa2 with the other attention implementations of a machine: `python -m fa2_attn.bench --help`.

It imports nothing of the package around it. So tests/bench can run it with a library that is not installed
(--library).
"""
