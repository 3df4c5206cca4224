/*
 * How the reference of backward works: the rows of the gradients are divided among threads. For backward_reference.c
 * (dQ, dK, dV) and backward_features.c (the gradients of operands of features).
 */
#pragma once

#include "tuner/judge/backward_data.h"

/* Indexes of outputs: dQ, dK and dV come first; dsinks and dbias follow if the case has them. The errors of dbias have
 * the index after these three. */
enum { FA2I_GRADIENTS = FEATURES - INPUTS, FA2I_GRADIENT_OF_BIAS = FA2I_GRADIENTS, FA2I_GRADIENT_KINDS };

typedef struct fa2i_backward_work {
    const fa2i_case *c;
    fa2i_host_tensor tensors[LSE]; /* by operand */
    fa2i_features features;
    fa2i_said said;
    fa2i_extent lse_extent;
    const float *lse; /* element i is lse[i % lse_period] */
    size_t lse_period;
    double scale;
    fa2i_wanted *outputs, *dbias; /* dbias: points into outputs; NULL: the case has none */
    fa2i_extent dbias_extent;
} fa2i_backward_work;

/* One thread's share of the rows, and its buffers. */
typedef struct fa2i_backward_part {
    const fa2i_backward_work *work;
    size_t index, count;    /* index of this part, number of parts */
    fa2i_sequence sequence; /* the sequence of the present row */
    /* [D] and [S, D]: rows of Q and dO with heads of K and V, or the other way round. dO and V have Dv columns. */
    float *row[2], *head[2];
    int64_t at[2];       /* which rows head[] holds; -1: none */
    int64_t stats_at;    /* the (sequence, head) whose statistics are in lse and delta; -1: none */
    double *lse, *delta; /* [Sq], of one head */
    float *spare;        /* [D] */
    double *sums;        /* [4, D], of the plain implementation: dK and dV, then the same of one query head */
    double *squares;     /* [2, D], squared errors of dK and dV, or of dQ */
    double plain_error[FA2I_GRADIENT_KINDS], largest[FA2I_GRADIENT_KINDS];
    double tanh_error[FA2I_GRADIENT_KINDS];
    double *scores; /* [2, S], for a row of dbias: plain sums, then sums of the squared errors of their terms */
} fa2i_backward_part;

/* The weights that one query and one key contribute: P, dS, and `capped_ds`, which is dS before the derivative of the cap.
 * Each exact, and by the plain implementation. */
typedef struct fa2i_backward_weights {
    double p, ds, capped_ds, plain_p, plain_ds, plain_capped_ds;
    double off_p, off_ds, off_capped_ds; /* the most that a kernel's tanh may change them; 0 without a cap */
} fa2i_backward_weights;

/* Q and dO belong to a query, K and V to a key. */
static const int fa2i_of_query[] = {Q, DO}, fa2i_of_key[] = {K, V};

/* Reads the row's LSE and computes its delta. d_o: its dO. */
void fa2i_backward_read_statistics(fa2i_backward_part *p, int32_t batch, int32_t head, int32_t row, const float *d_o,
                                   double *ret_lse, double *ret_delta);

/* Computes the weights. at: the query, with its head and batch. */
fa2i_backward_weights fa2i_backward_weigh(const fa2i_backward_part *of, fa2i_row at, int32_t key, const float *q,
                                          const float *d_o, const float *k, const float *v, double lse, double delta);

/* Records the errors of `width` numbers of a gradient that are complete. squares: the squared errors of their terms. */
void fa2i_backward_note(fa2i_backward_part *p, int gradient, int width, const double *exact, const double *plain,
                        const double *squares, bool is_rounded);

/* Loads one row of each of the two tensors `rows` into p->row, and a head of the sequence of each of the two tensors
 * `heads` into p->head. The second of each pair has the columns of V. */
void fa2i_backward_read_rows(fa2i_backward_part *p, const int rows[2], int32_t row_head, int32_t row,
                             const int heads[2], int32_t head);

/* Computes row `index` of the gradient of a bias. */
void fa2i_backward_bias_row(fa2i_backward_part *p, size_t index);

/* Computes dsinks in one thread, because there are few. p must have room for rows. */
fa2_status fa2i_backward_sink_gradients(fa2i_backward_part *p, fa2i_wanted *wanted);
