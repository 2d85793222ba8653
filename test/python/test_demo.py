"""The race of the demo, where another program takes the place of the C program."""

import subprocess
import sys

from conftest import EXAMPLES


def test_a_program_that_stops(tmp_path):
    demo = tmp_path / "demo"
    demo.write_text("#!/bin/sh\nread command\n", encoding="utf-8")
    demo.chmod(0o755)
    done = subprocess.run([sys.executable, EXAMPLES / "demo" / "race.py", demo, tmp_path], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.endswith("the C program stopped at 'run'\n"), done.stderr
