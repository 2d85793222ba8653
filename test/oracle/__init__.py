"""The oracle at scale: random specs, compiled, run, and compared with the reference interpreter and with NumPy.

    PYTHONPATH=build/release/python:test python -m oracle --seconds 3600 --seed 1000

`expression` and `specification` are specs as trees, which `generate` draws, `data` finds sizes and arrays for, `evaluate` computes with
NumPy, `check` compares, `pool` runs in processes that may crash, and `shrink` makes small.
"""
