/*
 * Benchmarks problems on one device. Each problem is timed with the kernel that the runtime would use, and with the one
 * that it would use untuned. Both are checked against the reference and timed by the same protocol.
 *
 * Protocol:
 * - All kernels of a problem are timed in the same rounds, each round in a new random order. So drifts of clock and
 *   temperature affect all alike.
 * - A run is one CUDA graph with as many launches as take about FA2I_BENCHMARK_SAMPLE_US. Events time it as a whole.
 * - Right before a run the same graph runs once untimed (FA2I_WARMTH_BUSY). So the L2 is as warm as after consecutive
 *   calls, and the host's time to start a graph is hidden.
 * - A kernel whose run would take more than FA2I_BENCHMARK_SLOW_US skips rounds, but keeps at least a tenth of the
 *   runs.
 * - With cold, a run is one launch after a flush of the L2.
 * - With rest_ms, the device idles that long before each round.
 * - With precisions, O is compared with fp64 attention of the numbers before any rounding, for normal numbers and for
 *   three kinds that are hard to round. O of K and V in 8 bits, too: the rounding of the cache counts.
 * - On a software device one run of one launch is enough, because its times are modelled and always the same.
 *
 * It only reads the database, if there is one. Times are us, sizes bytes. Errors: a kernel's failure is in its record.
 * A status means that the benchmark cannot go on. Not thread-safe.
 */
#pragma once

#include <signal.h>
#include "tuner/bench/ceilings.h"
#include "tuner/bench/nvml.h"
#include "tuner/bench/summary.h"
#include "tuner/judge/verify.h"
#include "tuner/report/predict.h"

#define FA2I_BENCHMARK_SAMPLE_US 1000.0
#define FA2I_BENCHMARK_SLOW_US   20000.0
#define FA2I_BENCHMARK_ENERGY_US 500000.0 /* time of the launches while energy is counted */
enum {
    FA2I_BENCHMARK_RUNS = 100,
    FA2I_BENCHMARK_RUNS_LEAST = 10,
    FA2I_BENCHMARK_WARMUP = 10, /* untimed rounds before the first run */
    FA2I_BENCHMARK_KERNELS_MAX = 4,
    FA2I_BENCHMARK_SEED = 0xfa2
};

/* One kernel on one problem. */
typedef struct fa2i_timed {
    /* "tuned", "chosen" (tuned for similar problems), "default" (untuned), "naive" */
    const char *role;
    fa2_rule rule; /* the rule that chose it; not used for naive */
    char variant[FA2I_VARIANT_CHARS];
    fa2i_outcome outcome; /* not OK: detail says why, and there is no time */
    char detail[FA2I_DETAIL_BYTES];
    bool left_out; /* it was not tried, because it does not fit or cannot be compiled here */
    size_t workspace_bytes;
    fa2i_errors errors;
    double
        relative[FA2I_NUMBERS]; /* errors by kind of numbers (fa2i_pattern), if precisions are compared; -1: unknown */
    fa2i_summary us;
    double mj; /* energy of a launch; 0: not known */
} fa2i_timed;

typedef struct fa2i_benchmark {
    fa2_problem problem;
    char message[FA2I_DETAIL_BYTES]; /* why nothing was measured, or "" */
    double flop;                     /* counted as in the FlashAttention papers */
    double bytes;                    /* the least that must be read and written */
    double tensor_bytes;             /* memory of inputs and outputs */
    double square_bytes;             /* of one S x S matrix of the dtype in all heads and batches */
    size_t runs;
    int launches; /* per run */
    fa2i_conditions conditions;
    bool same;                                    /* the untuned choice is the same kernel, so it is timed once */
    fa2i_timed timed[FA2I_BENCHMARK_KERNELS_MAX]; /* the first is the runtime's choice */
    size_t count;
} fa2i_benchmark;

/* State that all problems share. The caller sets gpu, the borrowed members of kernels, stop, runs, cold, rest_ms and
 * threads. */
typedef struct fa2i_benchmarks {
    fa2i_gpu gpu;
    fa2i_kernel_list kernels;
    const volatile sig_atomic_t *stop;
    size_t runs;
    bool cold;
    bool precisions; /* compare problems of different precision: measure errors with numbers that are hard to round */
    int rest_ms;     /* 0: no rest */
    int threads;     /* for references */
    fa2i_worker *worker;
    fa2i_nvml nvml;
    fa2i_ceiling ceilings[FA2I_CEILINGS];
    fa2i_predictor tuned, untuned; /* predict the runtime's choice with the database and without it */
    fa2i_generator *uncalibrated;  /* for untuned, because one generator can learn only one of the two */
} fa2i_benchmarks;

/* Starts the worker and measures the ceilings. Call fa2i_benchmarks_done also after an error. */
fa2_status fa2i_benchmarks_open(fa2i_benchmarks *all);
void fa2i_benchmarks_done(fa2i_benchmarks *all);

/* Measures one problem. If it cannot be measured, returns FA2_OK with a message in *ret_benchmark. */
fa2_status fa2i_benchmark_run(fa2i_benchmarks *all, const fa2_problem *problem, fa2i_benchmark *ret_benchmark);
