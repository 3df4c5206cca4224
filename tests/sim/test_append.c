/*
 * Decoding by a captured graph on the software device. Each replay appends to the cache, with rotation, and attends.
 *
 *     test_append padded|paged|packed|latent|int8|fp8
 *
 * Between replays only device memory changes: lengths, new keys and values, Q. After each replay the caches must equal
 * the host's copy to the bit, including all bytes that must not change. O must equal fp64 attention of the rotated Q on
 * those caches, by a problem without append. Some sequences run out of room. Repeating a launch changes nothing. The
 * repetition is a call with check_numbers, after a call that is refused because of a bad number. If K and V are in
 * pages, V has fewer columns. packed: sequences with different numbers of queries, and as many new keys, in pages.
 * latent: V lies in K, padded. int8: as padded, fp8: as paged, with caches in 8 bits. Their scales are fp32 or fp16, and
 * must equal the host's, too. New rows then have zeros, and numbers far below their largest one.
 */
#include <cuda.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/check.h"
#include "tests/sim/must.h"
#include "tuner/judge/kv8.h"
#include "tests/reference_compare.h"

enum { B = 3, HQ = 4, HKV = 2, SQ = 2, SK = 90, NEW = 3, D = 64, ROTARY = 32, ROWS = 5, PAGE = 16 };
enum { COLUMNS = (SK + PAGE - 1) / PAGE, PAGES = B * COLUMNS + 2, STEPS = 3 };
enum { PLANE = HKV * D }; /* elements of one row of all heads */
enum { CACHE_ELEMS = (ROWS * SK > PAGES * PAGE ? ROWS * SK : PAGES * PAGE) * PLANE };
enum { ROWS_MAX = B * NEW }; /* rows of queries, and of new keys, in all */
enum { Q_ELEMS = ROWS_MAX * HQ * D, NEW_ELEMS = ROWS_MAX * PLANE, ANGLES = SK * ROTARY / 2 };

typedef struct mirror { /* device memory and its host copy */
    CUdeviceptr at;
    void *host;
    size_t bytes;
} mirror;

static bool paged, packed, latent;
static fa2_kv kv;
static int dv; /* columns of V and O */
static mirror q, k, v, o, lse, new_k, new_v, cosines, sines, lengths, pads, rows, table, cu_q, cu_k, k_scale, v_scale;
static const int32_t bounds_q[B + 1] = {0, NEW, NEW, NEW + 1}, bounds_k[B + 1] = {0, SK, 2 * SK, 3 * SK};
static uint64_t state = 7;

static void upload(const mirror *m)
{
    must_be(cuMemcpyHtoD(m->at, m->host, m->bytes) == CUDA_SUCCESS, "cuMemcpyHtoD");
}

static mirror make(size_t bytes)
{
    mirror m = {.host = calloc(1, bytes), .bytes = bytes};
    must_be(m.host != NULL && cuMemAlloc(&m.at, bytes) == CUDA_SUCCESS, "memory");
    return m;
}

static void unmake(const mirror *m)
{
    free(m->host);
    must_be(cuMemFree(m->at) == CUDA_SUCCESS, "memory");
}

static void draw(const mirror *m)
{
    uint16_t *bits = m->host;
    for (size_t i = 0; i < m->bytes / sizeof *bits; i++)
        bits[i] = fa2i_to_bits(FA2_FP16, (float)(fa2i_random(&state) >> 40) / 0x1p23f - 1);
    upload(m);
}

/* New rows. In 8 bits, some columns are small. */
static void draw_rows(const mirror *m, int columns)
{
    uint16_t *bits = m->host;
    draw(m);
    for (size_t i = 0; kv != FA2_KV_DTYPE && i < m->bytes / sizeof *bits; i++) {
        const int column = (int)(i % (size_t)columns);
        const float size = column < 8 ? ldexpf(1, -2 * column) : column == 9 ? 0 : 1;
        bits[i] = fa2i_to_bits(FA2_FP16, fa2i_from_bits(FA2_FP16, bits[i]) * size);
    }
    upload(m);
}

/* A cache in 8 bits, and its scales. */
static void draw_bytes(const mirror *m, const mirror *scales)
{
    int8_t *bytes = m->host;
    for (size_t i = 0; i < m->bytes; i++)
        bytes[i] = (int8_t)(fa2i_random(&state) >> 60) - 8;
    for (size_t i = 0; i < CACHE_ELEMS / D; i++) {
        const float scale = (float)(1 + fa2i_random(&state) % 4) / 64;
        if (kv == FA2_KV_FP8)
            ((uint16_t *)scales->host)[i] = fa2i_to_bits(FA2_FP16, scale);
        else
            ((float *)scales->host)[i] = scale;
    }
    upload(m);
    upload(scales);
}

static void put_numbers(const mirror *m, const int32_t *numbers)
{
    memcpy(m->host, numbers, m->bytes);
    upload(m);
}

/* Returns the first row of a sequence's queries or new keys. For b = B it is the number of all rows. */
static int first_row(int b, int each)
{
    return packed ? bounds_q[b] : b * each;
}

static int rows_of(int b, int each)
{
    return first_row(b + 1, each) - first_row(b, each);
}

static fa2_problem problem_of(void)
{
    return (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                         .batch = B,
                         .heads_q = HQ,
                         .heads_kv = HKV,
                         .seq_q = packed ? NEW : SQ,
                         .seq_k = SK,
                         .head_dim = D,
                         .head_dim_v = dv < D ? dv : 0,
                         .causal = 1,
                         .seqused = 1,
                         .append = 1,
                         .rotary = paged ? FA2_ROTARY_HALVES : FA2_ROTARY_INTERLEAVED,
                         .rotary_dim = ROTARY,
                         .paged = paged,
                         .page = paged ? PAGE : 0,
                         .varlen = packed,
                         .total_q = packed ? bounds_q[B] : 0,
                         .v_in_k = latent,
                         .kv = kv,
                         .kv_scales = kv == FA2_KV_FP8 ? FA2_SCALES_FP16 : FA2_SCALES_FP32,
                         .leftpad = !paged,
                         .cache_rows = !paged};
}

static fa2_tensor tensor(const mirror *m, int64_t seq, int64_t heads, int64_t columns)
{
    return (fa2_tensor){(void *)m->at, seq * heads * columns, heads * columns, columns};
}

static fa2_forward_args args_of(const mirror *workspace)
{
    return (fa2_forward_args){.struct_bytes = sizeof(fa2_forward_args),
                              .q = tensor(&q, SQ, HQ, D),
                              .k = tensor(&k, paged ? PAGE : SK, HKV, D),
                              .v = tensor(&v, paged ? PAGE : SK, HKV, dv),
                              .o = tensor(&o, SQ, HQ, dv),
                              .lse = (float *)lse.at,
                              .workspace = (void *)workspace->at,
                              .workspace_bytes = workspace->bytes,
                              .seqused_k = (const int32_t *)lengths.at,
                              .block_table = (const int32_t *)table.at,
                              .block_table_stride = COLUMNS,
                              .page_count = PAGES,
                              .leftpad = (const int32_t *)pads.at,
                              .cache_rows = (const int32_t *)rows.at,
                              .cache_row_count = ROWS,
                              .cu_seqlens_q = (const int32_t *)cu_q.at,
                              .cu_seqlens_k = (const int32_t *)cu_k.at,
                              .append = {tensor(&new_k, NEW, HKV, D), tensor(&new_v, NEW, HKV, dv), packed ? 0 : NEW},
                              .k_scale = {(const void *)k_scale.at, (paged ? PAGE : SK) * HKV, HKV, 1},
                              .v_scale = {(const void *)v_scale.at, (paged ? PAGE : SK) * HKV, HKV, 1},
                              .rotary = {(const void *)cosines.at, (const void *)sines.at, SK}};
}

/* Returns the place of a sequence's key in the caches, in rows of all heads. */
static int64_t place_of(int b, int key)
{
    const int32_t *pages = table.host, *own = rows.host;
    return paged ? (int64_t)pages[b * COLUMNS + key / PAGE] * PAGE + key % PAGE : (int64_t)own[b] * SK + key;
}

static void rotate(int position, uint16_t *bits)
{
    const fa2_problem problem = problem_of();
    const fa2i_angles angles = {{.data = cosines.host}, {.data = sines.host}, SK};
    float row[D];
    for (int i = 0; i < D; i++)
        row[i] = fa2i_from_bits(FA2_FP16, bits[i]);
    fa2i_rotate(&problem, &angles, position, row);
    for (int i = 0; i < D; i++)
        bits[i] = fa2i_to_bits(FA2_FP16, row[i]);
}

/* Rounds new row `bits` into row `to` of a cache in 8 bits. */
static void round_row(const mirror *m, const mirror *scales, int64_t to, const uint16_t *bits, int columns)
{
    const fa2_problem problem = problem_of();
    float row[D];
    for (int i = 0; i < columns; i++)
        row[i] = fa2i_from_bits(FA2_FP16, bits[i]);
    const float scale = fa2i_kv8_round(&problem, columns, row, (int8_t *)m->host + to * columns);
    if (kv == FA2_KV_FP8)
        ((uint16_t *)scales->host)[to] = fa2i_to_bits(FA2_FP16, scale);
    else
        ((float *)scales->host)[to] = scale;
}

/* Appends a new row of a head on the host. */
static void append_row(int position, int64_t from, int64_t to)
{
    uint16_t key[D];
    const uint16_t *value = (uint16_t *)new_v.host + from * dv;
    memcpy(key, (uint16_t *)new_k.host + from * D, sizeof key);
    rotate(position, key);
    if (kv != FA2_KV_DTYPE) {
        round_row(&k, &k_scale, to, key, D);
        round_row(&v, &v_scale, to, value, dv);
        return;
    }
    memcpy((uint16_t *)k.host + to * D, key, sizeof key);
    if (!latent)
        memcpy((uint16_t *)v.host + to * dv, value, (size_t)dv * sizeof *value);
}

/* Does the launch's work on the host's caches. It rotates Q in place, and updates the lengths. */
static void follow(void)
{
    int32_t *used = lengths.host;
    for (int b = 0; b < B; b++) {
        const int new_keys = rows_of(b, NEW);
        for (int i = 0; i < new_keys && used[b] + i < SK; i++)
            for (int h = 0; h < HKV; h++)
                append_row(used[b] + i, ((int64_t)first_row(b, NEW) + i) * HKV + h, place_of(b, used[b] + i) * HKV + h);
        for (int i = 0; i < rows_of(b, SQ) * HQ; i++)
            rotate(used[b] + i / HQ, (uint16_t *)q.host + ((int64_t)first_row(b, SQ) * HQ + i) * D);
        used[b] = used[b] + new_keys < SK ? used[b] + new_keys : SK;
    }
}

static void check_same(const mirror *m)
{
    void *found = malloc(m->bytes);
    must_be(found != NULL && cuMemcpyDtoH(found, m->at, m->bytes) == CUDA_SUCCESS, "cuMemcpyDtoH");
    CHECK_EQ(memcmp(found, m->host, m->bytes), 0);
    free(found);
}

/* Compares O and LSE with attention on the host's caches. */
static void check_outputs(void)
{
    fa2i_row wanted[HQ * ROWS_MAX];
    const int seq_q = packed ? bounds_q[B] : SQ, count = HQ * first_row(B, SQ);
    fa2i_reference reference = {0};
    reference_comparison comparison = {0};
    fa2i_reference_request request = {.problem = problem_of(),
                                      .q = {q.host, SQ * HQ * D, HQ * D, D, 0},
                                      .k = {k.host, (paged ? PAGE : SK) * PLANE, PLANE, D, 0},
                                      .v = {v.host, (paged ? PAGE : SK) * HKV * dv, HKV * dv, dv, 0},
                                      .said = {.seqused_k = lengths.host,
                                               .cu_seqlens_q = bounds_q,
                                               .cu_seqlens_k = bounds_k,
                                               .block_table = table.host,
                                               .columns = COLUMNS,
                                               .pages = PAGES,
                                               .leftpad = pads.host,
                                               .cache_rows = rows.host,
                                               .cache_row_count = ROWS},
                                      .rows = wanted,
                                      .row_count = (size_t)count};
    if (latent)
        request.v = request.k;
    const mirror *const scales[] = {&k_scale, &v_scale};
    for (int i = 0; kv != FA2_KV_DTYPE && i < 2; i++) {
        const int id = i == 0 ? FA2I_OPERAND_k_scale : FA2I_OPERAND_v_scale;
        const int64_t strides[] = {(paged ? PAGE : SK) * HKV, HKV, 1};
        request.features.data[id] = scales[i]->host;
        request.features.period[id] = CACHE_ELEMS / D;
        memcpy(request.features.strides[id], strides, sizeof strides);
    }
    request.problem.append = request.problem.rotary_dim = 0;
    request.problem.rotary = FA2_ROTARY_NONE;
    for (int i = 0; i < count; i++) /* in the order of LSE */
        wanted[i] = (fa2i_row){i / seq_q / HQ, i / seq_q % HQ, i % seq_q};
    must_be(cuMemcpyDtoH(o.host, o.at, o.bytes) == CUDA_SUCCESS, "O");
    must_be(cuMemcpyDtoH(lse.host, lse.at, lse.bytes) == CUDA_SUCCESS, "LSE");
    must_be(fa2i_reference_compute(&request, &reference) == FA2_OK, "the reference");
    uint16_t *in_order = malloc(o.bytes);
    must_be(in_order != NULL, "memory");
    for (int i = 0; i < count; i++)
        memcpy(in_order + i * dv,
               (uint16_t *)o.host + (((int64_t)wanted[i].batch * SQ + wanted[i].row) * HQ + wanted[i].head) * dv,
               (size_t)dv * sizeof *in_order);
    reference_compare(&reference, FA2_FP16, in_order, lse.host, &comparison);
    if (comparison.error > 1)
        fprintf(stderr, "row %zu: %g, not %g\n", comparison.worst_row, comparison.worst_value,
                comparison.worst_expected);
    CHECK(comparison.error <= 1);
    free(in_order);
    fa2i_reference_done(&reference);
}

static void make_all(void)
{
    static const int32_t used[B] = {SK - 5, 0, 40}, pad[B] = {7, 0, 40}, own[B] = {3, 0, 4};
    int32_t pages[B * COLUMNS];
    for (int i = 0; i < B * COLUMNS; i++)
        pages[i] = i * 5 % (B * COLUMNS) + 1;
    q = make(Q_ELEMS * 2), o = make(Q_ELEMS * 2), lse = make(HQ * ROWS_MAX * sizeof(float));
    const size_t elem_bytes = kv == FA2_KV_DTYPE ? 2 : 1;
    k = make(CACHE_ELEMS * elem_bytes), v = make(CACHE_ELEMS * elem_bytes);
    k_scale = make(CACHE_ELEMS / D * sizeof(float)), v_scale = make(CACHE_ELEMS / D * sizeof(float));
    new_k = make(NEW_ELEMS * 2), new_v = make(NEW_ELEMS * 2);
    cosines = make(ANGLES * 2), sines = make(ANGLES * 2);
    lengths = make(sizeof used), pads = make(sizeof pad), rows = make(sizeof own), table = make(sizeof pages),
    cu_q = make(sizeof bounds_q), cu_k = make(sizeof bounds_k);
    draw(&cosines), draw(&sines);
    if (kv == FA2_KV_DTYPE)
        draw(&k), draw(&v);
    else
        draw_bytes(&k, &k_scale), draw_bytes(&v, &v_scale);
    put_numbers(&lengths, used), put_numbers(&pads, pad), put_numbers(&rows, own), put_numbers(&table, pages),
        put_numbers(&cu_q, bounds_q), put_numbers(&cu_k, bounds_k);
}

static void unmake_all(void)
{
    const mirror *all[] = {&q,       &k,    &v,    &o,     &lse,  &new_k, &new_v,   &cosines, &sines,
                           &lengths, &pads, &rows, &table, &cu_q, &cu_k,  &k_scale, &v_scale};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        unmake(all[i]);
}

static CUgraphExec capture(fa2_context *context, const fa2_problem *problem, const fa2_forward_args *args,
                           CUstream stream)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    must_be(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS, "capture");
    must_be(fa2_forward(context, problem, args, stream) == FA2_OK, "fa2_forward");
    must_be(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS, "capture");
    must_be(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS, "the graph");
    must_be(cuGraphDestroy(graph) == CUDA_SUCCESS, "the graph");
    return exec;
}

/* Calls with a context that checks numbers. A refused call must write nothing. */
static void call_checked(fa2_context *context, const fa2_problem *problem, const fa2_forward_args *args,
                         CUstream stream)
{
    const int32_t bad = paged ? PAGES : ROWS;
    const mirror *m = paged ? &table : &rows;
    must_be(cuMemcpyHtoD(m->at + 4, &bad, 4) == CUDA_SUCCESS && cuMemcpyDtoH(o.host, o.at, o.bytes) == CUDA_SUCCESS,
            "cuMemcpyHtoD");
    CHECK_EQ(fa2_forward(context, problem, args, stream), FA2_E_INVALID);
    CHECK_STR(fa2_last_message(), paged ? "block_table[0][1] is 20; it must be from 0 to 19 (page_count - 1)"
                                        : "cache_rows[1] is 5; it must be from 0 to 4 (cache_row_count - 1)");
    check_same(&o);
    upload(m);
    must_be(fa2_forward(context, problem, args, stream) == FA2_OK && cuStreamSynchronize(stream) == CUDA_SUCCESS,
            "fa2_forward");
}

int main(int argc, char **argv)
{
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = "", .device_plus_one = 1},
                     checks = {
                         .struct_bytes = sizeof(fa2_config), .database = "", .device_plus_one = 1, .check_numbers = 1};
    fa2_context *context = NULL, *checking = NULL;
    CUstream stream = NULL;
    CUcontext current = NULL;
    CUdevice device = 0;
    size_t bytes = 0;
    packed = argc > 1 && strcmp(argv[1], "packed") == 0;
    latent = argc > 1 && strcmp(argv[1], "latent") == 0;
    kv = argc > 1 && strcmp(argv[1], "int8") == 0  ? FA2_KV_INT8
         : argc > 1 && strcmp(argv[1], "fp8") == 0 ? FA2_KV_FP8
                                                   : FA2_KV_DTYPE;
    paged = packed || kv == FA2_KV_FP8 || (argc > 1 && strcmp(argv[1], "paged") == 0);
    dv = paged || latent ? D / 2 : D;
    must_be(cuInit(0) == CUDA_SUCCESS && cuDeviceGet(&device, 0) == CUDA_SUCCESS &&
                cuDevicePrimaryCtxRetain(&current, device) == CUDA_SUCCESS &&
                cuCtxPushCurrent(current) == CUDA_SUCCESS && cuStreamCreate(&stream, 0) == CUDA_SUCCESS,
            "the device");
    const fa2_problem problem = problem_of();
    must_be(fa2_context_create(&config, &context) == FA2_OK && fa2_context_create(&checks, &checking) == FA2_OK,
            "the contexts");
    must_be(fa2_workspace_size(context, &problem, &bytes) == FA2_OK, "the workspace");
    CHECK(bytes >= (size_t)first_row(B, SQ) * HQ * D * 2); /* room for the rotated Q */
    make_all();
    const mirror workspace = make(bytes);
    const fa2_forward_args args = args_of(&workspace);
    CUgraphExec graph = capture(context, &problem, &args, stream);
    for (int step = 0; step < STEPS; step++) {
        draw(&q), draw_rows(&new_k, D), draw_rows(&new_v, dv);
        upload(&lengths); /* as the last step left them */
        must_be(cuGraphLaunch(graph, stream) == CUDA_SUCCESS && cuStreamSynchronize(stream) == CUDA_SUCCESS,
                "the graph");
        call_checked(checking, &problem, &args, stream);
        follow();
        check_same(&k);
        check_same(&v);
        if (kv != FA2_KV_DTYPE)
            check_same(&k_scale), check_same(&v_scale);
        check_outputs();
    }
    must_be(cuGraphExecDestroy(graph) == CUDA_SUCCESS, "the graph");
    unmake(&workspace);
    unmake_all();
    fa2_context_destroy(context);
    fa2_context_destroy(checking);
    return check_done();
}
