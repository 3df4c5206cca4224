/*
 * Members of a parameter block for the run time, by their kind in params.def. Device pointers are numbers here. Include
 * this before a params.def. FA2I_FEATURE_PARAM members are ordinary members here.
 */
#pragma once

#include <stdint.h>
#include "fa2.h"

#define FA2I_PARAM_INPUT(name)         uint64_t name;
#define FA2I_PARAM_OUTPUT(name)        uint64_t name;
#define FA2I_PARAM_FLOATS(name)        uint64_t name;
#define FA2I_PARAM_INTS(name)          uint64_t name;
#define FA2I_PARAM_STRIDES(name)       int64_t name[3];
#define FA2I_PARAM_FLOAT(name)         float name;
#define FA2I_PARAM_INT(name)           int32_t name;
#define FA2I_PARAM_INT64(name)         int64_t name;
#define FA2I_PARAM_INT64S(name)        uint64_t name;
#define FA2I_PARAM_STEPS(name)         uint32_t name[3];
#define FA2I_PARAM(kind, name)         FA2I_PARAM_##kind(name)
#define FA2I_FEATURE_PARAM(kind, name) FA2I_PARAM_##kind(name)
#define FA2I_KV_PARAM(kind, name)      FA2I_PARAM_##kind(name)
#define FA2I_CARRY_PARAM(kind, name)   FA2I_PARAM_##kind(name)
#define FA2I_DROPOUT_PARAM(kind, name) FA2I_PARAM_##kind(name)

/* Fills a STRIDES member from a tensor. */
static inline void fa2i_param_strides(const fa2_tensor *tensor, int64_t out[3])
{
    out[0] = tensor->stride_batch;
    out[1] = tensor->stride_seq;
    out[2] = tensor->stride_head;
}
