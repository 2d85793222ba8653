"""Compiles every example for CUDA and for OpenCL; no spec is written otherwise for a GPU.

    gpu_gallery.py ATTNC EXAMPLES
"""

import pathlib
import subprocess
import sys

SIGNS = {"ptx": ".visible .entry", "opencl": "__kernel void _kernel"}
TARGETS = {"ptx": "x86-64-linux-cuda-cuda_capability_80", "opencl": "x86-64-linux-opencl"}


def main(compiler, examples):
    specs = sorted(pathlib.Path(examples).glob("*.attn"))
    for spec in specs:
        for stage, sign in SIGNS.items():
            command = [compiler, str(spec), f"--target={TARGETS[stage]}", f"--emit={stage}"]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode or sign not in result.stdout:
                sys.exit(f"{spec.name}: {stage}: status {result.returncode}\n{result.stderr}")
    print(f"{len(specs)} examples for CUDA and OpenCL")


main(*sys.argv[1:])
