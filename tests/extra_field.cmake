# The library and the tuner's modules once more, with one compile-time field more in problem.def and a
# member for it in fa2.h, in copies in the build tree that stand before the originals. Nothing else is
# other: what a new field takes to pass through every layer is these two lines.
set(extra ${CMAKE_CURRENT_BINARY_DIR}/extra)
set(FA2_H ${PROJECT_SOURCE_DIR}/runtime/include/fa2.h)
set(FA2_PROBLEM_DEF ${PROJECT_SOURCE_DIR}/runtime/base/problem.def)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${FA2_H} ${FA2_PROBLEM_DEF})

file(READ ${FA2_H} header)
if(NOT header MATCHES "int32_t reserved\\[([0-9]+)\\]; ([^\n]*)\n} fa2_problem;")
  message(FATAL_ERROR "fa2_problem has no reserved members to take one from")
endif()
math(EXPR left "${CMAKE_MATCH_1} - 1")
string(REPLACE "${CMAKE_MATCH_0}"
  "int32_t extra;\n    int32_t reserved[${left}]; ${CMAKE_MATCH_2}\n} fa2_problem;" header "${header}")
file(GENERATE OUTPUT ${extra}/fa2.h CONTENT "${header}")

file(READ ${FA2_PROBLEM_DEF} fields)
string(REPLACE "#undef FA2I_FIELD" "FA2I_FIELD(extra, \"extra\", INT, KIND, 0, 1, 1, MEANS(0), NOTHING, UNLESS_0, \
EXACT, NONE, FORWARD)\n#undef FA2I_FIELD" fields "${fields}")
file(GENERATE OUTPUT ${extra}/runtime/base/problem.def CONTENT "${fields}")

set(sources "")
foreach(target fa2_base fa2_cache fa2_core fa2_tuner fa2_fakes)
  get_target_property(folder ${target} SOURCE_DIR)
  get_target_property(names ${target} SOURCES)
  list(TRANSFORM names PREPEND ${folder}/)
  list(APPEND sources ${names})
endforeach()
add_library(fa2_extra STATIC ${sources} $<TARGET_OBJECTS:fa2_assets>)
target_include_directories(fa2_extra BEFORE PUBLIC ${extra} ${PROJECT_SOURCE_DIR}
  ${PROJECT_SOURCE_DIR}/runtime/include)
target_link_libraries(fa2_extra PUBLIC fa2_flags fa2_cuda_headers fa2_lua fa2_sqlite fa2_md
  Threads::Threads ${CMAKE_DL_LIBS} m)

add_executable(test_fields_extra test_fields.c)
target_include_directories(test_fields_extra PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(test_fields_extra PRIVATE fa2_extra)
add_test(NAME test_fields_extra COMMAND test_fields_extra)
