"""Every differentiable example as an operator of PyTorch: gradcheck in float64, and opcheck."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from test_gallery import NAMES, draw  # noqa: E402
from test_gradients import compile_in  # noqa: E402

import attn  # noqa: E402

NOT_DIFFERENTIATED = {"p"}  # the probability of a dropout: it decides which elements are dropped
CHECKS = (
    "test_schema",
    "test_autograd_registration",
    "test_faketensor",
    "test_aot_dispatch_dynamic",
    "test_aot_dispatch_static",
)


def finite(results):
    """The floating-point outputs; an empty row's log-sum-exp is -inf whatever the inputs are."""
    results = results if isinstance(results, tuple) else (results,)
    return tuple(torch.where(each.isfinite(), each, 0) for each in results if each.is_floating_point())


@pytest.mark.parametrize("name", NAMES)
def test_an_example_as_an_operator(name):
    kernel = compile_in("f64", name)
    operator = attn.torch_operator(kernel)
    drawn, _ = draw(name, kernel, 1)
    tensors = []
    for info in kernel.inputs:
        value = drawn.get(info.name, info.default)
        dtype = {"f64": torch.float64, "bool": torch.bool}.get(info.dtype) or getattr(torch, f"int{info.dtype[1:]}")
        tensor = torch.tensor(np.array(value, order="C"), dtype=dtype)
        tensors.append(tensor.requires_grad_(info.dtype == "f64" and info.name not in NOT_DIFFERENTIATED))
    assert torch.autograd.gradcheck(lambda *inputs: finite(operator(*inputs)), tensors, fast_mode=True)
    torch.library.opcheck(getattr(torch.ops.attn, operator.name), tuple(tensors), test_utils=CHECKS)
