/*
 * The limits of a card, measured on it by special kernels (templates/bench/ceiling_*). Benchmarks compare attention
 * with these rates.
 *
 * A rate is the best of FA2I_CEILING_RUNS launches of about a millisecond each, with as many blocks as the card holds
 * at once. On a software device it is modelled: the time that one more iteration would add. Errors: a ceiling's failure
 * is in its record. A status means that the measurement cannot go on. Not thread-safe.
 */
#pragma once

#include <stdio.h>
#include "tuner/bench/kernels.h"
#include "tuner/bench/nvml.h"
#include "tuner/worker/worker.h"

typedef enum fa2i_ceiling_id {
    FA2I_CEILING_FP16,       /* tensor rate: fp16 products summed in fp32, TFLOPS */
    FA2I_CEILING_FP16_K8,    /* the same by m16n8k8 */
    FA2I_CEILING_FP16_FP16,  /* fp16 products summed in fp16 */
    FA2I_CEILING_BF16,       /* bf16 products summed in fp32 */
    FA2I_CEILING_FP16_WGMMA, /* fp16 products of a warpgroup, summed in fp32 */
    FA2I_CEILING_BF16_WGMMA, /* the same with bf16 */
    FA2I_CEILING_EX2,        /* ex2.approx, 1e9 per second */
    FA2I_CEILING_SHARED,     /* reading shared memory, GB/s */
    FA2I_CEILING_L2,         /* reading data that the L2 holds, GB/s */
    FA2I_CEILING_READ,       /* reading device memory, GB/s */
    FA2I_CEILING_COPY,       /* copying device memory: bytes read and written, GB/s */
    FA2I_CEILINGS
} fa2i_ceiling_id;

enum { FA2I_CEILING_RUNS = 9 };

typedef struct fa2i_ceiling {
    const char *name, *what, *unit; /* static */
    double rate;                    /* in the unit; 0: it was not measured, and `why` says why */
    char why[FA2I_DETAIL_BYTES];
} fa2i_ceiling;

/* Measures all ceilings. worker: the one of the kernels' list. *stop (may be NULL) nonzero ends it early. After each
 * ceiling the state of the card is read into *seen (may be NULL). */
fa2_status fa2i_ceilings_measure(fa2i_kernel_list *kernels, fa2i_worker *worker, const volatile sig_atomic_t *stop,
                                 const fa2i_nvml *nvml, fa2i_conditions *seen, fa2i_ceiling ceilings[FA2I_CEILINGS]);

/* Prints the members name, unit, rate and, without a rate, why of a JSON object. */
void fa2i_ceiling_print(const fa2i_ceiling *ceiling, FILE *out);

/* Returns the best measured rate of products of a dtype that are summed in fp32, in TFLOPS; 0: none was measured. No
 * ceiling is of fp32. */
double fa2i_ceilings_products(const fa2i_ceiling ceilings[FA2I_CEILINGS], fa2_dtype dtype);
