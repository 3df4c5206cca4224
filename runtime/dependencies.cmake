# Finds what fa2 builds with: Lua 5.4, SQLite >= 3.37, libmd (SHA-256), and the headers cuda.h and
# nvrtc.h. CUDA itself is loaded at run time, never linked.
find_package(Threads REQUIRED)
find_package(PkgConfig QUIET)
include(CheckCSourceCompiles)

# fa2_find_dependency(<target> <Debian's package> <pkg-config modules> <archives>): of each list the first that is there.
# Without one, adds the package to the list missing_packages, and the modules to missing_modules.
# Defines <target> for programs and the static library, and <target>_shared for the shared library. With
# FA2_STATIC_DEPS both are the archive; but Debian's archives are not all position-independent, and one
# that is not cannot go into a shared library, which then links the distribution's shared one.
function(fa2_find_dependency target package modules archives)
  foreach(module ${modules})
    pkg_check_modules(${target}_PC QUIET IMPORTED_TARGET "${module}")
    if(${target}_PC_FOUND)
      break()
    endif()
  endforeach()
  if(NOT ${target}_PC_FOUND)
    list(JOIN modules " or " names)
    set(missing_packages ${missing_packages} ${package} PARENT_SCOPE)
    set(missing_modules ${missing_modules} ${names} PARENT_SCOPE)
    return()
  endif()
  add_library(${target} INTERFACE)
  add_library(${target}_shared INTERFACE)
  if(NOT FA2_STATIC_DEPS)
    target_link_libraries(${target} INTERFACE PkgConfig::${target}_PC m)
    target_link_libraries(${target}_shared INTERFACE ${target})
    return()
  endif()

  find_library(${target}_ARCHIVE NAMES ${archives} HINTS ${${target}_PC_LIBRARY_DIRS})
  if(NOT ${target}_ARCHIVE)
    list(JOIN archives " or " names)
    message(FATAL_ERROR "FA2_STATIC_DEPS: there is no ${names}")
  endif()
  target_include_directories(${target} SYSTEM INTERFACE ${${target}_PC_INCLUDE_DIRS})
  target_link_libraries(${target} INTERFACE ${${target}_ARCHIVE} m)

  set(CMAKE_REQUIRED_LINK_OPTIONS -shared -Wl,--whole-archive ${${target}_ARCHIVE}
    -Wl,--no-whole-archive)
  set(CMAKE_REQUIRED_LIBRARIES m)
  set(CMAKE_REQUIRED_QUIET ON)
  check_c_source_compiles("int main(void) { return 0; }" ${target}_ARCHIVE_IS_PIC)
  if(${target}_ARCHIVE_IS_PIC)
    target_link_libraries(${target}_shared INTERFACE ${target})
  else()
    message(STATUS "FA2_STATIC_DEPS: ${${target}_ARCHIVE} is not position-independent: "
      "libfa2.so links the shared library instead")
    target_link_libraries(${target}_shared INTERFACE PkgConfig::${target}_PC m)
  endif()
endfunction()

set(missing_packages "")
set(missing_modules "")
if(NOT PKG_CONFIG_FOUND)
  list(APPEND missing_packages pkg-config)
endif()
fa2_find_dependency(fa2_lua liblua5.4-dev "lua5.4;lua-5.4;lua54;lua>=5.4" "liblua5.4.a;liblua.a")
fa2_find_dependency(fa2_sqlite libsqlite3-dev "sqlite3>=3.37" libsqlite3.a)
fa2_find_dependency(fa2_md libmd-dev libmd libmd.a)
if(missing_packages)
  # The text that pip install prints, too: runtime/python/build_backend.py.
  file(READ ${CMAKE_CURRENT_LIST_DIR}/missing.txt text)
  list(JOIN missing_packages ", " names)
  string(REPLACE "{names}" "${names}" text "${text}")
  list(JOIN missing_packages " " words)
  string(REPLACE "{words}" "${words}" text "${text}")
  list(JOIN missing_modules "; " modules)
  message(FATAL_ERROR "${text}pkg-config does not find: ${modules}")
endif()

# A folder that was named must have the headers: another folder could have another version.
foreach(header cuda.h nvrtc.h)
  set(found FALSE)
  foreach(folder IN LISTS FA2_CUDA_INCLUDE_DIR)
    if(EXISTS ${folder}/${header})
      set(found TRUE)
    endif()
  endforeach()
  if(FA2_CUDA_INCLUDE_DIR AND NOT found)
    message(FATAL_ERROR "FA2_CUDA_INCLUDE_DIR is ${FA2_CUDA_INCLUDE_DIR}, where there is no ${header}")
  endif()
endforeach()
# Without a toolkit: the Python packages that tuner/quickstart.sh installs.
file(GLOB from_python ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/*/include)
find_path(FA2_CUDA_H cuda.h
  HINTS ${FA2_CUDA_INCLUDE_DIR} ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda
  PATHS ${from_python} PATH_SUFFIXES include)
find_path(FA2_NVRTC_H nvrtc.h HINTS ${FA2_CUDA_INCLUDE_DIR} ${FA2_CUDA_H} PATHS ${from_python})
if(NOT FA2_CUDA_H OR NOT FA2_NVRTC_H)
  message(FATAL_ERROR "fa2 needs CUDA's headers cuda.h and nvrtc.h, version 12 or newer. Install the CUDA toolkit, or "
    "NVIDIA's Python packages nvidia-cuda-nvrtc and nvidia-cuda-runtime into .venv, as tuner/quickstart.sh does; "
    "-DFA2_CUDA_INCLUDE_DIR=FOLDER names another place")
endif()
if(NOT FA2_NVRTC_DIR AND FA2_NVRTC_H IN_LIST from_python)
  get_filename_component(FA2_NVRTC_DIR ${FA2_NVRTC_H}/../lib ABSOLUTE)
endif()
add_library(fa2_cuda_headers INTERFACE)
target_include_directories(fa2_cuda_headers SYSTEM INTERFACE ${FA2_CUDA_H} ${FA2_NVRTC_H})
