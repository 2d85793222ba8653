"""Which threads kernels run on. Each test is a process of its own: threads that are there already would hide others."""

import subprocess
import sys
import textwrap

import pytest

KERNEL = """
    import os
    import time
    import attn

    def threads():
        return len(os.listdir("/proc/self/task"))

    def seconds_of_others():
        "The processor time that other threads take while this one calls the kernel for a tenth of a second."
        own, all = time.thread_time(), time.process_time()
        while time.thread_time() - own < 0.1:
            kernel(x)
        return time.process_time() - all - (time.thread_time() - own)

    def compiled():
        return attn.compile("attention roots(x: f32[M, N]) {\\n  y[m, n] = sqrt(x[m, n])\\n  return y\\n}")
"""


def run(program: str) -> None:
    subprocess.run([sys.executable, "-c", textwrap.dedent(KERNEL) + textwrap.dedent(program)], check=True)


@pytest.mark.parametrize("module", ["numpy", "torch"])
def test_fewer_threads_after_more(module):
    pytest.importorskip(module)
    run(f"""
        import numpy
        import {module}

        kernel, x = compiled(), {module}.ones((256, 1024), dtype={module}.float32)
        attn.set_num_threads(3)
        kernel(x)
        attn.set_num_threads(1)
        assert seconds_of_others() < 0.05
        """)


def test_kernels_run_on_the_threads_of_pytorch():
    pytest.importorskip("torch")
    run("""
        import torch

        torch.set_num_threads(3)
        x = torch.ones(256, 1024)
        kernel = compiled()
        x.exp()  # now PyTorch has its threads
        before = threads()
        kernel(x)
        attn.set_num_threads(2)
        kernel(x)
        assert threads() <= before, (threads(), before)  # PyTorch's may end, none begins
        """)


def test_pytorch_says_how_many_threads_there_are():
    pytest.importorskip("torch")
    run("""
        import torch

        x = torch.ones(256, 1024)
        kernel = compiled()
        kernel(x)
        torch.set_num_threads(1)
        assert seconds_of_others() < 0.05
        """)
