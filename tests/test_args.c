/*
 * An operation's checks of its arguments: every refusal with its message, and valid arguments that look odd. Two
 * algorithms are compared with counting: the one that finds out if rows share a byte, and the quick check, which must
 * not accept arguments that the full check refuses.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "args_fixture.h"
#include "runtime/ops/memory.h"

enum { SEED = 8, TENSOR_PAIRS = 20000, CALLS = 200000 };

/* ---- one member ---- */

static void test_bad_strides(void)
{
    static const struct {
        size_t offset;
        int64_t value;
        const char *said;
    } bad[] = {
        {offsetof(fa2_forward_args, q.stride_seq), 60, "q.stride_seq is 60; it must be a multiple of 8 elements"},
        {offsetof(fa2_forward_args, q.stride_batch), -51200, "q.stride_batch is -51200; it must be at least 0"},
        {offsetof(fa2_forward_args, k.stride_seq), 0, "k.stride_seq is 0; it must be at least 64"},
        {offsetof(fa2_forward_args, k.stride_head), 68, "k.stride_head is 68"},
        {offsetof(fa2_forward_args, v.stride_batch), 4, "v.stride_batch is 4"},
        {offsetof(fa2_forward_args, v.stride_seq), -8, "v.stride_seq is -8"},
        {offsetof(fa2_forward_args, o.stride_batch), 0,
         "o.stride_batch is 0; it must be at least 64, because it is written by forward"},
        {offsetof(fa2_forward_args, o.stride_head), 56, "o.stride_head is 56"},
        {offsetof(fa2_forward_args, o.stride_seq), INT64_MAX, "o.stride_seq is 92233720368547758"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fa2_forward_args args = good_args();
        memcpy((char *)&args + bad[i].offset, &bad[i].value, sizeof bad[i].value);
        check_bad(&args, bad[i].said);
    }
}

static void test_bad_pointers(void)
{
    static const struct {
        size_t offset;
        uintptr_t value;
        const char *said;
    } bad[] = {
        {offsetof(fa2_forward_args, q.data), 0, "q.data is NULL"},
        {offsetof(fa2_forward_args, k.data), 0x2000008, "k.data is 0x2000008; it must be a multiple of 16 bytes"},
        {offsetof(fa2_forward_args, v.data), 0, "v.data is NULL"},
        {offsetof(fa2_forward_args, o.data), 0x4000002, "o.data is 0x4000002"},
        {offsetof(fa2_forward_args, lse), 0x50002, "lse is 0x50002; it must be a multiple of 4"},
        {offsetof(fa2_forward_args, workspace), 0x60080, "it must be a multiple of 256 bytes"},
        {offsetof(fa2_forward_args, workspace_bytes), 512, "workspace is NULL, but workspace_bytes is 512"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fa2_forward_args args = good_args();
        memcpy((char *)&args + bad[i].offset, &bad[i].value, sizeof bad[i].value);
        check_bad(&args, bad[i].said);
    }
}

static void test_bad_scale(void)
{
    static const float bad[] = {-1.0f, NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fa2_forward_args args = good_args();
        args.softmax_scale = bad[i];
        check_bad(&args, "softmax_scale is");
    }
}

/* The value counts only if the problem has a softcap. */
static void test_softcap(void)
{
    static const float bad[] = {0.0f, -1.0f, NAN, INFINITY, -INFINITY, FLT_MAX};
    fa2_problem capped = problem;
    fa2_forward_args args = good_args();
    capped.softcap = 1;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        args.softcap = bad[i];
        CHECK_EQ(check_args(&capped, &args, &plain_grid), FA2_E_INVALID);
        CHECK_CONTAINS(fa2_last_message(), "softcap is ");
        CHECK_CONTAINS(fa2_last_message(), "finite (at most");
        check_good(&problem, &args);
    }
    args.softcap = 30;
    check_good(&capped, &args);
    args.softcap = 1e-38f;
    args.softmax_scale = 100;
    CHECK_EQ(check_args(&capped, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "the softmax scale divided by it");
}

/* O of a partial result is fp32, so it takes twice the memory. LSE that is merged must be given. */
static void test_partial(void)
{
    fa2_problem partial = problem;
    fa2_forward_args args = good_args();
    const size_t o_bytes = 2 * 100 * 8 * 64 * sizeof(float);
    partial.partial = FA2_PARTIAL_WRITE;
    check_good(&partial, &args);
    args.q.data = (char *)args.o.data + o_bytes / 2; /* behind 16-bit rows, and among those of fp32 */
    check_good(&problem, &args);
    CHECK_EQ(check_args(&partial, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "o shares memory with q");
    args.q.data = (char *)args.o.data + o_bytes;
    check_good(&partial, &args);
    partial.partial = FA2_PARTIAL_MERGE;
    CHECK_EQ(check_args(&partial, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "lse is NULL; with partial=2 it is merged");
    args.lse = (float *)0x50004;
    check_good(&partial, &args);
    partial.carry = 1;
    CHECK_EQ(fa2i_problem_check(&partial), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "carry is 1; it must be 0 where partial is 2");
    partial.carry = 0;
    partial.partial = 3;
    CHECK_EQ(fa2i_problem_check(&partial), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "partial is 3; it must be at most 2");
}

static void test_good_args(void)
{
    fa2_forward_args args = good_args();
    check_good(&problem, &args);
    args.k.stride_batch = args.v.stride_head = 0; /* one K for all batches, one V for all heads */
    args.workspace = (void *)0x60000;
    args.workspace_bytes = 512;
    args.softmax_scale = 0.3f;
    args.lse = (float *)0x50004;
    check_good(&problem, &args);

    const fa2_problem single = {.struct_bytes = sizeof(fa2_problem),
                                .batch = 1,
                                .heads_q = 1,
                                .heads_kv = 1,
                                .seq_q = 1,
                                .seq_k = 1,
                                .head_dim = 64};
    args = good_args();
    args.q.stride_batch = args.k.stride_seq = args.o.stride_head = -3; /* never used */
    args.v.stride_batch = args.o.stride_seq = INT64_MIN;
    check_good(&single, &args);
}

/* Rows are 16-byte aligned: strides of fp32 are multiples of 4, and fp32 rows of a 16-bit problem's O, too. */
static void test_strides_of_fp32(void)
{
    fa2_problem fp32 = problem, partial = problem;
    fa2_forward_args args = good_args();
    fp32.dtype = FA2_FP32;
    partial.partial = 1;
    args.o.stride_head = 68;
    args.o.stride_seq = 8 * 68 + 4;
    args.o.stride_batch = 100 * args.o.stride_seq + 4;
    check_good(&partial, &args);
    args.q = args.o;
    args.q.data = good_args().q.data;
    CHECK_EQ(check_args(&problem, &args, NULL), FA2_E_INVALID);
    args.k.stride_head = 68;
    args.k.stride_seq = args.v.stride_seq = 140;
    check_good(&fp32, &args);
    args.v.stride_seq = 138;
    CHECK_EQ(check_args(&fp32, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "v.stride_seq is 138; it must be a multiple of 4 elements");
}

/* ---- large strides ---- */

static void test_far_strides(void)
{
    fa2_forward_args args = good_args();
    args.q.stride_batch = INT64_C(1) << 62; /* times two bytes: beyond 64 bits */
    check_bad(&args, "q.stride_batch is 4611686018427387904; with an extent of 2 the tensor would "
                     "end at 2^60 bytes or beyond");
    args = good_args();
    args.k.stride_seq = INT64_MAX - 7;
    check_bad(&args, "k.stride_seq is 9223372036854775800; with an extent of 200");
    args = good_args();
    args.o.stride_batch = (INT64_C(1) << 59) - 8; /* only the last row is too far away */
    check_bad(&args, "o.stride_batch is 576460752303423480");
    args.o.stride_batch = INT64_C(1) << 58;
    check_good(&problem, &args);
    args = good_args();
    args.v.data = (void *)(UINTPTR_MAX - 15);
    check_bad(&args, "v.data is 0xfffffffffffffff0; its data would end at 2^60");
    args = good_args();
    args.lse = (float *)(UINTPTR_MAX - 3);
    check_bad(&args, "lse is 0xfffffffffffffffc; its data would end at 2^60");
}

/* ---- overlap of what is written ---- */

static void test_overlap(void)
{
    fa2_forward_args args = good_args();
    const size_t o_bytes = sizeof(uint16_t) * 2 * 100 * 8 * 64, lse_bytes = sizeof(float) * 1600;
    args.o.data = args.q.data;
    check_bad(&args, "o shares memory with q");
    args.o.data = (char *)args.k.data - o_bytes + 16;
    check_bad(&args, "o shares memory with k: their bytes are 0x1fce010 to 0x2000010 and 0x2000000 "
                     "to 0x2019000");
    args.o.data = (char *)args.k.data - o_bytes;
    check_good(&problem, &args);
    args.o.data = (char *)args.v.data + 100 * 128 * 2;
    check_bad(&args, "o shares memory with v");

    args = good_args();
    args.lse = (float *)((char *)args.o.data + o_bytes - 4);
    check_bad(&args, "lse shares memory with o");
    args.lse = (float *)((char *)args.o.data + o_bytes);
    check_good(&problem, &args);
    args.lse = (float *)((char *)args.q.data - lse_bytes + 4);
    check_bad(&args, "lse shares memory with q");
    args.lse = (float *)((char *)args.q.data - lse_bytes);
    check_good(&problem, &args);
}

static void check_bad_split(const fa2_forward_args *args, const char *said)
{
    CHECK_EQ(check_args(&problem, args, &split_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), said);
}

/* Only the needed part of a workspace counts. */
static void test_workspace(void)
{
    fa2_forward_args args = good_args();
    args.lse = (float *)0x5000400;
    args.workspace = (void *)0x5000000;
    args.workspace_bytes = 1024;
    CHECK_EQ(check_args(&problem, &args, &split_grid), FA2_OK);
    args.workspace_bytes = SIZE_MAX;
    CHECK_EQ(check_args(&problem, &args, &split_grid), FA2_OK);
    args.workspace_bytes = 1023;
    check_bad_split(&args, "workspace_bytes is 1023; this problem needs 1024");
    args.workspace = NULL;
    args.workspace_bytes = 0;
    check_bad_split(&args, "workspace_bytes is 0; this problem needs 1024");
    args.workspace_bytes = 1024;
    check_bad_split(&args, "workspace is NULL, but workspace_bytes is 1024");
    args.workspace = (void *)0x5000100;
    check_bad_split(&args, "workspace shares memory with lse");
    args.workspace = (char *)args.q.data - 256;
    check_bad_split(&args, "workspace shares memory with q");
    args.workspace = args.o.data;
    check_bad_split(&args, "workspace shares memory with o");
    check_good(&problem, &args); /* the problem needs none */
}

/* Slices of one packed tensor: each row has Q, K, V and O side by side, as one projection writes them, with fewer key
 * heads than query heads. */
static void test_packed(void)
{
    const int64_t d = problem.head_dim, row = d * (8 + 2 + 2 + 8);
    char *base = (char *)0x1000000;
    const fa2_tensor at = {base, 200 * row, row, d};
    fa2_forward_args args = {.struct_bytes = sizeof(fa2_forward_args), .q = at, .k = at, .v = at, .o = at};
    args.k.data = base + 2 * d * 8;
    args.v.data = base + 2 * d * 10;
    args.o.data = base + 2 * d * 12;
    check_good(&problem, &args);
    args.o.data = base + 2 * d * 11; /* its first head is V's second */
    check_bad(&args, "o shares memory with v");
    args.o.data = base + 2 * d * 12 + 16; /* its last head reaches into the next row's Q */
    check_bad(&args, "o shares memory with q");

    /* interleaved heads: O's head h lies after Q's head h */
    args = good_args();
    args.q = args.o = (fa2_tensor){base, 100 * 16 * d, 16 * d, 2 * d};
    args.o.data = base + 2 * d;
    check_good(&problem, &args);
    args.o.data = base + 2 * d - 16;
    check_bad(&args, "o shares memory with q");
}

static void test_colliding_rows(void)
{
    fa2_forward_args args = good_args();
    args.o.stride_head = args.o.stride_seq = 64; /* head 1 of row 0 is head 0 of row 1 */
    check_bad(&args, "o.stride_batch, o.stride_seq and o.stride_head are 51200, 64 and 64; some of "
                     "its 2 x 100 x 8 rows of 64 elements would share memory, and it is written by forward");
    args = good_args();
    args.o.stride_seq = 8 * 64 - 8; /* the last head reaches into the next row */
    check_bad(&args, "rows of 64 elements would share memory, and it is written by forward");
    args = good_args();
    args.o.stride_batch = 99 * 8 * 64;
    check_bad(&args, "would share memory");
    args.q.stride_batch = 99 * 8 * 64; /* tensors that are only read may overlap */
    args.o.stride_batch = 100 * 8 * 64;
    check_good(&problem, &args);
    args.o.stride_seq = 64; /* [B, H, S, D], and then [H, S, B, D] */
    args.o.stride_head = 6400;
    check_good(&problem, &args);
    args.o = (fa2_tensor){args.o.data, 64, 128, 12800};
    check_good(&problem, &args);
}

/* ---- comparison with counting ---- */

static int below(int end)
{
    return rand() % end;
}

static fa2_tensor random_tensor(int32_t extents[3])
{
    for (int i = 0; i < 3; i++)
        extents[i] = 1 + below(4);
    return (fa2_tensor){(void *)(uintptr_t)(4096 + 16 * below(60)), 8 * below(30), 8 * (1 + below(30)), 8 * below(30)};
}

static int64_t row_at(const fa2_tensor *t, const int32_t extents[3], int index)
{
    const int head = index % extents[2], seq = index / extents[2] % extents[1];
    const int batch = index / extents[2] / extents[1];
    return (int64_t)(uintptr_t)t->data + 2 * (batch * t->stride_batch + seq * t->stride_seq + head * t->stride_head);
}

static bool count_meetings(const fa2_tensor *a, const int32_t of_a[3], const fa2_tensor *b, const int32_t of_b[3],
                           bool same)
{
    const int rows_a = of_a[0] * of_a[1] * of_a[2], rows_b = of_b[0] * of_b[1] * of_b[2];
    for (int i = 0; i < rows_a; i++) {
        for (int j = same ? i + 1 : 0; j < rows_b; j++) {
            if (llabs(row_at(a, of_a, i) - row_at(b, of_b, j)) < 16)
                return true;
        }
    }
    return false;
}

static void test_meetings_by_counting(void)
{
    int wrong = 0, met = 0, refused = 0;
    srand(SEED);
    for (int n = 0; n < TENSOR_PAIRS; n++) {
        int32_t of_a[3], of_b[3];
        const fa2_tensor a = random_tensor(of_a), b = random_tensor(of_b);
        fa2i_memory ma, mb;
        const bool collides = count_meetings(&a, of_a, &a, of_a, true);
        const bool meet = count_meetings(&a, of_a, &b, of_b, false);
        CHECK_EQ(fa2i_memory_of_rows("a", &a, of_a, 8, 2, NULL, &ma), FA2_OK);
        CHECK_EQ(fa2i_memory_of_rows("b", &b, of_b, 8, 2, NULL, &mb), FA2_OK);
        wrong += (fa2i_memory_check_apart(&ma, &mb) != FA2_OK) != meet;
        wrong += (fa2i_memory_of_rows("a", &a, of_a, 8, 2, "a test", &ma) != FA2_OK) != collides;
        met += meet;
        refused += collides;
    }
    CHECK_EQ(wrong, 0);
    CHECK(met > TENSOR_PAIRS / 10 && met < TENSOR_PAIRS * 9 / 10);
    CHECK(refused > TENSOR_PAIRS / 10 && refused < TENSOR_PAIRS * 9 / 10);
}

/* The search has a limit of steps. The one case that exceeds it is accepted. */
static void test_patience(void)
{
    const int32_t many[] = {1 << 20, (1 << 20) + 1, (1 << 20) + 3};
    const fa2_tensor a = {(void *)16, 8 * 1000003, 8 * 1000033, 8 * 1000037};
    const fa2_tensor b = {(void *)32, 8 * 999983, 8 * 999979, 8 * 999961};
    fa2i_memory ma, mb;
    CHECK_EQ(fa2i_memory_of_rows("a", &a, many, 8, 2, NULL, &ma), FA2_OK);
    CHECK_EQ(fa2i_memory_of_rows("b", &b, many, 8, 2, NULL, &mb), FA2_OK);
    const fa2_status st = fa2i_memory_check_apart(&ma, &mb);
    CHECK(st == FA2_OK || st == FA2_E_INVALID);
}

static int64_t odd_value(void)
{
    static const int64_t values[] = {0, 8, 64, -64, 12, INT64_MAX, INT64_MIN, 1LL << 57, 1LL << 32, 0x1000000};
    return values[below(sizeof values / sizeof *values)];
}

/* Arguments that pass the quick check pass the full check, too. */
static void test_glance_by_chance(void)
{
    const fa2_problem problems[] = {
        problem,
        {.batch = 1, .heads_q = 2, .heads_kv = 1, .seq_q = 1, .seq_k = 3, .head_dim = 64},
        {.batch = 3, .heads_q = 1, .heads_kv = 1, .seq_q = 7, .seq_k = 5, .head_dim = 8, .softcap = 1},
        {.batch = 2,
         .heads_q = 4,
         .heads_kv = 2,
         .seq_q = 9,
         .seq_k = 5,
         .head_dim = 64,
         .partial = FA2_PARTIAL_MERGE}};
    int passed = 0, wrong = 0;
    srand(SEED);
    for (int n = 0; n < CALLS; n++) {
        const fa2_problem *p = &problems[below(4)];
        const fa2i_grid *grid = below(2) == 0 ? &plain_grid : &split_grid;
        fa2_forward_args args = good_args();
        args.lse = below(2) == 0 ? NULL : (float *)0x5000000;
        args.workspace = (void *)0x6000000;
        args.workspace_bytes = 1024;
        args.softcap = (float)below(3);
        args.softmax_scale = (float)below(2);
        for (int i = below(4); i > 0; i--) {
            uint64_t *words = (uint64_t *)(void *)&args;
            uint64_t *word = &words[below(offsetof(fa2_forward_args, softmax_scale) / 8)];
            if (below(4) == 0)
                *word = (uint64_t)odd_value();
            else /* a slightly different value, or another member's */
                *word = below(2) == 0 ? *word + (uint64_t)(8 * (below(200) - 100)) : words[below(16)];
        }
        if (check_args(p, &args, grid) != FA2_OK)
            continue;
        passed++;
        wrong += fa2i_forward_check_closely(p, &args, grid) != FA2_OK;
    }
    CHECK_EQ(wrong, 0);
    CHECK(passed > CALLS / 10 && passed < CALLS * 9 / 10);
}

/* ---- an older caller ---- */

/* A shorter struct, without later members, at the end of readable memory. */
static void test_short_struct(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), old_bytes = offsetof(fa2_forward_args, softcap);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    CHECK_EQ(mprotect(pages + page, page, PROT_NONE), 0);
    const fa2_forward_args whole = good_args();
    fa2_forward_args *args = (fa2_forward_args *)(void *)(pages + page - old_bytes);
    memcpy(args, &whole, old_bytes);
    fa2_problem windowed = problem;
    windowed.window = 1;
    windowed.window_left = windowed.window_right = -1;
    const fa2_problem *const problems[] = {&problem, &windowed};
    for (size_t i = 0; i < 2; i++) {
        fa2i_params params;
        check_good(problems[i], args);
        fa2i_op_of(problems[i])->fill(&plain_grid, problems[i], args, &params);
        CHECK_EQ(params.forward.q, 0x1000000);
    }
    CHECK_EQ(munmap(pages, 2 * page), 0);
}

int main(void)
{
    test_bad_strides();
    test_bad_pointers();
    test_bad_scale();
    test_softcap();
    test_partial();
    test_good_args();
    test_strides_of_fp32();
    test_far_strides();
    test_overlap();
    test_workspace();
    test_packed();
    test_colliding_rows();
    test_meetings_by_counting();
    test_patience();
    test_glance_by_chance();
    test_short_struct();
    return check_done();
}
