/*
 * How: one wrong bit is assumed. Each candidate for what was there is compared with what tells it; a value is mended
 * if exactly one candidate fits.
 *
 * Invariants:
 * - a kernel's sealed values change only to those whose hash is the seal, or its class to that of all its problems;
 * - a row gets another id only if two rows or more refer to that id, and no row has it.
 */
#include "cache/mend.h"

#include <stdio.h>
#include <string.h>
#include "cache/columns.h"
#include "cache/rules.h"
#include "runtime/base/alloc.h"
#include "runtime/base/clock.h"
#include "runtime/ops/op.h"

/* ---- problems ---- */

/* Columns of a problem after its fields, as fa2_mended_problem numbers them. */
enum { CLASS = FA2I_FIELD_COUNT, GFLOP };

typedef struct problem_row {
    fa2_problem problem;   /* of the fields that can be read */
    int bad, bad_field;    /* how many cannot, and the last of them */
    const char *class_key; /* NULL: it is no text */
    double gflop;
} problem_row;

/* A problem that the row may have been. */
typedef struct guess {
    fa2_problem problem;
    int count; /* of different ones */
} guess;

static double gflop_of(const fa2_problem *problem)
{
    return fa2i_problem_flop(problem) / 1e9;
}

/* Bits in which two texts or blobs of one length differ; INT32_MAX: they have different lengths. */
static int wrong_bits(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    const unsigned char *left = a, *right = b;
    int count = 0;
    if (a_bytes != b_bytes || a == NULL || b == NULL)
        return INT32_MAX;
    for (size_t i = 0; i < a_bytes; i++) {
        for (unsigned wrong = left[i] ^ right[i]; wrong != 0; wrong &= wrong - 1)
            count++;
    }
    return count;
}

static void add_guess(guess *g, const fa2_problem *problem)
{
    g->count += g->count == 0 || memcmp(&g->problem, problem, sizeof *problem) != 0;
    g->problem = *problem;
}

static void try_problem(const problem_row *row, const fa2_problem *problem, bool by_work, guess *g)
{
    char class_key[FA2I_CLASS_CHARS];
    if (fa2i_problem_check(problem) != FA2_OK)
        return;
    fa2i_problem_class(problem, class_key);
    const bool same = row->class_key != NULL && strcmp(class_key, row->class_key) == 0;
    if (same && (!by_work || gflop_of(problem) == row->gflop))
        add_guess(g, problem);
}

/* Other values of one field: those that differ in one bit, or all words. A value of another type was 0 or 1, which
 * SQLite stores in the type itself. */
static void try_field(const problem_row *row, int field, bool by_work, guess *g)
{
    const fa2i_field *f = &fa2i_fields[field];
    fa2_problem problem = row->problem;
    const uint32_t value = (uint32_t)fa2i_field_get(&problem, field);
    const bool is_words = f->type != FA2I_TYPE_INT;
    const int32_t first = is_words ? f->least : 0, last = is_words ? f->most : row->bad > 0 ? 1 : 31;
    for (int32_t i = first; i <= last; i++) {
        const bool is_bit = !is_words && row->bad == 0;
        fa2i_field_set(&problem, field, is_bit ? (int32_t)(value ^ (UINT32_C(1) << i)) : i);
        try_problem(row, &problem, by_work, g);
    }
}

/* The class may be what is wrong, if the work says that the fields are right. */
static void try_class(const problem_row *row, bool by_work, guess *g)
{
    char class_key[FA2I_CLASS_CHARS];
    if (row->bad > 0 || fa2i_problem_check(&row->problem) != FA2_OK)
        return;
    fa2i_problem_class(&row->problem, class_key);
    const bool near =
        row->class_key == NULL || wrong_bits(class_key, strlen(class_key), row->class_key, strlen(row->class_key)) == 1;
    if (near && (!by_work || gflop_of(&row->problem) == row->gflop))
        add_guess(g, &row->problem);
}

static guess guess_problem(const problem_row *row, bool by_work)
{
    guess g = {.count = 0};
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        if (row->bad == 0 || field == row->bad_field)
            try_field(row, field, by_work, &g);
    }
    try_class(row, by_work, &g);
    return g;
}

/* false: it cannot be told. Another version may have counted the work otherwise, so the work decides only between
 * guesses. */
static bool mend_problem(const problem_row *row, fa2_problem *ret_problem)
{
    guess g = {.count = 0};
    if (row->bad == 0)
        try_problem(row, &row->problem, false, &g); /* it is sound */
    if (g.count == 0 && row->bad <= 1)
        g = guess_problem(row, false);
    if (g.count > 1)
        g = guess_problem(row, true);
    *ret_problem = g.problem;
    return g.count == 1;
}

static void read_row(sqlite3_value **values, problem_row *ret_row)
{
    problem_row row = {.problem.op = FA2_OP_FORWARD, .gflop = sqlite3_value_double(values[GFLOP])};
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        int32_t value = 0;
        if (fa2i_columns_parse(field, values[field], &value)) {
            fa2i_field_set(&row.problem, field, value);
        } else {
            row.bad++;
            row.bad_field = field;
        }
    }
    if (sqlite3_value_type(values[CLASS]) == SQLITE_TEXT)
        row.class_key = (const char *)sqlite3_value_text(values[CLASS]);
    *ret_row = row;
}

static void result_field(sqlite3_context *context, const fa2_problem *problem, int field)
{
    const int32_t value = fa2i_field_get(problem, field);
    const char *word = fa2i_field_word(field, value);
    if (word != NULL)
        sqlite3_result_text(context, word, -1, SQLITE_STATIC);
    else
        sqlite3_result_int(context, value);
}

/* fa2_mended_problem(column, fields ..., class, gflop): the value of the column. */
static void mended_problem_sql(sqlite3_context *context, int count, sqlite3_value **values)
{
    const int column = sqlite3_value_int(values[0]);
    const fa2i_rule *work = fa2i_rule_of("problem", "gflop");
    char class_key[FA2I_CLASS_CHARS];
    size_t *mended = sqlite3_user_data(context);
    problem_row row;
    fa2_problem problem;
    (void)count;
    read_row(values + 1, &row);
    if (!mend_problem(&row, &problem)) {
        sqlite3_result_value(context, values[1 + column]);
        return;
    }
    *mended += column == 0 && (row.bad > 0 || memcmp(&problem, &row.problem, sizeof problem) != 0);
    if (column < FA2I_FIELD_COUNT) {
        result_field(context, &problem, column);
    } else if (column == CLASS) {
        fa2i_problem_class(&problem, class_key);
        *mended += row.class_key == NULL || strcmp(row.class_key, class_key) != 0;
        sqlite3_result_text(context, class_key, -1, SQLITE_TRANSIENT);
    } else if (sqlite3_value_type(values[1 + GFLOP]) != SQLITE_FLOAT || !fa2i_rule_takes_real(work, row.gflop)) {
        ++*mended;
        sqlite3_result_double(context, gflop_of(&problem));
    } else {
        sqlite3_result_double(context, row.gflop);
    }
}

/* fa2_wrong_bits(a, b) */
static void wrong_bits_sql(sqlite3_context *context, int count, sqlite3_value **values)
{
    const void *a = sqlite3_value_blob(values[0]), *b = sqlite3_value_blob(values[1]);
    (void)count;
    sqlite3_result_int(
        context, wrong_bits(a, (size_t)sqlite3_value_bytes(values[0]), b, (size_t)sqlite3_value_bytes(values[1])));
}

int fa2i_mend_register(sqlite3 *db, size_t *mended)
{
    const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY;
    const int code = sqlite3_create_function_v2(db, "fa2_mended_problem", FA2I_FIELD_COUNT + 3, flags, mended,
                                                mended_problem_sql, NULL, NULL, NULL);
    return code != SQLITE_OK
               ? code
               : sqlite3_create_function_v2(db, "fa2_wrong_bits", 2, flags, NULL, wrong_bits_sql, NULL, NULL, NULL);
}

static const char problem_columns[] = ""
#define FA2I_FIELD(name, ...) ", t." #name
#include "runtime/base/problem.def"
#undef FA2I_FIELD
                                      ", t.class, t.gflop";

/* The number of a column of a problem; -1: it is its id. */
static int problem_column(const char *name)
{
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        if (strcmp(fa2i_fields[field].name, name) == 0)
            return field;
    }
    return strcmp(name, "class") == 0 ? CLASS : strcmp(name, "gflop") == 0 ? GFLOP : -1;
}

void fa2i_mend_add_column(fa2i_text *sql, const char *table, const char *column)
{
    const int number = strcmp(table, "problem") == 0 ? problem_column(column) : -1;
    if (number < 0)
        fa2i_rules_add_mended(sql, table, column);
    else
        fa2i_text_add(sql, "fa2_mended_problem(%d%s)", number, problem_columns);
}

/* Those that are misfiled, or whose work is no number. */
static fa2_status mend_problems(fa2i_cache *cache)
{
    fa2i_text sql = {0};
    fa2i_text_add(&sql, "UPDATE OR IGNORE problem AS t SET ");
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        fa2i_text_add(&sql, "%s = ", fa2i_fields[field].name);
        fa2i_mend_add_column(&sql, "problem", fa2i_fields[field].name);
        fa2i_text_add(&sql, ", ");
    }
    fa2i_text_add(&sql, "class = fa2_mended_problem(%d%s), gflop = fa2_mended_problem(%d%s) WHERE fa2_misfiled(t.class",
                  CLASS, problem_columns, GFLOP, problem_columns);
    for (int field = 0; field < FA2I_FIELD_COUNT; field++)
        fa2i_text_add(&sql, ", t.%s", fa2i_fields[field].name);
    fa2i_text_add(&sql, ") OR typeof(t.gflop) <> 'real' OR t.gflop < 0 OR t.gflop = 9e999");
    const fa2_status st =
        sql.failed ? fa2i_fail(FA2_E_MEMORY, "out of memory") : fa2i_sql_run(cache, sql.data, NULL, 0);
    fa2i_text_done(&sql);
    return st;
}

/* ---- kernels with code ---- */

enum { PARTS = 6, TEXT_PARTS = 5 };
#define SEAL_SECONDS 4.0 /* for all kernels; the code of the others is made again */
static const char *const part_columns[TEXT_PARTS] = {"key", "variant", "class", "recipe", "target"};

/* A kernel whose seal is another than that of its columns. */
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

/* Try each bit of the columns, until the deadline. */
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

/* Selects the first kernel after an id whose seal is wrong, and whose code is not. */
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

/* A seal that fits shows which code is a kernel's, and that it is right. */
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
    /* The SM of a device: that of all code that ran on it. */
    "UPDATE OR IGNORE device AS t SET arch = x.sm FROM (SELECT r.device, "
    "min(CAST(substr(k.target, 4) AS INTEGER)) AS sm FROM " RESULTS " r "
    "JOIN kernel k ON k.id = r.kernel AND substr(k.target, 1, 3) = 'sm_' GROUP BY r.device "
    "HAVING count(DISTINCT k.target) = 1 AND count(*) > 1) x WHERE x.device = t.id AND x.sm <> t.arch "
    "AND (t.arch = 0 OR " ONE_BIT("t.arch", "x.sm") ")",
    /* The device of a session: that of its results. */
    "UPDATE session AS t SET device = x.device FROM (SELECT session, min(device) AS device FROM " RESULTS
    " WHERE device IN (SELECT id FROM device) GROUP BY session HAVING count(DISTINCT device) = 1 AND count(*) > 1) x "
    "WHERE x.session = t.id AND x.device <> t.device",
    /* The class of a kernel without code: that of its problems. */
    "UPDATE kernel AS t SET class = x.class FROM (SELECT r.kernel, min(p.class) AS class FROM " RESULTS
    " r JOIN problem p ON p.id = r.problem GROUP BY r.kernel HAVING count(DISTINCT p.class) = 1) x "
    "WHERE x.kernel = t.id AND t.id NOT IN (SELECT kernel FROM image) AND fa2_wrong_bits(t.class, x.class) = 1",
};

/* A table that others refer to, and how. */
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
    const fa2_status st =
        sql.failed ? fa2i_fail(FA2_E_MEMORY, "out of memory") : fa2i_sql_run(cache, sql.data, NULL, 0);
    if (st == FA2_OK)
        cache->mended += (size_t)sqlite3_changes(cache->db);
    fa2i_text_done(&sql);
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
