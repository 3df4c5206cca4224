/*
 * A CUDA driver and an NVRTC in host memory, for tests without a GPU: complete tables for
 * fa2i_cuda_install and fa2i_nvrtc_install.
 *
 * Like real ones, they
 * - check handles: a dead or foreign handle gives CUDA_ERROR_INVALID_HANDLE
 * - fail copies outside an allocation. Device pointers are host pointers, so tests may read them
 * - keep contexts per thread
 * - load images only on the SM that they were made for
 * - enforce limits of shared memory
 * - refuse during stream capture all that CUDA forbids.
 * But nothing runs: a launch is only recorded, and the hook `on_launch` may compute something in its place. Time is a
 * clock that only launches advance.
 *
 * Use: fake_install(), set fields of `fake`, run, inspect the records, CHECK_EQ(fake_live(), 0).
 * Errors: fake_fail_driver(n, error) makes the nth counted call fail, once. A function that releases something releases
 * it even when it is made to fail, as CUDA's do. get_error_name and get_error_string are not counted and never fail.
 * Threads: calls are serialised. Change settings only while no other thread makes calls.
 */
#pragma once

#include <stdbool.h>
#include "runtime/cuda/cuda_api.h"
#include "runtime/cuda/launch.h"

enum { FAKE_DEVICES = 4, FAKE_LAUNCHES = 4096, FAKE_MAPS = 8, FAKE_TRACE_BYTES = 65536 };

typedef struct fake_device {
    char name[64];
    int arch; /* default: 86 */
    int sm_count;
    int smem_block_bytes, smem_sm_bytes;
    int l2_bytes;
    int clock_khz, memory_clock_khz, bus_bits;
    size_t total_bytes;
} fake_device;

typedef struct fake_launch {
    char function[80];
    const char *source; /* the CUDA text; valid until its module is unloaded */
    uint64_t module;    /* number of the module, which no other has */
    unsigned blocks, threads, smem_bytes;
    unsigned cluster; /* blocks per cluster */
    bool early;       /* programmatic launch: it need not wait for the launch before */
    CUstream stream;
    bool captured;              /* into a graph; recorded when the graph is launched */
    fa2i_forward_params params; /* for functions named fwd_...; zero for others */
    double duration_us;         /* fake.launch_us; on_launch may change it */
} fake_launch;

/* An encoded tensor map. Extents and strides (bytes) begin with the fastest dimension. */
typedef struct fake_map {
    CUtensorMapDataType type;
    uintptr_t address;
    unsigned rank;
    uint64_t extents[5], strides[4];
    unsigned box[5];
} fake_map;

/* The fake NVRTC's result for a program. */
typedef struct fake_compilation {
    const char *source, *options; /* options joined by spaces */
    int registers, spill_stores, spill_loads;
    nvrtcResult result;
    const char *log; /* NULL: the log of a success */
} fake_compilation;

typedef struct fake_state {
    /* Driver settings. fake_reset gives two devices: 0 like an RTX 3060 (86), 1 like a T4 (75). */
    int device_count;
    fake_device devices[FAKE_DEVICES];
    int driver_version;    /* default: 13000 */
    int occupancy;         /* blocks per SM; -1: computed from shared memory and threads */
    bool never_ready;      /* a hang: queries answer "not ready", waiting gives CUDA_ERROR_LAUNCH_TIMEOUT */
    bool hung;             /* waiting never ends; on_launch may set it */
    const char *ptx_error; /* loading PTX fails with this log; NULL: it succeeds */
    const char *refused;   /* targets whose code fails to load with refused_by; NULL: none */
    CUresult refused_by;
    double launch_us; /* duration of a launch; default: 10 */
    /* Called where the kernel would run. It must not call the driver. A result other than CUDA_SUCCESS is a fault:
     * every later call returns it until fake_reset. */
    CUresult (*on_launch)(fake_launch *launch, void *user);
    void *on_launch_user;

    /* Driver records. */
    long launch_count;
    fake_launch launches[FAKE_LAUNCHES]; /* the first FAKE_LAUNCHES launches */
    long map_count;
    fake_map maps[FAKE_MAPS];     /* the first FAKE_MAPS maps */
    char trace[FAKE_TRACE_BYTES]; /* names of the counted calls, a space after each */

    /* NVRTC settings. */
    int nvrtc_version; /* default: 13000 */
    int archs[16];     /* ends with 0. Default: 75, 80, 86, 87, 89, 90 */
    int registers, spill_stores, spill_loads;
    const char *rejected; /* a source with this text does not compile; NULL: all do */
    void (*on_compile)(fake_compilation *compilation, void *user);
    void *on_compile_user;

    /* NVRTC records. */
    long compile_count;
    char options[512]; /* of the last compilation */
} fake_state;

extern fake_state fake;

/* Restores the defaults of settings, records and counters. Releases live objects. */
void fake_reset(void);

/* Calls fake_reset and installs both tables. */
void fake_install(void);
void fake_uninstall(void);

/* Removes (or restores) the driver's optional functions. Call it before fake_install. */
void fake_without_optional(bool without);

/* Makes device 0 an H200 that takes only code for sm_90, until fake_install. No software device does that. */
void fake_become_h200(void);

/* Makes the nth counted call from now on fail, once. 1 is the next call, 0 means none. Returns the number of calls
 * counted since the last such request. */
long fake_fail_driver(long nth, CUresult error);
long fake_fail_nvrtc(long nth, nvrtcResult error);

/* Returns the number of unreleased objects: retained primary contexts, modules, memory, streams, events, graphs,
 * programs, and contexts left on this thread's stack. */
int fake_live(void);

void fake_trace_clear(void);

/* Returns the position of the first call of this name in the trace, from 1, as fake_fail_driver counts. 0: none. */
long fake_traced(const char *name);

/* Creates a context and makes it current in this thread, as a host program would. */
CUcontext fake_context_push(int ordinal);
void fake_context_pop(CUcontext context); /* destroys it */

/* Makes the image that the fake NVRTC would make of this text. entry: the function's name. target: "sm_86" or
 * "compute_86". The caller frees *ret_image (fa2i_blob_done). */
void fake_image(const char *entry, const char *target, const char *source, fa2i_blob *ret_image);
