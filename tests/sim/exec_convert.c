/*
 * cvt: between integers, between integers and fp32, between fp32 and 16-bit floats, from fp32 to e4m3.
 */
#include "half.h"

/* ---- integers; info: bits of the source, its signedness, bits of the result ---- */

#define FROM(bits, is_signed, to) ((bits) << 8 | (is_signed) << 7 | (to))

static inline uint64_t extended(uint64_t value, int bits, bool is_signed)
{
    if (bits == 64)
        return value;
    const uint64_t low = value & (((uint64_t)1 << bits) - 1);
    return is_signed && low >> (bits - 1) ? low | ~(uint64_t)0 << bits : low;
}

static void narrow(const sim_op *op, sim_warp *w)
{
    const uint32_t *a = sim_source(w, op->src[0]);
    const int bits = op->info >> 8, to = op->info & 127;
    const uint32_t keep = to == 32 ? UINT32_MAX : (1u << to) - 1;
    uint32_t out[SIM_LANES];
    LANES(l)
    out[l] = (uint32_t)extended(a[l], bits, op->info & 128) & keep;
    sim_put(w, op->dst[0], out);
}

static void widen(const sim_op *op, sim_warp *w)
{
    const uint32_t *a = sim_source(w, op->src[0]);
    if (op->info == FROM(32, 1, 64))
        SIM_SET(w, op->dst[0], uint64_t, (uint64_t)(int64_t)(int32_t)a[l]);
    else
        SIM_SET(w, op->dst[0], uint64_t, extended(a[l], op->info >> 8, op->info & 128));
}

/* The same for a register wider than its number. */
static void widen_part(const sim_op *op, sim_warp *w)
{
    const uint64_t *a = sim_source_64(w, op->src[0]);
    uint64_t out[SIM_LANES];
    LANES(l)
    out[l] = extended((uint32_t)a[l], op->info >> 8, op->info & 128);
    sim_put_64(w, op->dst[0], out);
}

static void shorten(const sim_op *op, sim_warp *w)
{
    const uint64_t *a = sim_source_64(w, op->src[0]);
    const int to = op->info & 127;
    const uint32_t keep = to == 32 ? UINT32_MAX : (1u << to) - 1;
    SIM_SET(w, op->dst[0], uint32_t, (uint32_t)a[l] & keep);
}

/* ---- integers and fp32 ---- */

SIM_UNARY(float_of_s32, int32_t, sim_float_bits((float)x))
SIM_UNARY(float_of_u32, uint32_t, sim_float_bits((float)x))

/* Rounding modes, as indices into the rows below. */
enum { TO_ZERO, TO_NEAREST, DOWN, UP };

static inline double rounded(float value, int mode)
{
    const double x = (double)value;
    return mode == TO_NEAREST ? nearbyint(x) : mode == DOWN ? floor(x) : mode == UP ? ceil(x) : trunc(x);
}

/* NaN gives 0. A value out of range gives the nearest number in range. */
static void to_s32(const sim_op *op, sim_warp *w)
{
    const uint32_t *a = sim_source(w, op->src[0]);
    uint32_t out[SIM_LANES];
    LANES(l)
    {
        const double x = rounded(sim_float(a[l]), op->info);
        out[l] = x != x ? 0 : x >= 2147483647.0 ? 0x7fffffffu : x <= -2147483648.0 ? 0x80000000u : (uint32_t)(int32_t)x;
    }
    sim_put(w, op->dst[0], out);
}

static void to_u32(const sim_op *op, sim_warp *w)
{
    const uint32_t *a = sim_source(w, op->src[0]);
    uint32_t out[SIM_LANES];
    LANES(l)
    {
        const double x = rounded(sim_float(a[l]), op->info);
        out[l] = x != x || x <= 0 ? 0 : x >= 4294967295.0 ? UINT32_MAX : (uint32_t)x;
    }
    sim_put(w, op->dst[0], out);
}

static void float_of_wide(const sim_op *op, sim_warp *w)
{
    const uint64_t *a = sim_source_64(w, op->src[0]);
    uint32_t out[SIM_LANES];
    LANES(l)
    out[l] = sim_float_bits(op->info ? (float)(int64_t)a[l] : (float)a[l]);
    sim_put(w, op->dst[0], out);
}

/* Clamps to 0 ... 1. NaN gives 0. */
SIM_UNARY(saturate, uint32_t, sim_float(x) > 1.0f ? 0x3f800000u : sim_float(x) > 0.0f ? x : 0)

/* ---- 16-bit floats ---- */

SIM_UNARY(half_of, uint32_t, sim_float_to_half(sim_float(x)))
SIM_UNARY(bfloat_of, uint32_t, sim_float_to_bfloat(sim_float(x)))
SIM_UNARY(float_of_half, uint32_t, sim_float_bits(sim_half_to_float(x & 0xffff)))
SIM_UNARY(float_of_bfloat, uint32_t, sim_float_bits(sim_bfloat_to_float(x & 0xffff)))

/* The first source goes to the upper half. */
SIM_BINARY(half_pair, uint32_t, sim_float_to_half(sim_float(x)) << 16 | sim_float_to_half(sim_float(y)))
SIM_BINARY(bfloat_pair, uint32_t, sim_float_to_bfloat(sim_float(x)) << 16 | sim_float_to_bfloat(sim_float(y)))
SIM_BINARY(e4m3_pair, uint32_t, sim_float_to_e4m3(sim_float(x)) << 8 | sim_float_to_e4m3(sim_float(y)))

#define ROW(opcode, form, handler, info)                                                                               \
    {                                                                                                                  \
        opcode, form, handler, SIM_KIND_CONVERT, info                                                                  \
    }
#define NARROW(to_name, to, from_name, bits, is_signed)                                                                \
    ROW("cvt." to_name "." from_name, "r s", narrow, FROM(bits, is_signed, to))
#define NARROW_ALL(to_name, to)                                                                                        \
    NARROW(to_name, to, "u8", 8, 0), NARROW(to_name, to, "s8", 8, 1), NARROW(to_name, to, "u16", 16, 0),               \
        NARROW(to_name, to, "s16", 16, 1), NARROW(to_name, to, "u32", 32, 0), NARROW(to_name, to, "s32", 32, 1)
#define WIDEN(from_name, bits, is_signed)                                                                              \
    ROW("cvt.u64." from_name, "d s", widen, FROM(bits, is_signed, 64)),                                                \
        ROW("cvt.s64." from_name, "d s", widen, FROM(bits, is_signed, 64)),                                            \
        ROW("cvt.u64." from_name, "d S", widen_part, FROM(bits, is_signed, 64)),                                       \
        ROW("cvt.s64." from_name, "d S", widen_part, FROM(bits, is_signed, 64))
#define SHORTEN(to_name, to)                                                                                           \
    ROW("cvt." to_name ".u64", "r S", shorten, to), ROW("cvt." to_name ".s64", "r S", shorten, to)

static const sim_row rows[] = {
    NARROW_ALL("u32", 32),
    NARROW_ALL("s32", 32),
    NARROW_ALL("u16", 16),
    NARROW_ALL("s16", 16),
    NARROW_ALL("u8", 8),
    WIDEN("u8", 8, 0),
    WIDEN("u16", 16, 0),
    WIDEN("s16", 16, 1),
    WIDEN("u32", 32, 0),
    WIDEN("s32", 32, 1),
    SHORTEN("u32", 32),
    SHORTEN("s32", 32),
    SHORTEN("u16", 16),
    SHORTEN("s16", 16),
    SHORTEN("u8", 8),
    ROW("cvt.rn.f32.s32", "r s", float_of_s32, 0),
    ROW("cvt.rn.f32.u32", "r s", float_of_u32, 0),
    ROW("cvt.rn.f32.s64", "r S", float_of_wide, 1),
    ROW("cvt.rn.f32.u64", "r S", float_of_wide, 0),
    ROW("cvt.sat.f32.f32", "r s", saturate, 0),
    ROW("cvt.rzi.s32.f32", "r s", to_s32, TO_ZERO),
    ROW("cvt.rni.s32.f32", "r s", to_s32, TO_NEAREST),
    ROW("cvt.rmi.s32.f32", "r s", to_s32, DOWN),
    ROW("cvt.rpi.s32.f32", "r s", to_s32, UP),
    ROW("cvt.rzi.u32.f32", "r s", to_u32, TO_ZERO),
    ROW("cvt.rni.u32.f32", "r s", to_u32, TO_NEAREST),
    ROW("cvt.rn.f16.f32", "r s", half_of, 0),
    ROW("cvt.rn.bf16.f32", "r s", bfloat_of, 0),
    ROW("cvt.f32.f16", "r s", float_of_half, 0),
    ROW("cvt.f32.bf16", "r s", float_of_bfloat, 0),
    ROW("cvt.rn.f16x2.f32", "r s s", half_pair, 0),
    ROW("cvt.rn.bf16x2.f32", "r s s", bfloat_pair, 0),
    ROW("cvt.rn.satfinite.e4m3x2.f32", "r s s", e4m3_pair, 0),
};

const sim_rows sim_rows_convert = {rows, sizeof rows / sizeof *rows};
