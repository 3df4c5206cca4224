/*
 * Comparisons, logic of predicates, and selection by them. A predicate is a bit per lane.
 *
 * setp p|q, a, b, c: p = (a cmp b) op c, q = !(a cmp b) op c; without op, c is left out. info: the
 * comparison and the op.
 */
#include "lanes.h"

/* UNORDERED | EQ ...: also true if a source is NaN. */
enum { EQ, NE, LT, LE, GT, GE, NUMBERS, NEVER, UNORDERED = 8 };
enum { PLAIN = 0, AND = 1, OR = 2, XOR = 3, OP_SHIFT = 4 };

#define COMPARE_BY(code, x, y, ret_bits)                                                                               \
    do {                                                                                                               \
        switch (code) {                                                                                                \
        case EQ:                                                                                                       \
            SIM_COMPARE(a, b, l, (x) == (y), ret_bits);                                                                \
            break;                                                                                                     \
        case NE:                                                                                                       \
            SIM_COMPARE(a, b, l, (x) != (y), ret_bits);                                                                \
            break;                                                                                                     \
        case LT:                                                                                                       \
            SIM_COMPARE(a, b, l, (x) < (y), ret_bits);                                                                 \
            break;                                                                                                     \
        case LE:                                                                                                       \
            SIM_COMPARE(a, b, l, (x) <= (y), ret_bits);                                                                \
            break;                                                                                                     \
        case GT:                                                                                                       \
            SIM_COMPARE(a, b, l, (x) > (y), ret_bits);                                                                 \
            break;                                                                                                     \
        default:                                                                                                       \
            SIM_COMPARE(a, b, l, (x) >= (y), ret_bits);                                                                \
        }                                                                                                              \
    } while (0)

static void put_comparison(const sim_op *op, sim_warp *w, uint32_t bits)
{
    const uint32_t c = op->info >> OP_SHIFT == PLAIN ? 0 : sim_predicate(w, op, 2);
    uint32_t both[2] = {bits, ~bits};
    for (int i = 0; i < 2; i++) {
        switch (op->info >> OP_SHIFT) {
        case AND:
            both[i] &= c;
            break;
        case OR:
            both[i] |= c;
            break;
        case XOR:
            both[i] ^= c;
            break;
        default:
            break;
        }
        if (op->dst[i] != SIM_NONE)
            sim_put_predicate(w, op->dst[i], both[i]);
    }
}

#define SETP(name, register_type, type, source)                                                                        \
    static void name(const sim_op *op, sim_warp *w)                                                                    \
    {                                                                                                                  \
        const register_type *a = source(w, op->src[0]), *b = source(w, op->src[1]);                                    \
        uint32_t bits = 0;                                                                                             \
        COMPARE_BY(op->info & 7, (type)a[l], (type)b[l], bits);                                                        \
        put_comparison(op, w, bits);                                                                                   \
    }

SETP(setp_s32, uint32_t, int32_t, sim_source)
SETP(setp_u32, uint32_t, uint32_t, sim_source)
SETP(setp_s16, uint32_t, int16_t, sim_source)
SETP(setp_u16, uint32_t, uint16_t, sim_source)
SETP(setp_s64, uint64_t, int64_t, sim_source_64)
SETP(setp_u64, uint64_t, uint64_t, sim_source_64)

static void setp_f32(const sim_op *op, sim_warp *w)
{
    const uint32_t *a = sim_source(w, op->src[0]), *b = sim_source(w, op->src[1]);
    const int code = op->info & 7;
    uint32_t bits = 0, nan = 0;
    SIM_COMPARE(a, b, l, sim_float(a[l]) != sim_float(a[l]) || sim_float(b[l]) != sim_float(b[l]), nan);
    if (code == NUMBERS)
        bits = ~nan;
    else if (code != NEVER)
        COMPARE_BY(code, sim_float(a[l]), sim_float(b[l]), bits);
    put_comparison(op, w, op->info & UNORDERED ? bits | nan : bits & ~nan);
}

/* ---- logic and selection ---- */

static void logic(const sim_op *op, sim_warp *w)
{
    const uint32_t a = sim_predicate(w, op, 0), b = sim_predicate(w, op, 1);
    sim_put_predicate(w, op->dst[0], op->info == AND ? a & b : op->info == OR ? a | b : a ^ b);
}

static void move(const sim_op *op, sim_warp *w)
{
    const uint32_t a = sim_predicate(w, op, 0);
    sim_put_predicate(w, op->dst[0], op->info ? ~a : a);
}

static void move_constant(const sim_op *op, sim_warp *w)
{
    sim_put_predicate(w, op->dst[0], op->immediate != 0 ? UINT32_MAX : 0);
}

static void selp(const sim_op *op, sim_warp *w)
{
    const uint32_t *a = sim_source(w, op->src[0]), *b = sim_source(w, op->src[1]);
    const uint32_t p = sim_predicate(w, op, 2);
    SIM_SET(w, op->dst[0], uint32_t, sim_lane(p, l) ? a[l] : b[l]);
}

static void selp_64(const sim_op *op, sim_warp *w)
{
    const uint64_t *a = sim_source_64(w, op->src[0]), *b = sim_source_64(w, op->src[1]);
    const uint32_t p = sim_predicate(w, op, 2);
    SIM_SET(w, op->dst[0], uint64_t, sim_lane(p, l) ? a[l] : b[l]);
}

#define ROW(opcode, form, handler, info)                                                                               \
    {                                                                                                                  \
        opcode, form, handler, SIM_KIND_INTEGER, info                                                                  \
    }
#define COMBINED(name, type, sources, handler, code)                                                                   \
    ROW("setp." name "." type, "e " sources, handler, code),                                                           \
        ROW("setp." name ".and." type, "e " sources " Q", handler, (code) | AND << OP_SHIFT),                          \
        ROW("setp." name ".or." type, "e " sources " Q", handler, (code) | OR << OP_SHIFT),                            \
        ROW("setp." name ".xor." type, "e " sources " Q", handler, (code) | XOR << OP_SHIFT)
#define EQUALITY(type, sources, handler)                                                                               \
    COMBINED("eq", type, sources, handler, EQ), COMBINED("ne", type, sources, handler, NE)
#define ORDER(type, sources, handler)                                                                                  \
    EQUALITY(type, sources, handler), COMBINED("lt", type, sources, handler, LT),                                      \
        COMBINED("le", type, sources, handler, LE), COMBINED("gt", type, sources, handler, GT),                        \
        COMBINED("ge", type, sources, handler, GE)
#define UNSIGNED_ORDER(type, sources, handler)                                                                         \
    ORDER(type, sources, handler), COMBINED("lo", type, sources, handler, LT),                                         \
        COMBINED("ls", type, sources, handler, LE), COMBINED("hi", type, sources, handler, GT),                        \
        COMBINED("hs", type, sources, handler, GE)
#define UNORDERED_ORDER(type)                                                                                          \
    COMBINED("equ", type, "s s", setp_f32, EQ | UNORDERED), COMBINED("neu", type, "s s", setp_f32, NE | UNORDERED),    \
        COMBINED("ltu", type, "s s", setp_f32, LT | UNORDERED),                                                        \
        COMBINED("nan", type, "s s", setp_f32, NEVER | UNORDERED),                                                     \
        COMBINED("leu", type, "s s", setp_f32, LE | UNORDERED),                                                        \
        COMBINED("gtu", type, "s s", setp_f32, GT | UNORDERED), COMBINED("geu", type, "s s", setp_f32, GE | UNORDERED)

static const sim_row rows[] = {
    ORDER("s32", "s s", setp_s32),
    UNSIGNED_ORDER("u32", "s s", setp_u32),
    EQUALITY("b32", "s s", setp_u32),
    ORDER("s16", "s s", setp_s16),
    UNSIGNED_ORDER("u16", "s s", setp_u16),
    EQUALITY("b16", "s s", setp_u16),
    ORDER("s64", "S S", setp_s64),
    UNSIGNED_ORDER("u64", "S S", setp_u64),
    EQUALITY("b64", "S S", setp_u64),
    ORDER("f32", "s s", setp_f32),
    UNORDERED_ORDER("f32"),
    COMBINED("num", "f32", "s s", setp_f32, NUMBERS),
    ROW("and.pred", "q Q Q", logic, AND),
    ROW("or.pred", "q Q Q", logic, OR),
    ROW("xor.pred", "q Q Q", logic, XOR),
    ROW("not.pred", "q Q", move, 1),
    ROW("mov.pred", "q Q", move, 0),
    ROW("mov.pred", "q i", move_constant, 0),
    ROW("selp.b32", "r s s Q", selp, 0),
    ROW("selp.u32", "r s s Q", selp, 0),
    ROW("selp.s32", "r s s Q", selp, 0),
    ROW("selp.f32", "r s s Q", selp, 0),
    ROW("selp.b16", "r s s Q", selp, 0),
    ROW("selp.u16", "r s s Q", selp, 0),
    ROW("selp.b64", "d S S Q", selp_64, 0),
    ROW("selp.u64", "d S S Q", selp_64, 0),
    ROW("selp.s64", "d S S Q", selp_64, 0),
};

const sim_rows sim_rows_predicate = {rows, sizeof rows / sizeof *rows};
