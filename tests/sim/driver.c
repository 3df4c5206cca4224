/*
 * Start, objects and contexts of the software device.
 *
 * FA2_SIM_CARD chooses the card (rtx3060 if it is not set); FA2_SIM_FAULT see faults.h;
 * FA2_SIM_THREADS the host threads (all cores); FA2_SIM_BUDGET the instructions that a warp may
 * execute (10^8).
 */
#include "driver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "arena.h"
#include "faults.h"

enum { STACK_MAX = 16 };

sim_driver sim_the_driver;
static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;

/* The primary context is the only one; contexts are current per thread. */
static char primary;
static _Thread_local int context_depth;
static _Thread_local CUcontext context_stack[STACK_MAX];

#define DRIVER (&sim_the_driver)

/* ---- start ---- */

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    const long long value = text == NULL ? 0 : strtoll(text, NULL, 10);
    return value > 0 ? (uint64_t)value : otherwise;
}

static CUresult start(void)
{
    const char *key = getenv("FA2_SIM_CARD"), *part = NULL;
    if (key == NULL || key[0] == '\0')
        key = "rtx3060";
    DRIVER->card = sim_card_find(key);
    if (DRIVER->card == NULL) {
        fprintf(stderr, "software device: FA2_SIM_CARD=%s is none of %s\n", key, sim_card_keys());
        return CUDA_ERROR_NO_DEVICE;
    }
    if (!sim_faults_read(&part)) {
        fprintf(stderr, "software device: FA2_SIM_FAULT is not understood at '%s'\n", part);
        return CUDA_ERROR_NO_DEVICE;
    }
    const int64_t limit = sim_fault_number(SIM_FAULT_MEMORY);
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    sim_memory_init(&DRIVER->memory, (size_t)(limit > 0 ? limit : DRIVER->card->memory_bytes));
    DRIVER->host_threads =
        (unsigned)number_from("FA2_SIM_THREADS", cores > 0 ? (uint64_t)cores : 1);
    DRIVER->budget = number_from("FA2_SIM_BUDGET", 100000000);
    return CUDA_SUCCESS;
}

SIM_API CUresult CUDAAPI cuInit(unsigned flags)
{
    pthread_mutex_lock(&driver_lock);
    if (!DRIVER->started)
        DRIVER->start_error = start();
    DRIVER->started = true;
    return sim_leave(flags != 0 ? CUDA_ERROR_INVALID_VALUE : DRIVER->start_error);
}

void fa2_sim_reset(void)
{
    pthread_mutex_lock(&driver_lock);
    if (DRIVER->started && DRIVER->start_error == CUDA_SUCCESS)
        sim_memory_done(&DRIVER->memory);
    free(DRIVER->last_counts);
    free(DRIVER->last_lines);
    const bool started = DRIVER->started;
    *DRIVER = (sim_driver){.started = started};
    context_depth = 0;
    if (started)
        DRIVER->start_error = start();
    pthread_mutex_unlock(&driver_lock);
}

CUresult CUDAAPI fa2_sim_version(int *version)
{
    *version = 1;
    return CUDA_SUCCESS;
}

const char *fa2_sim_message(void)
{
    return DRIVER->message;
}

size_t fa2_sim_live(void)
{
    size_t live = sim_memory_live(&DRIVER->memory) + (size_t)DRIVER->retained;
    for (const sim_object *o = DRIVER->objects; o != NULL; o = o->next)
        live++;
    return live;
}

bool sim_context_is_current(void)
{
    return context_depth > 0 && context_stack[context_depth - 1] != NULL;
}

CUresult sim_enter(bool needs_context)
{
    pthread_mutex_lock(&driver_lock);
    if (!DRIVER->started || DRIVER->start_error != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (needs_context && (!sim_context_is_current() || DRIVER->retained == 0))
        return CUDA_ERROR_INVALID_CONTEXT;
    return needs_context ? DRIVER->error : CUDA_SUCCESS;
}

CUresult sim_leave(CUresult result)
{
    pthread_mutex_unlock(&driver_lock);
    return result;
}

void sim_wait(void)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    while (DRIVER->hung)
        nanosleep(&pause, NULL);
}

/* ---- objects ---- */

void *sim_object_add(size_t bytes, sim_object_kind kind)
{
    sim_object *object = sim_host_memory(bytes);
    object->kind = kind;
    object->next = DRIVER->objects;
    DRIVER->objects = object;
    return object;
}

void *sim_object_find(const void *handle, sim_object_kind kind)
{
    for (sim_object *o = DRIVER->objects; o != NULL; o = o->next)
        if (o == handle)
            return o->kind == kind ? o : NULL;
    return NULL;
}

void sim_object_remove(void *object)
{
    sim_object **at = &DRIVER->objects;
    while (*at != object)
        at = &(*at)->next;
    *at = (*at)->next;
    free(object);
}

/* ---- contexts ---- */

SIM_API CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    CUresult result = sim_enter(false);
    if (result == CUDA_SUCCESS && device != 0)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS && DRIVER->error == CUDA_ERROR_DEVICE_UNAVAILABLE)
        result = DRIVER->error;
    if (result == CUDA_SUCCESS) {
        DRIVER->retained++;
        *context = (CUcontext)(void *)&primary;
    }
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device)
{
    CUresult result = sim_enter(false);
    if (result == CUDA_SUCCESS && (device != 0 || DRIVER->retained == 0))
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        DRIVER->retained--;
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuCtxGetCurrent(CUcontext *context)
{
    const CUresult result = sim_enter(false);
    *context = context_depth > 0 ? context_stack[context_depth - 1] : NULL;
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuCtxGetDevice(CUdevice *device)
{
    CUresult result = sim_enter(false);
    if (result == CUDA_SUCCESS && !sim_context_is_current())
        result = CUDA_ERROR_INVALID_CONTEXT;
    *device = 0;
    return sim_leave(result);
}

/* Replaces the top of the stack; NULL takes it off. */
SIM_API CUresult CUDAAPI cuCtxSetCurrent(CUcontext context)
{
    CUresult result = sim_enter(false);
    if (result == CUDA_SUCCESS && context != NULL && context != (CUcontext)(void *)&primary)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS) {
        context_depth -= context_depth > 0;
        if (context != NULL)
            context_stack[context_depth++] = context;
    }
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuCtxPushCurrent(CUcontext context)
{
    CUresult result = sim_enter(false);
    if (result == CUDA_SUCCESS &&
        (context != (CUcontext)(void *)&primary || context_depth == STACK_MAX))
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        context_stack[context_depth++] = context;
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuCtxPopCurrent(CUcontext *context)
{
    CUresult result = sim_enter(false);
    if (result == CUDA_SUCCESS && context_depth == 0)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        *context = context_stack[--context_depth];
    return sim_leave(result);
}
