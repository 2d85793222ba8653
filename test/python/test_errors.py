"""What a wrong call says: the exception's type, the name of the argument, what was expected and what was found."""

import re
import subprocess
import sys

import numpy as np
import pytest

import attn

SPEC = """
attention attend(q: f32[B, M, D], k: f32[B, N, D], v: f32[B, N, E], valid: i32[B], scale: f32 = 1.0) {
  weight[b, m, n] = softmax[n](scale * sum[d](q[b, m, d] * k[b, n, d]) where n < valid[b])
  out[b, m, e]    = sum[n](weight[b, m, n] * v[b, n, e])
  return out, weight
}
"""


@pytest.fixture(scope="module")
def kernel():
    return attn.compile(SPEC)


def arguments(**changes):
    q, k, v = np.ones((2, 3, 4), np.float32), np.ones((2, 5, 4), np.float32), np.ones((2, 5, 6), np.float32)
    return {"q": q, "k": k, "v": v, "valid": np.array([5, 2], np.int32), **changes}


def fails(kernel, error, text, *args, **kwargs):
    with pytest.raises(error) as caught:
        kernel(*args, **kwargs)
    assert str(caught.value) == text
    assert caught.type is error


def test_too_many_inputs(kernel):
    fails(kernel, TypeError, "attend() takes 5 inputs (q, k, v, valid, scale), but 6 were given", *range(6))


def test_an_unknown_name(kernel):
    text = "attend() has no input 'vaild': its inputs are q, k, v, valid, scale; did you mean 'valid'?"
    fails(kernel, TypeError, text, **arguments(vaild=1))
    fails(kernel, TypeError, "attend() has no input 'x': its inputs are q, k, v, valid, scale", **arguments(x=1))


def test_an_input_given_twice(kernel):
    fails(kernel, TypeError, "attend() got 'q' twice: by position and by name", 1, **arguments())


def test_missing_inputs(kernel):
    fails(kernel, TypeError, "attend() is missing v: f32[B, N, E], valid: i32[B]", 1, 2)


def test_what_is_no_array(kernel):
    text = "k: must be an array f32[B, N, D], but is of type list"
    fails(kernel, TypeError, text, **arguments(k=[[1.0]]))
    fails(kernel, TypeError, "k: must be an array f32[B, N, D], but is of type float", **arguments(k=1.0))


def test_what_is_no_number(kernel):
    fails(kernel, TypeError, "scale: must be a number (f32), but is of type str", **arguments(scale="1"))
    fails(kernel, TypeError, "scale: must be a number that can be f32, but is True", **arguments(scale=True))
    fails(kernel, TypeError, "scale: must be a number that can be f32, but is 1j", **arguments(scale=np.complex64(1j)))


def test_scalars_that_do_not_fit():
    kernel = attn.compile("attention f(x: f32[N], a: i32, b: i64, c: bool) { y[n] = select(c, x[n] + a, x[n] + b)\n return y }")
    x = np.ones(2, np.float32)
    assert kernel(x, 2**31 - 1, 2**63 - 1, True).shape == (2,) and kernel(x, -(2**31), -(2**63), np.False_).shape == (2,)
    fails(kernel, ValueError, "a: 2147483648 does not fit i32", x, 2**31, 0, True)
    fails(kernel, ValueError, "a: -2147483649 does not fit i32", x, -(2**31) - 1, 0, True)
    fails(kernel, ValueError, f"b: {2**63} does not fit i64", x, 0, 2**63, True)
    fails(kernel, ValueError, f"b: {-(2**70)} does not fit i64", x, 0, -(2**70), True)
    fails(kernel, TypeError, "a: must be a number that can be i32, but is 1.5", x, 1.5, 0, True)
    fails(kernel, TypeError, "c: must be a number that can be bool, but is 1", x, 1, 0, 1)


@pytest.mark.parametrize(
    "dtype, found",
    [
        ("float64", "f64"),
        ("float16", "f16"),
        ("int32", "i32"),
        ("bool", "bool"),
        ("complex64", "complex64 (which no tensor can be)"),
    ],
)
def test_a_wrong_dtype(kernel, dtype, found):
    fails(kernel, TypeError, f"q: dtype is {found}, but must be f32", **arguments(q=np.ones((2, 3, 4), dtype)))


def test_a_dtype_that_dlpack_does_not_have(kernel):
    text = "q: dtype >f4 cannot be passed through DLPack"
    fails(kernel, TypeError, text, **arguments(q=np.ones((2, 3, 4), ">f4")))
    fails(kernel, TypeError, "q: dtype object cannot be passed through DLPack", **arguments(q=np.ones((2, 3, 4), object)))


def test_a_library_that_refuses(kernel):
    class Refusing:
        def __dlpack__(self, **options):
            raise BufferError("not today")

    fails(kernel, TypeError, "q: Refusing cannot be passed through DLPack: not today", **arguments(q=Refusing()))


def test_a_wrong_rank(kernel):
    fails(kernel, ValueError, "q: rank is 2, but must be 3", **arguments(q=np.ones((3, 4), np.float32)))
    fails(kernel, ValueError, "scale: is a scalar, so its rank must be 0, but is 1", **arguments(scale=np.ones(1, np.float32)))


def test_sizes_that_disagree(kernel):
    text = "v: dimension 1 (N) is 7, but k: dimension 1 made N = 5"
    fails(kernel, ValueError, text, **arguments(v=np.ones((2, 7, 6), np.float32)))
    fails(kernel, ValueError, "valid: dimension 0 (B) is 3, but q: dimension 0 made B = 2", **arguments(valid=np.ones(3, np.int32)))


def test_sizes_that_no_dimension_can_be():
    kernel = attn.compile("attention f(x: f32[N], y: f32[N * N]) {\n  z[n] = x[n] + y[0]\n  return z\n}\n")
    fails(kernel, ValueError, "y: dimension 0 (N * N) would be too large", np.ones(1 << 16, np.float32), np.ones(3, np.float32))
    kernel = attn.compile("attention f(x: f32[N]) {\n  y[i: N - 5] = x[i]\n  return y\n}\n")
    fails(kernel, ValueError, "y: dimension 0 (N - 5) would be negative or too large", np.ones(3, np.float32))


def test_a_device_that_is_not_the_cpu(kernel):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU to be wrong about")
    with pytest.raises(ValueError, match="q: is on a device of type 2, but must be on the CPU"):
        kernel(**arguments(q=torch.ones(2, 3, 4, device="cuda")))


def outputs():
    return np.empty((2, 3, 6), np.float32), np.empty((2, 3, 5), np.float32)


def test_outputs_that_do_not_fit(kernel):
    out, weight = outputs()
    given = arguments()
    fails(kernel, TypeError, "out: must be 2 arrays (out, weight), but 1 were given", **given, out=out)
    fails(kernel, TypeError, "weight: must be an array f32[B, M, N], but is of type int", **given, out=(out, 1))
    fails(kernel, ValueError, "out: dimension 2 (E) is 5, but v: dimension 2 made E = 6", **given, out=(weight, weight))
    fails(kernel, TypeError, "out: dtype is f64, but must be f32", **given, out=(out.astype(float), weight))
    out.flags.writeable = False
    fails(kernel, ValueError, "out: is read-only, but the kernel would write to it", **given, out=(out, weight))


def test_an_output_of_bf16_without_ml_dtypes(monkeypatch):
    kernel = attn.compile("attention f(x: f32[N]) {\n  y[n]: bf16 = x[n]\n  return y\n}\n")
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    fails(kernel, TypeError, "NumPy has no bf16 of its own: install ml_dtypes, or pass PyTorch tensors", np.ones(2, np.float32))


def test_an_output_that_shares_memory(kernel):
    room = np.ones((2, 5, 6), np.float32)
    with pytest.raises(ValueError, match="^out: the output shares memory with the input v$"):
        kernel(**arguments(v=room), out=(room[:, :3], outputs()[1]))


def test_nothing_is_written_by_a_failed_call(kernel):
    out, weight = outputs()
    out[:], weight[:] = 7, 8
    with pytest.raises(ValueError):
        kernel(**arguments(valid=np.ones(3, np.int32)), out=(out, weight))
    assert (out == 7).all() and (weight == 8).all()


def test_errors_of_a_spec_have_carets():
    with pytest.raises(attn.CompileError) as caught:
        attn.compile("attention f(x: f32[N]) {\n  y[n] = x[n] + z[n]\n  return y\n}\n")
    text = str(caught.value)
    assert re.search(r"^<source>:2:17: error: .*z", text)
    assert text.splitlines()[1:3] == ["    y[n] = x[n] + z[n]", "                  ^"]


def test_errors_of_a_file_name_it(tmp_path):
    path = tmp_path / "broken.attn"
    path.write_text("attention f(x: f32[N]) {\n  return w\n}\n")
    with pytest.raises(attn.CompileError, match=re.escape(f"{path}:2:10: error: ")):
        attn.compile(path)


def test_a_file_that_is_not_there():
    with pytest.raises(FileNotFoundError, match="nowhere.attn"):
        attn.compile("nowhere.attn")


def test_a_process_that_may_not_make_code():
    """As under systemd's MemoryDenyWriteExecute."""
    program = """if True:
        import ctypes, attn
        if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN
            print("Linux before 6.3 does not forbid it")
        else:
            attn.compile("attention f(x: f32[N]) { y[n] = x[n]\\n return y }")
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if done.returncode == 0 and "Linux" in done.stdout:
        pytest.skip(done.stdout)
    assert "attn.CompileError: this process cannot run kernels" in done.stderr


def test_which_kernel_must_be_said():
    source = "attention f(x: f32[N]) { y[n] = x[n]\n return y }\nattention g(x: f32[N]) { y[n] = x[n]\n return y }\n"
    with pytest.raises(attn.CompileError, match="f.*g"):
        attn.compile(source)
    with pytest.raises(attn.CompileError, match="h"):
        attn.compile(source, kernel="h")
    assert attn.compile(source, kernel="g").name == "g"


def test_a_negative_size():
    with pytest.raises(attn.CompileError, match=r"^<source>:2:11: error: size `D` is set to -1, but cannot be negative\n"):
        attn.compile(SPEC, sizes={"D": -1})


def test_a_size_that_is_nested_too_deeply():
    size = "N"
    for number in range(16):
        size = f"{number} - ({size})"
    with pytest.raises(attn.CompileError, match=r"error: the size expression '15 - \(14 - .* - N\)+' is nested too deeply"):
        attn.compile(f"attention f(x: f32[N], y: f32[{size}]) {{\n  z[n] = x[n]\n  return z\n}}\n")


def test_a_source_of_the_wrong_type():
    with pytest.raises(TypeError, match="^source: must be a path or the text of a spec, but is of type int$"):
        attn.compile(3)


def test_a_target_that_does_not_exist():
    with pytest.raises(attn.CompileError, match="x87"):
        attn.compile(SPEC, target="x87")


def test_a_stage_that_does_not_exist(kernel):
    with pytest.raises(ValueError, match="soup"):
        kernel.emit("soup")


@pytest.mark.parametrize(
    "option, value, message",
    [
        ("kernel", 3, "kernel: must be a text, but is of type int"),
        ("target", None, "target: must be a text, but is of type NoneType"),
        ("sizes", 5, "sizes: must be a dict of names and integers, but is of type int"),
        ("sizes", {"N": "64"}, "sizes: N: must be an integer, but is '64' of type str"),
        ("sizes", {"N": 64.0}, "sizes: N: must be an integer, but is 64.0 of type float"),
        ("sizes", {3: 3}, "sizes: a name: must be a text, but is of type int"),
        ("plan", {"tile.chunk": None}, "plan: tile.chunk: must be an integer, but is None of type NoneType"),
        ("dtype", 3, "dtype: must be f32, bf16 or f16, or such a dtype of PyTorch or NumPy, but is 3"),
        ("dtype", np.int8, "dtype: must be f32, bf16 or f16, or such a dtype of PyTorch or NumPy, but is <class 'numpy.int8'>"),
        ("check_bounds", "no", "check_bounds: must be True or False, but is 'no'"),
        ("copy", "yes", "copy: must be True or False, but is 'yes'"),
        ("lazy", "yes", "lazy: must be True or False, but is 'yes'"),
    ],
)
def test_options_of_wrong_types(option, value, message):
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        attn.compile(SPEC, **{option: value})


def test_a_size_of_more_than_64_bits():
    with pytest.raises(ValueError, match="^sizes: N: must have 64 bits, but is 36893488147419103232$"):
        attn.compile(SPEC, sizes={"N": 2**65})


@pytest.mark.parametrize("threads", ["2", 2.5, None])
def test_threads_that_are_no_number(threads):
    with pytest.raises(TypeError, match="^threads: must be an integer, but is "):
        attn.set_num_threads(threads)


def test_a_negative_number_of_threads():
    with pytest.raises(ValueError, match="^threads: must be 0 or more, but is -1$"):
        attn.set_num_threads(-1)
