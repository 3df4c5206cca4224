/*
 * Moves, packing and unpacking of registers, and conversions between address spaces.
 */
#include "lanes.h"

SIM_UNARY(move, uint32_t, x)
SIM_WIDE_UNARY(move_64, uint64_t, x)
SIM_BINARY(pack_halves, uint32_t, y << 16 | (x & 0xffff))

static void unpack_halves(const sim_op *op, sim_warp *w)
{
    const uint32_t *a = sim_source(w, op->src[0]);
    uint32_t low[SIM_LANES], high[SIM_LANES];
    LANES(l)
    {
        low[l] = a[l] & 0xffff;
        high[l] = a[l] >> 16;
    }
    sim_put(w, op->dst[0], low);
    sim_put(w, op->dst[1], high);
}

static void pack_words(const sim_op *op, sim_warp *w)
{
    const uint32_t *a = sim_source(w, op->src[0]), *b = sim_source(w, op->src[1]);
    SIM_SET(w, op->dst[0], uint64_t, (uint64_t)b[l] << 32 | a[l]);
}

static void unpack_words(const sim_op *op, sim_warp *w)
{
    const uint64_t *a = sim_source_64(w, op->src[0]);
    uint32_t low[SIM_LANES], high[SIM_LANES];
    LANES(l)
    {
        low[l] = (uint32_t)a[l];
        high[l] = (uint32_t)(a[l] >> 32);
    }
    sim_put(w, op->dst[0], low);
    sim_put(w, op->dst[1], high);
}

/* Generic addresses: each space except global has its own window. */
SIM_WIDE_UNARY(shared_to_generic, uint64_t, x + SIM_SHARED_WINDOW)
SIM_WIDE_UNARY(generic_to_shared, uint64_t, x - SIM_SHARED_WINDOW)
SIM_WIDE_UNARY(local_to_generic, uint64_t, x + SIM_LOCAL_WINDOW)
SIM_WIDE_UNARY(generic_to_local, uint64_t, x - SIM_LOCAL_WINDOW)
SIM_WIDE_UNARY(param_to_generic, uint64_t, x + SIM_PARAM_WINDOW)
SIM_WIDE_UNARY(generic_to_param, uint64_t, x - SIM_PARAM_WINDOW)

#define ROW(opcode, form, handler)                                                                                     \
    {                                                                                                                  \
        opcode, form, handler, SIM_KIND_MOVE, 0                                                                        \
    }

static const sim_row rows[] = {
    ROW("mov.b32", "r s", move),
    ROW("mov.b32", "r 2s", pack_halves),
    ROW("mov.b32", "2r s", unpack_halves),
    ROW("mov.u32", "r s", move),
    ROW("mov.s32", "r s", move),
    ROW("mov.f32", "r s", move),
    ROW("mov.b16", "r s", move),
    ROW("mov.u16", "r s", move),
    ROW("mov.s16", "r s", move),
    ROW("mov.b64", "d S", move_64),
    ROW("mov.b64", "d 2s", pack_words),
    ROW("mov.b64", "2r S", unpack_words),
    ROW("mov.u64", "d S", move_64),
    ROW("mov.s64", "d S", move_64),
    ROW("cvta.global.u64", "d S", move_64),
    ROW("cvta.to.global.u64", "d S", move_64),
    ROW("cvta.const.u64", "d S", move_64),
    ROW("cvta.to.const.u64", "d S", move_64),
    ROW("cvta.shared.u64", "d S", shared_to_generic),
    ROW("cvta.to.shared.u64", "d S", generic_to_shared),
    ROW("cvta.local.u64", "d S", local_to_generic),
    ROW("cvta.to.local.u64", "d S", generic_to_local),
    ROW("cvta.param.u64", "d S", param_to_generic),
    ROW("cvta.to.param.u64", "d S", generic_to_param),
};

const sim_rows sim_rows_move = {rows, sizeof rows / sizeof *rows};
