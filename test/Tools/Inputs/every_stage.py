"""Emits the stages of the examples and prints the sizes; any failure, and any empty stage, ends it with status 1.

Stages that generate code take a second each, so they are emitted of some examples; test/Gallery makes objects of all.

    every_stage.py ATTNC EXAMPLES
"""

import pathlib
import subprocess
import sys
import tempfile

QUICK_STAGES = "ast attn simplified plan".split()
STAGES = [*QUICK_STAGES, "halide", "loops", "llvm", "asm", "object"]
ALL_STAGES_OF = {"scaled_dot", "bmm", "additive", "everything", "mha", "paged", "linear", "selected_blocks"}

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
            stages = STAGES if spec.stem in ALL_STAGES_OF else QUICK_STAGES
            print(f"{spec.name}: {', '.join(emit(compiler, spec, stage, folder) for stage in stages)}")
    print(f"{len(specs)} examples: {len(QUICK_STAGES)} stages of each, {len(STAGES)} of {len(ALL_STAGES_OF)}")


main(*sys.argv[1:])
