/*
 * Attention computed by the host in place of launches: a hook for the fake driver (fake.on_launch). It reads the
 * parameter block and writes O and LSE, so that the tuner's verification finds correct results. Times depend on the
 * variant. Kernels can be made to misbehave:
 *
 *     function test_fault    breaks the context        function test_hang     never ends
 *     text "// behave=wrong" ignores the last key      "// behave=outside"    writes before O
 *     "// behave=die"        kills the process
 *     $FA2_TEST_WRONG        variants with this text in their source are wrong
 *     "// behave=killed"     kills the process and creates the file $FA2_TEST_ONCE, unless the file exists
 *     "// behave=late"       never ends, and creates that file, unless the file exists
 *     "// behave=slow"       takes 6 s of host time to launch, and no device time
 *     "// behave=silent"     never returns from the launch
 *     $FA2_TEST_WRONG_AT     with FA2_TEST_WRONG: only if seq_q is this number
 *     $FA2_TEST_SLEEP_US     real time that each launch takes
 */
#pragma once

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "fake_cuda.h"
#include "tuner/judge/attention.h"
#include "tuner/judge/number.h"

/* What a kernel's text says. problem: the one that the kernel is compiled for. */
typedef struct attention_kernel {
    uint64_t module; /* its number; 0: none */
    fa2_problem problem;
    double pace; /* microseconds per 10^6 query-key products: 30 to 60, chosen by the text */
    bool wrong, dies, is_killed, is_late, is_slow, is_silent, writes_outside;
} attention_kernel;

static inline int attention_constant(const char *source, const char *name)
{
    const char *at = strstr(source, name);
    return at == NULL ? 0 : atoi(at + strlen(name));
}

/* The inner loops take most of the time of tests under the sanitizers, which need not look at the fake. */
#define ATTENTION_UNCHECKED __attribute__((no_sanitize("address", "undefined")))

/* Returns the numbers of all bit patterns of a type. */
ATTENTION_UNCHECKED static inline const float *attention_numbers(fa2_dtype dtype)
{
    static float numbers[2][1 << 16];
    float *of_type = numbers[dtype == FA2_BF16];
    const bool is_new = of_type[1] == 0; /* the least number above 0 */
    for (size_t bits = 0; is_new && bits < 1 << 16; bits++)
        of_type[bits] = fa2i_from_bits(dtype, (uint16_t)bits);
    return of_type;
}

/* Converts the rows of a head to floats [rows, head_dim]. The caller frees them. */
ATTENTION_UNCHECKED static inline float *attention_read(const attention_kernel *kernel, uint64_t base,
                                                        const int64_t stride[3], int b, int rows, int h)
{
    const uint16_t *from = (const uint16_t *)(uintptr_t)base + b * stride[0] + h * stride[2];
    const float *numbers = attention_numbers(kernel->problem.dtype);
    size_t head_dim = (size_t)kernel->problem.head_dim;
    float *to = malloc((size_t)rows * head_dim * sizeof *to);
    for (size_t i = 0; i < (size_t)rows; i++)
        for (size_t d = 0; d < head_dim; d++)
            to[i * head_dim + d] = numbers[from[(int64_t)i * stride[1] + (int64_t)d]];
    return to;
}

/* Returns a score of the softmax from the product of a query and a key. */
ATTENTION_UNCHECKED static inline float attention_score(const attention_kernel *kernel, const fa2i_forward_params *p,
                                                        float product)
{
    return p->scale * (kernel->problem.softcap ? tanhf(product * p->softcap_rate) : product);
}

/* Returns the product of a query and a key. D is a multiple of 8: eight sums let the compiler vectorise. */
ATTENTION_UNCHECKED static inline float attention_product(const float *q, const float *k, int head_dim)
{
    float sums[8] = {0}, sum = 0;
    for (int d = 0; d < head_dim; d += 8)
        for (int i = 0; i < 8; i++)
            sums[i] += q[d + i] * k[d + i];
    for (int i = 0; i < 8; i++)
        sum += sums[i];
    return sum;
}

/* Computes one row over these keys by online softmax: acc becomes O. Returns the LSE. */
ATTENTION_UNCHECKED static inline float attention_row(const attention_kernel *kernel, const fa2i_forward_params *p,
                                                      fa2i_keys keys, const float *q, const float *k, const float *v,
                                                      float *acc)
{
    const int head_dim = kernel->problem.head_dim;
    float sum = 0, largest = -INFINITY;
    memset(acc, 0, (size_t)head_dim * sizeof *acc);
    for (int j = keys.first; j < keys.end; j++) {
        const float score = attention_score(kernel, p, attention_product(q, k + j * head_dim, head_dim));
        if (score > largest) {
            const float keep = expf(largest - score);
            sum *= keep;
            for (int d = 0; d < head_dim; d++)
                acc[d] *= keep;
            largest = score;
        }
        const float weight = expf(score - largest);
        sum += weight;
        for (int d = 0; d < head_dim; d++)
            acc[d] += weight * v[j * head_dim + d];
    }
    for (int d = 0; d < head_dim && keys.end > keys.first; d++)
        acc[d] /= sum;
    return keys.end > keys.first ? largest + logf(sum) : -INFINITY;
}

ATTENTION_UNCHECKED static inline void attention_head(const attention_kernel *kernel, const fa2i_forward_params *p,
                                                      int b, int h)
{
    float *q = attention_read(kernel, p->q, p->q_stride, b, p->seq_q, h);
    float *k = attention_read(kernel, p->k, p->k_stride, b, p->seq_k, h / p->group);
    float *v = attention_read(kernel, p->v, p->v_stride, b, p->seq_k, h / p->group);
    float *lse = (float *)(uintptr_t)p->lse;
    const int head_dim = kernel->problem.head_dim;
    fa2_problem problem = kernel->problem;
    problem.seq_q = p->seq_q;
    problem.seq_k = p->seq_k;
    problem.window_left = kernel->problem.window ? p->window_left : 0;
    problem.window_right = kernel->problem.window ? p->window_right : 0;
    for (int row = 0; row < p->seq_q; row++) {
        uint16_t *o = (uint16_t *)(uintptr_t)p->o + b * p->o_stride[0] + row * p->o_stride[1] + h * p->o_stride[2];
        float acc[256];
        fa2i_keys keys = fa2i_keys_seen(&problem, row);
        keys.end -= kernel->wrong && keys.end > keys.first;
        float row_lse = attention_row(kernel, p, keys, q + row * head_dim, k, v, acc);
        for (int d = 0; d < head_dim; d++)
            o[d] = fa2i_to_bits(problem.dtype, acc[d]);
        if (lse != NULL)
            lse[((int64_t)b * p->heads_q + h) * p->seq_q + row] = row_lse;
    }
    free(q);
    free(k);
    free(v);
}

static inline double attention_pace(const char *source)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (const char *c = source; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    return 30 + (double)(hash % 3000) / 100.0;
}

static inline attention_kernel attention_read_text(const fake_launch *launch)
{
    const char *source = launch->source;
    return (attention_kernel){
        .module = launch->module,
        .problem = {.head_dim = attention_constant(source, "kHeadDim = "),
                    .causal = attention_constant(source, "kCausal = "),
                    .softcap = strstr(source, "kSoftcap = true") != NULL,
                    .window = strstr(source, "kWindow = ") != NULL && strstr(source, "kWindow = Window::kNone") == NULL,
                    .dtype = strstr(source, "\nusing Elem = bf16;") != NULL ? FA2_BF16 : FA2_FP16},
        .pace = attention_pace(source),
        .wrong = strstr(source, "// behave=wrong") != NULL,
        .dies = strstr(source, "// behave=die") != NULL,
        .is_killed = strstr(source, "// behave=killed") != NULL,
        .is_late = strstr(source, "// behave=late") != NULL,
        .is_slow = strstr(source, "// behave=slow") != NULL,
        .is_silent = strstr(source, "// behave=silent") != NULL,
        .writes_outside = strstr(source, "// behave=outside") != NULL,
    };
}

/* Returns what the launched kernel's text says. It is long, so it is read once per module. */
static inline attention_kernel attention_kernel_of(const fake_launch *launch)
{
    static attention_kernel known[256];
    attention_kernel *kernel = &known[launch->module % (sizeof known / sizeof *known)];
    if (kernel->module != launch->module)
        *kernel = attention_read_text(launch);
    return *kernel;
}

/* Launches a misbehaving family. The fake driver knows no parameters of it. */
static inline CUresult attention_test_family(const fake_launch *launch)
{
    const bool hangs = strcmp(launch->function, "test_hang") == 0;
    fake.hung |= hangs && !launch->captured;
    return hangs || launch->captured ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* Returns true at the first launch of all processes that share the file FA2_TEST_ONCE. */
static inline bool attention_once(void)
{
    const char *path = getenv("FA2_TEST_ONCE");
    if (path == NULL || access(path, F_OK) == 0)
        return false;
    FILE *file = fopen(path, "w");
    if (file != NULL)
        fclose(file);
    return true;
}

/* Is the variant wrong by the environment? */
static inline bool attention_is_wrong(const fake_launch *launch)
{
    const char *wrong = getenv("FA2_TEST_WRONG"), *at = getenv("FA2_TEST_WRONG_AT");
    return wrong != NULL && strstr(launch->source, wrong) != NULL && (at == NULL || atoi(at) == launch->params.seq_q);
}

static inline void attention_misbehave(const attention_kernel *kernel, const fake_launch *launch)
{
    if (kernel->dies || (kernel->is_killed && attention_once()))
        raise(SIGKILL);
    if (kernel->is_late)
        fake.hung |= attention_once();
    if (kernel->is_slow)
        nanosleep(&(struct timespec){.tv_sec = 6}, NULL);
    if (kernel->is_silent)
        pause();
    if (kernel->writes_outside)
        ((uint16_t *)(uintptr_t)launch->params.o)[-3] = 0;
}

static inline CUresult attention_on_launch(fake_launch *launch, void *user)
{
    const fa2i_forward_params *p = &launch->params;
    const char *sleep_us = getenv("FA2_TEST_SLEEP_US");
    (void)user;
    if (strncmp(launch->function, "test_", 5) == 0)
        return attention_test_family(launch);
    attention_kernel kernel = attention_kernel_of(launch);
    const bool combine = strstr(launch->function, "_combine") != NULL;
    const double products = combine ? 0 : (double)p->batch * p->heads_q * p->seq_q * p->seq_k;
    launch->duration_us = kernel.pace * (products * 1e-6 + 0.1);
    if (sleep_us != NULL)
        nanosleep(&(struct timespec){.tv_nsec = 1000 * atol(sleep_us)}, NULL);
    if (launch->captured)
        return CUDA_SUCCESS;
    if (p->splits > 1 && !combine) /* the combine kernel computes the result */
        return CUDA_SUCCESS;
    attention_misbehave(&kernel, launch);
    /* Compute only poisoned outputs. Other launches are only timed. */
    if (*(const uint16_t *)(uintptr_t)p->o != 0xffff)
        return CUDA_SUCCESS;
    kernel.wrong |= attention_is_wrong(launch);
    for (int b = 0; b < p->batch; b++)
        for (int h = 0; h < p->heads_q; h++)
            attention_head(&kernel, p, b, h);
    return CUDA_SUCCESS;
}
