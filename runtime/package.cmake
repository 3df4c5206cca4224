# `cmake --build BUILD --target package_source`: fa2-VERSION.tar.gz in the build folder, the source tree of a release. It
# has what Git tracks, so that nothing that lies beside it gets in. There is no such target outside a Git tree.
find_package(Git QUIET)
if(GIT_FOUND AND EXISTS ${PROJECT_SOURCE_DIR}/.git)
  add_custom_target(package_source
    COMMAND ${GIT_EXECUTABLE} -c safe.directory=${PROJECT_SOURCE_DIR} archive --format=tar.gz
      --prefix=fa2-${PROJECT_VERSION}/ -o ${PROJECT_BINARY_DIR}/fa2-${PROJECT_VERSION}.tar.gz HEAD
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)
endif()
