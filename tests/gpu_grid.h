/*
 * Shared by the tests that check numbers on a GPU over a grid: dtype x head_dim x masks and features. Such a
 * combination is a compile-time part. Threads work through the parts. This header also has their options and their
 * reports: failures, and the result nearest to its bound.
 *
 *     TEST [--arch 75] [--small | --whole] [--dtype fp16] [--dim 64] [--every 5]
 *
 * Each thread works on one part at a time with its own fa2 context, so that compilations and references run in
 * parallel.
 *
 *     --arch          kernels for that SM, as PTX
 *     --small         the smaller grid for such a cross check
 *     --whole         the whole grid. Backward's default is a sample, because compiling takes most of its time
 *     --dtype, --dim  only these
 *     --every         only each nth point of a part, or each nth part: for tools that slow a launch down to a second
 */
#pragma once

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

/* A compile-time part. class: the whole problem, in tests with other features; then the other fields are 0. */
typedef struct gpu_part {
    fa2_dtype dtype;
    int32_t head_dim, causal, softcap, window, deterministic;
    fa2_problem class;
} gpu_part;

typedef struct gpu_tally {
    size_t launches, failures;
    double worst; /* largest error over bound */
    char worst_case[448];
} gpu_tally;

typedef struct gpu_grid gpu_grid;
typedef struct gpu_launcher gpu_launcher;

/* A test: how it runs a part, and how it lists its parts with gpu_grid_add. One of the two list functions is NULL. The
 * first lists parts of a dtype and the dim_index-th head_dim, the second lists parts of a dtype on an SM. */
typedef struct gpu_grid_test {
    const char *name;
    void (*run_part)(const gpu_launcher *own, const gpu_part *part);
    void (*list_parts)(gpu_grid *grid, fa2_dtype dtype, size_t dim_index, int32_t head_dim);
    void (*list_classes)(gpu_grid *grid, fa2_dtype dtype, int arch);
} gpu_grid_test;

/* All that the threads share. The mutex protects the fields that change. */
struct gpu_grid {
    pthread_mutex_t mutex;
    const gpu_grid_test *test;
    const fa2i_device *device;
    gpu_grid_options options;
    gpu_part parts[GPU_GRID_PARTS_MAX];
    size_t part_count, next_part, done_parts;
    double started_s, told_s; /* times on fa2i_now_s's clock: of the start, and of the last progress line */
    gpu_tally tallies[2];     /* by dtype */
};

/* Returns true for the few head_dims of --small. */
bool gpu_grid_is_small_dim(int32_t head_dim);

/* Everything with which one thread launches. */
struct gpu_launcher {
    gpu_grid *grid;
    fa2_context *context;
    CUstream stream;
};

void gpu_grid_add(gpu_grid *grid, const gpu_part *part);

/* Adds two combinations of causal, softcap and window. Over all dtypes and head_dims, all pairs occur. */
void gpu_grid_add_features(gpu_grid *grid, fa2_dtype dtype, size_t dim_index, int32_t head_dim);

/* Choose values of a part for the number-th shape. Windows are unbounded on a side, or have one key, less than a tile,
 * a whole tile, or several tiles. The softcap is 0 if the part has none. */
void gpu_grid_window(const gpu_part *part, size_t number, fa2_problem *problem);
float gpu_grid_softcap(const gpu_part *part, size_t number);

/* Returns the distance between compared rows: 1 in small problems, else 7, which is coprime to every tile. The last row
 * is always compared. */
int32_t gpu_grid_row_step(const fa2_problem *problem);

/* Counts a launch. failure: "" if it was right. error: the largest error over its bound. what: where it occurred. */
void gpu_grid_note(gpu_grid *grid, const fa2_problem *problem, const char *name, const char *failure, double error,
                   const char *what);

/* "BSHD", "BHSD", "padded". */
const char *gpu_layout_name(gpu_layout layout);

/* The whole program. */
int gpu_grid_main(int argc, char **argv, const gpu_grid_test *test);
