/*
 * A small database with one wrong bit anywhere. For each bit:
 * - check, gc, check, export and import work, and check finds no damage after gc
 * - export writes every row as before, except at most one: the row with the bit
 * - a call gets the code that was stored for its problem, or none.
 * Most bits lead to one of few files after gc, so what follows gc is done once for each of these files.
 * A fixed sample of the bits is tried. FA2_TEST_ALL=1 tries all, in 85 minutes; with FA2_TEST_PART=K/N it tries
 * part K (0 to N - 1) of N, so that N processes share the work. FA2_TEST_BIT=N tries that one, N-M those from N to M.
 */
#include "cache/internal.h"
#include "cache_fixture.h"
#include "runtime/base/alloc.h"
#include "runtime/base/clock.h"

enum { KERNELS = 3, CODE_BYTES = 16, PAGE_BYTES = 512, FILE_MOST = 1 << 17 };

static unsigned char good[FILE_MOST];
static size_t good_bytes;
static char *good_export;
static char codes[KERNELS + 1][CODE_BYTES]; /* by number */
static char path[120];

/* ---- the database ---- */

static void store(fa2i_cache *cache, const ids *to, int number, bool winner)
{
    fa2i_kernel kernel = sample_kernel(number);
    store_result(cache, to, number, 100 + number, winner);
    snprintf(codes[number], CODE_BYTES, "code of %d", number % 10);
    kernel.image = (fa2i_blob){codes[number], CODE_BYTES};
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
}

/* The pages are small, so that few bits belong to no row. */
static void make_database(void)
{
    char sql[64];
    sqlite3 *db = NULL;
    fa2i_cache *cache = fixture_open(path);
    const ids first = sample_ids(cache, 512), second = sample_ids(cache, 1024);
    store(cache, &first, 1, false);
    store(cache, &first, 2, true);
    store(cache, &second, 3, true);
    CHECK_EQ(fa2i_cache_set_limit(cache, 1 << 20), FA2_OK);
    good_export = exported(cache, NULL);
    fa2i_cache_close(cache);
    snprintf(sql, sizeof sql, "PRAGMA page_size = %d; VACUUM", PAGE_BYTES);
    CHECK_EQ(sqlite3_open(path, &db), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    good_bytes = fread(good, 1, sizeof good, file);
    CHECK(good_bytes > 10000 && good_bytes < sizeof good);
    fclose(file);
}

static void write_with(size_t bit)
{
    static unsigned char bytes[FILE_MOST];
    memcpy(bytes, good, good_bytes);
    bytes[bit / 8] ^= (unsigned char)(1U << bit % 8);
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fwrite(bytes, 1, good_bytes, file) == good_bytes);
    fclose(file);
    CHECK_EQ(chmod(path, 0600), 0);
}

/* ---- the checks ---- */

static void clean(void)
{
    fa2i_cache *cache = NULL;
    fa2i_cache_cleanup cleanup = {0};
    CHECK_EQ(fa2i_cache_open(path, FA2I_CACHE_REPAIR, NULL, NULL, &cache), FA2_OK);
    if (cache != NULL)
        CHECK_EQ(fa2i_cache_gc(cache, -1, &cleanup), FA2_OK);
    fa2i_cache_close(cache);
}

static void check_content(fa2i_cache *cache)
{
    fa2i_cache_health health = {0};
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK(!fa2i_cache_is_damaged(&health));
    if (health.without_code == 0)
        CHECK_STR(health.first_problem, "");
    else
        CHECK_EQ(health.without_code, 1); /* it is compiled again */
}

/* Returns how many lines of the good export, except the last, this text lacks. */
static int lost_lines(const char *text)
{
    char line[4096];
    int lost = 0;
    for (const char *c = good_export, *end; (end = strchr(c, '\n')) != NULL; c = end + 1) {
        snprintf(line, sizeof line, "%.*s", (int)(end - c + 1), c);
        lost += strncmp(line, "{\"type\":\"end\"", 13) != 0 && strstr(text, line) == NULL;
    }
    return lost;
}

static void check_export(fa2i_cache *cache)
{
    fa2i_cache *other = NULL;
    fa2i_export_counts counts = {0};
    char *text = exported(cache, &counts);
    CHECK_EQ(counts.left_out, 0);
    CHECK(lost_lines(text) <= 1);
    CHECK_EQ(fa2i_cache_open_empty("another database", &other), FA2_OK);
    CHECK_EQ(import_text(other, text, strlen(text), NULL), FA2_OK);
    fa2i_cache_close(other);
    free(text);
}

/* Checks that the code a call may load is the code of one of the kernels. */
static void check_code(fa2i_cache *cache, const fa2i_choice *choice, const char *class_key)
{
    fa2i_kernel kernel = {0};
    int number = 0;
    if (choice->fault != NULL || fa2i_cache_get_kernel(cache, &choice->winner.kernel, ABI, true, &kernel) != FA2_OK)
        return;
    for (int i = 1; i <= KERNELS; i++) {
        const fa2i_key key = sample_key(i);
        number = memcmp(&key, &kernel.key, sizeof key) == 0 ? i : number;
    }
    CHECK(number > 0);
    CHECK_STR(kernel.variant.class_key, class_key);
    CHECK(kernel.image.bytes == CODE_BYTES && memcmp(kernel.image.data, codes[number], CODE_BYTES) == 0);
    fa2i_kernel_done(&kernel);
}

static void check_call(fa2i_cache *cache)
{
    const fa2_problem problem = sample_problem(512);
    char class_key[FA2I_CLASS_CHARS];
    fa2i_choice *choices = NULL;
    size_t count = 0;
    fa2i_problem_class(&problem, class_key);
    if (fa2i_cache_choices(cache, 86, &problem, ABI, &choices, &count) != FA2_OK)
        return;
    for (size_t i = 0; i < count; i++)
        check_code(cache, &choices[i], class_key);
    fa2i_free(choices);
}

/* Makes a call on the damaged file, then check, whose result is ignored. */
static void use_damaged(void)
{
    fa2i_cache *cache = NULL;
    fa2i_cache_health health = {0};
    if (fa2i_cache_open(path, FA2I_CACHE_READ, NULL, NULL, &cache) == FA2_OK) {
        check_call(cache);
        CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    }
    fa2i_cache_close(cache);
}

/* ---- files after gc ---- */

/* The hashes of the files whose content was checked, and passed. */
static struct {
    fa2i_key *keys;
    size_t count, capacity;
} passed;

/* The hash of the file's bytes, except for two counters in SQLite's header, of changes and of changes to the tables,
 * and a copy of the first. */
static fa2i_key file_key(void)
{
    enum { CHANGES = 24, SCHEMA_CHANGES = 40, CHANGES_COPY = 92, COUNTER_BYTES = 4 };
    static unsigned char bytes[2 * FILE_MOST];
    fa2i_key key;
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    const size_t count = fread(bytes, 1, sizeof bytes, file);
    CHECK(count > 0 && count < sizeof bytes);
    fclose(file);
    memset(bytes + CHANGES, 0, COUNTER_BYTES);
    memset(bytes + SCHEMA_CHANGES, 0, COUNTER_BYTES);
    memset(bytes + CHANGES_COPY, 0, COUNTER_BYTES);
    const fa2i_part part = {bytes, count};
    fa2i_key_of(&part, 1, &key);
    return key;
}

static bool has_passed(const fa2i_key *key)
{
    for (size_t i = 0; i < passed.count; i++) {
        if (memcmp(&passed.keys[i], key, sizeof *key) == 0)
            return true;
    }
    return false;
}

static void add_passed(const fa2i_key *key)
{
    fa2i_key *grown = fa2i_room_for(passed.keys, passed.count + 1, &passed.capacity, sizeof *grown);
    CHECK(grown != NULL);
    passed.keys = grown;
    passed.keys[passed.count++] = *key;
}

static void check_clean(void)
{
    fa2i_cache *cache = NULL;
    CHECK_EQ(fa2i_cache_open(path, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_OK);
    if (cache != NULL) {
        check_content(cache);
        check_export(cache);
        check_call(cache);
    }
    fa2i_cache_close(cache);
}

/* ---- a bit ---- */

static void test_bit(size_t bit)
{
    const int failures = check_failures;
    write_with(bit);
    use_damaged();
    clean();
    const fa2i_key key = file_key();
    if (!has_passed(&key)) {
        check_clean();
        if (check_failures == failures)
            add_passed(&key);
    }
    if (check_failures > failures)
        fprintf(stderr, "... with a wrong bit %zu: page %zu, byte %zu, bit %zu; %s\n", bit, bit / 8 / PAGE_BYTES + 1,
                bit / 8 % PAGE_BYTES, bit % 8, fa2_last_message());
}

/* ---- the choice of bits ---- */

/* Bits first, first + step, ... below end. */
typedef struct bit_range {
    size_t first, step, end;
} bit_range;

static bit_range all_bits(void)
{
    const char *part = getenv("FA2_TEST_PART");
    bit_range bits = {0, 1, 8 * good_bytes};
    if (part != NULL)
        CHECK(sscanf(part, "%zu/%zu", &bits.first, &bits.step) == 2 && bits.first < bits.step);
    return bits;
}

/* Kinds that the sample does not meet: the text encoding, pages and root pages of the list of tables, a text with a NUL
 * byte, index rows that SQLite's check takes. */
static const size_t kinds[] = {473, 892, 3565, 31090, 31441, 46821, 107778, 39817, 143336, 163816, 167912};

/* The step of the sample is a prime, so that the sample meets every place of bytes and pages. */
static bit_range bits_asked(void)
{
    const char *one = getenv("FA2_TEST_BIT"), *all = getenv("FA2_TEST_ALL");
    size_t first = 0, last = 0;
    if (one != NULL) {
        const int numbers = sscanf(one, "%zu-%zu", &first, &last);
        CHECK(numbers >= 1);
        return (bit_range){first, 1, (numbers == 2 ? last : first) + 1};
    }
    if (all != NULL && strcmp(all, "1") == 0)
        return all_bits();
#if defined(__SANITIZE_ADDRESS__)
    return (bit_range){0, 2003, 8 * good_bytes};
#else
    return (bit_range){0, 211, 8 * good_bytes};
#endif
}

/* A third of SQLite's time would go to locks for threads, statistics of memory, and malloc. */
static void configure_sqlite(void)
{
    CHECK_EQ(sqlite3_config(SQLITE_CONFIG_SINGLETHREAD), SQLITE_OK);
    CHECK_EQ(sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0), SQLITE_OK);
    CHECK_EQ(sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 512, 1000), SQLITE_OK);
}

int main(void)
{
    fixture f;
    configure_sqlite();
    fixture_begin_in(&f, access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    snprintf(path, sizeof path, "%s", f.path);
    make_database();
    const bit_range bits = bits_asked();
    size_t count = 0;
    const double start = fa2i_clock_thread_s();
    for (size_t bit = bits.first; bit < bits.end; bit += bits.step, count++)
        test_bit(bit);
    const bool is_sample = getenv("FA2_TEST_BIT") == NULL && getenv("FA2_TEST_ALL") == NULL;
    for (size_t i = 0; is_sample && i < sizeof kinds / sizeof *kinds; i++, count++)
        test_bit(kinds[i]);
    fprintf(stderr, "%zu of %zu bits, %zu files after gc, %.1f s\n", count, 8 * good_bytes, passed.count,
            fa2i_clock_thread_s() - start);
    fa2i_free(passed.keys);
    free(good_export);
    remove(path);
    fixture_end(&f);
    return check_done();
}
