/*
 * Kernels that measure the card: their memory, their grid and their timing.
 */
#include "tuner/worker/bench_internal.h"

/* As in templates/bench/params.cu.in. */
typedef struct probe_params {
    uint64_t read, write;
    int64_t bytes;
    int32_t iterations, reserved;
} probe_params;
_Static_assert(sizeof(probe_params) == 32, "the kernels read their parameters at these places");

static fa2_status give_memory(fa2i_bench *bench, int64_t bytes)
{
    const fa2i_cuda_table *cuda = bench->device.cuda;
    if (bench->probe_bytes == bytes)
        return FA2_OK;
    fa2i_bench_drop_case(bench); /* the probe may need its memory */
    fa2i_bench_drop_probe(bench);
    fa2_status st = fa2i_bench_check(bench, cuda->mem_alloc(&bench->probe, 2 * (size_t)bytes),
                                     "allocating memory to read and write");
    if (st != FA2_OK)
        return st;
    bench->probe_bytes = bytes;
    return fa2i_bench_check(
        bench, cuda->memset_d32_async(bench->probe, 0x3c5aa5c3u, 2 * (size_t)bytes / sizeof(uint32_t), bench->stream),
        "cuMemsetD32Async");
}

/* Returns the number of blocks that the card holds at once. A software device's model is fully busy with fewer. */
static fa2_status count_blocks(const fa2i_bench *bench, const fa2i_loaded *loaded, unsigned *ret_blocks)
{
    bool software = false;
    const fa2_status st = fa2i_cuda_is_software(bench->device.cuda, &software);
    if (st == FA2_OK)
        *ret_blocks = (unsigned)(bench->device.card.sm_count * (software ? 1 : loaded->blocks_per_sm));
    return st;
}

static fa2_status launch(fa2i_bench *bench, const fa2i_loaded *loaded, unsigned blocks, int32_t iterations)
{
    const fa2i_loaded_step *step = &loaded->steps[0];
    probe_params params = {.read = bench->probe,
                           .write = bench->probe + (uint64_t)bench->probe_bytes,
                           .bytes = bench->probe_bytes,
                           .iterations = iterations};
    void *arguments[] = {&params};
    return fa2i_bench_check(bench,
                            bench->device.cuda->launch_kernel(step->function, blocks, 1, 1, step->threads, 1, 1,
                                                              step->smem_bytes, bench->stream, arguments, NULL),
                            "cuLaunchKernel");
}

fa2_status fa2i_bench_probe(fa2i_bench *bench, uint32_t id, const fa2i_probe *probe, double *ret_us,
                            uint32_t *ret_blocks)
{
    fa2_status st = FA2_OK;
    const fa2i_cuda_table *cuda = bench->device.cuda;
    float elapsed_ms = 0;
    unsigned blocks = 0;
    if (id >= bench->slot_count || !bench->slots[id].ready)
        return fa2i_fail(FA2_E_INVALID, "kernel %u is not loaded", id);
    if (probe->bytes < 1 || probe->iterations < 1)
        return fa2i_fail(FA2_E_INVALID, "a probe of %lld bytes and %d iterations", (long long)probe->bytes,
                         (int)probe->iterations);
    const fa2i_loaded *loaded = &bench->slots[id].loaded;
    FA2_TRY(count_blocks(bench, loaded, &blocks));
    const int64_t step = (int64_t)blocks * loaded->steps[0].threads * 16;
    FA2_TRY(give_memory(bench, (probe->bytes + step - 1) / step * step));
    FA2_TRY(launch(bench, loaded, blocks, probe->iterations));
    FA2_TRY(fa2i_bench_check(bench, cuda->event_record(bench->begin, bench->stream), "cuEventRecord"));
    FA2_TRY(launch(bench, loaded, blocks, probe->iterations));
    FA2_TRY(fa2i_bench_check(bench, cuda->event_record(bench->end, bench->stream), "cuEventRecord"));
    FA2_TRY(fa2i_bench_wait(bench, bench->end));
    FA2_TRY(
        fa2i_bench_check(bench, cuda->event_elapsed_time(&elapsed_ms, bench->begin, bench->end), "cuEventElapsedTime"));
    *ret_us = (double)elapsed_ms * 1e3;
    *ret_blocks = blocks;
done:
    return st;
}
