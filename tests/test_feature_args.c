/*
 * Forward's checks of arguments that features take beside the tensors: lengths, packed sequences, pages, cache rows,
 * append, rotary embedding, fewer columns of V.
 */
#include "args_fixture.h"

/* If the problem has lengths, they must be given, and no output may overlap them. */
static void test_lengths(void)
{
    fa2_problem with = problem;
    fa2_forward_args args = good_args();
    with.seqused = 1;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "seqused_k is NULL, but problem.seqused is 1");
    args.seqused_k = (const int32_t *)0x5000002;
    check_good(&problem, &args);
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "seqused_k is 0x5000002; it must be a multiple of 4");
    args.seqused_k = (const int32_t *)0x5000004;
    check_good(&with, &args);
    args.lse = (float *)0x5000008;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "lse shares memory with seqused_k");
}

/* A padded cache: cache_row_count gives its rows, and no output may overlap it. */
static void test_cache(void)
{
    fa2_problem with = problem;
    fa2_forward_args args = good_args();
    with.leftpad = 1;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "leftpad is NULL, but problem.leftpad is 1");
    args.leftpad = (const int32_t *)0x5000002;
    check_good(&problem, &args);
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "leftpad is 0x5000002; it must be a multiple of 4");
    args.leftpad = (const int32_t *)0x5000000;
    check_good(&with, &args);
    with.cache_rows = 1;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "cache_row_count is 0; it must be at least 1");
    args.cache_row_count = 5;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "cache_rows is NULL, but problem.cache_rows is 1");
    args.cache_rows = (const int32_t *)0x5001000;
    check_good(&with, &args);
    args.o.data = (char *)args.k.data + args.k.stride_batch * 2 * 4; /* the last row */
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "o shares memory with k");
    with.paged = 1;
    CHECK_EQ(fa2i_problem_check(&with), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "cache_rows is 1; it must be 0 where paged is 1");
    with.cache_rows = 0;
    with.dropout = 1;
    with.bias = FA2_BIAS_FP32;
    CHECK_EQ(fa2i_problem_check(&with), FA2_OK);
    with.paged = 0;
    with.varlen = 1;
    CHECK_EQ(fa2i_problem_check(&with), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "leftpad is 1; it must be 0 where varlen is 1");
    with.leftpad = 0;
    with.cache_rows = 1;
    CHECK_EQ(fa2i_problem_check(&with), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "cache_rows is 1; it must be 0 where varlen is 1");
}

static fa2_forward_args appending_args(void)
{
    fa2_forward_args args = good_args();
    args.append = (fa2_append){args.k, args.v, 3};
    args.append.k.data = (void *)0x6000000;
    args.append.v.data = (void *)0x7000000;
    args.rotary = (fa2_rotary_tables){(void *)0x8000000, (void *)0x9000000, problem.seq_k};
    return args;
}

static void check_refused(const fa2_problem *p, const fa2_forward_args *args, const char *said)
{
    CHECK_EQ(check_args(p, args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), said);
}

/* New keys and values must be given, have the right shape, and not overlap the caches, which are written. */
static void test_append(void)
{
    fa2_problem with = problem;
    fa2_forward_args args = appending_args();
    with.append = 1;
    check_good(&with, &args);
    args.append.seq = 0;
    check_good(&problem, &args);
    check_refused(&with, &args, "append.seq is 0; it must be from 1 to seq_k");
    args.append.seq = problem.seq_k + 1;
    check_refused(&with, &args, "append.seq is ");
    fa2_problem many = with;
    many.batch = 1 << 14;
    many.seq_k = args.append.seq = 1 << 17;
    args.q.data = (void *)(UINT64_C(1) << 50);
    args.o.data = (void *)(UINT64_C(1) << 51);
    args.k.data = (void *)(UINT64_C(1) << 52);
    args.v.data = (void *)(UINT64_C(1) << 53);
    args.k.stride_batch = args.v.stride_batch = args.k.stride_seq << 17;
    check_refused(&many, &args, "more than 4294967295 rows to write");
    args = appending_args();
    args.append.v.data = NULL;
    check_refused(&with, &args, "append.v.data is NULL");
    args = appending_args();
    args.append.k.stride_head = 4;
    check_refused(&with, &args, "append.k.stride_head is 4");
    args = appending_args();
    args.append.k.data = args.v.data;
    check_refused(&with, &args, "v shares memory with append.k");
    args = appending_args();
    args.q.data = args.k.data;
    check_good(&problem, &args);
    check_refused(&with, &args, "k shares memory with q");
    args = appending_args();
    args.v = args.k;
    check_good(&problem, &args);
    check_refused(&with, &args, "v shares memory with k");
    args = appending_args();
    args.k.stride_batch = 0;
    check_good(&problem, &args);
    check_refused(&with, &args, "k.stride_batch is 0; it must be at least 64, because it is written by append");
    with.seqused = 1;
    args = appending_args();
    args.seqused_k = args.v.data;
    check_refused(&with, &args, "v shares memory with seqused_k");
}

/* For packed sequences there are as many new keys as queries, packed in the same way. */
static void test_append_packed(void)
{
    fa2_problem with = problem;
    fa2_forward_args args = appending_args();
    with.append = with.varlen = 1;
    with.total_q = 120;
    with.total_k = 220;
    args.cu_seqlens_q = (const int32_t *)0x5000000;
    args.cu_seqlens_k = (const int32_t *)0x5001000;
    args.append.seq = -1; /* not read; the batch stride is not read either */
    args.append.k.stride_batch = args.append.v.stride_batch = -1;
    check_good(&with, &args);
    args.cu_seqlens_q = (const int32_t *)((char *)args.k.data + args.k.stride_seq * 2 * 219);
    check_refused(&with, &args, "k shares memory with cu_seqlens_q");
    args.cu_seqlens_q = (const int32_t *)0x5000000;
    args.append.v.data = (char *)args.o.data - args.append.v.stride_seq * 2 * 119;
    check_refused(&with, &args, "o shares memory with append.v");
    args.append.v.data = (char *)args.o.data - args.append.v.stride_seq * 2 * 120;
    check_good(&with, &args);
}

/* The tables must cover all positions of keys. */
static void test_rotary(void)
{
    fa2_problem with = problem;
    fa2_forward_args args = appending_args();
    with.append = 1;
    with.rotary = FA2_ROTARY_INTERLEAVED;
    with.rotary_dim = 32;
    check_good(&with, &args);
    args.rotary.rows--;
    check_refused(&with, &args, "it must be at least seq_k");
    args = appending_args();
    args.rotary.cos = NULL;
    check_refused(&with, &args, "rotary.cos is NULL, but problem.rotary is interleaved");
    args.rotary.cos = (void *)0x8000008;
    check_refused(&with, &args, "rotary.cos is 0x8000008; it must be a multiple of 16");
    args = appending_args();
    args.rotary.sin = args.k.data;
    check_refused(&with, &args, "k shares memory with rotary.sin");
    with.rotary_dim = 24;
    CHECK_EQ(fa2i_problem_check(&with), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "rotary_dim is 24; it must be a multiple of 16");
    with.rotary_dim = 80;
    CHECK_EQ(fa2i_problem_check(&with), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "rotary_dim is 80; it must be at most head_dim (64)");
    with.append = 0;
    with.rotary_dim = 32;
    CHECK_EQ(fa2i_problem_check(&with), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "rotary is interleaved; it must be none where append is 0");
    with.rotary = (fa2_rotary)9;
    CHECK_EQ(fa2i_problem_check(&with), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "rotary is 9; it must be none where append is 0");
}

/* Packed sequences: tensors with as many rows as the totals say, and bounds. */
static void test_varlen(void)
{
    fa2_problem with = problem;
    fa2_forward_args args = good_args();
    with.varlen = 1;
    with.total_q = 120;
    with.total_k = 220;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "cu_seqlens_q is NULL, but problem.varlen is 1");
    args.cu_seqlens_q = (const int32_t *)0x5000000;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "cu_seqlens_k is NULL, but problem.varlen is 1");
    args.cu_seqlens_k = (const int32_t *)0x5001000;
    args.q.stride_batch = args.o.stride_batch = -1; /* not read */
    check_good(&with, &args);
    args.o.data = (char *)args.q.data + args.q.stride_seq * 2 * 119;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "o shares memory with q");
    args.o.data = (char *)args.q.data + args.q.stride_seq * 2 * 120;
    check_good(&with, &args);
}

/* Pages: a table, and page_count pages of a power of two of rows. */
static void test_paged(void)
{
    fa2_problem with = problem;
    fa2_forward_args args = good_args();
    with.paged = 1;
    with.page = 16;
    args.k.stride_batch = args.v.stride_batch = 16 * args.k.stride_seq;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "page_count is 0; it must be at least 1");
    args.page_count = 40;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "block_table is NULL, but problem.paged is 1");
    args.block_table = (const int32_t *)0x5000000;
    args.block_table_stride = 13;
    check_good(&with, &args);
    args.block_table_stride = -1;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "block_table_stride is -1; with an extent of 2");
    args.block_table_stride = 13;
    args.o.data = (char *)args.k.data + args.k.stride_batch * 2 * 39; /* the last page */
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "o shares memory with k");
    with.page = 24;
    CHECK_EQ(fa2i_problem_check(&with), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "page is 24; it must be a power of two");
}

static void check_steps(const uint32_t steps[3], uint32_t page, uint32_t row, uint32_t bytes)
{
    CHECK_EQ(steps[0], page);
    CHECK_EQ(steps[1], row);
    CHECK_EQ(steps[2], bytes);
}

/* Kernels count the rows of pages in a common divisor of both strides. 32 bits must be enough for the count. */
static void test_page_steps(void)
{
    fa2_problem with = problem;
    fa2_forward_args args = good_args();
    fa2i_params params;
    with.paged = 1;
    with.page = 16;
    args.block_table = (const int32_t *)0x5000000;
    args.block_table_stride = 13;
    args.page_count = 40;
    const int64_t row = args.k.stride_seq;
    args.k.stride_batch = 2 * 16 * row; /* K of a page is followed by its V */
    args.v.stride_batch = 16 * row + row / 2;
    check_good(&with, &args);
    fa2i_op_of(&with)->fill(&plain_grid, &with, &args, &params);
    check_steps(params.forward.features.k_steps, 32, 1, (uint32_t)row * 2);
    check_steps(params.forward.features.v_steps, 33, 2, (uint32_t)row);
    with.page = 1; /* then rows have no stride */
    args.k.stride_seq = 7;
    args.page_count = 1;
    check_good(&with, &args);
    fa2i_op_of(&with)->fill(&plain_grid, &with, &args, &params);
    check_steps(params.forward.features.k_steps, 0, 0, 2);
    with.page = 16;
    args.k.stride_seq = row;
    args.page_count = 40;
    args.v.stride_batch = (INT64_C(1) << 40) + 8;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "make the stride of pages a multiple of the stride of rows");
    args.v.stride_batch = row << 20;
    check_good(&with, &args);
    args.page_count = 2; /* the last row of the last page decides */
    args.v.stride_batch = row * ((INT64_C(1) << 32) - 16);
    check_good(&with, &args);
    args.v.stride_batch += row;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(),
                   "the last row of 2 pages of 16 must lie less than 2^32 times the divisor from the first");
    args.page_count = 1; /* then the page stride is not used */
    check_good(&with, &args);
    args.v.stride_seq = (INT64_C(1) << 31) - 8;
    check_good(&with, &args);
    args.v.stride_seq += 8;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "their greatest common divisor must be less than 2^31");
}

/* Rows of V and O are shorter than rows of K. V may be the beginning of K's rows. */
static void test_fewer_values(void)
{
    fa2_problem with = problem;
    fa2_forward_args args = good_args();
    with.head_dim_v = 40;
    args.v.data = args.k.data;
    check_good(&with, &args);
    args.v.stride_seq = args.o.stride_head = 40;
    args.o.stride_seq = 40 * problem.heads_q;
    check_good(&with, &args);
    args.v.stride_seq = 32;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "v.stride_seq is 32; it must be at least 40");
    args = good_args();
    args.o.stride_head = 32;
    args.o.stride_seq = 32 * problem.heads_q;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "o.stride_head is 32; it must be at least 40");
    args = good_args();
    args.o.data = (char *)args.k.data + 2 * 40; /* after V's columns, but inside K's rows */
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "o shares memory with k");
    args = good_args();
    args.v = (fa2_tensor){0}; /* not read */
    args.o.stride_head = 40;
    args.o.stride_seq = 40 * problem.heads_q;
    with.v_in_k = 1;
    check_good(&with, &args);
    args.o.data = args.k.data;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "o shares memory with k");
    args = good_args();
    args.v = (fa2_tensor){0};
    args.o.stride_head = 40;
    args.o.stride_seq = 40 * problem.heads_q;
    args.append = (fa2_append){.k = args.k, .seq = 3}; /* append.v is not read either */
    with.append = 1;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "k shares memory with append.k");
    args.append.k.data = (void *)0x6000000;
    check_good(&with, &args);
    with.append = with.v_in_k = 0;
    with.head_dim_v = 72;
    CHECK_EQ(fa2i_problem_check(&with), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "head_dim_v is 72; it must be below head_dim (64), or 0");
}

/* K and V in 8 bits: scales for their rows, and strides of whole chunks of 16 bytes. */
static void test_kv(void)
{
    fa2_problem with = problem;
    fa2_forward_args args = good_args();
    with.kv = FA2_KV_INT8;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "k_scale.data is NULL, but problem.kv is int8");
    args.k_scale = (fa2_kv_scales){(const float *)0x5000000, problem.heads_kv * problem.seq_k, problem.heads_kv, 1};
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "v_scale.data is NULL, but problem.kv is int8");
    args.v_scale = args.k_scale;
    check_good(&with, &args);
    args.v_scale.stride_batch = args.v_scale.stride_seq = 0; /* shared */
    check_good(&with, &args);
    args.v_scale.stride_seq = -1;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "v_scale.stride_seq is -1; with an extent of");
    args.v_scale.stride_seq = 0;
    args.v_scale.data = (const float *)0x5000002;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "v_scale.data is 0x5000002; it must be a multiple of 4");
    args.v_scale.data = (const float *)0x5000000;
    args.k.stride_seq += 8;
    check_good(&problem, &args);
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "it must be a multiple of 16 elements");
    args.k.stride_seq -= 8;
    args.lse = (float *)0x5000008;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "lse shares memory with k_scale");
    args.lse = NULL;
    with.kv_scales = FA2_SCALES_FP16;
    args.v_scale.data = (const void *)0x5000002;
    check_good(&with, &args);
}

/* Scales that append writes: one for each row, apart from all else. They may lie side by side with others. */
static void test_kv_append(void)
{
    fa2_problem with = problem;
    fa2_forward_args args = good_args();
    const int64_t heads = problem.heads_kv, keys = problem.seq_k;
    with.kv = FA2_KV_INT8;
    with.append = 1;
    args.append = (fa2_append){args.k, args.v, 1};
    args.append.k.data = (void *)0x6000000;
    args.append.v.data = (void *)0x7000000;
    args.k_scale = (fa2_kv_scales){(const void *)0x5000000, 2 * heads * keys, 2 * heads, 2};
    args.v_scale = (fa2_kv_scales){(const void *)0x5000004, 2 * heads * keys, 2 * heads, 2};
    check_good(&with, &args);
    args.v_scale.data = args.k_scale.data;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "k_scale shares memory with v_scale");
    args.v_scale = (fa2_kv_scales){args.append.k.data, heads * keys, heads, 1};
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "v_scale shares memory with append.k");
    args.v_scale = (fa2_kv_scales){args.q.data, heads * keys, heads, 1};
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "v_scale shares memory with q");
    args.v_scale = (fa2_kv_scales){(const void *)0x8000000, 0, heads, 1};
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "v_scale.stride_batch is 0, but append writes a scale for each of");
    args.v_scale.stride_batch = 1;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "v_scale: scales of different rows would share memory");
    args.v_scale = (fa2_kv_scales){(const void *)0x8000000, heads * keys, 1, keys};
    args.lse = (float *)0x8000008;
    CHECK_EQ(check_args(&with, &args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "lse shares memory with v_scale");
}

int main(void)
{
    test_kv();
    test_kv_append();
    test_lengths();
    test_varlen();
    test_paged();
    test_page_steps();
    test_fewer_values();
    test_cache();
    test_append();
    test_append_packed();
    test_rotary();
    return check_done();
}
