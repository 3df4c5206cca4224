/*
 * The backward kernels' numbers on a GPU, through the public API, compared with the fp64 reference that judges them
 * during tuning. tests/gpu_grid.h describes the options.
 *
 * The grid is dtype x causal x head_dim (the compile-time part) x shape x heads; the layouts take turns. --whole runs
 * all of it. Otherwise each shape has one number of heads, which changes with the compile-time part, and most head_dims
 * have only the shapes of the small grid. That is a third of the references and half of the kernels. Q, K, V and dO are
 * random. A plain forward gives O and LSE. Each dtype and head_dim also runs the deterministic kernels, on the shapes
 * that are repeated.
 *
 * A launch is right if each gradient is within the judge's bound, has no poison left in it, and no poison around it has
 * changed. In small problems all rows are compared; in large ones every 23rd (coprime to every tile), and the last. The
 * workspace is poisoned, too. If one gradient is not wanted, the others must not change.
 * Repeated launches give the same bits of dK and dV, and of the dQ of deterministic kernels.
 */
#include <math.h>
#include <stdlib.h>
#include "runtime/base/alloc.h"
#include "tests/check.h"
#include "tests/gpu_grid.h"
#include "tests/gpu_plain.h"
#include "tuner/judge/judge.h"

enum { Q, K, V, O, DO, LSE, INPUTS, DQ = INPUTS, DK, DV, OPERANDS, GRADIENTS = OPERANDS - INPUTS };
enum { HEADS_Q = 4, REPEATS = 50, ROW_STEP = 23, ALL_ROWS_LIMIT = 64 * 1024 };

static const char *const names[OPERANDS] = {
    [Q] = "Q", [K] = "K", [V] = "V", [O] = "O", [DO] = "dO", [LSE] = "LSE", [DQ] = "dQ", [DK] = "dK", [DV] = "dV"};

typedef struct shape_case {
    int32_t seq_q, seq_k;
    float of_q, of_kv; /* standard deviations */
    float scale;       /* factor of the default softmax scale: a power of two */
    bool small;        /* in the small grid */
    bool repeated;
} shape_case;

/* FlashAttention-2's lengths; the lengths and magnitudes of its overflow test; a row and a column; another scale. */
static const shape_case shapes[] = {
    {113, 203, 1, 1, 1, true, true},     {128, 217, 1, 1, 1, false, false}, {113, 211, 1, 1, 1, false, false},
    {108, 256, 1, 1, 1, true, false},    {256, 512, 1, 1, 1, false, false}, {512, 256, 1, 1, 1, true, false},
    {1024, 1024, 1, 1, 1, false, false}, {1023, 1024, 1, 1, 1, true, true}, {1024, 1023, 1, 1, 1, false, false},
    {2048, 2048, 1, 1, 1, false, false}, {1, 1, 5, 3, 1, true, false},      {2, 2, 5, 3, 1, false, false},
    {5, 5, 5, 3, 1, false, false},       {17, 17, 5, 3, 1, true, false},    {128, 128, 5, 3, 1, true, false},
    {1, 300, 1, 1, 1, false, false},     {300, 1, 1, 1, 1, false, false},   {144, 176, 1, 1, 2, true, false},
};
static const int32_t heads_kv[] = {HEADS_Q, 2, 1}; /* MHA, GQA, MQA */

/* The gradients that a call wants: bits 1 << (operand - DQ). */
enum { ALL_GRADIENTS = 7, ONLY_DQ = 1, ONLY_DKV = 6 };

enum { SHAPES = sizeof shapes / sizeof *shapes, HEADS = sizeof heads_kv / sizeof *heads_kv };

/* One point of the grid with its expected results. Arrays are dense, by operand. */
typedef struct grid_point {
    const gpu_launcher *own;
    fa2_problem problem;
    const shape_case *shape;
    gpu_layout layout;
    float softmax_scale, softcap;
    uint16_t *bits[OPERANDS]; /* all but LSE */
    float *lse;
    gpu_tensor tensors[OPERANDS];
    CUdeviceptr lse_memory, workspace;
    fa2_backward_args args;
    fa2i_place *places[GRADIENTS]; /* dV shares dK's */
    fa2i_wanted wanted[GRADIENTS];
} grid_point;

static bool is_of_keys(int operand)
{
    return operand == K || operand == V || operand == DK || operand == DV;
}

static int32_t seq_of(const fa2_problem *p, int operand)
{
    return is_of_keys(operand) ? p->seq_k : p->seq_q;
}

static int32_t heads_of(const fa2_problem *p, int operand)
{
    return is_of_keys(operand) ? p->heads_kv : p->heads_q;
}

static size_t elems_of(const fa2_problem *p, int operand)
{
    return (size_t)p->batch * (size_t)seq_of(p, operand) * (size_t)heads_of(p, operand) * (size_t)p->head_dim;
}

/* ---- inputs ---- */

static void make_tensors(grid_point *point)
{
    const fa2i_device *device = point->own->grid->device;
    const fa2_problem *p = &point->problem;
    uint64_t state = GPU_GRID_SEED + (uint64_t)p->head_dim * 1000003 + (uint64_t)(point->shape - shapes);
    for (int i = 0; i < OPERANDS; i++) {
        if (i == LSE)
            continue;
        const float magnitude = i == Q ? point->shape->of_q : is_of_keys(i) ? point->shape->of_kv : 1;
        point->bits[i] = i < INPUTS && i != O ? gpu_random_bits(elems_of(p, i), p->dtype, magnitude, &state)
                                              : gpu_host(elems_of(p, i), sizeof(uint16_t));
        gpu_tensor_init(device, point->layout, seq_of(p, i), heads_of(p, i), p, &point->tensors[i]);
        gpu_tensor_put(device, &point->tensors[i], i < INPUTS && i != O ? point->bits[i] : NULL);
    }
    point->lse = gpu_host(gpu_lse_elems(p), sizeof *point->lse);
    gpu_must(device, device->cuda->mem_alloc(&point->lse_memory, 4 * gpu_lse_elems(p)), "cuMemAlloc");
}

/* Computes O and LSE, and keeps them on the device and the host. */
static void run_forward(grid_point *point)
{
    const gpu_launcher *own = point->own;
    const fa2i_device *device = own->grid->device;
    gpu_plain_forward(device, &point->problem, point->bits[Q], point->bits[K], point->bits[V], point->softmax_scale,
                      point->softcap, own->stream, point->bits[O], point->lse);
    gpu_tensor_put(device, &point->tensors[O], point->bits[O]);
    gpu_must(device, device->cuda->memcpy_htod(point->lse_memory, point->lse, 4 * gpu_lse_elems(&point->problem)),
             "cuMemcpyHtoD");
}

static void set_arguments(grid_point *point)
{
    const gpu_tensor *t = point->tensors;
    point->args = (fa2_backward_args){.struct_bytes = sizeof(fa2_backward_args),
                                      .q = t[Q].view,
                                      .k = t[K].view,
                                      .v = t[V].view,
                                      .o = t[O].view,
                                      .d_o = t[DO].view,
                                      .dq = t[DQ].view,
                                      .dk = t[DK].view,
                                      .dv = t[DV].view,
                                      .lse = (float *)(uintptr_t)point->lse_memory,
                                      .softmax_scale = point->softmax_scale,
                                      .softcap = point->softcap};
    gpu_must_fa2(fa2_workspace_size(point->own->context, &point->problem, &point->args.workspace_bytes),
                 "fa2_workspace_size");
    if (point->args.workspace_bytes > 0)
        gpu_must(point->own->grid->device,
                 point->own->grid->device->cuda->mem_alloc(&point->workspace, point->args.workspace_bytes),
                 "cuMemAlloc");
    point->args.workspace = (void *)(uintptr_t)point->workspace;
}

/* ---- expected results ---- */

static void list_places(grid_point *point, int gradient)
{
    const fa2_problem *p = &point->problem;
    const int operand = INPUTS + gradient;
    const int32_t step = p->seq_q * p->seq_k <= ALL_ROWS_LIMIT ? 1 : ROW_STEP, seq = seq_of(p, operand);
    size_t count = 0;
    fa2i_place *places = gpu_host(elems_of(p, operand), sizeof *places);
    for (int32_t b = 0; b < p->batch; b++)
        for (int32_t h = 0; h < heads_of(p, operand); h++)
            for (int32_t row = 0; row < seq; row++)
                if (row % step == 0 || row == seq - 1)
                    places[count++] = (fa2i_place){.operand = operand, .batch = b, .head = h, .row = row};
    point->places[gradient] = places;
    point->wanted[gradient] = (fa2i_wanted){.places = places, .row_count = count, .width = p->head_dim};
}

/* The reference knows only the default scale. So Q is multiplied by `scale`, which is exact, and dQ is corrected. */
static void find_wanted(grid_point *point)
{
    const fa2_problem *p = &point->problem;
    const float scale = point->shape->scale;
    const fa2i_case c = {
        .problem = *p, .layout = FA2I_LAYOUT_BSHD, .q_magnitude = 1, .factors.softcap = point->softcap};
    uint16_t *q = gpu_host(elems_of(p, Q), sizeof *q);
    fa2i_inputs inputs = {.period = {0}};
    for (size_t i = 0; i < elems_of(p, Q); i++)
        q[i] = fa2i_to_bits(p->dtype, scale * fa2i_from_bits(p->dtype, point->bits[Q][i]));
    for (int i = 0; i < INPUTS; i++) {
        inputs.data[i] = i == LSE ? (void *)point->lse : i == Q ? q : point->bits[i];
        inputs.period[i] = i == LSE ? gpu_lse_elems(p) : elems_of(p, i);
    }
    for (int i = 0; i < GRADIENTS; i++)
        list_places(point, i);
    gpu_must_fa2(fa2i_judge_of(p->op)->reference(&c, &inputs, 1, point->wanted), "reference");
    fa2i_wanted *dq = &point->wanted[DQ - INPUTS];
    for (size_t i = 0; i < dq->row_count * (size_t)dq->width; i++)
        dq->values[i] *= (double)scale;
    dq->bound.absolute *= (double)scale;
    fa2i_free(q);
}

/* ---- launches and their results ---- */

typedef struct verdict {
    double error; /* the largest error over its bound */
    int operand;  /* where it occurred */
    char failure[256];
} verdict;

static bool is_wanted(unsigned mask, int operand)
{
    return mask >> (operand - INPUTS) & 1;
}

/* Poisons the outputs, launches and waits. */
static fa2_status launch(grid_point *point, unsigned mask)
{
    const gpu_launcher *own = point->own;
    const fa2i_device *device = own->grid->device;
    fa2_backward_args args = point->args;
    args.dq.data = is_wanted(mask, DQ) ? args.dq.data : NULL;
    args.dk.data = is_wanted(mask, DK) ? args.dk.data : NULL;
    args.dv.data = is_wanted(mask, DV) ? args.dv.data : NULL;
    for (int i = DQ; i < OPERANDS; i++)
        gpu_tensor_poison(device, &point->tensors[i], own->stream);
    if (point->workspace != 0)
        gpu_must(
            device,
            device->cuda->memset_d32_async(point->workspace, GPU_POISON_WORD, args.workspace_bytes / 4, own->stream),
            "cuMemsetD32Async");
    const fa2_status st = fa2_backward(own->context, &point->problem, &args, own->stream);
    gpu_must(device, device->cuda->stream_synchronize(own->stream), "cuStreamSynchronize");
    return st;
}

/* Returns an element of a row of the dense array. */
static double value_at(const grid_point *point, const fa2i_place *place, int column)
{
    const fa2_problem *p = &point->problem;
    const size_t seq = (size_t)seq_of(p, place->operand);
    const size_t heads = (size_t)heads_of(p, place->operand);
    const size_t row = ((size_t)place->batch * seq + (size_t)place->row) * heads + (size_t)place->head;
    return (double)fa2i_from_bits(p->dtype, point->bits[place->operand][row * (size_t)p->head_dim + (size_t)column]);
}

static void compare(const grid_point *point, int operand, verdict *v)
{
    const fa2i_wanted *wanted = &point->wanted[operand - INPUTS];
    for (size_t i = 0; i < wanted->row_count; i++)
        for (int d = 0; d < wanted->width; d++) {
            const fa2i_place *place = &wanted->places[i];
            const double value = value_at(point, place, d);
            const double expected = wanted->values[i * (size_t)wanted->width + (size_t)d];
            const double error = fa2i_error_of(value, expected, wanted->bound, wanted->exact[i]);
            if (error > v->error) {
                v->error = error;
                v->operand = operand;
            }
            if (error > 1 && v->failure[0] == '\0')
                snprintf(v->failure, sizeof v->failure,
                         "%s of batch %d head %d row %d is %g, expected %g: %.3g x the bound", names[operand],
                         (int)place->batch, (int)place->head, (int)place->row, value, expected, error);
        }
}

/* Fetches and judges the outputs of a launch. */
static void judge(grid_point *point, unsigned mask, verdict *v)
{
    for (int i = DQ; i < OPERANDS; i++) {
        const size_t elems = elems_of(&point->problem, i);
        const size_t strays = gpu_tensor_get(point->own->grid->device, &point->tensors[i], point->bits[i]);
        size_t left = 0;
        for (size_t e = 0; e < elems; e++)
            left += point->bits[i][e] == GPU_POISON;
        if (strays > 0 || left != (is_wanted(mask, i) ? 0 : elems))
            snprintf(v->failure, sizeof v->failure, "%s%s: %zu elements written around it, %zu of %zu not written",
                     names[i], is_wanted(mask, i) ? "" : ", which is not wanted", strays, left, elems);
        else if (is_wanted(mask, i))
            compare(point, i, v);
    }
}

static void run_launch(grid_point *point, unsigned mask)
{
    verdict v = {.operand = DQ};
    char name[64];
    const fa2_status st = launch(point, mask);
    if (st == FA2_OK)
        judge(point, mask, &v);
    else
        snprintf(v.failure, sizeof v.failure, "fa2_backward: %s", fa2_last_message());
    snprintf(name, sizeof name, "x%g %s%s", (double)point->shape->of_q, gpu_layout_name(point->layout),
             mask == ALL_GRADIENTS ? "" : ", not all gradients");
    gpu_grid_note(point->own->grid, &point->problem, name, v.failure, v.error, names[v.operand]);
}

/* Repeats the launch whose gradients are in bits. */
static void run_repeats(grid_point *point)
{
    const fa2_problem *p = &point->problem;
    const fa2i_device *device = point->own->grid->device;
    for (int n = 1; n < REPEATS; n++) {
        char failure[96] = "";
        if (launch(point, ALL_GRADIENTS) != FA2_OK)
            snprintf(failure, sizeof failure, "repeat %d: %.60s", n, fa2_last_message());
        for (int i = p->deterministic ? DQ : DK; i < OPERANDS && failure[0] == '\0'; i++) {
            uint16_t *again = gpu_host(elems_of(p, i), sizeof *again);
            gpu_tensor_get(device, &point->tensors[i], again);
            if (memcmp(again, point->bits[i], elems_of(p, i) * sizeof *again) != 0)
                snprintf(failure, sizeof failure, "launch %d gave other bits of %s", n, names[i]);
            fa2i_free(again);
        }
        gpu_grid_note(point->own->grid, p, "repeated", failure, 0, "");
    }
}

/* ---- points ---- */

static fa2_status point_init(const gpu_launcher *own, const gpu_part *part, const shape_case *shape, size_t heads,
                             grid_point *ret_point)
{
    const size_t number = (size_t)(shape - shapes);
    fa2_problem problem = {.struct_bytes = sizeof(fa2_problem),
                           .op = FA2_OP_BACKWARD,
                           .dtype = part->dtype,
                           .batch = shape->seq_q <= 300 ? 2 : 1,
                           .heads_q = HEADS_Q,
                           .heads_kv = heads_kv[heads],
                           .seq_q = shape->seq_q,
                           .seq_k = shape->seq_k,
                           .head_dim = part->head_dim,
                           .causal = part->causal,
                           .softcap = part->softcap,
                           .deterministic = part->deterministic};
    gpu_grid_window(part, number, &problem);
    *ret_point = (grid_point){.own = own,
                              .problem = problem,
                              .shape = shape,
                              .softcap = gpu_grid_softcap(part, number),
                              .layout = (gpu_layout)((number + heads) % GPU_LAYOUTS),
                              .softmax_scale = shape->scale == 1 ? 0 : shape->scale / sqrtf((float)part->head_dim)};
    const fa2_status st = fa2_prepare(own->context, &problem);
    if (st != FA2_OK)
        return st;
    make_tensors(ret_point);
    run_forward(ret_point);
    set_arguments(ret_point);
    find_wanted(ret_point);
    return FA2_OK;
}

static void point_done(grid_point *point)
{
    const fa2i_device *device = point->own->grid->device;
    for (int i = 0; i < OPERANDS; i++) {
        gpu_tensor_done(device, &point->tensors[i]);
        fa2i_free(point->bits[i]);
    }
    for (int i = 0; i < GRADIENTS; i++) {
        fa2i_wanted_done(&point->wanted[i]);
        fa2i_free(point->places[i]);
    }
    fa2i_free(point->lse);
    if (point->lse_memory != 0)
        gpu_must(device, device->cuda->mem_free(point->lse_memory), "cuMemFree");
    if (point->workspace != 0)
        gpu_must(device, device->cuda->mem_free(point->workspace), "cuMemFree");
}

/* Returns the number of heads of a shape that has only one. */
static size_t heads_in_turn(const gpu_part *part, size_t number)
{
    return (number + (size_t)(part->causal + (int32_t)part->dtype + part->head_dim / 8)) % HEADS;
}

/* Returns true if the options ask for this point of the grid. */
static bool is_asked(const gpu_grid_options *options, const gpu_part *part, size_t number, size_t heads)
{
    const bool sampled = !options->small && !options->whole;
    const bool one_number = part->softcap || part->window || sampled;
    const bool few_shapes = options->small || (sampled && !gpu_grid_is_small_dim(part->head_dim));
    return (!few_shapes || shapes[number].small) && (!part->deterministic || shapes[number].repeated) &&
           (!one_number || heads == heads_in_turn(part, number));
}

static void run_point(const gpu_launcher *own, const gpu_part *part, size_t number, size_t heads)
{
    grid_point point;
    const fa2_status st = point_init(own, part, &shapes[number], heads, &point);
    if (st != FA2_OK) {
        gpu_grid_note(own->grid, &point.problem, "", fa2_last_message(), 0, "");
        return;
    }
    if (number % 3 == 0) {
        run_launch(&point, ONLY_DQ);
        run_launch(&point, ONLY_DKV);
    }
    run_launch(&point, ALL_GRADIENTS);
    if (shapes[number].repeated && heads == heads_in_turn(part, number))
        run_repeats(&point);
    point_done(&point);
}

static void run_part(const gpu_launcher *own, const gpu_part *part)
{
    const gpu_grid_options *options = &own->grid->options;
    int points = 0;
    for (size_t s = 0; s < SHAPES; s++)
        for (size_t h = 0; h < HEADS; h++) {
            if (is_asked(options, part, s, h) && points++ % options->every == 0)
                run_point(own, part, s, h);
        }
}

/* Adds parts with and without a causal mask, a deterministic one with either mask, and two combinations of features. In
 * these, each shape has one number of heads. */
static void list_parts(gpu_grid *grid, fa2_dtype dtype, size_t dim_index, int32_t head_dim)
{
    gpu_part part = {.dtype = dtype, .head_dim = head_dim};
    for (part.causal = 0; part.causal < 2; part.causal++)
        gpu_grid_add(grid, &part);
    part.causal = (int32_t)(dim_index + (size_t)dtype) % 2;
    part.deterministic = 1;
    gpu_grid_add(grid, &part);
    gpu_grid_add_features(grid, dtype, dim_index, head_dim);
}

int main(int argc, char **argv)
{
    static const gpu_grid_test test = {"gpu_backward", run_part, .list_parts = list_parts};
    return gpu_grid_main(argc, argv, &test);
}
