/*
 * 64-bit integer arithmetic, and instructions from 32 to 64 bits. Undefined results are all ones, as in exec_integer.c.
 */
#include "lanes.h"

static inline int64_t divide(int64_t x, int64_t y)
{
    return y == 0 ? -1 : y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
}

static inline int64_t remainder_of(int64_t x, int64_t y)
{
    return y == 0 ? x : y == -1 ? 0 : x % y;
}

SIM_WIDE_BINARY(add, uint64_t, x + y)
SIM_WIDE_BINARY(sub, uint64_t, x - y)
SIM_WIDE_BINARY(mul_lo, uint64_t, x *y)
SIM_WIDE_BINARY(div_s64, int64_t, divide(x, y))
SIM_WIDE_BINARY(div_u64, uint64_t, y == 0 ? UINT64_MAX : x / y)
SIM_WIDE_BINARY(rem_s64, int64_t, remainder_of(x, y))
SIM_WIDE_BINARY(rem_u64, uint64_t, y == 0 ? x : x % y)
SIM_WIDE_BINARY(min_s64, int64_t, x < y ? x : y)
SIM_WIDE_BINARY(max_s64, int64_t, x > y ? x : y)
SIM_WIDE_BINARY(min_u64, uint64_t, x < y ? x : y)
SIM_WIDE_BINARY(max_u64, uint64_t, x > y ? x : y)
SIM_WIDE_BINARY(and_bits, uint64_t, x &y)
SIM_WIDE_BINARY(or_bits, uint64_t, x | y)
SIM_WIDE_BINARY(xor_bits, uint64_t, x ^ y)
SIM_WIDE_UNARY(not_bits, uint64_t, ~x)
SIM_WIDE_UNARY(negate, uint64_t, 0 - x)

/* The amount of a shift is 32 bits wide, and clamped. */
#define SHIFT(name, result)                                                                                            \
    static inline uint64_t name##_of(uint64_t x, uint32_t y)                                                           \
    {                                                                                                                  \
        const uint32_t by = y > 63 ? 63 : y;                                                                           \
        return (result);                                                                                               \
    }                                                                                                                  \
    static void name(const sim_op *op, sim_warp *w)                                                                    \
    {                                                                                                                  \
        const uint64_t *a = sim_source_64(w, op->src[0]);                                                              \
        const uint32_t *b = sim_source(w, op->src[1]);                                                                 \
        SIM_SET(w, op->dst[0], uint64_t, name##_of(a[l], b[l]));                                                       \
    }

SHIFT(shl, y > 63 ? 0 : x << by)
SHIFT(shr_u64, y > 63 ? 0 : x >> by)
SHIFT(shr_s64, x >> by | (x >> 63 && by > 0 ? ~(uint64_t)0 << (64 - by) : 0))

/* Product of 32-bit sources; info: signed. */
static inline uint64_t product(uint32_t x, uint32_t y, bool is_signed)
{
    return is_signed ? (uint64_t)((int64_t)(int32_t)x * (int32_t)y) : (uint64_t)x * y;
}

static void mul_wide(const sim_op *op, sim_warp *w)
{
    const uint32_t *a = sim_source(w, op->src[0]), *b = sim_source(w, op->src[1]);
    if (op->info)
        SIM_SET(w, op->dst[0], uint64_t, product(a[l], b[l], true));
    else
        SIM_SET(w, op->dst[0], uint64_t, product(a[l], b[l], false));
}

static void mad_wide(const sim_op *op, sim_warp *w)
{
    const uint32_t *a = sim_source(w, op->src[0]), *b = sim_source(w, op->src[1]);
    const uint64_t *c = sim_source_64(w, op->src[2]);
    if (op->info)
        SIM_SET(w, op->dst[0], uint64_t, product(a[l], b[l], true) + c[l]);
    else
        SIM_SET(w, op->dst[0], uint64_t, product(a[l], b[l], false) + c[l]);
}

static void mad_lo(const sim_op *op, sim_warp *w)
{
    const uint64_t *a = sim_source_64(w, op->src[0]), *b = sim_source_64(w, op->src[1]);
    const uint64_t *c = sim_source_64(w, op->src[2]);
    SIM_SET(w, op->dst[0], uint64_t, a[l] * b[l] + c[l]);
}

static inline uint64_t high_unsigned(uint64_t x, uint64_t y)
{
    const uint64_t x0 = x & UINT32_MAX, x1 = x >> 32, y0 = y & UINT32_MAX, y1 = y >> 32;
    const uint64_t middle = x1 * y0 + (x0 * y0 >> 32);
    return x1 * y1 + (middle >> 32) + (((middle & UINT32_MAX) + x0 * y1) >> 32);
}

SIM_WIDE_BINARY(mul_hi_u64, uint64_t, high_unsigned(x, y))
SIM_WIDE_BINARY(mul_hi_s64, uint64_t, high_unsigned(x, y) - (x >> 63 ? y : 0) - (y >> 63 ? x : 0))

#define ROW(opcode, form, handler)                                                                                     \
    {                                                                                                                  \
        opcode, form, handler, SIM_KIND_INTEGER, 0                                                                     \
    }
#define ROW_INFO(opcode, form, handler, info)                                                                          \
    {                                                                                                                  \
        opcode, form, handler, SIM_KIND_INTEGER, info                                                                  \
    }

static const sim_row rows[] = {
    ROW("add.s64", "d S S", add),
    ROW("add.u64", "d S S", add),
    ROW("sub.s64", "d S S", sub),
    ROW("sub.u64", "d S S", sub),
    ROW("mul.lo.s64", "d S S", mul_lo),
    ROW("mul.lo.u64", "d S S", mul_lo),
    ROW("mul.hi.u64", "d S S", mul_hi_u64),
    ROW("mul.hi.s64", "d S S", mul_hi_s64),
    ROW("mad.lo.s64", "d S S S", mad_lo),
    ROW("mad.lo.u64", "d S S S", mad_lo),
    ROW("div.s64", "d S S", div_s64),
    ROW("div.u64", "d S S", div_u64),
    ROW("rem.s64", "d S S", rem_s64),
    ROW("rem.u64", "d S S", rem_u64),
    ROW("min.s64", "d S S", min_s64),
    ROW("max.s64", "d S S", max_s64),
    ROW("min.u64", "d S S", min_u64),
    ROW("max.u64", "d S S", max_u64),
    ROW("and.b64", "d S S", and_bits),
    ROW("or.b64", "d S S", or_bits),
    ROW("xor.b64", "d S S", xor_bits),
    ROW("not.b64", "d S", not_bits),
    ROW("neg.s64", "d S", negate),
    ROW("shl.b64", "d S s", shl),
    ROW("shr.u64", "d S s", shr_u64),
    ROW("shr.b64", "d S s", shr_u64),
    ROW("shr.s64", "d S s", shr_s64),
    ROW_INFO("mul.wide.s32", "d s s", mul_wide, 1),
    ROW_INFO("mul.wide.u32", "d s s", mul_wide, 0),
    ROW_INFO("mad.wide.s32", "d s s S", mad_wide, 1),
    ROW_INFO("mad.wide.u32", "d s s S", mad_wide, 0),
};

const sim_rows sim_rows_wide = {rows, sizeof rows / sizeof *rows};
