"""Prints which stages attnc can emit of each example. A stage may fail only with "not supported yet"."""

import pathlib
import subprocess
import sys
import tempfile

STAGES = "ast attn simplified plan halide loops llvm asm object".split()


def emit(compiler, spec, stage, folder):
    """Whether the stage was emitted; exits where it failed in a way it may not."""
    path = pathlib.Path(folder) / f"{spec.stem}.{'o' if stage == 'object' else 'txt'}"
    result = subprocess.run(
        [compiler, str(spec), f"--emit={stage}", "-o", str(path)], capture_output=True, text=True, check=False
    )
    if result.returncode == 0 and path.stat().st_size:
        return True
    if result.returncode == 1 and "not supported yet" in result.stderr:
        return False
    sys.exit(f"{spec.name}: {stage}: status {result.returncode}\n{result.stderr}")


def main():
    compiler, examples = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        for spec in sorted(pathlib.Path(examples).glob("*.attn")):
            emitted = [stage for stage in STAGES if emit(compiler, spec, stage, folder)]
            print(f"{spec.name}: {' '.join(emitted)}")
    print("all stages as expected")


main()
