/*
 * A benchmark of problems on one device: what the runtime would take for each, beside what it would take
 * untuned, checked against the reference and timed by one protocol.
 *
 * Protocol. All kernels of a problem are timed in the same rounds, in a new random order each, so that
 * drifts of clock and temperature hit them alike. A run is one CUDA graph of as many launches as take
 * about FA2I_BENCHMARK_SAMPLE_US, timed by events as a whole; right before it the same graph runs once
 * untimed (FA2I_WARMTH_BUSY), so the L2 is as warm as consecutive calls leave it, and what the host takes to
 * start a graph is hidden behind it. A kernel whose run would take more than FA2I_BENCHMARK_SLOW_US sits rounds
 * out, a tenth of the runs at least is left. With cold, a run is one launch behind a flush of the L2. With rest_ms
 * the device idles so long before each round. On a software device, whose times are modelled and always the same,
 * one run of one launch is all.
 *
 * Nothing is written: the database is read where there is one. Times are us, sizes bytes. Errors: what a
 * kernel does wrong is in its record; a status means that nothing can go on. Not thread-safe.
 */
#ifndef FA2I_BENCHMARK_H
#define FA2I_BENCHMARK_H

#include <signal.h>
#include "tuner/bench/ceilings.h"
#include "tuner/bench/nvml.h"
#include "tuner/bench/summary.h"
#include "tuner/judge/verify.h"
#include "tuner/report/foresee.h"

#define FA2I_BENCHMARK_SAMPLE_US 1000.0
#define FA2I_BENCHMARK_SLOW_US   20000.0
#define FA2I_BENCHMARK_ENERGY_US 500000.0 /* of launches, while energy is counted */
enum {
    FA2I_BENCHMARK_RUNS = 100,
    FA2I_BENCHMARK_RUNS_LEAST = 10,
    FA2I_BENCHMARK_WARMUP = 10, /* untimed rounds before the first run */
    FA2I_BENCHMARK_KERNELS_MAX = 4,
    FA2I_BENCHMARK_SEED = 0xfa2
};

/* One kernel on one problem. */
typedef struct fa2i_timed {
    /* "tuned", "chosen" (tuned for problems near), "default" (untuned), "naive" */
    const char *role;
    fa2_rule rule; /* that chose it; of naive it means nothing */
    char variant[FA2I_VARIANT_CHARS];
    fa2i_outcome outcome; /* not OK: detail says why, and there is no time */
    char detail[FA2I_DETAIL_BYTES];
    bool left_out; /* it was not tried: it does not fit, or cannot be compiled here */
    size_t workspace_bytes;
    fa2i_errors errors;
    fa2i_summary us;
    double mj; /* energy of a launch; 0: not known */
} fa2i_timed;

typedef struct fa2i_benchmark {
    fa2_problem problem;
    char message[FA2I_DETAIL_BYTES]; /* why nothing was measured; "" */
    double flop;                     /* by the count of the FlashAttention papers */
    double bytes;                    /* that must be read and written at least */
    double tensor_bytes;             /* memory of inputs and outputs */
    double square_bytes;             /* of one S x S matrix of the dtype in all heads and batches */
    size_t runs;
    int launches; /* per run */
    fa2i_conditions conditions;
    bool same; /* untuned it would be the same kernel, which is timed once */
    fa2i_timed timed[FA2I_BENCHMARK_KERNELS_MAX]; /* the first is what the runtime takes */
    size_t count;
} fa2i_benchmark;

/* What all problems share. Filled in by the caller: gpu, kernels (what is borrowed of it), stop, runs, cold,
 * rest_ms, threads. */
typedef struct fa2i_benchmarks {
    fa2i_gpu gpu;
    fa2i_kernel_list kernels;
    const volatile sig_atomic_t *stop;
    size_t runs;
    bool cold;
    int rest_ms; /* 0: none */
    int threads; /* for references */
    fa2i_worker *worker;
    fa2i_nvml nvml;
    fa2i_ceiling ceilings[FA2I_CEILINGS];
    fa2i_foresight tuned, untuned; /* what the runtime takes, with the database and without it */
    fa2i_generator *untaught;      /* of untuned: one generator learns one of them */
} fa2i_benchmarks;

/* Start the worker, measure the ceilings. In any case fa2i_benchmarks_done is to be called. */
fa2_status fa2i_benchmarks_open(fa2i_benchmarks *all);
void fa2i_benchmarks_done(fa2i_benchmarks *all);

/* Measure one problem. A problem that cannot be measured is FA2_OK with a message in *ret_benchmark. */
fa2_status fa2i_benchmark_run(fa2i_benchmarks *all, const fa2_problem *problem,
                              fa2i_benchmark *ret_benchmark);

#endif
