/*
 * Modules and functions: loading PTX, the resources of a function, the number of blocks that an SM holds.
 *
 * - Cubins and fat binaries are refused with CUDA_ERROR_NO_BINARY_FOR_GPU, because PTX in them may not belong to their
 *   code.
 * - Registers: the maximum that is alive at once, plus a typical addition of ptxas for loads in flight. Registers above
 *   255 count as spilled.
 */
#include "driver.h"
#include "coverage.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "arena.h"
#include "faults.h"

enum {
    PTX_VERSION_MAX = 90,
    REGISTERS_MAX = 255,
    REGISTERS_ADDED = 16,
    REGISTERS_SM = 65536,
    DYNAMIC_WITHOUT_OPT_IN = 48 * 1024,
    THREADS_MAX = 1024
};

/* ---- loading ---- */

typedef struct jit_log {
    char *buffer;
    size_t bytes;
} jit_log;

static jit_log error_log(unsigned count, CUjit_option *options, void **values)
{
    jit_log log = {0};
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
            log.buffer = values[i];
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
            log.bytes = (size_t)(uintptr_t)values[i];
    }
    return log;
}

static CUresult refuse(const jit_log *log, CUresult result, const char *message)
{
    if (log->buffer != NULL && log->bytes > 0)
        snprintf(log->buffer, log->bytes, "software device: %s", message);
    snprintf(sim_here()->message, sizeof sim_here()->message, "%s", message);
    return result;
}

/* Allocates memory for variables of the module, with their initial values. */
static bool place_globals(ptx_module *ptx)
{
    for (size_t i = 0; i < ptx->variable_count; i++) {
        ptx_variable *v = &ptx->variables[i];
        if ((v->space != PTX_SPACE_GLOBAL && v->space != PTX_SPACE_CONST) || v->bytes == 0)
            continue;
        if (!sim_memory_get(&sim_here()->memory, v->bytes, &v->offset))
            return false;
        uint8_t *at = sim_memory_at(&sim_here()->memory, v->offset, v->bytes);
        if (v->initial != NULL)
            memcpy(at, v->initial, v->bytes);
        else
            memset(at, 0, v->bytes);
    }
    return true;
}

static bool decode_functions(sim_module *module)
{
    module->function_count = module->ptx.function_count;
    module->functions = sim_arena_get(&module->ptx.arena, module->function_count, sizeof *module->functions);
    for (size_t i = 0; i < module->function_count; i++) {
        sim_function *function = &module->functions[i];
        function->object.kind = SIM_OBJECT_FUNCTION;
        function->dynamic_limit = DYNAMIC_WITHOUT_OPT_IN;
        if (!sim_decode(&module->ptx, &module->ptx.functions[i], &function->program))
            return false;
        for (int op = 0; op < function->program.op_count; op++)
            function->shares_registers |= strncmp(function->program.ops[op].source->opcode, "setmaxnreg.", 11) == 0;
    }
    return true;
}

static CUresult load(const char *text, const jit_log *log, sim_module *module)
{
    ptx_module *ptx = &module->ptx;
    if (!ptx_parse(text, ptx))
        return refuse(log, CUDA_ERROR_INVALID_PTX, ptx->message);
    if (ptx->version > PTX_VERSION_MAX)
        return refuse(log, CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "the PTX is newer than version 9.0");
    if (ptx->target_sm > sim_here()->card->sm)
        return refuse(log, CUDA_ERROR_NO_BINARY_FOR_GPU, "the PTX is for a newer SM than the card's");
    if (ptx->target_specific && ptx->target_sm != sim_here()->card->sm)
        return refuse(log, CUDA_ERROR_NO_BINARY_FOR_GPU, "the PTX is for one SM alone, and the card has another");
    if (!place_globals(ptx))
        return refuse(log, CUDA_ERROR_OUT_OF_MEMORY, "no memory for the module's variables");
    if (!decode_functions(module))
        return refuse(log, CUDA_ERROR_INVALID_PTX, ptx->message);
    return CUDA_SUCCESS;
}

void sim_module_destroy(sim_module *module)
{
    for (size_t i = 0; i < module->ptx.variable_count; i++) {
        const ptx_variable *v = &module->ptx.variables[i];
        if ((v->space == PTX_SPACE_GLOBAL || v->space == PTX_SPACE_CONST) && v->offset != 0)
            sim_memory_release(&module->object.device->memory, v->offset);
    }
    for (size_t i = 0; i < module->function_count; i++) {
        sim_keep_lines(module->object.device, &module->functions[i].program);
        sim_coverage_keep(&module->functions[i].program);
    }
    ptx_module_done(&module->ptx);
    sim_object_remove(module);
}

SIM_API CUresult CUDAAPI cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned count, CUjit_option *options,
                                            void **values)
{
    static const unsigned char elf[4] = {0x7f, 'E', 'L', 'F'}, fat[4] = {0x50, 0xed, 0x55, 0xba};
    CUresult result = sim_enter(true);
    if (result != CUDA_SUCCESS)
        return sim_leave(result);
    const jit_log log = error_log(count, options, values);
    if (sim_fault_due(SIM_FAULT_LOAD))
        return sim_leave(refuse(&log, CUDA_ERROR_INVALID_IMAGE, "refused by FA2_SIM_FAULT"));
    if (memcmp(image, elf, sizeof elf) == 0 || memcmp(image, fat, sizeof fat) == 0)
        return sim_leave(refuse(&log, CUDA_ERROR_NO_BINARY_FOR_GPU, "the device takes PTX only, this is machine code"));
    sim_module *module = sim_object_add(sizeof *module, SIM_OBJECT_MODULE);
    result = load(image, &log, module);
    if (result == CUDA_SUCCESS)
        *out = (CUmodule)(void *)module;
    else
        sim_module_destroy(module);
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuModuleUnload(CUmodule handle)
{
    CUresult result = sim_enter(false);
    sim_module *module = sim_object_anywhere(handle, SIM_OBJECT_MODULE);
    if (result == CUDA_SUCCESS && module == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS) {
        result = module->object.device->error;
        sim_module_destroy(module);
    }
    return sim_leave(result);
}

/* ---- functions ---- */

SIM_API CUresult CUDAAPI cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name)
{
    CUresult result = sim_enter(true);
    const sim_module *module = sim_object_find(handle, SIM_OBJECT_MODULE);
    if (result == CUDA_SUCCESS)
        result = module == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_FOUND;
    for (size_t i = 0; module != NULL && i < module->function_count; i++)
        if (result == CUDA_ERROR_NOT_FOUND && strcmp(module->functions[i].program.function->name, name) == 0) {
            *out = (CUfunction)(void *)&module->functions[i];
            result = CUDA_SUCCESS;
        }
    return sim_leave(result);
}

static sim_function *function_of(CUfunction handle)
{
    for (sim_object *o = sim_the_driver.objects; o != NULL; o = o->next) {
        sim_module *module = (sim_module *)(void *)o;
        if (o->kind != SIM_OBJECT_MODULE || o->device != sim_here())
            continue;
        for (size_t i = 0; i < module->function_count; i++)
            if ((void *)handle == &module->functions[i])
                return &module->functions[i];
    }
    return NULL;
}

static int registers_wanted(const sim_function *function)
{
    return (function->program.registers + REGISTERS_ADDED + 7) / 8 * 8;
}

static int threads_limit(const sim_function *function)
{
    const unsigned bound = function->program.function->max_threads;
    const int by_registers = REGISTERS_SM / sim_function_registers(function) / SIM_LANES * SIM_LANES;
    const int limit = by_registers < THREADS_MAX ? by_registers : THREADS_MAX;
    return bound > 0 && (int)bound < limit ? (int)bound : limit;
}

int sim_function_registers(const sim_function *function)
{
    const int wanted = registers_wanted(function);
    const ptx_function *ptx = function->program.function;
    const int blocks = function->shares_registers && ptx->min_blocks > 0 ? (int)ptx->min_blocks : 1;
    int limit = REGISTERS_MAX;
    if (ptx->max_threads > 0 && REGISTERS_SM / ((int)ptx->max_threads * blocks) < limit)
        limit = REGISTERS_SM / ((int)ptx->max_threads * blocks) / 8 * 8;
    return wanted < limit && !function->shares_registers ? wanted : limit;
}

static CUresult function_attribute(const sim_function *f, CUfunction_attribute attribute, int *out)
{
    const int spilled = f->program.registers - sim_function_registers(f);
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *out = threads_limit(f);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *out = (int)f->program.static_shared_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *out = (int)f->program.local_bytes + (spilled > 0 ? 4 * spilled : 0);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *out = sim_function_registers(f);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *out = f->program.module->target_sm;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *out = f->dynamic_limit;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SIM_API CUresult CUDAAPI cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
    CUresult result = sim_enter(true);
    const sim_function *function = function_of(handle);
    if (result == CUDA_SUCCESS)
        result = function == NULL ? CUDA_ERROR_INVALID_HANDLE : function_attribute(function, attribute, value);
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
    CUresult result = sim_enter(true);
    sim_function *function = function_of(handle);
    if (result != CUDA_SUCCESS)
        return sim_leave(result);
    if (function == NULL)
        return sim_leave(CUDA_ERROR_INVALID_HANDLE);
    const int most = sim_here()->card->smem_block_bytes - (int)function->program.static_shared_bytes;
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value >= 0 && value <= most)
        function->dynamic_limit = value;
    else if (attribute != CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
        result = CUDA_ERROR_INVALID_VALUE;
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuFuncLoad(CUfunction handle)
{
    CUresult result = sim_enter(true);
    if (result == CUDA_SUCCESS && function_of(handle) == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction handle, int threads,
                                                                     size_t dynamic)
{
    CUresult result = sim_enter(true);
    const sim_function *f = function_of(handle);
    if (result == CUDA_SUCCESS && (f == NULL || threads < 1))
        result = f == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *blocks = threads > threads_limit(f) ? 0
                                             : sim_card_resident(sim_here()->card, threads, sim_function_registers(f),
                                                                 dynamic + f->program.static_shared_bytes);
    return sim_leave(result);
}

/* ---- launches ---- */

static CUresult check_shape(const sim_function *f, const sim_work *work)
{
    const uint64_t threads = (uint64_t)work->threads[0] * work->threads[1] * work->threads[2];
    const uint64_t blocks = (uint64_t)work->grid[0] * work->grid[1] * work->grid[2];
    if (threads == 0 || threads > THREADS_MAX || blocks == 0 || blocks > INT32_MAX || work->grid[1] > 65535 ||
        work->grid[2] > 65535)
        return CUDA_ERROR_INVALID_VALUE;
    if (work->dynamic_bytes > (unsigned)f->dynamic_limit)
        return CUDA_ERROR_INVALID_VALUE;
    if ((int)threads > threads_limit(f))
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    return CUDA_SUCCESS;
}

/* Gathers the parameters in the function's layout. */
static void gather_params(const sim_function *f, void **params, uint8_t *out)
{
    const ptx_function *function = f->program.function;
    size_t next = 0;
    for (size_t i = 0; i < function->variable_count; i++)
        if (function->variables[i].space == PTX_SPACE_PARAM)
            memcpy(out + function->variables[i].offset, params[next++], function->variables[i].bytes);
}

static CUresult launch(CUfunction handle, sim_work work, CUstream stream, void **params, const void *extra)
{
    CUresult result = sim_enter(true);
    work.function = function_of(handle);
    if (result != CUDA_SUCCESS)
        return sim_leave(result);
    if (work.function == NULL)
        return sim_leave(CUDA_ERROR_INVALID_HANDLE);
    if (extra != NULL)
        return sim_leave(CUDA_ERROR_NOT_SUPPORTED);
    result = check_shape(work.function, &work);
    if (result != CUDA_SUCCESS)
        return sim_leave(result);
    work.params = sim_host_memory(work.function->program.function->param_bytes + 1);
    gather_params(work.function, params, work.params);
    result = sim_submit(stream, &work);
    free(work.params);
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuLaunchKernel(CUfunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned dynamic,
                                        CUstream stream, void **params, void **extra)
{
    const sim_work work = {
        .grid = {grid_x, grid_y, grid_z}, .threads = {block_x, block_y, block_z}, .dynamic_bytes = dynamic};
    return launch(handle, work, stream, params, extra);
}

SIM_API CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction handle, void **params, void **extra)
{
    sim_work work = {.grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                     .threads = {config->blockDimX, config->blockDimY, config->blockDimZ},
                     .dynamic_bytes = config->sharedMemBytes};
    for (unsigned i = 0; i < config->numAttrs; i++) {
        if (config->attrs[i].id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            return CUDA_ERROR_NOT_SUPPORTED; /* clusters */
        work.early = config->attrs[i].value.programmaticStreamSerializationAllowed != 0;
    }
    return launch(handle, work, config->hStream, params, extra);
}
