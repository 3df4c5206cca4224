/*
 * The forward kernels' numerics on a GPU, through the public API, against the fp64 reference.
 *
 *     gpu_forward [--arch 75] [--small] [--dtype fp16] [--dim 64] [--every 5]
 *
 * The grid is dtype x causal x head_dim (the compile-time part) x shape x heads; each point gets
 * its inputs and reference once and runs in every layout. Capped scores and windows are covered
 * pairwise: each dtype and head_dim gets two of their combinations with causal, each of those every
 * shape with one number of heads. One thread works through one compile-time part at a time with a fa2
 * context of its own, so that compilations and references run side by side.
 * --arch: kernels made for that SM, as PTX. --small: the grid for such a cross check. --dtype and
 * --dim: only those. --every: each so many-th point of a compile-time part, for tools that make a launch
 * take a second.
 *
 * Right means, per launch: O within FlashAttention-2's bound and LSE within fa2i_lse_bound on the
 * rows compared (all of a small problem, every 7th and the last of a large one: 7 is coprime to
 * every tile); no poison left in O; no poison changed around it.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include "runtime/base/alloc.h"
#include "tests/check.h"
#include "tests/gpu.h"

enum { SEED = 1, MAX_THREADS = 16, ROW_STEP = 7, ALL_ROWS_LIMIT = 128 * 1024 };

typedef struct shape_case {
    int32_t seq_q, seq_k;
    float magnitude;     /* of Q and K: the scores are about magnitude squared */
    float softmax_scale; /* 0: default */
    bool small;          /* is in the small grid */
} shape_case;

/* Around the edges of tiles, Sq much smaller and larger than Sk (under a causal mask: rows that see
 * no key), more than one tile in both directions; then large scores and a scale of one's own. */
static const shape_case shapes[] = {
    {1, 1, 1, 0, false},       {1, 239, 1, 0, false},    {3, 799, 1, 0, true},
    {64, 800, 1, 0, false},    {113, 203, 1, 0, true},   {128, 217, 1, 0, false},
    {127, 512, 1, 0, false},   {256, 512, 1, 0, false},  {512, 256, 1, 0, true},
    {1023, 1024, 1, 0, false}, {1024, 1023, 1, 0, true}, {2048, 2048, 1, 0, false},
    {113, 203, 8, 0, true},    {127, 512, 30, 0, false}, {128, 217, 1, 0.3f, true},
};
static const int32_t heads_kv[] = {4, 2, 1}; /* of 4: MHA, GQA, MQA */

/* {causal, softcap, window}; two neighbours, around the end, for a dtype and head_dim. */
static const int32_t features[][3] = {{0, 1, 0}, {1, 0, 1}, {1, 1, 0},
                                      {0, 0, 1}, {1, 1, 1}, {0, 1, 1}};
/* By shape: unbounded on a side, one key, less than a tile, whole tiles, several of them. */
static const int32_t windows[][2] = {{-1, 0}, {0, 0},  {5, 3},   {64, 63}, {300, 100},
                                     {7, -1}, {20, 9}, {128, 0}, {-1, -1}, {2000, 2000}};
static const float softcaps[] = {30, 1.5f, 8};
static const int32_t dims[] = {256, 192, 160, 128, 96, 80, 72, 64, 40, 32, 16, 8};
static const int32_t small_dims[] = {256, 128, 64, 40};

enum {
    SHAPES = sizeof shapes / sizeof *shapes,
    DIMS = sizeof dims / sizeof *dims,
    HEADS = sizeof heads_kv / sizeof *heads_kv,
    FEATURES = sizeof features / sizeof *features,
    WINDOWS = sizeof windows / sizeof *windows,
    SOFTCAPS = sizeof softcaps / sizeof *softcaps,
    PARTS_EACH = 4 /* of a dtype and head_dim: without features, and with them */
};

typedef struct test_options {
    int arch;
    bool small;
    int dtype; /* -1: both */
    int dim;   /* 0: all */
    int every; /* at least 1 */
} test_options;

/* The compile-time part. */
typedef struct compile_part {
    fa2_dtype dtype;
    int32_t causal, softcap, window, head_dim;
} compile_part;

typedef struct dtype_tally {
    size_t launches, failures;
    double worst; /* error over bound */
    char worst_case[224];
} dtype_tally;

/* Everything that the threads share; the mutex guards next_part and tallies. */
typedef struct test_grid {
    pthread_mutex_t mutex;
    const fa2i_device *device;
    const test_options *options;
    compile_part parts[2 * DIMS * PARTS_EACH];
    size_t part_count, next_part;
    dtype_tally tallies[2]; /* by dtype */
} test_grid;

/* One thread's means to launch. */
typedef struct launcher {
    test_grid *grid;
    fa2_context *context;
    CUstream stream;
} launcher;

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

static void note(test_grid *grid, const grid_point *point, gpu_layout layout, const char *failure,
                 const fa2i_comparison *comparison)
{
    static const char *const layouts[] = {"BSHD", "BHSD", "padded"};
    char name[160], what[128];
    fa2i_problem_format(&point->problem, what, sizeof what);
    snprintf(name, sizeof name, "%s x%g %s", what, (double)point->shape->magnitude,
             layouts[layout]);
    pthread_mutex_lock(&grid->mutex);
    dtype_tally *tally = &grid->tallies[point->problem.dtype];
    tally->launches++;
    if (failure[0] != '\0') {
        tally->failures++;
        fprintf(stderr, "%s: %s\n", name, failure);
    }
    if (comparison->error > tally->worst) {
        tally->worst = comparison->error;
        snprintf(tally->worst_case, sizeof tally->worst_case, "%s of %s",
                 comparison->worst_is_lse ? "LSE" : "O", name);
    }
    pthread_mutex_unlock(&grid->mutex);
}

static bool every_row(const fa2_problem *problem)
{
    return (int64_t)problem->seq_q * problem->seq_k <= ALL_ROWS_LIMIT;
}

static void list_rows(grid_point *point)
{
    const fa2_problem *p = &point->problem;
    int32_t step = every_row(p) ? 1 : ROW_STEP;
    point->rows = gpu_host(gpu_lse_elems(p), sizeof *point->rows);
    for (int32_t b = 0; b < p->batch; b++)
        for (int32_t h = 0; h < p->heads_q; h++)
            for (int32_t i = 0; i < p->seq_q; i++)
                if (i % step == 0 || i == p->seq_q - 1)
                    point->rows[point->row_count++] = (fa2i_row){.batch = b, .head = h, .row = i};
}

static void point_init(const compile_part *part, const shape_case *shape, int32_t kv,
                       grid_point *ret_point)
{
    const size_t number = (size_t)(shape - shapes);
    const fa2_problem problem = {.dtype = part->dtype,
                                 .batch = shape->seq_q * shape->seq_k <= ALL_ROWS_LIMIT / 2 ? 2 : 1,
                                 .heads_q = 4,
                                 .heads_kv = kv,
                                 .seq_q = shape->seq_q,
                                 .seq_k = shape->seq_k,
                                 .head_dim = part->head_dim,
                                 .causal = part->causal,
                                 .softcap = part->softcap,
                                 .window = part->window,
                                 .window_left = part->window ? windows[number % WINDOWS][0] : 0,
                                 .window_right = part->window ? windows[number % WINDOWS][1] : 0};
    *ret_point = (grid_point){.problem = problem,
                              .shape = shape,
                              .softcap = part->softcap ? softcaps[number % SOFTCAPS] : 0};
    gpu_inputs_init(&problem, shape->magnitude,
                    SEED + (uint64_t)part->head_dim * 1000003 + (uint64_t)number,
                    &ret_point->inputs);
    list_rows(ret_point);
    gpu_reference(&problem, &ret_point->inputs, shape->softmax_scale, ret_point->softcap,
                  ret_point->rows, ret_point->row_count, &ret_point->reference);
}

static void point_done(grid_point *point)
{
    gpu_inputs_done(&point->inputs);
    fa2i_free(point->rows);
    fa2i_reference_done(&point->reference);
}

/* Take the compared rows out of the dense O and LSE, in the reference's order, and compare. */
static void compare(const grid_point *point, const uint16_t *o, const float *lse,
                    fa2i_comparison *ret_comparison)
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
    fa2i_reference_compare(&point->reference, p->dtype, o_rows, lse_rows, ret_comparison);
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

/* Launch a prepared call and judge what came out; failure is empty if it is right. */
static void launch(const launcher *own, const grid_point *point, gpu_call *call,
                   fa2i_comparison *ret_comparison, char *failure, size_t failure_bytes)
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
            snprintf(failure, failure_bytes, "%zu elements written outside, %zu not written",
                     strays, left);
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

static void run_point(const launcher *own, const grid_point *point)
{
    for (gpu_layout layout = 0; layout < GPU_LAYOUTS; layout++) {
        gpu_call call = {0};
        fa2i_comparison comparison = {0};
        char failure[256] = "";
        /* One layout does without LSE: it is optional. */
        fa2_status st = gpu_call_init(own->grid->device, own->context, &point->problem, layout,
                                      layout != GPU_BHSD, &call);
        if (st == FA2_OK)
            launch(own, point, &call, &comparison, failure, sizeof failure);
        else
            snprintf(failure, sizeof failure, "fa2_workspace_size: %s", fa2_last_message());
        note(own->grid, point, layout, failure, &comparison);
        gpu_call_done(&call);
    }
}

static void run_part(const launcher *own, const compile_part *part)
{
    int points = 0;
    for (size_t s = 0; s < SHAPES; s++) {
        if (own->grid->options->small && !shapes[s].small)
            continue;
        for (size_t h = 0; h < HEADS; h++) {
            grid_point point;
            if ((part->softcap || part->window) && h != s % HEADS)
                continue;
            if (points++ % own->grid->options->every != 0)
                continue;
            point_init(part, &shapes[s], heads_kv[h], &point);
            run_point(own, &point);
            point_done(&point);
        }
    }
}

static const compile_part *take_part(test_grid *grid)
{
    pthread_mutex_lock(&grid->mutex);
    const compile_part *part =
        grid->next_part < grid->part_count ? &grid->parts[grid->next_part++] : NULL;
    pthread_mutex_unlock(&grid->mutex);
    return part;
}

static void *run_thread(void *argument)
{
    test_grid *grid = argument;
    launcher own = {.grid = grid};
    const fa2_config config = {.database = "", .arch = grid->options->arch};
    gpu_must_fa2(fa2i_device_enter(grid->device), "device");
    gpu_must_fa2(fa2_context_create(&config, &own.context), "fa2_context_create");
    gpu_must(grid->device, grid->device->cuda->stream_create(&own.stream, CU_STREAM_NON_BLOCKING),
             "cuStreamCreate");
    for (const compile_part *part = take_part(grid); part != NULL; part = take_part(grid))
        run_part(&own, part);
    fa2_context_destroy(own.context);
    gpu_must(grid->device, grid->device->cuda->stream_destroy(own.stream), "cuStreamDestroy");
    fa2i_device_leave(grid->device);
    return NULL;
}

/* Without features, with and without a causal mask; then two combinations of them. */
static void list_parts_of(test_grid *grid, fa2_dtype dtype, size_t dim_index, int32_t head_dim)
{
    compile_part part = {.dtype = dtype, .head_dim = head_dim};
    for (part.causal = 0; part.causal < 2; part.causal++)
        grid->parts[grid->part_count++] = part;
    for (size_t i = 0; i < PARTS_EACH - 2; i++) {
        const int32_t *f = features[(2 * dim_index + 3 * (size_t)dtype + i) % FEATURES];
        part.causal = f[0];
        part.softcap = f[1];
        part.window = f[2];
        grid->parts[grid->part_count++] = part;
    }
}

/* Widest heads first: they take longest. */
static void list_parts(test_grid *grid, int arch)
{
    const test_options *o = grid->options;
    const int32_t *list = o->small ? small_dims : dims;
    size_t count = o->small ? sizeof small_dims / sizeof *small_dims : DIMS;
    for (size_t d = 0; d < count; d++)
        for (int dtype = FA2_FP16; dtype <= FA2_BF16; dtype++) {
            const bool wanted = (o->dim == 0 || o->dim == list[d]) &&
                                (o->dtype < 0 || o->dtype == dtype) &&
                                (dtype == FA2_FP16 || arch >= 80); /* bf16 starts with SM 8.0 */
            if (wanted)
                list_parts_of(grid, (fa2_dtype)dtype, d, list[d]);
        }
}

static void run_threads(test_grid *grid)
{
    pthread_t threads[MAX_THREADS];
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    size_t count = processors < 1 ? 1 : (size_t)processors;
    count = count > MAX_THREADS ? MAX_THREADS : count;
    for (size_t i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, run_thread, grid) != 0) {
            fprintf(stderr, "cannot start a thread\n");
            exit(1);
        }
    for (size_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

static void print_tallies(const test_grid *grid)
{
    for (int dtype = FA2_FP16; dtype <= FA2_BF16; dtype++) {
        const dtype_tally *tally = &grid->tallies[dtype];
        if (tally->launches > 0)
            printf("%s: %zu launches, %zu wrong; worst error/bound %.3g, %s\n",
                   fa2i_dtype_string((fa2_dtype)dtype), tally->launches, tally->failures,
                   tally->worst, tally->worst_case);
    }
}

static bool parse(int argc, char **argv, test_options *ret_options)
{
    *ret_options = (test_options){.dtype = -1, .every = 1};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        fa2_dtype dtype;
        if (strcmp(argv[i], "--small") == 0) {
            ret_options->small = true;
            continue;
        }
        if (strcmp(argv[i], "--arch") == 0 && atoi(value) > 0)
            ret_options->arch = atoi(value);
        else if (strcmp(argv[i], "--dim") == 0 && atoi(value) > 0)
            ret_options->dim = atoi(value);
        else if (strcmp(argv[i], "--every") == 0 && atoi(value) > 0)
            ret_options->every = atoi(value);
        else if (strcmp(argv[i], "--dtype") == 0 && fa2i_dtype_parse(value, &dtype))
            ret_options->dtype = (int)dtype;
        else
            return false;
        i++;
    }
    return true;
}

int main(int argc, char **argv)
{
    test_options options;
    fa2i_device device = {0};
    if (!parse(argc, argv, &options)) {
        fprintf(
            stderr,
            "usage: gpu_forward [--arch SM] [--small] [--dtype fp16|bf16] [--dim D] [--every N]\n");
        return 2;
    }
    int opened = gpu_open(&device);
    if (opened != 0)
        return opened;
    if (options.arch > device.card.arch) {
        fprintf(stderr, "skipped: SM %d code does not run on SM %d\n", options.arch,
                device.card.arch);
        return CHECK_SKIP;
    }
    test_grid grid = {.device = &device, .options = &options, .mutex = PTHREAD_MUTEX_INITIALIZER};
    int arch = options.arch != 0 ? options.arch : device.card.arch;
    list_parts(&grid, arch);
    printf("%s, kernels for SM %d, %zu parts, seed %d\n", device.card.name, arch, grid.part_count,
           SEED);
    run_threads(&grid);
    print_tallies(&grid);
    CHECK_EQ(grid.tallies[FA2_FP16].failures + grid.tallies[FA2_BF16].failures, 0);
    CHECK(grid.tallies[FA2_FP16].launches + grid.tallies[FA2_BF16].launches > 0);
    fa2i_device_leave(&device);
    fa2i_device_close(&device);
    return check_done();
}
