/*
 * Features that all operations share: ALiBi's slopes, sinks, a bias or mask, dropout, lengths. They are read from
 * device memory beside the tensors, or act on P. This file has their arguments and their kernel parameters.
 *
 * Pure functions; thread-safe. Errors: FA2_E_INVALID naming argument and limit.
 */
#ifndef FA2I_OPS_FEATURES_H
#define FA2I_OPS_FEATURES_H

#include "runtime/ops/memory.h"
#include "runtime/ops/param_kinds.h"

/* The end of a parameter block. */
typedef struct fa2i_feature_params {
#include "templates/features/params.def"
} fa2i_feature_params;

/* The operands of features in a call; borrowed. Operands that the problem does not ask for are never read. */
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
    const fa2_tensor *k, *v; /* for caches in pages */
    const int32_t *const *leftpad;
    const int32_t *const *cache_rows;
    const int32_t *cache_row_count;
    const fa2_append *append;
    const fa2_rotary_tables *rotary;
} fa2i_feature_args;

/* Returns whether a problem asks for any feature. */
bool fa2i_features_asked(const fa2_problem *problem);

/* Checks the features' arguments. scale: the factor of scores in the exponent. Memory that features read shares no byte
 * with these outputs. */
fa2_status fa2i_features_check(const fa2_problem *problem, const fa2i_feature_args *args,
                               double scale, const fa2i_memory *const *outputs, int output_count);

/* Checks probability and pointers of dropout alone. */
fa2_status fa2i_dropout_check(const fa2_dropout *dropout);

/* Returns whether a 16-bit bias must be read number by number, because no row consists of aligned pairs. */
bool fa2i_bias_is_scattered(const fa2_problem *problem, const fa2_bias_tensor *bias);

/* Locates the gradient of a bias, which the problem has. */
fa2_status fa2i_bias_gradient_locate(const fa2_problem *problem, const fa2_bias_gradient *dbias,
                                     fa2i_memory *ret_memory);
void fa2i_bias_gradient_fill(const fa2_problem *problem, const fa2_bias_gradient *dbias,
                             fa2i_feature_params *params);

/* The softmax scale that kernels of both passes compute with. Where numbers of bf16 are added to scores, the nearest
 * whose inverse is the sum of two such numbers, at most 2^-17 of it away: so products with these two are a bias exactly
 * (templates/hopper/bias_tiles.cuh), and it is products of Q and K that are off by so little. Else the scale itself. */
double fa2i_features_scale(const fa2_problem *problem, double scale);

/* Fills the parameters from arguments that were checked. */
void fa2i_features_fill(const fa2_problem *problem, const fa2i_feature_args *args, double scale,
                        fa2i_feature_params *ret_params);

#endif
