/*
 * Attention with fa2, from nothing to a checked result:
 *
 *     attention [B H S D causal] [--softcap C] [--window LEFT,RIGHT] [--db FILE]
 *
 * fills Q, K and V with random fp16 numbers, lets fa2 choose and launch a kernel, compares O with a
 * double-precision computation on the CPU, and says which kernel ran, by which rule, and how fast.
 * --softcap caps scores at C; --window lets a query see LEFT keys before its own position and RIGHT
 * behind it, -1 being all of them.
 * Exit status: 0 right; 1 wrong, or something failed; 2 bad arguments; 3 no usable GPU.
 */
#include <cuda.h>
#include <fa2.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "driver.h"
#include "reference.h"

enum { EXIT_WRONG = 1, EXIT_ARGUMENTS = 2, EXIT_NO_GPU = 3 };
enum { SEED = 2023, CALLS = 50, CHECKED_ROWS = 512 };

/* |V| <= 1: rounding P and then O to fp16 moves O by at most 2^-11 each; sums are fp32. The GPU's tanh
 * moves a score, and so its weight, by about 2^-11 of it, which is little for random numbers. */
static const double bound = 1.0 / 1024;

/* Everything that must be given back. Tensors are [B, S, H, D]: q, k, v, o. */
typedef struct resources {
    driver cuda;
    CUdevice device;
    CUcontext current;
    fa2_context *fa2;
    float softcap; /* with fa2_problem.softcap */
    uint16_t *host[4];
    CUdeviceptr gpu[4];
} resources;

static int complain(const char *what)
{
    fprintf(stderr, "attention: %s\n", what);
    return EXIT_WRONG;
}

static int no_gpu(fa2_status status)
{
    return status == FA2_E_NO_DRIVER || status == FA2_E_NO_DEVICE || status == FA2_E_UNSUPPORTED;
}

/* A prepared fa2 context for device 0; and device 0's primary CUDA context, current in this
 * thread. */
static int open_device(resources *r, const char *database, const fa2_problem *problem)
{
    const fa2_config config = {.database = database, .device_plus_one = 1};
    fa2_status status = fa2_context_create(&config, &r->fa2);
    if (status == FA2_OK)
        status = fa2_prepare(r->fa2, problem); /* or let the first fa2_forward do it */
    if (status != FA2_OK) {
        complain(fa2_last_message());
        return no_gpu(status) ? EXIT_NO_GPU : EXIT_WRONG;
    }
    const char *missing = driver_load(&r->cuda);
    if (missing != NULL)
        return complain(missing);
    if (r->cuda.init(0) != CUDA_SUCCESS || r->cuda.device_get(&r->device, 0) != CUDA_SUCCESS ||
        r->cuda.primary_ctx_retain(&r->current, r->device) != CUDA_SUCCESS ||
        r->cuda.ctx_set_current(r->current) != CUDA_SUCCESS)
        return complain("the primary context of device 0 cannot be used");
    return 0;
}

static int fill_tensors(resources *r, size_t elems)
{
    const size_t bytes = elems * sizeof(uint16_t);
    uint64_t seed = SEED;

    for (int t = 0; t < 4; t++) {
        r->host[t] = malloc(bytes);
        if (r->host[t] == NULL || r->cuda.mem_alloc(&r->gpu[t], bytes) != CUDA_SUCCESS)
            return complain("no memory for the tensors");
        for (size_t i = 0; i < elems; i++)
            r->host[t][i] = half_random(&seed);
        if (r->cuda.memcpy_htod(r->gpu[t], r->host[t], bytes) != CUDA_SUCCESS)
            return complain("the tensors cannot be copied to the GPU");
    }
    return 0;
}

static fa2_tensor tensor_at(CUdeviceptr data, const fa2_problem *p)
{
    return (fa2_tensor){.data = (void *)(uintptr_t)data,
                        .stride_batch = (int64_t)p->seq_q * p->heads_q * p->head_dim,
                        .stride_seq = (int64_t)p->heads_q * p->head_dim,
                        .stride_head = p->head_dim};
}

static double now_us(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* Launch once to check it, launch CALLS times more for the time, and fetch O. */
static int run(resources *r, const fa2_problem *problem, size_t elems, double *ret_us)
{
    const fa2_forward_args args = {.q = tensor_at(r->gpu[0], problem),
                                   .k = tensor_at(r->gpu[1], problem),
                                   .v = tensor_at(r->gpu[2], problem),
                                   .o = tensor_at(r->gpu[3], problem),
                                   .softcap = r->softcap};

    if (fa2_forward(r->fa2, problem, &args, NULL) != FA2_OK)
        return complain(fa2_last_message());
    if (r->cuda.ctx_synchronize() != CUDA_SUCCESS)
        return complain("the kernel failed");

    const double start = now_us();
    for (int call = 0; call < CALLS; call++)
        if (fa2_forward(r->fa2, problem, &args, NULL) != FA2_OK)
            return complain(fa2_last_message());
    if (r->cuda.ctx_synchronize() != CUDA_SUCCESS)
        return complain("the kernel failed");
    *ret_us = (now_us() - start) / CALLS;
    if (r->cuda.memcpy_dtoh(r->host[3], r->gpu[3], elems * sizeof(uint16_t)) != CUDA_SUCCESS)
        return complain("O cannot be copied from the GPU");
    return 0;
}

/* The largest error over rows spread evenly over O; infinite if O has something that is no
 * number. */
static int measure_error(const resources *r, const fa2_problem *p, double *ret_error)
{
    const long rows = (long)p->batch * p->seq_q * p->heads_q;
    const long checked = rows < CHECKED_ROWS ? rows : CHECKED_ROWS;
    double *scores = calloc((size_t)(p->seq_k + p->head_dim), sizeof(*scores));
    double worst = 0;

    if (scores == NULL)
        return complain("no memory for the reference");
    double *expected = scores + p->seq_k;
    for (long n = 0; n < checked; n++) {
        const long row = n * rows / checked; /* of [B, S, H] */
        const int h = (int)(row % p->heads_q), i = (int)(row / p->heads_q % p->seq_q);
        const int b = (int)(row / p->heads_q / p->seq_q);
        reference_row(p, (double)r->softcap, r->host[0], r->host[1], r->host[2], b, h, i, scores,
                      expected);
        for (int d = 0; d < p->head_dim; d++) {
            const double got = half_to_double(r->host[3][row * p->head_dim + d]);
            worst = isfinite(got) ? fmax(worst, fabs(got - expected[d])) : INFINITY;
        }
    }
    free(scores);
    *ret_error = worst;
    return 0;
}

static int report(resources *r, const fa2_problem *problem, double us, double error)
{
    fa2_explanation e = {.struct_bytes = sizeof(e)};
    if (fa2_explain(r->fa2, problem, &e) != FA2_OK)
        return complain(fa2_last_message());
    printf("problem    B=%d H=%d S=%d D=%d causal=%d", (int)problem->batch, (int)problem->heads_q,
           (int)problem->seq_q, (int)problem->head_dim, (int)problem->causal);
    if (problem->softcap)
        printf(" softcap=%g", (double)r->softcap);
    if (problem->window)
        printf(" window=%d,%d", (int)problem->window_left, (int)problem->window_right);
    printf("\nkernel     %s (%s)\n", e.variant, e.target);
    printf("rule       %s: %s\n", fa2_rule_string(e.rule), e.reason);
    printf("resources  %d registers, %d bytes spilled, %d bytes shared memory\n", e.registers,
           e.spill_bytes, e.smem_bytes);
    printf("time       %.1f us per call, mean of %d launched back to back\n", us, CALLS);
    printf("max error  %.2e (bound %.2e, seed %d)\n", error, bound, SEED);
    return error <= bound ? 0 : EXIT_WRONG;
}

static void give_back(resources *r)
{
    fa2_context_destroy(r->fa2); /* NULL is fine */
    for (int t = 0; t < 4; t++) {
        if (r->gpu[t] != 0)
            r->cuda.mem_free(r->gpu[t]);
        free(r->host[t]);
    }
    if (r->current != NULL)
        r->cuda.primary_ctx_release(r->device);
}

static int read_number(const char *text, int32_t *ret_number)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (end == text || *end != '\0' || number < 0 || number > INT32_MAX)
        return -1;
    *ret_number = (int32_t)number;
    return 0;
}

/* "LEFT,RIGHT"; fa2 says what is wrong with the numbers. */
static int read_window(const char *text, fa2_problem *problem)
{
    char *comma, *end;
    const long left = strtol(text, &comma, 10);
    if (comma == text || *comma != ',')
        return -1;
    const long right = strtol(comma + 1, &end, 10);
    if (end == comma + 1 || *end != '\0' || left < INT32_MIN || left > INT32_MAX ||
        right < INT32_MIN || right > INT32_MAX)
        return -1;
    problem->window = 1;
    problem->window_left = (int32_t)left;
    problem->window_right = (int32_t)right;
    return 0;
}

static int read_softcap(const char *text, fa2_problem *problem, float *ret_softcap)
{
    char *end;
    *ret_softcap = strtof(text, &end);
    problem->softcap = 1;
    return end == text || *end != '\0' ? -1 : 0;
}

/* An option that has a value. */
static int read_option(const char *name, const char *value, resources *r, fa2_problem *problem,
                       const char **ret_database)
{
    if (strcmp(name, "--softcap") == 0)
        return read_softcap(value, problem, &r->softcap);
    if (strcmp(name, "--window") == 0)
        return read_window(value, problem);
    if (strcmp(name, "--db") != 0)
        return -1;
    *ret_database = value;
    return 0;
}

/* Numbers and options, in any order. 0, or -1. */
static int read_arguments(int argc, char **argv, resources *r, fa2_problem *problem,
                          const char **ret_database)
{
    int32_t numbers[5] = {2, 8, 1024, 64, 1}; /* B H S D causal */
    int given = 0;

    *problem = (fa2_problem){.op = FA2_OP_FORWARD, .dtype = FA2_FP16};
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) == 0 && i + 1 < argc) {
            if (read_option(argv[i], argv[i + 1], r, problem, ret_database) != 0)
                return -1;
            i++;
        } else if (given == 5 || read_number(argv[i], &numbers[given++]) != 0) {
            return -1;
        }
    }
    if (given != 0 && given != 5)
        return -1;
    problem->batch = numbers[0];
    problem->heads_q = problem->heads_kv = numbers[1];
    problem->seq_q = problem->seq_k = numbers[2];
    problem->head_dim = numbers[3];
    problem->causal = numbers[4];
    return 0;
}

int main(int argc, char **argv)
{
    resources r = {.fa2 = NULL};
    fa2_problem problem;
    const char *database = NULL; /* fa2's default */
    double us = 0, error = INFINITY;

    if (read_arguments(argc, argv, &r, &problem, &database) != 0) {
        fprintf(stderr, "usage: attention [B H S D causal] [--softcap C] [--window LEFT,RIGHT] "
                        "[--db FILE]\n");
        return EXIT_ARGUMENTS;
    }
    const size_t elems = (size_t)problem.batch * (size_t)problem.seq_q * (size_t)problem.heads_q *
                         (size_t)problem.head_dim;
    int exit_status = open_device(&r, database, &problem);
    if (exit_status == 0)
        exit_status = fill_tensors(&r, elems);
    if (exit_status == 0)
        exit_status = run(&r, &problem, elems, &us);
    if (exit_status == 0)
        exit_status = measure_error(&r, &problem, &error);
    if (exit_status == 0)
        exit_status = report(&r, &problem, us, error);
    give_back(&r);
    return exit_status;
}
