"""What attn.plot draws: the numbers, labels and scales of its figures, and its errors."""

import subprocess
import sys

import numpy as np
import pytest

import attn

pytest.importorskip("matplotlib")

from attn import plot  # noqa: E402


def images(figure):
    return [np.asarray(axis.images[0].get_array()) for axis in figure.axes if axis.get_label() != "<colorbar>"]


def test_heatmaps_are_in_rows_and_columns_on_one_scale(generator):
    weights = generator.random((2, 3, 4, 5))
    figure = plot.heatmaps(weights, titles=["a", "b", "c"], xlabel="Words", ylabel="Steps")
    *maps, bar = figure.axes
    assert bar.get_label() == "<colorbar>" and len(maps) == 6
    for image, expected in zip(images(figure), weights.reshape(6, 4, 5)):
        np.testing.assert_array_equal(image, expected)
    assert {axis.images[0].get_clim() for axis in maps} == {(0, weights.max())}
    assert [axis.get_title() for axis in maps] == ["a", "b", "c", "", "", ""]
    assert [axis.get_xlabel() for axis in maps] == ["", "", ""] + ["Words"] * 3
    assert [axis.get_ylabel() for axis in maps] == ["Steps", "", ""] * 2


def test_one_heatmap_with_the_words_as_labels(tmp_path):
    weights = np.eye(3)[:2]
    figure = plot.heatmaps(weights, keys=["il", "court", "."], queries=["he", "runs"])
    axis = figure.axes[0]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["il", "court", "."]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["he", "runs"]
    figure.savefig(tmp_path / "weights.png")
    assert (tmp_path / "weights.png").stat().st_size > 1000


def test_a_title_for_each_heatmap():
    figure = plot.heatmaps(np.ones((2, 2, 3, 3)), titles=[["a", "b"], ["c", "d"]])
    assert [axis.get_title() for axis in figure.axes[:4]] == ["a", "b", "c", "d"]


def test_negative_numbers_are_on_the_scale():
    figure = plot.heatmaps(np.array([[-2.0, 1.0]]))
    assert figure.axes[0].images[0].get_clim() == (-2, 1)


def test_tensors_of_pytorch():
    torch = pytest.importorskip("torch")
    weights = torch.rand(3, 4, 5, dtype=torch.bfloat16).requires_grad_()
    np.testing.assert_array_equal(images(plot.heatmaps(weights))[2], weights[2].detach().double().numpy())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"matrices": np.ones(3)}, r"matrices: must have 2 to 4 dimensions, .*, but has shape \(3,\)"),
        ({"matrices": np.ones((0, 3))}, r"matrices: must have elements, but has shape \(1, 1, 0, 3\)"),
        ({"titles": ["a"]}, r"titles: must be 2 titles, or 1 rows of 2, but are 1 rows of \[1\]"),
        ({"keys": ["a"]}, "keys: must be 4 labels, but 1 were given"),
        ({"queries": ["a"]}, "queries: must be 3 labels, but 1 were given"),
    ],
)
def test_errors_of_heatmaps(arguments, message):
    with pytest.raises(ValueError, match=message):
        plot.heatmaps(**{"matrices": np.ones((2, 3, 4)), **arguments})


def test_tiles_are_empty_partial_or_full():
    m, n = np.arange(7)[:, None], np.arange(10)
    np.testing.assert_array_equal(plot.tile_kinds(n <= m, (4, 4)), [[1, 0, 0], [2, 1, 0]])
    np.testing.assert_array_equal(plot.tile_kinds(n <= m, (7, 10)), [[1]])
    np.testing.assert_array_equal(plot.tile_kinds(np.ones((7, 10), bool), (2, 3)), np.full((4, 4), 2))


def test_a_mask_says_how_many_tiles_there_are_of_each_kind():
    m, n = np.arange(32)[:, None], np.arange(32)
    figure = plot.mask(n <= m, tile=8, title="Causal")
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["empty: skipped (6)", "partial: masked (4)", "full (6)"]
    cells = images(figure)[0]
    assert cells.shape == (32, 32) and cells[0, 31] == 0 and cells[0, 0] == 1 and cells[31, 0] == 2
    assert figure.axes[0].get_title() == "Causal"


@pytest.mark.parametrize(
    ("allowed", "tile", "error", "message"),
    [
        (np.ones((3, 3)), 2, TypeError, "allowed: dtype must be bool, but is float64"),
        (
            np.ones(3, bool),
            2,
            ValueError,
            r"allowed: must have 2 dimensions \(M, N\) and elements, but has shape \(3,\)",
        ),
        (np.ones((3, 3), bool), 0, ValueError, "tile: must be a number above 0, or two, but is 0"),
        (np.ones((3, 3), bool), (1, 2, 3), ValueError, r"tile: must be a number above 0, or two, but is \(1, 2, 3\)"),
    ],
)
def test_errors_of_mask(allowed, tile, error, message):
    with pytest.raises(error, match=message):
        plot.mask(allowed, tile)


def test_no_figure_is_kept():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    before = pyplot.get_fignums()
    plot.mask(np.ones((4, 4), bool))
    assert pyplot.get_fignums() == before


def test_the_package_imports_it_when_it_is_named():
    assert attn.plot is plot


def test_without_matplotlib_there_is_an_error_that_says_so():

    code = "import sys; sys.modules['matplotlib'] = None; import attn; attn.plot"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ImportError: attn.plot: needs Matplotlib: pip install matplotlib" in done.stderr
