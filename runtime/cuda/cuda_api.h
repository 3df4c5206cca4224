/*
 * The CUDA driver and NVRTC, loaded at run time into tables of function pointers. So a program starts without a GPU,
 * and reports what is missing. Tests put their own driver into these tables (fa2i_cuda_install, fa2i_nvrtc_install).
 *
 * The driver is looked for as:
 * - $FA2_CUDA_LIBRARY; if it is set, nothing else is tried
 * - libcuda.so.1
 * - /usr/lib/wsl/lib/libcuda.so.1
 *
 * NVRTC is looked for:
 * - as $FA2_NVRTC_LIBRARY; if it is set, nothing else is tried
 * - in the folder that CMake was given (FA2_NVRTC_DIR)
 * - as libnvrtc.so.13 and .12
 * - under $CUDA_HOME, $CUDA_PATH and /usr/local/cuda
 * - in $VIRTUAL_ENV, where NVIDIA's Python packages put it
 *
 * A failure names every file tried, with the loader's reason.
 *
 * The first call in a process fills a table. Thread-safe. Tables are never unloaded.
 */
#pragma once

#include <cuda.h>
#include <nvrtc.h>
#include <stdbool.h>
#include "runtime/base/status.h"

/* One list defines the table, the loader and the tests' fakes. R: required. O: optional, NULL if the library lacks it.
 * X(kind, field, symbol, signature) */
typedef struct fa2i_cuda_table {
#define FA2I_FN(kind, field, symbol, args) CUresult(CUDAAPI *field) args;
#include "runtime/cuda/cuda_functions.inc"
#undef FA2I_FN
} fa2i_cuda_table;

typedef struct fa2i_nvrtc_table {
#define FA2I_FN(kind, field, symbol, args) nvrtcResult(*field) args;
#include "runtime/cuda/nvrtc_functions.inc"
#undef FA2I_FN
    const char *(*get_error_string)(nvrtcResult);
} fa2i_nvrtc_table;

/* Loads on first use. *ret_table is borrowed for the life of the process. A failure is not remembered: the next call
 * tries again. FA2_E_NO_DRIVER, also if cuInit fails; but FA2_E_NO_DEVICE if it fails with CUDA_ERROR_NO_DEVICE.
 * FA2_E_NO_NVRTC. */
fa2_status fa2i_cuda_get(const fa2i_cuda_table **ret_table);
fa2_status fa2i_nvrtc_get(const fa2i_nvrtc_table **ret_table);

/* For tests: uses this table from now on; the next get calls its init. NULL: the next get loads the real library. The
 * table is borrowed. No other thread may be in the library meanwhile. */
void fa2i_cuda_install(const fa2i_cuda_table *table);
void fa2i_nvrtc_install(const fa2i_nvrtc_table *table);

/* Returns where the library was found, for `fa2-tune devices`, or "" if it is not loaded. Borrowed. */
const char *fa2i_cuda_path(void);
const char *fa2i_nvrtc_path(void);

/* Sets *ret_software to whether the devices are software. Such a device takes only PTX, and its times are modelled. */
fa2_status fa2i_cuda_is_software(const fa2i_cuda_table *cuda, bool *ret_software);

/* Returns FA2_OK for CUDA_SUCCESS, else FA2_E_CUDA with "what: CUDA_ERROR_NAME (text)". */
fa2_status fa2i_cuda_check(const fa2i_cuda_table *cuda, CUresult result, const char *what);
