"""The example that trains a translator: it learns, and both backends give the same losses."""

import importlib.util
import subprocess
import sys

import pytest
from conftest import EXAMPLES

import attn

pytest.importorskip("torch")
pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def translate():
    spec = importlib.util.spec_from_file_location("translate", EXAMPLES / "translate.py")
    module = sys.modules["translate"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["translate"]


def run(folder, *options):
    """What the example prints, and the losses of its steps."""
    files = ["--heatmap", folder / "weights.png", "--losses", folder / "losses.txt"]
    done = subprocess.run([sys.executable, EXAMPLES / "translate.py", *files, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout, [float(line) for line in (folder / "losses.txt").read_text().split()]


def test_the_sentences_are_unique_pairs(translate):
    pairs = translate.read_pairs(EXAMPLES / "translate.tsv")
    assert len(pairs) >= 300 and len({tuple(english) for english, _ in pairs}) == len(pairs)
    assert translate.split("J'ai un chat, n'est-ce pas ?") == [
        "j'",
        "ai",
        "un",
        "chat",
        ",",
        "n'",
        "est-ce",
        "pas",
        "?",
    ]


def test_bleu(translate):
    assert translate.bleu("il est là .".split(), "il est là .".split()) == 1
    assert translate.bleu([], ["il"]) == 0
    # Two of three words and no pair, but one: (2/3)^(1/2) · (1/2)^(1/4), and a word too few.
    expected = 2.718281828459045 ** (1 - 4 / 3) * (2 / 3) ** 0.5 * (1 / 2) ** 0.25
    assert translate.bleu("a b x".split(), "a b c d".split()) == pytest.approx(expected)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_it_trains_translates_and_draws(tmp_path, cell):
    output, losses = run(tmp_path, "--backend", "torch", "--cell", cell, "--steps", "20")
    assert len(losses) == 20 and losses[-1] < 0.75 * losses[0]
    assert "BLEU of the 346 training sentences" in output and "20 steps in" in output
    assert (tmp_path / "weights.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_both_backends_give_the_same_losses(tmp_path, cell):
    curves = [run(tmp_path, "--backend", backend, "--cell", cell, "--steps", "50")[1] for backend in ("attn", "torch")]
    assert max(abs(ours - theirs) for ours, theirs in zip(*curves, strict=True)) < 1e-3
