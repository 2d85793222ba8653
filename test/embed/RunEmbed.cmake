# Installs attn to a fresh prefix, builds examples/embed with find_package(attn) there, and runs it.
file(REMOVE_RECURSE ${WORK}/prefix ${WORK}/build)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(
  COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${WORK}/prefix
          -DCMAKE_CXX_FLAGS=${CXX_FLAGS}
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK}/build COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${WORK}/build/embed COMMAND_ERROR_IS_FATAL ANY)
