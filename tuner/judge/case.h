/*
 * A case: a problem with its tensors, described so briefly that the worker process can make them on
 * the device and the parent can make the same numbers on the host. Tuned problems and the
 * adversarial problems of the verification are cases.
 *
 * Operands. What a launch reads and writes is a list per operation (tuner/judge/judge.h); functions
 * take an operand's place in it. Tensors of the problem's dtype lie in the case's layout; numbers per
 * query row (LSE) are fp32, [batch, heads_q, seq_q], contiguous.
 *
 * Data. Each input repeats a block of fa2i_case_period elements: element i is block[i % period].
 * Large tensors are filled by copies on the device, and any row can be computed without the tensor.
 * The numbers are nearly normal (never zeros: zeros cost less power and run faster), and a block is an
 * odd number of rows, so rows of heads and batches differ. Where a
 * pattern says which numbers lie where, the block is the whole tensor. Outputs lie between guards of
 * FA2I_GUARD_BYTES, and everything is FA2I_POISON before a launch: NaN in fp16, bf16 and fp32. What a kernel does not
 * write stays NaN, and a guard that is no longer poison was overwritten (the GPU's own NaN is another one).
 *
 * Plain data, sent over the pipe as it is. Pure functions; thread-safe.
 */
#ifndef FA2I_CASE_H
#define FA2I_CASE_H

#include <stdbool.h>
#include "runtime/base/record.h"

enum { FA2I_OPERANDS_MAX = 24, FA2I_GUARD_BYTES = 65536 };
#define FA2I_POISON 0xffffffffu

typedef enum fa2i_layout {
    FA2I_LAYOUT_BSHD = 0,   /* [batch, seq, head, D], dense */
    FA2I_LAYOUT_BHSD = 1,   /* [batch, head, seq, D], dense */
    FA2I_LAYOUT_GAPPED = 2, /* [batch, seq, head, D + 8]: the 8 belong to nobody */
    FA2I_LAYOUT_SHARED = 3  /* as BSHD; all batches have the same K and V: their stride is 0 */
} fa2i_layout;

/* Where large scores are. */
typedef enum fa2i_pattern {
    FA2I_PATTERN_NONE = 0,
    FA2I_PATTERN_LATE = 1, /* in the first keys, which are visited last */
    FA2I_PATTERN_PEAKS =
        2, /* each query head has one, each at another key; the last head has none */
    FA2I_PATTERN_FORWARD =
        3 /* nowhere, but inputs that forward gives (O and LSE, of backward) are what it
                              * gives; without, they are numbers like others, with which an operation is
                              * the same function */
} fa2i_pattern;

/* Of sequences that have lengths. */
typedef enum fa2i_lengths {
    FA2I_LENGTHS_SPREAD = 0, /* of runtime/ops/forward.h, out of order: those that are tuned for */
    FA2I_LENGTHS_WILD = 1,   /* none, one, all; less than none and more than there are */
    FA2I_LENGTHS_AMID = 2    /* packed: as SPREAD, with many rows of no sequence around */
} fa2i_lengths;

typedef struct fa2i_case {
    fa2_problem problem;
    fa2i_layout layout;
    int32_t want_lse; /* outputs that an operation can do without are wanted */
    fa2i_pattern pattern;
    fa2i_lengths lengths;
    float q_magnitude;   /* standard deviation of Q; of other inputs it is 1 */
    float softmax_scale; /* 0: 1 / sqrt(head_dim) */
    float softcap;       /* > 0 if the problem has one */
    bool timed;          /* not judged: a bias is one for all heads, and hides nothing */
    uint64_t seed;
} fa2i_case;

/* A problem as it is timed: dense, ordinary numbers, without optional outputs. */
fa2i_case fa2i_case_of(const fa2_problem *problem, uint64_t seed);

/* Give the problem this window, if it has one; a prefix, or chunks, of as many keys as is left, or of some. */
void fa2i_case_window(fa2_problem *problem, int32_t left, int32_t right);

/* Of a problem with pages: how many a sequence has in the table; how many there are, a few more than that. */
int32_t fa2i_case_columns(const fa2_problem *problem);
int32_t fa2i_case_pages(const fa2_problem *problem);

/* Of a problem with cache rows: how many there are, a few more than sequences. */
int32_t fa2i_case_cache_rows(const fa2_problem *problem);

/* Of a case that appends: new keys of each sequence, as many as queries or, of wild ones, about half; and of one
 * that rotates: positions in the tables. */
int32_t fa2i_case_new_keys(const fa2i_case *c);
int32_t fa2i_case_positions(const fa2_problem *problem);

/* Whether a launch writes into an operand: an output, or an input that it changes. */
bool fa2i_case_is_written(const fa2i_case *c, int operand);

/* Where the elements of an operand are; elems is 0 if the case does without it. */
typedef struct fa2i_extent {
    int32_t batch, seq, heads, width;              /* width: elements of a row */
    int64_t pitch;                                 /* from one row to the next in memory */
    int64_t stride_batch, stride_seq, stride_head; /* elements */
    int64_t elems;                                 /* from the first to the end of the last row */
    size_t elem_bytes;
} fa2i_extent;

fa2i_extent fa2i_case_extent(const fa2i_case *c, int operand);
size_t fa2i_case_operand_bytes(const fa2i_case *c, int operand); /* without guards */

/* Where the bias of a query and a key is, in elements: by layout the same for all batches and heads, in
 * aligned rows; of each batch and head, its keys in the place of rows; of each batch, odd rows; the same for all
 * queries. */
typedef struct fa2i_bias_strides {
    int64_t batch, head, query, key;
} fa2i_bias_strides;

fa2i_bias_strides fa2i_case_bias(const fa2i_case *c, int operand);

/* One row of one operand. */
typedef struct fa2i_place {
    int32_t operand, batch, head, row;
} fa2i_place;

/* Its first element. */
int64_t fa2i_extent_at(const fa2i_extent *extent, int32_t batch, int32_t head, int32_t row);

/* The element at this index: the place of its row, and *ret_column, which is width or more between
 * rows. operand is not set. */
fa2i_place fa2i_extent_place(const fa2i_extent *extent, fa2i_layout layout, int64_t index,
                             int32_t *ret_column);

/* How many elements of an input repeat, and these. FA2_E_MEMORY where they are computed from others. */
size_t fa2i_case_period(const fa2i_case *c, int operand);
fa2_status fa2i_case_fill(const fa2i_case *c, int operand, void *out);

/* For fills: the first `count` elements of an operand of the dtype, nearly normal numbers of this
 * standard deviation, which repeat as those of a case without a pattern do. */
void fa2i_case_fill_normal(const fa2i_case *c, int operand, float magnitude, size_t count,
                           uint16_t *out);

/* Device memory that a case takes: operands and guards. SIZE_MAX where it is more than can be counted; nothing else
 * may be asked of such a case. */
size_t fa2i_case_bytes(const fa2i_case *c);

/* Random numbers, reproducible: the next one of a state that any seed starts (splitmix64). */
uint64_t fa2i_random(uint64_t *state);

#endif
