/*
 * Runs a launch. Host threads take blocks from a counter. The warps of a block run in turn until they wait.
 *
 * A side of a divergent branch ends when it arrives at the join. Then the frame below it goes on. The frame that waits
 * at the join belongs to the branch and has the lanes of both sides.
 */
#include "machine.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOST_THREADS_MAX = 64 };

/* ---- errors ---- */

static int append(char *out, size_t bytes, int used, const char *format, ...) __attribute__((format(printf, 4, 5)));

static int append(char *out, size_t bytes, int used, const char *format, ...)
{
    va_list arguments;
    if (used >= (int)bytes)
        return used;
    va_start(arguments, format);
    used += vsnprintf(out + used, bytes - (size_t)used, format, arguments);
    va_end(arguments);
    return used < (int)bytes ? used : (int)bytes;
}

static int describe_lines(const sim_program *program, int32_t op, char *out, size_t bytes)
{
    const ptx_instruction *source = program->ops[op].source;
    const ptx_module *module = program->module;
    int used = 0;
    for (int at = source->location; at >= 0; at = module->locations[at].outer) {
        const ptx_location *l = &module->locations[at];
        const char *file = ptx_file_name(module, l->file);
        const char *slash = strrchr(file, '/');
        used = append(out, bytes, used, used == 0 ? "%s:%d" : " in %s:%d", slash != NULL ? slash + 1 : file, l->line);
    }
    return used;
}

void sim_describe(const sim_program *program, int32_t op, char *out, size_t bytes)
{
    const ptx_instruction *source = program->ops[op].source;
    const int used = describe_lines(program, op, out, bytes);
    append(out, bytes, used, "%sPTX line %d: %s", used == 0 ? "" : ", ", source->line, source->text);
}

void sim_describe_place(const sim_program *program, int32_t op, char *out, size_t bytes)
{
    if (describe_lines(program, op, out, bytes) == 0)
        append(out, bytes, 0, "PTX line %d", program->ops[op].source->line);
}

void sim_stop(sim_warp *warp, int lane, CUresult error, const char *format, ...)
{
    sim_launch *launch = warp->block->launch;
    const sim_program *program = launch->program;
    char *out = launch->message;
    warp->state = SIM_ENDED;
    pthread_mutex_lock(&launch->lock);
    if (launch->error == CUDA_SUCCESS) {
        const unsigned *place = warp->block->place;
        int used = append(out, SIM_MESSAGE_BYTES, 0, "%s, block (%u, %u, %u), ", program->function->name, place[0],
                          place[1], place[2]);
        used = lane < 0 ? append(out, SIM_MESSAGE_BYTES, used, "warp %d, ", warp->index)
                        : append(out, SIM_MESSAGE_BYTES, used, "thread %u, ", sim_thread(warp, lane));
        sim_describe(program, warp->pc, out + used, SIM_MESSAGE_BYTES - (size_t)used);
        used = append(out, SIM_MESSAGE_BYTES, (int)strlen(out), ": ");
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(out + used, SIM_MESSAGE_BYTES - (size_t)used, format, arguments);
        va_end(arguments);
        launch->error = error;
    }
    atomic_store(&launch->stopped, true);
    pthread_mutex_unlock(&launch->lock);
}

/* ---- warps ---- */

void sim_addresses(const sim_warp *w, const sim_op *op, int which, int source, uint64_t out[SIM_LANES])
{
    const int32_t base = op->src[source];
    const uint64_t offset = (uint64_t)op->offset[which];
    for (int l = 0; l < SIM_LANES; l++)
        out[l] = offset;
    if (base == SIM_NONE)
        return;
    if (op->address_64[which]) {
        const uint64_t *wide = sim_source_64(w, base);
        for (int l = 0; l < SIM_LANES; l++)
            out[l] += wide[l];
    } else {
        const uint32_t *narrow = sim_source(w, base);
        for (int l = 0; l < SIM_LANES; l++)
            out[l] = (uint32_t)(out[l] + narrow[l]);
    }
}

/* Called when the running side is finished: its lanes are at the join, or have ended. */
static void next_side(sim_warp *w)
{
    while (w->depth > 0) {
        const sim_frame *frame = &w->stack[--w->depth];
        w->active = frame->mask & w->alive;
        w->pc = frame->pc;
        w->join = frame->join;
        if (w->active != 0 && w->pc != w->join)
            return;
    }
    if (w->active == 0 || w->alive == 0)
        w->state = SIM_ENDED;
}

/* Runs the instructions from here to the end of their basic block, or until the warp waits, ends, or has used up its
 * budget. */
static __attribute__((noinline)) void run_straight(sim_warp *w)
{
    const sim_launch *launch = w->block->launch;
    const sim_program *program = w->block->program;
    const uint64_t left = launch->budget + 1 - w->steps;
    const int32_t first = w->pc, length = program->ops[first].block_end - first;
    const int32_t end = (uint64_t)length < left ? first + length : first + (int32_t)left;
    const sim_op *op = &program->ops[first];
    int32_t pc = first;
    do {
        uint32_t mask = w->active;
        if (op->guard != SIM_NONE)
            mask &= op->guard_negated ? ~w->predicates[op->guard] : w->predicates[op->guard];
        w->pc = pc++;
        w->next = pc;
        w->mask = mask;
        if (mask != 0) /* 0: a guard skips the instruction for the whole warp, even a branch */
            op->handler(op, w);
        else
            w->block->counts[pc - 1].executed--; /* it is not among those from `first` on */
        op++;
    } while (pc < end && w->state == SIM_RUNS);
    w->block->counts[first].begun++;
    w->block->counts[pc].begun--;
    w->steps += (uint64_t)(pc - first);
    if (w->steps > launch->budget)
        sim_stop(w, -1, CUDA_ERROR_LAUNCH_TIMEOUT, "timeout: the warp has executed %llu instructions",
                 (unsigned long long)launch->budget);
    w->pc = w->next;
}

static void run_warp(sim_warp *w)
{
    while (w->state == SIM_RUNS) {
        run_straight(w);
        if (w->pc == w->join || w->active == 0)
            next_side(w);
    }
}

uint32_t sim_lanes_at_start(const sim_launch *launch, unsigned warp)
{
    const unsigned threads = launch->thread_count - warp * SIM_LANES;
    return threads >= SIM_LANES ? SIM_ALL_LANES : (1u << threads) - 1;
}

static void begin_warp(sim_block *block, sim_warp *w)
{
    const sim_program *p = block->program;
    const sim_launch *launch = block->launch;
    const unsigned first = (unsigned)w->index * SIM_LANES;
    const unsigned *threads = launch->threads;
    memset(w->file, 0xcd, p->file_words * sizeof *w->file); /* kernels must not rely on zeros */
    memset(w->predicates, 0, ((size_t)p->predicates + 1) * sizeof *w->predicates);
    memset(w->commits, 0, sizeof w->commits);
    w->active = w->alive = sim_lanes_at_start(launch, (unsigned)w->index);
    w->pc = 0;
    w->join = SIM_NONE;
    w->state = SIM_RUNS;
    w->depth = 0;
    w->steps = 0;
    w->copy_count = 0;
    w->products.groups = 0;
    w->products.done = w->products.step_count = 0;
    w->sync_epoch = 0;
    w->unawaited = launch->early ? w->alive : 0;
    w->refused = 0;
    w->registers = launch->registers;
    memset(w->stores, 0, sizeof w->stores);
    for (int s = 0; s < SIM_SPECIALS; s++) {
        if (p->special[s] == SIM_NONE)
            continue;
        for (unsigned l = 0; l < SIM_LANES; l++) {
            const unsigned thread = first + l;
            const unsigned values[SIM_SPECIALS] = {thread % threads[0],
                                                   thread / threads[0] % threads[1],
                                                   thread / threads[0] / threads[1],
                                                   threads[0],
                                                   threads[1],
                                                   threads[2],
                                                   block->place[0],
                                                   block->place[1],
                                                   block->place[2],
                                                   launch->grid[0],
                                                   launch->grid[1],
                                                   launch->grid[2],
                                                   l,
                                                   (unsigned)w->index};
            w->file[p->special[s] + (int32_t)l] = values[s];
        }
    }
}

/* ---- blocks ---- */

/* Runs each warp until it waits or ends, as long as one can run. Returns true if some warp waits. */
static bool run_warps(sim_block *block)
{
    const sim_launch *launch = block->launch;
    const unsigned count = launch->warp_count;
    bool waiting = false;
    for (bool going_on = true; going_on;) {
        going_on = waiting = false;
        for (unsigned i = 0; i < count && !atomic_load(&launch->stopped); i++) {
            sim_warp *w = &block->warps[launch->reverse ? count - 1 - i : i];
            if (w->state != SIM_RUNS && !sim_wake(w)) {
                waiting |= w->state != SIM_ENDED;
                continue;
            }
            run_warp(w);
            going_on = true;
        }
    }
    return waiting;
}

void sim_run_block(sim_block *block, unsigned index)
{
    sim_launch *launch = block->launch;
    block->index = index;
    block->place[0] = index % launch->grid[0];
    block->place[1] = index / launch->grid[0] % launch->grid[1];
    block->place[2] = index / launch->grid[0] / launch->grid[1];
    sim_shadow_begin_block(&block->shadow);
    sim_waiting_begin(block);
    for (unsigned i = 0; i < launch->warp_count; i++)
        begin_warp(block, &block->warps[i]);
    while (run_warps(block) && !atomic_load(&launch->stopped))
        sim_open_barriers(block);
    if (!atomic_load(&launch->stopped)) {
        sim_waiting_end(block);
        sim_products_end(block);
    }
}

static void block_init(sim_launch *launch, sim_block *block)
{
    const sim_program *p = launch->program;
    *block = (sim_block){.launch = launch, .program = p};
    block->warps = sim_host_memory(launch->warp_count * sizeof *block->warps);
    block->shared = sim_host_memory((size_t)launch->shared_bytes + 16);
    memset(block->shared, 0xcd, launch->shared_bytes); /* the shadow finds reads of what the block has not written */
    block->local = sim_host_memory((size_t)launch->warp_count * SIM_LANES * p->local_bytes);
    block->counts = sim_host_memory(((size_t)p->op_count + 1) * sizeof *block->counts);
    sim_shadow_take(launch->shadows, launch->shared_bytes, launch->warp_count, &block->shadow);
    for (unsigned i = 0; i < launch->warp_count; i++) {
        sim_warp *w = &block->warps[i];
        w->index = (int)i;
        w->block = block;
        w->constants = p->constants;
        w->file = sim_host_memory(p->file_words * sizeof *w->file);
        w->predicates = sim_host_memory(((size_t)p->predicates + 1) * sizeof *w->predicates);
    }
}

static void block_done(sim_block *block)
{
    for (unsigned i = 0; i < block->launch->warp_count; i++) {
        free(block->warps[i].file);
        free(block->warps[i].predicates);
        free(block->warps[i].copies);
        free(block->warps[i].products.steps);
    }
    free(block->warps);
    free(block->shared);
    free(block->local);
    free(block->counts);
    sim_shadow_give(block->launch->shadows, &block->shadow);
}

/* ---- launches ---- */

static void add_counts(sim_launch *launch, const sim_count *counts)
{
    uint64_t begun = 0;
    pthread_mutex_lock(&launch->lock);
    for (int i = 0; i < launch->program->op_count; i++) {
        sim_count *sum = &launch->counts[i];
        begun += counts[i].begun;
        sum->executed += begun + counts[i].executed;
        sum->wavefronts += counts[i].wavefronts;
        sum->wavefronts_ideal += counts[i].wavefronts_ideal;
        sum->sectors += counts[i].sectors;
        sum->sectors_ideal += counts[i].sectors_ideal;
    }
    pthread_mutex_unlock(&launch->lock);
}

static void *work(void *argument)
{
    sim_launch *launch = argument;
    sim_block block;
    block_init(launch, &block);
    for (;;) {
        const unsigned index = atomic_fetch_add(&launch->next_block, 1);
        if (index >= launch->block_count || atomic_load(&launch->stopped))
            break;
        sim_run_block(&block, launch->reverse ? launch->block_count - 1 - index : index);
    }
    add_counts(launch, block.counts);
    block_done(&block);
    return NULL;
}

void sim_run(sim_launch *launch, unsigned host_threads)
{
    pthread_t threads[HOST_THREADS_MAX];
    unsigned started = 0;
    unsigned wanted = host_threads < launch->block_count ? host_threads : launch->block_count;
    if (wanted > HOST_THREADS_MAX)
        wanted = HOST_THREADS_MAX;
    while (started + 1 < wanted && pthread_create(&threads[started], NULL, work, launch) == 0)
        started++;
    work(launch);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}
