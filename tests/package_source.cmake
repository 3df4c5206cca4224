# The archive that package_source makes is a source tree: it has the files of a release and no others, and configures.
#   cmake -DBUILD= -DVERSION= -DCUDA_INCLUDE= -DCOMPILER= -P package_source.cmake
cmake_minimum_required(VERSION 3.20)
set(work ${BUILD}/package-source-test)
set(tree ${work}/fa2-${VERSION})
file(REMOVE_RECURSE ${work})
include(${CMAKE_CURRENT_LIST_DIR}/must_run.cmake)

run(${CMAKE_COMMAND} --build ${BUILD} --target package_source)
file(ARCHIVE_EXTRACT INPUT ${BUILD}/fa2-${VERSION}.tar.gz DESTINATION ${work})
file(GLOB found RELATIVE ${tree} ${tree}/* ${tree}/.*)
set(expected .clang-format .gitignore CHANGELOG.md CMakeLists.txt CMakePresets.json DEVELOPING.md README.md cache gen
  pyproject.toml runtime templates tests tuner)
list(SORT found)
list(SORT expected)
if(NOT found STREQUAL expected)
  message(FATAL_ERROR "fa2-${VERSION}.tar.gz has ${found}, expected ${expected}")
endif()
run(${CMAKE_COMMAND} -S ${tree} -B ${work}/build -DCMAKE_C_COMPILER=${COMPILER} -DFA2_CUDA_INCLUDE_DIR=${CUDA_INCLUDE})
file(READ ${tree}/CHANGELOG.md changes)
if(NOT changes MATCHES "\n## ${VERSION}[ \n]")
  message(FATAL_ERROR "CHANGELOG.md has no section ${VERSION}")
endif()
