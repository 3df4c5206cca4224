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
