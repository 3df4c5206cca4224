/*
 * An operand's memory is rows at strides, like a tensor's. So the same arithmetic refuses operands that share bytes
 * with an output. The dimensions without a stride make the row. If all dimensions have one, the last makes it.
 */
#include "runtime/ops/operands.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/ops/forward.h"

/* The letters of shapes. */
enum {
    Kb = FA2I_DIM_Kb,
    Kr = FA2I_DIM_Kr,
    Qb = FA2I_DIM_Qb,
    Qr = FA2I_DIM_Qr,
    B = FA2I_DIM_B,
    B1 = FA2I_DIM_B1,
    Hq = FA2I_DIM_Hq,
    Hkv = FA2I_DIM_Hkv,
    Sq = FA2I_DIM_Sq,
    Sk = FA2I_DIM_Sk,
    D = FA2I_DIM_D,
    Dv = FA2I_DIM_Dv,
    N = FA2I_DIM_N,
    P = FA2I_DIM_P,
    R = FA2I_DIM_R,
    R2 = FA2I_DIM_R2,
    One = FA2I_DIM_One
};

#define SHAPE(...)                                                                                                     \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define RANK(...) (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int))
#define AT_FORWARD(member)                                                                                             \
    {                                                                                                                  \
        offsetof(fa2_forward_args, member), -1, -1                                                                     \
    }
#define AT_BACKWARD(member)                                                                                            \
    {                                                                                                                  \
        -1, offsetof(fa2_backward_args, member), -1                                                                    \
    }
#define AT_BOTH(member)                                                                                                \
    {                                                                                                                  \
        offsetof(fa2_forward_args, member), offsetof(fa2_backward_args, member), -1                                    \
    }

const fa2i_operand_line fa2i_operands[FA2I_OPERAND_COUNT] = {
#define FA2I_OPERAND(id_, name_, member_, elem_, shape_, strides_, field_, ops_, access_, keyword_)                    \
    [FA2I_OPERAND_##id_] = {.name = (name_),                                                                           \
                            .member = #member_,                                                                        \
                            .elem = FA2I_ELEM_##elem_,                                                                 \
                            .shape = SHAPE shape_,                                                                     \
                            .rank = RANK shape_,                                                                       \
                            .strides = (strides_),                                                                     \
                            .field = FA2I_FIELD_##field_,                                                              \
                            .access = FA2I_ACCESS_##access_,                                                           \
                            .at = AT_##ops_(member_),                                                                  \
                            .param = offsetof(fa2i_feature_params, id_)},
#include "runtime/ops/operands.def"
};

_Static_assert(FA2I_OPERAND_COUNT <= 32, "a bit for each");

/* Returns whether b comes next after the pointer a. */
#define FOLLOWS(type, a, b) (offsetof(type, b) == offsetof(type, a) + sizeof(uint64_t))
_Static_assert(FOLLOWS(fa2_alibi, slopes, stride_batch) && FOLLOWS(fa2_bias_tensor, data, stride_batch) &&
                   FOLLOWS(fa2_bias_gradient, data, stride_batch) && FOLLOWS(fa2_tensor, data, stride_batch) &&
                   FOLLOWS(fa2_forward_args, block_table, block_table_stride) &&
                   FOLLOWS(fa2_kv_scales, data, stride_batch) &&
                   FOLLOWS(fa2i_feature_params, k_scale, k_scale_stride) &&
                   FOLLOWS(fa2i_feature_params, v_scale, v_scale_stride) &&
                   FOLLOWS(fa2i_feature_params, carried, carried_stride) &&
                   FOLLOWS(fa2i_feature_params, alibi_slopes, alibi_stride) &&
                   FOLLOWS(fa2i_feature_params, bias, bias_batch) && FOLLOWS(fa2i_feature_params, dbias, dbias_batch) &&
                   FOLLOWS(fa2i_feature_params, block_table, table_stride),
               "strides follow the pointer");

uint32_t fa2i_operands_asked(const fa2_problem *problem)
{
    enum { FORWARD = 1 << FA2_OP_FORWARD, BACKWARD = 1 << FA2_OP_BACKWARD, BOTH = FORWARD | BACKWARD };
    const unsigned op = 1U << problem->op;
    uint32_t asked = 0;
#define FA2I_OPERAND(id, name, member, elem, shape, strides, field, ops, ...)                                          \
    asked |= (uint32_t)(problem->field != 0 && (op & ops) != 0) << FA2I_OPERAND_##id;
#include "runtime/ops/operands.def"
    if (!fa2i_bias_has_gradient(problem->bias))
        asked &= ~(UINT32_C(1) << FA2I_OPERAND_dbias);
    if (problem->v_in_k)
        asked &= ~(UINT32_C(1) << FA2I_OPERAND_new_v);
    return asked;
}

/* ---- argument structs ---- */

const void *fa2i_operand_data(fa2_op op, const void *args, int operand)
{
    const int at = fa2i_operands[operand].at[op];
    return at < 0 ? NULL : *(const void *const *)((const char *)args + at);
}

const int64_t *fa2i_operand_strides(fa2_op op, const void *args, int operand)
{
    return (const int64_t *)((const char *)args + fa2i_operands[operand].at[op] + sizeof(void *));
}

void fa2i_operand_put(fa2_op op, void *args, int operand, const void *data, const int64_t *strides)
{
    const fa2i_operand_line *o = &fa2i_operands[operand];
    char *at = (char *)args + o->at[op];
    if (o->at[op] < 0)
        return;
    memcpy(at, &data, sizeof data);
    memcpy(at + sizeof data, strides, (size_t)o->strides * sizeof *strides);
}

/* ---- memory ---- */

size_t fa2i_operand_elem_bytes(const fa2_problem *problem, int operand)
{
    static const size_t of_bias[] = {
        [FA2_BIAS_FP16] = 2, [FA2_BIAS_BF16] = 2, [FA2_BIAS_FP32] = 4, [FA2_BIAS_BOOL] = 1};
    static const size_t bytes[] = {[FA2I_ELEM_FP32] = 4, [FA2I_ELEM_INT32] = 4, [FA2I_ELEM_UINT64] = 8};
    const fa2i_elem elem = fa2i_operands[operand].elem;
    if (elem == FA2I_ELEM_DTYPE)
        return (size_t)fa2i_elem_bytes(problem->dtype);
    if (elem == FA2I_ELEM_SCALE)
        return fa2i_scale_bytes(problem);
    return elem == FA2I_ELEM_BIAS ? of_bias[fa2i_bias_type(problem->bias)] : bytes[elem];
}

/* Returns the batches of K in memory. */
static int64_t key_batches(const fa2_problem *p, const fa2_forward_args *args)
{
    return p->paged ? args->page_count : p->varlen ? 1 : p->cache_rows ? args->cache_row_count : p->batch;
}

/* Returns the rows of such a batch. */
static int64_t key_rows(const fa2_problem *p)
{
    return p->paged ? fa2i_forward_page(p) : p->varlen ? fa2i_forward_total_k(p) : p->seq_k;
}

/* Returns the extent of a dimension. Only forward has new keys, pages and rotary tables. */
static int64_t extent_of(const fa2_problem *p, const void *args, int dim)
{
    const fa2_forward_args *forward = args;
    switch (dim) {
    case FA2I_DIM_Kb:
        return key_batches(p, forward);
    case FA2I_DIM_Kr:
        return key_rows(p);
    case FA2I_DIM_Qb:
        return p->varlen ? 1 : p->batch;
    case FA2I_DIM_Qr:
        return p->varlen ? fa2i_forward_total_q(p) : p->seq_q;
    case FA2I_DIM_B:
        return p->batch;
    case FA2I_DIM_B1:
        return (int64_t)p->batch + 1;
    case FA2I_DIM_Hq:
        return p->heads_q;
    case FA2I_DIM_Hkv:
        return p->heads_kv;
    case FA2I_DIM_Sq:
        return p->seq_q;
    case FA2I_DIM_Sk:
        return p->seq_k;
    case FA2I_DIM_D:
        return p->head_dim;
    case FA2I_DIM_Dv:
        return fa2i_head_dim_v(p);
    case FA2I_DIM_N:
        return forward->append.seq;
    case FA2I_DIM_P:
        return ((int64_t)p->seq_k + fa2i_forward_page(p) - 1) / fa2i_forward_page(p);
    case FA2I_DIM_R:
        return forward->rotary.rows;
    case FA2I_DIM_R2:
        return p->rotary_dim / 2;
    default: /* One, and what a shape does not have */
        return 1;
    }
}

static void find_extents(const fa2_problem *p, const void *args, int operand, int64_t ret_extents[FA2I_OPERAND_RANK])
{
    for (int i = 0; i < fa2i_operands[operand].rank; i++)
        ret_extents[i] = extent_of(p, args, fa2i_operands[operand].shape[i]);
}

const char *fa2i_operand_stride_name(int operand, int dimension, char out[FA2I_STRIDE_CHARS])
{
    static const char *const names[] = {[Kb] = "batch", [Kr] = "seq", [B] = "batch", [Hq] = "head",  [Hkv] = "head",
                                        [Sq] = "query", [Sk] = "key", [N] = "seq",   [Qb] = "batch", [Qr] = "seq"};
    const fa2i_operand_line *o = &fa2i_operands[operand];
    const char *dot = strrchr(o->member, '.');
    if (dot != NULL)
        snprintf(out, FA2I_STRIDE_CHARS, "%.*s.stride_%s", (int)(dot - o->member), o->member,
                 names[o->shape[dimension]]);
    else
        snprintf(out, FA2I_STRIDE_CHARS, "%s_stride", o->member);
    return out;
}

/* Computes the bytes from the first to the last element of a dimension. If its extent is 1, the stride may be
 * anything. */
static fa2_status find_reach(int operand, int dimension, int64_t stride, int64_t extent, int64_t elem_bytes,
                             int64_t *ret_reach)
{
    const int64_t most = extent > 1 ? FA2I_ADDRESS_END / 8 / elem_bytes / (extent - 1) : INT64_MAX;
    char name[FA2I_STRIDE_CHARS];
    *ret_reach = 0;
    if (extent > 1 && (stride < 0 || stride > most))
        return fa2i_fail(FA2_E_INVALID, "%s is %lld; with an extent of %lld it must be from 0 to %lld",
                         fa2i_operand_stride_name(operand, dimension, name), (long long)stride, (long long)extent,
                         (long long)most);
    if (extent > 1)
        *ret_reach = stride * elem_bytes * (extent - 1);
    return FA2_OK;
}

/* Locates a fa2_tensor. Packed ones have one batch of as many rows as Q. */
static fa2_status locate_tensor(const fa2_problem *p, const void *args, int operand, fa2i_memory *m)
{
    const fa2i_operand_line *o = &fa2i_operands[operand];
    const fa2_tensor *tensor = (const fa2_tensor *)(const void *)((const char *)args + o->at[p->op]);
    int64_t e[FA2I_OPERAND_RANK];
    find_extents(p, args, operand, e);
    const int32_t extents[] = {p->varlen ? 1 : (int32_t)e[0], p->varlen ? fa2i_forward_total_q(p) : (int32_t)e[1],
                               (int32_t)e[2]};
    return fa2i_memory_of_rows(o->name, tensor, extents, (int32_t)e[3], (int32_t)fa2i_operand_elem_bytes(p, operand),
                               NULL, m);
}

static fa2_status locate_array(const fa2_problem *p, const void *args, int operand, fa2i_memory *m)
{
    enum { DTYPE_ALIGN_BYTES = 16 };
    const fa2i_operand_line *o = &fa2i_operands[operand];
    const int64_t elem_bytes = (int64_t)fa2i_operand_elem_bytes(p, operand), *strides = NULL;
    const size_t align = o->elem == FA2I_ELEM_DTYPE ? DTYPE_ALIGN_BYTES : (size_t)elem_bytes;
    int64_t extents[FA2I_OPERAND_RANK], reaches[FA2I_OPERAND_RANK], row = elem_bytes, end;
    fa2_status st = FA2_OK;
    find_extents(p, args, operand, extents);
    strides = fa2i_operand_strides(p->op, args, operand);
    for (int i = o->strides; i < o->rank; i++)
        row *= extents[i];
    end = row;
    for (int i = 0; i < o->strides; i++) {
        FA2_TRY(find_reach(operand, i, strides[i], extents[i], elem_bytes, &reaches[i]));
        end += reaches[i];
    }
    FA2_TRY(fa2i_memory_of_array(o->member, fa2i_operand_data(p->op, args, operand), (size_t)end, align, m));
    m->name = o->name;
    const bool in_rows = o->strides == o->rank && o->rank == FA2I_OPERAND_RANK; /* the last dimension makes the row */
    m->row_bytes = in_rows ? row + reaches[o->rank - 1] : row;
    for (int i = 0; i < o->strides && i < FA2I_OPERAND_RANK - 1; i++) {
        const int at = o->shape[i] == B || o->shape[i] == Kb || o->shape[i] == Qb ? 0
                       : o->shape[i] == Hq || o->shape[i] == Hkv                  ? 2
                                                                                  : 1;
        m->extents[at] = (int32_t)extents[i];
        m->strides[at] = extents[i] > 1 ? strides[i] * elem_bytes : 0;
    }
done:
    return st;
}

fa2_status fa2i_operand_locate(const fa2_problem *problem, const void *args, int operand, fa2i_memory *ret_memory)
{
    const fa2i_operand_line *o = &fa2i_operands[operand];
    if (o->rank == FA2I_OPERAND_RANK && o->strides == FA2I_OPERAND_RANK - 1)
        return locate_tensor(problem, args, operand, ret_memory);
    if (fa2i_operand_data(problem->op, args, operand) != NULL)
        return locate_array(problem, args, operand, ret_memory);
    *ret_memory = (fa2i_memory){.name = o->name};
    if (o->access == FA2I_ACCESS_MAY_READ || o->access == FA2I_ACCESS_MAY_WRITE)
        return FA2_OK;
    const int32_t value = fa2i_field_get(problem, o->field);
    const char *word = fa2i_field_word(o->field, value);
    return fa2i_fail(FA2_E_INVALID, "%s is NULL, but problem.%s is %s", o->member, fa2i_fields[o->field].name,
                     word != NULL ? word : "1");
}

/* ---- kernels' parameters ---- */

void fa2i_operands_fill(const fa2_problem *problem, const void *args, fa2i_feature_params *params)
{
    const uint32_t asked = fa2i_operands_asked(problem);
    for (int i = 0; asked >> i != 0; i++) {
        const fa2i_operand_line *o = &fa2i_operands[i];
        if ((asked >> i & 1) == 0)
            continue;
        const uint64_t address = (uintptr_t)fa2i_operand_data(problem->op, args, i);
        char *at = (char *)params + o->param;
        memcpy(at, &address, sizeof address);
        for (int j = 0; j < o->strides && o->elem != FA2I_ELEM_DTYPE; j++) {
            const int64_t *stride = fa2i_operand_strides(problem->op, args, i) + j;
            const int64_t used = extent_of(problem, args, o->shape[j]) > 1 ? *stride : 0;
            memcpy(at + sizeof address + (size_t)j * sizeof used, &used, sizeof used);
        }
    }
}
