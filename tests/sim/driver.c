/*
 * Start, objects and contexts of the software device.
 *
 * Environment; an empty variable counts as unset, and an invalid one keeps the driver from starting:
 *   FA2_SIM_CARD      the card, or several: "a100,l4" is a machine with two. Default: rtx3060
 *   FA2_SIM_FAULT, FA2_SIM_FAULT_COUNTS   see faults.h
 *   FA2_SIM_THREADS   the number of host threads. Default: all cores
 *   FA2_SIM_BUDGET    the number of instructions that a warp may execute. Default: 10^8
 *   FA2_SIM_REVERSE   1: blocks, and the warps of a block, begin in reverse order, which no kernel may depend on
 */
#include "driver.h"
#include <limits.h>
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

/* Contexts are current per thread. */
static _Thread_local int context_depth;
static _Thread_local CUcontext context_stack[STACK_MAX];

#define DRIVER (&sim_the_driver)

/* ---- start ---- */

/* Reads a number of the environment, from 1 to most. *number stays if the variable is unset. */
static bool read_number(const char *name, int64_t most, int64_t *number, char *message)
{
    const char *text = getenv(name);
    if (text == NULL || text[0] == '\0')
        return true;
    if (sim_number_read(text, strlen(text), number) && *number <= most)
        return true;
    snprintf(message, SIM_MESSAGE_BYTES, "%s=%s: it is no number from 1 to %lld", name, text, (long long)most);
    return false;
}

/* Finds the cards of a list of keys with commas. */
static bool find_cards(const char *keys, char *message)
{
    for (const char *at = keys;; at++) {
        const size_t length = strcspn(at, ",");
        const sim_card *card = sim_card_find(at, length);
        if (card == NULL) {
            snprintf(message, SIM_MESSAGE_BYTES, "FA2_SIM_CARD=%s: '%.*s' is none of %s", keys, (int)length, at,
                     sim_card_keys());
            return false;
        }
        if (DRIVER->device_count == SIM_DEVICES_MAX) {
            snprintf(message, SIM_MESSAGE_BYTES, "FA2_SIM_CARD=%s: more than %d cards", keys, SIM_DEVICES_MAX);
            return false;
        }
        DRIVER->devices[DRIVER->device_count++].card = card;
        at += length;
        if (*at == '\0')
            return true;
    }
}

static bool read_environment(char *message)
{
    const char *keys = getenv("FA2_SIM_CARD");
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t threads = cores > 0 ? cores : 1, budget = 100000000, reverse = 0;
    const bool ok = find_cards(keys != NULL && keys[0] != '\0' ? keys : "rtx3060", message) &&
                    sim_faults_read(message, SIM_MESSAGE_BYTES) &&
                    read_number("FA2_SIM_THREADS", UINT_MAX, &threads, message) &&
                    read_number("FA2_SIM_REVERSE", 1, &reverse, message) &&
                    read_number("FA2_SIM_BUDGET", INT64_MAX, &budget, message);
    DRIVER->host_threads = (unsigned)threads;
    DRIVER->budget = (uint64_t)budget;
    DRIVER->reverse = reverse != 0;
    return ok;
}

static CUresult start(void)
{
    char *message = DRIVER->devices[0].message;
    if (!read_environment(message)) {
        /* printed, because no driver function can say why the driver does not start */
        fprintf(stderr, "software device: %s\n", message);
        return CUDA_ERROR_NO_DEVICE;
    }
    const int64_t limit = sim_fault_number(SIM_FAULT_MEMORY);
    for (int i = 0; i < DRIVER->device_count; i++) {
        sim_memory_init(&DRIVER->devices[i].memory, i,
                        (size_t)(limit > 0 ? limit : DRIVER->devices[i].card->memory_bytes));
        sim_shadow_pool_init(&DRIVER->devices[i].shadows);
    }
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
    for (int i = 0; i < DRIVER->device_count && DRIVER->start_error == CUDA_SUCCESS; i++) {
        sim_memory_done(&DRIVER->devices[i].memory);
        sim_shadow_pool_done(&DRIVER->devices[i].shadows);
        free(DRIVER->devices[i].last_counts);
        free(DRIVER->devices[i].last_lines);
    }
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
    return sim_here()->message;
}

size_t fa2_sim_live(void)
{
    size_t live = 0;
    for (int i = 0; i < DRIVER->device_count; i++)
        live += sim_memory_live(&DRIVER->devices[i].memory) + (size_t)DRIVER->devices[i].retained;
    for (const sim_object *o = DRIVER->objects; o != NULL; o = o->next)
        live++;
    return live;
}

static CUcontext current_context(void)
{
    return context_depth > 0 ? context_stack[context_depth - 1] : NULL;
}

/* Returns NULL if it is no context. */
static sim_device *device_of_context(CUcontext context)
{
    for (int i = 0; i < DRIVER->device_count; i++)
        if ((void *)context == &DRIVER->devices[i])
            return &DRIVER->devices[i];
    return NULL;
}

sim_device *sim_here(void)
{
    sim_device *device = device_of_context(current_context());
    return device != NULL ? device : &DRIVER->devices[0];
}

sim_device *sim_device_of(CUdevice handle)
{
    return handle >= 0 && handle < DRIVER->device_count ? &DRIVER->devices[handle] : NULL;
}

CUresult sim_enter(bool needs_context)
{
    pthread_mutex_lock(&driver_lock);
    if (!DRIVER->started || DRIVER->start_error != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (needs_context && (current_context() == NULL || sim_here()->retained == 0))
        return CUDA_ERROR_INVALID_CONTEXT;
    return needs_context ? sim_here()->error : CUDA_SUCCESS;
}

CUresult sim_leave(CUresult result)
{
    pthread_mutex_unlock(&driver_lock);
    return result;
}

void sim_wait(void)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    while (sim_here()->hung)
        nanosleep(&pause, NULL);
}

/* ---- objects ---- */

void *sim_object_add(size_t bytes, sim_object_kind kind)
{
    sim_object *object = sim_host_memory(bytes);
    object->kind = kind;
    object->device = sim_here();
    object->next = DRIVER->objects;
    DRIVER->objects = object;
    return object;
}

void *sim_object_anywhere(const void *handle, sim_object_kind kind)
{
    for (sim_object *o = DRIVER->objects; o != NULL; o = o->next)
        if (o == handle)
            return o->kind == kind ? o : NULL;
    return NULL;
}

void *sim_object_find(const void *handle, sim_object_kind kind)
{
    sim_object *o = sim_object_anywhere(handle, kind);
    return o != NULL && o->device == sim_here() ? o : NULL;
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

SIM_API CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice handle)
{
    CUresult result = sim_enter(false);
    sim_device *device = sim_device_of(handle);
    if (result == CUDA_SUCCESS && device == NULL)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS && device->error == CUDA_ERROR_DEVICE_UNAVAILABLE)
        result = device->error;
    if (result == CUDA_SUCCESS) {
        device->retained++;
        *context = (CUcontext)(void *)device;
    }
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice handle)
{
    CUresult result = sim_enter(false);
    sim_device *device = sim_device_of(handle);
    if (result == CUDA_SUCCESS && (device == NULL || device->retained == 0))
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        device->retained--;
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuCtxGetCurrent(CUcontext *context)
{
    const CUresult result = sim_enter(false);
    *context = current_context();
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuCtxGetDevice(CUdevice *device)
{
    CUresult result = sim_enter(false);
    if (result == CUDA_SUCCESS && current_context() == NULL)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        *device = (CUdevice)(sim_here() - DRIVER->devices);
    return sim_leave(result);
}

/* Replaces the top of the stack. NULL removes it. */
SIM_API CUresult CUDAAPI cuCtxSetCurrent(CUcontext context)
{
    CUresult result = sim_enter(false);
    if (result == CUDA_SUCCESS && context != NULL && device_of_context(context) == NULL)
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
    if (result == CUDA_SUCCESS && (device_of_context(context) == NULL || context_depth == STACK_MAX))
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
