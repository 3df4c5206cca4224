/* The code of kernels in the database: damage is found and reported, equal code is shared. */
#include "cache/internal.h"
#include "cache_fixture.h"

typedef struct log_lines {
    int count;
    char last[512];
} log_lines;

static void count_line(void *user, const char *message)
{
    log_lines *lines = user;
    lines->count++;
    snprintf(lines->last, sizeof lines->last, "%s", message);
}

/* A damaged kernel is a miss that is logged once. A writer deletes its image, a reader leaves it. */
static void test_damaged_image(const char *path, const char *damage)
{
    fa2i_cache *cache = NULL;
    log_lines lines = {0};
    const fa2i_kernel kernel = sample_kernel(1);
    fa2i_kernel found = {0};
    int64_t images = -1;

    cache = fixture_open(path);
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
    CHECK_EQ(fa2i_sql_script(cache, damage), FA2_OK);
    fa2i_cache_close(cache);
    for (int mode = FA2I_CACHE_READ; mode <= FA2I_CACHE_WRITE; mode++) {
        lines.count = 0;
        CHECK_EQ(fa2i_cache_open(path, (fa2i_cache_mode)mode, count_line, &lines, &cache), FA2_OK);
        for (int i = 0; i < 3; i++)
            CHECK_EQ(fa2i_cache_get_kernel(cache, &kernel.key, ABI, true, &found), FA2_E_NOT_FOUND);
        CHECK_EQ(lines.count, 1);
        CHECK_CONTAINS(lines.last, "damaged");
        CHECK_EQ(fa2i_sql_number(cache, "SELECT count(*) FROM image", NULL, 0, &images), FA2_OK);
        CHECK_EQ(images, mode == FA2I_CACHE_READ ? 1 : 0);
        fa2i_cache_close(cache);
    }
}

static void test_damages(void)
{
    /* what the hash protects, and the hash; a launch by another recipe would still be possible */
    static const char *const damages[] = {
        "UPDATE code SET data = CAST(substr(data, 1, 9) || x'00' || substr(data, 11) AS BLOB)",
        "UPDATE code SET data = x''",
        "UPDATE image SET seal = zeroblob(32)",
        "UPDATE kernel SET variant = variant || ' more=1'",
        "UPDATE kernel SET variant = printf('%s%300s', variant, '')",
        "UPDATE kernel SET class = 'D=64 dtype=fp16 causal=0'",
        "UPDATE kernel SET target = 'sm_80'",
        "UPDATE kernel SET recipe = replace(recipe, 'rows=64', 'rows=128')",
        "PRAGMA foreign_keys = OFF; DELETE FROM code",
        "PRAGMA foreign_keys = OFF; UPDATE image SET code = 7",
    };
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        fixture f;
        fixture_begin(&f);
        test_damaged_image(f.path, damages[i]);
        fixture_end(&f);
    }
}

/* An impossible recipe is a miss that is logged once, even if its hash is right. */
static void test_bad_recipes(const char *path)
{
    static const char *const bad[] = {"''",
                                      "replace(recipe, 'threads=128', 'threads=0')",
                                      "replace(recipe, 'rows=64', 'rows=0')",
                                      "replace(recipe, 'keys=32', 'keys=0')",
                                      "replace(recipe, 'role=combine', 'role=other')",
                                      "replace(recipe, 'op=forward', 'op=sideward')",
                                      "recipe || ' more=1'"};
    const fa2i_kernel kernel = sample_kernel(1);
    fa2i_cache *cache = NULL;
    fa2i_kernel found = {0};
    log_lines lines = {.count = 0};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char sql[400];
        lines.count = 0;
        CHECK_EQ(fa2i_cache_open(path, FA2I_CACHE_WRITE, count_line, &lines, &cache), FA2_OK);
        CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
        snprintf(sql, sizeof sql,
                 "UPDATE kernel SET recipe = %s; UPDATE image SET seal = (SELECT "
                 "fa2_seal(key, variant, class, recipe, target, data) FROM kernel, code)",
                 bad[i]);
        CHECK_EQ(fa2i_sql_script(cache, sql), FA2_OK);
        for (int j = 0; j < 2; j++)
            CHECK_EQ(fa2i_cache_get_kernel(cache, &kernel.key, ABI, true, &found), FA2_E_NOT_FOUND);
        CHECK_EQ(lines.count, 1);
        CHECK_CONTAINS(lines.last, "damaged");
        fa2i_cache_close(cache);
    }
}

/* The reader of PTX needs its NUL, which bytes in a database may lack. */
static void test_text_has_an_end(const char *path)
{
    fa2i_cache *cache = fixture_open(path);
    char ptx[] = {'p', 't', 'x'};
    fa2i_kernel found = {0}, kernel = sample_kernel(1);
    kernel.image = (fa2i_blob){ptx, sizeof ptx};
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
    CHECK_EQ(fa2i_cache_get_kernel(cache, &kernel.key, ABI, true, &found), FA2_OK);
    CHECK_EQ(found.image.bytes, 3);
    CHECK_STR((const char *)found.image.data, "ptx");
    fa2i_kernel_done(&found);
    fa2i_cache_close(cache);
}

static void put_code(fa2i_cache *cache, int kernel_number, const char *text)
{
    char image[64];
    fa2i_kernel kernel = sample_kernel(kernel_number);
    snprintf(image, sizeof image, "%s", text);
    kernel.image = (fa2i_blob){image, strlen(text)};
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
}

/* Kernels with equal code share it. It is deleted with the last of them. Damage affects all of them, and storing one
 * again repairs all. */
static void test_shared_code(const char *path)
{
    fa2i_cache *cache = fixture_open(path);
    const fa2i_key first = sample_key(1), second = sample_key(2);
    fa2i_kernel found = {0};
    put_code(cache, 1, "same");
    put_code(cache, 2, "same");
    put_code(cache, 3, "other");
    CHECK_EQ(fixture_number(cache, "SELECT count(*) FROM code"), 2);
    CHECK_EQ(fixture_number(cache, "SELECT count(*) FROM image"), 3);
    CHECK_EQ(fixture_number(cache, "SELECT count(DISTINCT seal) FROM image"), 3);
    put_code(cache, 1, "new");
    CHECK_EQ(fixture_number(cache, "SELECT count(*) FROM code"), 3);
    put_code(cache, 1, "same");
    CHECK_EQ(fixture_number(cache, "SELECT count(*) FROM code"), 2);

    CHECK_EQ(fa2i_sql_script(cache, "UPDATE code SET data = x'00' WHERE data = x'73616d65'"), FA2_OK);
    CHECK_EQ(fa2i_cache_get_kernel(cache, &first, ABI, true, &found), FA2_E_NOT_FOUND);
    put_code(cache, 1, "same");
    CHECK_EQ(fa2i_cache_get_kernel(cache, &second, ABI, true, &found), FA2_OK);
    CHECK_EQ(found.image.bytes, 4);
    fa2i_kernel_done(&found);

    CHECK_EQ(fa2i_sql_script(cache, "DELETE FROM kernel"), FA2_OK);
    CHECK_EQ(fixture_number(cache, "SELECT count(*) FROM code"), 0);
    fa2i_cache_close(cache);
}

/* A kernel with an outcome that this fa2 does not know is a miss. */
static void test_unknown_outcome(const char *path)
{
    fa2i_cache *cache = fixture_open(path);
    const fa2i_kernel kernel = sample_kernel(1);
    fa2i_kernel found = {0};
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
    CHECK_EQ(fa2i_sql_script(cache, "UPDATE kernel SET outcome = 'melted'"), FA2_OK);
    CHECK_EQ(fa2i_cache_get_kernel(cache, &kernel.key, ABI, true, &found), FA2_E_NOT_FOUND);
    CHECK_CONTAINS(fa2_last_message(), "the kernel is damaged");
    fa2i_cache_close(cache);
}

int main(void)
{
    static void (*const tests[])(const char *) = {test_bad_recipes, test_text_has_an_end, test_shared_code,
                                                  test_unknown_outcome};
    fixture_each_path(tests, sizeof tests / sizeof tests[0]);
    test_damages();
    return check_done();
}
