"""Kernels of attn, their peers and the machine's limits, measured in turns: `python -m bench`."""
