/*
 * A client that trains: fa2_forward, then fa2_backward on its results. The gradients are compared with fa2.h's
 * formulas, computed in loops.
 *
 *     client_backward DATABASE B Hq Hkv Sq Sk D CAUSAL DETERMINISTIC
 *
 * It prints the rule and the kernel of backward. An error above 1/256 of the largest gradient is wrong. A second
 * launch, and one that wants only dK, must give the same bits (of dQ only if deterministic).
 */
#include <cuda.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/sim/must.h"
#include "tuner/judge/number.h"

enum { Q, K, V, DO, O, DQ, DK, DV, TENSORS };

static const char *const names[] = {"Q", "K", "V", "dO", "O", "dQ", "dK", "dV"};

static fa2_problem problem = {.struct_bytes = sizeof(fa2_problem), .op = FA2_OP_FORWARD};
static fa2_tensor tensors[TENSORS];
static float *values[TENSORS]; /* [B, S, H, D]; of gradients, the expected values */

static bool is_key(int which)
{
    return which == K || which == V || which == DK || which == DV;
}

static size_t count_of(int which)
{
    return (size_t)problem.batch * (size_t)problem.head_dim *
           (size_t)(is_key(which) ? problem.seq_k * problem.heads_kv : problem.seq_q * problem.heads_q);
}

static float *row_of(int which, int b, int h, int i)
{
    const int heads = is_key(which) ? problem.heads_kv : problem.heads_q;
    const int seq = is_key(which) ? problem.seq_k : problem.seq_q;
    return values[which] + ((size_t)(b * seq + i) * (size_t)heads + (size_t)h) * (size_t)problem.head_dim;
}

static void *device_memory(size_t bytes)
{
    CUdeviceptr memory = 0;
    must_be(cuMemAlloc(&memory, bytes) == CUDA_SUCCESS, "cuMemAlloc");
    cuMemsetD32Async(memory, 0xffffffffu, bytes / 4, NULL);
    return (void *)memory;
}

static void make_tensor(int which, uint32_t *state)
{
    const size_t count = count_of(which);
    const int heads = is_key(which) ? problem.heads_kv : problem.heads_q;
    const int seq = is_key(which) ? problem.seq_k : problem.seq_q;
    uint16_t *bits = calloc(count, sizeof *bits);
    values[which] = calloc(count, sizeof **values);
    tensors[which] = (fa2_tensor){device_memory(2 * count), (int64_t)seq * heads * problem.head_dim,
                                  (int64_t)heads * problem.head_dim, problem.head_dim};
    for (size_t i = 0; which < O && i < count; i++) {
        *state = *state * 1664525u + 1013904223u;
        bits[i] = fa2i_to_bits(FA2_FP16, (float)(*state >> 8) / 0x1p23f - 1);
        values[which][i] = fa2i_from_bits(FA2_FP16, bits[i]);
    }
    if (which < O)
        cuMemcpyHtoD((CUdeviceptr)tensors[which].data, bits, 2 * count);
    free(bits);
}

static double dot(const float *a, const float *b)
{
    double sum = 0;
    for (int d = 0; d < problem.head_dim; d++)
        sum += (double)a[d] * (double)b[d];
    return sum;
}

static void add(float *to, double factor, const float *from)
{
    for (int d = 0; d < problem.head_dim; d++)
        to[d] += (float)factor * from[d];
}

/* Adds one query row to the gradients. */
static void add_row(int b, int h, int i)
{
    const int kv = h / (problem.heads_q / problem.heads_kv);
    const double scale = 1 / sqrt((double)problem.head_dim);
    double *p = calloc((size_t)problem.seq_k, sizeof *p), sum = 0, delta = 0;
    for (int j = 0; j < problem.seq_k; j++) {
        const bool seen = !problem.causal || j <= i + problem.seq_k - problem.seq_q;
        p[j] = seen ? exp(scale * dot(row_of(Q, b, h, i), row_of(K, b, kv, j))) : 0;
        sum += p[j];
    }
    for (int j = 0; j < problem.seq_k && sum > 0; j++) {
        p[j] /= sum;
        delta += p[j] * dot(row_of(DO, b, h, i), row_of(V, b, kv, j));
    }
    for (int j = 0; j < problem.seq_k; j++) {
        const double ds = scale * p[j] * (dot(row_of(DO, b, h, i), row_of(V, b, kv, j)) - delta);
        add(row_of(DQ, b, h, i), ds, row_of(K, b, kv, j));
        add(row_of(DK, b, kv, j), ds, row_of(Q, b, h, i));
        add(row_of(DV, b, kv, j), p[j], row_of(DO, b, h, i));
    }
    free(p);
}

static uint16_t *fetch(int which)
{
    uint16_t *bits = calloc(count_of(which), sizeof *bits);
    cuCtxSynchronize();
    must_be(cuMemcpyDtoH(bits, (CUdeviceptr)tensors[which].data, 2 * count_of(which)) == CUDA_SUCCESS, "cuMemcpyDtoH");
    return bits;
}

static bool is_right(int which, const uint16_t *bits)
{
    double largest = 0, error = 0;
    for (size_t i = 0; i < count_of(which); i++) {
        const double value = (double)fa2i_from_bits(FA2_FP16, bits[i]);
        const double away = fabs(value - (double)values[which][i]);
        largest = fmax(largest, fabs((double)values[which][i]));
        error = isnan(away) ? INFINITY : fmax(error, away);
    }
    printf("%s: largest %.4g, largest error %.2g\n", names[which], largest, error);
    return error <= largest / 256;
}

static bool is_again(int which, const uint16_t *before)
{
    uint16_t *now = fetch(which);
    const bool same = memcmp(now, before, 2 * count_of(which)) == 0;
    free(now);
    if (!same)
        printf("%s is another one the second time\n", names[which]);
    return same;
}

/* Launches backward. Returns true if everything is right. */
static bool run_backward(fa2_context *context, const float *lse)
{
    fa2_backward_args args = {.struct_bytes = sizeof(fa2_backward_args),
                              .q = tensors[Q],
                              .k = tensors[K],
                              .v = tensors[V],
                              .o = tensors[O],
                              .d_o = tensors[DO],
                              .dq = tensors[DQ],
                              .dk = tensors[DK],
                              .dv = tensors[DV],
                              .lse = lse};
    uint16_t *first[TENSORS];
    bool ok = true;
    must_be(fa2_workspace_size(context, &problem, &args.workspace_bytes) == FA2_OK, "workspace");
    if (args.workspace_bytes > 0)
        args.workspace = device_memory(args.workspace_bytes);
    must_be(fa2_backward(context, &problem, &args, NULL) == FA2_OK, "fa2_backward");
    for (int i = DQ; i <= DV; i++) {
        first[i] = fetch(i);
        ok &= is_right(i, first[i]);
    }
    must_be(fa2_backward(context, &problem, &args, NULL) == FA2_OK, "fa2_backward");
    for (int i = problem.deterministic ? DQ : DK; i <= DV; i++)
        ok &= is_again(i, first[i]);
    cuMemsetD32Async((CUdeviceptr)args.dk.data, 0, count_of(DK) / 2, NULL);
    args.dq.data = args.dv.data = NULL;
    must_be(fa2_backward(context, &problem, &args, NULL) == FA2_OK, "fa2_backward for dK");
    ok &= is_again(DK, first[DK]);
    return ok;
}

int main(int argc, char **argv)
{
    int32_t *const sizes[] = {&problem.batch, &problem.heads_q,  &problem.heads_kv, &problem.seq_q,
                              &problem.seq_k, &problem.head_dim, &problem.causal};
    const size_t size_count = sizeof sizes / sizeof *sizes;
    fa2_context *context = NULL;
    uint32_t state = 1;
    if (argc != 3 + (int)size_count)
        return 2;
    for (size_t i = 0; i < size_count; i++)
        *sizes[i] = atoi(argv[2 + i]);
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = argv[1], .device_plus_one = 1};
    must_be(fa2_context_create(&config, &context) == FA2_OK, "the context");
    CUcontext primary = NULL;
    cuDevicePrimaryCtxRetain(&primary, 0);
    cuCtxPushCurrent(primary);
    for (int i = 0; i < TENSORS; i++)
        make_tensor(i, &state);
    for (int b = 0; b < problem.batch; b++)
        for (int h = 0; h < problem.heads_q; h++)
            for (int i = 0; i < problem.seq_q; i++)
                add_row(b, h, i);
    fa2_forward_args forward = {
        .struct_bytes = sizeof(fa2_forward_args), .q = tensors[Q], .k = tensors[K], .v = tensors[V], .o = tensors[O]};
    forward.lse = device_memory(4 * (size_t)problem.batch * (size_t)problem.heads_q * (size_t)problem.seq_q);
    must_be(fa2_workspace_size(context, &problem, &forward.workspace_bytes) == FA2_OK, "workspace");
    if (forward.workspace_bytes > 0)
        forward.workspace = device_memory(forward.workspace_bytes);
    must_be(fa2_forward(context, &problem, &forward, NULL) == FA2_OK, "fa2_forward");
    problem.op = FA2_OP_BACKWARD;
    problem.deterministic = atoi(argv[argc - 1]);
    fa2_explanation e = {.struct_bytes = sizeof e};
    must_be(fa2_explain(context, &problem, &e) == FA2_OK, "fa2_explain");
    printf("%s: %s\n", fa2_rule_string(e.rule), e.variant);
    const bool ok = run_backward(context, forward.lse);
    fa2_context_destroy(context);
    puts(ok ? "right" : "WRONG");
    return ok ? 0 : 1;
}
