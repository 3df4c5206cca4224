/*
 * A case is a problem with its tensors. Its description is so short that the worker process can make the tensors on the
 * device, and the parent the same numbers on the host. Tuned problems and the adversarial problems of the verification
 * are cases.
 *
 * Operands. Each operation lists what a launch reads and writes (tuner/judge/judge.h). Functions take an operand's
 * index in that list. Tensors of the problem's dtype have the case's layout. Numbers per query row (LSE) are fp32,
 * [batch, heads_q, seq_q], contiguous.
 *
 * Data. Each input repeats a block of fa2i_case_period elements: element i is block[i % period]. So large tensors are
 * filled by copies on the device, and any row can be computed without the tensor. The numbers are nearly normal. They
 * are not zeros, because zeros cost less power and run faster. A block is an odd number of rows, so that rows of
 * different heads and batches differ. If a pattern fixes which numbers lie where, the block is the whole tensor.
 *
 * Outputs lie between guards of FA2I_GUARD_BYTES. Before a launch everything is FA2I_POISON, which is NaN in fp16, bf16
 * and fp32. Elements that a kernel does not write stay NaN. A guard that is no longer poison was overwritten, even by
 * NaN, because the GPU's own NaN has other bits.
 *
 * Plain data, sent over the pipe as it is. Pure functions; thread-safe.
 */
#pragma once

#include <stdbool.h>
#include "runtime/base/record.h"
#include "runtime/ops/call.h"

enum { FA2I_OPERANDS_MAX = 32, FA2I_GUARD_BYTES = 65536 };
#define FA2I_POISON 0xffffffffu

typedef enum fa2i_layout {
    FA2I_LAYOUT_BSHD = 0,   /* [batch, seq, head, D], dense */
    FA2I_LAYOUT_BHSD = 1,   /* [batch, head, seq, D], dense */
    FA2I_LAYOUT_GAPPED = 2, /* [batch, seq, head, D + 16 bytes]: the 16 bytes are in no tensor */
    FA2I_LAYOUT_SHARED = 3  /* as BSHD, but all batches share K and V: their batch stride is 0 */
} fa2i_layout;

/* Where large scores are, or which numbers forward's Q, K and V have. */
typedef enum fa2i_pattern {
    FA2I_PATTERN_NONE = 0,
    FA2I_PATTERN_LATE = 1,  /* at the first keys, which kernels process last */
    FA2I_PATTERN_PEAKS = 2, /* each query head has one, each at another key; the last head has none */
    FA2I_PATTERN_GROWN = 4, /* at the first half of the keys, moderate ones; values are large, too */
    FA2I_PATTERN_EMPTY = 5, /* of merging: rows of partial results that saw no key, whose O is NaN */
    FA2I_PATTERN_FORWARD =
        3, /* nowhere. O and LSE as inputs of backward are the results of forward. Without this pattern they are
            * unrelated numbers; backward is the same function of them */
    /* Numbers that show how exact a precision is. K and V in 8 bits then have the scales that append would give. */
    FA2I_PATTERN_NORMAL = 8,
    FA2I_PATTERN_MEANS = 9,     /* columns of K have means: normal ones times 2, and two large ones */
    FA2I_PATTERN_OUTLIERS = 10, /* one number in 1000 of Q, K and V has ten times a normal one added */
    FA2I_PATTERN_CHANNEL = 11   /* a column of K and another one of V are 100 times as large */
} fa2i_pattern;
enum { FA2I_NUMBERS = 4 }; /* these kinds of numbers */

static inline bool fa2i_pattern_is_numbers(fa2i_pattern pattern)
{
    return pattern >= FA2I_PATTERN_NORMAL;
}

/* The lengths of sequences, if the problem has them. */
typedef enum fa2i_lengths {
    FA2I_LENGTHS_SPREAD = 0, /* as in runtime/ops/forward.h, in mixed order: problems are tuned with these */
    FA2I_LENGTHS_WILD = 1,   /* 0, 1 and all; also negative ones, and more than there are */
    FA2I_LENGTHS_AMID = 2    /* packed: as SPREAD, between many rows that are in no sequence */
} fa2i_lengths;

typedef struct fa2i_case {
    fa2_problem problem;
    fa2i_layout layout;
    int32_t want_lse; /* optional outputs are wanted */
    fa2i_pattern pattern;
    fa2i_lengths lengths;
    float q_magnitude; /* standard deviation of Q; other inputs have 1 */
    fa2i_factors factors;
    bool timed; /* for timing, not judged: all heads share a bias, and it hides nothing */
    uint64_t seed;
} fa2i_case;

/* Returns a problem as it is timed: dense, ordinary numbers, without optional outputs. */
fa2i_case fa2i_case_of(const fa2_problem *problem, uint64_t seed);

/* Sets the window of a problem that has one. A prefix or a chunk gets `left` keys, or 37 if left is below 1. */
void fa2i_case_window(fa2_problem *problem, int32_t left, int32_t right);

/* For paged problems. Columns: pages per sequence in the table. Pages: their number in all, a few more than are
 * used. */
int32_t fa2i_case_columns(const fa2_problem *problem);
int32_t fa2i_case_pages(const fa2_problem *problem);

/* For problems with cache rows: their number, a few more than there are sequences. */
int32_t fa2i_case_cache_rows(const fa2_problem *problem);

/* New keys per sequence of a case that appends: as many as queries, or about half if lengths are WILD. Positions: rows
 * of the rotary tables. */
int32_t fa2i_case_new_keys(const fa2i_case *c);
int32_t fa2i_case_positions(const fa2_problem *problem);

/* Says whether a launch writes into an operand: an output, or an input that it changes. */
bool fa2i_case_is_written(const fa2i_case *c, int operand);

/* Says whether a call has an LSE: it is wanted, or merged. */
bool fa2i_case_has_lse(const fa2i_case *c);

/* Says whether an operand holds data before a launch: an input, or an output that the launch merges. */
bool fa2i_case_has_data(const fa2i_case *c, int operand);

/* Where the elements of an operand lie. elems is 0 if the case does not have it. */
typedef struct fa2i_extent {
    int32_t batch, seq, heads, width;              /* width: elements of a row */
    int64_t pitch;                                 /* from one row to the next in memory */
    int64_t stride_batch, stride_seq, stride_head; /* elements */
    int64_t elems;                                 /* from the first element to the end of the last row */
    size_t elem_bytes;
} fa2i_extent;

fa2i_extent fa2i_case_extent(const fa2i_case *c, int operand);
size_t fa2i_case_operand_bytes(const fa2i_case *c, int operand); /* without guards */

/* Strides of the bias, in elements. They depend on the layout:
 * - BSHD: each batch and head has its own, in rows of a multiple of 8 elements. Timed cases share one.
 * - BHSD: each batch and head has its own, with keys as rows.
 * - GAPPED: one per batch, with rows of odd length.
 * - SHARED: one per head, the same for all queries. */
typedef struct fa2i_bias_strides {
    int64_t batch, head, query, key;
} fa2i_bias_strides;

fa2i_bias_strides fa2i_case_bias(const fa2i_case *c, int operand);

/* One row of one operand. */
typedef struct fa2i_place {
    int32_t operand, batch, head, row;
} fa2i_place;

/* Index of its first element. */
int64_t fa2i_extent_at(const fa2i_extent *extent, int32_t batch, int32_t head, int32_t row);

/* Finds the row that holds the element at this index. operand is not set. *ret_column is its column, or at least width
 * if it lies between rows. */
fa2i_place fa2i_extent_place(const fa2i_extent *extent, fa2i_layout layout, int64_t index, int32_t *ret_column);

/* The distance of neighbouring scales of rows, which lie in the order of the rows of K and V. */
int64_t fa2i_case_scales_pitch(const fa2i_case *c);

/* The number of elements of an input that repeat, and their values. Fails with FA2_E_MEMORY if they are computed from
 * others. */
size_t fa2i_case_period(const fa2i_case *c, int operand);
fa2_status fa2i_case_fill(const fa2i_case *c, int operand, void *out);

/* For fill functions: writes the first `count` elements of an operand of the dtype. They are nearly normal with this
 * standard deviation, and repeat like the elements of a case without a pattern. */
void fa2i_case_fill_normal(const fa2i_case *c, int operand, float magnitude, size_t count, void *out);

/* The same for an operand in fp32, all elements. */
void fa2i_case_fill_fp32(const fa2i_case *c, int operand, size_t count, float *out);

/* Device memory that a case takes: operands and guards. SIZE_MAX if it cannot be counted; then no other function may be
 * called for the case. */
size_t fa2i_case_bytes(const fa2i_case *c);

/* Returns the next number of a state, nearly normal. */
float fa2i_random_normal(uint64_t *state);

/* Reproducible random numbers: returns the next one of a state, which may start with any seed (splitmix64). */
uint64_t fa2i_random(uint64_t *state);
