"""Our own kernel with the plan that `attnc tune` finds, as a peer of the one whose plan the model has chosen."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from unittest import mock

import torch

import attn

from .workload import Call, Workload

PEER = "attn tuned"


def tuned(workload: Workload) -> Workload:
    """The workload, beside itself with a tuned plan, for PyTorch's number of threads."""
    return dataclasses.replace(workload, peers={PEER: partial(with_tuned_plan, workload)}, races_formula=False)


def with_tuned_plan(workload: Workload, **inputs: torch.Tensor) -> Call:
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "tuning.yaml"
        tune(workload, database)
        with mock.patch.dict(os.environ, ATTN_TUNING_DB=str(database)):
            kernel = workload.kernel()
    return lambda: kernel(*inputs.values())


def tune(workload: Workload, database: Path) -> None:
    """Runs `attnc tune` at the shape of the workload's inputs. Raises RuntimeError with what attnc says, if it fails."""
    shape = {}
    for info in workload.kernel().inputs:
        shape |= zip(info.shape, workload.inputs[info.name].shape)
    options = [f"--shape={','.join(f'{name}={size}' for name, size in shape.items())}", f"--threads={torch.get_num_threads()}"]
    options += [f"--dtype={workload.dtype}"] * (workload.dtype != "f32") + [f"--database={database}"]
    program = "from attn.command import main; main()"
    environment = os.environ | {"PYTHONPATH": str(Path(attn.__file__).parents[1])}
    command = [sys.executable, "-c", program, "tune", "-", *options]
    done = subprocess.run(command, input=workload.spec, text=True, capture_output=True, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
