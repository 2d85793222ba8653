"""What a kernel object offers, and how it may be called."""

import ast
import copy
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import formulas
import numpy as np
import pytest

import attn

TWO_KERNELS = """
attention double(x: f32[N]) {
  y[n] = 2.0 * x[n]
  return y
}
attention scale(x: f32[N], factor: f32 = 3.0, shift: i32 = 0) {
  y[n] = factor * x[n] + shift
  return y
}
"""


@pytest.fixture(scope="module")
def kernel():
    from conftest import EXAMPLES

    return attn.compile(EXAMPLES / "scaled_dot.attn")


@pytest.fixture(scope="module")
def scale():
    return attn.compile(TWO_KERNELS, kernel="scale")


def arguments(generator, b=2, m=5, n=9, d=4, e=3):
    q, k, v = (generator.standard_normal(s, np.float32) for s in ((b, m, d), (b, n, d), (b, n, e)))
    return q, k, v, generator.integers(1, n + 1, b).astype(np.int32)


def assert_right(found, q, k, v, valid):
    for output, wanted in zip(found, formulas.scaled_dot(q, k, v, valid), strict=True):
        np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-5)


def test_names_dtypes_and_shapes(kernel):
    assert kernel.name == "scaled_dot"
    assert [str(info) for info in kernel.inputs] == ["q: f32[B, M, D]", "k: f32[B, N, D]", "v: f32[B, N, E]", "valid: i32[B]"]
    assert [str(info) for info in kernel.outputs] == ["out: f32[B, M, E]", "weight: f32[B, M, N]"]
    assert kernel.inputs[0] == attn.TensorInfo("q", "f32", ("B", "M", "D"), None)
    assert repr(kernel).startswith("<attn.Kernel scaled_dot(q: f32[B, M, D], ")


def test_by_position_and_by_name(kernel, generator):
    q, k, v, valid = arguments(generator)
    assert_right(kernel(q, k, v, valid), q, k, v, valid)
    assert_right(kernel(valid=valid, v=v, k=k, q=q), q, k, v, valid)
    assert_right(kernel(q, k, valid=valid, v=v), q, k, v, valid)


def test_several_outputs_have_names_and_one_output_is_itself(kernel, scale, generator):
    results = kernel(*arguments(generator))
    assert results._fields == ("out", "weight") and results.out is results[0]
    assert isinstance(scale(np.ones(3, np.float32)), np.ndarray)


def test_a_source_may_be_a_path_a_name_or_text(examples, kernel, generator):
    path = examples / "scaled_dot.attn"
    drawn = arguments(generator)
    for source in (path, str(path), path.read_text()):
        assert_right(attn.compile(source)(*drawn), *drawn)


def test_scalars_and_their_defaults(scale):
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(scale(x), 3 * x)
    np.testing.assert_array_equal(scale(x, 2), 2 * x)
    np.testing.assert_array_equal(scale(x, shift=1), 3 * x + 1)
    np.testing.assert_array_equal(scale(x, np.float64(0.5), np.int64(-4)), 0.5 * x - 4)
    np.testing.assert_array_equal(scale(x, np.array(0.5), np.array(2, np.int8)), 0.5 * x + 2)
    assert scale.inputs[1].default == 3.0 and str(scale.inputs[2]) == "shift: i32 = 0"


def test_out_is_written_and_returned(kernel, scale, generator):
    q, k, v, valid = drawn = arguments(generator)
    out, weight = np.full((2, 5, 3), np.nan, np.float32), np.full((2, 5, 9), np.nan, np.float32)
    results = kernel(*drawn, out=(out, weight))
    assert results.out is out and results.weight is weight
    assert_right((out, weight), *drawn)
    y = np.empty(3, np.float32)
    assert scale(np.ones(3, np.float32), out=y) is y and (y == 3).all()


def test_out_may_have_any_strides(scale):
    room = np.zeros((4, 2), np.float32)
    scale(np.arange(4, dtype=np.float32), out=room[::-1, 1])
    np.testing.assert_array_equal(room, [[0, 9], [0, 6], [0, 3], [0, 0]])


def test_sizes_fixed_at_compile_time(examples, generator):
    kernel = attn.compile(examples / "scaled_dot.attn", sizes={"D": 4})
    drawn = arguments(generator)
    assert_right(kernel(*drawn), *drawn)
    with pytest.raises(ValueError, match="q: dimension 2"):
        kernel(*arguments(generator, d=5))


def test_dtype_in_place_of_the_specs(generator, examples):
    kernel = attn.compile(examples / "everything.attn", dtype="f32")
    assert [info.dtype for info in kernel.inputs] == ["f32"] * 5 + ["i32"]


def test_dtypes_of_libraries():
    for dtype, name in [(np.float16, "f16"), (np.dtype("float32"), "f32"), (np.float32, "f32")]:
        assert attn.compile(TWO_KERNELS, kernel="scale", dtype=dtype).inputs[0].dtype == name
    torch = pytest.importorskip("torch")
    assert attn.compile(TWO_KERNELS, kernel="scale", dtype=torch.bfloat16).inputs[0].dtype == "bf16"


def test_emit_prints_a_stage(kernel):
    assert "attn.softmax" in kernel.emit("simplified")
    assert kernel.emit("plan").strip()


def test_save_writes_an_object_and_its_header(scale, tmp_path):
    scale.save(tmp_path / "libscale")
    assert (tmp_path / "libscale.o").read_bytes()[:4] == b"\x7fELF"
    (tmp_path / "main.c").write_text("""
        #include "libscale.h"
        #include <stdio.h>
        int main(void) {
          float x[3] = {1, 2, 3}, y[3];
          int64_t shape[1] = {3};
          DLTensor tx = {x, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, 0, 0}, ty = tx;
          ty.data = y;
          if (scale(&tx, 0, 0, &ty)) return 1;
          printf("%g %g %g\\n", y[0], y[1], y[2]);
          return 0;
        }""")
    command = ["cc", "-std=c99", "-Wall", "-Werror", "main.c", "libscale.o", "-lpthread", "-ldl", "-lm", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert subprocess.check_output([tmp_path / "main"], text=True) == "3 6 9\n"


def test_reference_agrees(kernel, generator):
    drawn = arguments(generator)
    assert_right(kernel.reference(*drawn), *drawn)
    assert kernel.reference(*drawn).out.dtype == np.float32


def test_the_same_source_gives_the_same_kernel_quickly(examples, generator):
    text = (examples / "scaled_dot.attn").read_text()
    kernels = [attn.compile(text) for _ in range(200)]  # minutes, were they compiled 200 times
    drawn = arguments(generator)
    assert_right(kernels[-1](*drawn), *drawn)


def test_threads_call_one_kernel(kernel, generator):
    cases = [arguments(generator, m=1 + i, n=20 + i) for i in range(8)]
    expected = [kernel(*case) for case in cases]
    wrong = []

    def call(index):
        for _ in range(1000):
            for found, wanted in zip(kernel(*cases[index]), expected[index]):
                if not np.array_equal(found, wanted):
                    wrong.append(index)

    run_together(call)
    assert not wrong


def test_threads_compile_different_kernels():
    wrong = []

    def compile_and_call(index):
        for factor in range(4):
            kernel = attn.compile(f"attention f(x: f32[N]) {{ y[n] = {index}.0 * x[n] + {factor}.0\n return y }}")
            for _ in range(250):
                if kernel(np.array([2, 3], np.float32)).tolist() != [2 * index + factor, 3 * index + factor]:
                    wrong.append((index, factor))

    run_together(compile_and_call)
    assert not wrong


def run_together(function):
    threads = [threading.Thread(target=function, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_the_interpreters_lock_is_free_while_a_kernel_runs(examples, generator):
    """A thread that only counts gets on while the main thread is in one long call."""
    kernel = attn.compile(examples / "scaled_dot.attn")
    drawn = arguments(generator, b=4, m=300, n=300, d=64, e=64)
    count, stop = 0, threading.Event()

    def tick():
        nonlocal count
        while not stop.is_set():
            count += 1
            time.sleep(0.0005)  # gives the lock back, and gets it again only where the main thread releases it

    ticker = threading.Thread(target=tick)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # the lock changes hands only where it is released
    try:
        ticker.start()
        before = count
        kernel.reference(*drawn)
        during = count - before
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        ticker.join()
    assert during > 0


def test_the_number_of_threads_does_not_change_the_result(kernel, generator):
    drawn = arguments(generator, m=200, n=300)
    try:
        results = []
        for threads in (1, 2, 0):
            attn.set_num_threads(threads)
            results.append(kernel(*drawn))
    finally:
        attn.set_num_threads(0)
    for result in results[1:]:
        np.testing.assert_array_equal(result.out, results[0].out)


def test_the_stub_has_what_the_module_has():
    """Names, and the parameters of the functions that nanobind's docstrings show."""
    stub = ast.parse((Path(attn.__file__).parent / "_attn.pyi").read_text())
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    assert {*classes, *functions} == {name for name in dir(attn._attn) if not name.startswith("_")}
    for name, node in classes.items():
        members = {each.name for each in node.body if isinstance(each, ast.FunctionDef)} - {"__init__"}
        found = {member for member in vars(getattr(attn._attn, name)) if not member.startswith("_")}
        assert members == found, name


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_numbers_for_scalars_of_any_width(dtype):
    """Rounded to the nearest number of the scalar's type."""
    kernel = attn.compile(f"attention scale(x: f64[N], factor: {dtype}) {{\n y[n] = x[n] * factor\n return y\n}}")
    rounded = {"f64": 1 / 3, "f32": float(np.float32(1 / 3)), "f16": 0.333251953125, "bf16": 0.333984375}[dtype]
    x = np.array([1.0, 3.0])
    for number in (2, 2.0, np.float16(2), np.array(2, np.float16), np.int64(2)):
        np.testing.assert_array_equal(kernel(x, number), x * 2)
    np.testing.assert_array_equal(kernel(x, 1 / 3), x * rounded)
    assert np.isinf(kernel(x, 1e300)[0]) == (dtype != "f64")
    with pytest.raises(ValueError, match="^factor: 1000.* does not fit"):
        kernel(x, 10**400)


def test_subscripts_that_are_an_index_in_the_end_are_clamped():
    """`n + 0` may be beyond the end, as `n + 1` may; the variable itself may not."""
    numbers = np.arange(1, 10, dtype=np.float32)
    for subscript in ("n + 0", "n * 1", "n // 1", "i64(n)", "n % N", "max(n, 0)", "2 * n - n"):
        kernel = attn.compile(f"attention f(x: f32[N], t: f32[T]) {{\n y[n] = x[n] * t[{subscript}]\n return y\n}}")
        expected = numbers * np.minimum(numbers, 4)
        np.testing.assert_array_equal(kernel(numbers, numbers[:4]), expected)
        np.testing.assert_array_equal(kernel.reference(numbers, numbers[:4]), expected)


def test_copies_of_kernels_and_of_results(kernel, generator):
    given = arguments(generator)
    results = kernel(*given)
    copied = pickle.loads(pickle.dumps(results))
    assert type(copied) is type(results) and copied.weight.shape == results.weight.shape
    for other in (pickle.loads(pickle.dumps(kernel)), copy.deepcopy(kernel), copy.copy(kernel)):
        np.testing.assert_array_equal(other(*given).out, results.out)


def test_a_size_may_be_set_to_0():
    source = """attention a(q: f32[M, D], k: f32[N, D], v: f32[N, E]) {
      weight[m, n] = softmax[n](sum[d](q[m, d] * k[n, d]))
      out[m, e] = sum[n](weight[m, n] * v[n, e])
      return out
    }"""
    v = np.arange(10, dtype=np.float32).reshape(5, 2)
    out = attn.compile(source, sizes={"D": 0})(np.zeros((3, 0), np.float32), np.zeros((5, 0), np.float32), v)
    np.testing.assert_allclose(out, np.tile(v.mean(0), (3, 1)), rtol=1e-6)
