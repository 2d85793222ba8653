"""What kernels are asked beside a formula in PyTorch: its numbers, its gradients, and what is stored for them."""

import re

import torch


def random_inputs(kernel, sizes, other=None):
    """A tensor for each input, of dimensions with these sizes by name; the `other` size is that of further names."""
    return [torch.randn([sizes.get(size, other) for size in info.shape]) for info in kernel.inputs]


def assert_equals_formula(kernel, formula, tensors, tolerance, gradient_tolerance, noise):
    """In f32, against `formula` in f64. Tolerances are relative to the largest number of the result and of each gradient;
    `noise` is added to both."""
    tensors = [tensor.requires_grad_() for tensor in tensors]
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    result, wanted = kernel(*tensors), formula(*exact)
    torch.testing.assert_close(result.double(), wanted, rtol=0, atol=tolerance * wanted.abs().max().item() + noise)
    direction = torch.randn_like(result)
    result.backward(direction)
    wanted.backward(direction.double())
    for single, double in zip(tensors, exact, strict=True):
        scale = double.grad.abs().max().item()
        torch.testing.assert_close(single.grad.double(), double.grad, rtol=0, atol=gradient_tolerance * scale + noise)


def stored_whole(kernel, *indices):
    """The tensors with these last indices ("m: M") that the kernel or its gradients store, but not in blocks of rows."""
    last = ", ".join(f"%{index}" for index in indices)
    stored = [
        found
        for each in (kernel, *kernel.grad())
        for found in re.findall(rf'attn\.tensor "(\w+)"\([^)]*{last}\) : f32 (.*)', each.emit("simplified"))
    ]
    return [tensor for tensor, attributes in stored if "attn.pairs" not in attributes]
