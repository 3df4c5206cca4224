/* What gc makes of a damaged database. */
#include "cache/internal.h"
#include "cache_fixture.h"
#include "damage.h"
#include "cache/database/trial.h"
#include "runtime/base/clock.h"

/* Names the damage if a check failed since there were so many failures. */
static void say_after(int failures, const char *damage)
{
    if (check_failures > failures)
        fprintf(stderr, "... after: %s\n", damage);
}

/* ---- damaged rows ---- */

/* Opens a new database with a loser and a winner, and damages it by a statement. */
static fa2i_cache *open_damaged(fixture *ret_fixture, const char *damage)
{
    fixture_begin(ret_fixture);
    fa2i_cache *cache = fixture_open(ret_fixture->path);
    const ids to = sample_ids(cache, 512);
    store_result(cache, &to, 1, 100, false);
    store_result(cache, &to, 2, 50, true);
    CHECK_EQ(fa2i_sql_script(cache, "PRAGMA foreign_keys = OFF"), FA2_OK);
    CHECK_EQ(fa2i_sql_script(cache, damage), FA2_OK);
    CHECK_EQ(fa2i_sql_script(cache, "PRAGMA foreign_keys = ON"), FA2_OK);
    return cache;
}

/* Checks check's finding and gc's result, which is valid except for lost code. */
typedef enum left { GONE, WITHOUT_CODE, MENDED } left;

static void check_mended(const char *damage, fa2i_cache_health expected, const char *sentence, left winner)
{
    fixture f;
    fa2i_cache_health health = {0};
    fa2i_cache_cleanup cleanup = {0};
    fa2i_cache *cache = open_damaged(&f, damage);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK_EQ(health.damaged_images, expected.damaged_images);
    CHECK_EQ(health.misfits, expected.misfits);
    CHECK_EQ(health.dangling, expected.dangling);
    CHECK_EQ(health.without_code, expected.without_code);
    CHECK_CONTAINS(health.first_problem, sentence);
    CHECK_CONTAINS(health.first_problem, "fa2-tune gc");
    CHECK_EQ(fa2i_cache_gc(cache, 0, &cleanup), FA2_OK);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK(health.intact);
    CHECK_EQ(health.damaged_images + health.misfits + health.dangling, 0);
    CHECK_EQ(health.winners == 1, winner != GONE);
    CHECK_EQ(health.without_code == 1, winner == WITHOUT_CODE);
    CHECK_EQ(health.first_problem[0] != '\0', winner == WITHOUT_CODE);
    CHECK_EQ(cleanup.mended > 0, winner == MENDED);
    fa2i_cache_close(cache);
    fixture_end(&f);
}

/* gc must lose no row. */
static void check_kept(const char *damage)
{
    fixture f;
    fa2i_cache_health health = {0};
    fa2i_cache_cleanup cleanup = {0};
    fa2i_cache *cache = open_damaged(&f, damage);
    CHECK_EQ(fa2i_cache_gc(cache, -1, &cleanup), FA2_OK);
    CHECK(cleanup.mended > 0);
    CHECK_EQ(cleanup.winners + cleanup.rows + cleanup.images, 0);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK_STR(health.first_problem, "");
    CHECK_EQ(health.kernels, 2);
    CHECK_EQ(health.images, 2);
    CHECK_EQ(health.measurements, 2);
    CHECK_EQ(health.winners, 1);
    CHECK_EQ(fixture_number(cache, "SELECT count(*) FROM verification"), 2);
    fa2i_cache_close(cache);
    fixture_end(&f);
}

static void test_mending(void)
{
    check_mended("DELETE FROM image", (fa2i_cache_health){.without_code = 1}, "winners without code: 1; ",
                 WITHOUT_CODE);
    check_mended("UPDATE code SET data = x'00'", (fa2i_cache_health){.damaged_images = 2, .without_code = 1},
                 "code is damaged: 2", WITHOUT_CODE);
    check_mended("DELETE FROM code", (fa2i_cache_health){.damaged_images = 2, .dangling = 2, .without_code = 1},
                 "code is damaged: 2", WITHOUT_CODE);
    check_mended("DELETE FROM problem", (fa2i_cache_health){.dangling = 3}, "not there: 3", GONE);
    check_mended("DELETE FROM session", (fa2i_cache_health){.dangling = 3}, "not there: 3", GONE);
    check_mended("DELETE FROM device", (fa2i_cache_health){.dangling = 6}, "not there: 6", GONE);
    check_mended("DELETE FROM kernel", (fa2i_cache_health){.dangling = 7, .without_code = 0}, "not there: 7", GONE);
    /* a winner with another class: the problem's, the kernel's (which a hash protects) */
    check_mended("UPDATE problem SET causal = 0, class = 'D=64 dtype=fp16 causal=0'", (fa2i_cache_health){.misfits = 3},
                 "not its own", GONE);
    check_mended("UPDATE problem SET causal = 0", (fa2i_cache_health){.misfits = 4}, "not its own", GONE);
    check_mended("UPDATE problem SET dtype = 'fp17'", (fa2i_cache_health){.misfits = 4},
                 "(problem: dtype is none of its values)", GONE);
    check_mended("UPDATE problem SET heads_q = 7", (fa2i_cache_health){.misfits = 4},
                 "(problem: heads_q is 7; it must be a multiple of heads_kv (4))", GONE);
    check_mended("UPDATE kernel SET class = 'D=64 dtype=fp16 causal=0'",
                 (fa2i_cache_health){.misfits = 3, .damaged_images = 2, .without_code = 1}, "code is damaged: 2",
                 MENDED);
}

/* A wrong value in a row that decides nothing does not delete the rows that refer to it. */
static void test_told_values(void)
{
    static const char *const damages[] = {"UPDATE device SET clock_khz = -1",
                                          "UPDATE device SET bandwidth_bytes = 1 << 62",
                                          "UPDATE device SET arch = 87",
                                          "UPDATE device SET arch = 5000",
                                          "UPDATE device SET name = char(27)",
                                          "UPDATE device SET sm_count = 0",
                                          "UPDATE session SET generator = ''",
                                          "UPDATE session SET started_at = 'then'",
                                          "UPDATE session SET device = 7",
                                          "UPDATE kernel SET outcome = 'oj'",
                                          "UPDATE kernel SET registers = -1",
                                          "UPDATE problem SET gflop = -1",
                                          "UPDATE problem SET class = 'D=64 dtype=fp16 causal=0'",
                                          "UPDATE kernel SET variant = replace(variant, 'causal=1', 'causal=0')",
                                          "UPDATE kernel SET target = 'sm_84' WHERE id = 2",
                                          "UPDATE image SET used = -1",
                                          "UPDATE problem SET id = 33",
                                          "UPDATE device SET id = 3",
                                          "UPDATE session SET id = 65",
                                          "UPDATE kernel SET id = 18 WHERE id = 2",
                                          "UPDATE code SET hash = zeroblob(32) WHERE id = 2",
                                          "UPDATE winner SET tuned_at = ''",
                                          "UPDATE measurement SET q3_us = -1",
                                          "UPDATE verification SET outcome = 'ol'"};
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const int failures = check_failures;
        check_kept(damages[i]);
        say_after(failures, damages[i]);
    }
}

/* ---- a damaged file ---- */

/* Fills a database, and returns its export. free() it. */
static char *fill_for_repair(const char *path)
{
    fa2i_cache *cache = fixture_open(path);
    const ids first = sample_ids(cache, 512), second = sample_ids(cache, 1024);
    store_result(cache, &first, 1, 100, true);
    store_result(cache, &second, 2, 50, true);
    char *text = exported(cache, NULL);
    fa2i_cache_close(cache);
    return text;
}

static void keep_line(void *user, const char *line)
{
    snprintf(user, FA2I_MESSAGE_BYTES, "%s", line);
}

/* gc makes the file anew, and loses nothing of what was exported before. said: the log's last line. */
static fa2i_cache_cleanup check_repaired(const char *path, const char *before, char said[FA2I_MESSAGE_BYTES])
{
    fa2i_cache *cache = NULL;
    fa2i_cache_health health = {0};
    fa2i_cache_cleanup cleanup = {0};
    CHECK_EQ(fa2i_cache_open(path, FA2I_CACHE_REPAIR, keep_line, said, &cache), FA2_OK);
    CHECK_EQ(fa2i_cache_gc(cache, -1, &cleanup), FA2_OK);
    CHECK(cleanup.remade != NULL);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK_STR(health.first_problem, "");
    char *after = exported(cache, NULL);
    CHECK_STR(after, before);
    fa2i_cache_close(cache);
    free(after);
    return cleanup;
}

/* What gc makes of a row of `problem` whose fields are in the index, too: it is as before. */
static void test_problem_by_index(void)
{
    static const char *const damages[] = {
        "UPDATE problem SET causal = 0 WHERE id = 1",
        "UPDATE problem SET dtype = 'fp17' WHERE id = 1",
        "UPDATE problem SET batch = -126 WHERE id = 2",
        "UPDATE problem SET seq_q = seq_q + 1, seq_k = seq_k + 1 WHERE id = 2",
        "UPDATE problem SET heads_q = 7, gflop = 3 WHERE id = 2",
        "UPDATE problem SET class = 'D=64 dtype=fp16 causal=0', causal = 0 WHERE id = 1",
        "DELETE FROM problem WHERE id = 1",
    };
    fixture f;
    char said[FA2I_MESSAGE_BYTES] = "";
    fixture_begin(&f);
    char *before = fill_for_repair(f.path);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const int failures = check_failures;
        damage_problem_row(f.path, damages[i]);
        const fa2i_cache_cleanup cleanup = check_repaired(f.path, before, said);
        CHECK_EQ(cleanup.mended, 1);
        CHECK_EQ(cleanup.rows, 0);
        say_after(failures, damages[i]);
    }
    free(before);
    fixture_end(&f);
}

/* The file loses these last bytes, which no winner needs: the winners are as before. */
static void check_cut(const char *path, const char *before, size_t lost)
{
    enum { PAGE_BYTES = 4096 };
    char said[FA2I_MESSAGE_BYTES] = "", expected[80];
    struct stat info;
    CHECK_EQ(stat(path, &info), 0);
    CHECK_EQ(truncate(path, info.st_size - (off_t)lost), 0);
    const size_t rest = (size_t)(info.st_size - (off_t)lost) % PAGE_BYTES;
    check_repaired(path, before, said);
    snprintf(expected, sizeof expected, "its last page is not whole; its %zu byte%s ignored", rest,
             rest == 1 ? " is" : "s are");
    CHECK((strstr(said, expected) != NULL) == (rest > 0));
}

static void test_cut(void)
{
    static const size_t lost[] = {4096, 4097, 8191, 10000, 50001};
    fixture f;
    char whole[128], damaged[80];
    fixture_begin(&f);
    char *before = fill_for_repair(f.path);
    CHECK(damage(f.path, "INSERT INTO code (hash, data) VALUES (zeroblob(32), zeroblob(100000))"));
    snprintf(whole, sizeof whole, "%s.whole", f.path);
    copy_file(f.path, whole);
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        const int failures = check_failures;
        copy_file(whole, f.path);
        check_cut(f.path, before, lost[i]);
        snprintf(damaged, sizeof damaged, "a cut of %zu bytes", lost[i]);
        say_after(failures, damaged);
    }
    remove(whole);
    free(before);
    fixture_end(&f);
}

/* ---- mending that is stopped ---- */

enum { SPOILED_MOST = 1 << 21, SPOILED_PAGE = 4096 };

/* Reads the file, to compare it. Returns its size. */
static size_t read_file(const char *path, unsigned char *bytes)
{
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    const size_t count = fread(bytes, 1, SPOILED_MOST, file);
    fclose(file);
    return count;
}

/* Makes a database of many pages, and every third of its pages from the fourth one on is noise. */
static void make_spoiled(const char *path)
{
    static char log[20000];
    static unsigned char bytes[SPOILED_MOST];
    uint32_t noise = 1;
    fa2i_cache *cache = fixture_open(path);
    memset(log, 'x', sizeof log - 1);
    for (int i = 1; i < 60; i++) {
        fa2i_kernel kernel = sample_kernel(i);
        kernel.log = log;
        CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
    }
    fa2i_cache_close(cache);
    const size_t count = read_file(path, bytes);
    CHECK(count > 100 * SPOILED_PAGE && count < SPOILED_MOST);
    for (size_t i = 3 * SPOILED_PAGE; i < count; i++) {
        noise = noise * 1664525 + 1013904223;
        if (i / SPOILED_PAGE % 3 == 0)
            bytes[i] = (unsigned char)(noise >> 24);
    }
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fwrite(bytes, 1, count, file) == count);
    fclose(file);
}

/* Stops the work when the log is told this. */
typedef struct listener {
    volatile sig_atomic_t stop;
    const char *until;
} listener;

static void listen(void *user, const char *message)
{
    listener *l = user;
    if (strstr(message, l->until) != NULL)
        l->stop = 1;
}

/* The log says from the first second on what is done. A stopped gc ends at once, and leaves the file as it is. */
static void test_stopped(void)
{
    static const char *const lines[] = {"is damaged (", "looking for a wrong bit in the table "};
    static unsigned char before[SPOILED_MOST], after[SPOILED_MOST];
    fixture f;
    fixture_begin(&f);
    make_spoiled(f.path);
    const size_t bytes = read_file(f.path, before);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        fa2i_cache *cache = NULL;
        listener l = {.until = lines[i]};
        const double started = fa2i_clock_thread_s();
        CHECK_EQ(fa2i_cache_open_to_mend(f.path, &l.stop, listen, &l, &cache), FA2_E_DATABASE);
        CHECK(fa2i_clock_thread_s() - started < FA2I_TRIAL_SECONDS / 2);
        CHECK_EQ(l.stop, 1);
        CHECK(cache == NULL);
        CHECK_CONTAINS(fa2_last_message(), "interrupted; nothing is left half done");
        CHECK_EQ(read_file(f.path, after), bytes);
        CHECK(memcmp(before, after, bytes) == 0);
    }
    fixture_end(&f);
}

int main(void)
{
    test_mending();
    test_told_values();
    test_problem_by_index();
    test_cut();
    test_stopped();
    return check_done();
}
