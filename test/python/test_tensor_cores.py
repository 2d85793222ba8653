"""Attention on tensor cores: the text of `attnc --emit=cuda` against the reference, run by an emulator on the CPU.

Nothing here needs a GPU, and nothing here has run on one. The emulator (lib/CUDA/Emulation.h) has the instructions of
lib/CUDA/Instructions.cuh as the PTX manual describes them; nvcc compiles the same text where it is installed.
"""

import itertools
import re
import shutil
import subprocess

import pytest
import torch
from conftest import EXAMPLES
from emulated import Library, emit, split
from tensor_core_cases import (
    DOT,
    FEATURES,
    LAYER,
    SHARED,
    WIDTHS,
    Feature,
    arguments_of_layer,
    integers,
    statements_of_layer,
)
from tensor_core_runs import (
    DTYPES,
    KERNELS,
    MMA,
    ONE_WARPGROUP,
    PRODUCER,
    TOLERANCE,
    WGMMA,
    empty_like,
    error_of,
    expected,
    kernels,  # noqa: F401 (a fixture)
    run,
)

import attn

# A tile and a part of one; more queries than keys, so that causal masks leave rows empty; one query; one key.
SHAPES = [dict(B=1, H=2, M=70, N=150), dict(B=2, H=2, M=150, N=65), dict(B=1, H=4, M=1, N=260), dict(B=3, H=2, M=33, N=1)]
# Each dtype of each feature has two of the widths, each width comes up with several features.
COMBINATIONS = [
    (feature, dtype, WIDTHS[(3 * number + 4 * step) % len(WIDTHS)])
    for number, (feature, dtype) in enumerate(itertools.product(FEATURES, DTYPES))
    for step in range(2)
]
assert len(set(COMBINATIONS)) >= 60


def name_of(feature, dtype, widths):
    return f"{feature}_{dtype}_{widths[0]}_{widths[1]}"


def text_of(feature, dtype, widths, *options):
    source = FEATURES[feature].spec(name_of(feature, dtype, widths), dtype)
    text = emit(source, f"--set=D={widths[0]}", f"--set=E={widths[1]}", *options)
    assert "extern \"C\" __global__" in text, text[-300:]
    return text


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """The kernels of a feature, compiled when they are first asked for."""
    folder, made = tmp_path_factory.mktemp("tensor_cores"), {}

    def library(feature, dtype, kind):
        if (feature, dtype, kind) not in made:
            texts = [text_of(*each, *KERNELS[kind]) for each in COMBINATIONS if each[:2] == (feature, dtype) and takes(kind, *each)]
            made[feature, dtype, kind] = Library(folder, f"{feature}_{dtype}_{kind}", texts)
        return made[feature, dtype, kind]

    return library


def takes(kind, feature, dtype, widths):
    """All of them; with a producer, each feature in one dtype, and rows of at most 192 elements."""
    number = list(FEATURES).index(feature) + list(DTYPES).index(dtype)
    return kind != "producer" or (number % 2 == 0 and max(widths) <= 192)


@pytest.mark.parametrize("feature, dtype, widths, kind", [(*each, kind) for each in COMBINATIONS for kind in KERNELS if takes(kind, *each)])
def test_equals_the_reference(feature, dtype, widths, kind, libraries, kernels):
    """With all keys in one part, and in several, of which some may be without a key; in tiles of few rows as well."""
    torch.manual_seed(20)
    number = COMBINATIONS.index((feature, dtype, widths))
    runs = [(SHAPES[0], 1, None), (SHAPES[1 + number % 3], 2 + number // 3 % 4, None)]
    if kind == "mma":  # what few rows have is the same beside the others
        runs.append((SHAPES[number % 2], 1 + number % 3, True))
    for turn, (shape, parts, few) in enumerate(runs):
        sizes = FEATURES[feature].sizes_of(shape | dict(D=widths[0], E=widths[1]))
        arguments = FEATURES[feature].arguments(sizes, DTYPES[dtype])
        name, kernel = name_of(feature, dtype, widths), kernels(feature, dtype)
        seed, by_maps = (number + turn) % 4, (number + turn) % 3 > 0
        error = run(libraries(feature, dtype, kind), name, feature, kernel, arguments, sizes, seed, parts, by_maps, few)
        assert error <= TOLERANCE[dtype], f"{sizes}, {parts} parts, {few}: {error}"


# --------------------------------------------------------------------------------------------------------------------
# Sizes and layouts
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "widths, given, options",
    [
        ((64, 64), True, ("--plan=tensor.queries=64", "--plan=tensor.keys=128")),
        ((64, 64), True, ("--plan=tensor.queries=128", "--plan=tensor.keys=32")),
        ((40, 24), False, ("--plan=tensor.width=64",)),
        ((128, 100), False, ()),
        ((64, 64), True, (*WGMMA, "--plan=tensor.keys=32")),
        ((40, 24), False, (*WGMMA, "--plan=tensor.width=64")),
        ((176, 192), True, ONE_WARPGROUP),
        ((256, 256), False, (*WGMMA, "--plan=tensor.width=256")),
        ((64, 64), True, (*PRODUCER, "--plan=tensor.keys=32")),
        ((40, 24), False, (*PRODUCER, "--plan=tensor.width=64")),
    ],
)
def test_tiles_of_other_sizes(widths, given, options, tmp_path, kernels):
    torch.manual_seed(21)
    fixed = [f"--set=D={widths[0]}", f"--set=E={widths[1]}"] if given else []
    text = emit(FEATURES["window"].spec("window", "bf16"), *fixed, *options)
    library = Library(tmp_path, "window", [text])
    for shape in SHAPES:
        sizes = shape | dict(D=widths[0], E=widths[1])
        arguments = FEATURES["window"].arguments(sizes, torch.bfloat16)
        for seed in range(3):
            error = run(library, "window", FEATURES["window"], kernels("window", "bf16"), arguments, sizes, seed)
            assert error <= TOLERANCE["bf16"], (shape, seed)


@pytest.mark.parametrize("kind", KERNELS)
def test_any_strides(kind, tmp_path, kernels):
    """Transposed heads and queries; rows that begin anywhere; an output within a larger tensor."""
    torch.manual_seed(22)
    sizes = dict(B=2, H=3, M=40, N=90, D=48, E=32)
    kernel = kernels("causal", "f16")
    library = Library(tmp_path, "causal", [emit(FEATURES["causal"].spec("causal", "f16"), "--set=D=48", "--set=E=32", *KERNELS[kind])])
    arguments = FEATURES["causal"].arguments(sizes, torch.float16)
    reference = expected(kernel, arguments)
    q = arguments["q"].transpose(1, 2).contiguous().transpose(1, 2)
    wide = torch.randn(2, 3, 90, 64).half()
    k = wide[..., 3:51].copy_(arguments["k"])  # rows begin at byte 6 of 16
    v = wide.clone()[..., 8:40].copy_(arguments["v"])  # at a multiple of 16
    out = torch.full((2, 3, 40, 37), float("nan")).half()
    lse = torch.full((2, 40, 3), float("nan")).transpose(1, 2)
    library.run("causal", dict(q=q, k=k, v=v, out=out[..., 5:], lse=lse), sizes)
    assert error_of(out[..., 5:], reference[0]) <= TOLERANCE["f16"]
    assert error_of(lse, reference[1]) <= TOLERANCE["f16"]
    assert torch.isnan(out[..., :5]).all()


@pytest.mark.parametrize("kind", ["wgmma", "producer"])
def test_maps_and_copies_give_the_same(kind, tmp_path):
    """Keys by tensor maps, and by cp.async: also keys of groups, which the heads of a tile share, and keys that no map is for."""
    torch.manual_seed(31)
    for feature, has_maps in (("grouped", True), ("paged", False)):
        sizes = FEATURES[feature].sizes_of(dict(B=2, H=4, M=70, N=200, D=96, E=72))
        text = emit(FEATURES[feature].spec(feature, "bf16"), "--set=D=96", "--set=E=72", *KERNELS[kind])
        assert f"has_maps = {str(has_maps).lower()};" in text and ("TensorMaps maps;" in text) == has_maps
        library = Library(tmp_path, feature, [text])
        arguments = FEATURES[feature].arguments(sizes, torch.bfloat16)
        results = []
        for seed, by_maps in itertools.product(range(3), (True, False)):
            outputs = dict(out=torch.full((2, 4, 70, 72), float("nan")).bfloat16(), lse=torch.full((2, 4, 70), float("nan")))
            library.run(feature, arguments | outputs, sizes, seed, by_maps=by_maps)
            results.append(outputs["out"])
        assert all(torch.equal(result, results[0]) for result in results[1:]) and not torch.isnan(results[0]).any()


@pytest.mark.parametrize("kind", KERNELS)
def test_scores_of_masked_keys_never_matter(kind, tmp_path, kernels):
    torch.manual_seed(24)
    sizes = dict(B=2, H=1, M=9, N=100, D=16, E=16)
    library = Library(tmp_path, "padding", [emit(FEATURES["padding"].spec("padding", "f16"), "--set=D=16", "--set=E=16", *KERNELS[kind])])
    arguments = FEATURES["padding"].arguments(sizes, torch.float16)
    arguments["valid"][:] = torch.tensor([30, 77])
    reference = expected(kernels("padding", "f16"), arguments)
    for number, valid in enumerate((30, 77)):
        arguments["k"][number, :, valid:] = torch.nan
    out, lse = empty_like(reference)
    library.run("padding", arguments | dict(out=out, lse=lse), sizes)
    assert max(error_of(out, reference[0]), error_of(lse, reference[1])) <= TOLERANCE["f16"]


@pytest.mark.parametrize("kind", KERNELS)
def test_no_keys(kind, tmp_path, kernels):
    sizes = dict(B=1, H=1, M=3, N=0, D=16, E=16)
    library = Library(tmp_path, "plain", [emit(FEATURES["plain"].spec("plain", "bf16"), "--set=D=16", "--set=E=16", *KERNELS[kind])])
    arguments = FEATURES["plain"].arguments(sizes, torch.bfloat16)
    for parts in (1, 2):
        out, lse = torch.full((1, 1, 3, 16), 7.0).bfloat16(), torch.zeros(1, 1, 3)
        library.run("plain", arguments | dict(out=out, lse=lse), sizes, parts=parts)
        assert (out == 0).all() and (lse == -torch.inf).all()


# --------------------------------------------------------------------------------------------------------------------
# Heads that share keys, and keys in parts
# --------------------------------------------------------------------------------------------------------------------


def members(text, name):
    """The members of a structure of the kernel, as one line."""
    return " ".join(re.search(rf"  struct {name} {{(.*?)\n  }};", text, re.S)[1].split())


@pytest.mark.parametrize("options", [MMA, WGMMA, ONE_WARPGROUP, PRODUCER])
@pytest.mark.parametrize("feature", SHARED)
def test_heads_that_share_keys(feature, options, tmp_path):
    """A tile has the rows of one query of all heads that share its keys side by side: steps of decoding, and more queries
    than fill a tile; numbers of heads that do not divide."""
    torch.manual_seed(27)
    case, shapes, position = SHARED[feature]
    number = list(SHARED).index(feature)
    dtype, widths = ("bf16", "f16")[number % 2], [(64, 64), (128, 128), (24, 40)][number % 3]
    text = emit(case.spec("shared", dtype), f"--set=D={widths[0]}", f"--set=E={widths[1]}", *options)
    assert members(text, "Position") == position
    library, kernel = Library(tmp_path, "shared", [text]), attn.compile(case.spec("shared", dtype))
    for turn, shape in enumerate(shapes):
        sizes = case.sizes_of(shape | dict(D=widths[0], E=widths[1]))
        arguments = case.arguments(sizes, DTYPES[dtype])
        for parts in (1, 3):
            error = run(library, "shared", feature, kernel, arguments, sizes, (turn + parts) % 4, parts)
            assert error <= TOLERANCE[dtype], f"{sizes}, {parts} parts: {error}"


def test_a_step_of_decoding_is_a_tile_for_each_key_head(tmp_path):
    case, _, _ = SHARED["constant"]
    library = Library(tmp_path, "shared", [emit(case.spec("shared", "bf16"), "--set=D=16", "--set=E=16")])
    sizes = case.sizes_of(dict(B=3, H=8, M=1, N=70, D=16, E=16))
    arguments = case.arguments(sizes, torch.bfloat16)
    outputs = dict(out=torch.zeros(3, 8, 1, 16).bfloat16(), lse=torch.zeros(3, 8, 1))
    assert library.rows("shared", arguments | outputs, sizes) == (4, 3 * 2)


@pytest.mark.parametrize("options", [MMA, ONE_WARPGROUP, PRODUCER])
@pytest.mark.parametrize("name", ["decode", "paged"])
def test_one_query(name, options, tmp_path):
    """Specs of a step of decoding, which have no query index: a tile has the heads of a group."""
    torch.manual_seed(30)
    source = (EXAMPLES / f"{name}.attn").read_text().replace("f32", "f16")
    text, kernel = emit(source, "--set=D=48", "--set=E=32", *options), attn.compile(source)
    assert members(text, "Position") == "int query, h;"
    library = Library(tmp_path, name, [text])
    for B, H, G, N in ((3, 8, 2, 300), (2, 5, 2, 70), (1, 3, 3, 33)):
        sizes = dict(B=B, H=H, G=G, N=N, D=48, E=32, P=50, S=8, L=(N + 7) // 8)
        keys = (B, N, G) if name == "decode" else (50, 8, G)
        arguments = dict(q=torch.randn(B, H, 48).half(), k=torch.randn(*keys, 48).half(), v=torch.randn(*keys, 32).half())
        arguments["length"] = integers(0, N, (B,))
        if name == "paged":
            arguments["page"] = integers(0, 49, (B, sizes["L"]))
        for parts in (1, 4):
            error = run(library, name, name, kernel, arguments, sizes, parts % 4, parts)
            assert error <= TOLERANCE["f16"], f"{sizes}, {parts} parts: {error}"


@pytest.mark.parametrize("M, N", [(70, 150), (1, 70)])
def test_statements_around_the_attention(M, N, tmp_path):
    """What others compute is given to the kernel, and what it computes is stored in the type of the statement."""
    torch.manual_seed(31)
    sizes = dict(B=2, H=4, G=2, M=M, N=N, C=24, D=40, E=32)
    library = Library(tmp_path, "layer", [emit(LAYER, "--set=D=40", "--set=E=32")])
    arguments = arguments_of_layer(sizes)
    kernel = attn.compile(LAYER.replace("return out, lse", "return mixed, lse"))
    references = expected(kernel, arguments)
    for parts in (1, 3):
        mixed, lse = empty_like(references)
        assert mixed.dtype == torch.float32
        library.run("layer", statements_of_layer(arguments) | dict(mixed=mixed, lse=lse), sizes, parts, parts)
        assert error_of(mixed, references[0]) <= TOLERANCE["bf16"] and error_of(lse, references[1]) <= 1e-4


@pytest.mark.parametrize("kind", KERNELS)
def test_parts_of_keys(kind, tmp_path, kernels):
    """More parts than tiles of keys; parts of which a mask leaves nothing; sinks, which are added once; a sink of -inf,
    which is none."""
    torch.manual_seed(28)
    for feature in ("padding", "grouped"):
        text = emit(FEATURES[feature].spec(feature, "f16"), "--set=D=16", "--set=E=16", *KERNELS[kind])
        library = Library(tmp_path, feature, [text])
        for shape, parts in itertools.product((dict(B=3, H=2, M=2, N=301), dict(B=1, H=2, M=80, N=70)), (1, 3, 9)):
            sizes = FEATURES[feature].sizes_of(shape | dict(D=16, E=16))
            arguments = FEATURES[feature].arguments(sizes, torch.float16)
            if feature == "padding":
                arguments["valid"][:] = torch.tensor([0, 60, sizes["N"]])[: sizes["B"]]
            else:
                arguments["sink"][0] = -torch.inf
            error = run(library, feature, feature, kernels(feature, "f16"), arguments, sizes, parts % 4, parts)
            assert error <= TOLERANCE["f16"], f"{feature}, {sizes}, {parts} parts: {error}"


# --------------------------------------------------------------------------------------------------------------------
# What is refused
# --------------------------------------------------------------------------------------------------------------------


WITHOUT_PRODUCT = """attention refused(x: bf16[M, N], v: bf16[N, E]) {
  weight[m, n] = softmax[n](x[m, n])
  out[m, e]    = sum[n](weight[m, n] * v[n, e])
  return out
}
"""


def variant(**changes):
    return Feature(**changes).spec("refused", "bf16")


@pytest.mark.parametrize(
    "source, reason",
    [
        # With its weights stored, the sum is a product of matrices.
        (
            variant().replace("return out", "return out, weight"),
            "no statement is a weighted sum",
        ),
        (variant().replace("q: bf16", "q: f32"), "'q' is not f16 or bf16"),
        (variant().replace("k: bf16", "k: f16"), "queries and keys have different types"),
        (variant(score=f"{DOT} + sum[c: 4](c * {DOT})"), "the score or its mask has a second sum"),
        (WITHOUT_PRODUCT, "the score has no dot product"),
        (
            variant(
                statement="  lse[b, h, m]: f32  = logsumexp[n](score[b, h, m, n])\n",
                condition="lse[b, h, m] > 0.0",
            ),
            "'lse' is read beside the weight",
        ),
        (
            variant().replace("* v[b, h, n, e])", "* v[b, h, n, e] where sum[c: 4](c * v[b, h, n, 0]) > 0)"),
            "a formula beside the score has a sum",
        ),
        (variant(score=f"{DOT} + {DOT} % 2.0"), "operation 'arith.cmpf' on these types"),
        (
            variant(parameters=", bias: f32[H]", score=f"{DOT} + twice[h]").replace(
                "  dot[", "  twice[h]: f64 = sum[n: H](bias[n]) * bias[h]\n  dot[", 1
            ),
            "operation 'arith.truncf' on these types",
        ),
        # A statement without a type is stored in f32.
        (LAYER.replace("k[b, g, n, d]: bf16 ", "k[b, g, n, d]"), "'k' is not f16 or bf16"),
    ],
)
def test_what_is_not_supported_is_said(source, reason):
    text = emit(source.replace("attention layer(", "attention refused("))
    assert text.endswith(f"\n// refused: not on tensor cores, the Halide GPU plan is used: {reason}\n"), text[-300:]


def test_rows_that_are_too_long():
    text = emit(variant(), "--set=D=264", "--set=E=64")
    assert text.endswith("the Halide GPU plan is used: rows of 264 elements are longer than 256\n"), text[-300:]


def test_queries_that_are_not_those_of_warpgroups():
    reason = "a plan with tensor.warpgroups=2 has blocks of 128 queries, but tensor.queries is 64\n"
    assert emit(variant(), *WGMMA, "--plan=tensor.queries=64").endswith(f"the Halide GPU plan is used: {reason}")


def test_producers_for_other_warpgroups_than_two():
    reason = "a plan with tensor.producer has tensor.warpgroups=2, but it is 0\n"
    assert emit(variant(), "--plan=tensor.producer=1").endswith(f"the Halide GPU plan is used: {reason}")


def test_rows_that_are_too_long_for_a_producer():
    reason = "rows of 208 elements are longer than 192, which a plan with tensor.producer takes at most\n"
    assert emit(variant(), "--set=D=200", "--set=E=64", *PRODUCER).endswith(f"the Halide GPU plan is used: {reason}")


def test_tiles_that_are_too_large():
    options = ("--set=D=256", "--set=E=256", "--plan=tensor.queries=128", "--plan=tensor.keys=128")
    expected = "tiles of 128 queries and 128 keys take 327744 bytes of shared memory, but a block has at most 232448\n"
    assert emit(variant(), *options).endswith(expected)


# --------------------------------------------------------------------------------------------------------------------
# nvcc
# --------------------------------------------------------------------------------------------------------------------

NVCC = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
EXAMPLES_ON_TENSOR_CORES = (
    "alibi attention_sink axial block_sparse causal chunked cross decode dense_bias dilated documents everything "
    "grouped_query multi_query paged partial prefix_lm ragged seed_pooling sliding_window softcap streaming swin t5_bias tree"
).split()

SOME_EXAMPLES = ["causal", "dense_bias", "everything"]


def texts_for_nvcc(names, width, *options):
    for name in names:
        source = (EXAMPLES / f"{name}.attn").read_text()
        yield emit(source, f"--set=D={width}", f"--set=E={width}", "--dtype=bf16", *options)


def compiled_by_nvcc(texts, target, folder):
    """What nvcc says, and of each kernel bytes that are spilled and registers."""
    (shared,) = {split(text)[0] for text in texts}
    (folder / "kernels.cu").write_text(shared + "".join(split(text)[1] for text in texts))
    command = [NVCC, "-std=c++17", "-cubin", f"-arch={target}", "-Xptxas=-v", "kernels.cu", "-o", "kernels.cubin"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    reports = re.findall(
        r"Function properties for attn_(\w+)\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
        r".*?Used (\d+) registers",
        done.stderr,
        re.S,
    )
    assert len(reports) == 3 * len(texts), done.stderr  # with those for few rows and for merging of each
    return done.stderr, reports


@pytest.mark.skipif(NVCC is None, reason="nvcc is not installed, so CUDA C++ cannot be compiled")
@pytest.mark.parametrize(
    "names, width, options, architectures",
    [
        (EXAMPLES_ON_TENSOR_CORES, 64, MMA, ["sm_80"]),
        (SOME_EXAMPLES, 64, MMA, ["sm_90a", "newest"]),
        (SOME_EXAMPLES, 128, MMA, ["sm_80", "sm_90a"]),
        (["dense_bias", "everything"], 128, MMA, ["newest"]),
        (SOME_EXAMPLES, 256, MMA, ["sm_80", "sm_90a"]),
        (["dense_bias"], 256, MMA, ["newest"]),
        (EXAMPLES_ON_TENSOR_CORES, 128, WGMMA, ["sm_90a"]),
        (SOME_EXAMPLES, 64, WGMMA, ["sm_90a"]),
        (SOME_EXAMPLES, 192, WGMMA, ["sm_90a"]),
        (SOME_EXAMPLES, 256, WGMMA, ["sm_90a"]),
        (SOME_EXAMPLES, 128, ONE_WARPGROUP, ["sm_90a"]),
        (EXAMPLES_ON_TENSOR_CORES, 128, PRODUCER, ["sm_90a"]),
        (SOME_EXAMPLES, 64, PRODUCER, ["sm_90a"]),
        (SOME_EXAMPLES, 192, PRODUCER, ["sm_90a"]),
    ],
)
def test_nvcc_spills_no_registers(names, width, options, architectures, tmp_path):
    """And adds no fences and waits to those of wgmma, of which it has remarks: C7510 to C7520."""
    texts = list(texts_for_nvcc(names, width, *options))
    newest = subprocess.run([NVCC, "--list-gpu-code"], capture_output=True, text=True).stdout.split()[-1]
    for architecture in architectures:
        target = newest if architecture == "newest" else architecture
        said, reports = compiled_by_nvcc(texts, target, tmp_path)
        for name, *spilled, registers in reports:
            print(f"{name}, width {width}, {target}: {registers} registers")
            assert spilled == ["0", "0", "0"], f"{name} for {target}"
        assert "warning" not in said and "(C75" not in said, said


@pytest.mark.skipif(NVCC is None, reason="nvcc is not installed, so CUDA C++ cannot be compiled")
@pytest.mark.parametrize(
    "missing, remark",
    [
        ("wgmma_fence(score[0]);", "wgmma.mma_async instructions are serialized"),
        ("wgmma_fence(weights);", "warpgroup.arrive is injected"),
        ("wgmma_wait<0>(output[0]);", "warpgroup.wait is injected"),
    ],
)
def test_what_nvcc_says_of_missing_fences(missing, remark, tmp_path):
    (text,) = texts_for_nvcc(["causal"], 64, *WGMMA)
    assert missing in text
    said, _ = compiled_by_nvcc([text.replace(missing, "")], "sm_90a", tmp_path)
    assert "(C75" in said and remark in said, said
