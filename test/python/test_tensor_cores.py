"""Attention on tensor cores: the text of `attnc --emit=cuda` against the reference, run by an emulator on the CPU.

Nothing here needs a GPU, and nothing here has run on one. The emulator (lib/CUDA/Emulation.h) has the instructions of
lib/CUDA/Instructions.cuh as the PTX manual describes them; nvcc compiles the same text where it is installed.
"""

import ctypes
import itertools
import re
import shutil
import subprocess

import pytest
import torch
from conftest import EXAMPLES
from emulated import CUDA, Library, emit, split
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

import attn

# Of a warp each, and of warpgroups: two, and one.
MMA, WGMMA, ONE_WARPGROUP = (), ("--plan=tensor.warpgroups=2",), ("--plan=tensor.warpgroups=1",)
KERNELS = {"mma": MMA, "wgmma": WGMMA}
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
# Relative to the largest number of a row: weights are rounded to the dtype (2^-9, 2^-12), and so is the output.
TOLERANCE = {"bf16": 2e-2, "f16": 3e-3}
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
            texts = [text_of(*each, *KERNELS[kind]) for each in COMBINATIONS if each[:2] == (feature, dtype)]
            made[feature, dtype, kind] = Library(folder, f"{feature}_{dtype}_{kind}", texts)
        return made[feature, dtype, kind]

    return library


def expected(kernel, arguments):
    results = kernel.reference(**arguments)
    return results if isinstance(results, tuple) else (results,)


def empty_like(results):
    """Memory for outputs: NaN, so that what nobody writes is seen."""
    return [torch.full_like(result, float("nan")) for result in results]


def error_of(found, reference):
    """The largest difference relative to the largest number of its row; infinite where infinities or NaN differ."""
    found, reference = (torch.atleast_1d(each.double()) for each in (found, reference))
    if found.shape[-1:] == (0,) or found.numel() == 0:
        return 0.0
    same = torch.isfinite(found) == torch.isfinite(reference)
    odd = ~torch.isfinite(reference)
    if not same.all() or not torch.equal(found[odd], reference[odd]):
        return float("inf")
    found, reference = (torch.where(odd, 0.0, each) for each in (found, reference))
    # Sums of numbers of some size are no more exact than these where they cancel.
    scale = reference.abs().amax(-1, keepdim=True) + reference.abs().mean()
    return ((found - reference).abs() / (scale + 1e-30)).max().item()


def run(library, name, feature, kernel, arguments, sizes, seed=0, parts=1, by_maps=True):
    """The largest error of the outputs."""
    references = expected(kernel, arguments)
    outputs = empty_like(references)
    names = [info.name for info in kernel.outputs]
    library.run(name, arguments | dict(zip(names, outputs)), sizes, seed, parts, by_maps)
    return max(error_of(found, reference) for found, reference in zip(outputs, references))


@pytest.fixture(scope="module")
def kernels():
    """The references of a feature, for any widths."""
    made = {}

    def kernel(feature, dtype):
        if (feature, dtype) not in made:
            made[feature, dtype] = attn.compile(FEATURES[feature].spec(feature, dtype))
        return made[feature, dtype]

    return kernel


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("feature, dtype, widths", COMBINATIONS)
def test_equals_the_reference(feature, dtype, widths, kind, libraries, kernels):
    """With all keys in one part, and in several, of which some may be without a key."""
    torch.manual_seed(20)
    number = COMBINATIONS.index((feature, dtype, widths))
    for turn, (shape, parts) in enumerate(((SHAPES[0], 1), (SHAPES[1 + number % 3], 2 + number // 3 % 4))):
        sizes = FEATURES[feature].sizes_of(shape | dict(D=widths[0], E=widths[1]))
        arguments = FEATURES[feature].arguments(sizes, DTYPES[dtype])
        name, kernel = name_of(feature, dtype, widths), kernels(feature, dtype)
        seed, by_maps = (number + turn) % 4, (number + turn) % 3 > 0
        error = run(libraries(feature, dtype, kind), name, feature, kernel, arguments, sizes, seed, parts, by_maps)
        assert error <= TOLERANCE[dtype], f"{sizes}, {parts} parts: {error}"


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


def test_maps_and_copies_give_the_same(tmp_path):
    """Keys by tensor maps, and by cp.async: also keys of groups, which the heads of a tile share, and keys that no map is for."""
    torch.manual_seed(31)
    for feature, has_maps in (("grouped", True), ("paged", False)):
        sizes = FEATURES[feature].sizes_of(dict(B=2, H=4, M=70, N=200, D=96, E=72))
        text = emit(FEATURES[feature].spec(feature, "bf16"), "--set=D=96", "--set=E=72", *WGMMA)
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


@pytest.mark.parametrize("options", [MMA, WGMMA, ONE_WARPGROUP])
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


@pytest.mark.parametrize("options", [MMA, ONE_WARPGROUP])
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
# What the tests can see
# --------------------------------------------------------------------------------------------------------------------

MUTATIONS = {
    "the columns of a lane": ("lane % 4 * 2 + element % 2", "lane % 4 + element % 2 * 4"),
    "the rows of a lane": ("lane / 4 + element / 2 * 8", "lane / 4 * 2 + element / 2"),
    "the barrier": ("Products::publish();\n      block_barrier();", "Products::publish();"),
    "the wait for copies": ("cp_async_wait<0>();\n      Products", "Products"),
    "one tile for two": ("Shared::keys + place_of(tile) * Shared::key_bytes);", "Shared::keys);"),
    "the rescaling": ("output[row_tile][step][half * 2] *= scale[row_tile][half];", ""),
    "the rescaling of sums": ("sum[row_tile][half] *= scale[row_tile][half];", ""),
    "the transposition": ("ldmatrix_x4_transposed(b, tile", "ldmatrix_x4(b, tile"),
    "the last keys": ("bool kept = key < keys && ", "bool kept = "),
    "the lanes of a row": ("total += shuffle_xor(total, 2);", ""),
    "the swizzle": ("((segment ^ row / line) & turn)", "(segment & turn ^ (row & 1))"),
    "whole tiles": ("range.certain.lower <= first_key &&", ""),
    "the keys of all rows": ("tile_row + thread_index() % Kernel::query_tile", "tile_row"),
}
# Of heads that share keys and have a sink, with keys in three parts, of large scores; some queries have no keys.
MUTATIONS_OF_PARTS = {
    "the rescaling of outputs": ("output[step] += state[2 + column] * scale", "output[step] += state[2 + column]"),
    "the rescaling of sums": ("total += state[1] * scale", "total += state[1]"),
    "the largest maximum": ("largest = fmaxf(largest, state_of", "largest = fminf(0.0f, state_of"),
    "the keys of a part": ("first_of_all + part * tiles_of_part", "first_of_all"),
    "the last keys of a part": ("smaller(first_tile + tiles_of_part, last_of_all)", "last_of_all"),
    "one sink": ("Kernel::has_sink && part == 0", "Kernel::has_sink"),
    "the state of a row": ("(part * rows + row) * state_size", "(part * rows + row / 2) * state_size"),
    "the head of a row": ("block.first_sharer + row % block.sharers", "block.first_sharer"),
    "the query of a row": ("row / block.sharers", "row / block.sharers / 2"),
    "the order of factors": ("state[1] * scale", "scale * state[1]"),
}
# Of the kernel with wgmma, whose keys and values are copied by all threads, in two blocks of 64 columns.
MUTATIONS_OF_WARPGROUPS = {
    "the columns of a lane": MUTATIONS["the columns of a lane"],
    "the rows of a lane": MUTATIONS["the rows of a lane"],
    "the barrier": MUTATIONS["the barrier"],
    "the wait for copies": MUTATIONS["the wait for copies"],
    "one tile for two": MUTATIONS["one tile for two"],
    "the fence of copies": ("publish() { fence_proxy_async(); }", "publish() {}"),
    "the fence before the wait": (
        "cp_async_wait<0>();\n      Products::publish();",
        "Products::publish();\n      cp_async_wait<0>();",
    ),
    "the fence of scores": ("wgmma_fence(score[0]);", ""),
    "the fence of outputs": ("wgmma_fence(output[0]);", ""),
    "the fence of weights": ("wgmma_fence(weights[0]);", ""),
    "the wait for scores": ("wgmma_wait<0>(score[0]);", ""),
    "the wait for outputs": ("wgmma_wait<0>(output[0]);", ""),
    "a wait for too little": ("wgmma_wait<0>(output[0]);", "wgmma_wait<1>(output[0]);"),
    "the commit of scores": ("wgmma_commit();\n    wgmma_wait<0>(score[0]);", "wgmma_wait<0>(score[0]);"),
    "weights in one place": ("add_outputs(output, weights[step], ", "add_outputs(output, weights[0], "),
    "the swizzle": ("(segment % 8 ^ row % 8)", "(segment % 8)"),
    "the mode of the swizzle": ("swizzle_of_128_bytes << 62", "swizzle_of_128_bytes << 63"),
    "the address": ("shared_address(shared, offset) >> 4 & 0x3fff", "shared_address(shared, offset) >> 4 & 0x1ff"),
    "bytes for 16 bytes": ("(unsigned long long)(stride >> 4) << 32", "(unsigned long long)stride << 32"),
    "the rows of atoms": ("column % 64 * 2, 0, atom)", "column % 64 * 2, atom, 0)"),
    "the order of strides": ("row * 128, block, atom)", "row * 128, atom, block)"),
    "the columns of a step": ("column / 64 * block + row * 128 + column % 64 * 2", "column / 64 * block + row * 128"),
    "the blocks of columns": ("segment / 8 * block + row * 128", "(segment / 8 + row) * 128"),
    "the rows of a warpgroup": ("row / 64 * 64; // of the warpgroup", "0;"),
    "the rows of values": ("columns_from(values, row, first)", "columns_from(values, 0, first)"),
    "the leading stride of rows": ("column % 64 * 2, 0, atom)", "column % 64 * 2, block, atom)"),
}
# Where banks differ, or nothing: a matrix of 16 columns has no second atom beside the first.
HARMLESS_OF_WARPGROUPS = {"the leading stride of rows"}
# Of the same, by tensor maps.
MUTATIONS_OF_MAPS = {
    "the wait for a tile": ("mbarrier_wait(shared, Shared::full(place_of(tile)), round_of(tile) % 2);", ";"),
    "the wait for a place": ("if (round_of(tile) > 0)\n      mbarrier_wait", "if (false)\n      mbarrier_wait"),
    "the parity of a tile": ("round_of(tile) % 2);", "0);"),
    "the parity of a place": ("(round_of(tile) - 1) % 2", "round_of(tile) % 2"),
    "the bytes": ("Shared::key_bytes + Shared::value_bytes)", "Shared::key_bytes)"),
    "the release of a place": ("Products::end_outputs(output);\n    copies.release(tile);", "Products::end_outputs(output);"),
    "the release before the products": (
        "Products::end_outputs(output);\n    copies.release(tile);",
        "copies.release(tile);\n    Products::end_outputs(output);",
    ),
    "the warps of a barrier": ("Shared::empty(place), Kernel::warps)", "Shared::empty(place), 1)"),
    "the fence of barriers": ("        fence_proxy_async();\n", ""),
    "the barriers of two places": ("barriers + 16 + place * 8", "barriers + 16"),
    "the blocks of columns": ("offset + column / 64 * Layout::block", "offset"),
    "the columns": ("map, column, place, barrier", "map, 0, place, barrier"),
    "the keys of a tile": ("Kernel::key_place(arguments, block, first)", "Kernel::key_place(arguments, block, 0)"),
    "the map of values": ("arguments.maps.values,", "arguments.maps.keys,"),
    "the queries": ("if (!by_maps || tile == first_tile)", "if (!by_maps)"),
    "the head": ("{{key, int(block.h), int(block.b)}}", "{{key, 0, int(block.b)}}"),
}
# Where banks differ, or nothing.
HARMLESS = {"the swizzle", "the order of factors"}


def is_found(library, feature, kernel, arguments, sizes, seed, parts=1, by_maps=False):
    try:
        return run(library, feature, feature, kernel, arguments, sizes, seed, parts, by_maps) > TOLERANCE["f16"]
    except RuntimeError:  # the emulator's own
        return True


def library_with(feature, mutation, folder, width=32, options=MMA):
    """The kernel of a feature with a mistake."""
    text = emit(FEATURES[feature].spec(feature, "f16"), f"--set=D={width}", f"--set=E={width}", *options)
    assert mutation[0] in text
    return Library(folder, feature, [text.replace(*mutation)])


@pytest.mark.parametrize("mutation", MUTATIONS_OF_PARTS)
def test_a_wrong_merge_is_found(mutation, tmp_path, kernels):
    torch.manual_seed(23)
    library = library_with("grouped", MUTATIONS_OF_PARTS[mutation], tmp_path)
    sizes = FEATURES["grouped"].sizes_of(dict(B=1, H=4, M=150, N=140, D=32, E=32))
    arguments = FEATURES["grouped"].arguments(sizes, torch.float16)
    arguments["q"] *= 64
    found = is_found(library, "grouped", kernels("grouped", "f16"), arguments, sizes, seed=0, parts=3)
    assert found != (mutation in HARMLESS)


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_wrong_kernel_is_found(mutation, tmp_path, kernels):
    torch.manual_seed(23)
    library = library_with("window", MUTATIONS[mutation], tmp_path)
    sizes = dict(B=1, H=1, M=150, N=333, D=32, E=32)
    arguments = FEATURES["window"].arguments(sizes, torch.float16) | {"window": 200}

    found = (is_found(library, "window", kernels("window", "f16"), arguments, sizes, seed) for seed in range(4))
    assert any(found) != (mutation in HARMLESS)


@pytest.mark.parametrize("mutation", MUTATIONS_OF_WARPGROUPS)
def test_a_wrong_kernel_of_warpgroups_is_found(mutation, tmp_path, kernels):
    torch.manual_seed(23)
    wrong = MUTATIONS_OF_WARPGROUPS[mutation]
    library = library_with("window", wrong, tmp_path, 128, (*WGMMA, "--plan=tensor.keys=64"))
    sizes = dict(B=1, H=1, M=150, N=333, D=128, E=128)
    arguments = FEATURES["window"].arguments(sizes, torch.float16) | {"window": 200}
    found = (is_found(library, "window", kernels("window", "f16"), arguments, sizes, seed) for seed in range(4))
    assert any(found) != (mutation in HARMLESS_OF_WARPGROUPS)


@pytest.mark.parametrize("mutation", MUTATIONS_OF_MAPS)
def test_a_wrong_kernel_with_maps_is_found(mutation, tmp_path, kernels):
    torch.manual_seed(23)
    library = library_with("window", MUTATIONS_OF_MAPS[mutation], tmp_path, 128, (*WGMMA, "--plan=tensor.keys=32"))
    sizes = dict(B=1, H=2, M=150, N=333, D=128, E=128)
    arguments = FEATURES["window"].arguments(sizes, torch.float16) | {"window": 200}
    kernel = kernels("window", "f16")
    assert any(is_found(library, "window", kernel, arguments, sizes, seed, by_maps=True) for seed in range(4))


WRONG = """
#include "Emulation.h"
#include "Tiles.cuh"
using namespace attn;
alignas(16) static unsigned char device[64];
static const TensorMap map = {{(unsigned long long)device, 8, 1, 1, 1, 1, 16, 16, 16, 16, 64, 16, 1, 1, 1}};
extern "C" void run(int number, unsigned seed, char *message) {
  std::string error = emulation::launch(1, 128, 8192, seed, [&] {
    unsigned registers[4] = {};
    float sums[4][4] = {};
    unsigned char *shared = shared_memory();
    int thread = thread_index();
    if (number == 0 && thread % 32 < 16)
      any_lane(true);
    else if (number == 0)
      shuffle_xor(thread, 1);
    if (number == 1 && thread > 0)
      block_barrier();
    if (number == 2)
      ldmatrix_x4(registers, shared, 8186);
    if (number == 3)
      cp_async(shared, 0, device + 8, 16);
    if (number == 4)
      cp_async(shared, 0, device, 16);
    if (number == 5 && thread < 32)
      any_lane(thread > 5 || shuffle_xor(thread, 1) > 0);
    if (number == 6)
      ldmatrix_x4(registers, shared, 24);
    if (number >= 7 && number < 21) {
      const unsigned long long matrix = matrix_descriptor(shared, 0, 0, 1024);
      if (number != 7)
        wgmma_fence(sums);
      if (number == 8)
        store_shared(shared, thread * 16, {});
      if (number == 9)
        wgmma_fence(registers), registers[1] = 2;
      if (number == 9 || number == 10)
        wgmma_m64nNk16_transposed<32, float16>(sums, registers, matrix);
      else if (number == 11 && thread / 32 == 2)
        wgmma_m64nNk16<32, float16>(sums, matrix, matrix + 2);
      else if (number == 12 && thread < 96)
        wgmma_m64nNk16_transposed<32, float16>(sums, (wgmma_fence(registers), registers), matrix);
      else
        wgmma_m64nNk16<32, float16>(sums, matrix + (number == 13 ? 8 : number == 14 ? 1ull << 63 : number == 15 ? 1ull << 14 : 0),
                                    matrix + (number == 16 ? 512 : 0));
      if (number != 20)
        wgmma_commit();
      if (number == 17 && thread == 30)
        sums[0][0] = 1;
      if (number != 18)
        wgmma_wait<0>(sums);
    }
    if (number >= 21 && thread == 0) {
      mbarrier_init(shared, 0, number == 22 ? 1 : 2);
      if (number != 23)
        fence_proxy_async();
      if (number == 22)
        mbarrier_arrive_expect(shared, 0, 16);
      mbarrier_arrive(shared, 0);
      if (number >= 23 && number <= 26)
        tensor_copy_5d(shared, number == 25 ? 1152 : 7168, number == 24 ? TensorMap{} : map, 0, {}, 0);
      if (number == 28)
        mbarrier_arrive(shared, 0);
      mbarrier_wait(shared, number == 21 ? 8 : 0, 0);
    }
  });
  strcpy(message, error.c_str());
}
"""


def test_the_emulator_reports_what_is_undefined(tmp_path):
    source, target = tmp_path / "wrong.cpp", tmp_path / "wrong.so"
    source.write_text(WRONG)
    subprocess.run(["g++", "-std=c++17", "-O1", "-fPIC", "-shared", f"-I{CUDA}", source, "-o", target], check=True)
    library, message = ctypes.CDLL(str(target)), ctypes.create_string_buffer(512)

    def error(number):
        library.run(number, 0, message)
        return message.value.decode()

    assert error(0) == "block 0: thread 16 is at shuffle_xor, other lanes of its warp are at any_lane"
    assert error(1) == "block 0: thread 1 is at a barrier, but 1 threads have ended"
    assert error(2) == "block 0: ldmatrix_x4: byte 8186 of 8192 bytes of shared memory"
    assert error(3) == "block 0: cp_async: an address in device memory is no multiple of 16"
    assert error(4) == "block 0: thread 0 ends before a copy that it began"
    assert error(5) == "block 0: thread 6 is at any_lane, other lanes of its warp are at shuffle_xor"
    assert error(6) == "block 0: ldmatrix_x4: byte 24 of shared memory is no multiple of 16"
    assert error(7) == "block 0: wgmma_m64nNk16 of registers that no wgmma_fence has named"
    assert error(8) == "block 0: wgmma_m64nNk16: byte 0 of shared memory was written without a fence_proxy_async after it"
    assert error(9) == "block 0: wgmma_m64nNk16_transposed of registers that were written after their wgmma_fence"
    assert error(10) == "block 0: wgmma_m64nNk16_transposed of registers that no wgmma_fence has named"
    assert error(11) == "block 0: wgmma_m64nNk16: lanes of a warpgroup have different descriptors"
    other = "wgmma_m64nNk16, other lanes of its warpgroup are at wgmma_m64nNk16_transposed"
    assert error(12) == f"block 0: thread 96 is at {other}"
    begins = "a matrix begins at byte 128, within an atom, but its descriptor says 0"
    assert error(13) == f"block 0: wgmma_m64nNk16: {begins}"
    mode = "a descriptor has swizzling mode 3, but only that of 128 bytes, 1, is known here"
    assert error(14) == f"block 0: wgmma_m64nNk16: {mode}"
    assert error(15) == "block 0: wgmma_m64nNk16: a descriptor has bits that mean nothing"
    assert error(16) == "block 0: wgmma_m64nNk16: byte 8192 of 8192 bytes of shared memory"
    assert error(17) == "block 0: thread 30 writes registers that a product adds to before it waits"
    assert error(18) == "block 0: thread 31 ends before products that it began"
    assert error(19) == ""
    assert error(20) == "block 0: thread 31 takes registers that a product adds to which it has not waited for"
    assert error(21) == "block 0: mbarrier_wait: no barrier is at byte 8 of shared memory"
    assert error(22) == "block 0: mbarrier_arrive: a barrier for 1 threads has more"
    assert error(23) == "block 0: tensor_copy_5d: byte 0 of shared memory was written without a fence_proxy_async after it"
    assert error(24) == "block 0: tensor_copy_5d: there is no map for boxes of 64 columns"
    assert error(25) == "block 0: tensor_copy_5d: byte 1152 of shared memory is no multiple of 1024"
    assert error(26) == "block 0: tensor_copy_5d: byte 8192 of 8192 bytes of shared memory"
    assert error(27) == "block 0: every thread waits for another one"
    assert error(28) == ""


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
    assert len(reports) == 2 * len(texts), done.stderr  # with the merge of each
    return done.stderr, reports


@pytest.mark.skipif(NVCC is None, reason="nvcc is not installed, so CUDA C++ cannot be compiled")
@pytest.mark.parametrize(
    "names, width, options, architectures",
    [
        (EXAMPLES_ON_TENSOR_CORES, 64, MMA, ["sm_80"]),
        (SOME_EXAMPLES, 64, MMA, ["sm_90a", "newest"]),
        (SOME_EXAMPLES, 128, MMA, ["sm_80", "sm_90a", "newest"]),
        (SOME_EXAMPLES, 256, MMA, ["sm_80", "sm_90a"]),
        (["dense_bias"], 256, MMA, ["newest"]),
        (EXAMPLES_ON_TENSOR_CORES, 128, WGMMA, ["sm_90a"]),
        (SOME_EXAMPLES, 64, WGMMA, ["sm_90a"]),
        (SOME_EXAMPLES, 192, WGMMA, ["sm_90a"]),
        (SOME_EXAMPLES, 256, WGMMA, ["sm_90a"]),
        (SOME_EXAMPLES, 128, ONE_WARPGROUP, ["sm_90a"]),
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
        ("wgmma_fence(weights[0]);", "warpgroup.arrive is injected"),
        ("wgmma_wait<0>(output[0]);", "warpgroup.wait is injected"),
    ],
)
def test_what_nvcc_says_of_missing_fences(missing, remark, tmp_path):
    (text,) = texts_for_nvcc(["causal"], 64, *WGMMA)
    assert missing in text
    said, _ = compiled_by_nvcc([text.replace(missing, "")], "sm_90a", tmp_path)
    assert "(C75" in said and remark in said, said
