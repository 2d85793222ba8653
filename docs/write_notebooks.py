"""Runs the tutorials that are notebooks, and stores what their cells print and draw.

    PYTHONPATH=build/release/python python docs/write_notebooks.py [NOTEBOOK...]

Each cell runs in turn, in a fresh Python, as Jupyter's "Run all cells" does. test/python/test_notebooks.py runs them too, and
compares what is printed with what is stored.
"""

import os
import sys
import tempfile
from pathlib import Path

import attn
import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

NOTEBOOKS = sorted((Path(__file__).resolve().parent / "tutorials").glob("*.ipynb"))


def executed(path):
    """The notebook with the outputs of a run. Raises nbclient.exceptions.CellExecutionError where a cell does."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        sockets = Config(KernelManager={"transport": "ipc", "ip": f"{folder}/kernel"})  # files, rather than open ports
        client = NotebookClient(
            notebook,
            config=sockets,
            kernel_name="python3",
            timeout=900,
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
        )
        # With the package that this script finds, wherever it lies.
        client.execute(env={**os.environ, "PYTHONPATH": str(Path(attn.__file__).absolute().parents[1])})
    notebook.metadata["language_info"] = {"name": "python"}  # without the version of this machine's Python
    return notebook


if __name__ == "__main__":
    for name in sys.argv[1:] or NOTEBOOKS:
        nbformat.write(executed(name), name)
        print(name)
