/*
 * Attention and its gradients on the CPU in double precision. fp16 numbers are converted by hand, so the compiler need
 * not support fp16.
 *
 * All tensors are contiguous, [batch, seq, heads, head_dim].
 */
#pragma once

#include <stdint.h>
#include <fa2.h>

double half_to_double(uint16_t half);

/* Returns a random number, uniform in [-1, 1) and exact in fp16. state is a seed, and is advanced. */
uint16_t half_random(uint64_t *state);

/* Computes one output row: query row i of batch b and head h. softcap: as in fa2_forward_args. out has head_dim
 * elements. scores has room for seq_k. */
void reference_row(const fa2_problem *problem, double softcap, const uint16_t *q, const uint16_t *k, const uint16_t *v,
                   int b, int h, int i, double *scores, double *out);

/* Computes the gradients of one head of one batch. The problem has as many key heads as query heads. dq is [seq_q,
 * head_dim]; dk and dv are [seq_k, head_dim]. Returns -1 if out of memory. */
int reference_gradients(const fa2_problem *problem, double softcap, const uint16_t *q, const uint16_t *k,
                        const uint16_t *v, const uint16_t *d_o, int b, int h, double *dq, double *dk, double *dv);
