# fa2.h as an older version could have had it, without the last members of its structs, for older_program.c. Later
# fields of fa2_problem take reserved places, so its size stays the same.
set(older ${CMAKE_CURRENT_BINARY_DIR}/older)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${FA2_H})

# Removes the members of a struct from `first` on.
function(cut_struct text struct first)
  string(FIND "${${text}}" "\n} ${struct};" end)
  string(SUBSTRING "${${text}}" 0 ${end} before)
  string(SUBSTRING "${${text}}" ${end} -1 after)
  string(FIND "${before}" "    ${first}" from REVERSE)
  if(end LESS 0 OR from LESS 0)
    message(FATAL_ERROR "${struct} has no member ${first}")
  endif()
  string(SUBSTRING "${before}" 0 ${from} before)
  set(${text} "${before}${after}" PARENT_SCOPE)
endfunction()

file(READ ${FA2_H} header)
cut_struct(header fa2_forward_args "fa2_append append;")
cut_struct(header fa2_backward_args "fa2_bias_gradient dbias;")
cut_struct(header fa2_config "int never_compile;")
cut_struct(header fa2_explanation "double estimate_us;")
file(GENERATE OUTPUT ${older}/fa2.h CONTENT "${header}")

add_library(older_program OBJECT older_program.c)
target_include_directories(older_program BEFORE PRIVATE ${older} ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(older_program PRIVATE fa2_flags)
