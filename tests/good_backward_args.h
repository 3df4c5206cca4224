/*
 * A problem of backward, and valid arguments for it.
 */
#pragma once

#include <stdint.h>
#include "fa2.h"

static const fa2_problem problem = {.struct_bytes = sizeof(fa2_problem),
                                    .op = FA2_OP_BACKWARD,
                                    .batch = 2,
                                    .heads_q = 8,
                                    .heads_kv = 2,
                                    .seq_q = 100,
                                    .seq_k = 200,
                                    .head_dim = 64};

/* [B, S, H, D], at addresses that are never read. */
static inline fa2_backward_args good_args(void)
{
    const int64_t d = problem.head_dim;
    const int64_t q_row = d * problem.heads_q, kv_row = d * problem.heads_kv;
    const fa2_tensor q = {(void *)0x1000000, q_row * problem.seq_q, q_row, d};
    const fa2_tensor k = {(void *)0x2000000, kv_row * problem.seq_k, kv_row, d};
    fa2_backward_args args = {
        .struct_bytes = sizeof(fa2_backward_args), .q = q, .k = k, .v = k, .o = q, .d_o = q, .dq = q, .dk = k, .dv = k};
    args.v.data = (void *)0x3000000;
    args.o.data = (void *)0x4000000;
    args.d_o.data = (void *)0x5000000;
    args.dq.data = (void *)0x6000000;
    args.dk.data = (void *)0x7000000;
    args.dv.data = (void *)0x8000000;
    args.lse = (const float *)0x9000000;
    return args;
}
