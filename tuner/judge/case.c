/*
 * Extents and data of cases.
 */
#include "tuner/judge/case.h"
#include "tuner/judge/reference.h"

uint64_t fa2i_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

fa2i_extent fa2i_case_extent(const fa2i_case *c, fa2i_operand operand)
{
    const fa2_problem *p = &c->problem;
    bool of_query = operand == FA2I_OPERAND_Q || operand == FA2I_OPERAND_O;
    int64_t heads = of_query ? p->heads_q : p->heads_kv;
    int64_t seq = of_query ? p->seq_q : p->seq_k;
    int64_t row = p->head_dim + (c->layout == FA2I_LAYOUT_GAPPED ? 8 : 0);
    fa2i_extent extent = {.stride_batch = seq * heads * row, .elems = p->batch * seq * heads * row};
    if (c->layout == FA2I_LAYOUT_BHSD) {
        extent.stride_seq = row;
        extent.stride_head = seq * row;
    } else {
        extent.stride_seq = heads * row;
        extent.stride_head = row;
    }
    return extent;
}

size_t fa2i_case_fill(const fa2i_case *c, fa2i_operand operand, uint16_t *out)
{
    int64_t elems = fa2i_case_extent(c, operand).elems;
    size_t count = (size_t)(elems < FA2I_CASE_PERIOD ? elems : FA2I_CASE_PERIOD);
    uint64_t state = c->seed + (uint64_t)operand * 0x632be59bd9b4e019u;
    /* The sum of four uniform 16-bit numbers has this standard deviation. */
    float scale = (operand == FA2I_OPERAND_Q ? c->q_magnitude : 1.0f) / 37837.2f;
    for (size_t i = 0; i < count; i++) {
        uint64_t r = fa2i_random(&state);
        int32_t sum = (int32_t)((r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) + (r >> 48));
        out[i] = fa2i_to_bits(c->problem.dtype, (float)(sum - 131070) * scale);
    }
    return count;
}

size_t fa2i_case_bytes(const fa2i_case *c)
{
    size_t bytes = 0;
    for (fa2i_operand operand = FA2I_OPERAND_Q; operand <= FA2I_OPERAND_O; operand++)
        bytes += (size_t)fa2i_case_extent(c, operand).elems * sizeof(uint16_t);
    const fa2_problem *p = &c->problem;
    if (c->want_lse)
        bytes += (size_t)p->batch * (size_t)p->heads_q * (size_t)p->seq_q * sizeof(float);
    return bytes + 4 * (size_t)FA2I_GUARD_BYTES;
}
