/*
 * Doing what streams are given: launches with their faults on demand, fills; and what is known of
 * the last launch.
 */
#include "driver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "arena.h"
#include "faults.h"

#define DRIVER (&sim_the_driver)

static CUresult fail_sticky(CUresult error, const char *message)
{
    DRIVER->error = error;
    snprintf(DRIVER->message, sizeof DRIVER->message, "%s", message);
    return CUDA_SUCCESS; /* a launch does not know yet */
}

static void keep_result(sim_launch *launch, const sim_work *work)
{
    sim_totals totals;
    sim_sum(launch, &totals);
    sim_totals_add(&DRIVER->totals, &totals);
    const int resident =
        sim_card_resident(DRIVER->card, (int)launch->thread_count,
                          sim_function_registers(work->function), launch->shared_bytes);
    DRIVER->last_us = sim_model(&totals, DRIVER->card, launch->block_count, launch->thread_count,
                                resident > 0 ? resident : 1);
    DRIVER->clock_us += DRIVER->last_us;
    free(DRIVER->last_counts);
    DRIVER->last_counts = launch->counts;
    DRIVER->last_program = launch->program;
    free(DRIVER->last_lines);
    DRIVER->last_lines = NULL;
}

static CUresult run(const sim_work *work, bool spoil)
{
    const sim_program *p = &work->function->program;
    sim_launch launch = {
        .program = p,
        .memory = &DRIVER->memory,
        .grid = {work->grid[0], work->grid[1], work->grid[2]},
        .threads = {work->threads[0], work->threads[1], work->threads[2]},
        .thread_count = work->threads[0] * work->threads[1] * work->threads[2],
        .block_count = work->grid[0] * work->grid[1] * work->grid[2],
        .shared_bytes = (uint32_t)p->static_shared_bytes + work->dynamic_bytes,
        .params = work->params,
        .budget = DRIVER->budget,
        .spoil = spoil,
        .serial = ++DRIVER->launches,
        .counts = sim_host_memory((size_t)p->op_count * sizeof(sim_count)),
    };
    launch.warp_count = (launch.thread_count + SIM_LANES - 1) / SIM_LANES;
    pthread_mutex_init(&launch.lock, NULL);
    sim_memory_begin_launch(&DRIVER->memory, launch.serial);
    sim_run(&launch, DRIVER->host_threads);
    pthread_mutex_destroy(&launch.lock);
    if (launch.error != CUDA_SUCCESS) {
        free(launch.counts);
        return fail_sticky(launch.error, launch.message);
    }
    keep_result(&launch, work);
    return CUDA_SUCCESS;
}

static CUresult launch(const sim_work *work)
{
    const bool spoil = sim_fault_due(SIM_FAULT_WRONG);
    const bool hang = sim_fault_due(SIM_FAULT_HANG), fault = sim_fault_due(SIM_FAULT_FAULT);
    if (sim_fault_due(SIM_FAULT_LOST))
        return fail_sticky(CUDA_ERROR_DEVICE_UNAVAILABLE, "the device is lost (FA2_SIM_FAULT)");
    if (fault)
        return fail_sticky(CUDA_ERROR_ILLEGAL_ADDRESS,
                           "an illegal memory access was encountered (FA2_SIM_FAULT)");
    DRIVER->hung |= hang;
    return hang ? CUDA_SUCCESS : run(work, spoil);
}

static CUresult fill(const sim_work *work)
{
    uint8_t *at = sim_memory_at(&DRIVER->memory, work->fill, work->words * 4);
    if (at == NULL || work->fill % 4 != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < work->words; i++)
        memcpy(at + 4 * i, &work->value, 4);
    const double bandwidth =
        2.0 * DRIVER->card->memory_clock_khz * DRIVER->card->bus_bits / 8 / 1000;
    DRIVER->clock_us += 2.0 + (double)work->words * 4 / bandwidth;
    return CUDA_SUCCESS;
}

CUresult sim_do_work(const sim_work *work)
{
    if (DRIVER->error != CUDA_SUCCESS)
        return DRIVER->error;
    return work->function != NULL ? launch(work) : fill(work);
}

/* ---- the last launch ---- */

void fa2_sim_totals(sim_totals *ret_totals, double *ret_us)
{
    *ret_totals = DRIVER->totals;
    *ret_us = DRIVER->last_us;
    DRIVER->totals = (sim_totals){0};
}

static size_t render_lines(char *out, size_t bytes)
{
    const sim_program *p = DRIVER->last_program;
    size_t used = 0;
    if (bytes > 0)
        out[0] = '\0';
    for (int i = 0; p != NULL && i < p->op_count; i++) {
        const sim_count *c = &DRIVER->last_counts[i];
        char line[640], where[512];
        if (c->wavefronts == 0 && c->sectors == 0)
            continue;
        sim_describe(p, i, where, sizeof where);
        const int length = snprintf(
            line, sizeof line, "%s: executed %llu, wavefronts %llu/%llu, sectors %llu/%llu\n",
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
    if (DRIVER->last_lines == NULL)
        return render_lines(out, bytes);
    snprintf(out, bytes, "%s", DRIVER->last_lines);
    return strlen(DRIVER->last_lines) + 1;
}

void sim_keep_lines(const sim_program *program)
{
    if (DRIVER->last_program != program)
        return;
    const size_t bytes = render_lines(NULL, 0);
    char *lines = sim_host_memory(bytes);
    render_lines(lines, bytes);
    DRIVER->last_lines = lines;
    DRIVER->last_program = NULL;
}
