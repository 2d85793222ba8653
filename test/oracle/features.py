"""What the compiler can do already, found by asking it: what it says that it does not support yet is not drawn. bf16 needs PyTorch's tensors."""

import importlib.util

import attn

_PROBES = {
    "f64": "attention probe(x: f64[N]) {\n  y[n] = x[n] + 1\n  return y\n}\n",
    "f16": "attention probe(x: f16[N]) {\n  y[n] = x[n] + 1\n  return y\n}\n",
    "bf16": "attention probe(x: bf16[N]) {\n  y[n] = x[n] + 1\n  return y\n}\n",
    "i8": "attention probe(x: i8[N]) {\n  y[n] = f32(x[n])\n  return y\n}\n",
    "dropout": "attention probe(x: f32[N]) {\n  y[n] = dropout(x[n], 0.5, 1)\n  return y\n}\n",
}


def supported_features() -> frozenset[str]:
    found = set()
    have_torch = importlib.util.find_spec("torch") is not None
    for name, source in _PROBES.items():
        try:
            attn.compile(source)
            if name != "bf16" or have_torch:
                found.add(name)
        except attn.CompileError as error:
            if "not supported yet" not in str(error):
                raise
    return frozenset(found)
