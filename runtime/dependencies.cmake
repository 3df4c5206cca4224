# Finds what fa2 builds with: Lua 5.4, SQLite >= 3.37, libmd (SHA-256), and the headers cuda.h and
# nvrtc.h. CUDA itself is loaded at run time, never linked.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

# fa2_find_dependency(<target> <pkg-config names, first match wins> <archive for static linking>)
function(fa2_find_dependency target version names archive)
  foreach(name ${names})
    pkg_check_modules(${target}_PC QUIET IMPORTED_TARGET "${name}${version}")
    if(${target}_PC_FOUND)
      break()
    endif()
  endforeach()
  if(NOT ${target}_PC_FOUND)
    message(FATAL_ERROR "fa2 needs ${names}${version} (pkg-config does not find it)")
  endif()
  add_library(${target} INTERFACE)
  if(FA2_STATIC_DEPS)
    find_library(${target}_ARCHIVE NAMES ${archive} HINTS ${${target}_PC_LIBRARY_DIRS})
    if(NOT ${target}_ARCHIVE)
      message(FATAL_ERROR "FA2_STATIC_DEPS: there is no ${archive}")
    endif()
    target_include_directories(${target} SYSTEM INTERFACE ${${target}_PC_INCLUDE_DIRS})
    target_link_libraries(${target} INTERFACE ${${target}_ARCHIVE} m)
  else()
    target_link_libraries(${target} INTERFACE PkgConfig::${target}_PC m)
  endif()
endfunction()

fa2_find_dependency(fa2_lua "" "lua5.4;lua-5.4;lua54" liblua5.4.a)
fa2_find_dependency(fa2_sqlite ">=3.37" "sqlite3" libsqlite3.a)
fa2_find_dependency(fa2_md "" "libmd" libmd.a)

find_path(FA2_CUDA_H cuda.h
  HINTS ${FA2_CUDA_INCLUDE_DIR} ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda
  PATH_SUFFIXES include REQUIRED)
find_path(FA2_NVRTC_H nvrtc.h HINTS ${FA2_CUDA_INCLUDE_DIR} ${FA2_CUDA_H} REQUIRED)
add_library(fa2_cuda_headers INTERFACE)
target_include_directories(fa2_cuda_headers SYSTEM INTERFACE ${FA2_CUDA_H} ${FA2_NVRTC_H})
