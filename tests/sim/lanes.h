/*
 * Loops over the lanes of a warp, for the handlers of arithmetic. The compiler vectorises them, because each loop reads
 * whole registers, works on local arrays, and writes the result under the mask.
 *
 * In an expression x, y and z are the sources of the lane.
 */
#pragma once

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

/* A loop over lanes whose destination is a source, or overlaps with none: no lane depends on another one's result. */
#ifdef __clang__
#define SIM_LANES_APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define SIM_LANES_APART _Pragma("GCC ivdep")
#endif

/* Writes a register of elements `type` in the executing lanes: an expression of the lane l. Places in the register file
 * are equal or do not overlap. */
#define SIM_SET(w, operand, type, value)                                                                               \
    do {                                                                                                               \
        if ((w)->mask == SIM_ALL_LANES) {                                                                              \
            type *to_ = (void *)((w)->file + (operand));                                                               \
            SIM_LANES_APART                                                                                            \
            LANES(l)                                                                                                   \
            to_[l] = (value);                                                                                          \
        } else {                                                                                                       \
            type value_[SIM_LANES];                                                                                    \
            LANES(l)                                                                                                   \
            value_[l] = (value);                                                                                       \
            if (sizeof(type) == sizeof(uint64_t))                                                                      \
                sim_put_64(w, operand, (const void *)value_);                                                          \
            else                                                                                                       \
                sim_put(w, operand, (const void *)value_);                                                             \
        }                                                                                                              \
    } while (0)

/* type: of x, y and z, in 32-bit registers. result: an expression of 32 bits. */
#define SIM_UNARY(name, type, result)                                                                                  \
    static inline uint32_t name##_of(type x)                                                                           \
    {                                                                                                                  \
        return (uint32_t)(result);                                                                                     \
    }                                                                                                                  \
    static void name(const sim_op *op, sim_warp *w)                                                                    \
    {                                                                                                                  \
        const uint32_t *a = sim_source(w, op->src[0]);                                                                 \
        SIM_SET(w, op->dst[0], uint32_t, name##_of((type)a[l]));                                                       \
    }

#define SIM_BINARY(name, type, result)                                                                                 \
    static inline uint32_t name##_of(type x, type y)                                                                   \
    {                                                                                                                  \
        return (uint32_t)(result);                                                                                     \
    }                                                                                                                  \
    static void name(const sim_op *op, sim_warp *w)                                                                    \
    {                                                                                                                  \
        const uint32_t *a = sim_source(w, op->src[0]);                                                                 \
        const uint32_t *b = sim_source(w, op->src[1]);                                                                 \
        SIM_SET(w, op->dst[0], uint32_t, name##_of((type)a[l], (type)b[l]));                                           \
    }

#define SIM_TERNARY(name, type, result)                                                                                \
    static inline uint32_t name##_of(type x, type y, type z)                                                           \
    {                                                                                                                  \
        return (uint32_t)(result);                                                                                     \
    }                                                                                                                  \
    static void name(const sim_op *op, sim_warp *w)                                                                    \
    {                                                                                                                  \
        const uint32_t *a = sim_source(w, op->src[0]);                                                                 \
        const uint32_t *b = sim_source(w, op->src[1]);                                                                 \
        const uint32_t *c = sim_source(w, op->src[2]);                                                                 \
        SIM_SET(w, op->dst[0], uint32_t, name##_of((type)a[l], (type)b[l], (type)c[l]));                               \
    }

/* The same for 64-bit registers. */
#define SIM_WIDE_UNARY(name, type, result)                                                                             \
    static inline uint64_t name##_of(type x)                                                                           \
    {                                                                                                                  \
        return (uint64_t)(result);                                                                                     \
    }                                                                                                                  \
    static void name(const sim_op *op, sim_warp *w)                                                                    \
    {                                                                                                                  \
        const uint64_t *a = sim_source_64(w, op->src[0]);                                                              \
        SIM_SET(w, op->dst[0], uint64_t, name##_of((type)a[l]));                                                       \
    }

#define SIM_WIDE_BINARY(name, type, result)                                                                            \
    static inline uint64_t name##_of(type x, type y)                                                                   \
    {                                                                                                                  \
        return (uint64_t)(result);                                                                                     \
    }                                                                                                                  \
    static void name(const sim_op *op, sim_warp *w)                                                                    \
    {                                                                                                                  \
        const uint64_t *a = sim_source_64(w, op->src[0]);                                                              \
        const uint64_t *b = sim_source_64(w, op->src[1]);                                                              \
        SIM_SET(w, op->dst[0], uint64_t, name##_of((type)a[l], (type)b[l]));                                           \
    }

/* Compares registers; the result has a bit per lane. */
#define SIM_COMPARE(a, b, l, condition, ret_bits)                                                                      \
    do {                                                                                                               \
        uint32_t bits_ = 0;                                                                                            \
        LANES(l)                                                                                                       \
        bits_ |= (uint32_t)(condition) << l;                                                                           \
        (ret_bits) = bits_;                                                                                            \
    } while (0)
