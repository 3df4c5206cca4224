/*
 * The inside of the fakes (fake_cuda.h): the registry of live objects, and the functions that enclose every call. Use
 * everything here with the lock held, between fake_begin and fake_end.
 */
#pragma once

#include "fake_cuda.h"

typedef enum fake_kind {
    FAKE_CONTEXT,
    FAKE_MODULE, /* and its only function, which has the same handle */
    FAKE_MEMORY,
    FAKE_STREAM,
    FAKE_EVENT,
    FAKE_GRAPH,
    FAKE_GRAPH_EXEC,
    FAKE_PROGRAM
} fake_kind;

/* One struct for all kinds, because a test's driver need not save memory. */
typedef struct fake_object {
    fake_kind kind;
    struct fake_object *next;
    struct fake_object *context; /* where it was made; NULL for contexts and programs */
    int ordinal;                 /* context: its device */
    int retained;                /* context: how often; 1 for a test's own context */
    bool primary;
    char entry[64];                                 /* module */
    uint64_t number;                                /* module: of all that were loaded, from 1 */
    char *text;                                     /* module, program: source */
    char *log;                                      /* program */
    int registers, local_bytes, dynamic_smem_bytes; /* module */
    char *block;                                    /* memory; program: image */
    size_t bytes;
    bool capturing;        /* stream */
    double time_us;        /* event: when recorded */
    bool recorded;         /* event */
    fake_launch *launches; /* stream while capturing, graph, exec */
    size_t launch_count;
} fake_object;

/* Locks, counts and traces a driver call. If the result is not CUDA_SUCCESS, the call must fail with it. In both cases
 * end the call with fake_end, which unlocks and returns its argument. */
CUresult fake_begin(const char *name);
CUresult fake_end(CUresult result);

/* The same, but it also requires a current context, and that no stream is being captured. */
CUresult fake_begin_uncaptured(const char *name);

/* Waits for all launches. Never returns if one hangs. */
void fake_wait(void);

fake_object *fake_new(fake_kind kind);
/* Returns the object of this handle, NULL if there is none of this kind. */
fake_object *fake_find(const void *handle, fake_kind kind);
void fake_drop(fake_object *object);

/* Returns the allocation that contains the bytes at pointer, or NULL. */
fake_object *fake_memory_at(CUdeviceptr pointer, size_t bytes);

/* This thread's stack of contexts. Top and pop return NULL if it is empty, push returns false if it is full. */
fake_object *fake_current(void);
bool fake_push(fake_object *context);
fake_object *fake_pop(void);

/* Returns the primary context of a device, NULL while it is not retained. */
fake_object *fake_primary(int ordinal);

/* Performs a launch: hook, clock, record. */
CUresult fake_run(fake_launch *launch);

/* Returns the microseconds that all launches took so far. */
double fake_clock_us(void);

void fake_lock(void);
void fake_unlock(void);

/* The functions of the tables: fake_driver_init, fake_nvrtc_version ... */
#define FA2I_FN(kind, field, symbol, args) CUresult fake_driver_##field args;
#include "runtime/cuda/cuda_functions.inc"
#undef FA2I_FN
#define FA2I_FN(kind, field, symbol, args) nvrtcResult fake_nvrtc_##field args;
#include "runtime/cuda/nvrtc_functions.inc"
#undef FA2I_FN
const char *fake_nvrtc_get_error_string(nvrtcResult result);

/* Makes a program's image; fake_modules.c describes its format. The caller frees it (free). */
char *fake_image_write(const char *entry, const char *target, const char *source, int registers, int local_bytes);

/* Reads an image. Returns false if it is damaged, or not from this file. */
typedef struct fake_image_info {
    char target[16], entry[64];
    int registers, local_bytes;
    const char *source; /* in the image */
    size_t source_bytes;
} fake_image_info;
bool fake_image_read(const char *image, fake_image_info *ret_info);
