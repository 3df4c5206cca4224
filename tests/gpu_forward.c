/*
 * The forward kernels' numbers on a GPU, through the public API, compared with the fp64 reference. tests/gpu_grid.h
 * describes the options.
 *
 * The grid is dtype x causal x head_dim (the compile-time part) x shape x heads. Each point gets its inputs and
 * reference once, and runs in every layout. Softcaps and windows are covered pairwise: each dtype and head_dim gets two
 * of their combinations with causal. In these, every shape has one number of heads.
 *
 * A launch is right if O is within FlashAttention-2's bound, LSE is within fa2i_lse_bound, no poison is left in O, and
 * no poison around it has changed. In small problems all rows are compared; in large ones every 7th, and the last.
 */
#include <math.h>
#include "runtime/base/alloc.h"
#include "tests/check.h"
#include "tests/gpu_grid.h"
#include "tests/reference_compare.h"

typedef struct shape_case {
    int32_t seq_q, seq_k;
    float magnitude;     /* of Q and K: the scores are about magnitude squared */
    float softmax_scale; /* 0: default */
    bool small;          /* in the small grid */
} shape_case;

/* Lengths around the edges of tiles; Sq much smaller and larger than Sk (if causal, some rows see no key); more than
 * one tile in both directions; then large scores, and another scale. */
static const shape_case shapes[] = {
    {1, 1, 1, 0, false},    {1, 239, 1, 0, false},     {3, 799, 1, 0, true},      {64, 800, 1, 0, false},
    {113, 203, 1, 0, true}, {128, 217, 1, 0, false},   {127, 512, 1, 0, false},   {256, 512, 1, 0, false},
    {512, 256, 1, 0, true}, {1023, 1024, 1, 0, false}, {1024, 1023, 1, 0, true},  {2048, 2048, 1, 0, false},
    {113, 203, 8, 0, true}, {127, 512, 30, 0, false},  {128, 217, 1, 0.3f, true},
};
static const int32_t heads_kv[] = {4, 2, 1}; /* of 4: MHA, GQA, MQA */

enum { TWO_BATCHES_LIMIT = 64 * 1024 };

enum { SHAPES = sizeof shapes / sizeof *shapes, HEADS = sizeof heads_kv / sizeof *heads_kv };

/* One point of the grid with its reference. */
typedef struct grid_point {
    fa2_problem problem;
    const shape_case *shape;
    float softcap;
    gpu_inputs inputs;
    fa2i_row *rows;
    size_t row_count;
    fa2i_reference reference;
} grid_point;

static void list_rows(grid_point *point)
{
    const fa2_problem *p = &point->problem;
    int32_t step = gpu_grid_row_step(p);
    point->rows = gpu_host(gpu_lse_elems(p), sizeof *point->rows);
    for (int32_t b = 0; b < p->batch; b++)
        for (int32_t h = 0; h < p->heads_q; h++)
            for (int32_t i = 0; i < p->seq_q; i++)
                if (i % step == 0 || i == p->seq_q - 1)
                    point->rows[point->row_count++] = (fa2i_row){.batch = b, .head = h, .row = i};
}

static void point_init(const gpu_part *part, const shape_case *shape, int32_t kv, grid_point *ret_point)
{
    const size_t number = (size_t)(shape - shapes);
    fa2_problem problem = {.struct_bytes = sizeof(fa2_problem),
                           .dtype = part->dtype,
                           .batch = (int64_t)shape->seq_q * shape->seq_k <= TWO_BATCHES_LIMIT ? 2 : 1,
                           .heads_q = 4,
                           .heads_kv = kv,
                           .seq_q = shape->seq_q,
                           .seq_k = shape->seq_k,
                           .head_dim = part->head_dim,
                           .causal = part->causal,
                           .softcap = part->softcap};
    gpu_grid_window(part, number, &problem);
    *ret_point = (grid_point){.problem = problem, .shape = shape, .softcap = gpu_grid_softcap(part, number)};
    gpu_inputs_init(&problem, shape->magnitude, GPU_GRID_SEED + (uint64_t)part->head_dim * 1000003 + (uint64_t)number,
                    &ret_point->inputs);
    list_rows(ret_point);
    gpu_reference(&problem, &ret_point->inputs, shape->softmax_scale, ret_point->softcap, ret_point->rows,
                  ret_point->row_count, &ret_point->reference);
}

static void point_done(grid_point *point)
{
    gpu_inputs_done(&point->inputs);
    fa2i_free(point->rows);
    fa2i_reference_done(&point->reference);
}

/* Takes the compared rows out of the dense O and LSE, in the reference's order, and compares them. */
static void compare(const grid_point *point, const uint16_t *o, const float *lse, reference_comparison *ret_comparison)
{
    const fa2_problem *p = &point->problem;
    size_t dim = (size_t)p->head_dim;
    uint16_t *o_rows = gpu_host(point->row_count * dim, sizeof *o_rows);
    float *lse_rows = lse == NULL ? NULL : gpu_host(point->row_count, sizeof *lse_rows);
    for (size_t r = 0; r < point->row_count; r++) {
        size_t b = (size_t)point->rows[r].batch, h = (size_t)point->rows[r].head;
        size_t i = (size_t)point->rows[r].row;
        size_t heads = (size_t)p->heads_q, seq = (size_t)p->seq_q;
        memcpy(o_rows + r * dim, o + ((b * seq + i) * heads + h) * dim, dim * sizeof *o);
        if (lse != NULL)
            lse_rows[r] = lse[(b * heads + h) * seq + i];
    }
    reference_compare(&point->reference, p->dtype, o_rows, lse_rows, ret_comparison);
    fa2i_free(o_rows);
    fa2i_free(lse_rows);
}

static size_t poison_left(const fa2_problem *problem, const uint16_t *o)
{
    size_t left = 0;
    for (size_t i = 0; i < gpu_o_elems(problem); i++)
        left += o[i] == GPU_POISON;
    return left;
}

/* Launches a prepared call and judges its results. failure is empty if they are right. */
static void launch(const gpu_launcher *own, const grid_point *point, gpu_call *call,
                   reference_comparison *ret_comparison, char *failure, size_t failure_bytes)
{
    const fa2i_device *device = own->grid->device;
    uint16_t *o = gpu_host(gpu_o_elems(&point->problem), sizeof *o);
    float *lse = gpu_host(gpu_lse_elems(&point->problem), sizeof *lse);
    gpu_call_put(call, &point->inputs);
    call->args.softmax_scale = point->shape->softmax_scale;
    call->args.softcap = point->softcap;
    fa2_status st = fa2_forward(own->context, &point->problem, &call->args, own->stream);
    if (st == FA2_OK) {
        gpu_must(device, device->cuda->stream_synchronize(own->stream), "cuStreamSynchronize");
        size_t strays = gpu_call_get(call, o, lse);
        size_t left = poison_left(&point->problem, o);
        compare(point, o, call->lse_memory != 0 ? lse : NULL, ret_comparison);
        if (strays > 0 || left > 0)
            snprintf(failure, failure_bytes, "%zu elements written outside, %zu not written", strays, left);
        else if (!(ret_comparison->error <= 1))
            snprintf(failure, failure_bytes, "%s is %g, expected %g: %.3g x the bound",
                     ret_comparison->worst_is_lse ? "LSE" : "O", ret_comparison->worst_value,
                     ret_comparison->worst_expected, ret_comparison->error);
    } else {
        snprintf(failure, failure_bytes, "fa2_forward: %s", fa2_last_message());
    }
    fa2i_free(o);
    fa2i_free(lse);
}

static void run_point(const gpu_launcher *own, const grid_point *point)
{
    for (gpu_layout layout = 0; layout < GPU_LAYOUTS; layout++) {
        gpu_call call = {0};
        reference_comparison comparison = {0};
        char failure[256] = "";
        /* One layout runs without LSE, because it is optional. */
        fa2_status st =
            gpu_call_init(own->grid->device, own->context, &point->problem, layout, layout != GPU_BHSD, &call);
        if (st == FA2_OK)
            launch(own, point, &call, &comparison, failure, sizeof failure);
        else
            snprintf(failure, sizeof failure, "fa2_workspace_size: %s", fa2_last_message());
        char name[48];
        snprintf(name, sizeof name, "x%g %s", (double)point->shape->magnitude, gpu_layout_name(layout));
        gpu_grid_note(own->grid, &point->problem, name, failure, comparison.error,
                      comparison.worst_is_lse ? "LSE" : "O");
        gpu_call_done(&call);
    }
}

static void run_part(const gpu_launcher *own, const gpu_part *part)
{
    int points = 0;
    for (size_t s = 0; s < SHAPES; s++) {
        if (own->grid->options.small && !shapes[s].small)
            continue;
        for (size_t h = 0; h < HEADS; h++) {
            grid_point point;
            if ((part->softcap || part->window) && h != s % HEADS)
                continue;
            if (points++ % own->grid->options.every != 0)
                continue;
            point_init(part, &shapes[s], heads_kv[h], &point);
            run_point(own, &point);
            point_done(&point);
        }
    }
}

/* Lists parts without features, with and without a causal mask; then two combinations of features. */
static void list_parts(gpu_grid *grid, fa2_dtype dtype, size_t dim_index, int32_t head_dim)
{
    gpu_part part = {.dtype = dtype, .head_dim = head_dim};
    for (part.causal = 0; part.causal < 2; part.causal++)
        gpu_grid_add(grid, &part);
    gpu_grid_add_features(grid, dtype, dim_index, head_dim);
}

int main(int argc, char **argv)
{
    static const gpu_grid_test test = {"gpu_forward", run_part, .list_parts = list_parts};
    return gpu_grid_main(argc, argv, &test);
}
