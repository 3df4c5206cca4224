/*
 * A CUDA driver and an NVRTC in host memory, for tests without a GPU: complete tables for
 * fa2i_cuda_install and fa2i_nvrtc_install.
 *
 * What is real: handles are checked (a dead or foreign one is CUDA_ERROR_INVALID_HANDLE), device
 * pointers are host pointers (so tests may read them) and copies outside an allocation fail,
 * contexts are per thread as in CUDA, images know the SM that they were made for, shared-memory
 * limits hold, and what CUDA forbids during stream capture is refused. What is not: nothing runs. A
 * launch is recorded, and the hook `on_launch` may compute something in its place. Time is a clock
 * that only launches move.
 *
 * Use: fake_install(), set fields of `fake`, run, look at the records, CHECK_EQ(fake_live(), 0).
 * Errors: fake_fail_driver(n, error) makes the nth counted call fail, once. A function that
 * releases something releases it also when it is made to fail, as CUDA's do. get_error_name and
 * get_error_string are neither counted nor made to fail. Threads: calls are serialised; settings
 * are for when no other thread is inside.
 */
#ifndef FA2_TESTS_FAKE_CUDA_H
#define FA2_TESTS_FAKE_CUDA_H

#include <stdbool.h>
#include "runtime/cuda/cuda_api.h"
#include "runtime/cuda/launch.h"

enum { FAKE_DEVICES = 4, FAKE_LAUNCHES = 4096, FAKE_MAPS = 8, FAKE_TRACE_BYTES = 65536 };

typedef struct fake_device {
    char name[64];
    int arch; /* 86 */
    int sm_count;
    int smem_block_bytes, smem_sm_bytes;
    int l2_bytes;
    int clock_khz, memory_clock_khz, bus_bits;
    size_t total_bytes;
} fake_device;

typedef struct fake_launch {
    char function[80];
    const char *source; /* the CUDA text; valid until its module is unloaded */
    unsigned blocks, threads, smem_bytes;
    unsigned cluster; /* blocks of one */
    bool early;       /* it need not wait for the launch before */
    CUstream stream;
    bool captured;              /* into a graph; recorded when the graph is launched */
    fa2i_forward_params params; /* of functions called fwd_...; zero for others */
    double duration_us;         /* fake.launch_us; on_launch may change it */
} fake_launch;

/* A tensor map that was encoded: extents and strides (bytes) from the fastest dimension on. */
typedef struct fake_map {
    CUtensorMapDataType type;
    uintptr_t address;
    unsigned rank;
    uint64_t extents[5], strides[4];
    unsigned box[5];
} fake_map;

/* What NVRTC makes of a program. */
typedef struct fake_compilation {
    const char *source, *options; /* options joined by spaces */
    int registers, spill_stores, spill_loads;
    nvrtcResult result;
    const char *log; /* instead of the log of a success; NULL: that one */
} fake_compilation;

typedef struct fake_state {
    /* Driver settings. fake_reset gives two devices: 0 like an RTX 3060 (86), 1 like a T4 (75). */
    int device_count;
    fake_device devices[FAKE_DEVICES];
    int driver_version;    /* 13000 */
    int occupancy;         /* blocks per SM; -1: from shared memory and threads */
    bool never_ready;      /* a hang: queries say so, and waiting is CUDA_ERROR_LAUNCH_TIMEOUT */
    bool hung;             /* waiting never ends; on_launch may set it */
    const char *ptx_error; /* loading PTX fails, and the log says this; NULL: it loads */
    const char *refused;   /* loading code for one of these targets fails with refused_by; NULL: it loads */
    CUresult refused_by;
    double launch_us; /* duration of a launch: 10 */
    /* Called where the kernel would run; must not call the driver. What it returns, if not
     * CUDA_SUCCESS, is what every later call returns until fake_reset: a fault. */
    CUresult (*on_launch)(fake_launch *launch, void *user);
    void *on_launch_user;

    /* Driver records. */
    long launch_count;
    fake_launch launches[FAKE_LAUNCHES]; /* the first FAKE_LAUNCHES of them */
    long map_count;
    fake_map maps[FAKE_MAPS];     /* the first FAKE_MAPS of them */
    char trace[FAKE_TRACE_BYTES]; /* names of the counted calls, each with a space behind */

    /* NVRTC settings. */
    int nvrtc_version; /* 13000 */
    int archs[16];     /* ends with 0: 75, 80, 86, 87, 89, 90 */
    int registers, spill_stores, spill_loads;
    const char *rejected; /* a source that contains this text does not compile; NULL: all do */
    void (*on_compile)(fake_compilation *compilation, void *user);
    void *on_compile_user;

    /* NVRTC records. */
    long compile_count;
    char options[512]; /* of the last compilation */
} fake_state;

extern fake_state fake;

/* Back to the defaults: settings, records, counters; live objects are released. */
void fake_reset(void);

/* fake_reset, and put both tables in place. */
void fake_install(void);
void fake_uninstall(void);

/* Whether the driver lacks its optional functions. Until changed back; for before fake_install. */
void fake_without_optional(bool without);

/* Device 0 is an H200 that takes code for sm_90 alone, as no software does. Until fake_install. */
void fake_become_h200(void);

/* The nth counted call from now on fails (1 = the next), once; 0: none. Returns the calls counted
 * since the last such request. */
long fake_fail_driver(long nth, CUresult error);
long fake_fail_nvrtc(long nth, nvrtcResult error);

/* Objects of the driver and of NVRTC that were made and not released: retained primary contexts,
 * modules, memory, streams, events, graphs, programs, contexts left on this thread's stack. */
int fake_live(void);

void fake_trace_clear(void);

/* The place of the first call of that name in the trace, counted from 1, as fake_fail_driver counts; 0: none. */
long fake_traced(const char *name);

/* A context of the test's own, current in this thread; what a host program would have done. */
CUcontext fake_context_push(int ordinal);
void fake_context_pop(CUcontext context); /* destroys it */

/* The image that the fake NVRTC would make of this text: entry is the function's name, target
 * "sm_86" or "compute_86". The caller frees *ret_image (fa2i_blob_done). */
void fake_image(const char *entry, const char *target, const char *source, fa2i_blob *ret_image);

#endif
