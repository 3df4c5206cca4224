/*
 * Branches, the ends of threads, barriers and fences.
 *
 * bar.sync is aligned: all living lanes of a warp must execute it together, and agree on the barrier and its number of
 * threads. bar.warp.sync must find all lanes that it names. On a real device they could arrive in turn, but NVRTC's
 * code of converged source never does that.
 */
#include "machine.h"

/* info of rows. program.h has the values of branches and exits. */
enum { WAITS = 1, TAKES = 4 };

static void push(sim_warp *w, int32_t pc, int32_t join, uint32_t mask)
{
    if (w->depth == SIM_STACK_MAX) {
        sim_stop(w, -1, CUDA_ERROR_LAUNCH_FAILED, "branches are nested too deeply for the device");
        return;
    }
    w->stack[w->depth++] = (sim_frame){pc, join, mask};
}

static void branch(const sim_op *op, sim_warp *w)
{
    const uint32_t taken = w->mask, not_taken = w->active & ~w->mask;
    if (not_taken == 0) {
        w->next = op->target;
        return;
    }
    if (op->join != w->join)
        push(w, op->join, w->join, w->active); /* waits for both sides */
    push(w, w->pc + 1, op->join, not_taken);
    w->join = op->join;
    w->active = taken;
    w->next = op->target;
}

static void end_threads(const sim_op *op, sim_warp *w)
{
    (void)op;
    if (!sim_stores_done(w, w->mask))
        return;
    if ((w->unawaited & w->mask) != 0) {
        sim_stop(w, sim_first_lane(w->unawaited & w->mask), CUDA_ERROR_LAUNCH_FAILED,
                 "early: it ends without griddepcontrol.wait, and who comes next would not wait "
                 "for the launch before");
        return;
    }
    w->alive &= ~w->mask;
    w->active &= ~w->mask;
}

static void trap(const sim_op *op, sim_warp *w)
{
    (void)op;
    sim_stop(w, sim_first_lane(w->mask), CUDA_ERROR_LAUNCH_FAILED, "trap");
}

/* Reads an operand on which all lanes must agree. false: the launch is stopped. */
static bool take_uniform(sim_warp *w, int32_t operand, uint32_t *ret_value)
{
    const uint32_t *values = sim_source(w, operand);
    const int first = sim_first_lane(w->mask);
    for (int l = first; l < SIM_LANES; l++)
        if (sim_lane(w->mask, l) && values[l] != values[first]) {
            sim_stop(w, l, CUDA_ERROR_LAUNCH_FAILED, "barrier divergence: it has %u where lane %d has %u", values[l],
                     first, values[first]);
            return false;
        }
    *ret_value = values[first];
    return true;
}

static void barrier(const sim_op *op, sim_warp *w)
{
    const bool counted = op->src[1] != SIM_NONE;
    uint32_t number = 0, threads = 0;
    if (w->mask != w->alive) {
        sim_stop(w, sim_first_lane(w->alive & ~w->mask), CUDA_ERROR_LAUNCH_FAILED,
                 "barrier divergence: only lanes 0x%08x of 0x%08x execute it", w->mask, w->alive);
        return;
    }
    if (!take_uniform(w, op->src[0], &number) || (counted && !take_uniform(w, op->src[1], &threads)))
        return;
    if (number >= SIM_BARRIERS || (counted && (threads == 0 || threads % SIM_LANES != 0))) {
        sim_stop(w, -1, CUDA_ERROR_LAUNCH_FAILED, "no such barrier: number %u of %d, for %u threads", number,
                 SIM_BARRIERS, threads);
        return;
    }
    sim_arrive(w, number, threads, op->info == WAITS);
}

/* All warps of a warpgroup request or release registers per thread. info: they request them. */
static void set_registers(const sim_op *op, sim_warp *w)
{
    const unsigned wanted = (unsigned)op->immediate;
    unsigned *free = &w->block->free_registers;
    if (w->mask != w->alive || wanted % 8 != 0 || wanted < 24 || wanted > 256 ||
        (op->info == TAKES ? wanted < w->registers : wanted > w->registers)) {
        sim_stop(w, -1, CUDA_ERROR_LAUNCH_FAILED, "%u registers a thread where it has %u, by lanes 0x%08x of 0x%08x",
                 wanted, w->registers, w->mask, w->alive);
        return;
    }
    if (op->info == TAKES && wanted - w->registers > *free) {
        w->wanted_registers = wanted;
        w->state = SIM_AT_REGISTERS;
        w->next = w->pc; /* execute it again when enough registers are free */
        return;
    }
    if (!sim_group_alike(w))
        return;
    *free += w->registers - wanted;
    w->registers = wanted;
}

static void warp_barrier(const sim_op *op, sim_warp *w)
{
    const uint32_t *members = sim_source(w, op->src[0]);
    const int lane = sim_first_lane(w->mask);
    if (members[lane] != w->mask && (w->mask != w->alive || (members[lane] & w->alive) != w->alive)) {
        sim_stop(w, lane, CUDA_ERROR_LAUNCH_FAILED, "bar.warp.sync of lanes 0x%08x is executed by lanes 0x%08x",
                 members[lane], w->mask);
        return;
    }
    w->sync_epoch = (uint16_t)(w->sync_epoch + (w->mask == w->alive));
    sim_shadow_warp_barrier(&w->block->shadow, (unsigned)w->index, w->mask, w->alive);
}

/* A fence has no effect, because the device's accesses are in order. */
static void fence(const sim_op *op, sim_warp *w)
{
    (void)op;
    (void)w;
}

/* Waits for earlier launches. Here they have always ended, and their writes are visible. */
static void await_launches(const sim_op *op, sim_warp *w)
{
    (void)op;
    w->unawaited &= ~w->mask;
}

static const sim_row rows[] = {
    {"bra", "b", branch, SIM_KIND_CONTROL, SIM_BRANCH},
    {"bra.uni", "b", branch, SIM_KIND_CONTROL, SIM_BRANCH},
    {"ret", "", end_threads, SIM_KIND_CONTROL, SIM_EXIT},
    {"ret.uni", "", end_threads, SIM_KIND_CONTROL, SIM_EXIT},
    {"exit", "", end_threads, SIM_KIND_CONTROL, SIM_EXIT},
    {"trap", "", trap, SIM_KIND_CONTROL, 0},
    {"bar.sync", "s ?s", barrier, SIM_KIND_BARRIER, WAITS},
    {"barrier.sync", "s ?s", barrier, SIM_KIND_BARRIER, WAITS},
    {"barrier.sync.aligned", "s ?s", barrier, SIM_KIND_BARRIER, WAITS},
    {"bar.arrive", "s s", barrier, SIM_KIND_BARRIER, 0},
    {"setmaxnreg.inc.sync.aligned.u32", "i", set_registers, SIM_KIND_CONTROL, TAKES},
    {"setmaxnreg.dec.sync.aligned.u32", "i", set_registers, SIM_KIND_CONTROL, 0},
    {"bar.warp.sync", "s", warp_barrier, SIM_KIND_BARRIER, 0},
    {"membar.cta", "", fence, SIM_KIND_CONTROL, 0},
    {"membar.gl", "", fence, SIM_KIND_CONTROL, 0},
    {"fence.acq_rel.cta", "", fence, SIM_KIND_CONTROL, 0},
    {"fence.acq_rel.gpu", "", fence, SIM_KIND_CONTROL, 0},
    {"griddepcontrol.launch_dependents", "", fence, SIM_KIND_CONTROL, 0},
    {"griddepcontrol.wait", "", await_launches, SIM_KIND_CONTROL, 0},
};

const sim_rows sim_rows_control = {rows, sizeof rows / sizeof *rows};
