"""lit configuration: tests are .attn, .mlir and .test files with RUN lines."""

import ctypes
import glob
import os
import platform
import shutil

import lit.formats

config.name = "attn"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".attn", ".mlir", ".test"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.attn_binary_root, "test")

path = [os.path.join(config.attn_binary_root, "bin"), config.llvm_tools_dir, config.environment.get("PATH", "")]
config.environment["PATH"] = os.pathsep.join(path)
config.environment["ATTN_CACHE_DIR"] = ""  # compile what is tested
# Halide's expressions are many small pieces of memory: where glibc keeps more than seven of a size at hand, compiling
# takes 0.8 of the time. Not for pytest, whose process compiles thousands of kernels and would grow to gigabytes.
config.environment["GLIBC_TUNABLES"] = "glibc.malloc.tcache_count=65535"
config.substitutions.append(("%examples", os.path.join(config.attn_source_root, "examples")))
config.substitutions.append(("%python", config.python))
config.substitutions.append(("%bin", os.path.join(config.attn_binary_root, "bin")))
config.substitutions.append(("%source", config.attn_source_root))
config.substitutions.append(("%mlir_include", os.path.join(os.path.dirname(config.llvm_tools_dir), "include")))
if platform.machine() == "x86_64":
    config.available_features.add("x86-64")
if shutil.which("qemu-aarch64") and shutil.which("aarch64-linux-gnu-gcc"):
    config.available_features.add("arm64-emulator")
if shutil.which("qemu-x86_64") and platform.machine() == "x86_64":
    config.available_features.add("x86-64-emulator")
# What compiles kernels for tensor cores: of PyPI's nvidia-cuda-nvrtc.
packages = os.path.join(os.path.dirname(os.path.dirname(config.python)), "lib", "python3*", "site-packages")
nvrtc = sorted(glob.glob(os.path.join(packages, "nvidia", "*", "lib", "libnvrtc.so.1[23]")))
if nvrtc:
    config.available_features.add("nvrtc")
    config.environment["ATTN_NVRTC"] = nvrtc[-1]


def loads(library):
    try:
        return ctypes.CDLL(library)
    except OSError:
        return None


if any(loads(folder + name) for folder in ("", "/usr/local/cuda/lib64/") for name in ("libnvrtc.so.13", "libnvrtc.so.12")):
    config.available_features.add("system-nvrtc")
if loads("libcuda.so.1"):
    config.available_features.add("cuda-driver")
opencl, platforms = loads("libOpenCL.so.1"), ctypes.c_uint()
if opencl and not opencl.clGetPlatformIDs(0, None, ctypes.byref(platforms)) and platforms.value:
    config.available_features.add("opencl")
# PoCL keeps what it compiled there, and the configuration's environment has no home.
config.environment["POCL_CACHE_DIR"] = os.path.join(config.test_exec_root, "pocl")
