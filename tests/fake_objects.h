/*
 * Inside the fakes (fake_cuda.h): the registry of live objects, and what brackets every call.
 * Everything here is used with the lock held, between fake_begin and fake_end.
 */
#ifndef FA2_TESTS_FAKE_OBJECTS_H
#define FA2_TESTS_FAKE_OBJECTS_H

#include "fake_cuda.h"

typedef enum fake_kind {
    FAKE_CONTEXT,
    FAKE_MODULE, /* also its one function: the handles are the same */
    FAKE_MEMORY,
    FAKE_STREAM,
    FAKE_EVENT,
    FAKE_GRAPH,
    FAKE_GRAPH_EXEC,
    FAKE_PROGRAM
} fake_kind;

/* One struct for all kinds: a test's driver need not be small. */
typedef struct fake_object {
    fake_kind kind;
    struct fake_object *next;
    struct fake_object *context; /* it was made in; NULL for contexts and programs */
    int ordinal;                 /* context: of the device */
    int retained;                /* context: times; a test's own has 1 */
    bool primary;
    char entry[64];                                 /* module */
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

/* Lock, count and trace a driver call. Not CUDA_SUCCESS: the call is to fail with that. Then,
 * either way, fake_end unlocks and gives back its argument. */
CUresult fake_begin(const char *name);
CUresult fake_end(CUresult result);

/* The same; and needs a current context, and no stream that is being captured. */
CUresult fake_begin_uncaptured(const char *name);

/* Wait for what was launched: for ever, if that hangs. */
void fake_wait(void);

fake_object *fake_new(fake_kind kind);
/* The object of this handle, or NULL if there is none of that kind. */
fake_object *fake_find(const void *handle, fake_kind kind);
void fake_drop(fake_object *object);

/* The memory in which bytes at pointer lie, or NULL. */
fake_object *fake_memory_at(CUdeviceptr pointer, size_t bytes);

/* The stack of contexts of this thread: its top, or NULL; push is false when it is full. */
fake_object *fake_current(void);
bool fake_push(fake_object *context);
fake_object *fake_pop(void);

/* The primary context of a device, or NULL while nobody retains it. */
fake_object *fake_primary(int ordinal);

/* Let a launch happen: hook, clock, record. */
CUresult fake_run(fake_launch *launch);

/* Microseconds that launches took so far. */
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

/* Make a program's image; see fake_modules.c for what it holds. The caller frees it (free). */
char *fake_image_write(const char *entry, const char *target, const char *source, int registers,
                       int local_bytes);

/* What an image says of itself. False: it is damaged, or no image of ours. */
typedef struct fake_image_info {
    char target[16], entry[64];
    int registers, local_bytes;
    const char *source; /* in the image */
    size_t source_bytes;
} fake_image_info;
bool fake_image_read(const char *image, fake_image_info *ret_info);

#endif
