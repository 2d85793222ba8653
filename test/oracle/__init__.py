"""The oracle at scale: random specs, compiled, run, and compared with the reference interpreter and with NumPy.

    PYTHONPATH=build/release/python:test python -m oracle --seconds 3600 --seed 1000

`expression` and `specification` are specs as trees. `generate` draws them (with `draft`, `wild` and `scores`), `data` finds sizes and arrays
for them, `evaluate` computes them with NumPy, `check` compares, `pool` runs cases in processes that may crash, and `shrink` makes them
small.
"""
