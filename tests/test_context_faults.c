/*
 * Every single fault in create, prepare, forward, explain and destroy: the nth driver call, the nth NVRTC call and the
 * nth allocation fail, for each n. Each failure has a status and a sentence, a failed call launches nothing, and
 * everything is released.
 */
#include "fa2.h"
#include "runtime/base/alloc.h"
#include "runtime/lua/surveys.h"
#include "tuned_database.h"

enum { NEAR_AN_END = 60, SAMPLES = 40 };

static _Alignas(256) char memory[256]; /* the fake driver reads no tensors */
static tuned_database database;

static fa2_status forward(fa2_context *context, const fa2_problem *problem)
{
    const fa2_tensor tensor = {.data = memory, .stride_batch = 512 * 512, .stride_seq = 512, .stride_head = 64};
    fa2_forward_args args = {
        .struct_bytes = sizeof(fa2_forward_args), .q = tensor, .k = tensor, .v = tensor, .o = tensor};
    args.o.data = (void *)((uintptr_t)1 << 41);
    const long before = fake.launch_count;
    fa2_status st = fa2_forward(context, problem, &args, NULL);
    CHECK_EQ(fake.launch_count, before + (st == FA2_OK));
    return st;
}

/* Returns the number of driver calls since fake_install. */
static long calls_made(void)
{
    long calls = 0;
    for (const char *at = fake.trace; *at != '\0'; at++)
        calls += *at == ' ';
    return calls;
}

/* The whole life of a context. The first status other than FA2_OK ends it. driver_fault: the number of the failing
 * driver call; 0: none. */
static fa2_status live(const char *path, long driver_fault)
{
    fa2_status st = FA2_OK;
    fa2_context *context = NULL;
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = path};
    const fa2_problem problem = tuned_problem(1, 512);
    fa2_explanation e = {.struct_bytes = sizeof e, .registers = -77};

    st = fa2_context_create(&config, &context);
    CHECK((st == FA2_OK) == (context != NULL));
    if (st == FA2_OK)
        st = fa2_prepare(context, &problem);
    if (st == FA2_OK)
        st = forward(context, &problem);
    if (st == FA2_OK) {
        st = fa2_explain(context, &problem, &e);
        CHECK((st == FA2_OK) == (e.registers != -77)); /* untouched on error */
    }
    if (st != FA2_OK)
        CHECK(fa2_last_message()[0] != '\0');
    /* if the driver does not let us enter its context for unloading, the module stays, which is not our fault */
    const int kept = driver_fault > calls_made() ? 1 : 0;
    fa2_context_destroy(context);
    CHECK(fake_live() <= kept);
    return st;
}

typedef enum fault { DRIVER_CALL, NVRTC_CALL, ALLOCATION } fault;

/* Makes the nth call of a kind fail (0: none). Returns the number of calls since the last time. */
static long fail_at(fault kind, long nth, int error)
{
    switch (kind) {
    case DRIVER_CALL:
        return fake_fail_driver(nth, (CUresult)error);
    case NVRTC_CALL:
        return fake_fail_nvrtc(nth, (nvrtcResult)error);
    case ALLOCATION:
        return fa2i_alloc_fail_at(nth);
    }
    return 0;
}

static bool is_expected(fault kind, fa2_status st)
{
    switch (kind) {
    case DRIVER_CALL:
        return st == FA2_OK || st == FA2_E_CUDA || st == FA2_E_NO_DRIVER || st == FA2_E_NO_DEVICE;
    case NVRTC_CALL:
        return st == FA2_OK || st == FA2_E_COMPILE || st == FA2_E_MEMORY;
    case ALLOCATION:
        return st == FA2_OK || st == FA2_E_MEMORY;
    }
    return false;
}

/* Returns the next n of 1 ... total to try: all near both ends, and about SAMPLES between them. Most of those are Lua's
 * own allocations, which test_generator.c tests more closely. */
static long next_of(long n, long total)
{
    const long step = (total - 2 * NEAR_AN_END) / SAMPLES;
    return n < NEAR_AN_END || n >= total - NEAR_AN_END || step < 1 ? n + 1 : n + step;
}

static void fail_one(fault kind, long n, int error, const char *path, long *failed)
{
    fake_install(); /* so that cuInit is called again */
    fail_at(kind, n, error);
    fa2_status st = live(path, kind == DRIVER_CALL ? n : 0);
    fail_at(kind, 0, 0);
    *failed += st != FA2_OK;
    CHECK(is_expected(kind, st));
    if (!is_expected(kind, st))
        fprintf(stderr, "fault %d, call %ld: %s: %s\n", (int)kind, n, fa2_status_string(st), fa2_last_message());
}

/* A life without a database surveys its class. The other ones find the answer of the one before. */
static void begin_life(fault kind, const char *path)
{
    if (kind == ALLOCATION && path[0] == '\0')
        fa2i_surveys_forget();
}

/* stored: the database keeps what is in it; else each life starts without a file. */
static void fail_each(fault kind, int error, const char *path, bool stored)
{
    long failed = 0;

    fake_install();
    begin_life(kind, path);
    fail_at(kind, 0, 0);
    CHECK_EQ(live(path, 0), FA2_OK);
    const long total = fail_at(kind, 0, 0);
    CHECK(total >= 10);
    for (long n = 1; n <= total; n = next_of(n, total)) {
        if (path[0] != '\0' && !stored)
            remove(path);
        begin_life(kind, path);
        fail_one(kind, n, error, path, &failed);
    }
    CHECK(failed >= 5); /* some faults reach the library */
    fake_install();
    CHECK_EQ(live(path, 0), FA2_OK); /* no fault has a lasting effect */
}

int main(void)
{
    static const int driver_errors[] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE,
                                        CUDA_ERROR_NO_BINARY_FOR_GPU};

    fake_install();
    for (size_t i = 0; i < sizeof(driver_errors) / sizeof(driver_errors[0]); i++)
        fail_each(DRIVER_CALL, driver_errors[i], "", false);
    fail_each(NVRTC_CALL, NVRTC_ERROR_OUT_OF_MEMORY, "", false);
    fail_each(ALLOCATION, 0, "", false);

    tuned_begin(&database);
    fail_each(ALLOCATION, 0, database.path, false); /* compile and store */
    remove(database.path);
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    fail_each(DRIVER_CALL, CUDA_ERROR_UNKNOWN, database.path, true); /* exact */
    fail_each(ALLOCATION, 0, database.path, true);
    tuned_end(&database);
    return check_done();
}
