"""Compile a spec, and call the kernel it becomes."""

from __future__ import annotations

import collections
import difflib
import functools
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Sequence

from . import _attn, arrays, checked, nvrtc


@dataclass(frozen=True)
class TensorInfo:
    """A parameter or an output of a kernel."""

    name: str
    dtype: str  #: f64 f32 f16 bf16 i64 i32 i8 u8 bool
    shape: tuple[str, ...]  #: size expressions, such as ("B", "M", "H * D"); () for a scalar
    default: float | None = None  #: of a scalar parameter

    def __str__(self) -> str:
        shape = f"[{', '.join(self.shape)}]" if self.shape else ""
        default = f" = {self.default:g}" if self.default is not None else ""
        return f"{self.name}: {self.dtype}{shape}{default}"


@functools.cache
def _results_type(kernel: str, names: tuple[str, ...]) -> type:
    """The named tuple of a kernel's outputs. A copy in another process is one of the same type there."""
    kind = collections.namedtuple(f"{kernel}_outputs", names, rename=True)
    kind.__reduce__ = lambda self: (_results, (kernel, names, tuple(self)))
    return kind


def _results(kernel: str, names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return _results_type(kernel, names)(*values)


def _compile_again(source: str, lazy: bool, options: Mapping[str, Any]) -> Kernel:
    return Kernel(source, lazy, **options)


class Kernel:
    """A compiled kernel. Calling it from several threads at once is safe, and the interpreter's lock is not held meanwhile."""

    def __init__(self, source: str, lazy: bool = False, **options: Any):
        if "sm_" in options["target"]:
            nvrtc.locate()
        if "torch" in sys.modules:
            _attn.use_openmp()
        self._source, self._lazy, self._given = source, lazy, options
        self._options = _attn.CompileOptions(**options)
        compiling = _attn.compile_lazily if lazy else _attn.compile
        self._kernel = implementation = compiling(source, self._options)
        self._operator: Any = None  # attn.torch_operator's, once there is one
        self.name: str = implementation.name
        self.inputs: tuple[TensorInfo, ...] = tuple(TensorInfo(*info) for info in implementation.inputs)
        self.outputs: tuple[TensorInfo, ...] = tuple(TensorInfo(*info) for info in implementation.outputs)
        self._positions = {info.name: position for position, info in enumerate(self.inputs)}
        self._results = _results_type(self.name, tuple(info.name for info in self.outputs))

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Runs the kernel on arrays given by position or by name, in the order and the shapes of `inputs`.

        An array is NumPy's, PyTorch's, JAX's or anything's with `__dlpack__`, with any strides; its elements are not copied. It is in
        the CPU's memory, or for a kernel for CUDA on a GPU: then the outputs are there too, and the call is in PyTorch's current
        stream, or for other libraries' arrays in that of `attn.set_cuda_stream`, when it returns. A scalar is a number or an array of
        rank 0, and may be left out where it has a default.

        Returns the output, or a named tuple of them where there are several, in the inputs' library. `out`, one array or a tuple of
        them, is written to instead and returned; it must not share memory with an input. Where a PyTorch tensor requires grad,
        so do the outputs, as those of `attn.torch_operator`; then `out` is not possible. Inside autocast, tensors of floats are
        converted to the dtypes of the inputs. Where an input is called `out`, as that of a
        backward kernel may be, `out` is this input.

        Raises TypeError for a wrong, missing or unknown argument or a wrong dtype, and ValueError for shapes and values that do not
        fit; with `check_bounds`, IndexError for a subscript that depends on data and is outside its tensor. Nothing is written then.
        NotImplementedError inside transforms of torch.func, and for derivatives in forward mode; torch.compile ends a graph at a
        call, and takes `attn.torch_operator` into it.
        """
        if out is not None and "out" in self._positions:
            kwargs["out"], out = out, None
        if arrays.is_transformed():
            arrays.refuse_transforms(self._positions, self._bind(args, kwargs), of_kernel=True)
        if out is None and not kwargs:
            results = self._kernel.run_exchanged(args)  # None where the arguments need more care
            if results is not None:
                return results[0] if len(results) == 1 else self._results(*results)
        values = self._bind(args, kwargs)
        if out is None and (arrays.need_gradients(values) or arrays.are_cast(values)):
            from .operators import torch_operator

            return torch_operator(self)(*values)
        return self._run(self._kernel.run, values, out)

    def reference(self, *args: Any, **kwargs: Any) -> Any:
        """The same call on the reference interpreter: double precision and plain loops, so slow, and right."""
        return self._run(self._kernel.reference, self._bind(args, kwargs), None)

    def grad(self, inputs: Sequence[str] | None = None) -> tuple[Kernel, Kernel]:
        """Compiles the kernels of a forward and a backward pass, for the gradients by `inputs` or by all floating-point ones.

        The first returns what this kernel does and then what the second needs of it: the log-sum-exp of each softmax, and
        some sums of weights. The second takes, by name, this kernel's inputs, what was saved (some outputs among it), and `grad_NAME`
        for each floating-point output; it returns `grad_NAME` for each of `inputs`, in their dtypes and shapes.

            forward, backward = kernel.grad(["q"])
            out, saved = forward(q, k, v)
            grad_q = backward(q, k, v, saved, out, grad_out)

        Raises attn.CompileError for a name that is no floating-point input or is there twice, TypeError for a text instead of
        names, and ValueError for a kernel that `grad` made.
        """
        if isinstance(inputs, str):
            raise TypeError(f"inputs: must be a list of names, as ['{inputs}'], but is the text '{inputs}'")
        return self._gradient(inputs, self._lazy)

    def _gradient(self, inputs: Sequence[str] | None, lazy: bool) -> tuple[Kernel, Kernel]:
        if self._given["gradient"] is not None:
            raise ValueError(f"{self.name}: is a kernel of a gradient already; gradients of gradients are not computed")
        options = self._given | {"gradient": list(inputs or [])}
        with ThreadPoolExecutor(2) as threads:  # the interpreter's lock is not held while a kernel is compiled
            forward, backward = threads.map(
                lambda suffix: Kernel(self._source, lazy, **(options | {"kernel": self.name + suffix})),
                ("_forward", "_backward"),
            )
        return forward, backward

    def emit(self, stage: str) -> str:
        """The text of a stage of the compilation: ast, attn, simplified, plan, halide, loops, llvm, asm, ptx, opencl or cuda.

        Raises CompileError where it cannot be made, and ValueError for an unknown stage and for the object, which `save` writes.
        """
        if stage == "object":
            raise ValueError("stage: the object is no text: save(PATH) writes it")
        return self._kernel.emit(stage)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes PATH.o and PATH.h: the kernel ahead of time, for C programs, as attnc does."""
        path = Path(path)
        object_file, header = _attn.compile_to_object(self._source, self._options, f"{path.name}.h")
        path.with_name(f"{path.name}.o").write_bytes(object_file)
        path.with_name(f"{path.name}.h").write_text(header, encoding="utf-8")

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of a kernel, in this process or another, is compiled again, which the caches make quick."""
        return _compile_again, (self._source, self._lazy, self._given)

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        outputs = ", ".join(map(str, self.outputs))
        return f"<attn.Kernel {self.name}({inputs}) -> {outputs}>"

    def _run(self, method: Any, values: list[Any], out: Any) -> Any:
        inputs = [self._input(info, value) for info, value in zip(self.inputs, values)]
        if out is None:
            library = arrays.library_of(values)
            shapes = self._kernel.output_shapes(inputs)
            results = [library.empty(shape, info.dtype) for shape, info in zip(shapes, self.outputs)]
        else:
            library = None
            results = self._given_outputs(out)
        outputs = [arrays.as_tensor(info.name, array, writable=True) for info, array in zip(self.outputs, results)]
        method(inputs, outputs, arrays.cuda_stream(values))
        if library is not None:
            results = [library.finish(array) for array in results]
        return results[0] if len(results) == 1 else self._results(*results)

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """One value for each input, None where its default is to be taken."""
        names = ", ".join(self._positions)
        if len(args) > len(self.inputs):
            raise TypeError(f"{self.name}() takes {len(self.inputs)} inputs ({names}), but {len(args)} were given")
        values: list[Any] = [*args, *[None] * (len(self.inputs) - len(args))]
        for name, value in kwargs.items():
            position = self._positions.get(name)
            if position is None:
                close = difflib.get_close_matches(name, self._positions, 1)
                hint = f"; did you mean '{close[0]}'?" if close else ""
                raise TypeError(f"{self.name}() has no input '{name}': its inputs are {names}{hint}")
            if position < len(args):
                raise TypeError(f"{self.name}() got '{name}' twice: by position and by name")
            values[position] = value
        missing = [str(info) for info, value in zip(self.inputs, values) if value is None and info.default is None]
        if missing:
            raise TypeError(f"{self.name}() is missing {', '.join(missing)}")
        return values

    def _input(self, info: TensorInfo, value: Any) -> _attn.Tensor | None:
        if value is None:
            return None
        arrays.check_elements(info.name, value)
        if not info.shape and (arrays.is_number(value) or getattr(value, "ndim", None) == 0):
            return arrays.as_scalar(info.name, value, info.dtype)
        if arrays.is_array(value):
            return arrays.as_tensor(info.name, value)
        expected = f"an array {info.dtype}[{', '.join(info.shape)}]" if info.shape else f"a number ({info.dtype})"
        raise TypeError(f"{info.name}: must be {expected}, but is of type {type(value).__name__}")

    def _given_outputs(self, out: Any) -> list[Any]:
        given = list(out) if isinstance(out, (tuple, list)) else [out]
        names = ", ".join(info.name for info in self.outputs)
        if len(given) != len(self.outputs):
            raise TypeError(f"out: must be {len(self.outputs)} arrays ({names}), but {len(given)} were given")
        for info, array in zip(self.outputs, given):
            if not arrays.is_array(array):
                expected = f"an array {info.dtype}[{', '.join(info.shape)}]"
                raise TypeError(f"{info.name}: must be {expected}, but is of type {type(array).__name__}")
        return given


def compile(
    source: str | os.PathLike[str],
    kernel: str | None = None,
    target: str = "host",
    sizes: Mapping[str, int] | None = None,
    dtype: Any = None,
    check_bounds: bool = False,
    count_chunks: bool = False,
    copy: bool | None = None,
    plan: Mapping[str, int] | None = None,
    lazy: bool = False,
) -> Kernel:
    """Compiles one kernel of a spec for this machine.

    source: the path of an .attn file, or the text of a spec.
    kernel: which kernel of the source; needed where it has several.
    target: "host"; "cuda" or "opencl" for a GPU of this machine; or a Halide target string such as "x86-64-linux-avx2".
        "cuda-sm_80,sm_90a" uses the tensor cores of these architectures where a kernel can (docs/tensor-cores.md); NVRTC compiles it.
    sizes: sizes fixed at compile time, such as {"D": 64}: constants that the schedule may use.
    dtype: "f32", "bf16" or "f16", or torch.bfloat16 and the like, instead of the dtype of the first floating-point parameter,
        wherever that dtype is written.
    check_bounds: a call that uses a subscript which depends on data and is out of bounds is an IndexError; without, it is clamped.
    count_chunks: for tests: every tiled sum NAME gets one more output, NAME_chunks, of three integers: how many chunks of keys
        the kernel visited, on how many of them it evaluated the mask, and how many there are.
    copy: on a GPU, arrays in the CPU's memory are copied there and back; without, they are an error. By default True for the
        target "opencl", for which no Python library has arrays.
    plan: sizes of the plan in place of those that are chosen, such as {"tile.chunk": 512} (`attnc --plan=help` lists them).
        Without, they come from the tuning database that the variable ATTN_TUNING_DB names, where it has this kernel.
    lazy: errors of the source are raised now, but a kernel has several functions for different sizes, and each is compiled when a
        call first needs it: half as much to compile for most uses, and a later call may wait, for other sizes. The kernels of `grad`
        are compiled in the same way. Of a kernel that is only called with tensors that require grad, no more is compiled than these.
        Those that PyTorch's autograd asks for are always compiled so.

    The same arguments give the same kernel from a cache, in a later process from one on disk: in the folder that the variable
    ATTN_CACHE_DIR names, or ~/.cache/attn; none where the variable is empty. Raises attn.CompileError with all errors of the source,
    and TypeError for an option of a wrong type.
    """
    path = _path_of(source)
    given = dict(
        name=str(path) if path else "<source>",
        kernel="" if kernel is None else checked.text("kernel", kernel),
        target=checked.text("target", target),
        sizes={} if sizes is None else checked.integers("sizes", sizes),
        dtype="" if dtype is None else checked.dtype(dtype),
        check_bounds=checked.flag("check_bounds", check_bounds),
        count_chunks=checked.flag("count_chunks", count_chunks),
        copy=target == "opencl" if copy is None else checked.flag("copy", copy),
        plan=None if plan is None else checked.integers("plan", plan),
        gradient=None,
    )
    return Kernel(path.read_text(encoding="utf-8") if path else str(source), checked.flag("lazy", lazy), **given)


def set_num_threads(threads: int) -> None:
    """At most how many threads work on a call, the one that calls among them.

    0 means one for each core; where PyTorch was imported before a kernel was compiled, as many as `torch.get_num_threads()` says: kernels
    run on its threads.
    """
    threads = checked.integer("threads", threads)
    if threads < 0:
        raise ValueError(f"threads: must be 0 or more, but is {threads}")
    _attn.set_num_threads(min(threads, 2**31 - 1))


def set_cuda_stream(stream: int) -> None:
    """From now on this thread's calls on arrays on a GPU run on this stream, given as an address; 0 is the default one.

    PyTorch's tensors run on PyTorch's current stream instead.
    """
    stream = checked.integer("stream", stream)
    if stream < 0:
        raise ValueError(f"stream: must be the address of a stream, or 0, but is {stream}")
    _attn.set_cuda_stream(stream)


def _path_of(source: str | os.PathLike[str]) -> Path | None:
    """A string is a path if it is one line that ends in .attn."""
    if isinstance(source, os.PathLike):
        return Path(source)
    if not isinstance(source, str):
        raise TypeError(f"source: must be a path or the text of a spec, but is of type {type(source).__name__}")
    return Path(source) if "\n" not in source and source.endswith(".attn") else None
