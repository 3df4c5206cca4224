/*
 * Attention with fa2, from nothing to a checked result:
 *
 *     attention [B H S D causal] [--backward] [--softcap C] [--window LEFT,RIGHT] [--db FILE]
 *
 * It fills Q, K and V with random fp16 numbers, and lets fa2 choose and launch a kernel. It compares O with a
 * double-precision computation on the CPU. Then it prints which kernel ran, by which rule, and how fast.
 *
 *     --backward   Also computes the gradients for a random dO, and compares the gradients of one head.
 *     --softcap    Caps scores at C.
 *     --window     Lets a query see LEFT keys before its own position and RIGHT after it. -1: all of them.
 *
 * Exit status: 0 right; 1 wrong, or something failed; 2 bad arguments; 3 no usable GPU.
 */
#include <cuda.h>
#include <fa2.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "arguments.h"
#include "driver.h"
#include "reference.h"

enum { EXIT_WRONG = 1, EXIT_ARGUMENTS = 2, EXIT_NO_GPU = 3 };
enum { SEED = 2023, CALLS = 50, CHECKED_ROWS = 512 };
enum { Q, K, V, O, OF_FORWARD, D_O = OF_FORWARD, DQ, DK, DV, TENSORS };

/* V| <= 1, so rounding P and then O to fp16 moves O by at most 2^-11 each. Sums are fp32. The GPU's tanh moves a score,
 * and so its weight, by about 2^-11 of it. That is little for random numbers. */
static const double bound = 1.0 / 1024;
/* Relative to the largest number in a gradient: P, dS and the gradient are rounded. */
static const double gradient_bound = 1.0 / 512;

/* Everything that must be freed. Tensors are [B, S, H, D]. */
typedef struct resources {
    driver cuda;
    CUdevice device;
    CUcontext current;
    fa2_context *fa2;
    arguments wanted;
    size_t elems; /* elements of a tensor */
    uint16_t *host[TENSORS];
    CUdeviceptr gpu[TENSORS], lse, workspace;
    size_t workspace_bytes; /* enough for both operations */
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

static fa2_problem backward_of(const fa2_problem *problem)
{
    fa2_problem backward = *problem;
    backward.op = FA2_OP_BACKWARD;
    return backward;
}

/* Prepares an operation. Asking for its workspace does that. */
static fa2_status prepare(resources *r, const fa2_problem *problem)
{
    size_t bytes = 0;
    const fa2_status status = fa2_workspace_size(r->fa2, problem, &bytes);
    r->workspace_bytes = bytes > r->workspace_bytes ? bytes : r->workspace_bytes;
    return status;
}

/* Prints fa2's log: for example, that there is no database, or that a kernel was compiled. */
static void tell(void *user, const char *message)
{
    (void)user;
    fprintf(stderr, "fa2: %s\n", message);
}

/* Makes a prepared fa2 context for device 0, and makes device 0's primary CUDA context current in this thread. */
static int open_device(resources *r)
{
    const fa2_config config = {
        .struct_bytes = sizeof(fa2_config), .database = r->wanted.database, .device_plus_one = 1, .log = tell};
    const fa2_problem backward = backward_of(&r->wanted.problem);
    fa2_status status = fa2_context_create(&config, &r->fa2);
    if (status == FA2_OK)
        status = prepare(r, &r->wanted.problem);
    if (status == FA2_OK && r->wanted.backward)
        status = prepare(r, &backward);
    if (status != FA2_OK) {
        complain(fa2_last_message());
        return no_gpu(status) ? EXIT_NO_GPU : EXIT_WRONG;
    }
    const char *missing = driver_open(&r->cuda, &r->device, &r->current);
    return missing == NULL ? 0 : complain(missing);
}

/* Allocates device memory, unless bytes is 0. Returns 0, or -1. */
static int reserve(resources *r, CUdeviceptr *memory, size_t bytes)
{
    return bytes == 0 || r->cuda.mem_alloc(memory, bytes) == CUDA_SUCCESS ? 0 : -1;
}

static int fill_tensors(resources *r, const fa2_problem *p)
{
    const size_t bytes = r->elems * sizeof(uint16_t);
    const size_t rows = r->elems / (size_t)p->head_dim;
    uint64_t seed = SEED;
    for (int t = 0; t < (r->wanted.backward ? TENSORS : OF_FORWARD); t++) {
        r->host[t] = malloc(bytes);
        if (r->host[t] == NULL || reserve(r, &r->gpu[t], bytes) != 0)
            return complain("no memory for the tensors");
        for (size_t i = 0; i < r->elems; i++)
            r->host[t][i] = half_random(&seed);
        if (r->cuda.memcpy_htod(r->gpu[t], r->host[t], bytes) != CUDA_SUCCESS)
            return complain("the tensors cannot be copied to the GPU");
    }
    if (reserve(r, &r->lse, rows * sizeof(float)) != 0 || reserve(r, &r->workspace, r->workspace_bytes) != 0)
        return complain("no memory for LSE and workspace");
    return 0;
}

static fa2_tensor tensor_at(CUdeviceptr data, const fa2_problem *p)
{
    return (fa2_tensor){.data = (void *)(uintptr_t)data,
                        .stride_batch = (int64_t)p->seq_q * p->heads_q * p->head_dim,
                        .stride_seq = (int64_t)p->heads_q * p->head_dim,
                        .stride_head = p->head_dim};
}

/* Backward needs LSE and O from forward. */
static fa2_status call_forward(const resources *r, const fa2_problem *p)
{
    const fa2_forward_args args = {.struct_bytes = sizeof(fa2_forward_args),
                                   .q = tensor_at(r->gpu[Q], p),
                                   .k = tensor_at(r->gpu[K], p),
                                   .v = tensor_at(r->gpu[V], p),
                                   .o = tensor_at(r->gpu[O], p),
                                   .lse = r->wanted.backward ? (float *)(uintptr_t)r->lse : NULL,
                                   .workspace = (void *)(uintptr_t)r->workspace,
                                   .workspace_bytes = r->workspace_bytes,
                                   .softcap = r->wanted.softcap};
    return fa2_forward(r->fa2, p, &args, NULL);
}

static fa2_status call_backward(const resources *r, const fa2_problem *p)
{
    const fa2_backward_args args = {.struct_bytes = sizeof(fa2_backward_args),
                                    .q = tensor_at(r->gpu[Q], p),
                                    .k = tensor_at(r->gpu[K], p),
                                    .v = tensor_at(r->gpu[V], p),
                                    .o = tensor_at(r->gpu[O], p),
                                    .d_o = tensor_at(r->gpu[D_O], p),
                                    .dq = tensor_at(r->gpu[DQ], p),
                                    .dk = tensor_at(r->gpu[DK], p),
                                    .dv = tensor_at(r->gpu[DV], p),
                                    .lse = (const float *)(uintptr_t)r->lse,
                                    .workspace = (void *)(uintptr_t)r->workspace,
                                    .workspace_bytes = r->workspace_bytes,
                                    .softcap = r->wanted.softcap};
    return fa2_backward(r->fa2, p, &args, NULL);
}

static double now_us(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* Launches once to check the result, then CALLS times for the time, and copies the outputs first ... last to the
 * host. */
static int run(resources *r, const fa2_problem *problem, int first, int last, double *ret_us)
{
    double start = 0;
    for (int call = 0; call <= CALLS; call++) {
        if ((problem->op == FA2_OP_FORWARD ? call_forward : call_backward)(r, problem) != FA2_OK)
            return complain(fa2_last_message());
        if ((call == 0 || call == CALLS) && r->cuda.ctx_synchronize() != CUDA_SUCCESS)
            return complain("the kernel failed");
        if (call == 0)
            start = now_us();
    }
    *ret_us = (now_us() - start) / CALLS;
    for (int t = first; t <= last; t++)
        if (r->cuda.memcpy_dtoh(r->host[t], r->gpu[t], r->elems * sizeof(uint16_t)) != CUDA_SUCCESS)
            return complain("an output cannot be copied from the GPU");
    return 0;
}

static double larger_error(double worst, double got, double expected)
{
    return isfinite(got) ? fmax(worst, fabs(got - expected)) : INFINITY;
}

/* Finds the largest error over rows spread evenly over O. It is infinite if O has a NaN or an infinity. */
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
        const long row = n * rows / checked; /* index in [B, S, H] */
        const int h = (int)(row % p->heads_q), i = (int)(row / p->heads_q % p->seq_q);
        const int b = (int)(row / p->heads_q / p->seq_q);
        reference_row(p, (double)r->wanted.softcap, r->host[Q], r->host[K], r->host[V], b, h, i, scores, expected);
        for (int d = 0; d < p->head_dim; d++)
            worst = larger_error(worst, half_to_double(r->host[O][row * p->head_dim + d]), expected[d]);
    }
    free(scores);
    *ret_error = worst;
    return 0;
}

/* Finds the largest error of dQ, dK and dV in the last head of the last batch. It is relative to the largest expected
 * number of the same gradient. */
static int measure_gradients(const resources *r, const fa2_problem *p, double *ret_errors)
{
    const size_t dim = (size_t)p->head_dim, elems = (size_t)p->seq_q * dim;
    const int b = p->batch - 1, h = p->heads_q - 1;
    double *expected = malloc(3 * elems * sizeof(*expected));
    if (expected == NULL ||
        reference_gradients(p, (double)r->wanted.softcap, r->host[Q], r->host[K], r->host[V], r->host[D_O], b, h,
                            expected, expected + elems, expected + 2 * elems) != 0) {
        free(expected);
        return complain("no memory for the reference");
    }
    for (int t = 0; t < 3; t++) {
        double worst = 0, largest = 0;
        for (size_t n = 0; n < elems; n++) {
            const size_t row = ((size_t)b * (size_t)p->seq_q + n / dim) * (size_t)p->heads_q;
            const double wanted = expected[(size_t)t * elems + n];
            const uint16_t got = r->host[DQ + t][(row + (size_t)h) * dim + n % dim];
            worst = larger_error(worst, half_to_double(got), wanted);
            largest = fmax(largest, fabs(wanted));
        }
        ret_errors[t] = largest > 0 ? worst / largest : worst;
    }
    free(expected);
    return 0;
}

/* Prints which kernel ran, and why. */
static int report(resources *r, const fa2_problem *problem, double us)
{
    fa2_explanation e = {.struct_bytes = sizeof(e)};
    if (fa2_explain(r->fa2, problem, &e) != FA2_OK)
        return complain(fa2_last_message());
    printf("problem    %s B=%d H=%d S=%d D=%d causal=%d", problem->op == FA2_OP_FORWARD ? "forward" : "backward",
           (int)problem->batch, (int)problem->heads_q, (int)problem->seq_q, (int)problem->head_dim,
           (int)problem->causal);
    if (problem->softcap)
        printf(" softcap=%g", (double)r->wanted.softcap);
    if (problem->window)
        printf(" window=%d,%d", (int)problem->window_left, (int)problem->window_right);
    printf("\nkernel     %s (%s)\n", e.variant, e.target);
    printf("rule       %s: %s\n", fa2_rule_string(e.rule), e.reason);
    printf("resources  %d registers, %d bytes spilled, %d bytes shared memory\n", e.registers, e.spill_bytes,
           e.smem_bytes);
    printf("time       %.1f us per call, mean of %d launched back to back\n", us, CALLS);
    return 0;
}

static int run_forward(resources *r, const fa2_problem *problem)
{
    double us = 0, error = INFINITY;
    int status = run(r, problem, O, O, &us);
    if (status == 0)
        status = measure_error(r, problem, &error);
    if (status == 0)
        status = report(r, problem, us);
    if (status == 0)
        printf("max error  %.2e (bound %.2e, seed %d)\n", error, bound, SEED);
    return status == 0 && !(error <= bound) ? EXIT_WRONG : status;
}

static int run_backward(resources *r, const fa2_problem *problem)
{
    const fa2_problem backward = backward_of(problem);
    double us = 0, errors[3] = {INFINITY, INFINITY, INFINITY};
    int status = run(r, &backward, DQ, DV, &us);
    if (status == 0)
        status = measure_gradients(r, problem, errors);
    if (status == 0)
        status = report(r, &backward, us);
    static const char *const names[] = {"dQ", "dK", "dV"};
    for (int t = 0; status == 0 && t < 3; t++)
        printf("max error  %s: %.2e of its largest number (bound %.2e)\n", names[t], errors[t], gradient_bound);
    for (int t = 0; status == 0 && t < 3; t++)
        if (!(errors[t] <= gradient_bound))
            status = EXIT_WRONG;
    return status;
}

static void give_back(resources *r)
{
    fa2_context_destroy(r->fa2); /* NULL is fine */
    for (int t = 0; t < TENSORS; t++) {
        if (r->gpu[t] != 0)
            r->cuda.mem_free(r->gpu[t]);
        free(r->host[t]);
    }
    if (r->lse != 0)
        r->cuda.mem_free(r->lse);
    if (r->workspace != 0)
        r->cuda.mem_free(r->workspace);
    if (r->current != NULL)
        r->cuda.primary_ctx_release(r->device);
}

int main(int argc, char **argv)
{
    resources r = {.fa2 = NULL};
    const fa2_problem *problem = &r.wanted.problem;
    const int is_wrong = read_arguments(argc, argv, &r.wanted) != 0;
    if (is_wrong || r.wanted.help) {
        fprintf(is_wrong ? stderr : stdout, "usage: attention [B H S D causal] [--backward] [--softcap C] "
                                            "[--window LEFT,RIGHT] [--db FILE] [--help]\n");
        return is_wrong ? EXIT_ARGUMENTS : 0;
    }
    r.elems = (size_t)problem->batch * (size_t)problem->seq_q * (size_t)problem->heads_q * (size_t)problem->head_dim;
    int exit_status = open_device(&r);
    if (exit_status == 0)
        exit_status = fill_tensors(&r, problem);
    if (exit_status == 0)
        exit_status = run_forward(&r, problem);
    if (exit_status == 0 && r.wanted.backward)
        exit_status = run_backward(&r, problem);
    give_back(&r);
    return exit_status;
}
