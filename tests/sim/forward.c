/*
 * Tensors, launch, judgement.
 *
 * Traffic is judged after the numbers: accesses to shared memory have no bank conflict, and loads touch no more sectors
 * than their bytes fill.
 */
#include "forward.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/ops/call.h"
#include "tuner/judge/attention.h"

enum { WORKSPACE = FA2I_OPERANDS_MAX, ALLOCATIONS };

typedef struct tensors {
    uint64_t memory[ALLOCATIONS]; /* by operand; 0: none */
    size_t bytes[ALLOCATIONS];
    size_t left_out[ALLOCATIONS]; /* bytes at the operand's beginning that are not allocated */
    fa2i_arguments arguments;
} tensors;

static bool allocate(tensors *t, int which, size_t bytes)
{
    CUdeviceptr memory = 0;
    if (cuMemAlloc(&memory, bytes) != CUDA_SUCCESS)
        return false;
    t->memory[which] = memory;
    t->bytes[which] = bytes;
    return true;
}

/* Allocates memory filled with poison. */
static bool put_poison(tensors *t, int which, size_t bytes)
{
    return allocate(t, which, bytes) &&
           cuMemsetD32Async(t->memory[which], FA2I_POISON, bytes / 4, NULL) == CUDA_SUCCESS;
}

/* Returns the value of an integer axis, 0 for a variant without it. */
static int axis_value(const fa2i_variant *variant, const char *axis)
{
    char word[32];
    snprintf(word, sizeof word, " %s=", axis);
    const char *at = strstr(variant->text, word);
    return at == NULL ? 0 : atoi(at + strlen(word));
}

int forward_tile_keys(const fa2i_variant *variant)
{
    const int keys = axis_value(variant, "bc");
    return keys > 0 ? keys : variant->recipe.keys;
}

/* Returns the bytes of K or V before the first tile that a window lets a block see. Separate blocks of dQ have their
 * own tiles. Returns 0 if rows of other heads or batches lie among these bytes. */
static size_t never_read(const fa2i_case *c, const fa2i_variant *variant, int operand)
{
    const fa2_problem *p = &c->problem;
    const fa2i_extent e = fa2i_case_extent(c, operand);
    const bool by_key = p->batch == 1 && (p->heads_kv == 1 || c->layout != FA2I_LAYOUT_BHSD);
    const int keys = forward_tile_keys(variant), dq_keys = axis_value(variant, "dqbc");
    const int tile = dq_keys > keys ? dq_keys : keys; /* a multiple of the smaller one */
    const fa2i_operand *o = &fa2i_judge_of(p->op)->operands[operand];
    if (o->shape != FA2I_SHAPE_KEYS || o->output || !by_key || p->seqused || p->varlen || p->paged || p->leftpad ||
        p->cache_rows || p->append)
        return 0;
    return (size_t)(fa2i_keys_seen(p, 0).first / tile * tile * e.stride_seq) * e.elem_bytes;
}

static bool put_input(const fa2i_case *c, const fa2i_variant *variant, tensors *t, int operand)
{
    const size_t skipped = never_read(c, variant, operand);
    const size_t total = fa2i_case_operand_bytes(c, operand);
    const size_t have = fa2i_case_period(c, operand) * fa2i_case_extent(c, operand).elem_bytes;
    void *block = fa2i_alloc(have);
    const bool ok =
        block != NULL && allocate(t, operand, total - skipped) && fa2i_case_fill(c, operand, block) == FA2_OK;
    t->left_out[operand] = skipped;
    for (size_t at = skipped; ok && at < total;) {
        const size_t from = at % have, rest = total - at;
        const size_t count = have - from < rest ? have - from : rest;
        cuMemcpyHtoD(t->memory[operand] + (at - skipped), (const char *)block + from, count);
        at += count;
    }
    fa2i_free(block);
    return ok;
}

static bool put_tensors(const fa2i_case *c, const fa2i_variant *variant, const fa2i_grid *grid, tensors *t)
{
    const fa2i_judge *judge = fa2i_judge_of(c->problem.op);
    *t = (tensors){0};
    for (int i = 0; i < judge->operand_count; i++) {
        const size_t bytes = fa2i_case_operand_bytes(c, i);
        if (bytes > 0 && !(fa2i_case_has_data(c, i) ? put_input(c, variant, t, i) : put_poison(t, i, bytes)))
            return false;
    }
    if (grid->workspace_bytes > 0 && !put_poison(t, WORKSPACE, grid->workspace_bytes))
        return false;
    uint64_t addresses[FA2I_OPERANDS_MAX];
    for (int i = 0; i < FA2I_OPERANDS_MAX; i++)
        addresses[i] = t->memory[i] - t->left_out[i];
    t->arguments = judge->arguments(c, addresses, t->memory[WORKSPACE], grid->workspace_bytes);
    return true;
}

static void release_tensors(tensors *t)
{
    for (int i = 0; i < ALLOCATIONS; i++)
        if (t->memory[i] != 0)
            cuMemFree(t->memory[i]);
}

static bool judge_outputs(const fa2i_expected *e, const tensors *t, char *why, size_t why_bytes)
{
    const fa2i_judge *judge = fa2i_judge_of(e->c.problem.op);
    unsigned char *output = fa2i_alloc(e->output_bytes), *next = output;
    fa2i_verification verdict = {0};
    CUresult result = CUDA_SUCCESS;
    if (output == NULL)
        return false;
    for (int i = 0; i < judge->operand_count && result == CUDA_SUCCESS; i++) {
        if (!judge->operands[i].output || t->memory[i] == 0)
            continue;
        result = cuMemcpyDtoH(next, t->memory[i], t->bytes[i]);
        next += t->bytes[i];
    }
    if (result == CUDA_SUCCESS)
        fa2i_expected_judge(e, "software device", output, 0, &verdict);
    fa2i_free(output);
    if (result == CUDA_SUCCESS && verdict.outcome == FA2I_OUTCOME_OK)
        return true;
    snprintf(why, why_bytes, "%s", result != CUDA_SUCCESS ? fa2_sim_message() : verdict.detail);
    return false;
}

enum { FILLS = 1 << SIM_ST_SHARED_16 | 1 << SIM_COPY_TO_SHARED, LAST_READS = 1 << SIM_LD_SHARED_16 };

/* Layouts that cannot avoid bank conflicts. All others must have none. */
static const struct {
    const char *family, *layout; /* the beginning of the variant's text, and a part of it */
    int row_elems;               /* no conflicts if rows, padded to 16, are a multiple of this */
    unsigned ways;               /* mask */
} conflicting[] = {
    /* Rows are an odd number of 16-byte chunks apart, so one column of eight rows is in different banks. But eight
     * chunks in row order, as fills write them and the last reads of O read them, are only if they all lie in one row.
     * Families that split read O from another layout. */
    {"fwd_sm", "layout=pad", 64, FILLS | LAST_READS},
    {"fwd_splitkv_", "layout=pad", 64, FILLS},
    {"bwd_sm", "layout=pad", 64, FILLS | LAST_READS},
    {"fwd_fp32_", "", 64, FILLS},
    {"bwd_fp32_", "", 64, FILLS},
};

static bool may_conflict(const fa2i_variant *v, int head_dim, int way)
{
    const int row_elems = (head_dim + 15) / 16 * 16;
    for (size_t i = 0; i < sizeof conflicting / sizeof *conflicting; i++)
        if (strncmp(v->text, conflicting[i].family, strlen(conflicting[i].family)) == 0 &&
            strstr(v->text, conflicting[i].layout) != NULL && row_elems % conflicting[i].row_elems != 0 &&
            conflicting[i].ways >> way & 1)
            return true;
    return false;
}

/* Returns true if loads need not fill whole sectors. They must if rows are whole sectors, one after the other. Exempt
 * are: the loads of the launch that combines splits, which read single numbers and count in the same way as Turing's
 * fills (these are judged if there is one split); arrays of features, which are read number by number, scales of rows
 * in 8 bits among them; O and LSE that are merged, which padding leaves unread; the LSE of partial results, of which a
 * warp has few rows; LSE and delta of packed sequences, whose last rows fill half a sector; and rows of a copied bias,
 * which begin anywhere. */
static bool may_spread(const fa2i_case *c, const fa2i_grid *grid, int way)
{
    return way == SIM_ST_GLOBAL || (way == SIM_COPY_FROM_GLOBAL && c->problem.bias != FA2_BIAS_NONE) ||
           (way == SIM_COPY_FROM_GLOBAL && c->problem.kv != FA2_KV_DTYPE) ||
           (way == SIM_COPY_FROM_GLOBAL && c->problem.op == FA2_OP_BACKWARD && c->problem.varlen) ||
           (way == SIM_LD_GLOBAL &&
            (c->problem.op != FA2_OP_FORWARD || fa2i_features_asked(&c->problem) || fa2i_merges_lse(&c->problem))) ||
           c->problem.head_dim % 16 != 0 || c->problem.head_dim_v % 16 != 0 || c->layout == FA2I_LAYOUT_GAPPED ||
           (way == SIM_LD_GLOBAL && grid->splits > 1);
}

static bool traffic_is_ideal(const fa2i_variant *v, const fa2i_case *c, const fa2i_grid *grid, char *why,
                             size_t why_bytes)
{
    sim_totals t;
    double us = 0;
    /* of K and V, in units of 16 bits */
    const int columns = c->problem.head_dim * fa2i_key_bytes(&c->problem) / 2;
    const int columns_v = fa2i_head_dim_v(&c->problem) * fa2i_key_bytes(&c->problem) / 2;
    fa2_sim_totals(&t, &us);
    for (int way = 0; way < SIM_WAYS; way++) {
        const bool shared = way < SIM_LD_GLOBAL;
        const sim_traffic *traffic = &t.traffic[way];
        if (traffic->moved == traffic->ideal ||
            (shared ? may_conflict(v, columns, way) || may_conflict(v, columns_v, way) : may_spread(c, grid, way)))
            continue;
        snprintf(why, why_bytes, "%llu %s too many, most of them at %s",
                 (unsigned long long)(traffic->moved - traffic->ideal), shared ? "wavefronts" : "sectors",
                 traffic->worst_at);
        return false;
    }
    return true;
}

static bool run(const fa2i_device *device, const fa2i_loaded *loaded, const fa2i_grid *grid, const fa2i_expected *e,
                const tensors *t, char *why)
{
    sim_totals before;
    double us = 0;
    fa2_sim_totals(&before, &us); /* resets the totals for this launch */
    const fa2_problem *problem = &e->c.problem;
    if (fa2i_op_of(problem)->check_args(problem, &t->arguments, grid) == FA2_OK &&
        fa2i_launch(device, loaded, grid, problem, &t->arguments, NULL) == FA2_OK)
        return judge_outputs(e, t, why, FORWARD_WHY_BYTES) &&
               traffic_is_ideal(&loaded->variant, &e->c, grid, why, FORWARD_WHY_BYTES);
    snprintf(why, FORWARD_WHY_BYTES, "%s", fa2_last_message());
    return false;
}

bool forward_launch(const fa2i_device *device, const fa2i_loaded *loaded, const fa2i_expected *expected,
                    char why[FORWARD_WHY_BYTES], int32_t *ret_splits)
{
    const fa2i_case *c = &expected->c;
    tensors t = {0};
    fa2i_grid grid = {0};
    bool ok = false;
    if (fa2i_op_of(&c->problem)->grid(&device->card, &loaded->variant.recipe, &c->problem, &grid) != FA2_OK) {
        snprintf(why, FORWARD_WHY_BYTES, "%s", fa2_last_message());
        return false;
    }
    snprintf(why, FORWARD_WHY_BYTES, "no memory for the tensors");
    if (put_tensors(c, &loaded->variant, &grid, &t))
        ok = run(device, loaded, &grid, expected, &t, why);
    release_tensors(&t);
    if (ret_splits != NULL)
        *ret_splits = grid.splits;
    return ok;
}
