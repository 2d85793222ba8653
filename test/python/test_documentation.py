"""The documentation's commands and code run as they stand, and print what it says."""

import contextlib
import io
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT
from test_gpu import missing_opencl

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
# "Save this as `NAME`:" and a block; or a block of its own.
BLOCK = re.compile(r"(?:Save\s+this\s+as\s+`(?P<file>[^`]+)`:\n+)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)


def blocks(path):
    return [match.groupdict() for match in BLOCK.finditer(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorial(path, tmp_path, monkeypatch):
    """Shell commands, and Python code in one interpreter."""
    text = path.read_text(encoding="utf-8")
    for library in re.findall(r"^import (torch|jax)$", text, re.M):
        pytest.importorskip(library)
    if 'target="opencl"' in text and missing_opencl():
        pytest.skip(missing_opencl())
    monkeypatch.chdir(tmp_path)
    tools = Path(os.environ["ATTN_BUILD"]) / "bin"
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    environment.pop("LD_PRELOAD", None)  # the tools bring their own sanitizer
    output = ""
    commands = 0
    names = {}
    for block in blocks(path):
        if block["file"]:
            (tmp_path / block["file"]).write_text(block["text"])
        elif block["language"] == "sh":
            done = subprocess.run(
                ["sh", "-eu", "-c", block["text"]], cwd=tmp_path, env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{block['text']}\n{done.stdout}{done.stderr}"
            output = done.stdout
            commands += 1
        elif block["language"] == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(block["text"], str(path), "exec"), names)
            output = printed.getvalue()
            commands += 1
        elif block["language"] == "text":
            assert output == block["text"]
    assert commands > 0


def test_the_readmes_python(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    (code,) = [block["text"] for block in blocks(ROOT / "README.md") if block["language"] == "python"]
    names = {}
    exec(code, names)
    assert names["out"].shape == (2, 1, 4) and names["weight"].shape == (2, 1, 10)
    assert "<attn.Kernel scaled_dot(" in capsys.readouterr().out


def test_the_readmes_commands_for_c(tmp_path):
    """As they stand, with the examples and the build where the README has them."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "release").symlink_to(os.environ["ATTN_BUILD"])
    (tmp_path / "main.c").write_text('#include "scaled_dot.h"\nint main(void) { return scaled_dot(0, 0, 0, 0, 0, 0) == 0; }\n')
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (commands,) = re.findall(r"## From C\n\n```sh\n(.*?)```", text, re.S)
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run(["sh", "-eu", "-c", commands + "./a.out"], cwd=tmp_path, env=environment, check=True)


def test_the_readmes_spec_is_the_example():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    spec = text[text.index("attention scaled_dot") : text.index("```\n\nAdditive")]
    assert spec in (ROOT / "examples" / "scaled_dot.attn").read_text(encoding="utf-8")


def text_of(path):
    """Of a page, or of a notebook's cells of text."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")


@pytest.mark.parametrize(
    "path", sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb")]), ids=lambda path: path.name
)
def test_links_lead_somewhere(path):
    prose = re.sub(r"^```.*?^```$|`[^`\n]+`", "", text_of(path), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#:]+)\)", prose):
        assert (path.parent / target).exists(), target
