/* Export, import, and code for imported kernels. */
#include "cache_fixture.h"
#include "runtime/base/alloc.h"

/* *ret_fresh (may be NULL): the number of new rows. */
static fa2_status import_all(fa2i_cache *cache, const char *text, size_t *ret_fresh)
{
    fa2i_import_counts counts = {0};
    const fa2_status st = import_text(cache, text, strlen(text), &counts);
    CHECK_EQ(counts.rows, counts.fresh + counts.known + counts.verifications);
    if (ret_fresh != NULL)
        *ret_fresh = counts.fresh;
    return st;
}

static void test_round_trip(const char *from, const char *to)
{
    fa2i_export_counts exports = {0};
    size_t again = 0;
    fa2i_cache *source = fixture_open(from);
    fa2i_cache *target = fixture_open(to);
    fixture_fill(source);
    char *text = exported(source, &exports);
    const size_t rows = exports.rows;
    CHECK_EQ(exports.left_out, 0);
    CHECK_EQ(rows, 1 + 2 + 2 + 3 + 3 + 3 + 2); /* device ... winners */
    CHECK(strstr(text, "the code") == NULL);
    CHECK_EQ(import_all(target, text, &again), FA2_OK);
    CHECK_EQ(again, rows - 3); /* all except the verifications */
    CHECK_EQ(fixture_number(target, "SELECT count(*) FROM image"), 0);
    CHECK_EQ(fixture_number(target, "SELECT count(*) FROM verification"), 0);
    fa2i_import_counts counts = {0};
    CHECK_EQ(import_text(target, text, strlen(text), &counts), FA2_OK);
    CHECK_EQ(counts.rows, rows);
    CHECK_EQ(counts.known, rows - 3);
    CHECK_EQ(counts.verifications, 3);
    CHECK_EQ(fixture_number(target, "SELECT count(*) FROM session WHERE origin = 'import'"), 2);

    /* importing known rows changes nothing, and nothing is new */
    CHECK_EQ(import_all(target, text, &again), FA2_OK);
    CHECK_EQ(again, 0);
    CHECK_EQ(import_all(source, text, &again), FA2_OK);
    CHECK_EQ(again, 0);
    CHECK_EQ(fixture_number(source, "SELECT count(*) FROM image"), 3);
    CHECK_EQ(fixture_number(source, "SELECT count(*) FROM session WHERE origin = 'tune'"), 2);

    /* an import exports as the same text, except for verifications; its measurements are no longer settled */
    char *second = exported(target, &exports);
    CHECK_EQ(exports.rows, rows - 3);
    CHECK_EQ(fixture_number(target, "SELECT count(*) FROM measurement WHERE settled"), 0);
    CHECK_EQ(fixture_number(source, "SELECT count(*) FROM measurement WHERE settled"), 3);
    for (char *at = text; (at = strstr(at, "\"settled\":1")) != NULL;)
        at[strlen("\"settled\":")] = '0';
    const char *verifications = strstr(text, "{\"type\":\"verification\"");
    const char *measurements = strstr(text, "{\"type\":\"measurement\"");
    CHECK(verifications != NULL && measurements > verifications);
    CHECK(strncmp(second, text, (size_t)(verifications - text)) == 0);
    const char *end = strstr(measurements, "{\"type\":\"end\"");
    CHECK(end != NULL && strncmp(second + (verifications - text), measurements, (size_t)(end - measurements)) == 0);
    free(second);
    free(text);
    fa2i_cache_close(source);
    fa2i_cache_close(target);
}

/* A winner that was tuned here is not replaced by an imported one. */
static void test_existing_wins(const char *from, const char *to)
{
    fa2i_winner winner = {0};
    const fa2i_key mine = sample_key(1);
    fa2i_cache *source = fixture_open(from);
    fa2i_cache *target = fixture_open(to);
    fixture_fill(source);
    const ids here = sample_ids(target, 512);
    store_result(target, &here, 1, 40, true);
    char *text = exported(source, NULL);
    CHECK_EQ(import_all(target, text, NULL), FA2_OK);
    CHECK_EQ(fa2i_cache_get_winner(target, here.device, here.problem, &winner), FA2_OK);
    CHECK(memcmp(&winner.kernel, &mine, sizeof mine) == 0 && winner.median_us == 40);
    CHECK_EQ(fixture_number(target, "SELECT count(*) FROM winner"), 2);
    CHECK_EQ(fixture_number(target, "SELECT count(*) FROM image"), 1);
    CHECK_EQ(fixture_number(target, "SELECT median_us FROM measurement m JOIN kernel k ON k.id = m.kernel "
                                    "WHERE k.variant LIKE '% bc=8'"),
             40);
    free(text);
    fa2i_cache_close(source);
    fa2i_cache_close(target);
}

/* ---- code for imported kernels ---- */

/* Another NVRTC gives another key. The winner and the measurement move to it. */
static void check_other_key(fa2i_cache *cache, const ids *to)
{
    fa2i_measurement measurement = {0};
    fa2i_winner winner = {0};
    fa2i_verification verification = {0};
    fa2i_kernel compiled = sample_kernel(2);
    const fa2i_key old_key = compiled.key;
    compiled.key = sample_key(102);
    compiled.nvrtc = 13010;
    CHECK_EQ(fa2i_cache_rebind_kernel(cache, &old_key, &compiled), FA2_OK);
    CHECK_EQ(fa2i_cache_get_winner(cache, to->device, to->problem, &winner), FA2_OK);
    CHECK(memcmp(&winner.kernel, &compiled.key, sizeof compiled.key) == 0);
    CHECK_EQ(fa2i_cache_get_measurement(cache, to->device, to->problem, &compiled.key, &measurement), FA2_OK);
    CHECK(measurement.median_us == 50 && !measurement.settled);
    CHECK_EQ(fa2i_cache_get_measurement(cache, to->device, to->problem, &old_key, &measurement), FA2_E_NOT_FOUND);
    CHECK_EQ(fa2i_cache_get_verification(cache, to->device, &compiled.key, &verification), FA2_E_NOT_FOUND);
    CHECK_EQ(fa2i_cache_rebind_kernel(cache, &old_key, &compiled), FA2_E_NOT_FOUND);
}

static void check_without_image(fa2i_cache *cache, size_t expected)
{
    fa2i_kernel *kernels = NULL;
    size_t count = 0;
    CHECK_EQ(fa2i_cache_kernels_without_image(cache, &kernels, &count), FA2_OK);
    CHECK_EQ(count, expected);
    if (count > 0) {
        CHECK_STR(kernels[0].variant.text, "fwd_sm80 d=64 dtype=fp16 causal=1 br=64 bc=16");
        CHECK_STR(kernels[0].target, "sm_86");
    }
    for (size_t i = 0; i < count; i++)
        fa2i_kernel_done(&kernels[i]);
    fa2i_free(kernels);
}

static void test_rebind(const char *from, const char *to)
{
    fa2i_cache *source = fixture_open(from);
    fa2i_cache *target = fixture_open(to);
    fixture_fill(source);
    char *text = exported(source, NULL);
    CHECK_EQ(import_all(target, text, NULL), FA2_OK);
    const ids first = sample_ids(target, 512);
    check_without_image(target, 2); /* the loser needs no code */
    check_other_key(target, &first);

    /* the same NVRTC: the same key, and only the image is new */
    const fa2i_kernel same = sample_kernel(3);
    CHECK_EQ(fa2i_cache_rebind_kernel(target, &same.key, &same), FA2_OK);
    CHECK_EQ(fixture_number(target, "SELECT count(*) FROM measurement WHERE settled"), 0);
    CHECK_EQ(fixture_number(target, "SELECT count(*) FROM winner w JOIN image i ON i.kernel = w.kernel"), 2);
    check_without_image(target, 0);
    free(text);
    fa2i_cache_close(source);
    fa2i_cache_close(target);
}

/* If the new kernel has a measurement, it stays, and the old kernel's is deleted with the old kernel. A kernel that
 * does not compile here is not offered again. */
static void test_rebind_conflict(const char *from, const char *to)
{
    fa2i_cache *cache = fixture_open(from);
    const ids both = sample_ids(cache, 512);
    const fa2i_key old_key = sample_key(1);
    (void)to;
    store_result(cache, &both, 1, 100, true);
    store_result(cache, &both, 2, 90, false);
    fa2i_kernel compiled = sample_kernel(2);
    compiled.outcome = FA2I_OUTCOME_COMPILE_ERROR;
    compiled.image = (fa2i_blob){0};
    CHECK_EQ(fa2i_cache_rebind_kernel(cache, &old_key, &compiled), FA2_OK);
    CHECK_EQ(fixture_number(cache, "SELECT count(*) FROM kernel"), 1);
    CHECK_EQ(fixture_number(cache, "SELECT count(*) FROM measurement"), 1);
    CHECK_EQ(fixture_number(cache, "SELECT median_us FROM measurement WHERE settled"), 90);
    CHECK_EQ(fixture_number(cache, "SELECT count(*) FROM image"), 0);
    check_without_image(cache, 0);
    fa2i_cache_close(cache);
}

static fa2_status know_few(void *user, const fa2i_variant *variant)
{
    return strstr(variant->text, user) == NULL ? FA2_OK : fa2i_fail(FA2_E_NOT_FOUND, "there is no '%s'", variant->text);
}

static fa2_status know_nothing(void *user, const fa2i_variant *variant)
{
    (void)user;
    (void)variant;
    return fa2i_fail(FA2_E_GENERATOR, "no scripts");
}

static void import_from(fa2i_cache *source, fa2i_cache *target, fa2i_variant_fn variant, fa2_status expected,
                        fa2i_import_counts *ret_counts)
{
    char unknown[] = " bc=24";
    FILE *file = tmpfile();
    CHECK(file != NULL);
    CHECK_EQ(fa2i_cache_export(source, file, NULL), FA2_OK);
    rewind(file);
    CHECK_EQ(fa2i_cache_import(target, file, "shared.jsonl", variant, unknown, ret_counts), expected);
    fclose(file);
}

/* A variant that is unknown here is skipped, with all rows about it. The rest is imported. */
static void test_unknown_variant(const char *from, const char *to)
{
    fa2i_import_counts all = {0}, some = {0};
    fa2i_cache *source = fixture_open(from), *target = fixture_open(to);
    fixture_fill(source);
    import_from(source, target, know_few, FA2_OK, &some);
    CHECK_EQ(some.unknown, 1);
    CHECK_CONTAINS(some.first_unknown, "there is no 'fwd_sm80");
    CHECK_EQ(some.rows, some.fresh + some.known + some.verifications + some.passed_over);
    CHECK_EQ(some.passed_over, 4); /* the kernel, its verification, measurement and win */
    CHECK_EQ(fixture_number(target, "SELECT count(*) FROM kernel WHERE variant LIKE '% bc=24%'"), 0);
    CHECK_EQ(fixture_number(target, "SELECT count(*) FROM kernel"), 2);
    CHECK_EQ(fixture_number(target, "SELECT count(*) FROM measurement"), 2);
    CHECK_EQ(fixture_number(target, "SELECT count(*) FROM winner"), 1);
    /* Once it is known, the next import takes it, and only it. */
    import_from(source, target, NULL, FA2_OK, &all);
    CHECK_EQ(all.unknown, 0);
    CHECK_EQ(all.passed_over, 0);
    CHECK_EQ(all.known, some.fresh + some.known);
    CHECK_EQ(all.fresh + all.verifications, some.passed_over + some.verifications);
    fa2i_cache_close(target);
    fa2i_cache_close(source);
}

/* An export with negative ids, as a damaged file had them, is imported. */
static void test_negative_ids(const char *from, const char *to)
{
    fa2i_cache *source = fixture_open(from), *target = fixture_open(to);
    fixture_fill(source);
    CHECK_EQ(fa2i_sql_script(source, "PRAGMA foreign_keys = OFF; UPDATE problem SET id = -id; "
                                     "UPDATE measurement SET problem = -problem; UPDATE winner SET problem = -problem"),
             FA2_OK);
    char *text = exported(source, NULL);
    CHECK_CONTAINS(text, "\"type\":\"problem\",\"id\":-1,");
    CHECK_EQ(import_all(target, text, NULL), FA2_OK);
    CHECK_EQ(fixture_number(target, "SELECT count(*) FROM winner"), 2);
    free(text);
    fa2i_cache_close(source);
    fa2i_cache_close(target);
}

static fa2_status know_other_class(void *user, const fa2i_variant *variant)
{
    (void)user;
    return fa2i_variant_check_class(variant, "D=128 dtype=fp16 causal=1");
}

/* A kernel with another class than its variant's would win for problems that it does not serve. */
static void test_other_class(const char *from, const char *to)
{
    fa2i_cache *source = fixture_open(from), *target = fixture_open(to);
    fixture_fill(source);
    import_from(source, target, know_other_class, FA2_E_INVALID, NULL);
    CHECK_CONTAINS(fa2_last_message(), "is for problems with D=128 dtype=fp16 causal=1, and its record says D=64 ");
    CHECK_EQ(fixture_number(target, "SELECT count(*) FROM kernel"), 0);
    fa2i_cache_close(source);
    fa2i_cache_close(target);
}

/* A failure that says nothing about variants: nothing is kept, and no file is left if there was none. */
static void test_nobody_to_ask(const char *from, const char *to)
{
    struct stat info;
    fa2i_cache *source = fixture_open(from), *target = fixture_open(to);
    fixture_fill(source);
    import_from(source, target, know_nothing, FA2_E_GENERATOR, NULL);
    fa2i_cache_abandon(target);
    CHECK(stat(to, &info) != 0);
    /* Files that contain something, or existed before, stay. */
    fa2i_cache_abandon(source);
    CHECK_EQ(stat(from, &info), 0);
    fa2i_cache_close(fixture_open(to));
    fa2i_cache_abandon(fixture_open(to));
    CHECK_EQ(stat(to, &info), 0);
}

/* Control characters in text for people are replaced by blanks. Code in the file is ignored. */
static void test_remarks_and_code(const char *from, const char *to)
{
    fa2i_cache *source = fixture_open(from);
    fa2i_cache *target = fixture_open(to);
    fixture_fill(source);
    char *text = exported(source, NULL);
    char *code = replaced(text, "\"type\":\"kernel\"", "\"type\":\"kernel\",\"image\":\"AAAA\"");
    char *escape = sealed(replaced(code, "\"detail\":\"\"", "\"detail\":\"a\\u001b[2J\\nb\""));
    CHECK_EQ(import_all(target, escape, NULL), FA2_OK);
    CHECK_EQ(fixture_number(target, "SELECT count(*) FROM image"), 0);
    CHECK_EQ(fixture_number(target, "SELECT count(*) FROM measurement WHERE detail = 'a [2J b'"), 1);
    free(escape);
    free(code);
    free(text);
    fa2i_cache_close(source);
    fa2i_cache_close(target);
}

/* ---- code ---- */

/* Returns an export with code. The caller frees it. */
static char *exported_with_code(fa2i_cache *cache, fa2i_export_counts *ret_counts)
{
    static char *text;
    static size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    CHECK(out != NULL);
    CHECK_EQ(fa2i_cache_export_with_code(cache, out, ret_counts), FA2_OK);
    fclose(out);
    return text;
}

/* Imports a file of this mode, trusting it. */
static fa2_status import_trusted(fa2i_cache *cache, const char *text, mode_t mode, fa2i_import_counts *ret_counts)
{
    char path[] = "/tmp/fa2-test-code-XXXXXX";
    const int descriptor = mkstemp(path);
    FILE *in = fdopen(descriptor, "w+");
    CHECK(in != NULL && fputs(text, in) >= 0 && fflush(in) == 0 && fchmod(descriptor, mode) == 0);
    rewind(in);
    const fa2_status st = fa2i_cache_import_trusted(cache, in, path, NULL, NULL, ret_counts);
    fclose(in);
    CHECK_EQ(unlink(path), 0);
    return st;
}

static void store_large_code(fa2i_cache *cache)
{
    static uint8_t code[17001]; /* three lines */
    fa2i_kernel kernel = sample_kernel(3);
    for (size_t i = 0; i < sizeof code; i++)
        code[i] = (uint8_t)(i * i >> 3);
    fa2i_kernel large = kernel;
    large.image = (fa2i_blob){code, sizeof code};
    CHECK_EQ(fa2i_cache_put_kernel(cache, &large), FA2_OK);
}

/* Only winners' code travels, and only a caller that trusts the file takes it. */
static void test_code(const char *from, const char *to)
{
    static const char same_code[] = "SELECT count(*) FROM code WHERE length(data) = 17001";
    fa2i_export_counts exports = {0};
    fa2i_import_counts counts = {0};
    fa2i_cache *source = fixture_open(from), *target = fixture_open(to);
    fixture_fill(source);
    store_large_code(source);
    char *plain = exported(source, &exports), *text = exported_with_code(source, NULL);
    const size_t rows = exports.rows;
    free(exported_with_code(source, &exports));
    CHECK_EQ(exports.with_code, 2); /* kernel 1 won nothing */
    CHECK_EQ(exports.rows, rows);
    CHECK(strstr(plain, "\"type\":\"code\"") == NULL);

    CHECK_EQ(import_text(target, text, strlen(text), &counts), FA2_OK); /* without trust */
    CHECK_EQ(counts.code_rows, 1 + 3);
    CHECK_EQ(counts.code_left, 2);
    CHECK_EQ(counts.code_taken, 0);
    CHECK_EQ(fixture_number(target, "SELECT count(*) FROM image"), 0);
    CHECK_EQ(import_trusted(target, text, 0600, &counts), FA2_OK);
    CHECK_EQ(counts.code_taken, 2);
    CHECK_EQ(counts.fresh, 0);
    CHECK_EQ(counts.rows, counts.known + counts.verifications + counts.code_rows);
    CHECK_EQ(fixture_number(target, "SELECT count(*) FROM image"), 2);
    CHECK_EQ(fixture_number(target, same_code), 1);
    CHECK_EQ(fixture_number(target, "SELECT count(*) FROM verification"), 0);
    CHECK_EQ(import_trusted(target, text, 0644, &counts), FA2_OK); /* others may read it; nothing is new */
    CHECK_EQ(counts.code_taken, 0);

    const fa2i_kernel winner = sample_kernel(2);
    fa2i_kernel got = {0};
    CHECK_EQ(fa2i_cache_get_kernel(target, &winner.key, winner.variant.recipe.abi, true, &got), FA2_OK);
    CHECK(got.image.bytes == winner.image.bytes && memcmp(got.image.data, winner.image.data, got.image.bytes) == 0);
    fa2i_kernel_done(&got);
    free(plain);
    free(text);
    fa2i_cache_close(source);
    fa2i_cache_close(target);
}

/* Files that others can write, that are no files, or whose code was changed: nothing comes in. */
static void test_code_refused(const char *from, const char *to)
{
    static const struct {
        const char *part, *by, *message;
    } changes[] = {
        {"\"hex\":\"00", "\"hex\":\"01", "the code does not match its seal"},
        {"\"at\":7000", "\"at\":7001", "the code does not continue that of the line above"},
        {"\"at\":14000", "\"at\":7000", "the code does not continue that of the line above"},
        {"\"bytes\":17001", "\"bytes\":17002", "the code does not continue that of the line above"},
        {"\"bytes\":17001", "\"bytes\":1", "the code does not continue that of the line above"},
        {"\"hex\":\"00", "\"hex\":\"0g", "'hex' must be hex digits of at most 7000 bytes"},
        {"\"hex\":\"00", "\"hex\":\"0", "'hex' must be hex digits"},
        {"\"at\":7000", "\"at\":-1", "'at' must be a whole number"},
    };
    fa2i_cache *source = fixture_open(from), *target = fixture_open(to);
    fixture_fill(source);
    store_large_code(source);
    char *text = exported_with_code(source, NULL);
    CHECK_EQ(import_trusted(target, text, 0622, NULL), FA2_E_DATABASE);
    CHECK_CONTAINS(fa2_last_message(), "others can write ");
    FILE *device = fopen("/dev/null", "r");
    CHECK_EQ(fa2i_cache_import_trusted(target, device, "/dev/null", NULL, NULL, NULL), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "/dev/null: is no file whose owner could be trusted");
    fclose(device);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char *changed = sealed(replaced(text, changes[i].part, changes[i].by));
        CHECK_EQ(import_trusted(target, changed, 0600, NULL), FA2_E_INVALID);
        CHECK_CONTAINS(fa2_last_message(), changes[i].message);
        free(changed);
    }
    char *last = strstr(text, "\"at\":14000"); /* code without its last line */
    while (last > text && last[-1] != '\n')
        last--;
    memmove(last, strchr(last, '\n') + 1, strlen(strchr(last, '\n') + 1) + 1);
    text = sealed(text);
    CHECK_EQ(import_trusted(target, text, 0600, NULL), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "the code above ends after 14000 of 17001 bytes");
    CHECK_EQ(fixture_number(target, "SELECT count(*) FROM kernel"), 0);
    free(text);
    fa2i_cache_close(source);
    fa2i_cache_close(target);
}

/* Each allocation fails in turn: nothing is kept. */
static void test_code_allocations(const char *from, const char *to)
{
    fa2i_cache *source = fixture_open(from), *target = fixture_open(to);
    fa2_status st = FA2_E_MEMORY;
    fixture_fill(source);
    store_large_code(source);
    char *text = exported_with_code(source, NULL);
    for (long nth = 1; st == FA2_E_MEMORY && nth < 50; nth++) {
        fa2i_alloc_fail_at(nth);
        st = import_trusted(target, text, 0600, NULL);
        fa2i_alloc_fail_at(0);
        CHECK_EQ(fixture_number(target, "SELECT count(*) FROM image"), st == FA2_OK ? 2 : 0);
    }
    CHECK_EQ(st, FA2_OK);
    free(text);
    fa2i_cache_close(source);
    fa2i_cache_close(target);
}

static void test_files(const char *from, const char *to)
{
    fa2i_cache *cache = fixture_open(from);
    (void)to;
    fixture_fill(cache);
    FILE *full = open_full_disk("exporting to a full disk");
    if (full != NULL) {
        CHECK_EQ(fa2i_cache_export(cache, full, NULL), FA2_E_IO);
        fclose(full);
    }
    FILE *folder = fopen("/tmp", "r"); /* opens, but cannot be read */
    CHECK(folder != NULL);
    CHECK_EQ(fa2i_cache_import(cache, folder, "/tmp", NULL, NULL, NULL), FA2_E_IO);
    CHECK_CONTAINS(fa2_last_message(), "/tmp:1: cannot be read");
    fclose(folder);
    fa2i_cache_close(cache);

    CHECK_EQ(fa2i_cache_open(from, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_OK);
    char *text = exported(cache, NULL);
    CHECK_EQ(import_all(cache, text, NULL), FA2_E_DATABASE);
    free(text);
    fa2i_cache_close(cache);
}

/* Each allocation fails in turn: an error, no leak, and all or nothing is stored. */
static void test_allocations(const char *from, const char *to)
{
    fa2i_cache *source = fixture_open(from);
    fa2i_cache *target = fixture_open(to);
    fa2_status st = FA2_E_MEMORY;
    fixture_fill(source);
    char *text = exported(source, NULL);
    for (long nth = 1; st == FA2_E_MEMORY && nth < 50; nth++) {
        fa2i_kernel *kernels = NULL;
        size_t count = 0;
        FILE *sink = tmpfile();
        fa2i_alloc_fail_at(nth);
        st = import_all(target, text, NULL);
        if (st == FA2_OK)
            st = fa2i_cache_kernels_without_image(target, &kernels, &count);
        if (st == FA2_OK)
            st = fa2i_cache_print_winners_json(&target, 1, NULL, sink);
        fa2i_alloc_fail_at(0);
        CHECK(nth > 1 || fixture_number(target, "SELECT count(*) FROM device") == 0);
        for (size_t i = 0; i < count; i++)
            fa2i_kernel_done(&kernels[i]);
        fa2i_free(kernels);
        fclose(sink);
    }
    CHECK_EQ(st, FA2_OK); /* no other error occurred before */
    free(text);
    fa2i_cache_close(source);
    fa2i_cache_close(target);
}

int main(void)
{
    static void (*const tests[])(const char *, const char *) = {
        test_round_trip,       test_existing_wins,   test_rebind,          test_rebind_conflict,
        test_negative_ids,     test_other_class,     test_unknown_variant, test_nobody_to_ask,
        test_remarks_and_code, test_files,           test_allocations,     test_code,
        test_code_refused,     test_code_allocations};
    fixture_each_pair(tests, sizeof tests / sizeof tests[0]);
    return check_done();
}
