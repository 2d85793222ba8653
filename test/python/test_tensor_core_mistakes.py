"""What the tests of tensor cores can see: kernels with a mistake, and what the emulator reports.

Each text of a kernel with one mistake must give wrong numbers, or an error of the emulator (lib/CUDA/Emulation.h).
"""

import ctypes

import pytest
import torch
from emulated import Library, compile_library, emit
from tensor_core_cases import FEATURES
from tensor_core_runs import MMA, PRODUCER, TOLERANCE, WGMMA, kernels, run  # noqa: F401 (a fixture)

MUTATIONS = {
    "the column of a copy": ("row_at(first + row) + segment * 8", "row_at(first + row)"),
    "the row of a copy": ("source += next)", "source += next / 2)"),
    "the columns of a lane": ("lane % 4 * 2 + element % 2", "lane % 4 + element % 2 * 4"),
    "the rows of a lane": ("lane / 4 + element / 2 * 8", "lane / 4 * 2 + element / 2"),
    "the barrier": ("Products::publish();\n      block_barrier();", "Products::publish();"),
    "the wait for copies": ("cp_async_wait<0>();\n      Products", "Products"),
    "one tile for two": ("(shared + key_offset(number))", "(shared + Shared::keys)"),
    "the rescaling": ("output[row_tile][step][half * 2] *= scale[row_tile][half];", ""),
    "the rescaling of sums": ("sum[row_tile][half] *= scale[row_tile][half];", ""),
    "the transposition": ("ldmatrix_x4_transposed(b, tile", "ldmatrix_x4(b, tile"),
    "the last keys": ("bool kept = bool(key < tile.keys) & ", "bool kept = "),
    "the lanes of a row": ("total += shuffle_xor(total, 2);", ""),
    "the swizzle": ("((segment ^ row / line) & turn)", "(segment & turn ^ (row & 1))"),
    "whole tiles": ("range.certain.lower <= first_key(number) &&", ""),
    "the keys of all rows": ("tile_row + thread_index() % Kernel::query_tile", "tile_row"),
}
# Of heads that share keys and have a sink, with keys in three parts, of large scores; some queries have no keys.
MUTATIONS_OF_PARTS = {
    "the rescaling of outputs": ("2 + column] * of_other", "2 + column]"),
    "the rescaling of sums": ("state[1] * scale : 0.0f", "state[1] : 0.0f"),
    "the largest maximum": ("largest = fmaxf(largest, first_state", "largest = fminf(0.0f, first_state"),
    "the keys of a part": ("first_of_all + part * tiles_of_part", "first_of_all"),
    "the last keys of a part": ("smaller(tiles_of_part, last_of_all - first_tile)", "last_of_all - first_tile"),
    "one sink": ("Kernel::has_sink && tile.part == 0", "Kernel::has_sink"),
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
    "the fence of weights": ("wgmma_fence(weights);", ""),
    "the wait for scores": ("wgmma_wait<pending>(score[0]);", ""),
    "the wait for outputs": ("wgmma_wait<0>(output[0]);", ""),
    "a wait for too little": ("wgmma_wait<0>(output[0]);", "wgmma_wait<1>(output[0]);"),
    "the commit of scores": ("    wgmma_commit();\n  }\n  /// Of what", "  }\n  /// Of what"),
    "weights in one place": ("add_outputs(output, weights[step], ", "add_outputs(output, weights[0], "),
    "the swizzle": ("(segment % 8 ^ row % 8)", "(segment % 8)"),
    "the mode of the swizzle": ("swizzle_of_128_bytes << 62", "swizzle_of_128_bytes << 63"),
    "the address": ("shared_address(shared, offset) >> 4 & 0x3fff", "shared_address(shared, offset) >> 4 & 0x1ff"),
    "bytes for 16 bytes": ("(unsigned long long)(stride >> 4) << 32", "(unsigned long long)stride << 32"),
    "the rows of atoms": ("(tile, row * 128, 0, atom)", "(tile, row * 128, atom, 0)"),
    "the order of strides": ("(tile, 0, block, atom)", "(tile, 0, atom, block)"),
    "the columns of a step": ("(column / 64 * block + column % 64 * 2)", "(column / 64 * block)"),
    "bytes for 16 bytes of an offset": ("{ return bytes >> 4; }", "{ return bytes; }"),
    "the blocks of columns": ("segment / 8 * block + row * 128", "(segment / 8 + row) * 128"),
    "the rows of a warpgroup": ("(tile, row * 128, 0, atom)", "(tile, 0, 0, atom)"),
    "the rows of values": ("columns_from(values, row, first)", "columns_from(values, 0, first)"),
    "the leading stride of rows": ("(tile, row * 128, 0, atom)", "(tile, row * 128, block, atom)"),
}
# Where banks differ, or nothing: a matrix of 16 columns has no second atom beside the first.
HARMLESS_OF_WARPGROUPS = {"the leading stride of rows"}
# Of the same, by tensor maps.
MUTATIONS_OF_MAPS = {
    "the wait for a tile": ("mbarrier_wait(shared, Shared::full(number % 2), number / 2 % 2);", ";"),
    "the wait for a place": ("if (number >= 2)\n      mbarrier_wait", "if (false)\n      mbarrier_wait"),
    "the parity of a tile": ("number / 2 % 2);", "0);"),
    "the parity of a place": ("(number / 2 - 1) % 2", "number / 2 % 2"),
    "the bytes": ("Shared::key_bytes + Shared::value_bytes)", "Shared::key_bytes)"),
    "the release of a place": ("Products::end_outputs(output);\n    copies.release(number);", "Products::end_outputs(output);"),
    "the release before the products": (
        "Products::end_outputs(output);\n    copies.release(number);",
        "copies.release(number);\n    Products::end_outputs(output);",
    ),
    "the warps of a barrier": ("Shared::empty(place), Kernel::warps)", "Shared::empty(place), 1)"),
    "the fence of barriers": ("        fence_proxy_async();\n", ""),
    "the barriers of two places": ("apart * 32 + place * 8", "apart * 32"),
    "the blocks of columns": ("offset + column / 64 * Layout::block", "offset"),
    "the columns": ("map, column, place, barrier", "map, 0, place, barrier"),
    "the keys of a tile": ("Kernel::key_place(rows.arguments, rows.block, rows.first_key(number))", "Kernel::key_place(rows.arguments, rows.block, 0)"),
    "the map of values": ("rows.arguments.maps.values,", "rows.arguments.maps.keys,"),
    "the queries": ("if (!by_maps || number == 0)", "if (!by_maps)"),
    "the head": ("{{key, int(block.h), int(block.b)}}", "{{key, 0, int(block.b)}}"),
}
# Of the kernel with a warpgroup that copies: by maps (True), or by its threads.
END_OF_OUTPUTS = "      Products::end_outputs(output);\n      producer.release(Apart::of_values, number);\n"
MUTATIONS_OF_PRODUCERS = {
    "the first turn": (True, " && (group == 1 || round > 0)", ""),
    "the last turn": (True, " && (group == 0 || round + 1 < rounds)", ""),
    "whose turn it is": (True, "named_barrier_arrive(2 - group", "named_barrier_arrive(1 + group"),
    "turns of one": (True, "tile.warps_with_rows() == Kernel::warps ? tile.tiles - 1 : 0", "tile.tiles - 1"),
    "the warps with rows": (True, "larger(rows.warps_with_rows(), 1));", "Kernel::warps);"),
    "the registers": (True, "registers_to_copy = 72", "registers_to_copy = 88"),
    "keys and values apart": (True, "barriers + apart * 32", "barriers"),
    "the fence of barriers": (True, "  Kernel::Products::publish();\n  block_barrier();", "  block_barrier();"),
    "the wait for scores": (True, "end_scores<1>(score);", "end_scores<2>(score);"),
    "the wait for outputs": (True, END_OF_OUTPUTS, END_OF_OUTPUTS.split("\n")[1] + "\n"),
    "weights that are still read": (True, END_OF_OUTPUTS, "      pack_weights();\n" + END_OF_OUTPUTS),
    "the rescaling": (True, "      if (moved)\n        softmax.rescale(output, scale);\n", ""),
    "the release of keys": (True, "      producer.release(Apart::of_keys, number + 1);\n", ""),
    "the release of values before the products": (True, END_OF_OUTPUTS, "\n".join(reversed(END_OF_OUTPUTS.split("\n")))),
    "the wait for values": (True, "    producer.wait(Apart::of_values, number);\n", ""),
    "the wait for a place": (True, "    wait_for_place(of_values, number);\n    mbarrier", "    mbarrier"),
    "the fence of copies": (False, "cp_async_wait<pending>();\n    fence_proxy_async();", "cp_async_wait<pending>();"),
    "the wait for copies": (False, "    cp_async_wait<pending>();\n", ""),
    "a wait for too little": (False, "finish<1>(of_keys, number)", "finish<2>(of_keys, number)"),
    "the last values": (False, "finish<0>(of_values, count - 1)", "finish<1>(of_values, count - 1)"),
    "the threads of a barrier": (False, "by_maps ? 1 : threads", "1"),
    "the place of values": (False, "      wait_for_place(of_values, number);\n      tiles", "      tiles"),
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


@pytest.mark.parametrize("mutation", MUTATIONS_OF_PRODUCERS)
def test_a_wrong_kernel_with_a_producer_is_found(mutation, tmp_path, kernels):
    torch.manual_seed(23)
    by_maps, *wrong = MUTATIONS_OF_PRODUCERS[mutation]
    library = library_with("window", wrong, tmp_path, 128, (*PRODUCER, "--plan=tensor.keys=32"))
    sizes = dict(B=1, H=2, M=150, N=333, D=128, E=128)
    arguments = FEATURES["window"].arguments(sizes, torch.float16) | {"window": 200}
    arguments["q"] *= 8  # so that maxima move
    kernel = kernels("window", "f16")
    assert any(is_found(library, "window", kernel, arguments, sizes, seed, by_maps=by_maps) for seed in range(4))


WRONG = """
#include "Emulation.h"
#include "Tiles.cuh"
using namespace attn;
alignas(16) static unsigned char device[64];
static const TensorMap map = {{(unsigned long long)device, 8, 1, 1, 1, 1, 16, 16, 16, 16, 64, 16, 1, 1, 1}};
extern "C" void run(int number, unsigned seed, char *message) {
  std::string error = emulation::launch(1, 128, 8192, seed, [&] {
    unsigned weights[1][1][4] = {}, (&registers)[4] = weights[0][0];
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
        wgmma_fence(weights), registers[1] = 2;
      if (number == 9 || number == 10)
        wgmma_m64nNk16_transposed<32, float16>(sums, registers, matrix);
      else if (number == 11 && thread / 32 == 2)
        wgmma_m64nNk16<32, float16>(sums, matrix, matrix + 2);
      else if (number == 12 && thread < 96)
        wgmma_m64nNk16_transposed<32, float16>(sums, (wgmma_fence(weights), registers), matrix);
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
    if (number >= 21 && number <= 28 && thread == 0) {
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
    if (number == 36) {
      wgmma_fence(sums);
      wgmma_m64nNk16<32, float16>(sums, matrix_descriptor(shared, 0, 0, 1024), matrix_descriptor(shared, 0, 0, 1024));
      wgmma_commit();
      wgmma_fence(sums);
    }
    if (number == 37) {
      wgmma_fence(sums);
      wgmma_m64nNk16<32, float16>(sums, matrix_descriptor(shared, 0, 0, 1024), matrix_descriptor(shared, 0, 0, 1024));
      cp_async(shared, thread * 16, device, 16);
    }
    if (number == 29)
      named_barrier_wait(16, 128);
    if (number == 30)
      named_barrier_wait(1, thread < 64 ? 128 : 64);
    if (number == 31 && thread < 64)
      named_barrier_arrive(2, 128);
    if (number == 32)
      release_registers<20>();
    if (number == 33)
      claim_registers<24>();
    if (number == 34)
      release_registers<40>(), claim_registers<48>(), release_registers<56>();
    if (number == 35)
      release_registers<40>(), claim_registers<48>(), named_barrier_wait(1, 128);
  });
  strcpy(message, error.c_str());
}
"""


def test_the_emulator_reports_what_is_undefined(tmp_path):
    source, target = tmp_path / "wrong.cpp", tmp_path / "wrong.so"
    source.write_text(WRONG)
    compile_library(source, target)
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
    assert error(29) == "block 0: named barrier 16, but they are 1 to 15"
    assert error(30) == "block 0: named barrier 1 is for 64 threads here, but for 128 elsewhere"
    assert error(31) == "block 0: it ends while 64 threads are at barrier 2"
    assert error(32) == "block 0: release_registers: 20, but it takes multiples of 8 from 24 to 256"
    assert error(33) == "block 0: claim_registers: to 24, but a thread has 256"
    assert error(34) == "block 0: release_registers: to 56, but a thread has 48"
    assert error(35) == ""
    assert error(36) == "block 0: thread 31 names registers in a wgmma_fence that a product adds to which it has not waited for"
    assert error(37) == "block 0: cp_async: byte 2032 of shared memory is read by a product that its warp has not waited for"
