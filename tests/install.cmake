# Install to a fresh prefix with a space in its name, then build and run there what a user would: the
# installed example with find_package(fa2), shared and static, and with pkg-config; and README's client.
#   cmake -DSOURCE= -DBUILD= -DLIBDIR= -DDOCDIR= -DCOMPILER= -DFLAGS= -DCUDA_INCLUDE= -P install.cmake
cmake_minimum_required(VERSION 3.20)
set(work ${BUILD}/install-test)
set(prefix "${work}/a prefix")
set(example "${prefix}/${DOCDIR}/runtime/examples")
file(REMOVE_RECURSE ${work})
file(MAKE_DIRECTORY ${work})
include(${CMAKE_CURRENT_LIST_DIR}/must_run.cmake)

# Without a driver: a sentence naming what was tried, and status 3. Else with it and these arguments: right, or no GPU.
function(check_example program)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env HOME=${work} FA2_CUDA_LIBRARY=/nonexistent/libcuda.so ${program}
    RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT status EQUAL 3 OR NOT err MATCHES "/nonexistent/libcuda.so")
    message(FATAL_ERROR "${program} without a driver: status ${status}\n${out}${err}")
  endif()
  execute_process(COMMAND ${CMAKE_COMMAND} -E env HOME=${work} ${program} ${ARGN} --db ""
    RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT (status EQUAL 0 AND out MATCHES "max error|carried +O differs") AND NOT (status EQUAL 3 AND out STREQUAL ""))
    message(FATAL_ERROR "${program}: status ${status}\n${out}${err}")
  endif()
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
foreach(file include/fa2.h include/fa2.hpp ${LIBDIR}/libfa2.so ${LIBDIR}/libfa2.so.0.2 ${LIBDIR}/libfa2.a bin/fa2-tune
    share/man/man1/fa2-tune.1
    share/bash-completion/completions/fa2-tune share/zsh/site-functions/_fa2-tune
    share/fish/vendor_completions.d/fa2-tune.fish share/fa2/shipped.db)
  if(NOT EXISTS ${prefix}/${file})
    message(FATAL_ERROR "${file} was not installed")
  endif()
endforeach()
file(GLOB headers RELATIVE ${prefix}/include ${prefix}/include/*)
if(NOT headers STREQUAL "fa2.h;fa2.hpp")
  message(FATAL_ERROR "more than the public headers were installed: ${headers}")
endif()

foreach(static OFF ON)
  set(build ${work}/cmake-${static})
  run(${CMAKE_COMMAND} -S ${example} -B ${build} -DCMAKE_PREFIX_PATH=${prefix}
    -DLINK_STATIC=${static} -DCUDA_INCLUDE_DIR=${CUDA_INCLUDE} -DCMAKE_C_COMPILER=${COMPILER}
    -DCMAKE_C_FLAGS=${FLAGS})
  run(${CMAKE_COMMAND} --build ${build})
  check_example(${build}/attention 2 4 200 64 1)
  check_example(${build}/parts)
endforeach()

# ---- components: those that there are, one that there is not, and static without the libraries that it links ----
# find_components(<words> <environment>): configures a project that asks for them; sets `status` and `out`.
function(find_components words environment)
  file(WRITE ${work}/components/CMakeLists.txt "cmake_minimum_required(VERSION 3.21)\nproject(components C)\n"
    "find_package(fa2 0.2 REQUIRED COMPONENTS ${words})\n")
  file(REMOVE_RECURSE ${work}/components/build)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env ${environment} ${CMAKE_COMMAND} -S ${work}/components
    -B ${work}/components/build -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_C_COMPILER=${COMPILER}
    RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE out)
  string(REGEX REPLACE "[ \n]+" " " out "${out}")
  set(status ${status} PARENT_SCOPE)
  set(out "${out}" PARENT_SCOPE)
endfunction()
find_components("shared static" "")
if(NOT status EQUAL 0)
  message(FATAL_ERROR "find_package(fa2 COMPONENTS shared static): ${out}")
endif()
find_components("both" "")
if(status EQUAL 0 OR NOT out MATCHES "There is no component both; fa2 has shared and static")
  message(FATAL_ERROR "find_package(fa2 COMPONENTS both): ${out}")
endif()
find_components("static" "PKG_CONFIG_LIBDIR=${work}")
if(status EQUAL 0 OR NOT out MATCHES "fa2::static links [a-z0-9.-]*lua[^,]*, sqlite3, libmd, which pkg-config does not find")
  message(FATAL_ERROR "find_package(fa2 COMPONENTS static) without Lua: ${out}")
endif()

# ---- without libraries: all of them are named at once, with what installs them ----
execute_process(COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_LIBDIR=${work} ${CMAKE_COMMAND} -S ${SOURCE}
  -B ${work}/lacking -DCMAKE_C_COMPILER=${COMPILER} RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE err)
string(REGEX REPLACE "[ \n]+" " " err "${err}")
set(expected "fa2 needs what is not here: liblua5.4-dev, libsqlite3-dev, libmd-dev (names of Debian and Ubuntu). \
Install it: sudo apt-get install -y liblua5.4-dev libsqlite3-dev libmd-dev")
string(FIND "${err}" "${expected}" at)
if(status EQUAL 0 OR at EQUAL -1)
  message(FATAL_ERROR "without libraries: status ${status}\n${err}")
endif()

# ---- as a part of another project: neither its build type, nor what it builds and installs, changes ----
file(WRITE ${work}/parent/CMakeLists.txt "cmake_minimum_required(VERSION 3.21)\nproject(parent C)\n"
  "include(FetchContent)\nFetchContent_Declare(fa2 SOURCE_DIR \"${SOURCE}\")\nFetchContent_MakeAvailable(fa2)\n"
  "get_target_property(left_out fa2-tune EXCLUDE_FROM_ALL)\n"
  "if(NOT TARGET fa2::fa2 OR NOT left_out OR CMAKE_BUILD_TYPE)\n"
  "  message(FATAL_ERROR \"fa2-tune left out: \${left_out}, build type: \${CMAKE_BUILD_TYPE}\")\nendif()\n")
run(${CMAKE_COMMAND} -S ${work}/parent -B ${work}/parent/build -DFA2_CUDA_INCLUDE_DIR=${CUDA_INCLUDE}
  -DCMAKE_C_COMPILER=${COMPILER})
run(${CMAKE_COMMAND} --install ${work}/parent/build --prefix ${work}/parent/installed)
file(GLOB_RECURSE installed ${work}/parent/installed/*)
if(installed)
  message(FATAL_ERROR "a project that has fa2 as a part installs ${installed}")
endif()

# ---- pkg-config, which sees no other package: the shared library needs none to be developed with ----
find_program(PKG_CONFIG pkg-config REQUIRED)
set(ENV{PKG_CONFIG_LIBDIR} "${prefix}/${LIBDIR}/pkgconfig")
function(ask_pkg_config result)
  execute_process(COMMAND ${PKG_CONFIG} ${ARGN} fa2 RESULT_VARIABLE status
    OUTPUT_VARIABLE out ERROR_VARIABLE err OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "pkg-config ${ARGN} fa2: ${err}")
  endif()
  separate_arguments(out UNIX_COMMAND "${out}")
  set(${result} ${out} PARENT_SCOPE)
endfunction()

ask_pkg_config(flags --cflags --libs)
list(TRANSFORM flags REPLACE "/${LIBDIR}/pkgconfig/[./]*" "/" OUTPUT_VARIABLE shown)
if(NOT shown STREQUAL "-I${prefix}/include;-L${prefix}/${LIBDIR};-lfa2")
  message(FATAL_ERROR "pkg-config fa2 gives more than include folder, library folder and fa2: ${flags}")
endif()
ask_pkg_config(libdir --variable=libdir)
set(rpath "-Wl,-rpath,${libdir}")
set(sources ${example}/attention.c ${example}/arguments.c ${example}/driver.c ${example}/reference.c)
run(${COMPILER} ${FLAGS} -I${CUDA_INCLUDE} ${sources} -o ${work}/attention ${flags} ${rpath} -ldl -lm)
check_example(${work}/attention 2 4 200 64 1)

ask_pkg_config(flags --static --cflags --libs)
list(TRANSFORM flags REPLACE "^-lfa2$" "-l:libfa2.a")
run(${COMPILER} ${FLAGS} -I${CUDA_INCLUDE} ${sources} -o ${work}/attention-static ${flags})
check_example(${work}/attention-static 2 4 200 64 1)

# ---- the pages for users ----
foreach(page CHANGELOG.md README.md runtime/README.md runtime/messages.md runtime/python/README.md
    runtime/python/training.md runtime/recipes/Dockerfile tuner/README.md)
  if(NOT EXISTS ${prefix}/${DOCDIR}/${page})
    message(FATAL_ERROR "${page} is not installed")
  endif()
endforeach()
run(python3 ${SOURCE}/tests/test_pages.py --installed ${prefix}/${DOCDIR})

# ---- README's client, with its command line, over a CUDA runtime that has no memory ----
file(READ ${SOURCE}/README.md readme)
string(REGEX MATCH "```c\n([^`]*)```" block "${readme}")
file(WRITE ${work}/client.c "${CMAKE_MATCH_1}")
file(WRITE ${work}/cudart/cuda_runtime_api.h [[
#include <stddef.h>
typedef enum cudaError { cudaSuccess } cudaError_t;
cudaError_t cudaMalloc(void **data, size_t bytes);
cudaError_t cudaMemset(void *data, int value, size_t bytes);
cudaError_t cudaDeviceSynchronize(void);
const char *cudaGetErrorString(cudaError_t error);
]])
file(WRITE ${work}/cudart/cudart.c [[
#include "cuda_runtime_api.h"
cudaError_t cudaMalloc(void **data, size_t bytes) { (void)data; return bytes > 0 ? 2 : 0; }
cudaError_t cudaMemset(void *data, int value, size_t bytes) { (void)data; return value != 0 && bytes > 0; }
cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t error) { return error == 2 ? "out of memory" : "no error"; }
]])
run(${COMPILER} ${FLAGS} -shared -fPIC ${work}/cudart/cudart.c -o ${work}/cudart/libcudart.so)
string(REGEX MATCH "\ncc client.c [^\n]*(\n +[^\n]*)?" command "${readme}")
if(command STREQUAL "")
  message(FATAL_ERROR "README has no command that compiles client.c")
endif()
string(REPLACE "\ncc " "eval ${COMPILER} ${FLAGS} -Wall -Wextra -Werror " command "${command}")
string(REGEX REPLACE "/usr/local/cuda/[a-z0-9]*" "'\"${work}/cudart\"'" command "${command}")
execute_process(COMMAND sh -c "${command}" WORKING_DIRECTORY ${work}
  RESULT_VARIABLE status ERROR_VARIABLE err)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "README's client: ${command}\nstatus ${status}\n${err}")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${work}/cudart ${work}/client
  RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE err)
if(NOT status EQUAL 1 OR NOT err MATCHES "bytes on the device: out of memory")
  message(FATAL_ERROR "README's client without memory: status ${status}\n${out}${err}")
endif()
file(REMOVE_RECURSE ${work})
