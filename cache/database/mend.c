/*
 * How: assume that only one bit is wrong. If a value is wrong, the facts that tell it are right.
 *
 * Invariants:
 * - a problem stays as it is if its class and work agree with its fields;
 * - a kernel's sealed values change only if the seal is the hash of the new ones. The class of a kernel without code
 *   may also become the class of all its problems;
 * - a row gets another id only if at least two rows refer to that id, and no row has it.
 */
#include "cache/database/mend.h"

#include <stdio.h>
#include <string.h>
#include "cache/database/columns.h"
#include "cache/database/rules.h"
#include "runtime/base/alloc.h"
#include "runtime/base/clock.h"

/* Counts the bits in which two texts or blobs of the same length differ; INT32_MAX: their lengths differ. */
static int wrong_bits(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    const unsigned char *left = a, *right = b;
    int count = 0;
    if (a_bytes != b_bytes || a == NULL || b == NULL)
        return INT32_MAX;
    for (size_t i = 0; i < a_bytes; i++)
        for (unsigned wrong = left[i] ^ right[i]; wrong != 0; wrong &= wrong - 1)
            count++;
    return count;
}

/* fa2_wrong_bits(a, b) */
static void wrong_bits_sql(sqlite3_context *context, int count, sqlite3_value **values)
{
    const void *a = sqlite3_value_blob(values[0]), *b = sqlite3_value_blob(values[1]);
    (void)count;
    sqlite3_result_int(
        context, wrong_bits(a, (size_t)sqlite3_value_bytes(values[0]), b, (size_t)sqlite3_value_bytes(values[1])));
}

int fa2i_mend_register(sqlite3 *db)
{
    static const fa2i_sql_function functions[] = {{"fa2_wrong_bits", 2, wrong_bits_sql}};
    return fa2i_sql_register(db, FA2I_SQL_VALUES(functions), NULL);
}

/* ---- problems ---- */

/* Adds an SQL text in which '$' stands for the fields of a problem. */
static void add_over_fields(fa2i_text *text, const char *sql)
{
    for (const char *mark; (mark = strchr(sql, '$')) != NULL; sql = mark + 1) {
        fa2i_text_add_bytes(text, sql, (size_t)(mark - sql));
        fa2i_text_add(text, "%s", fa2i_columns_fields);
    }
    fa2i_text_add(text, "%s", sql);
}

/* Runs such a statement. Adds the number of rows that it changed. */
static fa2_status run_over_fields(fa2i_cache *cache, const char *sql, size_t *count)
{
    fa2i_text text = {0};
    add_over_fields(&text, sql);
    const fa2_status st = fa2i_sql_script_text(cache, &text);
    *count += st == FA2_OK ? (size_t)sqlite3_changes(cache->db) : 0;
    return st;
}

/* Sets the class from the fields if the work agrees with them, and the work if the class agrees. */
static fa2_status mend_problems(fa2i_cache *cache)
{
    return run_over_fields(cache,
                           "UPDATE problem AS t SET class = x.class, gflop = x.gflop "
                           "FROM (SELECT id, fa2_class($) AS class, fa2_gflop($) AS gflop FROM problem) x "
                           "WHERE x.id = t.id AND iif(t.class = x.class, "
                           "(t.gflop >= 0 AND t.gflop < 9e999) IS NOT TRUE, t.gflop = x.gflop)",
                           &cache->mended);
}

fa2_status fa2i_mend_make_copy(fa2i_cache *cache)
{
    size_t none = 0;
    return run_over_fields(cache, "CREATE TEMP TABLE problem_copy (id INTEGER PRIMARY KEY, $)", &none);
}

fa2_status fa2i_mend_by_copy(fa2i_cache *cache, size_t *ret_dropped, size_t *ret_put)
{
    size_t dropped = 0, put = 0;
    fa2_status st;
    FA2_TRY(run_over_fields(cache,
                            "DELETE FROM problem WHERE (class = fa2_class($) AND gflop = fa2_gflop($)) IS NOT TRUE "
                            "AND id IN (SELECT id FROM temp.problem_copy WHERE fa2_class($) IS NOT NULL)",
                            &dropped));
    FA2_TRY(run_over_fields(cache,
                            "INSERT OR IGNORE INTO problem (id, class, gflop, $) "
                            "SELECT id, fa2_class($), fa2_gflop($), $ FROM temp.problem_copy "
                            "WHERE fa2_class($) IS NOT NULL AND id NOT IN (SELECT id FROM problem)",
                            &put));
    FA2_TRY(fa2i_sql_script(cache, "DROP TABLE temp.problem_copy"));
    *ret_dropped = dropped;
    *ret_put = put;
done:
    return st;
}

/* ---- facts within a row ---- */

void fa2i_mend_add_faults(fa2i_text *sql, const char *table)
{
    static const struct {
        const char *table, *fault;
    } told[] = {{"problem", "class IS NOT fa2_class($) OR gflop IS NOT fa2_gflop($)"},
                {"kernel", "id IN (" FA2I_DAMAGED_IMAGES ")"},
                {"image", "kernel IN (" FA2I_DAMAGED_IMAGES ")"},
                {"code", "hash IS NOT fa2_hash(data)"}};
    fa2i_text_add(sql,
                  "SELECT (SELECT count(*) FROM pragma_foreign_key_check('%s')) + "
                  "(SELECT count(*) - count(DISTINCT rootpage) FROM sqlite_schema WHERE rootpage > 0) + "
                  "(NOT EXISTS (SELECT 1 FROM %s)) + (SELECT count(*) FROM %s WHERE ",
                  table, table, table);
    fa2i_rules_add_fault(sql, table);
    fa2i_text_add(sql, " IS NOT NULL");
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        if (strcmp(told[i].table, table) == 0) {
            fa2i_text_add(sql, " OR ");
            add_over_fields(sql, told[i].fault);
        }
    }
    fa2i_text_add(sql, ")");
}

/* ---- kernels with code ---- */

enum { PARTS = 6, TEXT_PARTS = 5 };
#define SEAL_SECONDS 4.0 /* limit for all kernels; the others' code is compiled again */
static const char *const part_columns[TEXT_PARTS] = {"key", "variant", "class", "recipe", "target"};

/* A kernel whose seal does not match its columns. */
typedef struct broken {
    int64_t id;
    unsigned char *bytes[PARTS]; /* of the columns, and of the code */
    fa2i_part parts[PARTS];
    fa2i_key seal;
} broken;

static fa2_status mend_seal(fa2i_cache *cache, const broken *b, const fa2i_key *seal)
{
    const fa2i_sql_value values[] = {fa2i_sql_key(seal), fa2i_sql_int(b->id)};
    cache->mended++;
    return fa2i_sql_run(cache, "UPDATE image SET seal = ? WHERE kernel = ?", FA2I_SQL_VALUES(values));
}

static fa2_status mend_part(fa2i_cache *cache, const broken *b, int part)
{
    const fa2i_sql_value values[] = {fa2i_sql_blob(b->bytes[part], b->parts[part].bytes), fa2i_sql_int(b->id)};
    char sql[96];
    cache->mended++;
    snprintf(sql, sizeof sql, "UPDATE OR IGNORE kernel SET %s = CAST(? AS %s) WHERE id = ?", part_columns[part],
             part == 0 ? "BLOB" : "TEXT");
    return fa2i_sql_run(cache, sql, FA2I_SQL_VALUES(values));
}

/* Tries each bit of the columns, until the deadline. */
static fa2_status mend_kernel(fa2i_cache *cache, broken *b, double deadline)
{
    fa2i_key found;
    fa2i_key_of(b->parts, PARTS, &found);
    if (wrong_bits(&found, sizeof found, &b->seal, sizeof b->seal) == 1)
        return mend_seal(cache, b, &found);
    for (int part = 0; part < TEXT_PARTS; part++) {
        const size_t bits = b->parts[part].bytes < FA2I_RECIPE_CHARS ? 8 * b->parts[part].bytes : 0;
        for (size_t bit = 0; bit < bits && fa2i_clock_thread_s() < deadline; bit++) {
            b->bytes[part][bit / 8] ^= (unsigned char)(1U << bit % 8);
            fa2i_key_of(b->parts, PARTS, &found);
            if (memcmp(&found, &b->seal, sizeof found) == 0)
                return mend_part(cache, b, part);
            b->bytes[part][bit / 8] ^= (unsigned char)(1U << bit % 8);
        }
    }
    return FA2_OK;
}

static void broken_done(broken *b)
{
    for (int i = 0; i < PARTS; i++)
        fa2i_free(b->bytes[i]);
}

/* Copies the columns, because they change while the statement waits. */
static fa2_status read_broken(sqlite3_stmt *stmt, broken *b)
{
    *b = (broken){.id = sqlite3_column_int64(stmt, 0)};
    memcpy(&b->seal, sqlite3_column_blob(stmt, 1), sizeof b->seal);
    for (int i = 0; i < PARTS; i++) {
        const void *data = sqlite3_column_blob(stmt, 2 + i);
        const size_t bytes = (size_t)sqlite3_column_bytes(stmt, 2 + i);
        b->bytes[i] = fa2i_alloc(bytes + 1);
        if (b->bytes[i] == NULL)
            return fa2i_fail(FA2_E_MEMORY, "out of memory");
        if (bytes > 0)
            memcpy(b->bytes[i], data, bytes);
        b->parts[i] = (fa2i_part){b->bytes[i], bytes};
    }
    return FA2_OK;
}

/* Selects the first kernel after an id whose seal does not match, but whose code is intact. */
static const char broken_sql[] =
    "SELECT k.id, i.seal, k.key, k.variant, k.class, k.recipe, k.target, c.data FROM image i "
    "CROSS JOIN kernel k ON k.id = i.kernel CROSS JOIN code c ON c.id = i.code "
    "WHERE k.id > ? AND c.hash IS fa2_hash(c.data) AND typeof(i.seal) = 'blob' AND length(i.seal) = 32 "
    "AND i.seal IS NOT fa2_seal(k.key, k.variant, k.class, k.recipe, k.target, c.data) ORDER BY k.id LIMIT 1";

static fa2_status mend_kernels(fa2i_cache *cache)
{
    fa2_status st = FA2_OK;
    int64_t last = INT64_MIN;
    const double deadline = fa2i_clock_thread_s() + SEAL_SECONDS;
    while (st == FA2_OK) {
        const fa2i_sql_value values[] = {fa2i_sql_int(last)};
        sqlite3_stmt *stmt = NULL;
        broken b = {.id = 0};
        st = fa2i_sql_row(cache, broken_sql, FA2I_SQL_VALUES(values), &stmt);
        if (st == FA2_OK)
            st = read_broken(stmt, &b);
        sqlite3_finalize(stmt);
        last = b.id;
        if (st == FA2_OK)
            st = mend_kernel(cache, &b, deadline);
        broken_done(&b);
    }
    return st == FA2_E_NOT_FOUND ? FA2_OK : st;
}

/* ---- rows that others tell ---- */

#define RESULTS                                                                                                        \
    "(SELECT device, problem, session, kernel FROM measurement UNION ALL "                                             \
    "SELECT device, problem, session, kernel FROM winner)"

/* Do two numbers differ in one bit? */
#define ONE_BIT(a, b)                                                                                                  \
    "((" a " | " b ") - (" a " & " b ")) & (((" a " | " b ") - (" a " & " b ")) - 1) = 0 AND " a " <> " b

/* A seal that matches shows which code belongs to a kernel, and that it is right. */
static const char *const seals[] = {
    "UPDATE OR IGNORE image AS t SET code = c.id FROM kernel k CROSS JOIN code c WHERE k.id = t.kernel "
    "AND t.code NOT IN (SELECT id FROM code) AND t.seal IS fa2_seal(k.key, k.variant, k.class, k.recipe, k.target, "
    "c.data)",
    "UPDATE OR IGNORE image AS t SET kernel = k.id FROM kernel k CROSS JOIN code c WHERE c.id = t.code "
    "AND t.kernel NOT IN (SELECT id FROM kernel) "
    "AND t.seal IS fa2_seal(k.key, k.variant, k.class, k.recipe, k.target, c.data)",
    "UPDATE OR IGNORE code SET hash = fa2_hash(data) WHERE hash IS NOT fa2_hash(data) AND EXISTS "
    "(SELECT 1 FROM image i CROSS JOIN kernel k ON k.id = i.kernel WHERE i.code = code.id "
    "AND i.seal IS fa2_seal(k.key, k.variant, k.class, k.recipe, k.target, code.data))",
};

static const char *const results[] = {
    /* A device's SM is the SM of all code that ran on it. */
    "UPDATE OR IGNORE device AS t SET arch = x.sm FROM (SELECT r.device, "
    "min(CAST(substr(k.target, 4) AS INTEGER)) AS sm FROM " RESULTS " r "
    "JOIN kernel k ON k.id = r.kernel AND substr(k.target, 1, 3) = 'sm_' GROUP BY r.device "
    "HAVING count(DISTINCT k.target) = 1 AND count(*) > 1) x WHERE x.device = t.id AND x.sm <> t.arch "
    "AND (t.arch = 0 OR " ONE_BIT("t.arch", "x.sm") ")",
    /* A session's device is the device of its results. */
    "UPDATE session AS t SET device = x.device FROM (SELECT session, min(device) AS device FROM " RESULTS
    " WHERE device IN (SELECT id FROM device) GROUP BY session HAVING count(DISTINCT device) = 1 AND count(*) > 1) x "
    "WHERE x.session = t.id AND x.device <> t.device",
    /* The class of a kernel without code is the class of its problems. */
    "UPDATE kernel AS t SET class = x.class FROM (SELECT r.kernel, min(p.class) AS class FROM " RESULTS
    " r JOIN problem p ON p.id = r.problem GROUP BY r.kernel HAVING count(DISTINCT p.class) = 1) x "
    "WHERE x.kernel = t.id AND t.id NOT IN (SELECT kernel FROM image) AND fa2_wrong_bits(t.class, x.class) = 1",
};

/* A table that others refer to, and the rows that do. */
static const struct {
    const char *table, *references;
} referred[] = {
    {"device", "SELECT device AS id FROM session UNION ALL SELECT device FROM verification "
               "UNION ALL SELECT device FROM " RESULTS},
    {"problem", "SELECT problem AS id FROM " RESULTS},
    {"session", "SELECT session AS id FROM " RESULTS},
    {"kernel", "SELECT kernel AS id FROM image UNION ALL SELECT kernel FROM verification "
               "UNION ALL SELECT kernel FROM " RESULTS},
};

static fa2_status mend_id(fa2i_cache *cache, const char *table, const char *references)
{
    fa2i_text sql = {0};
    fa2i_text_add(
        &sql,
        "UPDATE OR IGNORE %s AS t SET id = x.id FROM (SELECT id FROM (%s) WHERE id NOT IN (SELECT id FROM %s) "
        "GROUP BY id HAVING count(*) > 1) x WHERE t.id NOT IN (%s) AND " ONE_BIT("t.id", "x.id"),
        table, references, table, references);
    const fa2_status st = fa2i_sql_script_text(cache, &sql);
    if (st == FA2_OK)
        cache->mended += (size_t)sqlite3_changes(cache->db);
    return st;
}

static fa2_status mend_ids(fa2i_cache *cache)
{
    fa2_status st = FA2_OK;
    for (size_t i = 0; st == FA2_OK && i < sizeof referred / sizeof *referred; i++)
        st = mend_id(cache, referred[i].table, referred[i].references);
    return st;
}

static fa2_status mend_by(fa2i_cache *cache, const char *const *statements, size_t count)
{
    fa2_status st = FA2_OK;
    for (size_t i = 0; st == FA2_OK && i < count; i++) {
        st = fa2i_sql_run(cache, statements[i], NULL, 0);
        if (st == FA2_OK)
            cache->mended += (size_t)sqlite3_changes(cache->db);
    }
    return st;
}

fa2_status fa2i_mend_rows(fa2i_cache *cache)
{
    fa2_status st = fa2i_rules_mend(cache);
    if (st == FA2_OK)
        st = mend_problems(cache);
    if (st == FA2_OK)
        st = mend_ids(cache);
    if (st == FA2_OK)
        st = mend_by(cache, seals, sizeof seals / sizeof *seals);
    if (st == FA2_OK)
        st = mend_kernels(cache);
    return st == FA2_OK ? mend_by(cache, results, sizeof results / sizeof *results) : st;
}
