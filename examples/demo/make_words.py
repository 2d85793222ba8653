"""Makes words/*.npy: the queries, keys and values of four words, projected from their encodings."""

from pathlib import Path

import numpy as np

words = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]], np.float32)
projections = {
    "q": [[2, 0, 2], [2, 0, 0], [2, 1, 2]],
    "k": [[2, 2, 2], [0, 2, 1], [0, 1, 1]],
    "v": [[1, 1, 0], [0, 1, 1], [0, 0, 0]],
}

folder = Path(__file__).parent / "words"
for name, projection in projections.items():
    np.save(folder / f"{name}.npy", (words @ np.array(projection, np.float32))[None])
np.save(folder / "valid.npy", np.array([4], np.int32))
