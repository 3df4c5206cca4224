/*
 * Loops over the lanes of a warp, for the handlers of arithmetic. The compiler vectorises them, because each loop reads
 * whole registers, works on local arrays, and writes the result under the mask.
 *
 * In an expression x, y and z are the sources of the lane.
 */
#ifndef SIM_LANES_H
#define SIM_LANES_H

#include <math.h>
#include <string.h>
#include "machine.h"

#define LANES(l) for (int l = 0; l < SIM_LANES; l++)

static inline float sim_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t sim_float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Copies 1, 2, 4 or 8 bytes by one move each. A variable size would make the compiler emit a loop. */
static inline void sim_copy_bytes(void *to, const void *from, unsigned bytes)
{
    switch (bytes) {
    case 1:
        memcpy(to, from, 1);
        break;
    case 2:
        memcpy(to, from, 2);
        break;
    case 4:
        memcpy(to, from, 4);
        break;
    default:
        memcpy(to, from, 8);
    }
}

/* The NaN that arithmetic returns. */
#define SIM_NAN 0x7fffffffu

static inline uint32_t sim_result(float value)
{
    return value != value ? SIM_NAN : sim_float_bits(value);
}

/* Replaces subnormals by zero with their sign. */
static inline float sim_flush(float value)
{
    const uint32_t bits = sim_float_bits(value);
    return (bits & 0x7f800000u) == 0 ? sim_float(bits & 0x80000000u) : value;
}

/* type: of x, y and z, in 32-bit registers. result: an expression of 32 bits. */
#define SIM_UNARY(name, type, result)                                                                                  \
    static void name(const sim_op *op, sim_warp *w)                                                                    \
    {                                                                                                                  \
        const uint32_t *a = sim_source(w, op->src[0]);                                                                 \
        uint32_t out[SIM_LANES];                                                                                       \
        LANES(l)                                                                                                       \
        {                                                                                                              \
            const type x = (type)a[l];                                                                                 \
            out[l] = (uint32_t)(result);                                                                               \
        }                                                                                                              \
        sim_put(w, op->dst[0], out);                                                                                   \
    }

#define SIM_BINARY(name, type, result)                                                                                 \
    static void name(const sim_op *op, sim_warp *w)                                                                    \
    {                                                                                                                  \
        const uint32_t *a = sim_source(w, op->src[0]), *b = sim_source(w, op->src[1]);                                 \
        uint32_t out[SIM_LANES];                                                                                       \
        LANES(l)                                                                                                       \
        {                                                                                                              \
            const type x = (type)a[l], y = (type)b[l];                                                                 \
            out[l] = (uint32_t)(result);                                                                               \
        }                                                                                                              \
        sim_put(w, op->dst[0], out);                                                                                   \
    }

#define SIM_TERNARY(name, type, result)                                                                                \
    static void name(const sim_op *op, sim_warp *w)                                                                    \
    {                                                                                                                  \
        const uint32_t *a = sim_source(w, op->src[0]), *b = sim_source(w, op->src[1]), *c = sim_source(w, op->src[2]); \
        uint32_t out[SIM_LANES];                                                                                       \
        LANES(l)                                                                                                       \
        {                                                                                                              \
            const type x = (type)a[l], y = (type)b[l], z = (type)c[l];                                                 \
            out[l] = (uint32_t)(result);                                                                               \
        }                                                                                                              \
        sim_put(w, op->dst[0], out);                                                                                   \
    }

/* The same for 64-bit registers. */
#define SIM_WIDE_UNARY(name, type, result)                                                                             \
    static void name(const sim_op *op, sim_warp *w)                                                                    \
    {                                                                                                                  \
        const uint64_t *a = sim_source_64(w, op->src[0]);                                                              \
        uint64_t out[SIM_LANES];                                                                                       \
        LANES(l)                                                                                                       \
        {                                                                                                              \
            const type x = (type)a[l];                                                                                 \
            out[l] = (uint64_t)(result);                                                                               \
        }                                                                                                              \
        sim_put_64(w, op->dst[0], out);                                                                                \
    }

#define SIM_WIDE_BINARY(name, type, result)                                                                            \
    static void name(const sim_op *op, sim_warp *w)                                                                    \
    {                                                                                                                  \
        const uint64_t *a = sim_source_64(w, op->src[0]), *b = sim_source_64(w, op->src[1]);                           \
        uint64_t out[SIM_LANES];                                                                                       \
        LANES(l)                                                                                                       \
        {                                                                                                              \
            const type x = (type)a[l], y = (type)b[l];                                                                 \
            out[l] = (uint64_t)(result);                                                                               \
        }                                                                                                              \
        sim_put_64(w, op->dst[0], out);                                                                                \
    }

/* Compares registers; the result has a bit per lane. */
#define SIM_COMPARE(a, b, l, condition, ret_bits)                                                                      \
    do {                                                                                                               \
        uint32_t bits_ = 0;                                                                                            \
        LANES(l)                                                                                                       \
        bits_ |= (uint32_t)(condition) << l;                                                                           \
        (ret_bits) = bits_;                                                                                            \
    } while (0)

#endif
