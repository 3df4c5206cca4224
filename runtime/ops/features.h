/*
 * What is read from device memory beside the tensors or acts on P, for every operation that has it: ALiBi's
 * slopes, sinks, a bias or mask, dropout, lengths. Their arguments, and what kernels are told of them.
 *
 * Pure; thread-safe. Errors: FA2_E_INVALID naming argument and limit.
 */
#ifndef FA2I_OPS_FEATURES_H
#define FA2I_OPS_FEATURES_H

#include "runtime/ops/memory.h"
#include "runtime/ops/param_kinds.h"

/* The end of a parameter block. */
typedef struct fa2i_feature_params {
#include "templates/features/params.def"
} fa2i_feature_params;

/* Of a call, borrowed; what the problem does not ask for is never read. */
typedef struct fa2i_feature_args {
    const fa2_alibi *alibi;
    const float *const *sinks;
    const fa2_bias_tensor *bias;
    const fa2_dropout *dropout;
    const int32_t *const *seqused_k;
    const int32_t *const *cu_seqlens_q;
    const int32_t *const *cu_seqlens_k;
    const int32_t *const *block_table;
    const int64_t *block_table_stride;
    const int32_t *page_count;
    const fa2_tensor *k, *v; /* where they lie in pages */
    const int32_t *const *leftpad;
    const int32_t *const *cache_rows;
    const int32_t *cache_row_count;
    const fa2_append *append;
    const fa2_rotary_tables *rotary;
} fa2i_feature_args;

/* Whether a problem asks for any of them. */
bool fa2i_features_asked(const fa2_problem *problem);

/* scale: of scores in the exponent. What is read of memory shares no byte with these outputs. */
fa2_status fa2i_features_check(const fa2_problem *problem, const fa2i_feature_args *args,
                               double scale, const fa2i_memory *const *outputs, int output_count);

/* By itself: its probability, its pointers. */
fa2_status fa2i_dropout_check(const fa2_dropout *dropout);

/* Whether a bias in 16 bits is read number by number: no two neighbours of each row are side by side, aligned. */
bool fa2i_bias_is_scattered(const fa2_problem *problem, const fa2_bias_tensor *bias);

/* The memory of the gradient of a bias, which a problem has. */
fa2_status fa2i_bias_gradient_locate(const fa2_problem *problem, const fa2_bias_gradient *dbias,
                                     fa2i_memory *ret_memory);
void fa2i_bias_gradient_fill(const fa2_problem *problem, const fa2_bias_gradient *dbias,
                             fa2i_feature_params *params);

/* The softmax scale that kernels of both passes compute with. Where numbers of bf16 are added to scores, the nearest
 * whose inverse is the sum of two such numbers, at most 2^-17 of it away: so products with these two are a bias exactly
 * (templates/hopper/bias_tiles.cuh), and it is products of Q and K that are off by so little. Else the scale itself. */
double fa2i_features_scale(const fa2_problem *problem, double scale);

/* Of arguments that were checked. */
void fa2i_features_fill(const fa2_problem *problem, const fa2i_feature_args *args, double scale,
                        fa2i_feature_params *ret_params);

#endif
