"""The tutorials that are notebooks run from the first cell to the last, print what they say, and draw."""

import base64
import re
import sys

import pytest
from conftest import ROOT

for library in ("torch", "matplotlib", "nbformat", "nbclient", "ipykernel"):
    pytest.importorskip(library)
sys.path.insert(0, str(ROOT / "docs"))
import nbformat  # noqa: E402
import write_notebooks  # noqa: E402
from nbclient.exceptions import CellExecutionError  # noqa: E402

NOTEBOOKS = write_notebooks.NOTEBOOKS


def outputs(notebook):
    """What each cell printed and showed, in text, and how many pictures it drew."""
    shown = []
    for cell in notebook.cells:
        parts = cell.get("outputs", [])
        text = "".join(part.get("text", part.get("data", {}).get("text/plain", "")) for part in parts)
        pictures = sum("image/png" in part.get("data", {}) for part in parts)
        shown.append((cell["id"], text, pictures))
    return shown


def code(notebook):
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_run_gives_what_is_stored(path):
    stored = nbformat.read(path, as_version=4)
    found = write_notebooks.executed(path)
    assert outputs(found) == outputs(stored), f"run python docs/write_notebooks.py {path.name}, if the new outputs are right"
    assert not [part for cell in found.cells for part in cell.get("outputs", []) if part.get("name") == "stderr"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_stored(path):
    """A valid notebook, run in order, whose results are compared with formulas, and whose pictures are small PNGs."""
    stored = nbformat.read(path, as_version=4)
    nbformat.validate(stored)
    cells = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert len(re.findall(r"\b(?:same|check|assert_close)\(", code(stored))) > 10
    pictures = [part.data["image/png"] for cell in cells for part in cell.outputs if "image/png" in part.get("data", {})]
    assert pictures and all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in pictures)
    assert path.stat().st_size < 400_000


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("print(2)", None),
        ("same(attn.nn.masked_softmax(torch.zeros(1, 1, 2), None), torch.ones(1, 1, 2))", "Tensor-likes are not close"),
    ],
)
def test_a_notebook_with_something_wrong_fails(tmp_path, text, error):
    """One that is stale, and one whose layer does not give what the formula does: the beginning of the first, and a cell more."""
    notebook = nbformat.read(NOTEBOOKS[0], as_version=4)
    notebook.cells = [cell for cell in notebook.cells if cell.cell_type == "code"][:1]
    notebook.cells.append(nbformat.v4.new_code_cell(text, id="more", outputs=[nbformat.v4.new_output("stream", text="1\n")]))
    path = tmp_path / "more.ipynb"
    nbformat.write(notebook, path)
    if error:
        with pytest.raises(CellExecutionError, match=error):
            write_notebooks.executed(path)
    else:
        assert outputs(write_notebooks.executed(path))[-1] == ("more", "2\n", 0) != outputs(notebook)[-1]
