/*
 * Checks fa2_forward's arguments.
 *
 * fa2_forward checks them at each call, so the check must cost much less than a launch. Therefore a quick check without
 * a branch for each member comes first. It passes usual correct calls, and nothing that is wrong. Calls that it does
 * not pass are checked member by member, and may well be correct: strides that are never used, tensors that lie between
 * each other's rows.
 */
#include "runtime/base/status.h"
#include "runtime/ops/call.h"
#include "runtime/ops/forward.h"

typedef struct operands {
    fa2i_memory q, k, v, o, lse, workspace, k_scale, v_scale; /* scales: if they are written */
} operands;

static fa2_status locate_tensors(const fa2_problem *p, const fa2_forward_args *args, operands *m)
{
    const int32_t of_query[] = {p->varlen ? 1 : p->batch, p->varlen ? fa2i_forward_total_q(p) : p->seq_q, p->heads_q};
    int32_t of_key[] = {p->batch, p->seq_k, p->heads_kv};
    if (p->paged) {
        of_key[0] = args->page_count > 0 ? args->page_count : 1; /* checked with the table */
        of_key[1] = fa2i_forward_page(p);
    } else if (p->varlen) {
        of_key[0] = 1;
        of_key[1] = fa2i_forward_total_k(p);
    } else if (p->cache_rows) {
        of_key[0] = args->cache_row_count > 0 ? args->cache_row_count : 1; /* checked with the rows */
    }
    const int32_t key_bytes = fa2i_key_bytes(p);
    const char *writer = p->append ? "append" : NULL;
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_memory_of_tensor(p->dtype, "q", &args->q, of_query, p->head_dim, &m->q));
    FA2_TRY(fa2i_memory_of_rows("k", &args->k, of_key, p->head_dim, key_bytes, writer, &m->k));
    if (p->v_in_k)
        m->v = m->k;
    else
        FA2_TRY(fa2i_memory_of_rows("v", &args->v, of_key, fa2i_head_dim_v(p), key_bytes, writer, &m->v));
    FA2_TRY(fa2i_memory_of_rows("o", &args->o, of_query, fa2i_head_dim_v(p), fa2i_out_bytes(p), "forward", &m->o));
done:
    return st;
}

static fa2_status check_apart_from_inputs(const operands *m, const fa2i_memory *output)
{
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_memory_check_apart(output, &m->q));
    FA2_TRY(fa2i_memory_check_apart(output, &m->k));
    FA2_TRY(fa2i_memory_check_apart(output, &m->v));
done:
    return st;
}

static fa2_status check_lse(const fa2_problem *p, const fa2_forward_args *args, operands *m)
{
    const size_t queries = p->varlen ? (size_t)fa2i_forward_total_q(p) : (size_t)p->batch * (size_t)p->seq_q;
    const size_t rows = queries * (size_t)p->heads_q;
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_memory_of_array("lse", args->lse, rows * sizeof *args->lse, sizeof *args->lse, &m->lse));
    FA2_TRY(check_apart_from_inputs(m, &m->lse));
    FA2_TRY(fa2i_memory_check_apart(&m->lse, &m->o));
done:
    return st;
}

/* Checks that the workspace has the needed bytes and shares none of them. */
static fa2_status check_need(const fa2_forward_args *args, size_t bytes, operands *m)
{
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_workspace_memory(args->workspace, args->workspace_bytes, bytes, &m->workspace));
    FA2_TRY(check_apart_from_inputs(m, &m->workspace));
    FA2_TRY(fa2i_memory_check_apart(&m->workspace, &m->o));
    if (args->lse != NULL)
        FA2_TRY(fa2i_memory_check_apart(&m->workspace, &m->lse));
done:
    return st;
}

/* Locates scales that a launch writes. Each row has one of its own, which shares no byte with anything. */
static fa2_status locate_written_scales(const fa2_problem *p, const fa2_forward_args *args, int operand,
                                        fa2i_memory *scales)
{
    char name[FA2I_STRIDE_CHARS];
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_operand_locate(p, args, operand, scales));
    const int64_t strides[4] = {scales->strides[0], scales->strides[1], scales->strides[2]};
    const int32_t extents[4] = {scales->extents[0], scales->extents[1], scales->extents[2], 1};
    for (int i = 0; i < 3; i++)
        if (extents[i] > 1 && strides[i] == 0)
            FA2_TRY(fa2i_fail(FA2_E_INVALID, "%s is 0, but append writes a scale for each of %d",
                              fa2i_operand_stride_name(operand, i, name), (int)extents[i]));
    if (fa2i_memory_elements_meet(strides, extents, scales->row_bytes))
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "%s: scales of different rows would share memory, but append writes them",
                          scales->name));
done:
    return st;
}

/* Checks what a launch writes besides O: rows of K and V, and their scales. */
static fa2_status check_growing(const fa2_problem *p, const fa2_forward_args *args, operands *m)
{
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_memory_check_apart(&m->k, &m->q));
    FA2_TRY(fa2i_memory_check_apart(&m->v, &m->q));
    if (!p->v_in_k)
        FA2_TRY(fa2i_memory_check_apart(&m->v, &m->k));
    if (p->kv == FA2_KV_DTYPE)
        goto done;
    fa2i_memory *const scales[] = {&m->k_scale, &m->v_scale};
    for (int i = 0; i < 2; i++) {
        FA2_TRY(locate_written_scales(p, args, i == 0 ? FA2I_OPERAND_k_scale : FA2I_OPERAND_v_scale, scales[i]));
        FA2_TRY(check_apart_from_inputs(m, scales[i]));
        FA2_TRY(fa2i_memory_check_apart(scales[i], &m->o));
    }
    FA2_TRY(fa2i_memory_check_apart(&m->k_scale, &m->v_scale));
done:
    return st;
}

/* Checks that outputs share no byte with operands that are only read. Scales that are written are apart from LSE and
 * the workspace, too. */
static fa2_status check_features(const fa2_problem *p, const fa2_forward_args *args, const operands *m)
{
    const fa2i_memory *const outputs[] = {&m->o, &m->lse, &m->workspace, &m->k, &m->v, &m->k_scale, &m->v_scale};
    const int cache = 4; /* the last ones of the outputs */
    fa2_status st = FA2_OK;
    for (int i = 1; p->append && i < 3; i++) {
        FA2_TRY(fa2i_memory_check_apart(outputs[i], &m->k_scale));
        FA2_TRY(fa2i_memory_check_apart(outputs[i], &m->v_scale));
    }
    FA2_TRY(fa2i_features_check(p, args, outputs, (int)(sizeof outputs / sizeof *outputs) - (p->append ? 0 : cache)));
done:
    return st;
}

fa2_status fa2i_forward_check_closely(const fa2_problem *problem, const fa2_forward_args *args, const fa2i_grid *grid)
{
    operands m = {0}; /* zeroed memory shares no byte with anything */
    fa2_status st = FA2_OK;
    FA2_TRY(locate_tensors(problem, args, &m));
    FA2_TRY(check_apart_from_inputs(&m, &m.o));
    if (problem->append)
        FA2_TRY(check_growing(problem, args, &m));
    if (args->lse != NULL)
        FA2_TRY(check_lse(problem, args, &m));
    else if (fa2i_merges_lse(problem))
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "lse is NULL; with %s it is merged, as O is",
                          problem->carry ? "carry=1" : "partial=2"));
    FA2_TRY(fa2i_scales_check(problem, args));
    FA2_TRY(fa2i_workspace_check(args->workspace, args->workspace_bytes));
    if (grid != NULL && grid->workspace_bytes > 0)
        FA2_TRY(check_need(args, grid->workspace_bytes, &m));
    if (fa2i_features_asked(problem))
        FA2_TRY(check_features(problem, args, &m));
done:
    return st;
}

/* ---- the quick check ---- */

/* Extents less 1, and the columns of a row. */
typedef struct shape {
    uint64_t batch, seq, head, head_dim;
} shape;

typedef struct range {
    uint64_t begin, end; /* addresses */
} range;

/* Bits of all tensors together, or-ed. */
typedef struct seen {
    uint64_t pointers, strides, reaches;
    bool wrong;
} seen;

/* A final check ensures that strides are below 2^32, so that a reach is below 2^63. */
static inline range look_at(const fa2_tensor *tensor, const shape *s, int32_t elem_bytes, bool written, seen *all)
{
    const uint64_t begin = (uintptr_t)tensor->data;
    const uint64_t batch = (uint64_t)tensor->stride_batch, seq = (uint64_t)tensor->stride_seq,
                   head = (uint64_t)tensor->stride_head;
    const uint64_t batch_reach = batch * s->batch, seq_reach = seq * s->seq, head_reach = head * s->head;
    all->pointers |= begin;
    all->strides |= batch | seq | head;
    all->reaches |= batch_reach | seq_reach | head_reach;
    all->wrong |= begin == 0 || seq < s->head_dim;
    if (written) { /* a batch must span its heads and rows; of heads and rows, one must span the other */
        const bool heads_in_rows = head >= s->head_dim && seq >= head_reach + s->head_dim;
        const bool rows_in_heads = head >= seq_reach + s->head_dim;
        all->wrong |= batch < head_reach + seq_reach + s->head_dim;
        all->wrong |= !heads_in_rows && !rows_in_heads;
    }
    return (range){begin, begin + (uint64_t)elem_bytes * (batch_reach + seq_reach + head_reach + s->head_dim)};
}

static inline bool touch(range a, range b)
{
    return a.begin < b.end && b.begin < a.end;
}

/* Returns whether an output array touches any of the tensors. */
static inline bool touches_any(range array, const range tensors[4])
{
    return touch(array, tensors[0]) || touch(array, tensors[1]) || touch(array, tensors[2]) || touch(array, tensors[3]);
}

/* Returns true only if fa2i_forward_check_closely would find nothing wrong. */
static bool is_right_at_a_glance(const fa2_problem *p, const fa2_forward_args *a, const fa2i_grid *grid)
{
    const shape of_query = {(uint64_t)p->batch - 1, (uint64_t)p->seq_q - 1, (uint64_t)p->heads_q - 1,
                            (uint64_t)p->head_dim};
    const shape of_key = {(uint64_t)p->batch - 1, (uint64_t)p->seq_k - 1, (uint64_t)p->heads_kv - 1,
                          (uint64_t)p->head_dim};
    shape of_output = of_query, of_value = of_key;
    of_output.head_dim = of_value.head_dim = (uint64_t)fa2i_head_dim_v(p);
    const int32_t elem_bytes = fa2i_elem_bytes(p->dtype);
    seen all = {0};
    const range q = look_at(&a->q, &of_query, elem_bytes, false, &all);
    const range k = look_at(&a->k, &of_key, elem_bytes, false, &all);
    const range v = p->v_in_k ? k : look_at(&a->v, &of_value, elem_bytes, false, &all);
    const range o = look_at(&a->o, &of_output, fa2i_out_bytes(p), true, &all);
    const range tensors[] = {q, k, v, o};
    bool wrong = all.wrong || touch(o, q) || touch(o, k) || touch(o, v);
    wrong |= p->partial == FA2_PARTIAL_MERGE && a->lse == NULL;

    range lse = {0, 0}; /* touches nothing */
    if (a->lse != NULL) {
        lse.begin = (uintptr_t)a->lse;
        lse.end = lse.begin + (uint64_t)p->batch * (uint64_t)p->heads_q * (uint64_t)p->seq_q * sizeof *a->lse;
        wrong |= lse.begin % sizeof *a->lse != 0 || touches_any(lse, tensors);
    }
    if (grid == NULL || a->workspace_bytes < grid->workspace_bytes || fa2i_features_asked(p))
        return false;
    const range workspace = {(uintptr_t)a->workspace, (uintptr_t)a->workspace + grid->workspace_bytes};
    wrong |= workspace.begin % FA2I_WORKSPACE_ALIGN_BYTES != 0 || (workspace.begin == 0 && a->workspace_bytes > 0);
    if (grid->workspace_bytes > 0)
        wrong |= touches_any(workspace, tensors) || touch(workspace, lse);
    /* With addresses below 2^56, ends are below 2^60: the end of a tensor is the sum of four of them, times 2 or 4. */
    all.reaches |= all.pointers | lse.begin | lse.end | workspace.begin | workspace.end;
    return !wrong && all.pointers % 16 == 0 && all.strides % (16 / (uint64_t)elem_bytes) == 0 &&
           all.strides >> 32 == 0 && all.reaches >> 56 == 0 && fa2i_scales_check(p, a) == FA2_OK;
}

fa2_status fa2i_forward_check_args(const fa2_problem *problem, const void *args, const fa2i_grid *grid)
{
    return is_right_at_a_glance(problem, args, grid) ? FA2_OK : fa2i_forward_check_closely(problem, args, grid);
}
