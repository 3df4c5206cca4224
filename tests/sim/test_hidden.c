/*
 * Hidden keys and values that are NaN or infinite, and rows that do not see them. The software device runs the kernels
 * that untuned calls get on $FA2_SIM_CARD.
 *
 *     test_hidden [-v]
 *
 * - Each case hides bad keys in one way. If fa2.h promises it ("Hidden keys"), a row that sees none of them must have
 *   the same bits as with zeros in their place. A row that sees one must differ.
 * - It runs forward and backward with 96 queries, and forward with 2 queries and 700 keys, by families that divide
 *   keys.
 * - -v prints for each case how many rows differ, promised or not. This is the table in fa2.h.
 */
#include <cuda.h>
#include <stdlib.h>
#include <string.h>
#include "tests/check.h"
#include "tests/sim/must.h"
#include "tuner/judge/reference.h"

enum { D = 64, SEQ_MAX = 700, ELEMS = SEQ_MAX * D, MEETING = 50, ROW_BYTES = 2 * D };

typedef struct mirror {
    CUdeviceptr at;
    uint16_t host[ELEMS];
} mirror;

/* The results that must be the same as with zeros in place of the bad keys. */
typedef enum promise {
    NOTHING = 0,
    KEYS_FORWARD, /* O, if only K is bad */
    ALL           /* O and gradients, if K or V is bad */
} promise;

typedef struct hiding {
    const char *name;
    fa2_problem problem; /* without operation and sizes */
    int first, last;     /* bad keys */
    promise promise;
    bool of_some; /* other rows see them */
    bool forward_only;
} hiding;

static const hiding hidings[] = {
    {"length", {.seqused = 1}, MEETING, 69, ALL, false, true},
    {"padding", {.leftpad = 1}, 3, 9, ALL, false, true},
    {"packed neighbours", {.varlen = 1}, MEETING, 69, ALL, false, false},
    {"causal", {.causal = 1}, 40, 41, KEYS_FORWARD, true, false},
    {"window", {.window = FA2_WINDOW_SLIDING, .window_left = 9, .window_right = 5}, 30, 31, KEYS_FORWARD, true, false},
    {"prefix",
     {.causal = 1, .window = FA2_WINDOW_PREFIX, .window_left = 30, .window_right = -1},
     40,
     41,
     KEYS_FORWARD,
     true,
     false},
    {"chunk",
     {.causal = 1, .window = FA2_WINDOW_CHUNK, .window_left = 20, .window_right = -1},
     40,
     41,
     KEYS_FORWARD,
     true,
     false},
    {"mask", {.bias = FA2_BIAS_BOOL}, 20, 23, NOTHING, false, false},
    {"mask of some rows", {.bias = FA2_BIAS_BOOL}, 20, 23, NOTHING, true, false},
    {"bias of -infinity", {.bias = FA2_BIAS_FP16}, 20, 23, NOTHING, false, false},
};

static fa2_context *context;
static mirror q, k, v, o, d_o, dq, dk, dv;
static CUdeviceptr lse, numbers, bias;
static int seq_q, seq_k;

static CUdeviceptr allocate(size_t bytes)
{
    CUdeviceptr at = 0;
    void *zeros = calloc(1, bytes);
    must_be(zeros != NULL && cuMemAlloc(&at, bytes) == CUDA_SUCCESS && cuMemcpyHtoD(at, zeros, bytes) == CUDA_SUCCESS,
            "memory");
    free(zeros);
    return at;
}

static void upload(const mirror *m)
{
    must_be(cuMemcpyHtoD(m->at, m->host, sizeof m->host) == CUDA_SUCCESS, "cuMemcpyHtoD");
}

static const uint16_t *download(mirror *m)
{
    must_be(cuMemcpyDtoH(m->host, m->at, sizeof m->host) == CUDA_SUCCESS, "cuMemcpyDtoH");
    return m->host;
}

static void draw(mirror *m, uint64_t seed)
{
    m->at = allocate(sizeof m->host);
    for (int i = 0; i < ELEMS; i++)
        m->host[i] = fa2i_to_bits(FA2_FP16, (float)(fa2i_random(&seed) >> 40) / 0x1p23f - 1);
    upload(m);
}

/* ---- which rows see which keys ---- */

/* Returns the first query of the second packed sequence. */
static int second_query(void)
{
    return seq_q > MEETING ? MEETING : 1;
}

static bool sees(const hiding *h, int row, int key)
{
    const fa2_problem *p = &h->problem;
    const int at = row + seq_k - seq_q;
    const bool bad = key >= h->first && key <= h->last;
    switch (p->window) {
    case FA2_WINDOW_SLIDING:
        return key >= at - p->window_left && key <= at + p->window_right;
    case FA2_WINDOW_PREFIX:
        return key <= at || key < p->window_left;
    case FA2_WINDOW_CHUNK:
        return key <= at && key / p->window_left == at / p->window_left;
    default:
        break;
    }
    if (p->causal)
        return key <= at;
    if (p->varlen)
        return (row < second_query()) == (key < MEETING);
    return !bad || (h->of_some && row % 2 == 0);
}

static bool sees_bad(const hiding *h, int row)
{
    for (int key = h->first; key <= h->last; key++)
        if (sees(h, row, key))
            return true;
    return false;
}

/* Returns true for a key to whose gradients no bad row adds: keys of the first packed sequence, or all but the bad
 * keys. */
static bool is_good_key(const hiding *h, int key)
{
    return h->problem.varlen ? key < MEETING : !h->of_some && (key < h->first || key > h->last);
}

/* ---- calls ---- */

/* Uploads the mask or bias, [seq_q, seq_k], and the lengths. */
static void put_operands(const hiding *h)
{
    static uint16_t words[SEQ_MAX * SEQ_MAX];
    const int32_t said[] = {MEETING, 10, 0, second_query(), seq_q, 0, MEETING, seq_k};
    for (int i = 0; i < seq_q; i++)
        for (int j = 0; j < seq_k; j++) {
            if (h->problem.bias == FA2_BIAS_BOOL)
                ((uint8_t *)words)[i * seq_k + j] = sees(h, i, j);
            else
                words[i * seq_k + j] = sees(h, i, j) ? 0 : 0xfc00;
        }
    must_be(cuMemcpyHtoD(bias, words, sizeof words) == CUDA_SUCCESS &&
                cuMemcpyHtoD(numbers, said, sizeof said) == CUDA_SUCCESS,
            "cuMemcpyHtoD");
}

static fa2_problem problem_of(const hiding *h, fa2_op op)
{
    fa2_problem p = h->problem;
    p.struct_bytes = sizeof p, p.op = op, p.batch = p.varlen ? 2 : 1, p.heads_q = 1, p.heads_kv = 1, p.head_dim = D;
    p.seq_q = seq_q, p.seq_k = seq_k;
    if (p.varlen)
        p.total_q = seq_q, p.total_k = seq_k;
    return p;
}

static fa2_tensor tensor(const mirror *m)
{
    return (fa2_tensor){(void *)m->at, 0, D, D};
}

static const int32_t *number(unsigned i)
{
    return (const int32_t *)(numbers + 4 * i);
}

static void launch_forward(const fa2_problem *p, CUdeviceptr workspace, size_t bytes)
{
    const fa2_forward_args args = {.struct_bytes = sizeof(fa2_forward_args),
                                   .q = tensor(&q),
                                   .k = tensor(&k),
                                   .v = tensor(&v),
                                   .o = tensor(&o),
                                   .lse = (float *)lse,
                                   .workspace = (void *)workspace,
                                   .workspace_bytes = bytes,
                                   .bias = {(const void *)bias, 0, 0, seq_k, 1},
                                   .seqused_k = number(0),
                                   .leftpad = number(1),
                                   .cu_seqlens_q = number(2),
                                   .cu_seqlens_k = number(5)};
    must(fa2_forward(context, p, &args, NULL), "fa2_forward");
}

static void launch_backward(const fa2_problem *p, CUdeviceptr workspace, size_t bytes)
{
    const fa2_backward_args args = {.struct_bytes = sizeof(fa2_backward_args),
                                    .q = tensor(&q),
                                    .k = tensor(&k),
                                    .v = tensor(&v),
                                    .o = tensor(&o),
                                    .d_o = tensor(&d_o),
                                    .dq = tensor(&dq),
                                    .dk = tensor(&dk),
                                    .dv = tensor(&dv),
                                    .lse = (const float *)lse,
                                    .workspace = (void *)workspace,
                                    .workspace_bytes = bytes,
                                    .bias = {(const void *)bias, 0, 0, seq_k, 1},
                                    .cu_seqlens_q = number(2),
                                    .cu_seqlens_k = number(5)};
    must(fa2_backward(context, p, &args, NULL), "fa2_backward");
}

static void run(const hiding *h, fa2_op op)
{
    const fa2_problem p = problem_of(h, op);
    size_t bytes = 0;
    must(fa2_workspace_size(context, &p, &bytes), h->name);
    const CUdeviceptr workspace = allocate(bytes + 16);
    if (op == FA2_OP_FORWARD)
        launch_forward(&p, workspace, bytes);
    else
        launch_backward(&p, workspace, bytes);
    must_be(cuCtxSynchronize() == CUDA_SUCCESS && cuMemFree(workspace) == CUDA_SUCCESS, h->name);
}

/* ---- cases ---- */

typedef struct results {
    uint16_t o[ELEMS], dq[ELEMS], dk[ELEMS], dv[ELEMS];
} results;

static void compute(const hiding *h, bool backward, results *r)
{
    run(h, FA2_OP_FORWARD);
    memcpy(r->o, download(&o), sizeof r->o);
    if (!backward)
        return;
    run(h, FA2_OP_BACKWARD);
    memcpy(r->dq, download(&dq), sizeof r->dq);
    memcpy(r->dk, download(&dk), sizeof r->dk);
    memcpy(r->dv, download(&dv), sizeof r->dv);
}

static void put_keys(const hiding *h, mirror *m, uint16_t bits)
{
    for (int at = h->first * D; at < (h->last + 1) * D; at++)
        m->host[at] = bits;
    upload(m);
}

/* Counts rows, of queries or keys, that differ although they must not. */
static int differing(const hiding *h, const uint16_t *a, const uint16_t *b, bool of_keys)
{
    int count = 0;
    for (int row = 0; row < (of_keys ? seq_k : seq_q); row++)
        if (of_keys ? is_good_key(h, row) : !sees_bad(h, row))
            count += memcmp(a + row * D, b + row * D, ROW_BYTES) != 0;
    return count;
}

/* A row that sees a bad key must differ. */
static void check_seen(const hiding *h, const results *r)
{
    for (int row = 0; row < seq_q; row++)
        if (sees_bad(h, row))
            CHECK((r->o[row * D] & 0x7c00) == 0x7c00);
}

static void try_bad(const hiding *h, bool backward, bool verbose, mirror *m, uint16_t bits, const results *good)
{
    static results bad;
    put_keys(h, m, bits);
    compute(h, backward, &bad);
    put_keys(h, m, 0);
    const int rows = differing(h, bad.o, good->o, false);
    const int gradients = backward ? differing(h, bad.dq, good->dq, false) + differing(h, bad.dk, good->dk, true) +
                                         differing(h, bad.dv, good->dv, true)
                                   : 0;
    if (verbose)
        printf("%s, %s in %s, %d queries: of O %d, of gradients %d rows differ\n", h->name,
               bits == 0x7e00 ? "NaN" : "infinity", m == &k ? "K" : "V", seq_q, rows, gradients);
    if (h->promise == ALL || (h->promise == KEYS_FORWARD && m == &k))
        CHECK_EQ(rows, 0);
    if (h->promise == ALL)
        CHECK_EQ(gradients, 0);
    check_seen(h, &bad);
}

static void try_hiding(const hiding *h, bool backward, bool verbose)
{
    static results good;
    put_operands(h);
    put_keys(h, &k, 0);
    put_keys(h, &v, 0);
    compute(h, backward, &good);
    for (int i = 0; i < 4; i++)
        try_bad(h, backward, verbose, i < 2 ? &k : &v, i % 2 == 0 ? 0x7e00 : 0x7c00, &good);
}

int main(int argc, char **argv)
{
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = "", .device_plus_one = 1};
    const bool verbose = argc > 1 && strcmp(argv[1], "-v") == 0;
    mirror *const all[] = {&q, &k, &v, &o, &d_o, &dq, &dk, &dv};
    CUcontext current = NULL;
    CUdevice device = 0;
    must_be(cuInit(0) == CUDA_SUCCESS && cuDeviceGet(&device, 0) == CUDA_SUCCESS &&
                cuDevicePrimaryCtxRetain(&current, device) == CUDA_SUCCESS && cuCtxPushCurrent(current) == CUDA_SUCCESS,
            "the device");
    must(fa2_context_create(&config, &context), "the context");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        draw(all[i], i + 1);
    bias = allocate((size_t)SEQ_MAX * SEQ_MAX * 2);
    lse = allocate(SEQ_MAX * sizeof(float));
    numbers = allocate(64);
    for (size_t i = 0; i < sizeof hidings / sizeof *hidings; i++) {
        seq_q = seq_k = 96;
        try_hiding(&hidings[i], !hidings[i].forward_only, verbose);
        seq_q = 2, seq_k = SEQ_MAX;
        try_hiding(&hidings[i], false, verbose);
    }
    fa2_context_destroy(context);
    return check_done();
}
