/*
 * The fake driver: registry of objects, contexts of a thread, tables, settings.
 *
 * - One mutex; fake_begin takes it and fake_end releases it, in every function of the tables.
 * - Live objects are a linked list: a handle is valid when it is on the list with the right kind.
 * - fake_fail_driver counts all calls of the table, whoever makes them.
 */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fake_objects.h"

enum { STACK_DEPTH = 32 };

fake_state fake;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fake_object *objects;
static long calls, fail_at;
static CUresult fail_error;
static CUresult broken; /* the error of a fault: every later call returns it */
static double clock_us; /* all launches so far */
static size_t trace_length;

static _Thread_local fake_object *context_stack[STACK_DEPTH];
static _Thread_local int context_depth;

void fake_lock(void)
{
    pthread_mutex_lock(&lock);
}

void fake_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

CUresult fake_begin(const char *name)
{
    fake_lock();
    calls++;
    const int added = snprintf(fake.trace + trace_length, sizeof fake.trace - trace_length, "%s ", name);
    if ((size_t)added < sizeof fake.trace - trace_length)
        trace_length += (size_t)added;
    return calls == fail_at ? fail_error : broken;
}

void fake_wait(void)
{
    while (fake.hung)
        pause();
}

CUresult fake_begin_uncaptured(const char *name)
{
    const CUresult result = fake_begin(name);
    if (result != CUDA_SUCCESS)
        return result;
    for (const fake_object *o = objects; o != NULL; o = o->next) {
        if (o->kind == FAKE_STREAM && o->capturing)
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return fake_current() != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult fake_end(CUresult result)
{
    fake_unlock();
    return result;
}

fake_object *fake_new(fake_kind kind)
{
    fake_object *object = calloc(1, sizeof *object);
    assert(object != NULL);
    *object = (fake_object){.kind = kind, .next = objects, .context = fake_current()};
    objects = object;
    return object;
}

fake_object *fake_find(const void *handle, fake_kind kind)
{
    for (fake_object *o = objects; o != NULL; o = o->next) {
        if ((const void *)o == handle && o->kind == kind)
            return o;
    }
    return NULL;
}

fake_object *fake_memory_at(CUdeviceptr pointer, size_t bytes)
{
    for (fake_object *o = objects; o != NULL; o = o->next) {
        const uintptr_t start = (uintptr_t)o->block;
        if (o->kind == FAKE_MEMORY && pointer >= start && pointer - start <= o->bytes &&
            bytes <= o->bytes - (pointer - start))
            return o;
    }
    return NULL;
}

void fake_drop(fake_object *object)
{
    fake_object **link = &objects;
    while (*link != object)
        link = &(*link)->next;
    *link = object->next;
    free(object->text);
    free(object->log);
    free(object->block);
    free(object->launches);
    free(object);
}

fake_object *fake_current(void)
{
    return context_depth > 0 ? context_stack[context_depth - 1] : NULL;
}

fake_object *fake_primary(int ordinal)
{
    for (fake_object *o = objects; o != NULL; o = o->next) {
        if (o->kind == FAKE_CONTEXT && o->primary && o->ordinal == ordinal)
            return o;
    }
    return NULL;
}

bool fake_push(fake_object *context)
{
    if (context_depth == STACK_DEPTH)
        return false;
    context_stack[context_depth++] = context;
    return true;
}

fake_object *fake_pop(void)
{
    return context_depth > 0 ? context_stack[--context_depth] : NULL;
}

double fake_clock_us(void)
{
    return clock_us;
}

CUresult fake_run(fake_launch *launch)
{
    if (fake.on_launch != NULL)
        broken = fake.on_launch(launch, fake.on_launch_user);
    clock_us += launch->duration_us;
    if (fake.launch_count < FAKE_LAUNCHES)
        fake.launches[fake.launch_count] = *launch;
    fake.launch_count++;
    return CUDA_SUCCESS; /* a fault shows at the next call, as on a device */
}

/* ---- tables and settings ---- */

static fa2i_cuda_table driver_table = {
#define FA2I_FN(kind, field, symbol, args) .field = fake_driver_##field,
#include "runtime/cuda/cuda_functions.inc"
#undef FA2I_FN
};

static const fa2i_nvrtc_table nvrtc_table = {
#define FA2I_FN(kind, field, symbol, args) .field = fake_nvrtc_##field,
#include "runtime/cuda/nvrtc_functions.inc"
#undef FA2I_FN
    .get_error_string = fake_nvrtc_get_error_string,
};

static const fake_device like_rtx_3060 = {.name = "Fake RTX 3060",
                                          .arch = 86,
                                          .sm_count = 28,
                                          .smem_block_bytes = 101376,
                                          .smem_sm_bytes = 102400,
                                          .l2_bytes = 2359296,
                                          .clock_khz = 1777000,
                                          .memory_clock_khz = 7501000,
                                          .bus_bits = 192,
                                          .total_bytes = (size_t)12 << 30};

static const fake_device like_t4 = {.name = "Fake T4",
                                    .arch = 75,
                                    .sm_count = 40,
                                    .smem_block_bytes = 65536,
                                    .smem_sm_bytes = 65536,
                                    .l2_bytes = 4194304,
                                    .clock_khz = 1590000,
                                    .memory_clock_khz = 5001000,
                                    .bus_bits = 256,
                                    .total_bytes = (size_t)16 << 30};

void fake_reset(void)
{
    fake_lock();
    while (objects != NULL)
        fake_drop(objects);
    context_depth = 0;
    calls = fail_at = 0;
    broken = CUDA_SUCCESS;
    clock_us = 0;
    trace_length = 0;
    fake = (fake_state){.device_count = 2,
                        .devices = {like_rtx_3060, like_t4},
                        .driver_version = 13000,
                        .occupancy = -1,
                        .launch_us = 10,
                        .nvrtc_version = 13000,
                        .archs = {75, 80, 86, 87, 89, 90},
                        .registers = 128};
    fake_unlock();
    fake_fail_nvrtc(0, NVRTC_SUCCESS);
}

void fake_install(void)
{
    fake_reset();
    driver_table.sim_version = fake_driver_sim_version;
    fa2i_cuda_install(&driver_table);
    fa2i_nvrtc_install(&nvrtc_table);
}

void fake_uninstall(void)
{
    fa2i_cuda_install(NULL);
    fa2i_nvrtc_install(NULL);
}

void fake_without_optional(bool without)
{
    driver_table.func_load = without ? NULL : fake_driver_func_load;
    driver_table.launch_kernel_ex = without ? NULL : fake_driver_launch_kernel_ex;
    driver_table.tensor_map_encode_tiled = without ? NULL : fake_driver_tensor_map_encode_tiled;
}

void fake_become_h200(void)
{
    fake.devices[0] = (fake_device){.name = "NVIDIA H200",
                                    .arch = 90,
                                    .sm_count = 132,
                                    .smem_block_bytes = 232448,
                                    .smem_sm_bytes = 233472,
                                    .l2_bytes = 62914560,
                                    .clock_khz = 1980000,
                                    .memory_clock_khz = 3201000,
                                    .bus_bits = 6144,
                                    .total_bytes = (size_t)1 << 37};
}

long fake_fail_driver(long nth, CUresult error)
{
    fake_lock();
    const long made = calls;
    calls = 0;
    fail_at = nth;
    fail_error = error;
    fake_unlock();
    return made;
}

int fake_live(void)
{
    int live = context_depth;
    fake_lock();
    for (const fake_object *o = objects; o != NULL; o = o->next)
        live += o->kind == FAKE_CONTEXT ? o->retained : 1;
    fake_unlock();
    return live;
}

void fake_trace_clear(void)
{
    fake_lock();
    trace_length = 0;
    fake.trace[0] = '\0';
    fake_unlock();
}

long fake_traced(const char *name)
{
    long place = 0;
    fake_lock();
    const char *found = strstr(fake.trace, name);
    for (const char *at = fake.trace; found != NULL && at <= found; at++)
        place += at == fake.trace || at[-1] == ' ';
    fake_unlock();
    return place;
}

CUcontext fake_context_push(int ordinal)
{
    fake_lock();
    fake_object *context = fake_new(FAKE_CONTEXT);
    context->retained = 1;
    context->ordinal = ordinal;
    if (!fake_push(context))
        abort();
    fake_unlock();
    return (CUcontext)context;
}

void fake_context_pop(CUcontext context)
{
    fake_lock();
    fake_object *top = fake_pop();
    if ((CUcontext)top != context) /* the test's own mistake: contexts are popped in reverse order */
        abort();
    fake_drop(top);
    fake_unlock();
}
