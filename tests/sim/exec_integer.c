/*
 * 32-bit and 16-bit integer arithmetic and logic. Results of 16-bit instructions are zero-extended.
 *
 * If the PTX ISA leaves a result undefined (division by zero), it is all ones. The quotient of the smallest number by
 * -1 is the number itself. Real devices do the same.
 */
#include "lanes.h"

static inline int32_t divide(int32_t x, int32_t y)
{
    return y == 0 ? -1 : y == -1 ? (int32_t)(0u - (uint32_t)x) : x / y;
}

static inline int32_t remainder_of(int32_t x, int32_t y)
{
    return y == 0 ? x : y == -1 ? 0 : x % y;
}

/* Shifts are clamped at the width. */
static inline uint32_t shift_left(uint32_t x, uint32_t by)
{
    return by > 31 ? 0 : x << by;
}

static inline uint32_t shift_right(uint32_t x, uint32_t by)
{
    return by > 31 ? 0 : x >> by;
}

static inline uint32_t shift_arithmetic(uint32_t x, uint32_t by)
{
    const uint32_t clamped = by > 31 ? 31 : by;
    const uint32_t sign = x >> 31 ? ~(uint32_t)0 : 0;
    return x >> clamped | (clamped == 0 ? 0 : sign << (32 - clamped));
}

static inline uint32_t high_signed(uint32_t x, uint32_t y)
{
    return (uint32_t)((uint64_t)((int64_t)(int32_t)x * (int32_t)y) >> 32);
}

static inline uint32_t high_unsigned(uint32_t x, uint32_t y)
{
    return (uint32_t)((uint64_t)x * y >> 32);
}

SIM_BINARY(add, uint32_t, x + y)
SIM_BINARY(sub, uint32_t, x - y)
SIM_BINARY(mul_lo, uint32_t, x *y)
SIM_BINARY(mul_hi_s32, uint32_t, high_signed(x, y))
SIM_BINARY(mul_hi_u32, uint32_t, high_unsigned(x, y))
SIM_TERNARY(mad_lo, uint32_t, x *y + z)
SIM_TERNARY(mad_hi_s32, uint32_t, high_signed(x, y) + z)
SIM_TERNARY(mad_hi_u32, uint32_t, high_unsigned(x, y) + z)
SIM_BINARY(div_s32, int32_t, divide(x, y))
SIM_BINARY(div_u32, uint32_t, y == 0 ? UINT32_MAX : x / y)
SIM_BINARY(rem_s32, int32_t, remainder_of(x, y))
SIM_BINARY(rem_u32, uint32_t, y == 0 ? x : x % y)
SIM_BINARY(min_s32, int32_t, x < y ? x : y)
SIM_BINARY(max_s32, int32_t, x > y ? x : y)
SIM_BINARY(min_u32, uint32_t, x < y ? x : y)
SIM_BINARY(max_u32, uint32_t, x > y ? x : y)
SIM_BINARY(and_bits, uint32_t, x &y)
SIM_BINARY(or_bits, uint32_t, x | y)
SIM_BINARY(xor_bits, uint32_t, x ^ y)
SIM_UNARY(not_bits, uint32_t, ~x)
SIM_UNARY(negate, uint32_t, 0 - x)
SIM_UNARY(absolute, uint32_t, x >> 31 ? 0 - x : x)
SIM_BINARY(shl, uint32_t, shift_left(x, y))
SIM_BINARY(shr_u32, uint32_t, shift_right(x, y))
SIM_BINARY(shr_s32, uint32_t, shift_arithmetic(x, y))
SIM_UNARY(popc, uint32_t, __builtin_popcount(x))
SIM_UNARY(clz, uint32_t, x == 0 ? 32 : __builtin_clz(x))

/* 16 bits */
SIM_BINARY(add_16, uint32_t, (x + y) & 0xffff)
SIM_BINARY(sub_16, uint32_t, (x - y) & 0xffff)
SIM_BINARY(mul_lo_16, uint32_t, (x * y) & 0xffff)
SIM_BINARY(mul_wide_u16, uint32_t, (x & 0xffff) * (y & 0xffff))
SIM_BINARY(mul_wide_s16, uint32_t, (uint32_t)((int16_t)x *(int16_t)y))
SIM_BINARY(shl_16, uint32_t, shift_left(x, y) & 0xffff)
SIM_BINARY(shr_u16, uint32_t, shift_right(x & 0xffff, y))
SIM_BINARY(div_u16, uint32_t, (y & 0xffff) == 0 ? 0xffff : (x & 0xffff) / (y & 0xffff))
SIM_BINARY(rem_u16, uint32_t, (y & 0xffff) == 0 ? x & 0xffff : (x & 0xffff) % (y & 0xffff))
SIM_UNARY(not_16, uint32_t, ~x & 0xffff)

/* z:y shifted by the low five bits of the third source; x is the low word. */
SIM_TERNARY(funnel_left, uint32_t, ((uint64_t)y << 32 | x) << (z & 31) >> 32)
SIM_TERNARY(funnel_right, uint32_t, ((uint64_t)y << 32 | x) >> (z & 31))

static inline uint32_t ones(uint32_t count)
{
    return count > 31 ? UINT32_MAX : (1u << count) - 1;
}

/* bfi: `length` low bits of a into b at `position`. */
static void bfi(const sim_op *op, sim_warp *w)
{
    const uint32_t *a = sim_source(w, op->src[0]), *b = sim_source(w, op->src[1]);
    const uint32_t *c = sim_source(w, op->src[2]), *d = sim_source(w, op->src[3]);
    uint32_t out[SIM_LANES];
    LANES(l)
    {
        const uint32_t position = c[l] & 255, length = d[l] & 255;
        const uint32_t field = shift_left(ones(length), position);
        out[l] = (b[l] & ~field) | (shift_left(a[l], position) & field);
    }
    sim_put(w, op->dst[0], out);
}

SIM_TERNARY(bfe_u32, uint32_t, shift_right(x, y & 255) & ones(z & 255))

static inline uint32_t extract_signed(uint32_t x, uint32_t position, uint32_t length)
{
    if (length == 0)
        return 0;
    const uint32_t sign_bit = position + length - 1 > 31 ? 31 : position + length - 1;
    const uint32_t sign = x >> sign_bit & 1 ? ~(uint32_t)0 : 0;
    const uint32_t field = shift_right(x, position) & ones(sign_bit - position + 1);
    return position > 31 ? sign : field | (sign & ~ones(sign_bit - position + 1));
}

SIM_TERNARY(bfe_s32, uint32_t, extract_signed(x, y & 255, z & 255))

/* One byte of y:x (x is the low word) per nibble of the selector; bit 3 repeats the byte's sign. */
static inline uint32_t permute(uint32_t x, uint32_t y, uint32_t selector)
{
    const uint64_t bytes = (uint64_t)y << 32 | x;
    uint32_t out = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t nibble = selector >> 4 * i & 15;
        uint32_t byte = (uint32_t)(bytes >> 8 * (nibble & 7)) & 255;
        if (nibble & 8)
            byte = byte & 128 ? 255 : 0;
        out |= byte << 8 * i;
    }
    return out;
}

SIM_TERNARY(prmt, uint32_t, permute(x, y, z))

/* Any function of three bits: bit i of the table is the result for (a, b, c) = i in binary. */
static void lop3(const sim_op *op, sim_warp *w)
{
    const uint32_t *a = sim_source(w, op->src[0]), *b = sim_source(w, op->src[1]);
    const uint32_t *c = sim_source(w, op->src[2]);
    uint32_t out[SIM_LANES] = {0};
    for (int i = 0; i < 8; i++) {
        if (!(op->immediate >> i & 1))
            continue;
        LANES(l)
        out[l] |= (i & 4 ? a[l] : ~a[l]) & (i & 2 ? b[l] : ~b[l]) & (i & 1 ? c[l] : ~c[l]);
    }
    sim_put(w, op->dst[0], out);
}

#define ROW(opcode, form, handler)                                                                                     \
    {                                                                                                                  \
        opcode, form, handler, SIM_KIND_INTEGER, 0                                                                     \
    }

static const sim_row rows[] = {
    ROW("add.s32", "r s s", add),
    ROW("add.u32", "r s s", add),
    ROW("sub.s32", "r s s", sub),
    ROW("sub.u32", "r s s", sub),
    ROW("mul.lo.s32", "r s s", mul_lo),
    ROW("mul.lo.u32", "r s s", mul_lo),
    ROW("mul.hi.s32", "r s s", mul_hi_s32),
    ROW("mul.hi.u32", "r s s", mul_hi_u32),
    ROW("mad.lo.s32", "r s s s", mad_lo),
    ROW("mad.lo.u32", "r s s s", mad_lo),
    ROW("mad.hi.s32", "r s s s", mad_hi_s32),
    ROW("mad.hi.u32", "r s s s", mad_hi_u32),
    ROW("div.s32", "r s s", div_s32),
    ROW("div.u32", "r s s", div_u32),
    ROW("rem.s32", "r s s", rem_s32),
    ROW("rem.u32", "r s s", rem_u32),
    ROW("min.s32", "r s s", min_s32),
    ROW("max.s32", "r s s", max_s32),
    ROW("min.u32", "r s s", min_u32),
    ROW("max.u32", "r s s", max_u32),
    ROW("and.b32", "r s s", and_bits),
    ROW("or.b32", "r s s", or_bits),
    ROW("xor.b32", "r s s", xor_bits),
    ROW("not.b32", "r s", not_bits),
    ROW("neg.s32", "r s", negate),
    ROW("abs.s32", "r s", absolute),
    ROW("shl.b32", "r s s", shl),
    ROW("shr.u32", "r s s", shr_u32),
    ROW("shr.b32", "r s s", shr_u32),
    ROW("shr.s32", "r s s", shr_s32),
    ROW("popc.b32", "r s", popc),
    ROW("clz.b32", "r s", clz),
    ROW("shf.l.wrap.b32", "r s s s", funnel_left),
    ROW("shf.r.wrap.b32", "r s s s", funnel_right),
    ROW("bfi.b32", "r s s s s", bfi),
    ROW("bfe.u32", "r s s s", bfe_u32),
    ROW("bfe.s32", "r s s s", bfe_s32),
    ROW("prmt.b32", "r s s s", prmt),
    ROW("lop3.b32", "r s s s i", lop3),
    ROW("add.s16", "r s s", add_16),
    ROW("add.u16", "r s s", add_16),
    ROW("sub.s16", "r s s", sub_16),
    ROW("sub.u16", "r s s", sub_16),
    ROW("mul.lo.s16", "r s s", mul_lo_16),
    ROW("mul.lo.u16", "r s s", mul_lo_16),
    ROW("mul.wide.u16", "r s s", mul_wide_u16),
    ROW("mul.wide.s16", "r s s", mul_wide_s16),
    ROW("and.b16", "r s s", and_bits),
    ROW("or.b16", "r s s", or_bits),
    ROW("xor.b16", "r s s", xor_bits),
    ROW("not.b16", "r s", not_16),
    ROW("shl.b16", "r s s", shl_16),
    ROW("shr.u16", "r s s", shr_u16),
    ROW("div.u16", "r s s", div_u16),
    ROW("rem.u16", "r s s", rem_u16),
};

const sim_rows sim_rows_integer = {rows, sizeof rows / sizeof *rows};
