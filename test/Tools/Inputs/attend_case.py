"""The demo's kernel on arrays of odd sizes, for a processor that is emulated.

attend_case.py write FOLDER    its inputs
attend_case.py check FOLDER    its output, against NumPy in float64
"""

import sys
from pathlib import Path

import numpy as np

HEADS, QUERIES, KEYS, WIDTH, VALUE_WIDTH = 3, 65, 1030, 40, 7


def inputs():
    generator = np.random.default_rng(5)
    q = generator.standard_normal((HEADS, QUERIES, WIDTH), np.float32)
    k = generator.standard_normal((HEADS, KEYS, WIDTH), np.float32)
    v = generator.standard_normal((HEADS, KEYS, VALUE_WIDTH), np.float32)
    return {"q": q, "k": k, "v": v, "valid": np.array([KEYS, 511, 0], np.int32)}


def attend(q, k, v, valid):
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    weight = np.exp(q @ k.swapaxes(-1, -2) / np.sqrt(WIDTH)) * (np.arange(KEYS) < valid[:, None, None])
    return weight @ v / np.maximum(weight.sum(-1, keepdims=True), 1e-300)


def main():
    command, folder = sys.argv[1], Path(sys.argv[2])
    arrays = inputs()
    if command == "write":
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        return
    difference = np.abs(np.load(folder / "out.npy") - attend(**arrays)).max(axis=(1, 2))
    print("right" if (difference <= 2e-6).all() else f"wrong: {difference}")


main()
