# Install to a fresh prefix, then build and run the example against it as a user would: with
# find_package(fa2), shared and static, and with pkg-config.
#   cmake -DSOURCE= -DBUILD= -DLIBDIR= -DCOMPILER= -DFLAGS= -DCUDA_INCLUDE= -P install.cmake
cmake_minimum_required(VERSION 3.20)
set(work ${BUILD}/install-test)
set(prefix ${work}/prefix)
set(example ${SOURCE}/runtime/examples)
file(REMOVE_RECURSE ${work})
file(MAKE_DIRECTORY ${work})

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nstatus ${status}\n${out}")
  endif()
endfunction()

# Without a driver: a sentence naming what was tried, and status 3. Else with it: right, or no GPU.
function(check_example program)
  set(common LD_LIBRARY_PATH=${prefix}/${LIBDIR} HOME=${work})
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env ${common} FA2_CUDA_LIBRARY=/nonexistent/libcuda.so ${program}
    RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT status EQUAL 3 OR NOT err MATCHES "/nonexistent/libcuda.so")
    message(FATAL_ERROR "${program} without a driver: status ${status}\n${out}${err}")
  endif()
  execute_process(COMMAND ${CMAKE_COMMAND} -E env ${common} ${program} 2 4 200 64 1 --db ""
    RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT (status EQUAL 0 AND out MATCHES "max error") AND NOT (status EQUAL 3 AND out STREQUAL ""))
    message(FATAL_ERROR "${program}: status ${status}\n${out}${err}")
  endif()
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
foreach(file include/fa2.h ${LIBDIR}/libfa2.so ${LIBDIR}/libfa2.a bin/fa2-tune)
  if(NOT EXISTS ${prefix}/${file})
    message(FATAL_ERROR "${file} was not installed")
  endif()
endforeach()
file(GLOB headers RELATIVE ${prefix}/include ${prefix}/include/*)
if(NOT headers STREQUAL "fa2.h")
  message(FATAL_ERROR "more than the public header was installed: ${headers}")
endif()

foreach(static OFF ON)
  set(build ${work}/cmake-${static})
  run(${CMAKE_COMMAND} -S ${example} -B ${build} -DCMAKE_PREFIX_PATH=${prefix}
    -DLINK_STATIC=${static} -DCUDA_INCLUDE_DIR=${CUDA_INCLUDE} -DCMAKE_C_COMPILER=${COMPILER}
    -DCMAKE_C_FLAGS=${FLAGS})
  run(${CMAKE_COMMAND} --build ${build})
  check_example(${build}/attention)
endforeach()

find_program(PKG_CONFIG pkg-config REQUIRED)
set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
execute_process(COMMAND ${PKG_CONFIG} --cflags --libs fa2 RESULT_VARIABLE status
  OUTPUT_VARIABLE flags ERROR_VARIABLE err OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "pkg-config fa2: ${err}")
endif()
separate_arguments(flags UNIX_COMMAND "${FLAGS} ${flags}")
run(${COMPILER} -I${CUDA_INCLUDE} ${example}/attention.c ${example}/driver.c ${example}/reference.c
  -o ${work}/attention ${flags} -ldl -lm)
check_example(${work}/attention)
file(REMOVE_RECURSE ${work})
