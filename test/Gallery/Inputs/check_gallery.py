"""Compiles every example to an object with attnc, and checks it with attn-run on random numbers of odd sizes.

    check_gallery.py SOURCE

Sizes and values are those of test/python/gallery_cases.py, so that a new example needs an entry there only.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SIZES_NUMBER = 1  # of the table: odd, and none a multiple of what processors like
PARAMETER = re.compile(r"%(?P<name>\w+): !attn\.tensor<\[(?P<shape>[^\]]*)\], (?P<dtype>\w+)>")


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)


def random_argument(case, sizes, name, shape):
    """How attn-run is told to draw the parameter. An empty list leaves it to its default."""
    bounds = [eval(bound, {"__builtins__": {}}, sizes) for bound in case.values.get(name, ())]
    if not shape:
        return ["--input", f"{name}={bounds[0]}"] if bounds else []
    dimensions = "x".join(str(eval(size, {"__builtins__": {}}, sizes)) for size in shape)
    return ["--random", f"{name}={dimensions}" + (f":{bounds[0]}..{bounds[1]}" if bounds else "")]


def check(path, case, folder):
    """A line that says what came out, and whether it is right."""
    fixed = [part for name, value in case.fixed.items() for part in ("--set", f"{name}={value}")]
    made = run("attnc", path, *fixed, "-o", folder / f"{path.stem}.o")
    if made.returncode != 0 or not (folder / f"{path.stem}.h").exists():
        return f"{path.name}: attnc: status {made.returncode}\n{made.stderr}", False
    signature = run("attnc", path, *fixed, "--emit=attn").stdout.partition("attn.kernel")[2].partition("\n")[0]
    sizes = case.sizes_of(SIZES_NUMBER)
    arguments = []
    for parameter in PARAMETER.finditer(signature):
        shape = [size for size in parameter["shape"].replace(" floordiv ", " // ").split(", ") if size]
        arguments += random_argument(case, sizes, parameter["name"], shape)
    tolerance = ["--tolerance", 1e-5 * case.worse] if case.worse > 1 else []
    checked = run("attn-run", path, *fixed, *arguments, "--check", *tolerance)
    if checked.returncode != 0:
        return f"{path.name}: attn-run {' '.join(arguments)}: status {checked.returncode}\n{checked.stdout}{checked.stderr}", False
    return f"{path.name}: {checked.stdout.strip()}", True


def main():
    source = pathlib.Path(sys.argv[1])
    sys.path.insert(0, str(source / "test" / "python"))
    from gallery_cases import CASES

    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        paths = sorted((source / "examples").glob("*.attn"))
        results = list(pool.map(lambda path: check(path, CASES[path.stem], pathlib.Path(folder)), paths))
    for text, _ in results:
        print(text)
    wrong = sum(not right for _, right in results)
    print(f"{len(results) - wrong} of {len(results)} examples are right")
    sys.exit(1 if wrong else 0)


main()
