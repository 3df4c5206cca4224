/*
 * The worker process's use of the GPU: it holds kernels and the tensors of one case, launches a kernel on poisoned
 * outputs, and takes time samples.
 *
 * Launches go through runtime/cuda/launch.h, so a measurement times what will run. A sample of one launch is cold: the
 * L2 cache is flushed before it, by writing more than twice its size. A sample of many launches is one CUDA graph,
 * timed as a whole. So launch gaps do not count, nor does the resolution of events (about 0.5 us). Such a sample is
 * warm. A warm sample of one launch is such a graph, too.
 *
 * Errors: FA2_E_CUDA with the driver's message, and the driver's code in fa2i_bench.result. After a sticky error
 * everything fails: fa2i_bench_broken says so, and the process should end. Not thread-safe.
 */
#pragma once

#include "runtime/cuda/launch.h"
#include "tuner/judge/judge.h"
#include "tuner/worker/protocol.h"
#include "tuner/worker/watch.h"

typedef struct fa2i_bench_slot {
    fa2i_loaded loaded;
    fa2i_grid grid; /* on the present case; every function that launches sets it */
    bool ready;
    CUgraphExec graph; /* graph_launches launches on the present case; NULL: not made yet */
    int graph_launches;
    float graph_ms; /* time of its last run; 0: not known */
} fa2i_bench_slot;

typedef struct fa2i_bench {
    fa2i_device device;
    bool entered;
    CUstream stream;
    CUevent begin, end;
    CUdeviceptr flush;
    size_t flush_bytes;
    fa2i_case current;
    const fa2i_judge *judge;                 /* of the case's operation; NULL: there is no case */
    CUdeviceptr operands[FA2I_OPERANDS_MAX]; /* outputs have guards around them; 0: absent */
    CUdeviceptr workspace;                   /* with a guard after it */
    size_t workspace_bytes;
    CUdeviceptr probe; /* both areas of the last probe; 0: none */
    int64_t probe_bytes;
    fa2i_bench_slot *slots; /* by kernel id */
    size_t slot_count;
    CUresult result;   /* of the driver's last call that failed. The caller resets it. A refused launch does not change
                        * it */
    fa2i_watch *watch; /* borrowed; NULL: waits for the device have no limit */
    double patience_s; /* limit of one wait */
} fa2i_bench;

/* Opens the device's primary context. *bench must be zeroed. Call fa2i_bench_done also after an error. */
fa2_status fa2i_bench_open(fa2i_bench *bench, int ordinal);
void fa2i_bench_done(fa2i_bench *bench);

/* Loads a kernel under an id, and replaces the one that was there. kernel is borrowed during the call. */
fa2_status fa2i_bench_load(fa2i_bench *bench, uint32_t id, const fa2i_kernel *kernel);

/* Makes a case's tensors in place of the present ones. If memory is short, returns FA2_E_CUDA, and the message says how
 * much is needed and free. Then there is no case. */
fa2_status fa2i_bench_case(fa2i_bench *bench, const fa2i_case *c);

/* Poisons the outputs, launches once, and waits. *ret_overwritten: words of the guards that changed. */
fa2_status fa2i_bench_launch(fa2i_bench *bench, uint32_t id, uint32_t *ret_overwritten);

/* Copies the outputs of the last launch, without gaps: all of them (count == 0), or the rows at these places, packed.
 * out has room for fa2i_bench_output_bytes. Returns FA2_E_INVALID if a place is not in the case. */
size_t fa2i_bench_output_bytes(const fa2i_bench *bench, const fa2i_place *places, size_t count);
fa2_status fa2i_bench_output(fa2i_bench *bench, const fa2i_place *places, size_t count, void *out);

/* Takes one time sample, in us per launch. */
fa2_status fa2i_bench_sample(fa2i_bench *bench, uint32_t id, int launches, fa2i_warmth warmth, double *ret_us);

/* Launches a kernel that measures the card, once untimed and once timed (probe.c). Its memory is kept for the next
 * probe. fa2i_bench_drop_probe releases it, and so does a new case. */
fa2_status fa2i_bench_probe(fa2i_bench *bench, uint32_t id, const fa2i_probe *probe, double *ret_us,
                            uint32_t *ret_blocks);
void fa2i_bench_drop_probe(fa2i_bench *bench);

/* Says whether the context refuses all work, as it does after a sticky error. Waits for the device. */
bool fa2i_bench_broken(const fa2i_bench *bench);
