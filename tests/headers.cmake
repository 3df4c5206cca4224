# Each header compiles alone, as the first thing in a file; the public one also as C++. Part of the build:
# a header that does not stand alone breaks it.
file(GLOB_RECURSE FA2_HEADERS CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
  ${PROJECT_SOURCE_DIR}/runtime/*.h ${PROJECT_SOURCE_DIR}/cache/*.h ${PROJECT_SOURCE_DIR}/gen/*.h
  ${PROJECT_SOURCE_DIR}/tuner/*.h)
# The examples' users build those as they are; the extension module's need Python.h.
list(FILTER FA2_HEADERS EXCLUDE REGEX "^runtime/(examples|python)/")

add_library(fa2_headers_alone OBJECT)
foreach(header ${FA2_HEADERS})
  string(REPLACE "/" "_" name ${header})
  file(CONFIGURE OUTPUT headers/${name}.c CONTENT "#include \"${header}\"\n")
  target_sources(fa2_headers_alone PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/headers/${name}.c)
endforeach()
target_include_directories(fa2_headers_alone PRIVATE
  ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/runtime/include)
target_link_libraries(fa2_headers_alone PRIVATE
  fa2_flags fa2_cuda_headers fa2_lua fa2_sqlite)

file(CONFIGURE OUTPUT headers/fa2.cpp CONTENT "#include \"fa2.h\"\n")
add_library(fa2_header_cxx OBJECT ${CMAKE_CURRENT_BINARY_DIR}/headers/fa2.cpp)
target_include_directories(fa2_header_cxx PRIVATE ${PROJECT_SOURCE_DIR}/runtime/include)
target_compile_options(fa2_header_cxx PRIVATE ${cxx_warnings})
