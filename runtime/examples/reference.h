/*
 * Attention and its gradients on the CPU in double precision, and fp16 without a compiler that knows it.
 *
 * Layout everywhere: [batch, seq, heads, head_dim], contiguous.
 */
#ifndef EXAMPLE_REFERENCE_H
#define EXAMPLE_REFERENCE_H

#include <stdint.h>
#include <fa2.h>

double half_to_double(uint16_t half);

/* Uniform in [-1, 1), exact in fp16. state is a seed and is advanced. */
uint16_t half_random(uint64_t *state);

/* One output row: query row i of batch b and head h. softcap: as in fa2_forward_args. out has head_dim
 * elements. scores has room for seq_k. */
void reference_row(const fa2_problem *problem, double softcap, const uint16_t *q, const uint16_t *k,
                   const uint16_t *v, int b, int h, int i, double *scores, double *out);

/* The gradients of one head of one batch, of a problem with as many heads of keys as of queries: dq
 * [seq_q, head_dim], dk and dv [seq_k, head_dim]. -1: no memory. */
int reference_gradients(const fa2_problem *problem, double softcap, const uint16_t *q,
                        const uint16_t *k, const uint16_t *v, const uint16_t *d_o, int b, int h,
                        double *dq, double *dk, double *dv);

#endif
