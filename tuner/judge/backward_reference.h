/*
 * How the reference of backward works: rows of the gradients, divided among threads. For backward_reference.c,
 * which is about dQ, dK and dV, and backward_features.c, about those of a bias and of sinks.
 */
#ifndef FA2I_BACKWARD_REFERENCE_H
#define FA2I_BACKWARD_REFERENCE_H

#include "tuner/judge/backward_data.h"

/* dQ, dK, dV: indexes of outputs; dsinks and dbias are behind them, if they are there. Of dbias errors are kept
 * behind those of the others. */
enum {
    FA2I_GRADIENTS = DSINKS - INPUTS,
    FA2I_GRADIENT_OF_BIAS = FA2I_GRADIENTS,
    FA2I_GRADIENT_KINDS
};

typedef struct fa2i_backward_work {
    const fa2i_case *c;
    fa2i_host_tensor tensors[LSE]; /* by operand */
    fa2i_features features;
    fa2i_said said;
    fa2i_extent lse_extent;
    const float *lse; /* element i is lse[i % lse_period] */
    size_t lse_period;
    double scale;
    fa2i_wanted *outputs, *dbias; /* dbias: of them; NULL: there is none */
    fa2i_extent dbias_extent;
} fa2i_backward_work;

/* One thread's share of the rows, and what it works with. */
typedef struct fa2i_backward_part {
    const fa2i_backward_work *work;
    size_t index, count;    /* of the parts */
    fa2i_sequence sequence; /* whose rows are looked at */
    /* [D] and [S, D]: q, dO and k, v, or the other way round; of dO and v [S, Dv]. */
    float *row[2], *head[2];
    int64_t at[2];       /* what is in head[]; -1: nothing */
    int64_t stats_at;    /* the plane whose statistics are in lse and delta; -1: none */
    double *lse, *delta; /* [Sq], of a plane */
    float *spare;        /* [D] */
    double *sums;        /* [4, D], plain: dK and dV, and those of one query head */
    double *squares;     /* [2, D], of dK and dV, or of dQ */
    double plain_error[FA2I_GRADIENT_KINDS], largest[FA2I_GRADIENT_KINDS];
    double tanh_error[FA2I_GRADIENT_KINDS];
    double *scores; /* [2, S], of a row of dbias: plain sums, squares of what their terms are off */
} fa2i_backward_part;

/* What a query and a key add with: P, dS and what dS is behind a cap, exact and plain. */
typedef struct fa2i_backward_weights {
    double p, ds, behind, plain_p, plain_ds, plain_behind;
    double off_p, off_ds, off_behind; /* as far as a kernel's tanh may take them; 0 without a cap */
} fa2i_backward_weights;

/* Q and dO of a query, K and V of a key. */
static const int fa2i_of_query[] = {Q, DO}, fa2i_of_key[] = {K, V};

/* LSE and delta of a row; d_o: its dO. */
void fa2i_backward_read_statistics(fa2i_backward_part *p, int32_t batch, int32_t head, int32_t row,
                                   const float *d_o, double *ret_lse, double *ret_delta);

/* at: the query, with its head and batch. */
fa2i_backward_weights fa2i_backward_weigh(const fa2i_backward_part *of, fa2i_row at, int32_t key,
                                          const float *q, const float *d_o, const float *k,
                                          const float *v, double lse, double delta);

/* So many numbers of a gradient are complete. squares: of what their terms are off. */
void fa2i_backward_note(fa2i_backward_part *p, int gradient, int width, const double *exact,
                        const double *plain, const double *squares, bool is_rounded);

/* A row of the two tensors into p->row; heads of the others, of the sequence, into p->head. The second ones have
 * the columns of values. */
void fa2i_backward_read_rows(fa2i_backward_part *p, const int rows[2], int32_t row_head,
                             int32_t row, const int heads[2], int32_t head);

/* Row index of the gradient of a bias. */
void fa2i_backward_bias_row(fa2i_backward_part *p, size_t index);

/* The gradient of sinks, which are few: by one thread. p: with room for rows. */
fa2_status fa2i_backward_sink_gradients(fa2i_backward_part *p, fa2i_wanted *wanted);

#endif
