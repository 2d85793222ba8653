"""Emits every stage of every example and prints the sizes; any failure, and any empty stage, ends it with status 1.

    every_stage.py ATTNC EXAMPLES
"""

import pathlib
import subprocess
import sys
import tempfile

STAGES = "ast attn simplified plan halide loops llvm asm object".split()

# What a stage of any kernel must contain: its output is what it says it is.
SIGNS = {
    "ast": b"attention",
    "attn": b"attn.kernel @",
    "simplified": b"attn.kernel @",
    "plan": b"vectors of",
    "halide": b"computed once, before all loops",
    "loops": b"produce",
    "llvm": b"define ",
    "asm": b".text",
    "object": b"\x7fELF",
}


def emit(compiler, spec, stage, folder):
    path = pathlib.Path(folder) / f"{spec.stem}.{'o' if stage == 'object' else 'txt'}"
    command = [compiler, str(spec), f"--emit={stage}", "-o", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"{spec.name}: {stage}: status {result.returncode}\n{result.stderr}")
    text = path.read_bytes()
    if SIGNS[stage] not in text:
        sys.exit(f"{spec.name}: {stage}: {SIGNS[stage]} is not in it:\n{text[:2000]}")
    return f"{stage} {len(text)}"


def main(compiler, examples):
    specs = sorted(pathlib.Path(examples).glob("**/*.attn"))
    with tempfile.TemporaryDirectory() as folder:
        for spec in specs:
            print(f"{spec.name}: {', '.join(emit(compiler, spec, stage, folder) for stage in STAGES)}")
    print(f"{len(specs)} examples: all of {len(STAGES)} stages")


main(*sys.argv[1:])
