/*
 * The fake driver's modules and launches, and the format of an image:
 *
 *     fa2 fake image target=sm_86 entry=fwd_sm80 registers=128 local=0 bytes=N sum=HEX
 *         .entry fwd_sm80 .entry fwd_sm80_combine ...\n
 *     N bytes of CUDA text, then a NUL
 *
 * The sum covers the text, so that a damaged image does not load. A module has an entry, whose handle is the module's.
 * It also has one function for each suffix, whose handles are the addresses after it.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fake_objects.h"
#include "runtime/cuda/compile.h"

enum { STATIC_LIMIT_BYTES = 48 * 1024, THREADS_MAX = 1024, SM_REGISTERS = 65536, BLOCKS_MAX = 16 };

/* Suffixes of a module's functions. */
static const char *const suffixes[] = {"", "_combine", "_prepare", "_convert", "_sinks", "_clear"};

enum { SUFFIX_COUNT = sizeof suffixes / sizeof *suffixes, MODULE_ALIGNMENT = 8 };
_Static_assert(SUFFIX_COUNT <= MODULE_ALIGNMENT, "a handle is the module's address and the index of a suffix");

static unsigned long long sum_of(const char *text, size_t bytes)
{
    unsigned long long sum = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ (unsigned char)text[i]) * 1099511628211u;
    return sum;
}

char *fake_image_write(const char *entry, const char *target, const char *source, int registers, int local_bytes)
{
    const size_t bytes = strlen(source), room = bytes + 1024;
    char *image = malloc(room);
    assert(image != NULL);
    int length = snprintf(image, room,
                          "fa2 fake image target=%.15s entry=%.63s registers=%d local=%d bytes=%zu "
                          "sum=%016llx",
                          target, entry, registers, local_bytes, bytes, sum_of(source, bytes));
    for (size_t i = 0; i < SUFFIX_COUNT; i++)
        length += snprintf(image + length, room - (size_t)length, " .entry %.63s%s", entry, suffixes[i]);
    snprintf(image + length, room - (size_t)length, "\n%s", source);
    return image;
}

bool fake_image_read(const char *image, fake_image_info *ret_info)
{
    fake_image_info info = {0};
    unsigned long long sum = 0;
    const char *line_end = strchr(image, '\n');
    if (line_end == NULL)
        return false;
    const int fields = sscanf(image, "fa2 fake image target=%15s entry=%63s registers=%d local=%d bytes=%zu sum=%llx",
                              info.target, info.entry, &info.registers, &info.local_bytes, &info.source_bytes, &sum);
    info.source = line_end + 1;
    if (fields != 6 || strnlen(info.source, info.source_bytes + 1) != info.source_bytes ||
        sum_of(info.source, info.source_bytes) != sum)
        return false;
    *ret_info = info;
    return true;
}

/* Does code for this target run on this SM? A cubin needs the same major version and no newer minor one. */
static bool runs_on(const char *target, int arch)
{
    int made_for = 0;
    if (sscanf(target, "compute_%d", &made_for) == 1)
        return made_for <= arch;
    return sscanf(target, "sm_%d", &made_for) == 1 && made_for / 10 == arch / 10 && made_for <= arch;
}

/* Writes fake.ptx_error where the caller wants the log. */
static void write_jit_log(unsigned count, CUjit_option *options, void **values)
{
    char *log = NULL;
    size_t bytes = 0;
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
            log = values[i];
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
            bytes = (size_t)values[i];
    }
    if (log != NULL && bytes > 0)
        snprintf(log, bytes, "%s", fake.ptx_error);
}

CUresult fake_driver_module_load_data_ex(CUmodule *ret_module, const void *image, unsigned count, CUjit_option *options,
                                         void **values)
{
    const CUresult result = fake_begin_uncaptured("module_load_data_ex");
    fake_image_info info;
    if (result != CUDA_SUCCESS)
        return fake_end(result);
    if (!fake_image_read(image, &info))
        return fake_end(CUDA_ERROR_INVALID_IMAGE);
    if (!runs_on(info.target, fake.devices[fake_current()->ordinal].arch))
        return fake_end(CUDA_ERROR_NO_BINARY_FOR_GPU);
    if (fake.refused != NULL && strstr(fake.refused, info.target) != NULL)
        return fake_end(fake.refused_by);
    if (fake.ptx_error != NULL && fa2i_target_is_ptx(info.target)) {
        write_jit_log(count, options, values);
        return fake_end(CUDA_ERROR_INVALID_PTX);
    }
    fake_object *module = fake_new(FAKE_MODULE);
    static uint64_t loaded;
    module->number = ++loaded;
    snprintf(module->entry, sizeof module->entry, "%s", info.entry);
    module->registers = info.registers;
    module->local_bytes = info.local_bytes;
    module->text = malloc(info.source_bytes + 1);
    assert(module->text != NULL);
    memcpy(module->text, info.source, info.source_bytes + 1);
    *ret_module = (CUmodule)module;
    return fake_end(CUDA_SUCCESS);
}

CUresult fake_driver_module_unload(CUmodule handle)
{
    const CUresult result = fake_begin("module_unload");
    fake_object *module = fake_find(handle, FAKE_MODULE);
    if (module == NULL)
        return fake_end(CUDA_ERROR_INVALID_HANDLE);
    fake_drop(module);
    return fake_end(result);
}

/* Returns the index of a module's function, by its suffix. SUFFIX_COUNT: there is none. */
static size_t index_of(const fake_object *module, const char *name)
{
    const size_t length = strlen(module->entry);
    size_t index = 0;
    if (strncmp(name, module->entry, length) != 0)
        return SUFFIX_COUNT;
    while (index < SUFFIX_COUNT && strcmp(name + length, suffixes[index]) != 0)
        index++;
    return index;
}

/* The index is the offset in the handle, because modules are aligned. */
static size_t index_of_handle(CUfunction handle)
{
    return (uintptr_t)handle % MODULE_ALIGNMENT;
}

CUresult fake_driver_module_get_function(CUfunction *ret_function, CUmodule handle, const char *name)
{
    CUresult result = fake_begin("module_get_function");
    fake_object *module = fake_find(handle, FAKE_MODULE);
    if (result == CUDA_SUCCESS && module == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    const size_t index = result == CUDA_SUCCESS ? index_of(module, name) : 0;
    if (index == SUFFIX_COUNT)
        result = CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS)
        *ret_function = (CUfunction)((char *)module + index);
    return fake_end(result);
}

/* ---- functions ---- */

/* Returns the module of this handle if it belongs to the current context. */
static fake_object *function_of(CUfunction handle)
{
    fake_object *function = fake_find((void *)((char *)handle - index_of_handle(handle)), FAKE_MODULE);
    return function != NULL && function->context == fake_current() ? function : NULL;
}

CUresult fake_driver_func_get_attribute(int *ret_value, CUfunction_attribute attribute, CUfunction handle)
{
    CUresult result = fake_begin("func_get_attribute");
    const fake_object *function = function_of(handle);
    if (result == CUDA_SUCCESS && function == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result != CUDA_SUCCESS)
        return fake_end(result);
    switch ((int)attribute) {
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *ret_value = function->registers;
        break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *ret_value = function->local_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *ret_value = 0;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *ret_value = THREADS_MAX;
        break;
    default:
        result = CUDA_ERROR_INVALID_VALUE;
    }
    return fake_end(result);
}

CUresult fake_driver_func_set_attribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
    CUresult result = fake_begin("func_set_attribute");
    fake_object *function = function_of(handle);
    if (result == CUDA_SUCCESS && function == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result != CUDA_SUCCESS)
        return fake_end(result);
    const int limit = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                          ? fake.devices[function->context->ordinal].smem_block_bytes
                          : CU_SHAREDMEM_CARVEOUT_MAX_SHARED;
    if (value > limit)
        return fake_end(CUDA_ERROR_INVALID_VALUE);
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        function->dynamic_smem_bytes = value;
    return fake_end(CUDA_SUCCESS);
}

CUresult fake_driver_func_load(CUfunction handle)
{
    const CUresult result = fake_begin_uncaptured("func_load");
    if (result == CUDA_SUCCESS && function_of(handle) == NULL)
        return fake_end(CUDA_ERROR_INVALID_HANDLE);
    return fake_end(result);
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

CUresult fake_driver_occupancy_max_blocks(int *ret_blocks, CUfunction handle, int threads, size_t smem_bytes)
{
    CUresult result = fake_begin("occupancy_max_blocks");
    const fake_object *function = function_of(handle);
    if (result == CUDA_SUCCESS && (function == NULL || threads < 1))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return fake_end(result);
    const fake_device *device = &fake.devices[function->context->ordinal];
    const int by_registers = SM_REGISTERS / (function->registers * threads);
    const int reserved = device->arch >= 80 ? 1024 : 0;
    const int block_bytes = (int)smem_bytes + reserved;
    const int by_smem = block_bytes > 0 ? device->smem_sm_bytes / block_bytes : BLOCKS_MAX;
    *ret_blocks = fake.occupancy >= 0 ? fake.occupancy : smaller(by_registers, by_smem);
    return fake_end(CUDA_SUCCESS);
}

/* ---- launches ---- */

/* Adds a launch to the stream's capture. */
static void capture(fake_object *stream, const fake_launch *launch)
{
    const size_t count = stream->launch_count + 1;
    fake_launch *grown = realloc(stream->launches, count * sizeof *grown);
    assert(grown != NULL);
    grown[count - 1] = *launch;
    grown[count - 1].captured = true;
    stream->launches = grown;
    stream->launch_count = count;
}

/* Launches one-dimensional grids and blocks, in clusters of this many blocks. */
static CUresult launch_on(const char *name, CUfunction handle, unsigned blocks, unsigned threads, unsigned smem_bytes,
                          unsigned cluster, bool early, CUstream stream_handle, void **params)
{
    const CUresult result = fake_begin(name);
    const fake_object *function = function_of(handle);
    fake_object *stream = fake_find(stream_handle, FAKE_STREAM);
    if (result != CUDA_SUCCESS)
        return fake_end(result);
    if (function == NULL || (stream_handle != NULL && stream == NULL))
        return fake_end(CUDA_ERROR_INVALID_HANDLE);
    const int opted_in = function->dynamic_smem_bytes;
    if (blocks < 1 || blocks > INT32_MAX || threads < 1 || threads > THREADS_MAX || cluster < 1 ||
        blocks % cluster != 0 || smem_bytes > (unsigned)(opted_in > STATIC_LIMIT_BYTES ? opted_in : STATIC_LIMIT_BYTES))
        return fake_end(CUDA_ERROR_INVALID_VALUE);

    fake_launch launch = {.source = function->text,
                          .module = function->number,
                          .blocks = blocks,
                          .threads = threads,
                          .smem_bytes = smem_bytes,
                          .cluster = cluster,
                          .early = early,
                          .stream = stream_handle,
                          .duration_us = fake.launch_us};
    snprintf(launch.function, sizeof launch.function, "%s%s", function->entry, suffixes[index_of_handle(handle)]);
    if (strncmp(function->entry, "fwd_", 4) == 0)
        memcpy(&launch.params, params[0], sizeof launch.params);
    if (stream != NULL && stream->capturing) {
        capture(stream, &launch);
        return fake_end(CUDA_SUCCESS);
    }
    return fake_end(fake_run(&launch));
}

CUresult fake_driver_launch_kernel(CUfunction handle, unsigned blocks, unsigned blocks_y, unsigned blocks_z,
                                   unsigned threads, unsigned threads_y, unsigned threads_z, unsigned smem_bytes,
                                   CUstream stream, void **params, void **extra)
{
    const bool known = blocks_y == 1 && blocks_z == 1 && threads_y == 1 && threads_z == 1 && extra == NULL;
    return launch_on("launch_kernel", handle, known ? blocks : 0, threads, smem_bytes, 1, false, stream, params);
}

CUresult fake_driver_launch_kernel_ex(const CUlaunchConfig *config, CUfunction handle, void **params, void **extra)
{
    bool known = config->gridDimY == 1 && config->gridDimZ == 1 && config->blockDimY == 1 && config->blockDimZ == 1 &&
                 extra == NULL;
    unsigned cluster = 1;
    bool early = false;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *a = &config->attrs[i];
        if (a->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
            cluster = a->value.clusterDim.x;
            known = known && a->value.clusterDim.y == 1 && a->value.clusterDim.z == 1;
        } else {
            early = a->value.programmaticStreamSerializationAllowed != 0;
            known = known && a->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        }
    }
    return launch_on("launch_kernel_ex", handle, known ? config->gridDimX : 0, config->blockDimX,
                     config->sharedMemBytes, cluster, early, config->hStream, params);
}

CUresult fake_driver_tensor_map_encode_tiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                             const cuuint64_t *extents, const cuuint64_t *strides,
                                             const cuuint32_t *box, const cuuint32_t *element_strides,
                                             CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                             CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    const CUresult result = fake_begin("tensor_map_encode_tiled");
    fake_map made = {.type = type, .address = (uintptr_t)address, .rank = rank};
    if (result != CUDA_SUCCESS)
        return fake_end(result);
    if (rank < 3 || rank > 5 || made.address % 16 != 0 || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
        swizzle != CU_TENSOR_MAP_SWIZZLE_128B || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
        return fake_end(CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < rank; i++) {
        made.extents[i] = extents[i];
        made.box[i] = box[i];
        if (extents[i] < 1 || extents[i] > UINT32_MAX || box[i] < 1 || box[i] > 256 || element_strides[i] != 1)
            return fake_end(CUDA_ERROR_INVALID_VALUE);
        if (i > 0)
            made.strides[i - 1] = strides[i - 1];
        if (i > 0 && (strides[i - 1] % 16 != 0 || strides[i - 1] >= UINT64_C(1) << 40))
            return fake_end(CUDA_ERROR_INVALID_VALUE);
    }
    memset(map, promotion == CU_TENSOR_MAP_L2_PROMOTION_L2_256B ? 0x5a : 0, sizeof *map);
    memcpy(map, &made.address, sizeof made.address); /* so that the map can be recognised later */
    if (fake.map_count < FAKE_MAPS)
        fake.maps[fake.map_count] = made;
    fake.map_count++;
    return fake_end(CUDA_SUCCESS);
}
