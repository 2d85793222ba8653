"""Writes the table of docs/numerics.md: the worst error of every example in every dtype, measured on this machine.

    PYTHONPATH=build/release/python python docs/write_numerics.py           measures, and writes it
    PYTHONPATH=build/release/python python docs/write_numerics.py --check   says whether the page has all rows and columns

The arguments are those of the gallery's tests, on their odd shapes.
"""

import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
EXAMPLES = DOCS.parent / "examples"
PAGE = DOCS / "numerics.md"
DTYPES = {"f32": 2e-6, "bf16": 2.0**-8, "f16": 2.0**-11}  # what an output of the dtype may be off by
BEGIN, END = "<!-- Written by docs/write_numerics.py; do not edit. -->\n", "<!-- End of what docs/write_numerics.py writes. -->\n"
ROW = re.compile(r"^\| `(?P<name>\w+)` \|(?P<cells>.*)\|$", re.M)


def worst_errors(name):
    """By dtype, the worst error of an output of that dtype, relative to the largest element of its row or of its values."""
    import numpy as np
    import test_gallery as gallery

    def values_of(output, wanted, numbers):
        row = np.abs(wanted).max(-1, keepdims=True, initial=0) if wanted.ndim else np.abs(wanted)
        least = [np.abs(numbers[each]).max(initial=0) for each in gallery.VALUES & set(numbers)]
        return np.maximum(row, max(least, default=1.0) if output.name not in gallery.WEIGHTS else 1e-300)

    errors = {}
    for dtype in DTYPES:
        kernel = gallery.compile_example(name, dtype)
        worst = 0.0
        for number in range(1, len(gallery.SIZES)):
            arguments, numbers = gallery.draw(name, kernel, number, dtype)
            found = kernel(**arguments)
            expected = gallery.expected_of(name, numbers) if name in gallery.WITH_FORMULA else kernel.reference(**arguments)
            found, expected = (each if isinstance(each, tuple) else (each,) for each in (found, expected))
            for output, a, b in zip(kernel.outputs, found, expected):
                if output.dtype != dtype:
                    continue
                a, b = (np.where(np.isfinite(each), each, 0) for each in map(gallery.as_numpy, (a, b)))
                worst = max(worst, float((np.abs(a - b) / values_of(output, b, numbers)).max(initial=0)))
        errors[dtype] = worst
    return errors


def table():
    lines = ["| example | " + " | ".join(DTYPES) + " |", "|---|" + "---|" * len(DTYPES)]
    for path in sorted(EXAMPLES.glob("*.attn")):
        errors = worst_errors(path.stem)
        print(path.stem, errors, flush=True)
        lines.append(f"| `{path.stem}` | " + " | ".join(f"{errors[dtype]:.1e}" for dtype in DTYPES) + " |")
    return "\n".join(lines) + "\n"


def check():
    """Raises SystemExit where the page's table lacks an example or a dtype, or shows an error that is too large."""
    rows = {match["name"]: match["cells"].split("|") for match in ROW.finditer(PAGE.read_text(encoding="utf-8"))}
    names = [path.stem for path in sorted(EXAMPLES.glob("*.attn"))]
    if list(rows) != names or any(len(cells) != len(DTYPES) for cells in rows.values()):
        sys.exit(f"{PAGE} has other examples or dtypes than examples/: run python docs/write_numerics.py")
    sys.path.insert(0, str(DOCS.parent / "test" / "python"))
    from gallery_cases import CASES

    for name, cells in rows.items():
        for (dtype, limit), cell in zip(DTYPES.items(), cells):
            if float(cell) > limit * CASES[name].worse:
                sys.exit(f"{PAGE}: {name} is off by {cell.strip()} in {dtype}, more than {limit * CASES[name].worse:.1e}")


def main():
    if sys.argv[1:] == ["--check"]:
        return check()
    sys.path.insert(0, str(DOCS.parent / "test" / "python"))
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(before + BEGIN + table() + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
