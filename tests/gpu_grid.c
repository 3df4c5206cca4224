/*
 * Parts are taken from the list in order. The largest head_dims come first, because they take longest.
 */
#include "tests/gpu_grid.h"

#include <stdlib.h>
#include <unistd.h>
#include "runtime/base/problem.h"
#include "tests/check.h"
#include "tuner/report/progress.h"

enum { MAX_THREADS = 16, ROW_STEP = 7, ALL_ROWS_LIMIT = 128 * 1024, COMBINATIONS_EACH = 2, TELL_EVERY_S = 5 };

/* {causal, softcap, window}; two neighbours, around the end, for a dtype and head_dim. */
static const int32_t features[][3] = {{0, 1, 0}, {1, 0, 1}, {1, 1, 0}, {0, 0, 1}, {1, 1, 1}, {0, 1, 1}};
static const int32_t windows[][2] = {{-1, 0}, {0, 0},  {5, 3},   {64, 63}, {300, 100},
                                     {7, -1}, {20, 9}, {128, 0}, {-1, -1}, {2000, 2000}};
static const float softcaps[] = {30, 1.5f, 8};
static const int32_t dims[] = {256, 192, 160, 128, 96, 80, 72, 64, 40, 32, 16, 8};
static const int32_t small_dims[] = {256, 128, 64, 40};

enum {
    DIMS = sizeof dims / sizeof *dims,
    SMALL_DIMS = sizeof small_dims / sizeof *small_dims,
    FEATURES = sizeof features / sizeof *features,
    WINDOWS = sizeof windows / sizeof *windows,
    SOFTCAPS = sizeof softcaps / sizeof *softcaps
};

void gpu_grid_add(gpu_grid *grid, const gpu_part *part)
{
    if (grid->part_count == GPU_GRID_PARTS_MAX) {
        fprintf(stderr, "more than %d parts\n", GPU_GRID_PARTS_MAX);
        exit(1);
    }
    grid->parts[grid->part_count++] = *part;
}

void gpu_grid_add_features(gpu_grid *grid, fa2_dtype dtype, size_t dim_index, int32_t head_dim)
{
    for (size_t i = 0; i < COMBINATIONS_EACH; i++) {
        const int32_t *f = features[(2 * dim_index + 3 * (size_t)dtype + i) % FEATURES];
        const gpu_part part = {.dtype = dtype, .head_dim = head_dim, .causal = f[0], .softcap = f[1], .window = f[2]};
        gpu_grid_add(grid, &part);
    }
}

bool gpu_grid_is_small_dim(int32_t head_dim)
{
    for (size_t i = 0; i < SMALL_DIMS; i++)
        if (small_dims[i] == head_dim)
            return true;
    return false;
}

void gpu_grid_window(const gpu_part *part, size_t number, fa2_problem *problem)
{
    problem->window = part->window;
    problem->window_left = part->window ? windows[number % WINDOWS][0] : 0;
    problem->window_right = part->window ? windows[number % WINDOWS][1] : 0;
}

float gpu_grid_softcap(const gpu_part *part, size_t number)
{
    return part->softcap ? softcaps[number % SOFTCAPS] : 0;
}

int32_t gpu_grid_row_step(const fa2_problem *problem)
{
    return (int64_t)problem->seq_q * problem->seq_k <= ALL_ROWS_LIMIT ? 1 : ROW_STEP;
}

const char *gpu_layout_name(gpu_layout layout)
{
    static const char *const names[] = {"BSHD", "BHSD", "padded"};
    return names[layout];
}

void gpu_grid_note(gpu_grid *grid, const fa2_problem *problem, const char *name, const char *failure, double error,
                   const char *what)
{
    const fa2i_shape shape = fa2i_problem_shape(problem);
    pthread_mutex_lock(&grid->mutex);
    gpu_tally *tally = &grid->tallies[problem->dtype];
    tally->launches++;
    if (failure[0] != '\0') {
        tally->failures++;
        fprintf(stderr, "%s %s: %s\n", shape.text, name, failure);
    }
    if (error > tally->worst) {
        tally->worst = error;
        snprintf(tally->worst_case, sizeof tally->worst_case, "%s of %s %s", what, shape.text, name);
    }
    pthread_mutex_unlock(&grid->mutex);
}

static const gpu_part *take_part(gpu_grid *grid)
{
    pthread_mutex_lock(&grid->mutex);
    const gpu_part *part = grid->next_part < grid->part_count ? &grid->parts[grid->next_part++] : NULL;
    pthread_mutex_unlock(&grid->mutex);
    return part;
}

/* Called when a part is done. Prints the progress every few seconds. */
static void note_part(gpu_grid *grid)
{
    pthread_mutex_lock(&grid->mutex);
    const double now = fa2i_now_s();
    grid->done_parts++;
    if (now - grid->told_s >= TELL_EVERY_S) {
        fprintf(stderr, "%zu of %zu parts, %zu launches, %zu wrong, %.0f s\n", grid->done_parts, grid->part_count,
                grid->tallies[0].launches + grid->tallies[1].launches,
                grid->tallies[0].failures + grid->tallies[1].failures, now - grid->started_s);
        grid->told_s = now;
    }
    pthread_mutex_unlock(&grid->mutex);
}

static void *run_thread(void *argument)
{
    gpu_grid *grid = argument;
    gpu_launcher own = {.grid = grid};
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = "", .arch = grid->options.arch};
    gpu_must_fa2(fa2i_device_enter(grid->device), "device");
    gpu_must_fa2(fa2_context_create(&config, &own.context), "fa2_context_create");
    gpu_must(grid->device, grid->device->cuda->stream_create(&own.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (const gpu_part *part = take_part(grid); part != NULL; part = take_part(grid)) {
        grid->test->run_part(&own, part);
        note_part(grid);
    }
    fa2_context_destroy(own.context);
    gpu_must(grid->device, grid->device->cuda->stream_destroy(own.stream), "cuStreamDestroy");
    fa2i_device_leave(grid->device);
    return NULL;
}

static void run_threads(gpu_grid *grid)
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

static bool wants_dtype(const gpu_grid_options *o, int dtype, int arch)
{
    return (o->dtype < 0 || o->dtype == dtype) && (dtype == FA2_FP16 || arch >= 80); /* bf16 starts with SM 8.0 */
}

static void list_by_dims(gpu_grid *grid, int arch)
{
    const gpu_grid_options *o = &grid->options;
    const int32_t *list = o->small ? small_dims : dims;
    const size_t count = o->small ? SMALL_DIMS : DIMS;
    for (size_t d = 0; d < count; d++)
        for (int dtype = FA2_FP16; dtype <= FA2_BF16; dtype++)
            if ((o->dim == 0 || o->dim == list[d]) && wants_dtype(o, dtype, arch))
                grid->test->list_parts(grid, (fa2_dtype)dtype, d, list[d]);
}

static void list_parts(gpu_grid *grid, int arch)
{
    if (grid->test->list_parts != NULL)
        list_by_dims(grid, arch);
    for (int dtype = FA2_FP16; dtype <= FA2_BF16; dtype++)
        if (grid->test->list_classes != NULL && wants_dtype(&grid->options, dtype, arch))
            grid->test->list_classes(grid, (fa2_dtype)dtype, arch);
}

static void print_tallies(const gpu_grid *grid)
{
    for (int dtype = FA2_FP16; dtype <= FA2_BF16; dtype++) {
        const gpu_tally *tally = &grid->tallies[dtype];
        if (tally->launches > 0)
            printf("%s: %zu launches, %zu wrong; worst error/bound %.3g, %s\n", fa2i_dtype_string((fa2_dtype)dtype),
                   tally->launches, tally->failures, tally->worst, tally->worst_case);
    }
}

static bool parse(int argc, char **argv, gpu_grid_options *ret_options)
{
    *ret_options = (gpu_grid_options){.dtype = -1, .every = 1};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        int32_t dtype = 0;
        if (strcmp(argv[i], "--small") == 0) {
            ret_options->small = true;
            continue;
        }
        if (strcmp(argv[i], "--whole") == 0) {
            ret_options->whole = true;
            continue;
        }
        if (strcmp(argv[i], "--arch") == 0 && atoi(value) > 0)
            ret_options->arch = atoi(value);
        else if (strcmp(argv[i], "--dim") == 0 && atoi(value) > 0)
            ret_options->dim = atoi(value);
        else if (strcmp(argv[i], "--every") == 0 && atoi(value) > 0)
            ret_options->every = atoi(value);
        else if (strcmp(argv[i], "--dtype") == 0 && fa2i_field_parse_word(FA2I_FIELD_dtype, value, &dtype))
            ret_options->dtype = (int)dtype;
        else
            return false;
        i++;
    }
    return true;
}

int gpu_grid_main(int argc, char **argv, const gpu_grid_test *test)
{
    fa2i_device device = {0};
    static gpu_grid grid = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    if (!parse(argc, argv, &grid.options)) {
        fprintf(stderr, "usage: %s [--arch SM] [--small|--whole] [--dtype fp16|bf16] [--dim D] [--every N]\n",
                test->name);
        return 2;
    }
    int opened = gpu_open(&device);
    if (opened != 0)
        return opened;
    if (grid.options.arch > device.card.arch) {
        fprintf(stderr, "skipped: SM %d code does not run on SM %d\n", grid.options.arch, device.card.arch);
        return CHECK_SKIP;
    }
    grid.test = test;
    grid.device = &device;
    int arch = grid.options.arch != 0 ? grid.options.arch : device.card.arch;
    list_parts(&grid, arch);
    printf("%s, kernels for SM %d, %zu parts, seed %d\n", device.card.name, arch, grid.part_count, GPU_GRID_SEED);
    fflush(stdout);
    grid.started_s = grid.told_s = fa2i_now_s();
    run_threads(&grid);
    print_tallies(&grid);
    CHECK_EQ(grid.tallies[FA2_FP16].failures + grid.tallies[FA2_BF16].failures, 0);
    CHECK(grid.tallies[FA2_FP16].launches + grid.tallies[FA2_BF16].launches > 0);
    fa2i_device_leave(&device);
    fa2i_device_close(&device);
    return check_done();
}
