/*
 * The size limit of a database. It holds while several processes store kernels. The least recently used code is dropped
 * first. Winners' code and measurements stay.
 * The processes run this program with arguments: PATH FIRST COUNT.
 */
#include <sys/wait.h>
#include "cache/content/size_limit.h"
#include "cache/content/notes.h"
#include "cache/content/report.h"
#include "cache_fixture.h"

enum {
    LIMIT_BYTES = 3 << 20,
    CODE_BYTES = 100000, /* of a kernel; 30 kernels fit */
    WRITERS = 3,
    KERNELS = 40 /* of each writer */
};

static const char *program;

/* Stores a kernel with different code for each number. */
static void put(fa2i_cache *cache, int number)
{
    static char code[CODE_BYTES];
    fa2i_kernel kernel = sample_kernel(number);
    memcpy(code, &number, sizeof number);
    kernel.image = (fa2i_blob){code, sizeof code};
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
}

static void win(fa2i_cache *cache, const ids *to, int number)
{
    const fa2i_winner won = {
        .kernel = sample_key(number), .measured = true, .median_us = 10, .default_us = 20, .model_us = 5};
    put(cache, number);
    CHECK_EQ(fa2i_cache_put_winner(cache, to->session, to->device, to->problem, &won), FA2_OK);
}

static int64_t file_bytes(const char *path)
{
    struct stat info = {0};
    CHECK_EQ(stat(path, &info), 0);
    return info.st_size;
}

static fa2i_cache *open_limited(const char *path)
{
    fa2i_cache *cache = fixture_open(path);
    CHECK_EQ(fa2i_cache_set_limit(cache, LIMIT_BYTES), FA2_OK);
    return cache;
}

static int run_writer(const char *path, int first, int count)
{
    fa2i_cache *cache = fixture_open(path);
    for (int i = first; i < first + count && check_failures == 0; i++) {
        put(cache, i);
        CHECK(file_bytes(path) <= LIMIT_BYTES);
    }
    fa2i_cache_close(cache);
    return check_failures > 0;
}

static pid_t start_writer(const char *path, int first)
{
    char from[16], count[16];
    snprintf(from, sizeof from, "%d", first);
    snprintf(count, sizeof count, "%d", KERNELS);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        execl(program, program, path, from, count, (char *)NULL);
        _exit(127);
    }
    return child;
}

/* Four times as much code as fits, by several processes. */
static void test_processes(fixture *f)
{
    pid_t writers[WRITERS];
    fa2i_cache *cache = open_limited(f->path);
    const ids first = sample_ids(cache, 512), second = sample_ids(cache, 1024);
    store_result(cache, &first, 1, 100, false); /* a measurement; its code may be dropped */
    win(cache, &first, 2);
    win(cache, &second, 3);
    for (int i = 0; i < WRITERS; i++)
        writers[i] = start_writer(f->path, 1000 * (i + 1));
    for (int i = 0; i < WRITERS; i++) {
        int status = -1;
        CHECK_EQ(waitpid(writers[i], &status, 0), writers[i]);
        CHECK_EQ(status, 0);
    }
    CHECK(file_bytes(f->path) <= LIMIT_BYTES);
    CHECK_EQ(fixture_number(cache, "SELECT count(*) FROM kernel"), 3 + WRITERS * KERNELS);
    CHECK_EQ(fixture_number(cache, "SELECT count(*) FROM winner JOIN image USING (kernel)"), 2);
    CHECK_EQ(fixture_number(cache, "SELECT count(*) FROM measurement"), 1);
    const int64_t images = fixture_number(cache, "SELECT count(*) FROM image");
    CHECK(images >= 20 && images <= 30); /* as many as fit, minus the room that is made in advance */
    CHECK_EQ(fixture_number(cache, "SELECT count(*) FROM code"), images);
    for (int i = 0; i < WRITERS; i++) { /* the last stored code exists */
        fa2i_kernel kernel = {0};
        const fa2i_key key = sample_key(1000 * (i + 1) + KERNELS - 1);
        if (fa2i_cache_get_kernel(cache, &key, ABI, true, &kernel) == FA2_OK)
            CHECK_EQ(kernel.image.bytes, CODE_BYTES);
        fa2i_kernel_done(&kernel);
    }
    fa2i_cache_close(cache);
}

/* The least recently used code is dropped first, in any order of storing. An answer is dropped with its code. */
static void test_order(fixture *f)
{
    fa2i_cache *cache = open_limited(f->path);
    for (int i = 1; i <= 20; i++)
        put(cache, i);
    CHECK_EQ(fa2i_sql_script(cache, "UPDATE image SET used = 20000"), FA2_OK);
    const fa2i_key used[] = {sample_key(1), sample_key(7)};
    CHECK_EQ(fa2i_cache_put_notes(cache, NULL, 0, used, 2), FA2_OK);
    for (int i = 21; i <= 40; i++)
        put(cache, i);
    for (int i = 1; i <= 40; i++) {
        const fa2i_key key = sample_key(i);
        fa2i_kernel kernel = {0};
        const fa2_status st = fa2i_cache_get_kernel(cache, &key, ABI, true, &kernel);
        if (i == 1 || i == 7 || i > 20)
            CHECK_EQ(st, FA2_OK);
        if (i > 1 && i < 7)
            CHECK_EQ(st, FA2_E_NOT_FOUND);
        if (st == FA2_OK)
            CHECK_EQ(kernel.used_day, i == 1 || i == 7 || i > 20 ? fa2i_cache_today() : 20000);
        fa2i_kernel_done(&kernel);
    }
    fa2i_cache_close(cache);
}

/* A file above the limit, set by another limit or an older fa2, loses code. gc frees the pages. */
static void test_large_file(fixture *f)
{
    fa2i_cache_cleanup cleanup = {0};
    fa2i_cache *cache = fixture_open(f->path);
    const ids to = sample_ids(cache, 512);
    win(cache, &to, 1);
    for (int i = 2; i <= 60; i++)
        put(cache, i);
    const int64_t before = file_bytes(f->path);
    CHECK(before > 5000000);
    CHECK_EQ(fa2i_cache_set_limit(cache, LIMIT_BYTES), FA2_OK);
    put(cache, 61);
    CHECK_EQ(file_bytes(f->path), before);
    CHECK(fixture_number(cache, "SELECT count(*) FROM image") <= 30);
    CHECK_EQ(fa2i_cache_gc(cache, -1, &cleanup), FA2_OK);
    CHECK(file_bytes(f->path) <= LIMIT_BYTES);
    CHECK_EQ(fixture_number(cache, "SELECT count(*) FROM winner JOIN image USING (kernel)"), 1);
    /* an invalid limit has no effect */
    CHECK_EQ(fa2i_sql_script(cache, "UPDATE setting SET value = -5"), FA2_OK);
    int64_t limit = 0;
    CHECK_EQ(fa2i_sql_begin(cache, FA2I_CACHE_READ), FA2_OK);
    CHECK_EQ(fa2i_size_limit_get(cache, &limit), FA2_OK);
    CHECK_EQ(fa2i_sql_end(cache, FA2_OK), FA2_OK);
    CHECK_EQ(limit, FA2I_FILE_BYTES);
    CHECK_EQ(FA2I_FILE_BYTES, 256 << 20);
    fa2i_cache_close(cache);
}

/* The winners alone exceed the limit: they stay, and so does the last stored code. */
static void test_winners_only(fixture *f)
{
    fa2i_cache *cache = open_limited(f->path);
    for (int i = 1; i <= 40; i++) {
        const ids to = sample_ids(cache, 64 * i);
        win(cache, &to, i);
    }
    put(cache, 41);
    put(cache, 42);
    CHECK_EQ(fixture_number(cache, "SELECT count(*) FROM winner JOIN image USING (kernel)"), 40);
    CHECK_EQ(fixture_number(cache, "SELECT count(*) FROM image"), 41);
    fa2i_cache_close(cache);
}

int main(int argc, char **argv)
{
    static void (*const tests[])(fixture *) = {test_processes, test_order, test_large_file, test_winners_only};
    program = argv[0];
    if (argc == 4)
        return run_writer(argv[1], atoi(argv[2]), atoi(argv[3]));
    fixture_each(tests, sizeof tests / sizeof tests[0]);
    return check_done();
}
