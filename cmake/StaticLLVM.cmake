# attn_static_llvm: MLIR, LLVM and the two libraries they compress with, as archives. What is linked with it runs where none of
# them is installed.
#
# The targets of MLIR's CMake package would bring libLLVM.so, so these are the files. The linker takes what is needed of
# them, in whatever order they need one another.
file(GLOB archives ${LLVM_LIBRARY_DIR}/libMLIR*.a ${LLVM_LIBRARY_DIR}/libLLVM*.a)
if(NOT archives)
  attn_missing("MLIR 22 as static libraries" "apt-get install libmlir-22-dev llvm-22-dev")
endif()
find_library(ATTN_ZLIB libz.a)
find_library(ATTN_ZSTD libzstd.a)
if(NOT ATTN_ZLIB OR NOT ATTN_ZSTD)
  attn_missing("zlib or Zstandard as a static library" "apt-get install zlib1g-dev libzstd-dev")
endif()
list(JOIN archives "," archives)
add_library(attn_static_llvm INTERFACE)
target_link_libraries(attn_static_llvm INTERFACE "$<LINK_GROUP:RESCAN,${archives}>" ${ATTN_ZLIB} ${ATTN_ZSTD})
