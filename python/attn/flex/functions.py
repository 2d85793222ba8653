"""PyTorch's functions of single floats, as expressions of the language. Importing this adds them to `OPERATIONS`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable

from .logic import maximum
from .operations import mul, operation
from .symbols import Symbol

if TYPE_CHECKING:
    from .tracing import Tracer


def _function(template: str) -> Callable[..., Symbol]:
    def call(tracer: Tracer, input: Any, inplace: bool = False) -> Symbol:
        symbol = tracer.floating(input)
        return tracer.symbol(template, [symbol] * template.count("{}"), "float")

    return call


for _name in ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid"):
    operation(_name)(_function(f"{_name}({{}})"))
for _name, _template in {
    "expit": "sigmoid({})",
    "tan": "(sin({}) / cos({}))",
    "log10": f"(log({{}}) * {1 / math.log(10)!r})",
    "log1p": "log(1.0 + {})",
    "expm1": "(exp({}) - 1.0)",
    "reciprocal": "(1.0 / {})",
    "silu": "({} * sigmoid({}))",
    "log_sigmoid": "(min({}, 0.0) - log(1.0 + exp(-abs({}))))",
    "relu6": "min(max({}, 0.0), 6.0)",
}.items():
    operation(_name)(_function(_template))
for _name, _template in {"isnan": "isnan({})", "isinf": "(abs({}) == inf)", "isfinite": "(abs({}) < inf)"}.items():

    def _predicate(tracer: Tracer, input: Any, template: str = _template) -> Symbol:
        return tracer.symbol(template, [tracer.floating(input)], "bool")

    operation(_name)(_predicate)


@operation("relu")
def _relu(tracer: Tracer, input: Any, inplace: bool = False) -> Symbol:
    return maximum(tracer, input, 0)


@operation("gelu")
def _gelu(tracer: Tracer, input: Any, approximate: str = "none") -> Symbol:
    symbol = tracer.floating(input)
    if approximate == "none":
        return tracer.symbol("gelu({})", [symbol], "float")
    inner = f"tanh({math.sqrt(2 / math.pi)!r} * ({{}} + 0.044715 * {{}} ** 3))"
    return tracer.symbol(f"(0.5 * {{}} * (1.0 + {inner}))", [symbol] * 3, "float")


@operation("softplus")
def _softplus(tracer: Tracer, input: Any, beta: float = 1, threshold: float = 20) -> Symbol:
    scaled = mul(tracer, tracer.floating(input), float(beta))
    template = f"select({{}} > {float(threshold)!r}, {{}}, log(1.0 + exp({{}})) / {float(beta)!r})"
    return tracer.symbol(template, [scaled, tracer.floating(input), scaled], "float")
