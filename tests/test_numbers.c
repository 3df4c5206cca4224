/*
 * fa2_config.check_numbers on the fake driver: right and wrong numbers in device memory, with one context that checks
 * them and one that does not.
 */
#include "fake_cuda.h"
#include "runtime/base/alloc.h"
#include "tuned_database.h"

enum { B = 3, SQ = 8, SK = 40, D = 64, PAGE = 16, COLUMNS = 3, STRIDE = 5, ROOM = 32, MOST = 12 };

static const fa2i_cuda_table *cuda;
static CUcontext own;
static fa2_context *checking, *trusting;
static CUdeviceptr memory[64]; /* all arrays of numbers */
static int memory_count;

static const fa2_problem plain = {.struct_bytes = sizeof(fa2_problem),
                                  .batch = B,
                                  .heads_q = 2,
                                  .heads_kv = 1,
                                  .seq_q = SQ,
                                  .seq_k = SK,
                                  .head_dim = D,
                                  .causal = 1};

/* Returns memory for ROOM numbers that begins with these. */
static int32_t *numbers(const int32_t *these, size_t count)
{
    CUdeviceptr *at = &memory[memory_count++];
    CHECK_EQ(cuda->mem_alloc(at, ROOM * sizeof *these), CUDA_SUCCESS);
    int32_t *made = (int32_t *)(uintptr_t)*at;
    memset(made, 0x7f, ROOM * sizeof *made); /* numbers that must not be read are invalid */
    memcpy(made, these, count * sizeof *made);
    return made;
}

#define NUMBERS(...) numbers((const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static fa2_context *create(int check_numbers)
{
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = "", .check_numbers = check_numbers};
    fa2_context *context = NULL;
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    return context;
}

static void begin(void)
{
    setenv("FA2_SHARE", "", 1); /* ignore results installed on this machine */
    fake_install();
    own = fake_context_push(0);
    CHECK_EQ(fa2i_cuda_get(&cuda), FA2_OK);
    checking = create(1);
    trusting = create(0);
}

static void end(void)
{
    while (memory_count > 0)
        CHECK_EQ(cuda->mem_free(memory[--memory_count]), CUDA_SUCCESS);
    fa2_context_destroy(checking);
    fa2_context_destroy(trusting);
    fake_context_pop(own);
    CHECK_EQ(fake_live(), 0);
}

/* [B, S, H, D], at addresses that are never read. The rows of a page or of the cache are S. */
static fa2_tensor tensor(uintptr_t at, int32_t seq, int32_t heads)
{
    return (fa2_tensor){(void *)(at << 36), (int64_t)seq * heads * D, heads * D, D};
}

static fa2_forward_args args_of(const fa2_problem *p)
{
    const int32_t rows = p->paged ? PAGE : SK;
    fa2_forward_args args = {.struct_bytes = sizeof(fa2_forward_args),
                             .q = tensor(1, SQ, 2),
                             .k = tensor(2, rows, 1),
                             .v = tensor(3, rows, 1),
                             .o = tensor(4, SQ, 2),
                             .workspace = (void *)((uintptr_t)5 << 36),
                             .workspace_bytes = (size_t)1 << 32,
                             .block_table_stride = STRIDE,
                             .page_count = 9,
                             .cache_row_count = 5};
    args.append = (fa2_append){tensor(6, 4, 1), tensor(7, 4, 1), 4};
    return args;
}

static void check_refused(const fa2_problem *p, const fa2_forward_args *args, const char *said)
{
    const long before = fake.launch_count;
    CHECK_EQ(fa2_forward(checking, p, args, NULL), FA2_E_INVALID);
    CHECK_STR(fa2_last_message(), said);
    CHECK_EQ(fake.launch_count, before);
    CHECK_EQ(fa2_forward(trusting, p, args, NULL), FA2_OK);
    CHECK(fake.launch_count > before);
}

static void check_launched(const fa2_problem *p, const fa2_forward_args *args)
{
    const long before = fake.launch_count;
    const fa2_status st = fa2_forward(checking, p, args, NULL);
    CHECK_EQ(st, FA2_OK);
    if (st != FA2_OK)
        fprintf(stderr, "%s\n", fa2_last_message());
    CHECK(fake.launch_count > before);
}

/* said: NULL if the numbers are valid. */
typedef struct trial {
    int32_t numbers[MOST];
    const char *said;
} trial;

/* Tries numbers in one operand of the arguments, and restores it. */
static void try_all(const fa2_problem *p, const fa2_forward_args *args, const int32_t *operand, const trial *trials,
                    size_t count)
{
    int32_t *at = (int32_t *)(uintptr_t)operand, before[MOST];
    memcpy(before, at, sizeof before);
    for (size_t i = 0; i < count; i++) {
        memcpy(at, trials[i].numbers, sizeof trials[i].numbers);
        if (trials[i].said != NULL)
            check_refused(p, args, trials[i].said);
        else
            check_launched(p, args);
    }
    memcpy(at, before, sizeof before);
}

#define TRY(p, args, operand, ...)                                                                                     \
    try_all(p, args, operand, (const trial[]){__VA_ARGS__}, sizeof((const trial[]){__VA_ARGS__}) / sizeof(trial))

static void test_packed(void)
{
    fa2_problem p = plain;
    p.varlen = 1;
    p.total_q = 20;
    p.total_k = 90;
    fa2_forward_args args = args_of(&p);
    args.cu_seqlens_q = NUMBERS(0, 8, 8, 13);
    args.cu_seqlens_k = NUMBERS(0, 40, 40, 55);
    TRY(&p, &args, args.cu_seqlens_q, {{0, 8, 8, 13}, NULL}, {{3, 4, 12, 20}, NULL}, {{20, 20, 20, 20}, NULL},
        {{-1, 0, 0, 0}, "cu_seqlens_q[0] is -1; it must be from 0 to 20 (total_q)"},
        {{0, 8, 16, 21}, "cu_seqlens_q[3] is 21; it must be from 0 to 20 (total_q)"},
        {{0, 8, 5, 13}, "cu_seqlens_q[2] is 5; it must be from 8 (cu_seqlens_q[1]) to 16 (at most seq_q more)"},
        {{0, INT32_MAX, 0, 0}, "cu_seqlens_q[1] is 2147483647; it must be from 0 to 20 (total_q)"},
        {{2, 11, 11, 11}, "cu_seqlens_q[1] is 11; it must be from 2 (cu_seqlens_q[0]) to 10 (at most seq_q more)"});
    TRY(&p, &args, args.cu_seqlens_k, {{0, 40, 80, 90}, NULL}, {{0, 0, 0, 0}, NULL},
        {{INT32_MIN, 0, 0, 0}, "cu_seqlens_k[0] is -2147483648; it must be from 0 to 90 (total_k)"},
        {{0, 40, 80, 91}, "cu_seqlens_k[3] is 91; it must be from 0 to 90 (total_k)"},
        {{0, 41, 41, 41}, "cu_seqlens_k[1] is 41; it must be from 0 (cu_seqlens_k[0]) to 40 (at most seq_k more)"},
        {{0, 40, 39, 41}, "cu_seqlens_k[2] is 39; it must be from 40 (cu_seqlens_k[1]) to 80 (at most seq_k more)"});
    p.seqused = 1;
    args.seqused_k = NUMBERS(40, 0, 15);
    TRY(&p, &args, args.seqused_k, {{40, 0, 15}, NULL}, {{0, 0, 0}, NULL},
        {{40, 1, 15}, "seqused_k[1] is 1; it must be from 0 to 0 (its keys by cu_seqlens_k)"},
        {{40, 0, 16}, "seqused_k[2] is 16; it must be from 0 to 15 (its keys by cu_seqlens_k)"},
        {{-7, 0, 15}, "seqused_k[0] is -7; it must be from 0 to 40 (its keys by cu_seqlens_k)"});
}

/* Totals that are not given have their largest possible values. */
static void test_packed_totals(void)
{
    fa2_problem p = plain;
    p.varlen = 1;
    fa2_forward_args args = args_of(&p);
    args.cu_seqlens_q = NUMBERS(0, 8, 16, 24);
    args.cu_seqlens_k = NUMBERS(0, 40, 80, 120);
    check_launched(&p, &args);
    TRY(&p, &args, args.cu_seqlens_k,
        {{81, 81, 81, 121}, "cu_seqlens_k[3] is 121; it must be from 0 to 120 (total_k)"});
}

static void test_padded_cache(void)
{
    fa2_problem p = plain;
    p.leftpad = p.cache_rows = 1;
    fa2_forward_args args = args_of(&p);
    args.leftpad = NUMBERS(0, 39, 40);
    args.cache_rows = NUMBERS(4, 0, 4); /* rows may be shared if nothing is written */
    check_launched(&p, &args);
    TRY(&p, &args, args.leftpad, {{0, 41, 0}, "leftpad[1] is 41; it must be from 0 to 40 (all keys of its sequence)"},
        {{-1, 0, 0}, "leftpad[0] is -1; it must be from 0 to 40 (all keys of its sequence)"});
    TRY(&p, &args, args.cache_rows, {{0, 1, 5}, "cache_rows[2] is 5; it must be from 0 to 4 (cache_row_count - 1)"},
        {{0, -1, 5}, "cache_rows[1] is -1; it must be from 0 to 4 (cache_row_count - 1)"});
    p.seqused = 1;
    args.seqused_k = NUMBERS(0, 40, 40);
    TRY(&p, &args, args.seqused_k, {{0, 39, 40}, NULL},
        {{0, 41, 40}, "seqused_k[1] is 41; it must be from 0 to 40 (seq_k)"},
        {{-1, 40, 40}, "seqused_k[0] is -1; it must be from 0 to 40 (seq_k)"},
        {{0, 40, 30}, "leftpad[2] is 40; it must be from 0 to 30 (all keys of its sequence)"});
}

#define INTO(what) "; new keys are written into that " what ", so it must be named only once"

/* New keys count, they may follow padding, and keys without room are left out. */
static void test_append(void)
{
    fa2_problem p = plain;
    p.leftpad = p.cache_rows = p.append = p.seqused = 1;
    fa2_forward_args args = args_of(&p);
    args.leftpad = NUMBERS(4, 0, 0);
    args.cache_rows = NUMBERS(4, 0, 1);
    args.seqused_k = NUMBERS(0, 38, 40);
    check_launched(&p, &args);
    TRY(&p, &args, args.leftpad, {{5, 0, 0}, "leftpad[0] is 5; it must be from 0 to 4 (all keys of its sequence)"});
    TRY(&p, &args, args.cache_rows, {{4, 0, 4}, "cache_rows[0] and cache_rows[2] are both 4" INTO("row")},
        {{2, 0, 0}, "cache_rows[1] and cache_rows[2] are both 0" INTO("row")});
    TRY(&p, &args, args.seqused_k, {{0, 38, 41}, "seqused_k[2] is 41; it must be from 0 to 40 (seq_k)"});
    memcpy((void *)(uintptr_t)args.seqused_k, (const int32_t[]){0, 40, 40}, 3 * sizeof(int32_t));
    TRY(&p, &args, args.cache_rows, {{4, 0, 0}, NULL}); /* both sequences are full */
    p.seqused = 0;                                      /* all new keys are last keys */
    TRY(&p, &args, args.cache_rows, {{4, 0, 0}, "cache_rows[1] and cache_rows[2] are both 0" INTO("row")});
}

enum { NONE = 0x7f7f7f7f };

static void test_pages(void)
{
    fa2_problem p = plain;
    p.paged = 1;
    fa2_forward_args args = args_of(&p);
    args.block_table = NUMBERS(0, 1, 2, NONE, NONE, 8, 8, 8, NONE, NONE, 0, 1);
    int32_t *table = (int32_t *)(uintptr_t)args.block_table;
    table[2 * STRIDE + 2] = 3;
    check_launched(&p, &args);
    table[2 * STRIDE + 2] = 9;
    check_refused(&p, &args, "block_table[2][2] is 9; it must be from 0 to 8 (page_count - 1)");
    table[STRIDE] = -1;
    check_refused(&p, &args, "block_table[1][0] is -1; it must be from 0 to 8 (page_count - 1)");
    p.seqused = 1; /* nothing after a sequence's length is read */
    args.seqused_k = NUMBERS(40, 0, 32);
    check_launched(&p, &args);
    TRY(&p, &args, args.seqused_k, {{40, 1, 32}, "block_table[1][0] is -1; it must be from 0 to 8 (page_count - 1)"},
        {{40, 0, 33}, "block_table[2][2] is 9; it must be from 0 to 8 (page_count - 1)"});
    TRY(&p, &args, args.seqused_k, {{41, 0, 32}, "seqused_k[0] is 41; it must be from 0 to 40 (seq_k)"});
    p.seqused = 0;
    p.batch = 1; /* the table has one row */
    args.block_table_stride = -1;
    check_launched(&p, &args);
}

/* Lengths of packed sequences, and of their keys in pages. */
static void test_packed_pages(void)
{
    fa2_problem p = plain;
    p.paged = p.varlen = 1;
    fa2_forward_args args = args_of(&p);
    args.cu_seqlens_q = NUMBERS(0, 8, 16, 24);
    args.cu_seqlens_k = NUMBERS(0, 16, 16, 33);
    args.block_table = NUMBERS(8, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, 7, 6);
    check_launched(&p, &args);
    TRY(&p, &args, args.cu_seqlens_k,
        {{0, 17, 17, 33}, "block_table[0][1] is 2139062143; it must be from 0 to 8 (page_count - 1)"});
    p.seqused = 1;
    args.seqused_k = NUMBERS(16, 0, 0);
    TRY(&p, &args, args.cu_seqlens_k, {{0, 17, 17, 33}, NULL});
}

/* Full pages may be shared. Pages into which new keys are written may not, and all of them must exist. */
static void test_append_to_pages(void)
{
    fa2_problem p = plain;
    p.paged = p.append = p.seqused = 1;
    fa2_forward_args args = args_of(&p);
    args.seqused_k = NUMBERS(16, 30, 0);
    args.block_table = NUMBERS(0, 1, NONE, NONE, NONE, 0, 2, 3, NONE, NONE, 4);
    check_launched(&p, &args);
    int32_t *table = (int32_t *)(uintptr_t)args.block_table;
    table[STRIDE + 2] = 1;
    check_refused(&p, &args, "block_table[0][1] and block_table[1][2] are both 1" INTO("page"));
    table[STRIDE + 2] = 2;
    check_refused(&p, &args, "block_table[1][1] and block_table[1][2] are both 2" INTO("page"));
    table[STRIDE + 2] = 0;
    check_refused(&p, &args, "block_table[1][2] and block_table[0][0] are both 0" INTO("page"));
    table[STRIDE + 2] = 9;
    check_refused(&p, &args, "block_table[1][2] is 9; it must be from 0 to 8 (page_count - 1)");
    TRY(&p, &args, args.seqused_k, {{16, 28, 0}, NULL},
        {{12, 28, 0}, "block_table[0][0] and block_table[1][0] are both 0" INTO("page")});
    table[STRIDE + 2] = 3;
    table[2 * STRIDE + 1] = table[2 * STRIDE + 2] = 5;
    table[2] = 3; /* also a page of the second sequence: both are full */
    TRY(&p, &args, args.seqused_k, {{40, 40, 0}, NULL});
    TRY(&p, &args, args.seqused_k,
        {{16, 40, 28}, NULL}); /* no new keys for the last page of sequence 2, where it ends */
}

/* As many new keys as queries, after the used keys, or as the last ones. */
static void test_append_to_packed(void)
{
    fa2_problem p = plain;
    p.paged = p.append = p.varlen = p.seqused = 1;
    fa2_forward_args args = args_of(&p);
    args.cu_seqlens_q = NUMBERS(0, 8, 8, 16);
    args.cu_seqlens_k = NUMBERS(0, 40, 60, 70);
    args.seqused_k = NUMBERS(16, 17, 5);
    args.block_table = NUMBERS(0, 1, NONE, NONE, NONE, 0, 3, NONE, NONE, NONE, 4);
    check_launched(&p, &args);
    int32_t *table = (int32_t *)(uintptr_t)args.block_table;
    table[2 * STRIDE] = 3;
    check_refused(&p, &args, "block_table[2][0] and block_table[1][1] are both 3" INTO("page"));
    TRY(&p, &args, args.cu_seqlens_q,
        {{0, 8, 16, 16}, "block_table[1][1] and block_table[2][0] are both 3" INTO("page")},
        {{0, 8, 8, 8}, NULL});                            /* no new keys for two sequences */
    TRY(&p, &args, args.seqused_k, {{16, 17, 10}, NULL}); /* no room for new keys */
}

/* Pages that contain only padding are not read. */
static void test_padded_pages(void)
{
    fa2_problem p = plain;
    p.paged = p.leftpad = 1;
    fa2_forward_args args = args_of(&p);
    args.leftpad = NUMBERS(16, 40, 33);
    args.block_table = NUMBERS(NONE, 1, 2, NONE, NONE, NONE, NONE, 8, NONE, NONE, NONE, -1, 0);
    check_launched(&p, &args);
    TRY(&p, &args, args.leftpad,
        {{15, 40, 33}, "block_table[0][0] is 2139062143; it must be from 0 to 8 (page_count - 1)"},
        {{16, 40, 31}, "block_table[2][1] is -1; it must be from 0 to 8 (page_count - 1)"},
        {{16, 41, 33}, "leftpad[1] is 41; it must be from 0 to 40 (all keys of its sequence)"});
    p.append = p.seqused = 1; /* new keys are written into padding, too */
    args.seqused_k = NUMBERS(32, 36, 14);
    args.leftpad = NUMBERS(16, 40, 18);
    args.block_table = NUMBERS(NONE, 1, 2, NONE, NONE, NONE, NONE, 8, NONE, NONE, 3, 0);
    check_launched(&p, &args);
    int32_t *table = (int32_t *)(uintptr_t)args.block_table;
    table[2 * STRIDE] = NONE;
    check_refused(&p, &args, "block_table[2][0] is 2139062143; it must be from 0 to 8 (page_count - 1)");
}

static void test_backward(void)
{
    fa2_problem p = plain;
    p.op = FA2_OP_BACKWARD;
    p.varlen = 1;
    fa2_backward_args args = {.struct_bytes = sizeof(fa2_backward_args),
                              .q = tensor(1, SQ, 2),
                              .k = tensor(2, SK, 1),
                              .v = tensor(3, SK, 1),
                              .o = tensor(4, SQ, 2),
                              .d_o = tensor(5, SQ, 2),
                              .dq = tensor(6, SQ, 2),
                              .dk = tensor(7, SK, 1),
                              .dv = tensor(8, SK, 1),
                              .lse = (float *)((uintptr_t)9 << 36),
                              .workspace = (void *)((uintptr_t)10 << 36),
                              .workspace_bytes = (size_t)1 << 32};
    args.cu_seqlens_q = NUMBERS(0, 8, 16, 24);
    args.cu_seqlens_k = NUMBERS(0, 40, 80, 120);
    CHECK_EQ(fa2_backward(checking, &p, &args, NULL), FA2_OK);
    const long launched = fake.launch_count;
    CHECK(launched > 0);
    ((int32_t *)(uintptr_t)args.cu_seqlens_k)[2] = 39;
    CHECK_EQ(fa2_backward(checking, &p, &args, NULL), FA2_E_INVALID);
    CHECK_STR(fa2_last_message(),
              "cu_seqlens_k[2] is 39; it must be from 40 (cu_seqlens_k[1]) to 80 (at most seq_k more)");
    CHECK_EQ(fake.launch_count, launched);
    CHECK_EQ(fa2_backward(trusting, &p, &args, NULL), FA2_OK);
}

/* The check waits for the stream. Without numbers to check, or without check_numbers, calls are as usual. */
static void test_driver_calls(void)
{
    fa2_problem p = plain;
    CUstream stream = NULL;
    p.seqused = p.paged = 1;
    fa2_forward_args args = args_of(&p);
    args.seqused_k = (const int32_t *)((uintptr_t)8 << 36); /* an address that must not be read */
    args.block_table = args.seqused_k;
    CHECK_EQ(cuda->stream_create(&stream, 0), CUDA_SUCCESS);
    CHECK_EQ(fa2_prepare(checking, &plain), FA2_OK);
    fake_trace_clear();
    CHECK_EQ(fa2_forward(trusting, &p, &args, stream), FA2_OK);
    CHECK(strstr(fake.trace, "memcpy_dtoh") == NULL && strstr(fake.trace, "synchronize") == NULL);
    const long launched = fake.launch_count;
    CHECK_EQ(fa2_forward(checking, &p, &args, stream), FA2_E_CUDA);
    CHECK_CONTAINS(fa2_last_message(), "seqused_k cannot be read (config.check_numbers): cuMemcpyDtoHAsync: ");
    CHECK_EQ(fake.launch_count, launched);
    args.seqused_k = NUMBERS(1, 0, 17);
    args.block_table = NUMBERS(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 7);
    fake_trace_clear();
    CHECK_EQ(fa2_forward(checking, &p, &args, stream), FA2_OK);
    CHECK_CONTAINS(fake.trace, "ctx_get_current stream_is_capturing memcpy_dtoh_async stream_synchronize "
                               "memcpy_dtoh_async memcpy_dtoh_async stream_synchronize ");
    fake_trace_clear();
    CHECK_EQ(fa2_forward(checking, &plain, &args, stream), FA2_OK);
    CHECK(strstr(fake.trace, "stream") == NULL && strstr(fake.trace, "memcpy") == NULL);
    CHECK_EQ(cuda->stream_destroy(stream), CUDA_SUCCESS);
}

static void test_capture(void)
{
    fa2_problem p = plain;
    CUstream stream = NULL;
    CUgraph graph = NULL;
    p.seqused = 1;
    fa2_forward_args args = args_of(&p);
    args.seqused_k = NUMBERS(1, 0, 40);
    CHECK_EQ(fa2_prepare(checking, &p), FA2_OK);
    CHECK_EQ(fa2_prepare(checking, &plain), FA2_OK);
    CHECK_EQ(cuda->stream_create(&stream, 0), CUDA_SUCCESS);
    CHECK_EQ(cuda->stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    CHECK_EQ(fa2_forward(checking, &p, &args, stream), FA2_E_CAPTURE);
    CHECK_STR(fa2_last_message(), "config.check_numbers is 1 and the stream is being captured: the numbers in device "
                                  "memory cannot be read then; capture with a context that does not check them");
    CHECK_EQ(fa2_forward(checking, &plain, &args, stream), FA2_OK);   /* has no numbers */
    CHECK_EQ(cuda->stream_end_capture(stream, &graph), CUDA_SUCCESS); /* the capture is intact */
    CHECK_EQ(cuda->graph_destroy(graph), CUDA_SUCCESS);
    fake_fail_driver(2, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT); /* the default stream, while another captures */
    CHECK_EQ(fa2_forward(checking, &p, &args, NULL), FA2_E_CAPTURE);
    CHECK_EQ(fa2_forward(checking, &p, &args, NULL), FA2_OK);
    CHECK_EQ(cuda->stream_destroy(stream), CUDA_SUCCESS);
}

/* Each driver call and each allocation fails once: the message is a sentence, and nothing is launched. */
static void test_faults(void)
{
    fa2_problem p = plain;
    p.paged = p.append = p.seqused = 1;
    fa2_forward_args args = args_of(&p);
    args.seqused_k = NUMBERS(16, 30, 0);
    args.block_table = NUMBERS(0, 1, NONE, NONE, NONE, 0, 2, 3, NONE, NONE, 4);
    check_launched(&p, &args);
    fake_fail_driver(0, CUDA_SUCCESS);
    fa2i_alloc_fail_at(0);
    const long per_call = fake.launch_count;
    check_launched(&p, &args);
    const long launches = fake.launch_count - per_call, calls = fake_fail_driver(0, CUDA_SUCCESS),
               requests = fa2i_alloc_fail_at(0);
    CHECK(calls > launches);
    CHECK_EQ(requests, 3);
    for (long nth = 1; nth <= calls - launches - 1; nth++) { /* the launch enters the context, too */
        const long before = fake.launch_count;
        fake_fail_driver(nth, CUDA_ERROR_LAUNCH_FAILED);
        CHECK_EQ(fa2_forward(checking, &p, &args, NULL), FA2_E_CUDA);
        CHECK_CONTAINS(fa2_last_message(), "CUDA_ERROR_LAUNCH_FAILED");
        CHECK_EQ(fake.launch_count, before);
    }
    fake_fail_driver(0, CUDA_SUCCESS);
    for (long nth = 1; nth <= requests; nth++) {
        const long before = fake.launch_count;
        fa2i_alloc_fail_at(nth);
        CHECK_EQ(fa2_forward(checking, &p, &args, NULL), FA2_E_MEMORY);
        CHECK_CONTAINS(fa2_last_message(), "no memory ");
        CHECK_EQ(fake.launch_count, before);
    }
    fa2i_alloc_fail_at(0);
    check_launched(&p, &args);
}

int main(void)
{
    begin();
    test_packed();
    test_packed_totals();
    test_padded_cache();
    test_append();
    test_pages();
    test_packed_pages();
    test_append_to_pages();
    test_append_to_packed();
    test_padded_pages();
    test_backward();
    test_driver_calls();
    test_capture();
    test_faults();
    end();
    return check_done();
}
