/*
 * fp32 arithmetic. Round to nearest even; NaN results are 0x7fffffff; .ftz flushes subnormal
 * sources and results to zero.
 *
 * Approximations: the PTX ISA only bounds their errors. Here they are the exact result rounded once (ex2: the rounded
 * value of a double polynomial, within 1 ulp). So the device is slightly better than the hardware, never worse. Only
 * tanh's bound, 2^-11 of the result, is wide enough to matter. So tanh is the exact result rounded to eleven bits, the
 * worst that is allowed. (An H200's error is at most 2^-16.6.)
 */
#include "lanes.h"

static inline uint32_t larger(float x, float y)
{
    const uint32_t a = sim_float_bits(x), b = sim_float_bits(y);
    if (x != x)
        return y != y ? SIM_NAN : b;
    if (y != y)
        return a;
    return x > y || (x == y && a >> 31 == 0) ? a : b;
}

static inline uint32_t smaller(float x, float y)
{
    const uint32_t a = sim_float_bits(x), b = sim_float_bits(y);
    if (x != x)
        return y != y ? SIM_NAN : b;
    if (y != y)
        return a;
    return x < y || (x == y && a >> 31 == 1) ? a : b;
}

/* Rounds to the nearest number with eleven significant bits, halfway cases away from zero. */
static inline float to_eleven_bits(float x)
{
    return x != x ? x : sim_float((sim_float_bits(x) + 0x1000u) & 0xffffe000u);
}

static inline uint32_t flushed(uint32_t bits)
{
    return sim_float_bits(sim_flush(sim_float(bits)));
}

/* In the expressions x, y and z are floats. info: flush subnormals to zero. */
#define FLOAT_UNARY(name, result)                                                                                      \
    static inline uint32_t name##_of(float x)                                                                          \
    {                                                                                                                  \
        return (result);                                                                                               \
    }                                                                                                                  \
    static void name(const sim_op *op, sim_warp *w)                                                                    \
    {                                                                                                                  \
        const uint32_t *a = sim_source(w, op->src[0]);                                                                 \
        if (op->info)                                                                                                  \
            SIM_SET(w, op->dst[0], uint32_t, flushed(name##_of(sim_flush(sim_float(a[l])))));                          \
        else                                                                                                           \
            SIM_SET(w, op->dst[0], uint32_t, name##_of(sim_float(a[l])));                                              \
    }

#define FLOAT_BINARY(name, result)                                                                                     \
    static inline uint32_t name##_of(float x, float y)                                                                 \
    {                                                                                                                  \
        return (result);                                                                                               \
    }                                                                                                                  \
    static void name(const sim_op *op, sim_warp *w)                                                                    \
    {                                                                                                                  \
        const uint32_t *a = sim_source(w, op->src[0]);                                                                 \
        const uint32_t *b = sim_source(w, op->src[1]);                                                                 \
        if (op->info)                                                                                                  \
            SIM_SET(w, op->dst[0], uint32_t,                                                                           \
                    flushed(name##_of(sim_flush(sim_float(a[l])), sim_flush(sim_float(b[l])))));                       \
        else                                                                                                           \
            SIM_SET(w, op->dst[0], uint32_t, name##_of(sim_float(a[l]), sim_float(b[l])));                             \
    }

#define FLOAT_TERNARY(name, result)                                                                                    \
    static inline uint32_t name##_of(float x, float y, float z)                                                        \
    {                                                                                                                  \
        return (result);                                                                                               \
    }                                                                                                                  \
    static void name(const sim_op *op, sim_warp *w)                                                                    \
    {                                                                                                                  \
        const uint32_t *a = sim_source(w, op->src[0]);                                                                 \
        const uint32_t *b = sim_source(w, op->src[1]);                                                                 \
        const uint32_t *c = sim_source(w, op->src[2]);                                                                 \
        if (op->info)                                                                                                  \
            SIM_SET(w, op->dst[0], uint32_t,                                                                           \
                    flushed(name##_of(sim_flush(sim_float(a[l])), sim_flush(sim_float(b[l])),                          \
                                      sim_flush(sim_float(c[l])))));                                                   \
        else                                                                                                           \
            SIM_SET(w, op->dst[0], uint32_t, name##_of(sim_float(a[l]), sim_float(b[l]), sim_float(c[l])));            \
    }

FLOAT_BINARY(add, sim_result(x + y))
FLOAT_BINARY(sub, sim_result(x - y))
FLOAT_BINARY(mul, sim_result(x *y))
FLOAT_BINARY(divide, sim_result(x / y))
FLOAT_BINARY(max, larger(x, y))
FLOAT_BINARY(min, smaller(x, y))
FLOAT_UNARY(negate, sim_float_bits(x) ^ 0x80000000u)
FLOAT_UNARY(absolute, sim_float_bits(x) & 0x7fffffffu)
FLOAT_UNARY(reciprocal, sim_result(1.0f / x))
FLOAT_UNARY(square_root, sim_result(sqrtf(x)))
FLOAT_UNARY(reciprocal_root, sim_result((float)(1.0 / sqrt((double)x))))
FLOAT_UNARY(log2_approx, sim_result((float)log2((double)x)))
FLOAT_UNARY(tanh_approx, sim_result(to_eleven_bits((float)tanh((double)x))))
FLOAT_UNARY(sin_approx, sim_result((float)sin((double)x)))
FLOAT_UNARY(cos_approx, sim_result((float)cos((double)x)))

FLOAT_TERNARY(fma_rn, sim_result(fmaf(x, y, z)))

/* Returns x * y + z rounded towards minus infinity. The sum of the exact product and z is kept as a double and its
 * rounding error. */
static inline float fma_down(float x, float y, float z)
{
    const double product = (double)x * (double)y, other = (double)z;
    const double sum = product + other;
    const double part = sum - product;
    const double lacks = (product - (sum - part)) + (other - part);
    const float nearest = (float)sum;
    if ((double)nearest > sum || ((double)nearest == sum && lacks < 0))
        return nextafterf(nearest, -INFINITY);
    return nearest;
}

FLOAT_TERNARY(fma_rm, sim_result(fma_down(x, y, z)))
FLOAT_TERNARY(fma_rp, sim_result(-fma_down(-x, y, -z)))

/* Returns 2^x. Adding 1.5 * 2^52 gives the nearest integer n. Then it is a Taylor series of 2^(x - n), |x - n| <= 1/2,
 * times 2^n as exponent bits. The first omitted term is below 1e-12. */
static inline float exp2_of(float x)
{
    const double clamped = x < -200.0f ? -200.0 : x > 200.0f ? 200.0 : (double)x;
    const double magic = 6755399441055744.0;
    const double shifted = clamped + magic;
    const double f = (clamped - (shifted - magic)) * 0.69314718055994530942;
    double sum = 1.0 / 39916800;
    sum = sum * f + 1.0 / 3628800;
    sum = sum * f + 1.0 / 362880;
    sum = sum * f + 1.0 / 40320;
    sum = sum * f + 1.0 / 5040;
    sum = sum * f + 1.0 / 720;
    sum = sum * f + 1.0 / 120;
    sum = sum * f + 1.0 / 24;
    sum = sum * f + 1.0 / 6;
    sum = sum * f + 0.5;
    sum = sum * f + 1.0;
    sum = sum * f + 1.0;
    uint64_t n;
    double power;
    memcpy(&n, &shifted, sizeof n);
    n = (n + 1023) << 52; /* its low bits are the integer */
    memcpy(&power, &n, sizeof power);
    return (float)(sum * power);
}

static void ex2_approx(const sim_op *op, sim_warp *w)
{
    const uint32_t *a = sim_source(w, op->src[0]);
    uint32_t out[SIM_LANES];
    float value[SIM_LANES];
    LANES(l)
    value[l] = sim_float(a[l]);
    LANES(l)
    value[l] = exp2_of(value[l]); /* of a NaN too: it is faster without a branch */
    if (op->info)
        LANES(l)
    value[l] = sim_flush(value[l]);
    LANES(l)
    out[l] = sim_result(value[l]);
    sim_put(w, op->dst[0], out);
}

/* Rounds to integers in fp32. */
FLOAT_UNARY(round_nearest, sim_result(nearbyintf(x)))
FLOAT_UNARY(round_down, sim_result(floorf(x)))
FLOAT_UNARY(round_up, sim_result(ceilf(x)))
FLOAT_UNARY(round_zero, sim_result(truncf(x)))

#define ROW(opcode, form, handler, ftz)                                                                                \
    {                                                                                                                  \
        opcode, form, handler, SIM_KIND_FLOAT, ftz                                                                     \
    }
#define SPECIAL(opcode, form, handler, ftz)                                                                            \
    {                                                                                                                  \
        opcode, form, handler, SIM_KIND_SPECIAL, ftz                                                                   \
    }
#define CONVERT(opcode, form, handler, ftz)                                                                            \
    {                                                                                                                  \
        opcode, form, handler, SIM_KIND_CONVERT, ftz                                                                   \
    }

static const sim_row rows[] = {
    ROW("add.f32", "r s s", add, 0),
    ROW("add.rn.f32", "r s s", add, 0),
    ROW("add.ftz.f32", "r s s", add, 1),
    ROW("sub.f32", "r s s", sub, 0),
    ROW("sub.rn.f32", "r s s", sub, 0),
    ROW("sub.ftz.f32", "r s s", sub, 1),
    ROW("mul.f32", "r s s", mul, 0),
    ROW("mul.rn.f32", "r s s", mul, 0),
    ROW("mul.ftz.f32", "r s s", mul, 1),
    ROW("fma.rn.f32", "r s s s", fma_rn, 0),
    ROW("fma.rn.ftz.f32", "r s s s", fma_rn, 1),
    ROW("fma.rm.f32", "r s s s", fma_rm, 0),
    ROW("fma.rp.f32", "r s s s", fma_rp, 0),
    ROW("max.f32", "r s s", max, 0),
    ROW("max.ftz.f32", "r s s", max, 1),
    ROW("min.f32", "r s s", min, 0),
    ROW("min.ftz.f32", "r s s", min, 1),
    ROW("neg.f32", "r s", negate, 0),
    ROW("neg.ftz.f32", "r s", negate, 1),
    ROW("abs.f32", "r s", absolute, 0),
    ROW("abs.ftz.f32", "r s", absolute, 1),
    SPECIAL("div.rn.f32", "r s s", divide, 0),
    SPECIAL("div.rn.ftz.f32", "r s s", divide, 1),
    SPECIAL("div.full.f32", "r s s", divide, 0),
    SPECIAL("div.full.ftz.f32", "r s s", divide, 1),
    SPECIAL("div.approx.f32", "r s s", divide, 0),
    SPECIAL("div.approx.ftz.f32", "r s s", divide, 1),
    SPECIAL("rcp.rn.f32", "r s", reciprocal, 0),
    SPECIAL("rcp.rn.ftz.f32", "r s", reciprocal, 1),
    SPECIAL("rcp.approx.f32", "r s", reciprocal, 0),
    SPECIAL("rcp.approx.ftz.f32", "r s", reciprocal, 1),
    SPECIAL("sqrt.rn.f32", "r s", square_root, 0),
    SPECIAL("sqrt.approx.f32", "r s", square_root, 0),
    SPECIAL("sqrt.approx.ftz.f32", "r s", square_root, 1),
    SPECIAL("rsqrt.approx.f32", "r s", reciprocal_root, 0),
    SPECIAL("rsqrt.approx.ftz.f32", "r s", reciprocal_root, 1),
    SPECIAL("ex2.approx.f32", "r s", ex2_approx, 0),
    SPECIAL("ex2.approx.ftz.f32", "r s", ex2_approx, 1),
    SPECIAL("lg2.approx.f32", "r s", log2_approx, 0),
    SPECIAL("lg2.approx.ftz.f32", "r s", log2_approx, 1),
    SPECIAL("tanh.approx.f32", "r s", tanh_approx, 0),
    SPECIAL("sin.approx.f32", "r s", sin_approx, 0),
    SPECIAL("cos.approx.f32", "r s", cos_approx, 0),
    CONVERT("cvt.rni.f32.f32", "r s", round_nearest, 0),
    CONVERT("cvt.rmi.f32.f32", "r s", round_down, 0),
    CONVERT("cvt.rpi.f32.f32", "r s", round_up, 0),
    CONVERT("cvt.rzi.f32.f32", "r s", round_zero, 0),
};

const sim_rows sim_rows_float = {rows, sizeof rows / sizeof *rows};
