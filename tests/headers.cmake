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

enable_language(CXX)
file(CONFIGURE OUTPUT headers/fa2.cpp CONTENT "#include \"fa2.h\"\n")
add_library(fa2_header_cxx OBJECT ${CMAKE_CURRENT_BINARY_DIR}/headers/fa2.cpp)
target_include_directories(fa2_header_cxx PRIVATE ${PROJECT_SOURCE_DIR}/runtime/include)
set(cxx_warnings -Wall -Wextra -Wpedantic -Wold-style-cast -Wconversion -Werror)
target_compile_options(fa2_header_cxx PRIVATE ${cxx_warnings})

# fa2.hpp in each C++ from 11 on; the two ends run on the software device. Where there is clang++, it reads them, too.
find_program(FA2_CLANGXX clang++)
foreach(standard 11 14 17 20)
  add_executable(test_cpp${standard} test_cpp.cpp)
  set_target_properties(test_cpp${standard} PROPERTIES CXX_STANDARD ${standard} CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
  target_compile_options(test_cpp${standard} PRIVATE ${cxx_warnings} $<$<BOOL:${FA2_SANITIZE}>:-fsanitize=address,undefined>)
  target_link_options(test_cpp${standard} PRIVATE $<$<BOOL:${FA2_SANITIZE}>:-fsanitize=address,undefined>)
  target_link_libraries(test_cpp${standard} PRIVATE fa2_shared ${CMAKE_DL_LIBS})
  if(FA2_CLANGXX)
    add_test(NAME cpp${standard}_clang COMMAND ${FA2_CLANGXX} -std=c++${standard} ${cxx_warnings} -fsyntax-only
      -I${PROJECT_SOURCE_DIR}/runtime/include ${CMAKE_CURRENT_SOURCE_DIR}/test_cpp.cpp)
    set_tests_properties(cpp${standard}_clang PROPERTIES LABELS host)
  endif()
endforeach()
