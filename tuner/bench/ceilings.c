/*
 * The work of a thread per iteration is described at the top of each kernel's template.
 */
#include "tuner/bench/ceilings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/shown.h"

enum {
    SMALL_BYTES = 4096, /* kernels that do not measure memory also get some */
    CARD_THREADS = 256, /* per block: gen/bench/ceilings.lua */
    ITERATIONS_FIRST = 16,
    ITERATIONS_MOST = 1 << 24,
    ITERATIONS_MODELLED = 4
};
#define LAUNCH_US 1000.0

/* Work per thread and iteration. */
#define TENSOR_FLOP(k) (2 * 8 * 2.0 * 16 * 8 * (k) / 32)
#define WGMMA_FLOP     (4 * 2.0 * 64 * 256 * 16 / 128)
#define EX2_RESULTS    (4 * 8.0)
#define CHUNKS_BYTES   (8 * 16.0)

typedef enum where { NO_MEMORY, IN_L2, BEYOND_L2 } where;

static const struct definition {
    const char *name, *variant, *what, *unit;
    double work, per_us; /* work per thread and iteration; work per us in one unit */
    where memory;
    int least_arch, most_arch; /* most_arch 0: no limit */
} definitions[FA2I_CEILINGS] = {
    [FA2I_CEILING_FP16] = {"tensor_fp16", "ceiling_tensor k=16 dtype=fp16 sum=fp32",
                           "mma m16n8k16, fp16 summed in fp32", "TFLOPS", TENSOR_FLOP(16), 1e6, NO_MEMORY, 80, 0},
    [FA2I_CEILING_FP16_K8] = {"tensor_fp16_k8", "ceiling_tensor k=8 dtype=fp16 sum=fp32",
                              "mma m16n8k8, fp16 summed in fp32", "TFLOPS", TENSOR_FLOP(8), 1e6, NO_MEMORY, 75, 0},
    [FA2I_CEILING_FP16_FP16] = {"tensor_fp16_fp16", "ceiling_tensor k=16 dtype=fp16 sum=fp16",
                                "mma m16n8k16, fp16 summed in fp16", "TFLOPS", TENSOR_FLOP(16), 1e6, NO_MEMORY, 80, 0},
    [FA2I_CEILING_BF16] = {"tensor_bf16", "ceiling_tensor k=16 dtype=bf16 sum=fp32",
                           "mma m16n8k16, bf16 summed in fp32", "TFLOPS", TENSOR_FLOP(16), 1e6, NO_MEMORY, 80, 0},
    [FA2I_CEILING_FP16_WGMMA] = {"wgmma_fp16", "ceiling_wgmma dtype=fp16", "wgmma m64n256k16, fp16 summed in fp32",
                                 "TFLOPS", WGMMA_FLOP, 1e6, NO_MEMORY, 90, 90},
    [FA2I_CEILING_BF16_WGMMA] = {"wgmma_bf16", "ceiling_wgmma dtype=bf16", "wgmma m64n256k16, bf16 summed in fp32",
                                 "TFLOPS", WGMMA_FLOP, 1e6, NO_MEMORY, 90, 90},
    [FA2I_CEILING_EX2] = {"ex2", "ceiling_ex2", "ex2.approx", "G/s", EX2_RESULTS, 1e3, NO_MEMORY, 75, 0},
    [FA2I_CEILING_SHARED] = {"shared", "ceiling_shared", "reading shared memory", "GB/s", CHUNKS_BYTES, 1e3, NO_MEMORY,
                             75, 0},
    [FA2I_CEILING_L2] = {"l2", "ceiling_read", "reading half of the L2", "GB/s", CHUNKS_BYTES, 1e3, IN_L2, 75, 0},
    [FA2I_CEILING_READ] = {"read", "ceiling_read", "reading device memory", "GB/s", CHUNKS_BYTES, 1e3, BEYOND_L2, 75,
                           0},
    [FA2I_CEILING_COPY] = {"copy", "ceiling_copy", "copying device memory, read and written", "GB/s", 2 * CHUNKS_BYTES,
                           1e3, BEYOND_L2, 75, 0},
};

typedef struct work {
    fa2i_kernel_list *kernels;
    fa2i_worker *worker;
    const volatile sig_atomic_t *stop;
    const struct definition *of;
    uint32_t id;
    fa2i_probe probe;
    fa2i_failure failure;
    uint32_t blocks;
} work;

double fa2i_ceilings_products(const fa2i_ceiling ceilings[FA2I_CEILINGS], fa2_dtype dtype)
{
    static const fa2i_ceiling_id fp16[] = {FA2I_CEILING_FP16, FA2I_CEILING_FP16_K8, FA2I_CEILING_FP16_WGMMA};
    static const fa2i_ceiling_id bf16[] = {FA2I_CEILING_BF16, FA2I_CEILING_BF16_WGMMA};
    double most = 0;
    if (dtype == FA2_FP32)
        return 0;
    if (dtype == FA2_BF16)
        for (size_t i = 0; i < sizeof bf16 / sizeof *bf16; i++)
            most = fmax(most, ceilings[bf16[i]].rate);
    else
        for (size_t i = 0; i < sizeof fp16 / sizeof *fp16; i++)
            most = fmax(most, ceilings[fp16[i]].rate);
    return most;
}

void fa2i_ceiling_print(const fa2i_ceiling *ceiling, FILE *out)
{
    fa2i_json_write(out, "'name':%s,'unit':%s,'rate':%.6g", ceiling->name, ceiling->unit,
                    fa2i_json_known(ceiling->rate));
    if (ceiling->rate <= 0)
        fa2i_json_write(out, ",'why':%s", ceiling->why);
}

static int64_t bytes_of(where memory, const fa2i_gpu *gpu)
{
    const int64_t l2 = gpu->card.l2_bytes > 0 ? gpu->card.l2_bytes : 1 << 22;
    if (memory == NO_MEMORY || gpu->modelled) /* the model treats all bytes alike, and a large area takes long */
        return SMALL_BYTES;
    if (memory == IN_L2)
        return l2 / 2;
    const int64_t wanted = l2 * 4 > (int64_t)1 << 28 ? l2 * 4 : (int64_t)1 << 28;
    const int64_t most = (int64_t)(gpu->memory_bytes / 16);
    return wanted < most ? wanted : most;
}

static bool stopped(const work *w)
{
    return w->stop != NULL && *w->stop != 0;
}

/* Finds the us of a launch; 0 if the kernel fails. */
static fa2_status probe(work *w, int iterations, double *ret_us)
{
    *ret_us = 0;
    w->probe.iterations = iterations;
    return fa2i_worker_probe(w->worker, w->id, &w->probe, ret_us, &w->blocks, &w->failure);
}

/* Returns the rate, in the unit, of so many iterations in this time. */
static double rate_of(const work *w, int iterations, double us)
{
    return w->of->work * CARD_THREADS * w->blocks * iterations / us / w->of->per_us;
}

/* Takes the difference of two short runs, because there is no time for many iterations. So the cost of a launch does
 * not count. */
static fa2_status model(work *w, double *ret_rate)
{
    double few_us = 0, more_us = 0;
    fa2_status st = FA2_OK;
    FA2_TRY(probe(w, ITERATIONS_MODELLED, &few_us));
    if (w->failure.outcome == FA2I_OUTCOME_OK)
        FA2_TRY(probe(w, 2 * ITERATIONS_MODELLED, &more_us));
    if (more_us > few_us)
        *ret_rate = rate_of(w, ITERATIONS_MODELLED, more_us - few_us);
done:
    return st;
}

static fa2_status measure(work *w, double *ret_rate)
{
    fa2_status st = FA2_OK;
    int iterations = ITERATIONS_FIRST;
    double us = 0;
    for (;; iterations *= 2) {
        FA2_TRY(probe(w, iterations, &us));
        if (us == 0 || us >= LAUNCH_US || iterations >= ITERATIONS_MOST || stopped(w))
            break;
    }
    for (int i = 0; i < FA2I_CEILING_RUNS && w->failure.outcome == FA2I_OUTCOME_OK; i++) {
        FA2_TRY(probe(w, iterations, &us));
        if (us > 0)
            *ret_rate = fmax(*ret_rate, rate_of(w, iterations, us));
    }
done:
    return st;
}

static bool is_of_kernel(fa2_status status)
{
    return status == FA2_E_UNSUPPORTED || status == FA2_E_NO_NVRTC || status == FA2_E_CUDA;
}

/* Says whether the device has no such rate, and sets the reason. */
static bool is_missing(const work *w, fa2i_ceiling *ceiling)
{
    const fa2i_gpu *gpu = w->kernels->gpu;
    if (gpu->card.arch < w->of->least_arch || (w->of->most_arch > 0 && gpu->card.arch > w->of->most_arch))
        snprintf(ceiling->why, sizeof ceiling->why, "sm_%d does not have it", gpu->card.arch);
    else if (gpu->modelled && w->of->memory == BEYOND_L2) /* the rate would be four times the memory's own */
        snprintf(ceiling->why, sizeof ceiling->why,
                 "a software device does not model which bytes the L2 has; it takes three of four to be there");
    return ceiling->why[0] != '\0';
}

static fa2_status run(work *w, fa2i_ceiling *ceiling)
{
    fa2_status st = FA2_OK;
    fa2i_variant variant;
    const fa2i_gpu *gpu = w->kernels->gpu;
    if (is_missing(w, ceiling))
        return FA2_OK;
    FA2_TRY(fa2i_generator_variant(w->kernels->generator, w->of->variant, &variant));
    FA2_TRY(fa2i_kernel_list_find(w->kernels, &variant, NULL, &w->id));
    const fa2i_kernel *kernel = fa2i_kernel_list_get(w->kernels, w->id);
    if (kernel->outcome == FA2I_OUTCOME_COMPILE_ERROR) {
        snprintf(ceiling->why, sizeof ceiling->why, "%.1000s", kernel->log == NULL ? "" : kernel->log);
        return FA2_OK;
    }
    w->probe.bytes = bytes_of(w->of->memory, gpu);
    FA2_TRY(gpu->modelled ? model(w, &ceiling->rate) : measure(w, &ceiling->rate));
    if (w->failure.outcome != FA2I_OUTCOME_OK)
        memcpy(ceiling->why, w->failure.detail, sizeof ceiling->why);
done:
    if (!is_of_kernel(st))
        return st;
    snprintf(ceiling->why, sizeof ceiling->why, "%s", fa2_last_message());
    return FA2_OK;
}

fa2_status fa2i_ceilings_measure(fa2i_kernel_list *kernels, fa2i_worker *worker, const volatile sig_atomic_t *stop,
                                 const fa2i_nvml *nvml, fa2i_conditions *seen, fa2i_ceiling ceilings[FA2I_CEILINGS])
{
    for (int i = 0; i < FA2I_CEILINGS; i++) {
        const struct definition *of = &definitions[i];
        work w = {.kernels = kernels, .worker = worker, .stop = stop, .of = of};
        ceilings[i] = (fa2i_ceiling){.name = of->name, .what = of->what, .unit = of->unit};
        const fa2_status st = stopped(&w) ? FA2_OK : run(&w, &ceilings[i]);
        if (st != FA2_OK)
            return st;
        if (seen != NULL && ceilings[i].rate > 0)
            fa2i_nvml_look(nvml, seen);
    }
    return FA2_OK;
}
