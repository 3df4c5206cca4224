/*
 * A problem for a backward kernel on the software device: its tensors with random numbers, the fp64 gradients, and the
 * gradients of a plain implementation in the dtype. Ends the process if there is no memory.
 */
#pragma once

#include "runtime/base/record.h"
#include "tests/sim/must.h"

enum { Q, K, V, O, DO, INPUTS, DQ = INPUTS, DK, DV, TENSORS };

typedef struct shape {
    int batch, heads_q, heads_kv, seq_q, seq_k;
    int layout;      /* 0: [B, S, H, D]; 1: [B, H, S, D]; 2: gaps everywhere */
    float size;      /* standard deviation of the logits */
    int unwanted;    /* bit i: gradient i is not wanted */
    int left, right; /* for variants with a window */
} shape;

typedef struct tuning {
    fa2i_variant variant;
    fa2_dtype dtype;
    int d, causal, window, softcap, deterministic, br, bc;
} tuning;

typedef struct host_tensor {
    int heads, seq;
    size_t elems;     /* including gaps */
    fa2_tensor place; /* strides */
    uint16_t *data;
    double *exact, *plain; /* gradients: [B, heads, seq, D] */
} host_tensor;

typedef struct work {
    const tuning *t;
    shape s;
    fa2_problem problem;
    float softcap; /* 0: none */
    host_tensor tensor[TENSORS];
    float *lse;
} work;

void *must_alloc(size_t count, size_t bytes);

/* The caller owns *ret_work (free_work). t is borrowed, s is copied. */
void make_work(work *ret_work, const tuning *t, const shape *s, uint64_t seed);
void free_work(work *w);

/* Return the first element of a row of a tensor; of a row of its gradients. */
size_t row_offset(const host_tensor *x, int b, int h, int i);
double *row_of(double *rows, const work *w, const host_tensor *x, int b, int h, int i);

/* Rounds a number to the dtype. */
double round_to(fa2_dtype dtype, double x);
