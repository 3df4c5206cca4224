/*
 * What the worker process does on the GPU: hold kernels and the tensors of one case, launch a
 * kernel on poisoned outputs, take time samples.
 *
 * Launches go through runtime/cuda/launch.h, so what is measured is what will run. A sample of one
 * launch is cold: the L2 cache is flushed before it by writing more than twice its size. A sample
 * of many launches is one CUDA graph of them, timed as a whole, so that neither launch gaps nor the
 * resolution of events (about 0.5 us) count; it is warm by nature. A warm sample of one launch is
 * such a graph, too.
 *
 * Errors: FA2_E_CUDA with the driver's words, and the driver's code in fa2i_bench.result. After a
 * sticky error everything fails: fa2i_bench_broken tells, and the process should end. Not
 * thread-safe.
 */
#ifndef FA2I_BENCH_GPU_H
#define FA2I_BENCH_GPU_H

#include "runtime/cuda/launch.h"
#include "tuner/judge/judge.h"
#include "tuner/worker/protocol.h"
#include "tuner/worker/watch.h"

typedef struct fa2i_bench_slot {
    fa2i_loaded loaded;
    fa2i_grid grid; /* on the present case; set by each call that launches */
    bool ready;
    CUgraphExec graph; /* of graph_launches launches on the present case; NULL: not made yet */
    int graph_launches;
    float graph_ms; /* what it took the last time; 0: not known */
} fa2i_bench_slot;

typedef struct fa2i_bench {
    fa2i_device device;
    bool entered;
    CUstream stream;
    CUevent begin, end;
    CUdeviceptr flush;
    size_t flush_bytes;
    fa2i_case current;
    const fa2i_judge *judge;                 /* of its operation; NULL: there is no case */
    CUdeviceptr operands[FA2I_OPERANDS_MAX]; /* outputs with guards around them; 0: not there */
    CUdeviceptr workspace;                   /* with a guard behind it */
    size_t workspace_bytes;
    CUdeviceptr probe; /* both areas of the last probe; 0: none */
    int64_t probe_bytes;
    fa2i_bench_slot *slots; /* by kernel id */
    size_t slot_count;
    CUresult result; /* of the last call of the driver that failed; the caller resets it. A refused
                      * launch leaves it as it is. */
    fa2i_watch *watch; /* borrowed; NULL: waits for the device have no limit */
    double patience_s; /* of one wait */
} fa2i_bench;

/* Open the device's primary context. *bench is zeroed; call fa2i_bench_done in any case. */
fa2_status fa2i_bench_open(fa2i_bench *bench, int ordinal);
void fa2i_bench_done(fa2i_bench *bench);

/* Load a kernel under an id, replacing what was there. kernel is borrowed for the call. */
fa2_status fa2i_bench_load(fa2i_bench *bench, uint32_t id, const fa2i_kernel *kernel);

/* Make a case's tensors in place of the present ones. Too little memory: FA2_E_CUDA saying how much
 * is needed and free; then there is no case. */
fa2_status fa2i_bench_case(fa2i_bench *bench, const fa2i_case *c);

/* Poison the outputs, launch once, wait. *ret_overwritten: words of the guards that changed. */
fa2_status fa2i_bench_launch(fa2i_bench *bench, uint32_t id, uint32_t *ret_overwritten);

/* The outputs of the last launch, one behind the other: all of them (count == 0), or these rows,
 * packed. out has room for fa2i_bench_output_bytes. FA2_E_INVALID if a place is none of the case's. */
size_t fa2i_bench_output_bytes(const fa2i_bench *bench, const fa2i_place *places, size_t count);
fa2_status fa2i_bench_output(fa2i_bench *bench, const fa2i_place *places, size_t count, void *out);

/* One time sample, in us per launch. */
fa2_status fa2i_bench_sample(fa2i_bench *bench, uint32_t id, int launches, fa2i_warmth warmth,
                             double *ret_us);

/* Launch a kernel that measures the card, once untimed and once timed (probe.c). The last launch's memory is
 * kept for the next one; fa2i_bench_drop_probe, and a case, release it. */
fa2_status fa2i_bench_probe(fa2i_bench *bench, uint32_t id, const fa2i_probe *probe, double *ret_us,
                            uint32_t *ret_blocks);
void fa2i_bench_drop_probe(fa2i_bench *bench);

/* Does the context refuse all work, as it does after a sticky error? Waits for the device. */
bool fa2i_bench_broken(const fa2i_bench *bench);

#endif
