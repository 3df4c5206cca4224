# cmake -DNM=... -DLIBRARY=libfa2.so -DHEADER=fa2.h -P exports.cmake
# The shared library exports the functions that the public header declares, and nothing else.
cmake_minimum_required(VERSION 3.20)
file(STRINGS ${HEADER} lines REGEX "^FA2_API")
set(declared)
foreach(line ${lines})
  if(line MATCHES "(fa2_[a-z_]+)\\(")
    list(APPEND declared ${CMAKE_MATCH_1})
  endif()
endforeach()
if(NOT declared)
  message(FATAL_ERROR "no declaration found in ${HEADER}")
endif()

execute_process(COMMAND ${NM} -D --defined-only ${LIBRARY} OUTPUT_VARIABLE symbols
  COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^ \n]+\n" exported "${symbols}")
string(REPLACE "\n" "" exported "${exported}")

foreach(name ${exported})
  if(NOT name IN_LIST declared)
    message(SEND_ERROR "exported, but not declared in the public header: ${name}")
  endif()
endforeach()
foreach(name ${declared})
  if(NOT name IN_LIST exported)
    message(SEND_ERROR "declared in the public header, but not exported: ${name}")
  endif()
endforeach()
