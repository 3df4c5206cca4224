/*
 * The CUDA driver and NVRTC, loaded at run time into tables of function pointers: the program starts
 * without a GPU and says what is missing. The tables are also the seam where tests put a driver of
 * their own (fa2i_cuda_install, fa2i_nvrtc_install).
 *
 * Names tried: the driver as $FA2_CUDA_LIBRARY, libcuda.so.1, /usr/lib/wsl/lib/libcuda.so.1; NVRTC as
 * $FA2_NVRTC_LIBRARY, in the folder that CMake was given (FA2_NVRTC_DIR), libnvrtc.so.13, .12, under
 * $CUDA_HOME, $CUDA_PATH, /usr/local/cuda, and in $VIRTUAL_ENV where NVIDIA's Python packages put it. A
 * failure names each of them with the loader's reason. FA2_CUDA_LIBRARY and FA2_NVRTC_LIBRARY, when
 * set, are the only name tried.
 *
 * Each table is filled once per process, by the first call; safe from any thread; never unloaded.
 */
#ifndef FA2I_CUDA_API_H
#define FA2I_CUDA_API_H

#include <cuda.h>
#include <nvrtc.h>
#include <stdbool.h>
#include "runtime/base/status.h"

/* One list makes the table, the loader and the tests' fakes. R: required; O: optional, NULL when the
 * library lacks it. X(kind, field, symbol, signature) */
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

/* Load on first use. *ret_table is borrowed for the life of the process. FA2_E_NO_DRIVER, also when
 * cuInit fails, but FA2_E_NO_DEVICE when it fails with CUDA_ERROR_NO_DEVICE; FA2_E_NO_NVRTC. A failure
 * is not remembered: the next call tries again. */
fa2_status fa2i_cuda_get(const fa2i_cuda_table **ret_table);
fa2_status fa2i_nvrtc_get(const fa2i_nvrtc_table **ret_table);

/* Use this table from now on (NULL: load the real one at the next get). The next get calls its init.
 * Borrowed. For tests; not while another thread is in the library. */
void fa2i_cuda_install(const fa2i_cuda_table *table);
void fa2i_nvrtc_install(const fa2i_nvrtc_table *table);

/* Where the libraries were found, for `fa2-tune devices`; "" when not loaded. Borrowed. */
const char *fa2i_cuda_path(void);
const char *fa2i_nvrtc_path(void);

/* Are the devices software, whose times are modelled and which take PTX only? */
fa2_status fa2i_cuda_is_software(const fa2i_cuda_table *cuda, bool *ret_software);

/* FA2_OK for CUDA_SUCCESS, else FA2_E_CUDA with "what: CUDA_ERROR_NAME (text)". */
fa2_status fa2i_cuda_check(const fa2i_cuda_table *cuda, CUresult result, const char *what);

#endif
