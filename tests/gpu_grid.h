/*
 * What the grids of numerics on a GPU share: dtype x head_dim x masks and features, which is what is
 * compiled, worked through by threads; options; who failed and what came nearest to its bound.
 *
 *     TEST [--arch 75] [--small | --whole] [--dtype fp16] [--dim 64] [--every 5]
 *
 * One thread works through one compile-time part at a time with a fa2 context of its own, so that
 * compilations and references run side by side.
 * --arch: kernels made for that SM, as PTX. --small: the grid for such a cross check. --whole: all of the grid,
 * where a test takes a sample of it, as backward does: most of its time goes into compiling. --dtype and
 * --dim: only those. --every: each so many-th point of a compile-time part, or each so many-th of these parts, for
 * tools that make a launch take a second.
 */
#ifndef FA2_TESTS_GPU_GRID_H
#define FA2_TESTS_GPU_GRID_H

#include <pthread.h>
#include "tests/gpu.h"

enum { GPU_GRID_SEED = 1, GPU_GRID_PARTS_MAX = 256 };

typedef struct gpu_grid_options {
    int arch;
    bool small, whole;
    int dtype; /* -1: both */
    int dim;   /* 0: all */
    int every; /* at least 1 */
} gpu_grid_options;

/* The compile-time part. class: all of it, of a test with other features; the rest is 0 then. */
typedef struct gpu_part {
    fa2_dtype dtype;
    int32_t head_dim, causal, softcap, window, deterministic;
    fa2_problem class;
} gpu_part;

typedef struct gpu_tally {
    size_t launches, failures;
    double worst; /* error over bound */
    char worst_case[448];
} gpu_tally;

typedef struct gpu_grid gpu_grid;
typedef struct gpu_launcher gpu_launcher;

/* A test: what it does with a compile-time part, and which parts it has, appended with gpu_grid_add: of a dtype and
 * head_dim, the dim_index-th in the list; or of a dtype, on an SM. One of the two is NULL. */
typedef struct gpu_grid_test {
    const char *name;
    void (*run_part)(const gpu_launcher *own, const gpu_part *part);
    void (*list_parts)(gpu_grid *grid, fa2_dtype dtype, size_t dim_index, int32_t head_dim);
    void (*list_classes)(gpu_grid *grid, fa2_dtype dtype, int arch);
} gpu_grid_test;

/* Everything that the threads share; the mutex guards what changes. */
struct gpu_grid {
    pthread_mutex_t mutex;
    const gpu_grid_test *test;
    const fa2i_device *device;
    gpu_grid_options options;
    gpu_part parts[GPU_GRID_PARTS_MAX];
    size_t part_count, next_part, done_parts;
    double started_s,
        told_s;           /* on fa2i_now_s's clock: when it began, and said last how far it is */
    gpu_tally tallies[2]; /* by dtype */
};

/* Is it one of the few head_dims of --small? */
bool gpu_grid_is_small_dim(int32_t head_dim);

/* One thread's means to launch. */
struct gpu_launcher {
    gpu_grid *grid;
    fa2_context *context;
    CUstream stream;
};

void gpu_grid_add(gpu_grid *grid, const gpu_part *part);

/* Append two combinations of causal, softcap and window; over dtypes and head_dims all pairs occur. */
void gpu_grid_add_features(gpu_grid *grid, fa2_dtype dtype, size_t dim_index, int32_t head_dim);

/* What a part means for the number-th shape: bounds of windows, unbounded on a side, of one key, less than
 * a tile, whole tiles, several of them; and the value of a cap, 0 without one. */
void gpu_grid_window(const gpu_part *part, size_t number, fa2_problem *problem);
float gpu_grid_softcap(const gpu_part *part, size_t number);

/* From one row that is compared to the next: 1 in a small problem; 7, coprime to every tile, else. The
 * last one is compared, too. */
int32_t gpu_grid_row_step(const fa2_problem *problem);

/* Count a launch; failure: empty if it was right. error: the largest over its bound, of `what`. */
void gpu_grid_note(gpu_grid *grid, const fa2_problem *problem, const char *name,
                   const char *failure, double error, const char *what);

/* "BSHD", "BHSD", "padded". */
const char *gpu_layout_name(gpu_layout layout);

/* The whole program. */
int gpu_grid_main(int argc, char **argv, const gpu_grid_test *test);

#endif
