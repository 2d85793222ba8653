# Every dependency is found here, and a missing one says what to install.
# `make setup` (setup.sh) installs all of them.

set(ATTN_VENV "${PROJECT_SOURCE_DIR}/.venv" CACHE PATH "Python environment with the PyPI packages of requirements.txt")

# Stops with a sentence that says what is missing and the command that mends it.
function(attn_missing what remedy)
  message(FATAL_ERROR "attn: ${what} was not found.\n  ${remedy}\n  (or run `make setup`, which installs everything)")
endfunction()

# --- Debian: MLIR and LLVM 22 ------------------------------------------------------------------
set(ATTN_LLVM_PREFIX "/usr/lib/llvm-22" CACHE PATH "Where LLVM and MLIR 22 are installed")
find_package(MLIR QUIET CONFIG HINTS ${ATTN_LLVM_PREFIX}/lib/cmake/mlir NO_DEFAULT_PATH)
if(NOT MLIR_FOUND OR NOT LLVM_VERSION_MAJOR EQUAL 22)
  attn_missing("MLIR 22" "apt-get install libmlir-22-dev mlir-22-tools llvm-22-dev llvm-22-tools")
endif()
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
set(LLVM_RUNTIME_OUTPUT_INTDIR ${PROJECT_BINARY_DIR}/bin)
set(LLVM_LIBRARY_OUTPUT_INTDIR ${PROJECT_BINARY_DIR}/lib)
include(TableGen)
include(AddLLVM)
include(AddMLIR)
set(LLVM_TOOLS_DIR ${LLVM_TOOLS_BINARY_DIR})

# Compiles the C runtime to bitcode, which attnc links into every object it writes.
find_program(ATTN_CLANG clang-22 HINTS ${LLVM_TOOLS_BINARY_DIR})
if(NOT ATTN_CLANG)
  attn_missing("clang 22" "apt-get install clang-22")
endif()

# --- Debian: fmt (its headers alone, so that nothing needs libfmt.so to run) and GoogleTest -----
find_package(fmt 9 QUIET CONFIG)
if(NOT fmt_FOUND)
  attn_missing("fmt" "apt-get install libfmt-dev")
endif()
if(NOT ATTN_PACKAGE)
  find_package(GTest 1.12 QUIET CONFIG)
  if(NOT GTest_FOUND)
    attn_missing("GoogleTest" "apt-get install libgtest-dev libgmock-dev")
  endif()
endif()
find_package(Threads REQUIRED)

# --- PyPI: Halide, lit, nanobind -------------------------------------------------------------
if(ATTN_PACKAGE)
  set(ATTN_PYTHON ${Python_EXECUTABLE}) # scikit-build-core's: the package is for the Python that installs it
else()
  find_program(ATTN_PYTHON python3 PATHS ${ATTN_VENV}/bin NO_DEFAULT_PATH)
  if(NOT ATTN_PYTHON)
    attn_missing("the Python environment ${ATTN_VENV}"
                 "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt")
  endif()
  set(Python_EXECUTABLE ${ATTN_PYTHON} CACHE FILEPATH "" FORCE)
  set(Python3_EXECUTABLE ${ATTN_PYTHON} CACHE FILEPATH "" FORCE)
endif()
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)

execute_process(
  COMMAND ${ATTN_PYTHON} -c "import halide, pathlib; print(pathlib.Path(halide.__file__).parent)"
  OUTPUT_VARIABLE ATTN_HALIDE_PREFIX OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
find_package(Halide 21 QUIET CONFIG HINTS ${ATTN_HALIDE_PREFIX}/lib64/cmake/Halide NO_DEFAULT_PATH)
if(NOT Halide_FOUND)
  attn_missing("Halide 21" ".venv/bin/pip install halide==21.0.0")
endif()

if(NOT ATTN_PACKAGE)
  find_program(ATTN_LIT lit PATHS ${ATTN_VENV}/bin NO_DEFAULT_PATH)
  if(NOT ATTN_LIT)
    attn_missing("lit" ".venv/bin/pip install lit")
  endif()
  set(LLVM_EXTERNAL_LIT ${ATTN_LIT} CACHE FILEPATH "" FORCE)
endif()

execute_process(
  COMMAND ${ATTN_PYTHON} -m nanobind --cmake_dir
  OUTPUT_VARIABLE ATTN_NANOBIND_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
find_package(nanobind QUIET CONFIG HINTS ${ATTN_NANOBIND_DIR} NO_DEFAULT_PATH)
if(NOT nanobind_FOUND)
  attn_missing("nanobind" ".venv/bin/pip install nanobind")
endif()

# --- ccache, where there is one: rebuilds are quicker ----------------------------------------
find_program(ATTN_CCACHE ccache)
if(ATTN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${ATTN_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ATTN_CCACHE})
endif()
