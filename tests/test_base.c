/* runtime/base: statuses and messages, allocation failures, texts, records. */
#include <pthread.h>
#include <stdint.h>
#include "check.h"
#include "runtime/base/alloc.h"
#include "runtime/base/record.h"
#include "runtime/base/shown.h"
#include "runtime/base/text.h"

static const fa2_problem good = {.struct_bytes = sizeof(fa2_problem),
                                 .batch = 2,
                                 .heads_q = 8,
                                 .heads_kv = 2,
                                 .seq_q = 100,
                                 .seq_k = 200,
                                 .head_dim = 64};

static void test_status(void)
{
    CHECK_STR(fa2_status_string(FA2_OK), "success");
    CHECK_STR(fa2_status_string(FA2_E_NOT_FOUND), "no such record");
    CHECK_EQ(FA2_E_FORBIDDEN, 14);
    CHECK_STR(fa2_status_string((fa2_status)999), "unknown status");

    CHECK_EQ(fa2i_fail(FA2_E_IO, "file %s, line %d", "a.csv", 3), FA2_E_IO);
    CHECK_STR(fa2_last_message(), "file a.csv, line 3");
    CHECK_EQ(fa2i_fail_prefix(FA2_E_INVALID, "reading %s", "shapes"), FA2_E_INVALID);
    CHECK_STR(fa2_last_message(), "reading shapes: file a.csv, line 3");
    fa2i_fail(FA2_E_IO, "again: %s", fa2_last_message());
    CHECK_STR(fa2_last_message(), "again: reading shapes: file a.csv, line 3");
    char kept[FA2I_MESSAGE_BYTES];
    fa2i_message_keep(kept);
    fa2i_fail(FA2_E_IO, "first");
    fa2i_fail(FA2_E_IO, "second");
    fa2i_message_put_back(kept);
    CHECK_STR(fa2_last_message(), "again: reading shapes: file a.csv, line 3");
}

/* A message that is too long keeps its beginning, including the prefix. */
static void test_long_message(void)
{
    char filler[2 * FA2I_MESSAGE_BYTES];
    memset(filler, 'x', sizeof filler - 1);
    filler[sizeof filler - 1] = '\0';
    fa2i_fail(FA2_E_IO, "begin %s", filler);
    CHECK_EQ(strlen(fa2_last_message()), FA2I_MESSAGE_BYTES - 1);
    fa2i_fail_prefix(FA2_E_IO, "prefix");
    CHECK_EQ(strlen(fa2_last_message()), FA2I_MESSAGE_BYTES - 1);
    CHECK(strncmp(fa2_last_message(), "prefix: begin xxx", 17) == 0);
}

/* ---- texts from outside ---- */

static void check_shown(const char *text, const char *expected)
{
    char once[64], twice[64];
    fa2i_shown_write(once, sizeof once, "%s", text);
    CHECK_STR(once, expected);
    fa2i_shown_write(twice, sizeof twice, "%s", once);
    CHECK_STR(twice, expected);
    CHECK_EQ(fa2i_shown_is_plain(text, strlen(text)), strcmp(text, expected) == 0);
}

static void test_shown(void)
{
    check_shown("plain \\ \"text\", µ€😀\xf4\x8f\xbf\xbd", "plain \\ \"text\", µ€😀\xf4\x8f\xbf\xbd");
    check_shown("\x1b[2J\a\n\t\x7f", "\\x1b[2J\\x07\\n\\t\\x7f");
    check_shown("\xc2\x9b \xc2\xa0", "\\u009b \xc2\xa0");
    check_shown("\xff\x80g", "\\xff\\x80g");
    check_shown("\xc0\xaf \xe0\x80\xaf", "\\xc0\\xaf \\xe0\\x80\\xaf");                   /* overlong */
    check_shown("\xed\xa0\x80 \xf4\x90\x80\x80", "\\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80"); /* surrogate, too large */
    check_shown("\u202e\u2066\u200f\u2028", "\\u202e\\u2066\\u200f\\u2028");
    check_shown("cut \xe2\x82", "cut \\xe2\\x82");
}

/* Equal to snprintf's output if nothing must be escaped. */
static void test_shown_format(void)
{
#define FORMAT "%-6s|%6s|%.2s|%*d|%05d|%+.3f|%g|%zu|%lld|%u|%c|%%|%-*s|%.*s|%02x|%.4g"
#define ARGUMENTS                                                                                                      \
    "ab", "cd", "efg", 5, 42, -7, 1.5, 1e300, (size_t)-1, -1LL * (1LL << 62), 4000000000u, 'c', 4, "x", 2, "xyz",      \
        171u, 0.00012
    char expected[256], out[256], small[6];
    snprintf(expected, sizeof expected, FORMAT, ARGUMENTS);
    fa2i_shown_write(out, sizeof out, FORMAT, ARGUMENTS);
    CHECK_STR(out, expected);
    fa2i_shown_write(out, sizeof out, "%4s|%-4s|%.1s", "\n", "\n", "µ");
    CHECK_STR(out, "  \\n|\\n  |\\xc2");
    /* Only whole characters and whole escapes are written. */
    fa2i_shown_write(small, sizeof small, "abcd%s", "µe");
    CHECK_STR(small, "abcd");
    fa2i_shown_write(small, sizeof small, "ab%s", "\x1b[");
    CHECK_STR(small, "ab");
}

/* Every message is printable, with any arguments. A log keeps its lines. */
static void test_printable_message(void)
{
    fa2i_fail(FA2_E_IO, "%s: %.3s", "a\n\x1b[0m\xff", "\u202e!");
    CHECK_STR(fa2_last_message(), "a\\n\\x1b[0m\\xff: \\u202e");
    fa2i_fail_log(FA2_E_COMPILE, "line 1\n\tline 2\x1b", "%s: ", "k\n");
    CHECK_STR(fa2_last_message(), "k\\n: line 1\n\tline 2\\x1b");
    fa2i_fail(FA2_E_COMPILE, "again: %s", fa2_last_message());
    fa2i_fail_prefix(FA2_E_COMPILE, "of %s", "\a");
    CHECK_STR(fa2_last_message(), "of \\x07: again: k\\n: line 1\n\tline 2\\x1b");
}

static void *fail_elsewhere(void *unused)
{
    (void)unused;
    CHECK_STR(fa2_last_message(), "");
    fa2i_fail(FA2_E_IO, "of the other thread");
    return NULL;
}

static void test_message_per_thread(void)
{
    pthread_t thread;
    fa2i_fail(FA2_E_IO, "of this thread");
    CHECK_EQ(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_STR(fa2_last_message(), "of this thread");
}

static void test_alloc(void)
{
    unsigned char *block = fa2i_alloc(64);
    for (int i = 0; i < 64; i++)
        CHECK_EQ(block[i], 0);
    block[0] = 7;
    block = fa2i_realloc(block, 1 << 20);
    CHECK_EQ(block[0], 7);
    fa2i_free(block);

    void *empty = fa2i_alloc(0);
    CHECK(empty != NULL);
    fa2i_free(empty);
    CHECK(fa2i_alloc_array(SIZE_MAX / 4, 8) == NULL);
    char *copy = fa2i_strdup("text");
    CHECK_STR(copy, "text");
    fa2i_free(copy);
}

/* An array that grows keeps its contents, grows seldom, and is unchanged if it cannot grow. */
static void test_room(void)
{
    size_t capacity = 0, moves = 0;
    int *items = NULL;
    for (int i = 0; i < 1000; i++) {
        const size_t before = capacity;
        items = fa2i_room_for(items, (size_t)i + 1, &capacity, sizeof *items);
        CHECK(items != NULL && capacity > (size_t)i);
        moves += capacity > before;
        items[i] = i;
    }
    for (int i = 0; i < 1000; i++)
        CHECK_EQ(items[i], i);
    CHECK(moves < 10);
    items = fa2i_room_for(items, 5000, &capacity, sizeof *items);
    CHECK(items != NULL);
    CHECK_EQ(capacity, 5000);
    CHECK(fa2i_room_for(items, SIZE_MAX / 2, &capacity, sizeof *items) == NULL);
    fa2i_alloc_fail_at(1);
    CHECK(fa2i_room_for(items, 5001, &capacity, sizeof *items) == NULL);
    CHECK_EQ(capacity, 5000);
    CHECK_EQ(items[999], 999);
    CHECK(fa2i_room_for(items, 5000, &capacity, sizeof *items) == items);
    fa2i_free(items);
}

static void test_alloc_fail_at(void)
{
    fa2i_alloc_fail_at(2);
    void *first = fa2i_alloc(1), *second = fa2i_alloc(1), *third = fa2i_alloc(1);
    CHECK(first != NULL);
    CHECK(second == NULL);
    CHECK(third != NULL);
    CHECK_EQ(fa2i_alloc_fail_at(1), 3);
    CHECK(fa2i_realloc(first, 100) == NULL); /* first stays valid */
    CHECK_EQ(fa2i_alloc_fail_at(1), 1);
    CHECK(fa2i_strdup("x") == NULL);
    CHECK_EQ(fa2i_alloc_fail_at(0), 1);
    fa2i_free(first);
    fa2i_free(third);
}

static void test_text(void)
{
    fa2i_text text = {0};
    char *string = NULL;
    for (int i = 0; i < 1000; i++)
        fa2i_text_add(&text, "%d,", i);
    fa2i_text_add_bytes(&text, "end!", 3);
    CHECK_EQ(text.length, 10 * 2 + 90 * 3 + 900 * 4 + 3);
    CHECK_EQ(fa2i_text_take(&text, &string), FA2_OK);
    CHECK(strncmp(string, "0,1,2,", 6) == 0);
    CHECK_STR(string + strlen(string) - 7, "999,end");
    CHECK(text.data == NULL && text.length == 0);
    fa2i_free(string);

    CHECK_EQ(fa2i_text_take(&text, &string), FA2_OK);
    CHECK_STR(string, "");
    fa2i_free(string);
}

static void test_text_out_of_memory(void)
{
    char *string = NULL;
    for (long nth = 1; nth <= 2; nth++) {
        fa2i_text text = {0};
        fa2i_alloc_fail_at(nth);
        fa2i_text_add(&text, "%060d", 1);
        fa2i_text_add(&text, "%060d", 2); /* grows a second time */
        CHECK_EQ(fa2i_text_take(&text, &string), FA2_E_MEMORY);
        CHECK(string == NULL);
        CHECK(text.data == NULL);
    }
    fa2i_alloc_fail_at(0);
}

/* The largest sizes that kernels can count in int, and the first that they cannot. */
static void check_limits(void)
{
    fa2_problem problem = good;
    problem.batch = 1;
    problem.heads_q = problem.heads_kv = 15;
    problem.seq_q = problem.seq_k = 1 << 29;
    CHECK_EQ(fa2i_problem_check(&problem), FA2_OK);
    problem.seq_q++;
    CHECK_EQ(fa2i_problem_check(&problem), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "at most 536870912");
    problem.seq_q = 1 << 20;
    problem.seq_k = (1 << 29) + 1;
    CHECK_EQ(fa2i_problem_check(&problem), FA2_E_INVALID);
    problem.seq_k = 1;
    problem.heads_q = 1 << 10;
    problem.heads_kv = 1;
    CHECK_EQ(fa2i_problem_check(&problem), FA2_OK); /* 2^20 rows times 2^10 heads */
    problem.heads_q++;
    CHECK_EQ(fa2i_problem_check(&problem), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "seq_q times heads_q / heads_kv");
    problem.heads_q = 1 << 17;
    CHECK_EQ(fa2i_problem_check(&problem), FA2_E_INVALID);
}

/* Each bad problem, with the words that its message must contain. */
static void test_problem_check(void)
{
    static const struct {
        size_t offset;
        int32_t value;
        const char *said;
    } bad[] = {
        {offsetof(fa2_problem, op), 5, "op is 5"},
        {offsetof(fa2_problem, dtype), 3, "dtype is 3; it must be one of 0 (fp16), 1 (bf16), 2 (fp32)"},
        {offsetof(fa2_problem, dtype), -1, "dtype is -1"},
        {offsetof(fa2_problem, batch), 0, "batch is 0; it must be at least 1"},
        {offsetof(fa2_problem, heads_q), -8, "heads_q is -8"},
        {offsetof(fa2_problem, heads_q), 9, "heads_q is 9; it must be a multiple of heads_kv (2)"},
        {offsetof(fa2_problem, heads_kv), 0, "heads_kv is 0"},
        {offsetof(fa2_problem, seq_q), 0, "seq_q is 0"},
        {offsetof(fa2_problem, seq_k), INT32_MIN, "seq_k is -2147483648"},
        {offsetof(fa2_problem, head_dim), 0, "head_dim is 0; it must be a multiple of 8 from 8"},
        {offsetof(fa2_problem, head_dim), 60, "head_dim is 60"},
        {offsetof(fa2_problem, head_dim), 584, "from 8 to 576"},
        {offsetof(fa2_problem, head_dim_v), 4, "head_dim_v is 4; it must be a multiple of 8 from 0"},
        {offsetof(fa2_problem, head_dim_v), 64, "head_dim_v is 64, which is head_dim; it must be 0"},
        {offsetof(fa2_problem, causal), 2, "causal is 2; it must be 0 or 1"},
        {offsetof(fa2_problem, softcap), 30,
         "softcap is 30; it must be 0 or 1: the softcap's value is given with the call"},
        {offsetof(fa2_problem, window), 128,
         "window is 128; it must be one of 0 (none), 1 (sliding), 2 (prefix), 3 (chunk): "
         "window_left and window_right say how far it reaches"},
        {offsetof(fa2_problem, sums), 2, "sums is 2; it must be one of 0 (fp32), 1 (fast)"},
        {offsetof(fa2_problem, scores), -1, "scores is -1; it must be one of 0 (exact), 1 (int8)"},
        {offsetof(fa2_problem, pv), 2, "pv is 2; it must be one of 0 (exact), 1 (fp8)"},
        {offsetof(fa2_problem, kv), 3, "kv is 3; it must be one of 0 (dtype), 1 (int8), 2 (fp8)"},
        {offsetof(fa2_problem, reserved[0]), 1, "reserved[0] is 1"},
    };
    CHECK_EQ(fa2i_problem_check(&good), FA2_OK);
    CHECK_EQ(fa2i_problem_check(NULL), FA2_E_INVALID);
    check_limits();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fa2_problem problem = good;
        memcpy((char *)&problem + bad[i].offset, &bad[i].value, sizeof bad[i].value);
        CHECK_EQ(fa2i_problem_check(&problem), FA2_E_INVALID);
        CHECK_CONTAINS(fa2_last_message(), bad[i].said);
    }
    fa2_problem wide = good;
    wide.head_dim = 264;
    CHECK_EQ(fa2i_problem_check(&wide), FA2_OK);
    wide.op = FA2_OP_BACKWARD;
    CHECK_EQ(fa2i_problem_check(&wide), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "head_dim is 264; backward takes up to 256");
    wide.head_dim = 64;
    wide.seqused = 1;
    CHECK_EQ(fa2i_problem_check(&wide), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "seqused is 1; the operation backward has no seqused; it has varlen");
    wide.seqused = 0;
    wide.sums = FA2_SUMS_FAST;
    CHECK_EQ(fa2i_problem_check(&wide), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "sums is fast; the operation backward has no sums");
    wide.sums = FA2_SUMS_FP32;
    wide.scores = FA2_SCORES_INT8;
    CHECK_EQ(fa2i_problem_check(&wide), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "scores is int8; the operation backward has no scores");
    wide.scores = FA2_SCORES_EXACT;
    wide.pv = FA2_PV_FP8;
    CHECK_EQ(fa2i_problem_check(&wide), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "pv is fp8; the operation backward has no pv");
    wide.op = FA2_OP_FORWARD;
    wide.head_dim = 128;
    CHECK_EQ(fa2i_problem_check(&wide), FA2_OK); /* without effect, because scores are exact */
}

/* fp32: messages name both the type and what it lacks. */
static void test_fp32(void)
{
    static const struct {
        size_t offset;
        int32_t value;
        const char *said;
    } lacking[] = {{offsetof(fa2_problem, op), FA2_OP_MERGE, "op is merge; it must be forward or backward where"},
                   {offsetof(fa2_problem, softcap), 1, "softcap is 1; it must be 0 where"},
                   {offsetof(fa2_problem, dropout), 1, "dropout is 1; it must be 0 where"},
                   {offsetof(fa2_problem, leftpad), 1, "leftpad is 1; it must be 0 where"},
                   {offsetof(fa2_problem, cache_rows), 1, "cache_rows is 1; it must be 0 where"},
                   {offsetof(fa2_problem, append), 1, "append is 1; it must be 0 where"},
                   {offsetof(fa2_problem, v_in_k), 1, "v_in_k is 1; it must be 0 where"},
                   {offsetof(fa2_problem, kv), FA2_KV_INT8, "kv is int8; it must be dtype where"},
                   {offsetof(fa2_problem, head_dim), 264, "head_dim is 264; it must be at most 256 where"}};
    for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++) {
        fa2_problem problem = good;
        problem.dtype = FA2_FP32;
        CHECK_EQ(fa2i_problem_check(&problem), FA2_OK);
        memcpy((char *)&problem + lacking[i].offset, &lacking[i].value, sizeof lacking[i].value);
        CHECK_EQ(fa2i_problem_check(&problem), FA2_E_UNSUPPORTED);
        CHECK_CONTAINS(fa2_last_message(), lacking[i].said);
        CHECK_CONTAINS(fa2_last_message(), "where dtype is fp32");
    }
    fa2_problem permitted = good;
    permitted.dtype = FA2_FP32;
    permitted.sums = FA2_SUMS_FAST;
    permitted.scores = FA2_SCORES_INT8;
    permitted.pv = FA2_PV_FP8;
    CHECK_EQ(fa2i_problem_check(&permitted), FA2_OK);
    permitted = good;
    permitted.dtype = FA2_FP32;
    permitted.op = FA2_OP_BACKWARD;
    CHECK_EQ(fa2i_problem_check(&permitted), FA2_OK);
}

/* K and V in 8 bits: whole chunks of 16 columns, and no V in K. Only they have scales. */
static void test_kv(void)
{
    fa2_problem cache = good;
    cache.kv = FA2_KV_INT8;
    CHECK_EQ(fa2i_problem_check(&cache), FA2_OK);
    cache.append = 1;
    cache.kv_scales = FA2_SCALES_FP16;
    CHECK_EQ(fa2i_problem_check(&cache), FA2_OK);
    cache.kv = FA2_KV_DTYPE;
    CHECK_EQ(fa2i_problem_check(&cache), FA2_E_INVALID);
    CHECK_STR(fa2_last_message(), "kv_scales is fp16; it must be fp32 where kv is dtype");
    cache.append = cache.kv_scales = 0;
    cache.v_in_k = 1;
    cache.kv = FA2_KV_FP8;
    CHECK_EQ(fa2i_problem_check(&cache), FA2_E_UNSUPPORTED);
    CHECK_STR(fa2_last_message(), "v_in_k is 1; it must be 0 where kv is fp8");
    cache.v_in_k = 0;
    cache.head_dim_v = 40;
    CHECK_EQ(fa2i_problem_check(&cache), FA2_E_UNSUPPORTED);
    CHECK_STR(fa2_last_message(), "head_dim_v is 40; it must be a multiple of 16, at most 256, where kv is fp8");
    cache.head_dim_v = 0;
    cache.head_dim = 272;
    CHECK_EQ(fa2i_problem_check(&cache), FA2_E_UNSUPPORTED);
    CHECK_STR(fa2_last_message(), "head_dim is 272; it must be a multiple of 16, at most 256, where kv is fp8");
    cache.head_dim = 64;
    cache.op = FA2_OP_BACKWARD;
    CHECK_EQ(fa2i_problem_check(&cache), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "kv is fp8; the operation backward has no kv");
}

/* At most 2^29 packed rows, given as a total or as batch times the longest length. */
static void test_totals(void)
{
    fa2_problem packed = good;
    packed.varlen = 1;
    packed.batch = 1 << 10;
    packed.seq_q = packed.seq_k = 1 << 19;
    CHECK_EQ(fa2i_problem_check(&packed), FA2_OK);
    packed.seq_k++;
    CHECK_EQ(fa2i_problem_check(&packed), FA2_E_INVALID);
    CHECK_STR(fa2_last_message(),
              "total_k is 0, which means batch times seq_k: 536871936; it must be at most 536870912");
    packed.total_k = 1 << 29;
    CHECK_EQ(fa2i_problem_check(&packed), FA2_OK);
    packed.total_k++;
    CHECK_EQ(fa2i_problem_check(&packed), FA2_E_INVALID);
    CHECK_STR(fa2_last_message(), "total_k is 536870913; it must be at most 536870912");
}

static void test_problem_text(void)
{
    fa2_problem problem = good;
    CHECK_STR(fa2i_problem_shape(&problem).text, "B=2 Hq=8 Hkv=2 Sq=100 Sk=200 D=64 dtype=fp16 causal=0");
    problem.causal = 1;
    problem.dtype = FA2_BF16;
    CHECK_STR(fa2i_problem_shape(&problem).text, "B=2 Hq=8 Hkv=2 Sq=100 Sk=200 D=64 dtype=bf16 causal=1");
    CHECK_STR(fa2i_problem_argument(&problem).text, "B=2,Hq=8,Hkv=2,Sq=100,Sk=200,D=64,dtype=bf16,causal=1");
}

static void test_names(void)
{
    int32_t dtype = FA2_FP16;
    fa2i_outcome outcome = FA2I_OUTCOME_OK;
    CHECK(fa2i_field_parse_word(FA2I_FIELD_dtype, "bf16", &dtype));
    CHECK_EQ(dtype, FA2_BF16);
    CHECK(!fa2i_field_parse_word(FA2I_FIELD_dtype, "fp8", &dtype));
    CHECK_EQ(dtype, FA2_BF16);
    for (int i = FA2I_OUTCOME_OK; i <= FA2I_OUTCOME_LAUNCH_ERROR; i++) {
        CHECK(fa2i_outcome_parse(fa2i_outcome_string((fa2i_outcome)i), &outcome));
        CHECK_EQ(outcome, i);
    }
    CHECK_STR(fa2i_outcome_string(FA2I_OUTCOME_SPILLED), "spilled");
    CHECK(!fa2i_outcome_parse("", &outcome));
}

static void test_key(void)
{
    const fa2i_part one[] = {{"ab", 2}, {"c", 1}}, two[] = {{"a", 1}, {"bc", 2}};
    fa2i_key first, second;
    char text[2 * FA2I_KEY_BYTES + 1];
    fa2i_key_of(one, 2, &first);
    fa2i_key_of(two, 2, &second);
    CHECK(memcmp(&first, &second, sizeof first) != 0);
    fa2i_key_of(NULL, 0, &first);
    fa2i_key_format(&first, text);
    CHECK_STR(text, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    const fa2i_part empty = {NULL, 0};
    fa2i_key_of(&empty, 1, &first); /* SHA-256 of eight zero bytes: the length */
    fa2i_key_format(&first, text);
    CHECK_STR(text, "af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc");
}

int main(void)
{
    test_status();
    test_long_message();
    test_shown();
    test_shown_format();
    test_printable_message();
    test_message_per_thread();
    test_alloc();
    test_room();
    test_alloc_fail_at();
    test_text();
    test_text_out_of_memory();
    test_problem_check();
    test_fp32();
    test_kv();
    test_totals();
    test_problem_text();
    test_names();
    test_key();
    return check_done();
}
