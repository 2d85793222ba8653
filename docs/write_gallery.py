"""Writes docs/gallery.md, the index of examples/, from the comments that the examples open with.

    python docs/write_gallery.py           writes it
    python docs/write_gallery.py --check   only says whether it is current, by its exit status

An example opens with its title; one or more lines of formula, indented; its source; when to use it; and its group:

    # Causal attention
    #
    #   out = softmax(q kᵀ / √D) v,  n ≤ m + N − M
    #
    # Source: Radford et al., "Improving Language Understanding by Generative Pre-Training", 2018.
    # Use:    for decoders; the last query stands beside the last key.
    # Group:  masks
"""

import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
EXAMPLES = DOCS.parent / "examples"
PAGE = DOCS / "gallery.md"

GROUPS = [
    "the basics",
    "scores",
    "masks",
    "positions and biases",
    "heads",
    "caches and serving",
    "without a softmax over keys",
    "whole layers and pooling",
]
HEADER = re.compile(
    r"# (?P<title>\S.*)\n#\n(?P<formula>(?:#   \S.*\n)+)#\n"
    r"# Source: (?P<source>\S.*[12]\d{3}.*)\n# Use:    (?P<use>\S.*\.)\n# Group:  (?P<group>\S.*)\n(?!#)"
)
INTRODUCTION = """<!-- Written by docs/write_gallery.py from examples/*.attn; do not edit. -->
# Gallery

Attentions that people use, {count} of them, each a file to start from. Every one is compared with a plain NumPy program in double
precision, and with PyTorch where it has the same thing (`test/python/test_gallery.py`). `attnc FILE` compiles one;
`attn-run FILE --random NAME=SHAPE … --check` runs it on random numbers and compares it with the reference.
"""


def header_of(path):
    """The fields of an example's opening comment. Raises ValueError where it has another layout."""
    match = HEADER.match(path.read_text(encoding="utf-8"))
    if not match:
        raise ValueError(f"{path}: the opening comment must be a title, formula, Source (with a year), Use and Group")
    if match["group"] not in GROUPS:
        raise ValueError(f"{path}: the group '{match['group']}' is none of {', '.join(GROUPS)}")
    return match.groupdict()


def section(group, entries):
    lines = [f"\n## {group[0].upper()}{group[1:]}"]
    for path, header in entries:
        formula = [line[4:] for line in header["formula"].splitlines()]
        lines += [f"\n**[{header['title']}](../examples/{path.name})**: {header['use']}\n", "```text", *formula, "```"]
        lines += ["", header["source"]]
    return "\n".join(lines) + "\n"


def page():
    headers = {path: header_of(path) for path in sorted(EXAMPLES.glob("*.attn"))}
    text = INTRODUCTION.format(count=len(headers))
    for group in GROUPS:
        text += section(group, [entry for entry in headers.items() if entry[1]["group"] == group])
    return text


def main():
    if sys.argv[1:] == ["--check"]:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page()
        sys.exit(0 if current else f"{PAGE} is not what its examples say: run python docs/write_gallery.py")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
