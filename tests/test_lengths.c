/*
 * Many lengths with one context, as decoding makes them: each gets the right kernel and grid, few
 * of them ask the database or the generator, and what is remembered is bounded.
 *
 * SQL statements are counted by a hook on every connection. Questions to the generator are counted
 * by allocations: Lua makes thousands for each, a plan makes one, its table another now and then.
 */
#include <fcntl.h>
#include <time.h>
#include "fa2.h"
#include "runtime/base/alloc.h"
#include "runtime/generator.h"
#include "tuned_database.h"

enum {
    LENGTHS = 4096,
    PLANS_KEPT = 16384, /* as fa2.h says */
    PLAN_ALLOCATIONS = 2,
    SMEM_PER_ID = 1024, /* tuned kernels differ in shared memory, which a launch shows */
};

static _Alignas(256) char memory[256]; /* the fake launches without reading tensors */
static tuned_database database;
static long statements;

static int count_statement(unsigned event, void *user, void *statement, void *text)
{
    (void)event, (void)user, (void)statement, (void)text;
    statements++;
    return 0;
}

/* SQLite calls it for each new connection. */
static int watch(sqlite3 *db, char **error, const struct sqlite3_api_routines *api)
{
    (void)error, (void)api;
    return sqlite3_trace_v2(db, SQLITE_TRACE_STMT, count_statement, NULL);
}

static fa2_problem problem_of(int32_t seq_k)
{
    return (fa2_problem){.batch = 1,
                         .heads_q = 8,
                         .heads_kv = 2,
                         .seq_q = 1,
                         .seq_k = seq_k,
                         .head_dim = 64,
                         .causal = 1};
}

static fa2_status forward(fa2_context *context, const fa2_problem *problem, CUstream stream)
{
    const fa2_tensor tensor = {
        .data = memory, .stride_batch = 8, .stride_seq = 512, .stride_head = 64};
    const fa2_forward_args args = {.q = tensor,
                                   .k = tensor,
                                   .v = tensor,
                                   .o = tensor,
                                   .workspace = memory,
                                   .workspace_bytes = SIZE_MAX};
    return fa2_forward(context, problem, &args, stream);
}

static fa2_context *create(const char *path)
{
    const fa2_config config = {.database = path, .read_only = 1};
    fa2_context *context = NULL;
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    return context;
}

static fa2_explanation explain(fa2_context *context, const fa2_problem *problem)
{
    fa2_explanation e = {.rule = (fa2_rule)99};
    CHECK_EQ(fa2_explain(context, problem, &e), FA2_OK);
    return e;
}

static void begin(void)
{
    fake_install();
    tuned_begin(&database);
}

static void end(fa2_context *context)
{
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
    fake_uninstall();
    tuned_end(&database);
}

static void put(int id, fa2_problem problem)
{
    tuned_put(&database,
              &(tuned_winner){.id = id, .problem = problem, .smem_bytes = id * SMEM_PER_ID});
}

/* Let a file look as if it was last written then. */
static void set_write_time(const char *path, time_t seconds)
{
    const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    CHECK_EQ(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void set_written_long_ago(const char *path)
{
    set_write_time(path, 1000000000);
}

static int launched_id(void)
{
    return (int)fake.launches[fake.launch_count - 1].smem_bytes / SMEM_PER_ID;
}

/* ---- tuned ---- */

static const int tuned_lengths[] = {256, 1024, 3000, 4000}; /* ids 1 ... 4 */
enum { TUNED = sizeof(tuned_lengths) / sizeof(tuned_lengths[0]), TWIN };

/* The rule in whole numbers: ratios are compared instead of their logarithms. */
static int nearest_id(int length)
{
    int best = 0;
    for (int i = 1; i < TUNED; i++) /* length is nearer to the longer one beyond the mean */
        if ((int64_t)length * length > (int64_t)tuned_lengths[i - 1] * tuned_lengths[i])
            best = i;
    return best + 1;
}

static void test_tuned_lengths(void)
{
    int wrong = 0;
    fa2_problem twin =
        problem_of(3000); /* at its distance, and before it in the database's order */
    twin.heads_kv = 1;

    begin();
    for (int i = 0; i < TUNED; i++)
        put(i + 1, problem_of(tuned_lengths[i]));
    put(TWIN, twin);
    set_written_long_ago(database.path);
    fa2_context *context = create(database.path);
    const long opened = statements;
    for (int length = 1; length <= LENGTHS; length++) {
        const fa2_problem problem = problem_of(length);
        wrong += forward(context, &problem, NULL) != FA2_OK;
        const fake_launch *launch = &fake.launches[fake.launch_count - 1];
        wrong += launch->params.seq_k != length || launch->blocks != 8;
        const bool like_twin = nearest_id(length) == 3 && length != 3000;
        wrong += launched_id() != (like_twin ? TWIN : nearest_id(length));
    }
    CHECK_EQ(wrong, 0);
    const fa2_problem exact = problem_of(3000), near = problem_of(3100);
    CHECK_EQ(explain(context, &exact).rule, FA2_RULE_EXACT);
    const fa2_explanation e = explain(context, &near);
    CHECK_EQ(e.rule, FA2_RULE_NEAREST);
    CHECK_EQ(e.tuned_problem.seq_k, 3000);
    CHECK_EQ(fake.compile_count, 0);
    CHECK(statements > opened);
    /* one reading of the winners, and one of each kernel; BEGIN and COMMIT around each */
    CHECK(statements - opened <= 3 * (1 + TWIN));
    end(context);
}

/* What another process tunes is seen by the next problem that is not prepared. */
static void test_new_winner_is_seen(void)
{
    begin();
    put(1, problem_of(256));
    set_written_long_ago(database.path);
    fa2_context *context = create(database.path);
    const fa2_problem a = problem_of(300), b = problem_of(301), c = problem_of(302);
    CHECK_EQ(forward(context, &a, NULL), FA2_OK);
    CHECK_EQ(launched_id(), 1);
    put(2, b);
    CHECK_EQ(forward(context, &b, NULL), FA2_OK);
    CHECK_EQ(launched_id(), 2);
    CHECK_EQ(forward(context, &a, NULL), FA2_OK); /* a prepared one keeps its kernel */
    CHECK_EQ(launched_id(), 1);

    /* Written again within a tick of the file's clock: the time is the same. */
    const time_t now = time(NULL) + 60; /* not settled, however slow this test is */
    const fa2_problem between = problem_of(350);
    set_write_time(database.path, now);
    CHECK_EQ(forward(context, &between, NULL), FA2_OK);
    put(3, c);
    set_write_time(database.path, now);
    CHECK_EQ(forward(context, &c, NULL), FA2_OK);
    CHECK_EQ(launched_id(), 3);
    end(context);
}

/* In SQLite's WAL mode the database itself is not written. */
static void test_new_winner_in_log(void)
{
    char log[128];
    begin();
    put(1, problem_of(256));
    put(2, problem_of(4096));
    tuned_sql(&database, "PRAGMA journal_mode = WAL");
    fa2_context *context = create(database.path);
    snprintf(log, sizeof(log), "%s-wal", database.path);
    tuned_sql(&database, "UPDATE winner SET median_us = 1"); /* now there is a log */
    set_written_long_ago(database.path);
    set_written_long_ago(log);
    const fa2_problem a = problem_of(300), b = problem_of(301);
    CHECK_EQ(forward(context, &a, NULL), FA2_OK);
    CHECK_EQ(launched_id(), 1);
    tuned_sql(&database, "UPDATE winner SET kernel = (SELECT max(kernel) FROM winner)");
    CHECK_EQ(forward(context, &b, NULL), FA2_OK);
    CHECK_EQ(launched_id(), 2);
    fa2_context_destroy(context);
    tuned_sql(&database, "PRAGMA journal_mode = DELETE"); /* removes the log */
    end(NULL);
}

/* A kernel that cannot be read for a while is not held against it, whatever the file's time. */
static void test_unreadable_for_a_while(void)
{
    const fa2_problem a = problem_of(256), b = problem_of(257);
    begin();
    put(1, a);
    tuned_sql(&database, "ALTER TABLE image RENAME COLUMN data TO away");
    set_written_long_ago(database.path);
    fa2_context *context = create(database.path);
    CHECK_EQ(explain(context, &a).rule, FA2_RULE_DEFAULT);
    tuned_sql(&database, "ALTER TABLE image RENAME COLUMN away TO data");
    set_written_long_ago(database.path);
    CHECK_EQ(explain(context, &b).rule, FA2_RULE_NEAREST);
    end(context);
}

/* ---- untuned ---- */

/* Up to 8 each number, then four to each doubling. */
static bool has_three_bits(int number)
{
    while (number > 7 && number % 2 == 0)
        number /= 2;
    return number <= 7;
}

/* The grid of a launch is that of its very problem. */
static bool has_right_grid(fa2i_generator *generator, fa2_context *context,
                           const fa2_problem *problem, const fake_launch *launch)
{
    const fa2i_card card = tuned_card(0);
    const fa2_explanation e = explain(context, problem);
    fa2i_variant variant = {.text = ""};
    fa2i_grid grid = {.blocks = 0};
    CHECK_EQ(fa2i_generator_variant(generator, e.variant, &variant), FA2_OK);
    CHECK_EQ(fa2i_grid_of(&card, &variant, problem, &grid), FA2_OK);
    return launch->blocks == grid.blocks && launch->params.splits == grid.splits &&
           launch->params.seq_k == problem->seq_k;
}

/* The kernel is the model's first choice for the next length of three significant bits. */
static void check_kernel(fa2i_generator *generator, fa2_context *context, int32_t length,
                         int32_t rounded)
{
    const fa2i_card card = tuned_card(0);
    const fa2_problem problem = problem_of(length), asked = problem_of(rounded);
    fa2i_variant *variants = NULL;
    size_t count = 0;
    CHECK_EQ(fa2i_generator_candidates(generator, &asked, &card, &variants, &count), FA2_OK);
    const fa2_explanation e = explain(context, &problem);
    CHECK_STR(e.variant, variants[0].text);
    CHECK_EQ(e.rule, FA2_RULE_DEFAULT);
    CHECK_EQ(e.tuned_problem.seq_k, rounded);
    fa2i_free(variants);
}

static void test_untuned_lengths(void)
{
    fa2i_generator *generator = NULL;
    int wrong = 0, asked = 0, expected = 0;

    begin();
    CHECK_EQ(fa2i_generator_create(&generator), FA2_OK);
    fa2_context *context = create("");
    for (int length = 1; length <= LENGTHS; length++) {
        const fa2_problem problem = problem_of(length);
        const long first = fake.launch_count < FAKE_LAUNCHES ? fake.launch_count : 0;
        fa2i_alloc_fail_at(0);
        wrong += forward(context, &problem, NULL) != FA2_OK;
        asked += fa2i_alloc_fail_at(0) > PLAN_ALLOCATIONS;
        expected += has_three_bits(length);
        if (first > 0 && length % 61 == 0)
            wrong += !has_right_grid(generator, context, &problem, &fake.launches[first]);
    }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(expected, 44);
    CHECK_EQ(asked, expected);
    check_kernel(generator, context, 1000, 1024);
    check_kernel(generator, context, 1025, 1280);
    check_kernel(generator, context, 7, 7);
    fa2_context *second = create(""); /* without a history: the same */
    check_kernel(generator, second, 1025, 1280);
    fa2_context_destroy(second);
    fa2i_generator_destroy(generator);
    end(context);
}

/* ---- what is remembered ---- */

static fa2_status forward_captured(fa2_context *context, const fa2_problem *problem)
{
    const fa2i_cuda_table *cuda = NULL;
    CUstream stream = NULL;
    CUgraph graph = NULL;
    CHECK_EQ(fa2i_cuda_get(&cuda), FA2_OK);
    CHECK_EQ(cuda->stream_create(&stream, 0), CUDA_SUCCESS);
    CHECK_EQ(cuda->stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    const fa2_status st = forward(context, problem, stream);
    CHECK_EQ(cuda->stream_end_capture(stream, &graph), CUDA_SUCCESS);
    CHECK_EQ(cuda->graph_destroy(graph), CUDA_SUCCESS);
    CHECK_EQ(cuda->stream_destroy(stream), CUDA_SUCCESS);
    return st;
}

static void test_plans_are_bounded(void)
{
    const fa2_problem last = problem_of(PLANS_KEPT), beyond = problem_of(PLANS_KEPT + 1);
    int wrong = 0;

    begin();
    CUcontext own = fake_context_push(0);
    put(1, problem_of(256));
    set_written_long_ago(database.path);
    fa2_context *context = create(database.path);
    for (int length = 1; length <= PLANS_KEPT; length++) {
        const fa2_problem problem = problem_of(length);
        wrong += forward(context, &problem, NULL) != FA2_OK;
    }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(forward_captured(context, &last), FA2_OK);

    fa2i_alloc_fail_at(0);
    size_t bytes = 1;
    CHECK_EQ(forward(context, &beyond, NULL), FA2_OK); /* works, and is not remembered */
    CHECK_EQ(fa2_workspace_size(context, &beyond, &bytes), FA2_OK);
    CHECK_EQ(bytes, 0);
    CHECK_EQ(explain(context, &beyond).rule, FA2_RULE_NEAREST);
    CHECK_EQ(fa2i_alloc_fail_at(0), 0);
    CHECK_EQ(forward_captured(context, &beyond), FA2_E_CAPTURE);
    CHECK_EQ(fa2_prepare(context, &beyond), FA2_OK); /* always remembers */
    CHECK_EQ(forward_captured(context, &beyond), FA2_OK);
    fa2_context_destroy(context);
    fake_context_pop(own);
    end(NULL);
}

int main(void)
{
    CHECK_EQ(sqlite3_auto_extension((void (*)(void))watch), SQLITE_OK);
    test_tuned_lengths();
    test_new_winner_is_seen();
    test_new_winner_in_log();
    test_unreadable_for_a_while();
    test_untuned_lengths();
    test_plans_are_bounded();
    return check_done();
}
