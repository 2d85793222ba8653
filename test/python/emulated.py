"""Runs the text of `attnc --emit=cuda` on the CPU: g++ compiles it against lib/CUDA/Emulation.h, ctypes calls it.

A library holds many kernels, each with the function `run_NAME(arguments, seed, few, message, size)`: it runs all blocks of a
launch, of the tiling for few rows or of the other, and, where keys are in parts, those of the launch that merges them, and
returns the emulator's error in `message`, empty where there is none. `launch_attn_NAME`, `launch_attn_NAME_few` and
`launch_attn_NAME_merge` are the same for the driver of test/Tools/Inputs/fake_cuda.c, which was told the sizes of the launches.
"""

import ctypes
import functools
import os
import re
import subprocess
import tempfile
from pathlib import Path

import torch
from conftest import ROOT

ATTNC = Path(os.environ.get("ATTN_BUILD", ROOT / "build/release")) / "bin/attnc"
CUDA = ROOT / "lib/CUDA"
FEW_ROWS = 16  # what the tiling for few rows has in one tile
COMPILER = ["g++", "-std=c++17", "-Og", "-fPIC", "-w"]  # kernels run for less time than it takes to compile them
SCALARS = {
    "int": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "float": ctypes.c_float,
    "bool": ctypes.c_bool,
    "signed char": ctypes.c_int8,
}

BLOCKS = """
template <typename Kernel, typename Function>
static std::string run_blocks(const typename Kernel::Arguments &given, unsigned seed, Function function) {
  auto rows = Kernel::rows(given), combinations = Kernel::combinations(given);
  int blocks = (rows + Kernel::query_tile - 1) / Kernel::query_tile * combinations * given.parts.count;
  return attn::emulation::launch(blocks, Kernel::threads, Kernel::shared_bytes(), seed, function);
}
"""

ENTRY = """
extern "C" void run_{name}(const void *arguments, unsigned seed, bool few, char *message, int size) {{
  using Kernel = attn::{name}_kernel;
  using Few = attn::{name}_few_kernel;
  Kernel::Arguments given;
  memcpy(&given, arguments, sizeof given);
  auto rows = Kernel::rows(given), combinations = Kernel::combinations(given);
  std::vector<float> states(given.parts.count * rows * combinations * attn::state_size<Kernel>, attn::infinity());
  given.parts.states = states.data();
  std::string error = few ? run_blocks<Few>(given, seed, [&] {{ attn_{name}_few(given); }})
                          : run_blocks<Kernel>(given, seed, [&] {{ attn_{name}(given); }});
  if (error.empty() && given.parts.count > 1)
    error = attn::emulation::launch(rows * combinations, attn::merging_threads<Kernel>, 0, seed,
                                    [&] {{ attn_{name}_merge(given); }});
  snprintf(message, size, "%s", error.c_str());
}}
extern "C" void rows_{name}(const void *arguments, long long *rows, long long *combinations) {{
  const auto &given = *static_cast<const attn::{name}_kernel::Arguments *>(arguments);
  *rows = attn::{name}_kernel::rows(given);
  *combinations = attn::{name}_kernel::combinations(given);
}}
extern "C" void launch_attn_{name}(const void *arguments, unsigned blocks, unsigned threads, unsigned shared,
                                         char *message, size_t size) {{
  const auto &given = *static_cast<const attn::{name}_kernel::Arguments *>(arguments);
  std::string error = attn::emulation::launch(blocks, threads, shared, 0, [&] {{ attn_{name}(given); }});
  snprintf(message, size, "%s", error.c_str());
}}
extern "C" void launch_attn_{name}_few(const void *arguments, unsigned blocks, unsigned threads, unsigned shared,
                                         char *message, size_t size) {{
  const auto &given = *static_cast<const attn::{name}_kernel::Arguments *>(arguments);
  std::string error = attn::emulation::launch(blocks, threads, shared, 0, [&] {{ attn_{name}_few(given); }});
  snprintf(message, size, "%s", error.c_str());
}}
extern "C" void launch_attn_{name}_merge(const void *arguments, unsigned blocks, unsigned threads, unsigned shared,
                                         char *message, size_t size) {{
  const auto &given = *static_cast<const attn::{name}_kernel::Arguments *>(arguments);
  std::string error = attn::emulation::launch(blocks, threads, shared, 0, [&] {{ attn_{name}_merge(given); }});
  snprintf(message, size, "%s", error.c_str());
}}
"""


def emit(source, *options):
    """The CUDA C++ of the kernels of a spec."""
    command = [str(ATTNC), "-", "--emit=cuda", *options]
    done = subprocess.run(command, input=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def split(text):
    """The part of a text that all kernels share, and the kernels' own."""
    marker = "#endif // ATTN_CUDA_ATTENTION\n"
    assert text.count(marker) == 1
    shared, own = text.split(marker)
    return shared + marker, own


@functools.cache
def precompiled():
    """A folder with Emulation.h as g++ reads it quickest: where a header is looked for, NAME.gch beside it comes first."""
    folder = tempfile.TemporaryDirectory()
    subprocess.run([*COMPILER, "-x", "c++-header", CUDA / "Emulation.h", "-o", f"{folder.name}/Emulation.h.gch"], check=True)
    return folder


def compile_library(source, target):
    """A shared library from a source that begins with Emulation.h."""
    folders = [f"-I{precompiled().name}", f"-I{CUDA}"]
    done = subprocess.run([*COMPILER, "-shared", *folders, source, "-o", target], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]


class Library:
    """Kernels from their texts, which share what lib/CUDA/*.cuh is."""

    def __init__(self, folder, name, texts):
        (shared,) = {split(text)[0] for text in texts}
        own = "".join(split(text)[1] for text in texts)
        structs = re.finditer(r"struct (\w+)_kernel \{.*?struct Arguments \{(.*?)\n  \};.*?\n\};", own, re.S)
        self.fields = {match[1]: fields(match[2]) + (maps(match[0]),) for match in structs}
        source, target = folder / f"{name}.cpp", folder / f"{name}.so"
        self.path = target
        entries = "".join(ENTRY.format(name=kernel) for kernel in self.fields)
        source.write_text('#include "Emulation.h"\n' + shared + own + BLOCKS + entries)
        compile_library(source, target)
        self.library = ctypes.CDLL(str(target))

    def run(self, name, tensors, sizes, seed=0, parts=1, by_maps=True, few=None):
        """Runs a kernel on tensors, inputs and outputs alike, and numbers for scalars, with keys in so many parts, copied by
        maps where that can be, in the tiling for few rows or the other: without `few`, in that of a launch. Raises
        RuntimeError for what the emulator finds."""
        if few is None:
            few = self.rows(name, tensors, sizes)[0] <= FEW_ROWS
        arguments = pack(self.fields[name], tensors, sizes, parts, by_maps)
        message = ctypes.create_string_buffer(512)
        getattr(self.library, f"run_{name}")(ctypes.byref(arguments), seed, few, message, len(message))
        if message.value:
            raise RuntimeError(message.value.decode())

    def rows(self, name, tensors, sizes):
        """How many rows read the same keys, and how many times there are so many."""
        arguments, rows, combinations = pack(self.fields[name], tensors, sizes, 1, False), ctypes.c_int64(), ctypes.c_int64()
        getattr(self.library, f"rows_{name}")(ctypes.byref(arguments), ctypes.byref(rows), ctypes.byref(combinations))
        return rows.value, combinations.value


def fields(text):
    """The members of `Arguments`: (name, rank of a tensor or type of a scalar), and the names of the sizes."""
    members, sizes = text.split("struct {")
    found = []
    for line in filter(None, map(str.strip, members.splitlines())):
        tensor = re.fullmatch(r"Tensor<(?:const )?[\w ]+, (\d+)> (\w+);", line)
        scalar = re.fullmatch(r"([\w ]+) (\w+);", line)
        assert tensor or scalar, line
        found.append((tensor[2], int(tensor[1])) if tensor else (scalar[2], scalar[1]))
    return found, re.search(r"int ([\w, ]+);", sizes)[1].split(", ")


def maps(text):
    """The tensors of keys and of values, in which dimension from the last on their keys are, and the keys of a tile; nothing
    where a launch has no maps."""
    found = []
    for read, part in (("key", "keys"), ("value", "values")):
        place = re.search(rf"Place {read}_place\(.*?return \{{\{{(.*?)\}}\}};", text, re.S)
        tensor = re.search(rf"{part}_aligned\(.*?is_aligned\(arguments\.(\w+)\)", text)
        if place:
            axis = re.match(r"(int\(.*?\), )*?key\b", place[1])[0].count("int(") + 1
            found.append((tensor[1], axis, int(re.search(r"key_tile = (\d+)", text)[1])))
    return found


def map_of(tensor, axis, rows):
    """As lib/CUDA/EmulatedCopies.h takes it; nothing where a GPU would not take it (append_map in lib/Runtime/Launch.c)."""
    rank = tensor.dim()
    extents = [*reversed(tensor.shape)] + [1] * (5 - rank)
    strides = [stride * 2 if extent > 1 else 16 for stride, extent in zip(reversed(tensor.stride()), extents)][1:]
    if 0 in extents or tensor.data_ptr() % 16 or any(stride <= 0 or stride % 16 for stride in strides):
        return None
    box = [64, 1, 1, 1, 1]
    box[axis] = rows
    return (ctypes.c_uint64 * 16)(tensor.data_ptr(), *extents, *strides, *[16] * (5 - rank), *box)


def pack(members, tensors, sizes, parts, by_maps):
    found, names, mapped = members
    layout, values = [], []
    for name, kind in found:
        if isinstance(kind, str):
            layout.append((name, SCALARS[kind]))
            values.append(tensors[name].item() if isinstance(tensors[name], torch.Tensor) else tensors[name])
        else:
            tensor = tensors[name]
            assert tensor.dim() == kind
            layout += [(name, ctypes.c_void_p), (f"{name} strides", ctypes.c_int64 * kind)]
            values += [tensor.data_ptr(), (ctypes.c_int64 * kind)(*tensor.stride())]
    layout += [(f"size {name}", ctypes.c_int32) for name in names]
    values += [sizes[name] for name in names]
    layout += [("states of parts", ctypes.c_void_p), ("parts", ctypes.c_int32)]
    values += [None, parts]
    Arguments = type("Arguments", (ctypes.Structure,), {"_fields_": layout})
    if mapped:
        made = [map_of(tensors[name], axis, rows) for name, axis, rows in mapped] if by_maps else [None, None]
        valid = all(made)
        end = Arguments.parts.offset + 4
        layout += [("padding", ctypes.c_char * (-end % 64)), ("maps", ctypes.c_uint64 * 16 * 2)]
        layout += [("are valid", ctypes.c_int32), ("end", ctypes.c_char * 60)]
        values += [b"", (ctypes.c_uint64 * 16 * 2)(*made) if valid else (ctypes.c_uint64 * 16 * 2)(), int(valid), b""]
        Arguments = type("Arguments", (ctypes.Structure,), {"_fields_": layout})
    return Arguments(*values)
