# The licenses of what the Python package has inside, in the folder where Python keeps those of a package.
function(attn_package_license name file)
  install(FILES ${file} DESTINATION ${SKBUILD_METADATA_DIR}/licenses RENAME ${name}.txt COMPONENT python OPTIONAL)
endfunction()

attn_package_license(llvm /usr/share/doc/libmlir-22-dev/copyright)
foreach(library libfmt libzstd zlib1g)
  attn_package_license(${library} /usr/share/doc/${library}-dev/copyright)
endforeach()
foreach(distribution halide nanobind)
  execute_process(
    COMMAND ${ATTN_PYTHON} -c "import importlib.metadata as metadata
found = metadata.distribution('${distribution}')
print(next(found.locate_file(file) for file in found.files if file.name.startswith('LICENSE')))"
    OUTPUT_VARIABLE file OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  attn_package_license(${distribution} ${file})
endforeach()
