/*
 * Runs the work of streams: launches with their injected faults, and fills. Also facts about the last launch.
 */
#include "driver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "arena.h"
#include "coverage.h"
#include "faults.h"

static CUresult fail_sticky(CUresult error, const char *message)
{
    sim_device *device = sim_here();
    device->error = error;
    snprintf(device->message, sizeof device->message, "%s", message);
    return CUDA_SUCCESS; /* a launch returns before the fault is known */
}

static void keep_result(sim_device *device, sim_launch *launch, const sim_work *work)
{
    sim_totals totals;
    sim_sum(launch, &totals);
    sim_totals_add(&device->totals, &totals);
    sim_coverage_add(launch);
    const int resident = sim_card_resident(device->card, (int)launch->thread_count,
                                           sim_function_registers(work->function), launch->shared_bytes);
    device->last_us =
        sim_model(&totals, device->card, launch->block_count, launch->thread_count, resident > 0 ? resident : 1);
    device->clock_us += device->last_us;
    free(device->last_counts);
    device->last_counts = launch->counts;
    device->last_program = launch->program;
    free(device->last_lines);
    device->last_lines = NULL;
}

static CUresult run(const sim_work *work, bool spoil)
{
    sim_device *device = sim_here();
    const sim_program *p = &work->function->program;
    sim_launch launch = {
        .program = p,
        .memory = &device->memory,
        .shadows = &device->shadows,
        .grid = {work->grid[0], work->grid[1], work->grid[2]},
        .threads = {work->threads[0], work->threads[1], work->threads[2]},
        .thread_count = work->threads[0] * work->threads[1] * work->threads[2],
        .block_count = work->grid[0] * work->grid[1] * work->grid[2],
        .shared_bytes = (uint32_t)p->static_shared_bytes + work->dynamic_bytes,
        .params = work->params,
        .early = work->early,
        .registers = (unsigned)sim_function_registers(work->function),
        .budget = sim_the_driver.budget,
        .reverse = sim_the_driver.reverse,
        .spoil = spoil,
        .serial = ++device->launches,
        .counts = sim_host_memory((size_t)p->op_count * sizeof(sim_count)),
    };
    launch.warp_count = (launch.thread_count + SIM_LANES - 1) / SIM_LANES;
    pthread_mutex_init(&launch.lock, NULL);
    sim_memory_begin_launch(&device->memory, launch.serial);
    sim_run(&launch, sim_the_driver.host_threads);
    pthread_mutex_destroy(&launch.lock);
    if (launch.error != CUDA_SUCCESS) {
        free(launch.counts);
        return fail_sticky(launch.error, launch.message);
    }
    keep_result(device, &launch, work);
    return CUDA_SUCCESS;
}

static CUresult launch(const sim_work *work)
{
    const bool spoil = sim_fault_due(SIM_FAULT_WRONG);
    const bool hang = sim_fault_due(SIM_FAULT_HANG), fault = sim_fault_due(SIM_FAULT_FAULT);
    if (sim_fault_due(SIM_FAULT_LOST))
        return fail_sticky(CUDA_ERROR_DEVICE_UNAVAILABLE, "the device is lost (FA2_SIM_FAULT)");
    if (fault)
        return fail_sticky(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered (FA2_SIM_FAULT)");
    sim_here()->hung |= hang;
    return hang ? CUDA_SUCCESS : run(work, spoil);
}

static CUresult fill(const sim_work *work)
{
    sim_device *device = sim_here();
    uint8_t *at = sim_memory_at(&device->memory, work->fill, work->words * 4);
    if (at == NULL || work->fill % 4 != 0)
        return CUDA_ERROR_INVALID_VALUE;
    const size_t words = work->words;
    const uint32_t value = work->value;
    for (size_t i = 0; i < words; i++)
        memcpy(at + 4 * i, &value, 4);
    const double bandwidth = 2.0 * device->card->memory_clock_khz * device->card->bus_bits / 8 / 1000;
    device->clock_us += 2.0 + (double)work->words * 4 / bandwidth;
    return CUDA_SUCCESS;
}

CUresult sim_do_work(const sim_work *work)
{
    if (sim_here()->error != CUDA_SUCCESS)
        return sim_here()->error;
    return work->function != NULL ? launch(work) : fill(work);
}

/* ---- the last launch ---- */

void fa2_sim_totals(sim_totals *ret_totals, double *ret_us)
{
    sim_device *device = sim_here();
    *ret_totals = device->totals;
    *ret_us = device->last_us;
    device->totals = (sim_totals){0};
}

static size_t render_lines(const sim_device *device, char *out, size_t bytes)
{
    const sim_program *p = device->last_program;
    size_t used = 0;
    if (bytes > 0)
        out[0] = '\0';
    for (int i = 0; p != NULL && i < p->op_count; i++) {
        const sim_count *c = &device->last_counts[i];
        char line[640], where[512];
        if (c->wavefronts == 0 && c->sectors == 0)
            continue;
        sim_describe(p, i, where, sizeof where);
        const int length = snprintf(line, sizeof line, "%s: executed %llu, wavefronts %llu/%llu, sectors %llu/%llu\n",
                                    where, (unsigned long long)c->executed, (unsigned long long)c->wavefronts,
                                    (unsigned long long)c->wavefronts_ideal, (unsigned long long)c->sectors,
                                    (unsigned long long)c->sectors_ideal);
        if (used + (size_t)length < bytes)
            memcpy(out + used, line, (size_t)length + 1);
        used += (size_t)length;
    }
    return used + 1;
}

size_t fa2_sim_lines(char *out, size_t bytes)
{
    const sim_device *device = sim_here();
    if (device->last_lines == NULL)
        return render_lines(device, out, bytes);
    snprintf(out, bytes, "%s", device->last_lines);
    return strlen(device->last_lines) + 1;
}

void sim_keep_lines(sim_device *device, const sim_program *program)
{
    if (device->last_program != program)
        return;
    const size_t bytes = render_lines(device, NULL, 0);
    char *lines = sim_host_memory(bytes);
    render_lines(device, lines, bytes);
    device->last_lines = lines;
    device->last_program = NULL;
}
