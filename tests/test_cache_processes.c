/*
 * The database under stress: several processes and threads, a killed writer, a full disk. The processes run this
 * program with arguments: writer PATH FIRST COUNT; torn PATH.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "cache/content/claims.h"
#include "cache/internal.h"
#include "cache_fixture.h"

static const char *program;

/* ---- the other processes ---- */

/* Opens, and waits for another writer without a limit. */
static fa2_status open_patiently(const char *path, fa2i_cache **ret_cache)
{
    fa2_status st;
    do
        st = fa2i_cache_open(path, FA2I_CACHE_WRITE, NULL, NULL, ret_cache);
    while (st == FA2_E_DATABASE && strstr(fa2_last_message(), "another process has been writing") != NULL);
    if (st == FA2_OK)
        st = fa2i_sql_script(*ret_cache, "PRAGMA busy_timeout = 3600000");
    return st;
}

/* Reports each result by a byte on standard output. */
static int run_writer(const char *path, int first, int count)
{
    fa2i_cache *cache = NULL;
    if (open_patiently(path, &cache) != FA2_OK) {
        fprintf(stderr, "%s\n", fa2_last_message());
        return 1;
    }
    const ids to = sample_ids(cache, 512);
    for (int i = first; i < first + count && check_failures == 0; i++) {
        store_result(cache, &to, i, 10 + i, i == first);
        CHECK_EQ(write(STDOUT_FILENO, ".", 1), 1);
    }
    fa2i_cache_close(cache);
    if (check_failures > 0)
        fprintf(stderr, "%s\n", fa2_last_message());
    return check_failures > 0;
}

/* Dies in a transaction that has reached the file. */
static int run_torn(const char *path)
{
    fa2i_cache *cache = fixture_open(path);
    CHECK_EQ(fa2i_sql_script(cache, "PRAGMA cache_size = 1"), FA2_OK);
    CHECK_EQ(fa2i_sql_begin(cache, FA2I_CACHE_WRITE), FA2_OK);
    CHECK_EQ(fa2i_sql_script(cache, "DELETE FROM image; UPDATE kernel SET log = zeroblob(1)"
                                    " || hex(randomblob(200000))"),
             FA2_OK);
    raise(SIGKILL);
    return 1;
}

/* Claims this work, creates a file to show it, and stays. */
static _Noreturn void run_claimant(const char *path, int work)
{
    fa2i_cache *cache = fixture_open(path);
    const fa2i_key key = sample_key(work);
    char said[128];
    snprintf(said, sizeof said, "%s-said", path);
    FILE *file = fa2i_cache_claim(cache, &key) ? fopen(said, "w") : NULL;
    if (file != NULL)
        fclose(file);
    for (;;)
        pause();
}

static pid_t start(const char *what, const char *path, int first, int count)
{
    char first_text[16], count_text[16];
    snprintf(first_text, sizeof first_text, "%d", first);
    snprintf(count_text, sizeof count_text, "%d", count);
    const pid_t child = fork();
    if (child == 0) {
        execl(program, program, what, path, first_text, count_text, (char *)NULL);
        _exit(126);
    }
    CHECK(child > 0);
    return child;
}

/* The same, with its output in a pipe. */
static pid_t start_heard(const char *what, const char *path, int first, int count, int *ret_from)
{
    int ends[2], out = dup(STDOUT_FILENO);
    CHECK_EQ(pipe(ends), 0);
    CHECK(dup2(ends[1], STDOUT_FILENO) >= 0);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    const pid_t child = start(what, path, first, count);
    CHECK(dup2(out, STDOUT_FILENO) >= 0);
    close(out);
    close(ends[1]);
    *ret_from = ends[0];
    return child;
}

static int wait_for(pid_t child)
{
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    return status;
}

/* ---- tests ---- */

static fa2i_cache_health healthy(const char *path)
{
    fa2i_cache_health health = {0};
    fa2i_cache *cache = fixture_open(path);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK(health.intact);
    CHECK_EQ(health.damaged_images, 0);
    CHECK_EQ(health.dangling, 0);
    CHECK_STR(health.first_problem, "");
    fa2i_cache_close(cache);
    return health;
}

/* Two processes create the file and write to it at the same time. Nothing is lost. */
static void test_two_writers(fixture *f)
{
    enum { EACH = 30 };
    const pid_t one = start("writer", f->path, 0, EACH);
    const pid_t two = start("writer", f->path, EACH, EACH);
    CHECK_EQ(wait_for(one), 0);
    CHECK_EQ(wait_for(two), 0);
    const fa2i_cache_health health = healthy(f->path);
    CHECK_EQ(health.kernels, 2 * EACH);
    CHECK_EQ(health.images, 2 * EACH);
    CHECK_EQ(health.measurements, 2 * EACH);
    CHECK_EQ(health.winners, 1);
}

/* A killed writer leaves all that it had stored, and no partial record. */
static void test_killed_writer(fixture *f)
{
    size_t kernels = 0;
    for (int round = 0; round < 5; round++) {
        int from = -1;
        char byte;
        const pid_t child = start_heard("writer", f->path, 1000 * round, 1000, &from);
        for (int stored = 0; stored < 1 + 7 * round; stored++)
            CHECK_EQ(read(from, &byte, 1), 1);
        nanosleep(&(struct timespec){.tv_nsec = 1000000L * round}, NULL); /* anywhere in the next records */
        CHECK_EQ(kill(child, SIGKILL), 0);
        close(from);
        CHECK(WIFSIGNALED(wait_for(child)));
        const fa2i_cache_health health = healthy(f->path);
        CHECK(health.kernels > kernels + 7 * (size_t)round);
        CHECK_EQ(health.images, health.kernels); /* each record is complete or missing */
        kernels = health.kernels;
    }
}

/* When a process is killed, others can claim its work. The file of claims is removed with the last claim. */
static void test_claims(fixture *f)
{
    const struct timespec moment = {0, 10000000};
    const fa2i_key work = sample_key(1), other = sample_key(2);
    char said[128], file[128];
    snprintf(said, sizeof said, "%s-said", f->path);
    snprintf(file, sizeof file, "%s-claims", f->path);
    fa2i_cache *cache = fixture_open(f->path), *second = fixture_open(f->path);
    const pid_t child = start("claimant", f->path, 1, 0);
    while (access(said, F_OK) != 0 && waitpid(child, NULL, WNOHANG) == 0)
        nanosleep(&moment, NULL);
    CHECK_EQ(unlink(said), 0);
    CHECK(!fa2i_cache_claim(cache, &work));
    CHECK(fa2i_cache_claim(cache, &other));
    CHECK(fa2i_cache_claim(cache, &other)); /* it already has this claim */
    CHECK(!fa2i_cache_claim(second, &other));
    fa2i_cache_unclaim(cache, &other);
    CHECK(fa2i_cache_claim(second, &other));
    CHECK_EQ(kill(child, SIGKILL), 0);
    CHECK(WIFSIGNALED(wait_for(child)));
    CHECK(fa2i_cache_claim(cache, &work));
    CHECK(!fa2i_cache_claim(second, &work));
    fa2i_cache_close(cache);
    CHECK_EQ(access(file, F_OK), 0);
    CHECK(fa2i_cache_claim(second, &work));
    fa2i_cache_close(second);
    CHECK(access(file, F_OK) != 0);
}

/* If the file cannot be created, every process gets every claim. */
static void test_claims_without_file(fixture *f)
{
    const fa2i_key work = sample_key(1);
    char file[128];
    snprintf(file, sizeof file, "%s-claims", f->path);
    fa2i_cache *cache = fixture_open(f->path), *second = fixture_open(f->path);
    CHECK_EQ(symlink("/nonexistent/file", file), 0);
    CHECK(fa2i_cache_claim(cache, &work));
    CHECK(fa2i_cache_claim(second, &work));
    fa2i_cache_close(cache);
    fa2i_cache_close(second);
    CHECK_EQ(unlink(file), 0);
}

/* A writer rolls back an interrupted transaction by its journal. A reader says that a writer is needed. */
static void test_torn_transaction(fixture *f)
{
    fa2i_cache *cache = NULL;
    fa2i_kernel found = {0};
    const fa2i_key key = sample_key(7);
    CHECK_EQ(wait_for(start("writer", f->path, 0, 20)), 0);
    CHECK(WIFSIGNALED(wait_for(start("torn", f->path, 0, 0))));
    check_refused(f->path, FA2I_CACHE_READ, FA2_E_DATABASE, "fa2-tune check");
    CHECK_EQ(healthy(f->path).images, 20);
    CHECK_EQ(fa2i_cache_open(f->path, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_OK);
    CHECK_EQ(fa2i_cache_get_kernel(cache, &key, ABI, true, &found), FA2_OK);
    CHECK(found.log == NULL);
    fa2i_kernel_done(&found);
    fa2i_cache_close(cache);
}

/* A full disk, simulated by a limit on the file's pages: the error says so, and nothing is lost. */
static void test_full_disk(fixture *f)
{
    fa2i_cache *cache = fixture_open(f->path);
    const fa2i_kernel first = sample_kernel(0);
    fa2i_kernel found = {0};
    fa2_status st = FA2_OK;
    int stored = 0;
    CHECK_EQ(fa2i_sql_script(cache, "PRAGMA max_page_count = 60"), FA2_OK);
    while (st == FA2_OK && stored < 100) {
        const fa2i_kernel kernel = sample_kernel(stored);
        st = fa2i_cache_put_kernel(cache, &kernel);
        stored += st == FA2_OK;
    }
    CHECK_EQ(st, FA2_E_DATABASE);
    CHECK_CONTAINS(fa2_last_message(), "full");
    CHECK_CONTAINS(fa2_last_message(), "free some space");
    CHECK(stored > 5 && stored < 100);
    CHECK_EQ(fa2i_cache_get_kernel(cache, &first.key, ABI, true, &found), FA2_OK);
    fa2i_kernel_done(&found);
    fa2i_cache_close(cache);
    const fa2i_cache_health health = healthy(f->path);
    CHECK_EQ(health.kernels, stored);
    CHECK_EQ(health.images, stored);
}

/* SQLite itself has no memory: an error, and the database stays usable. */
static void test_sqlite_memory(fixture *f)
{
    fa2i_cache *cache = fixture_open(f->path);
    fa2i_kernel kernel = sample_kernel(1);
    static char large[4000000];
    kernel.image = (fa2i_blob){large, sizeof large};
    sqlite3_hard_heap_limit64(sqlite3_memory_used() + 100000);
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_E_MEMORY);
    CHECK_CONTAINS(fa2_last_message(), "out of memory");
    sqlite3_hard_heap_limit64(0);
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
    fa2i_cache_close(cache);
    CHECK_EQ(healthy(f->path).images, 1);
}

/* ---- threads on one cache ---- */

typedef struct worker {
    fa2i_cache *cache;
    int first;
    int failures;
} worker;

static void *work(void *user)
{
    worker *w = user;
    for (int i = w->first; i < w->first + 10; i++) {
        const fa2i_kernel kernel = sample_kernel(i);
        fa2i_kernel found = {0};
        w->failures += fa2i_cache_put_kernel(w->cache, &kernel) != FA2_OK;
        w->failures += fa2i_cache_get_kernel(w->cache, &kernel.key, ABI, true, &found) != FA2_OK;
        w->failures += memcmp(&found.key, &kernel.key, sizeof kernel.key) != 0;
        fa2i_kernel_done(&found);
    }
    return NULL;
}

static void test_threads(fixture *f)
{
    fa2i_cache *cache = fixture_open(f->path);
    pthread_t threads[4];
    worker workers[4];
    for (int i = 0; i < 4; i++) {
        workers[i] = (worker){cache, 100 * i, 0};
        CHECK_EQ(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
        CHECK_EQ(workers[i].failures, 0);
    }
    fa2i_cache_close(cache);
    CHECK_EQ(healthy(f->path).images, 40);
}

int main(int argc, char **argv)
{
    static void (*const tests[])(fixture *) = {test_two_writers, test_killed_writer,      test_torn_transaction,
                                               test_full_disk,   test_sqlite_memory,      test_threads,
                                               test_claims,      test_claims_without_file};
    program = argv[0];
    if (argc == 5 && strcmp(argv[1], "writer") == 0)
        return run_writer(argv[2], (int)strtol(argv[3], NULL, 10), (int)strtol(argv[4], NULL, 10));
    if (argc == 5 && strcmp(argv[1], "torn") == 0)
        return run_torn(argv[2]);
    if (argc == 5 && strcmp(argv[1], "claimant") == 0)
        run_claimant(argv[2], (int)strtol(argv[3], NULL, 10));
    fixture_each(tests, sizeof tests / sizeof tests[0]);
    return check_done();
}
