/*
 * A problem for a backward kernel on the software device: its tensors with random numbers, the fp64 gradients,
 * and those of a plain implementation in the dtype. Ends the process where there is no memory.
 */
#ifndef FA2_SIM_BACKWARD_WORK_H
#define FA2_SIM_BACKWARD_WORK_H

#include "runtime/base/record.h"
#include "tests/sim/must.h"

enum { Q, K, V, O, DO, INPUTS, DQ = INPUTS, DK, DV, TENSORS };

typedef struct shape {
    int batch, heads_q, heads_kv, seq_q, seq_k;
    int layout;      /* 0: [B, S, H, D]; 1: [B, H, S, D]; 2: gaps everywhere */
    float size;      /* of the logits */
    int unwanted;    /* bit i: gradient i is not wanted */
    int left, right; /* of variants with a window */
} shape;

typedef struct tuning {
    fa2i_variant variant;
    fa2_dtype dtype;
    int d, causal, window, softcap, deterministic, br, bc;
} tuning;

typedef struct host_tensor {
    int heads, seq;
    size_t elems;     /* with gaps */
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

/* *ret_work is the caller's (free_work); t and s: borrowed and copied. */
void make_work(work *ret_work, const tuning *t, const shape *s, uint64_t seed);
void free_work(work *w);

/* The first element of a row of a tensor; a row of its gradients. */
size_t row_offset(const host_tensor *x, int b, int h, int i);
double *row_of(double *rows, const work *w, const host_tensor *x, int b, int h, int i);

/* As the dtype has it. */
double round_to(fa2_dtype dtype, double x);

#endif
