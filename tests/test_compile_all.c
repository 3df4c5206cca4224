/*
 * Compiling in parallel with the test's own NVRTC: every job once, equal code once, failures as results, early stops,
 * no leaks.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "check.h"
#include "fake_cuda.h"
#include "recipe_fixture.h"
#include "runtime/base/status.h"
#include "tuner/search/compile_all.h"

enum { JOBS = 100 };

static fa2i_compile_job jobs[JOBS];
static char sources[JOBS][32];

typedef struct record {
    pthread_t caller;
    int seen[JOBS];
    size_t delivered, errors;
    size_t stop_after; /* deliveries before the callback stops or fails; 0: never */
    bool fail;
    volatile sig_atomic_t stop;
} record;

static void make_jobs(void)
{
    for (int i = 0; i < JOBS; i++) {
        snprintf(sources[i], sizeof sources[i], "kernel number %d.", i);
        jobs[i] = (fa2i_compile_job){.source = sources[i], .target = {.name = "sm_86"}};
        jobs[i].variant.recipe = plain_recipe("fwd_test", 128, 64, 64, 1024);
        snprintf(jobs[i].variant.text, sizeof jobs[i].variant.text, "fwd_test n=%d", i);
    }
}

static fa2_status count_result(void *user, size_t index, const fa2i_kernel *kernel, bool found)
{
    record *r = user;
    CHECK(!found);
    CHECK(pthread_equal(pthread_self(), r->caller));
    CHECK(index < JOBS);
    if (index >= JOBS)
        return FA2_OK;
    r->seen[index]++;
    r->delivered++;
    r->errors += kernel->outcome == FA2I_OUTCOME_COMPILE_ERROR;
    CHECK_STR(kernel->variant.text, jobs[index].variant.text);
    CHECK_STR(kernel->generator, "0123456789abcdef");
    if (r->stop_after == 0 || r->delivered < r->stop_after)
        return FA2_OK;
    r->stop = 1;
    return r->fail ? fa2i_fail(FA2_E_DATABASE, "expected in this test") : FA2_OK;
}

static fa2_status compile(size_t count, int threads, record *r)
{
    r->caller = pthread_self();
    return fa2i_compile_all(jobs, count, NULL, threads, "0123456789abcdef", &r->stop, count_result, r);
}

static void test_all_once(int threads)
{
    record r = {0};
    CHECK_EQ(compile(JOBS, threads, &r), FA2_OK);
    CHECK_EQ(r.delivered, JOBS);
    for (int i = 0; i < JOBS; i++)
        CHECK_EQ(r.seen[i], 1);
    CHECK_EQ(fake_live(), 0);
}

static fa2i_compile_job shared[3 * JOBS];

static fa2_status count_shared(void *user, size_t index, const fa2i_kernel *kernel, bool found)
{
    record *r = user;
    CHECK(!found);
    const fa2i_compile_job *job = &shared[index];
    fa2i_key key;
    r->delivered++;
    r->seen[index % JOBS]++;
    CHECK_EQ(fa2i_compile_key(&job->variant, job->source, &job->target, &key), FA2_OK);
    CHECK(memcmp(&key, &kernel->key, sizeof key) == 0);
    CHECK_STR(kernel->variant.recipe.text, job->variant.recipe.text);
    CHECK_STR(kernel->target, job->target.name);
    CHECK(kernel->image.bytes > 0);
    return FA2_OK;
}

/* Equal code is compiled once, and each variant gets its kernel. */
static void test_shared_code(int threads)
{
    record r = {0};
    for (int i = 0; i < 3 * JOBS; i++) {
        shared[i] = jobs[i % JOBS];
        shared[i].variant.recipe.waves = i / JOBS;
        snprintf(shared[i].variant.recipe.text, FA2I_RECIPE_CHARS, "waves=%d", i / JOBS);
    }
    shared[JOBS].target = (fa2i_target){.name = "sm_89"};
    shared[JOBS + 1].variant.recipe.suffix[0] = 'a';
    const long before = fake.compile_count;
    CHECK_EQ(fa2i_compile_all(shared, 3 * JOBS, NULL, threads, "0123456789abcdef", NULL, count_shared, &r), FA2_OK);
    CHECK_EQ(r.delivered, 3 * JOBS);
    CHECK_EQ(fake.compile_count - before, JOBS + 2);
    for (int i = 0; i < JOBS; i++)
        CHECK_EQ(r.seen[i], 3);
    CHECK_EQ(fake_live(), 0);
}

static void test_compile_errors_are_results(void)
{
    record r = {0};
    fake.rejected = "number 7."; /* that one only */
    CHECK_EQ(compile(JOBS, 4, &r), FA2_OK);
    CHECK_EQ(r.delivered, JOBS);
    CHECK_EQ(r.errors, 1);
    fake.rejected = NULL;
    CHECK_EQ(fake_live(), 0);
}

static void test_stop(void)
{
    record before = {.stop = 1}, amid = {.stop_after = 5};
    CHECK_EQ(compile(JOBS, 4, &before), FA2_OK);
    CHECK_EQ(before.delivered, 0);
    const long compiled_before = fake.compile_count;
    CHECK_EQ(compile(JOBS, 4, &amid), FA2_OK);
    CHECK(amid.delivered >= 5 && amid.delivered < JOBS);
    /* Every compiled kernel was delivered. */
    CHECK_EQ(amid.delivered, fake.compile_count - compiled_before);
    CHECK_EQ(fake_live(), 0);
}

static void test_callback_fails(void)
{
    record r = {.stop_after = 5, .fail = true};
    CHECK_EQ(compile(JOBS, 4, &r), FA2_E_DATABASE);
    CHECK_STR(fa2_last_message(), "expected in this test");
    CHECK_EQ(r.delivered, 5);
    CHECK_EQ(fake_live(), 0);
}

static void run_out_of_memory(fake_compilation *compilation, void *user)
{
    (void)user;
    if (strstr(compilation->source, "number 50.") != NULL)
        compilation->result = NVRTC_ERROR_OUT_OF_MEMORY;
}

/* A failure that is no compile error ends everything. Its message reaches this thread. */
static void test_compiler_fails(void)
{
    record r = {0};
    fake.on_compile = run_out_of_memory;
    fa2i_fail(FA2_E_INVALID, "an older message");
    CHECK_EQ(compile(JOBS, 4, &r), FA2_E_MEMORY);
    CHECK_CONTAINS(fa2_last_message(), "NVRTC_ERROR_OUT_OF_MEMORY");
    CHECK(r.delivered < JOBS);
    fake.on_compile = NULL;
    CHECK_EQ(fake_live(), 0);
}

/* ---- several processes with one database ---- */

typedef struct sharer {
    fa2i_cache *cache;
    size_t compiled, found;
    pthread_t thread;
} sharer;

static fa2_status store(void *user, size_t index, const fa2i_kernel *kernel, bool found)
{
    sharer *s = user;
    CHECK_STR(kernel->variant.text, jobs[index].variant.text);
    CHECK(kernel->image.bytes > 0);
    s->compiled += !found;
    s->found += found;
    return found ? FA2_OK : fa2i_cache_put_kernel(s->cache, kernel);
}

static void *share(void *user)
{
    sharer *s = user;
    CHECK_EQ(fa2i_compile_all(jobs, JOBS, s->cache, 3, "0123456789abcdef", NULL, store, s), FA2_OK);
    return NULL;
}

static void take_a_while(fake_compilation *compilation, void *user)
{
    const struct timespec while_ = {0, 2000000};
    (void)compilation, (void)user;
    nanosleep(&while_, NULL);
}

/* Each job is compiled by one of them, and all get the result. */
static void test_shared_work(void)
{
    enum { SHARERS = 3 };
    char folder[] = "/tmp/fa2_test_compile_XXXXXX", path[64];
    sharer sharers[SHARERS] = {0};
    size_t compiled = 0;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/fa2.db", folder);
    fake.on_compile = take_a_while;
    const long before = fake.compile_count;
    for (int i = 0; i < SHARERS; i++)
        CHECK_EQ(fa2i_cache_open(path, FA2I_CACHE_WRITE, NULL, NULL, &sharers[i].cache), FA2_OK);
    for (int i = 0; i < SHARERS; i++)
        CHECK_EQ(pthread_create(&sharers[i].thread, NULL, share, &sharers[i]), 0);
    for (int i = 0; i < SHARERS; i++) {
        CHECK_EQ(pthread_join(sharers[i].thread, NULL), 0);
        CHECK_EQ(sharers[i].compiled + sharers[i].found, JOBS);
        compiled += sharers[i].compiled;
    }
    CHECK_EQ(compiled, JOBS);
    CHECK_EQ(fake.compile_count - before, JOBS);
    for (int i = 0; i < SHARERS; i++)
        fa2i_cache_close(sharers[i].cache);
    fake.on_compile = NULL;
    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(rmdir(folder), 0); /* no file of claims is left */
    CHECK_EQ(fake_live(), 0);
}

static void test_nothing_to_do(void)
{
    record r = {0};
    CHECK_EQ(compile(0, 4, &r), FA2_OK);
    CHECK_EQ(r.delivered, 0);
}

int main(void)
{
    fake_install();
    make_jobs();
    test_all_once(1);
    test_all_once(4);
    test_all_once(0);
    test_all_once(1000);
    test_shared_code(1);
    test_shared_code(4);
    test_compile_errors_are_results();
    test_stop();
    test_callback_fails();
    test_compiler_fails();
    test_shared_work();
    test_nothing_to_do();
    fake_uninstall();
    return check_done();
}
