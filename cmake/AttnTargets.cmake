# How the project's libraries and programs are compiled, in one place.

add_library(attn_flags INTERFACE)
target_compile_options(attn_flags INTERFACE -Wall -Wextra -Wno-unused-parameter
  $<$<COMPILE_LANGUAGE:CXX>:-Wno-redundant-move>)
if(CMAKE_UNITY_BUILD)
  # Of unnamed namespaces outside a compiler's main file, which g++ takes for a header.
  target_compile_options(attn_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
target_include_directories(attn_flags INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)
if(ATTN_SANITIZE)
  target_compile_options(attn_flags INTERFACE -fsanitize=address,undefined -fno-omit-frame-pointer)
  target_link_options(attn_flags INTERFACE -fsanitize=address,undefined)
endif()

add_library(attn_mlir INTERFACE)
if(ATTN_PACKAGE)
  include(StaticLLVM)
  target_link_libraries(attn_mlir INTERFACE attn_flags attn_static_llvm)
else()
  target_link_libraries(attn_mlir INTERFACE attn_flags MLIR LLVM)
endif()
target_include_directories(attn_mlir SYSTEM INTERFACE ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS})

# attn_library(NAME SOURCES... LINK LIBRARIES... DEPENDS TARGETS...): one folder of lib/.
function(attn_library name)
  cmake_parse_arguments(ARG "" "" "LINK;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
endfunction()
