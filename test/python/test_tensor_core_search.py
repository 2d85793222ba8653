"""Masks of data on tensor cores: blocks leave out the tiles of keys that none of their rows sees (lib/CUDA/SeenTiles.cuh).

Keys and values of such tiles are NaN here: where a block visited one, its rows would be NaN.
"""

import itertools

import pytest
import torch
from emulated import FEW_ROWS, Library, emit
from tensor_core_cases import CAUSAL, DOT, Feature, integers
from tensor_core_runs import KERNELS, TOLERANCE, empty_like, error_of, expected

import attn

WIDTHS = ("--set=D=16", "--set=E=16")


def blocks_of(shape, rows, keys, share=0.3):
    """Truths that are the same within blocks of so many rows and keys, of which some are true."""
    *others, M, N = shape
    few = torch.rand(*others, -(-M // rows), -(-N // keys)) < share
    return few.repeat_interleave(rows, -2).repeat_interleave(keys, -1)[..., :M, :N]


def apart(truths):
    return torch.stack([truths, ~truths, ~truths, ~truths], -1)[..., 0]


def documents(s, length):
    """The documents of queries and of keys, in order: queries are the last of the keys."""
    of_keys = torch.arange(s["N"]) // length
    return {"own": of_keys[s["N"] - s["M"] :].int(), "document": of_keys.int()}


# A mask, and which of [B, H, M, N] it lets through.
CASES = {
    "documents": (
        Feature(", own: i32[M], document: i32[N]", lambda s, dtype: documents(s, 55), mask=f"own[m] == document[n] and {CAUSAL}"),
        lambda a, m, n, s: (a["own"][:, None] == a["document"]) & (n <= m + s["N"] - s["M"]),
    ),
    # Numbers of 64 bits: 16 queries see keys of one, 16 those of another.
    "numbers": (
        Feature(
            ", own: i64[B, M], document: i64[B, N]",
            lambda s, dtype: {
                "own": torch.arange(s["M"]).expand(s["B"], -1) // 16 % 3 * 2**40 - 2**41,
                "document": torch.arange(s["N"]).expand(s["B"], -1) // 128 % 5 * 2**40 - 2**41,
            },
            mask="document[b, n] == own[b, m]",
            lse=True,
        ),
        lambda a, m, n, s: (a["own"][:, :, None] == a["document"][:, None])[:, None],
    ),
    "table": (
        Feature(
            ", table: bool[H, (M + 15) // 16, (N + 63) // 64]",
            lambda s, dtype: {"table": torch.rand(s["H"], (s["M"] + 15) // 16, (s["N"] + 63) // 64) < 0.2},
            mask=f"table[h, m // 16, n // 64] and {CAUSAL}",
        ),
        lambda a, m, n, s: a["table"][:, m // 16, n // 64] & (n <= m + s["N"] - s["M"]),
    ),
    "given": (
        Feature(
            ", see: bool[B, H, M, N]",
            lambda s, dtype: {"see": blocks_of((s["B"], s["H"], s["M"], s["N"]), 8, 96, 0.05)},
            mask="see[b, h, m, n]",
            keys=("B, G, N", "b, h // (H // G), n"),
            sizes={"G": lambda s: 1},
        ),
        lambda a, m, n, s: a["see"],
    ),
    # Every fourth truth in memory, the others are the opposite.
    "hidden": (
        Feature(
            ", hide: bool[M, N]",
            lambda s, dtype: {"hide": apart(~blocks_of((s["M"], s["N"]), 40, 96))},
            mask="not hide[m, n]",
        ),
        lambda a, m, n, s: ~a["hide"],
    ),
    "kept": (
        Feature(
            ", keep: bool[B, N]",
            lambda s, dtype: {"keep": blocks_of((s["B"], 1, s["N"]), 1, 64, 0.5)[:, 0]},
            mask="keep[b, n]",
            lse=True,
        ),
        lambda a, m, n, s: a["keep"][:, None, None],
    ),
    "few_kept": (
        Feature(
            ", keep: bool[B, N]",
            lambda s, dtype: {"keep": blocks_of((s["B"], 1, s["N"]), 1, 8, 0.1)[:, 0]},
            mask="keep[b, n]",
        ),
        lambda a, m, n, s: a["keep"][:, None, None],
    ),
    "sink_and_window": (
        Feature(mask=f"(n < 4 or m + (N - M) - n < 50) and {CAUSAL}", lse=True),
        lambda a, m, n, s: ((n < 4) | (m + s["N"] - s["M"] - n < 50)) & (n <= m + s["N"] - s["M"]),
    ),
    # Of a picture whose rows have 32 pixels: keys at most 3 rows and columns away.
    "neighbours": (
        Feature(mask="abs(n // 32 - m // 32 * 2) <= 3 and max(n % 32 - m % 32, m % 32 - n % 32) <= 9"),
        lambda a, m, n, s: ((n // 32 - m // 32 * 2).abs() <= 3) & ((n % 32 - m % 32).abs() <= 9),
    ),
    "levels": (
        Feature(
            ", rank: i32[N], least: i32[H]",
            lambda s, dtype: {"rank": torch.arange(s["N"], dtype=torch.int32) // 64 * 7 % 5, "least": integers(2, 4, (s["H"],))},
            mask="rank[n] * 2 + min(m, 3) >= least[h] * 2 and not (rank[n] != 4 and m // 100 < rank[n] - 3)",
        ),
        lambda a, m, n, s: (a["rank"] * 2 + m.clamp(max=3) >= a["least"][:, None, None] * 2)
        & ~((a["rank"] != 4) & (m // 100 < a["rank"] - 3)),
    ),
}
SIZES = [dict(B=2, H=2, M=40, N=460), dict(B=1, H=2, M=1, N=333), dict(B=1, H=1, M=150, N=303)]


def text_of(case, *options):
    text = emit(CASES[case][0].spec(case, "f16"), *WIDTHS, "--plan=tensor.keys=32", *options)
    assert "searches_tiles = true" in text
    return text


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("seen_tiles"), {}

    def library(kind):
        if kind not in made:
            made[kind] = Library(folder, kind, [text_of(case, *KERNELS[kind]) for case in CASES])
        return made[kind]

    return library


def seen_of(case, arguments, sizes):
    m, n = torch.arange(sizes["M"])[:, None], torch.arange(sizes["N"])
    return CASES[case][1](arguments, m, n, sizes).expand(sizes["B"], sizes["H"], sizes["M"], sizes["N"])


def poison(arguments, seen, tile):
    """NaN for the keys and values of tiles that no row sees, where one tile has all rows. How many tiles these are."""
    *groups, N, _ = arguments["k"].shape
    of_keys = seen.any(2).reshape(*groups, -1, N).any(-2)  # of the heads that share keys
    count = -(-N // tile)
    unseen = ~torch.nn.functional.pad(of_keys, (0, count * tile - N)).reshape(*groups, count, tile).any(-1)
    for name in "kv":
        arguments[name][unseen.repeat_interleave(tile, -1)[..., :N]] = torch.nan
    return int(unseen.sum())


def run_poisoned(library, case, kernel, arguments, sizes, tile, seed=0, parts=1, by_maps=False):
    """The largest error of the outputs, and the number of tiles that are NaN."""
    references = expected(kernel, arguments)
    count = poison(arguments, seen_of(case, arguments, sizes), tile) if tile else 0
    outputs = empty_like(references)
    named = dict(zip([info.name for info in kernel.outputs], outputs))
    library.run(case, arguments | named, sizes, seed, parts, by_maps)
    return max(error_of(output, reference) for output, reference in zip(outputs, references)), count


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("case", CASES)
def test_tiles_that_no_row_sees_are_not_visited(case, kind, libraries):
    feature, _ = CASES[case]
    kernel, left_out = attn.compile(feature.spec(case, "f16")), 0
    for number, (parts, sizes) in enumerate(itertools.product((1, 3), SIZES)):
        torch.manual_seed(40 + number)
        sizes = feature.sizes_of(sizes | dict(D=16, E=16))
        arguments = feature.arguments(sizes, torch.float16)
        rows = sizes["M"] * (sizes["H"] // sizes["G"] if "G" in sizes else 1)
        tile = 64 if rows <= FEW_ROWS else 32 if rows <= 128 else None  # more rows are several tiles
        error, count = run_poisoned(libraries(kind), case, kernel, arguments, sizes, tile, number, parts, by_maps=parts == 1)
        assert error <= TOLERANCE["f16"], f"{sizes}, {parts} parts: {error}"
        left_out += count
    assert left_out > 10


# Tiles of 32 keys, of which there are 1066: more than are listed one by one, so that four are visited or left out
# together; of two parts with 533 tiles each, two.
MANY = dict(B=1, H=1, M=20, N=34100, D=16, E=16)


def error_of_many(text, folder, first, parts):
    """Of queries that see the 150 keys from `first` on; keys and values are NaN where these are far away."""
    torch.manual_seed(50)
    feature, _ = CASES["documents"]
    arguments = feature.arguments(MANY, torch.float16)
    of_keys = torch.zeros(MANY["N"], dtype=torch.int32)
    of_keys[first : first + 150] = 7
    arguments |= {"own": torch.full((MANY["M"],), 7, dtype=torch.int32), "document": of_keys}
    references = expected(attn.compile(feature.spec("documents", "f16")), arguments)
    for name in "kv":
        for far in (slice(0, max(first - 128, 0)), slice(first + 150 + 128, None)):
            arguments[name][:, :, far] = torch.nan
    (out,) = empty_like(references)
    Library(folder, "documents", [text]).run("documents", arguments | {"out": out}, MANY, parts, parts)
    return error_of(out, references[0])


@pytest.mark.parametrize("first, parts", [(33950, 1), (33950, 2), (17000, 1), (17000, 2)])
def test_more_tiles_than_are_listed(first, parts, tmp_path):
    """The last tile is seen, of which the group has no other one; tiles at the end of a part and at the begin of the next."""
    assert error_of_many(text_of("documents"), tmp_path, first, parts) <= TOLERANCE["f16"]


# A case, and a mistake in the text of its kernel.
MUTATIONS = {
    "the barrier before the list": ("documents", "    block_barrier();\n    if (thread_index() < 32)", "    if (thread_index() < 32)"),
    "the barrier after the list": ("documents", "keep_seen(count);\n    block_barrier();", "keep_seen(count);"),
    "the place in the list": ("documents", "kept + count_of_ones(seen & ((1u << lane) - 1))", "kept + lane"),
    "all of it is whole": ("documents", "| (kind == whole)", "| 1"),
    "whole with keys beyond the last": ("kept", "outcome.must && upper - lower == end_of_keys - first_key", "outcome.must"),
    "one row": ("documents", "smaller(int(Kernel::query_tile), rows - first_row)", "1"),
    "one key a lane": ("numbers", "at < (numbers + 31) / 32 * 32", "at < 32"),
    "lanes that are left out": ("few_kept", "for (int mask = 16; mask > 0; mask /= 2)\n#pragma unroll\n      for (int term", "for (int mask = 8; mask > 0; mask /= 2)\n#pragma unroll\n      for (int term"),
    "the least alone": ("documents", "a.least <= b.greatest && b.least <= a.greatest", "b.least <= a.greatest"),
    "equal to some": ("numbers", "a.least == b.greatest && a.greatest == b.least", "a.least == b.greatest"),
    "words of what lies apart": ("hidden", " && keys.stride == 1", ""),
    "what is not wanted": ("hidden", "== wanted;", "== true;"),
    "the last rows of a table": ("given", "row < height; row += rows_at_once", "row < height - rows_at_once; row += rows_at_once"),
    "the heads of a table": ("given", "row /= length;", ";"),
    "the difference": ("sink_and_window", "{a.least - b.greatest, a.greatest - b.least}", "{a.least - b.least, a.greatest - b.greatest}"),
    "the magnitude": ("neighbours", "larger(larger(a.least, -a.greatest), int64(0))", "larger(a.least, -a.greatest)"),
}
# Of many tiles.
MUTATIONS_OF_GROUPS = {
    "one tile of a group": ("(number & ((1 << shift) - 1))", "0"),
    "a tile beyond the last": ("(has_last ? (count << shift) - tiles : 0)", "0"),
}
# A magnitude below 0 is no less than another number that is not below 0.
HARMLESS = {"the magnitude"}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_wrong_search_is_found(mutation, tmp_path):
    case, *change = MUTATIONS[mutation]
    text = text_of(case)
    assert text.count(change[0]) == 1
    library, kernel = Library(tmp_path, case, [text.replace(*change)]), attn.compile(CASES[case][0].spec(case, "f16"))

    def is_found(seed):
        torch.manual_seed(60 + seed)
        sizes = CASES[case][0].sizes_of(dict(B=2, H=2, M=40, N=460, D=16, E=16))
        try:
            arguments = CASES[case][0].arguments(sizes, torch.float16)
            return not run_poisoned(library, case, kernel, arguments, sizes, 32, seed)[0] <= TOLERANCE["f16"]
        except RuntimeError:  # the emulator's own
            return True

    assert any(is_found(seed) for seed in range(4)) != (mutation in HARMLESS)


@pytest.mark.parametrize("mutation", MUTATIONS_OF_GROUPS)
def test_a_wrong_group_of_tiles_is_found(mutation, tmp_path):
    text, change = text_of("documents"), MUTATIONS_OF_GROUPS[mutation]
    assert text.count(change[0]) == 1
    assert not error_of_many(text.replace(*change), tmp_path, 17000, 2) <= TOLERANCE["f16"]


@pytest.mark.parametrize(
    "mask",
    [
        CAUSAL,  # the range of keys says all
        f"{CAUSAL} and (m - n) % 4 == 0",  # what leaves no gap
        f"{DOT} > 0.0",
        "m * m * m * m * m - n * n * n * n * n < 7",  # which may not fit into 64 bits
    ],
)
def test_what_is_not_looked_for(mask):
    assert "searches_tiles = false" in emit(Feature(mask=mask).spec("range", "f16"), *WIDTHS)
