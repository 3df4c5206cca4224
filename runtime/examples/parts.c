/*
 * One attention over keys that come in two parts, on one GPU:
 *
 *     parts [S N CUT LEFT] [--db FILE]
 *
 * The queries are the last N of S positions. Each sees its own key and the LEFT keys before it, with ALiBi. Keys before
 * position CUT are one part, and the others are another, as if they came later or lay on another GPU. O and LSE are
 * computed three times:
 *
 *     one call   over all keys; the others are compared with it.
 *     merged     partial = 1 for each part, then fa2_merge.
 *     carried    partial = 1 for the earlier part. The later part's call has carry = 1: it merges and writes O in fp16.
 *
 * A call counts positions from the keys that it has. set_place gives it the masks and distances of the whole.
 *
 * Exit status: 0 right; 1 wrong, or something failed; 2 bad arguments; 3 no usable GPU.
 */
#include <cuda.h>
#include <fa2.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "driver.h"
#include "reference.h"

enum { EXIT_WRONG = 1, EXIT_ARGUMENTS = 2, EXIT_NO_GPU = 3 };
enum { SEED = 2023, BATCH = 2, HEADS = 4, HEADS_KV = 2, DIM = 64, PARTS = 2 };
enum { Q, K, V, SLOPES, ONE, ONE_LSE, MERGED, MERGED_LSE, CARRIED, PART, PART_LSE, WORKSPACE, BUFFERS };

/* |V| <= 1. In each of two results, rounding P and O to fp16 moves O by at most 2^-11 + 2^-12. */
static const double bound = 1.0 / 512, lse_bound = 1e-4;

/* Everything that must be freed. Q and O are [BATCH, N, HEADS, DIM]; K and V are [BATCH, S, HEADS_KV, DIM]. PART and
 * PART_LSE hold the partial results one after the other, in fp32. */
typedef struct resources {
    driver cuda;
    CUdevice device;
    CUcontext current;
    fa2_context *fa2;
    const char *database;
    int length, queries, cut, left; /* S N CUT LEFT */
    size_t elems, rows;             /* of O, and of LSE */
    CUdeviceptr gpu[BUFFERS];
    size_t bytes[BUFFERS];
} resources;

static int complain(const char *what)
{
    fprintf(stderr, "parts: %s\n", what);
    return EXIT_WRONG;
}

/* A call on all queries, and on the keys from first_key on. */
typedef struct part {
    fa2_problem problem;
    int first_key;
    float distance_shift;
} part;

/* Gives a call the masks and the distances of the whole, where a query sees `left` keys before it and `right` after it.
 *
 * Query i of the call stands at position first_query + i of the whole, and key j at first_key + j. By itself, the call
 * sees query i at its key i + seq_k - seq_q. So it believes all queries `shift` positions too early, and their
 * distances to keys `shift` too small. A bound must not become negative: leave the last keys out that no query sees,
 * and the last queries that see no key. */
static void set_place(part *p, int first_query, int left, int right)
{
    const int shift = first_query - p->first_key - (p->problem.seq_k - p->problem.seq_q);
    p->problem.window = FA2_WINDOW_SLIDING;
    p->problem.window_left = left - shift;
    p->problem.window_right = right + shift;
    p->problem.causal = p->problem.window_right == 0; /* the same mask, and kernels that are made for it */
    if (p->problem.causal)
        p->problem.window_right = -1;
    p->distance_shift = (float)shift;
}

/* Returns the call on keys first ... end - 1. */
static part make_part(const resources *r, int first, int end)
{
    part made = {.problem = {.struct_bytes = sizeof(fa2_problem),
                             .op = FA2_OP_FORWARD,
                             .dtype = FA2_FP16,
                             .batch = BATCH,
                             .heads_q = HEADS,
                             .heads_kv = HEADS_KV,
                             .seq_q = r->queries,
                             .seq_k = end - first,
                             .head_dim = DIM,
                             .alibi = 1},
                 .first_key = first};
    set_place(&made, r->length - r->queries, r->left, 0);
    return made;
}

/* The earlier keys begin with the first one that any query sees. */
static part earlier_keys(const resources *r)
{
    const int seen = r->length - r->queries - r->left;
    return make_part(r, seen > 0 ? seen : 0, r->cut);
}

static fa2_problem merge_of(const fa2_problem *problem)
{
    return (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                         .op = FA2_OP_MERGE,
                         .dtype = problem->dtype,
                         .batch = problem->batch,
                         .heads_q = problem->heads_q,
                         .heads_kv = problem->heads_q,
                         .seq_q = problem->seq_q,
                         .seq_k = PARTS,
                         .head_dim = problem->head_dim};
}

/* Row `row` of a contiguous tensor [batch, seq, heads, DIM]. Strides count elements. */
static fa2_tensor tensor_at(CUdeviceptr data, int seq, int heads, int row, size_t elem_bytes)
{
    const int64_t stride = (int64_t)heads * DIM;
    return (fa2_tensor){.data = (char *)(uintptr_t)data + (size_t)(row * stride) * elem_bytes,
                        .stride_batch = seq * stride,
                        .stride_seq = stride,
                        .stride_head = DIM};
}

static float *floats_at(const resources *r, int buffer, size_t first)
{
    return (float *)(uintptr_t)r->gpu[buffer] + first;
}

static fa2_tensor partial_o(const resources *r, int which)
{
    fa2_tensor o = tensor_at(r->gpu[PART], r->queries, HEADS, 0, sizeof(float));
    o.data = floats_at(r, PART, (size_t)which * r->elems);
    return o;
}

/* The arguments of a call on some keys, but for O and LSE. */
static fa2_forward_args args_of(const resources *r, const part *p)
{
    const size_t half = sizeof(uint16_t);
    return (fa2_forward_args){.struct_bytes = sizeof(fa2_forward_args),
                              .q = tensor_at(r->gpu[Q], r->queries, HEADS, 0, half),
                              .k = tensor_at(r->gpu[K], r->length, HEADS_KV, p->first_key, half),
                              .v = tensor_at(r->gpu[V], r->length, HEADS_KV, p->first_key, half),
                              .workspace = (void *)(uintptr_t)r->gpu[WORKSPACE],
                              .workspace_bytes = r->bytes[WORKSPACE],
                              .alibi = {.slopes = floats_at(r, SLOPES, 0)},
                              .distance_shift = p->distance_shift};
}

static fa2_status call_one(const resources *r)
{
    const part all = make_part(r, 0, r->length);
    fa2_forward_args args = args_of(r, &all);
    args.o = tensor_at(r->gpu[ONE], r->queries, HEADS, 0, sizeof(uint16_t));
    args.lse = floats_at(r, ONE_LSE, 0);
    return fa2_forward(r->fa2, &all.problem, &args, NULL);
}

/* Writes a part's O and LSE in fp32, as partial result `which`. */
static fa2_status call_partial(const resources *r, part p, int which)
{
    fa2_forward_args args = args_of(r, &p);
    p.problem.partial = FA2_PARTIAL_WRITE;
    args.o = partial_o(r, which);
    args.lse = floats_at(r, PART_LSE, (size_t)which * r->rows);
    return fa2_forward(r->fa2, &p.problem, &args, NULL);
}

static fa2_status call_merged(const resources *r)
{
    const part later = make_part(r, r->cut, r->length);
    const fa2_problem merge = merge_of(&later.problem);
    const fa2_merge_args args = {.struct_bytes = sizeof(fa2_merge_args),
                                 .parts = partial_o(r, 0),
                                 .parts_stride = (int64_t)r->elems,
                                 .parts_lse = floats_at(r, PART_LSE, 0),
                                 .parts_lse_stride = (int64_t)r->rows,
                                 .o = tensor_at(r->gpu[MERGED], r->queries, HEADS, 0, sizeof(uint16_t)),
                                 .lse = floats_at(r, MERGED_LSE, 0),
                                 .workspace = (void *)(uintptr_t)r->gpu[WORKSPACE],
                                 .workspace_bytes = r->bytes[WORKSPACE]};
    fa2_status status = call_partial(r, earlier_keys(r), 0);
    if (status == FA2_OK)
        status = call_partial(r, later, 1);
    return status == FA2_OK ? fa2_merge(r->fa2, &merge, &args, NULL) : status;
}

/* LSE of the earlier part is read where the later call writes LSE of both. */
static fa2_status call_carried(const resources *r)
{
    part later = make_part(r, r->cut, r->length);
    fa2_forward_args args = args_of(r, &later);
    later.problem.carry = 1;
    args.o = tensor_at(r->gpu[CARRIED], r->queries, HEADS, 0, sizeof(uint16_t));
    args.carried = partial_o(r, 0);
    args.lse = floats_at(r, PART_LSE, 0);
    const fa2_status status = call_partial(r, earlier_keys(r), 0);
    return status == FA2_OK ? fa2_forward(r->fa2, &later.problem, &args, NULL) : status;
}

/* ---- memory ---- */

static void tell(void *user, const char *message)
{
    (void)user;
    fprintf(stderr, "fa2: %s\n", message);
}

/* Prepares a problem, and makes the workspace as large as it needs. */
static fa2_status prepare(resources *r, fa2_problem problem, fa2_partial partial, int carry)
{
    size_t bytes = 0;
    problem.partial = (int32_t)partial;
    problem.carry = carry;
    const fa2_status status = fa2_workspace_size(r->fa2, &problem, &bytes);
    r->bytes[WORKSPACE] = bytes > r->bytes[WORKSPACE] ? bytes : r->bytes[WORKSPACE];
    return status;
}

static fa2_status prepare_all(resources *r)
{
    const part all = make_part(r, 0, r->length), earlier = earlier_keys(r), later = make_part(r, r->cut, r->length);
    fa2_status status = prepare(r, all.problem, FA2_PARTIAL_NONE, 0);
    if (status == FA2_OK)
        status = prepare(r, earlier.problem, FA2_PARTIAL_WRITE, 0);
    if (status == FA2_OK)
        status = prepare(r, later.problem, FA2_PARTIAL_WRITE, 0);
    if (status == FA2_OK)
        status = prepare(r, later.problem, FA2_PARTIAL_NONE, 1);
    return status == FA2_OK ? prepare(r, merge_of(&all.problem), FA2_PARTIAL_NONE, 0) : status;
}

/* Makes a prepared fa2 context for device 0, and makes device 0's primary CUDA context current in this thread. */
static int open_device(resources *r)
{
    const fa2_config config = {
        .struct_bytes = sizeof(fa2_config), .database = r->database, .device_plus_one = 1, .log = tell};
    fa2_status status = fa2_context_create(&config, &r->fa2);
    if (status == FA2_OK)
        status = prepare_all(r);
    if (status != FA2_OK) {
        complain(fa2_last_message());
        return status == FA2_E_NO_DRIVER || status == FA2_E_NO_DEVICE || status == FA2_E_UNSUPPORTED ? EXIT_NO_GPU
                                                                                                     : EXIT_WRONG;
    }
    const char *missing = driver_open(&r->cuda, &r->device, &r->current);
    return missing == NULL ? 0 : complain(missing);
}

static int reserve(resources *r)
{
    const size_t keys = (size_t)(BATCH * r->length * HEADS_KV) * DIM, half = sizeof(uint16_t), whole = sizeof(float);
    r->rows = (size_t)(BATCH * r->queries * HEADS);
    r->elems = r->rows * DIM;
    r->bytes[Q] = r->bytes[ONE] = r->bytes[MERGED] = r->bytes[CARRIED] = r->elems * half;
    r->bytes[K] = r->bytes[V] = keys * half;
    r->bytes[SLOPES] = HEADS * whole;
    r->bytes[ONE_LSE] = r->bytes[MERGED_LSE] = r->rows * whole;
    r->bytes[PART] = PARTS * r->elems * whole;
    r->bytes[PART_LSE] = PARTS * r->rows * whole;
    for (int i = 0; i < BUFFERS; i++)
        if (r->bytes[i] > 0 && r->cuda.mem_alloc(&r->gpu[i], r->bytes[i]) != CUDA_SUCCESS)
            return complain("no memory on the GPU");
    return 0;
}

static int fill(resources *r)
{
    float slopes[HEADS];
    uint64_t seed = SEED;
    for (int h = 0; h < HEADS; h++)
        slopes[h] = exp2f(-8.0f * (float)(h + 1) / HEADS);
    int failed = r->cuda.memcpy_htod(r->gpu[SLOPES], slopes, sizeof(slopes)) != CUDA_SUCCESS;
    for (int t = Q; t <= V && !failed; t++) {
        uint16_t *numbers = malloc(r->bytes[t]);
        for (size_t i = 0; numbers != NULL && i < r->bytes[t] / sizeof(*numbers); i++)
            numbers[i] = half_random(&seed);
        failed = numbers == NULL || r->cuda.memcpy_htod(r->gpu[t], numbers, r->bytes[t]) != CUDA_SUCCESS;
        free(numbers);
    }
    return failed ? complain("the tensors cannot be made") : 0;
}

/* ---- results ---- */

static double larger(double worst, double got, double expected)
{
    return isfinite(got) && isfinite(expected) ? fmax(worst, fabs(got - expected)) : INFINITY;
}

/* Copies a buffer's beginning to host memory that the caller frees. NULL: that failed. */
static void *fetch(const resources *r, int buffer, size_t bytes)
{
    void *host = malloc(bytes);
    if (host != NULL && r->cuda.memcpy_dtoh(host, r->gpu[buffer], bytes) != CUDA_SUCCESS) {
        free(host);
        host = NULL;
    }
    return host;
}

/* Compares O and LSE in two buffers with those of one call. */
static int compare(const resources *r, const char *name, int buffer, int lse_buffer)
{
    const size_t o_bytes = r->bytes[ONE], lse_bytes = r->bytes[ONE_LSE];
    uint16_t *one = fetch(r, ONE, o_bytes), *two = fetch(r, buffer, o_bytes);
    float *one_lse = fetch(r, ONE_LSE, lse_bytes), *two_lse = fetch(r, lse_buffer, lse_bytes);
    double worst = 0, worst_lse = 0;
    const int fetched = one != NULL && two != NULL && one_lse != NULL && two_lse != NULL;
    for (size_t i = 0; fetched && i < r->elems; i++)
        worst = larger(worst, half_to_double(two[i]), half_to_double(one[i]));
    for (size_t i = 0; fetched && i < r->rows; i++)
        worst_lse = larger(worst_lse, (double)two_lse[i], (double)one_lse[i]);
    free(one);
    free(two);
    free(one_lse);
    free(two_lse);
    if (!fetched)
        return complain("an output cannot be copied from the GPU");
    printf("%-8s O differs by %.2e (bound %.2e), LSE by %.2e (bound %.2e)\n", name, worst, bound, worst_lse, lse_bound);
    return worst <= bound && worst_lse <= lse_bound ? 0 : EXIT_WRONG;
}

static void say_part(const char *name, const part *p)
{
    printf("%-8s keys %d ... %d causal=%d window=%d,%d distance_shift=%g\n", name, p->first_key,
           p->first_key + (int)p->problem.seq_k - 1, (int)p->problem.causal, (int)p->problem.window_left,
           (int)p->problem.window_right, (double)p->distance_shift);
}

static int run(const resources *r)
{
    const part all = make_part(r, 0, r->length), earlier = earlier_keys(r), later = make_part(r, r->cut, r->length);
    say_part("one call", &all);
    say_part("earlier", &earlier);
    say_part("later", &later);
    if (call_one(r) != FA2_OK || call_merged(r) != FA2_OK)
        return complain(fa2_last_message());
    int status = compare(r, "merged", MERGED, MERGED_LSE); /* copies wait for the stream */
    if (status == 0 && call_carried(r) != FA2_OK)
        status = complain(fa2_last_message());
    return status == 0 ? compare(r, "carried", CARRIED, PART_LSE) : status;
}

/* Returns 0, or -1: there is a malformed argument, or a query sees only one part. */
static int read_arguments(int argc, char **argv, resources *r)
{
    int *const numbers[] = {&r->length, &r->queries, &r->cut, &r->left};
    int given = 0;
    for (int i = 1; i < argc; i++) {
        char *end = argv[i];
        if (strcmp(argv[i], "--db") == 0 && i + 1 < argc) {
            r->database = argv[++i];
            continue;
        }
        const long number = strtol(argv[i], &end, 10);
        if (given == 4 || *end != '\0' || end == argv[i] || number < 1 || number > 1 << 20)
            return -1;
        *numbers[given++] = (int)number;
    }
    const int later = r->length - r->cut;
    return (given == 0 || given == 4) && later > 0 && r->queries <= later && r->left >= later ? 0 : -1;
}

int main(int argc, char **argv)
{
    resources r = {.length = 512, .queries = 128, .cut = 320, .left = 250};
    if (read_arguments(argc, argv, &r) != 0) {
        fputs("usage: parts [S N CUT LEFT] [--db FILE], with CUT < S, N <= S - CUT <= LEFT\n", stderr);
        return EXIT_ARGUMENTS;
    }
    int status = open_device(&r);
    if (status == 0)
        status = reserve(&r);
    if (status == 0)
        status = fill(&r);
    if (status == 0)
        status = run(&r);
    fa2_context_destroy(r.fa2);
    for (int i = 0; i < BUFFERS; i++)
        if (r.gpu[i] != 0)
            r.cuda.mem_free(r.gpu[i]);
    if (r.current != NULL)
        r.cuda.primary_ctx_release(r.device);
    return status;
}
