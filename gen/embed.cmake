# Embeds files as C arrays, with no tool besides CMake. Used in three ways:
#
#   include(embed.cmake)                    defines fa2_embed(<target> <file>...)
#   cmake -DINPUT=.. -DOUTPUT=.. -P ...     writes INPUT as a list of bytes ("0x2f,0x2a,") to OUTPUT
#   cmake -DHASHED=.. -DFROM=.. -DOUTPUT=.. -P ...  writes a hash of these files of a folder to OUTPUT, as a C string
#
# fa2_embed adds one generated C file to the target, the table of gen/asset.h. The table includes the bytes of each file
# as a separate list, so that a changed file is converted alone.
if(CMAKE_SCRIPT_MODE_FILE AND HASHED)
  set(all "")
  foreach(file ${HASHED})
    file(SHA256 ${FROM}/${file} hash)
    string(APPEND all "${file} ${hash}\n")
  endforeach()
  string(SHA256 hash "${all}")
  file(WRITE ${OUTPUT} "\"${hash}\"\n")
  return()
endif()
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${INPUT} bytes HEX)
  # One regular expression for the whole file: a loop over the bytes takes a hundred times as long.
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  file(WRITE ${OUTPUT} "${bytes}\n")
  return()
endif()

# Adds files, named relative to the top of the source tree, to a target. These names are the names of the assets.
function(fa2_embed target)
  set(files ${ARGN})
  list(SORT files) # by bytes, like strcmp
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/embed)
  set(arrays "")
  set(rows "")
  set(number 0)
  foreach(file ${files})
    add_custom_command(OUTPUT ${folder}/${file}.inc
      COMMAND ${CMAKE_COMMAND} -DINPUT=${PROJECT_SOURCE_DIR}/${file} -DOUTPUT=${folder}/${file}.inc
              -P ${CMAKE_CURRENT_FUNCTION_LIST_FILE}
      DEPENDS ${PROJECT_SOURCE_DIR}/${file} ${CMAKE_CURRENT_FUNCTION_LIST_FILE}
      COMMENT "Embedding ${file}" VERBATIM)
    target_sources(${target} PRIVATE ${folder}/${file}.inc)
    # The NUL after the bytes is not counted.
    string(APPEND arrays "static const unsigned char asset_${number}[] = {\n"
      "#include \"${file}.inc\"\n    0};\n")
    string(APPEND rows
      "    {\"${file}\", (const char *)asset_${number}, sizeof asset_${number} - 1},\n")
    math(EXPR number "${number} + 1")
  endforeach()
  # The hash names what makes kernels: scripts and templates.
  list(FILTER files INCLUDE REGEX "^(gen|templates)/")
  list(TRANSFORM files PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE paths)
  add_custom_command(OUTPUT ${folder}/hash.inc
    COMMAND ${CMAKE_COMMAND} "-DHASHED=${files}" -DFROM=${PROJECT_SOURCE_DIR} -DOUTPUT=${folder}/hash.inc
            -P ${CMAKE_CURRENT_FUNCTION_LIST_FILE}
    DEPENDS ${paths} ${CMAKE_CURRENT_FUNCTION_LIST_FILE} COMMENT "Hashing scripts and templates" VERBATIM)
  target_sources(${target} PRIVATE ${folder}/hash.inc)
  # Written at configure time, and only when the list of files has changed.
  file(CONFIGURE OUTPUT ${folder}/assets.c @ONLY CONTENT
"#include \"gen/asset.h\"

@arrays@
const fa2i_asset fa2i_assets[] = {
@rows@};
const size_t fa2i_assets_count = sizeof fa2i_assets / sizeof fa2i_assets[0];
const char fa2i_assets_hash[] =
#include \"hash.inc\"
    ;
")
  target_sources(${target} PRIVATE ${folder}/assets.c)
endfunction()
