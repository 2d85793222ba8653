# `cmake --install`: libattn.so, its headers, the tools, and what find_package(attn) reads.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

foreach(tool attnc attn-run attn-opt)
  if(TARGET ${tool})
    set_target_properties(${tool} PROPERTIES INSTALL_RPATH "$<TARGET_FILE_DIR:Halide::Halide>;${LLVM_LIBRARY_DIR}")
    install(TARGETS ${tool} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()

target_include_directories(attn INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(attn INTERFACE cxx_std_20)
install(TARGETS attn EXPORT attnTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT attnTargets NAMESPACE attn:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attn FILE attnConfig.cmake)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/attnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/attnConfigVersion.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attn)
install(FILES include/attn/Compiler/Compiler.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/attn/Compiler)
install(FILES include/attn/Runtime/DLPack.h include/attn/Runtime/Runtime.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/attn/Runtime)
