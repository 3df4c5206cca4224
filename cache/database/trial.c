/*
 * How: SQLite reads the bytes in place, and forgets what it read when the file's counter changes. So a try costs one
 * check of one table, without opening anything. Most tries cost less: reading the list of tables and compiling the
 * check take most of its time, and a wrong bit almost never passes the same check with the old list (is_promising).
 *
 * Invariants:
 * - a call changes at most one bit, and only if the check finds no fault after that. Several bits can pass, because
 *   SQLite does not know the rules for values. The bit with the fewest wrong values is taken;
 * - the time is limited, because the check of a large table takes long, and a file may have too many wrong bits.
 */
#include "cache/database/trial.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "cache/database/limits.h"
#include "cache/database/mend.h"
#include "runtime/base/clock.h"

enum { PAGES_MOST = 256, CELLS_MOST = 512, CELL_BYTES = 48, OVERFLOW_MOST = 64, FILE_HEADER_BYTES = 100 };
enum { LEAF_INDEX = 10, LEAF_TABLE = 13, INNER_INDEX = 2, INNER_TABLE = 5 };

/* A table whose pages are tried. */
typedef struct trial {
    const fa2i_image *image;
    fa2i_cache *cache;  /* a database in memory that uses these bytes */
    const char *table;  /* its name */
    const char *sql;    /* its first column is "ok" if nothing is wrong */
    const char *quick;  /* the same of the pages alone; NULL: bits are tried on which the list of tables depends */
    const char *faults; /* counts impossible values */
    const char *wanted; /* its first column is "ok" if rows that must be there are there; NULL: no such rows */
    sqlite3_stmt *quick_check, *wanted_check, *faults_count; /* compiled once; see is_promising */
    size_t at; /* byte offset of the best bit, and the bit; 0: none passed yet */
    unsigned char bit;
    int64_t fewest; /* wrong values with that bit changed; at first, with none changed */
    bool readable;  /* the rows can be read with no bit changed */
} trial;

static unsigned number_at(const unsigned char *at, int bytes)
{
    unsigned number = 0;
    for (int i = 0; i < bytes; i++)
        number = number << 8 | at[i];
    return number;
}

/* ---- one try ---- */

/* Changes the counter that SQLite compares before it uses pages that it read before. */
static void count_pages_change(const fa2i_image *image)
{
    image->data[27]++;
    image->data[95] = image->data[27];
}

/* Changes also the counter of tables, so that SQLite reads the list of tables again. */
static void count_change(const fa2i_image *image)
{
    count_pages_change(image);
    image->data[43]++;
}

/* Gets the result of SQLite's check; "" if SQLite cannot check at all. */
static void check(const trial *t, char *out, size_t out_bytes)
{
    sqlite3_stmt *stmt = NULL;
    out[0] = '\0';
    if (sqlite3_prepare_v2(t->cache->db, t->sql, -1, &stmt, NULL) == SQLITE_OK && sqlite3_step(stmt) == SQLITE_ROW) {
        const char *said = (const char *)sqlite3_column_text(stmt, 0);
        snprintf(out, out_bytes, "%s", said != NULL ? said : "");
    }
    if (sqlite3_finalize(stmt) != SQLITE_OK)
        out[0] = '\0';
}

/* Is nothing wrong with the bytes as they are now? */
static bool is_ok(const trial *t)
{
    char said[80];
    count_change(t->image);
    check(t, said, sizeof said);
    return strcmp(said, "ok") == 0;
}

/* Can every row be read, with any values? Faults in pages come first in SQLite's check. */
static bool is_readable(const trial *t)
{
    static const char *const about_rows[] = {"ok", "row ", "wrong # of entries", "non-unique entry",
                                             "CHECK constraint"};
    char said[80];
    check(t, said, sizeof said);
    for (size_t i = 0; i < sizeof about_rows / sizeof *about_rows; i++) {
        if (strncmp(said, about_rows[i], strlen(about_rows[i])) == 0)
            return true;
    }
    return false;
}

/* Counts impossible values; INT64_MAX: they cannot be counted. */
static int64_t count_faults(const trial *t)
{
    int64_t count = 0;
    if (fa2i_sql_number(t->cache, t->faults, NULL, 0, &count) != FA2_OK)
        return INT64_MAX;
    return count;
}

static bool is_found(const trial *t)
{
    return t->fewest == 0;
}

/* Runs a compiled statement again, to its first row. Compiles it if it was not yet, or not with the present list of
 * tables. Reset it afterwards. */
static bool run_again(const trial *t, const char *sql, sqlite3_stmt **stmt)
{
    return (*stmt != NULL || sqlite3_prepare_v2(t->cache->db, sql, -1, stmt, NULL) == SQLITE_OK) &&
           sqlite3_step(*stmt) == SQLITE_ROW;
}

/* Is the text "ok" its result? */
static bool is_ok_again(const trial *t, const char *sql, sqlite3_stmt **stmt)
{
    const char *said = run_again(t, sql, stmt) ? (const char *)sqlite3_column_text(*stmt, 0) : NULL;
    const bool ok = said != NULL && strcmp(said, "ok") == 0;
    sqlite3_reset(*stmt);
    return ok;
}

/* Would the bit be taken if is_ok were true? The first that passes is, if nothing can be read without it. */
static bool is_better(trial *t)
{
    if (t->at == 0 && !t->readable)
        return true;
    const bool better =
        run_again(t, t->faults, &t->faults_count) && sqlite3_column_int64(t->faults_count, 0) < t->fewest;
    sqlite3_reset(t->faults_count);
    return better;
}

/* Could the bit be taken? Checks the pages, and counts the rows that must be there and the impossible values, with the
 * list of tables as it was before the bit was changed. */
static bool is_promising(trial *t)
{
    if (t->quick == NULL)
        return true;
    count_pages_change(t->image);
    return is_ok_again(t, t->quick, &t->quick_check) &&
           (t->wanted == NULL || is_ok_again(t, t->wanted, &t->wanted_check)) && is_better(t);
}

static void try_bit(trial *t, size_t at, unsigned char bit)
{
    t->image->data[at] ^= bit;
    const bool promising = is_promising(t);
    if (promising && is_ok(t)) {
        const int64_t faults = count_faults(t);
        if (faults < t->fewest || (t->at == 0 && !t->readable)) {
            t->at = at;
            t->bit = bit;
            t->fewest = faults;
        }
    }
    t->image->data[at] ^= bit;
    if (promising)
        count_change(t->image); /* is_ok read the list of tables with the bit changed */
}

static bool is_over(const trial *t)
{
    return fa2i_limits_stopped(t->image->cache) || fa2i_clock_thread_s() > t->image->deadline;
}

/* Tells the log from time to time that the work goes on. */
static void say_progress(const trial *t)
{
    char line[160];
    const fa2i_cache *cache = t->image->cache;
    const double now = fa2i_now_s(), left = t->image->deadline - fa2i_clock_thread_s();
    if (cache->log == NULL || now < *t->image->next_line)
        return;
    *t->image->next_line = now + FA2I_TRIAL_LINES_S;
    snprintf(line, sizeof line, "looking for a wrong bit in the table %s, which cannot be read (at most %.0f s more)",
             t->table, left);
    cache->log(cache->log_user, line);
}

/* Tries each bit of some bytes. */
static void try_bytes(trial *t, size_t first, size_t count)
{
    for (size_t i = first; i < first + count && i < t->image->bytes && !is_over(t); i++) {
        say_progress(t);
        for (int bit = 0; bit < 8 && !is_found(t); bit++)
            try_bit(t, i, (unsigned char)(1U << bit));
    }
}

/* ---- pages ---- */

typedef struct page {
    size_t start, header; /* offsets in the file */
    unsigned type, cells;
    bool is_inner;
} page;

static page page_of(const fa2i_image *image, unsigned number)
{
    page p = {.start = (number - 1) * image->page_bytes};
    p.header = p.start + (number == 1 ? FILE_HEADER_BYTES : 0);
    p.type = image->data[p.header];
    p.is_inner = p.type == INNER_INDEX || p.type == INNER_TABLE;
    p.cells = number_at(image->data + p.header + 3, 2);
    const size_t room = (image->page_bytes - (p.header - p.start) - 12) / 2;
    p.cells = p.cells < room ? p.cells : (unsigned)room;
    p.cells = p.cells < CELLS_MOST ? p.cells : CELLS_MOST;
    return p;
}

static size_t cell_of(const fa2i_image *image, const page *p, unsigned index)
{
    return p->start + number_at(image->data + p->header + (p->is_inner ? 12 : 8) + 2 * index, 2);
}

static size_t varint_at(const fa2i_image *image, size_t *at)
{
    size_t value = 0;
    for (int i = 0; i < 9 && *at < image->bytes; i++) {
        const unsigned char byte = image->data[(*at)++];
        value = value << 7 | (byte & 0x7f);
        if (byte < 0x80)
            break;
    }
    return value;
}

/* Returns the number of a row's bytes in its cell (SQLite's file format). If it is `payload`, no bytes are
 * elsewhere. */
static size_t local_bytes(const fa2i_image *image, const page *p, size_t payload)
{
    const size_t usable = image->page_bytes, least = (usable - 12) * 32 / 255 - 23;
    const size_t most = p->type == LEAF_TABLE ? usable - 35 : (usable - 12) * 64 / 255 - 23;
    if (payload <= most)
        return payload;
    const size_t fitting = least + (payload - least) % (usable - 4);
    return fitting <= most ? fitting : least;
}

/* Tries the page numbers of the rest of a long row. */
static void try_overflow(trial *t, const page *p, size_t cell)
{
    const fa2i_image *image = t->image;
    size_t at = cell + (p->type == INNER_INDEX ? 4 : 0);
    const size_t payload = varint_at(image, &at);
    if (p->type == LEAF_TABLE)
        (void)varint_at(image, &at); /* the row's id */
    const size_t local = local_bytes(image, p, payload);
    if (p->type == INNER_TABLE || local == payload)
        return;
    at += local;
    for (int i = 0; i < OVERFLOW_MOST && at + 4 <= image->bytes && !is_found(t); i++) {
        const unsigned next = number_at(image->data + at, 4);
        try_bytes(t, at, 4);
        if (next == 0 || next > image->bytes / image->page_bytes)
            return;
        at = (next - 1) * image->page_bytes;
    }
}

/* Tries first the bytes on which all cells depend. */
static void try_page(trial *t, unsigned number)
{
    const page p = page_of(t->image, number);
    try_bytes(t, p.header + 3, 2); /* number of cells */
    try_bytes(t, p.header, 1);
    try_bytes(t, p.header + 5, 2);
    try_bytes(t, p.header + 8, 4 + 2 * (size_t)p.cells);
    for (unsigned i = 0; i < p.cells && !is_found(t); i++)
        try_overflow(t, &p, cell_of(t->image, &p, i));
    for (unsigned i = 0; i < p.cells && !is_found(t); i++)
        try_bytes(t, cell_of(t->image, &p, i), CELL_BYTES);
    try_bytes(t, p.header + 1, 2);
    try_bytes(t, p.header + 7, 1);
}

typedef struct pages {
    unsigned numbers[PAGES_MOST];
    int count;
} pages;

static void add_page(const fa2i_image *image, pages *found, unsigned number)
{
    if (number == 0 || number > image->bytes / image->page_bytes || found->count == PAGES_MOST)
        return;
    for (int i = 0; i < found->count; i++) {
        if (found->numbers[i] == number)
            return;
    }
    found->numbers[found->count++] = number;
}

/* Tries a page, and the pages below it as far as their numbers can be read. */
static void try_tree(trial *t, unsigned root)
{
    pages found = {.count = 0};
    const fa2i_image *image = t->image;
    add_page(image, &found, root);
    for (int i = 0; i < found.count; i++) { /* the loop adds more */
        const page p = page_of(image, found.numbers[i]);
        for (unsigned c = 0; p.is_inner && c < p.cells; c++) {
            const size_t at = cell_of(image, &p, c);
            if (at + 4 <= p.start + image->page_bytes)
                add_page(image, &found, number_at(image->data + at, 4));
        }
        if (p.is_inner)
            add_page(image, &found, number_at(image->data + p.header + 8, 4));
    }
    for (int i = 0; i < found.count && !is_found(t); i++)
        try_page(t, found.numbers[i]);
}

/* ---- tables ---- */

/* Opens the bytes. Returns false if nothing can be tried. Call done() after it in any case. */
static bool open_image(trial *t, const fa2i_image *image)
{
    *t = (trial){.image = image};
    if (fa2i_cache_open_empty("a damaged database", &t->cache) != FA2_OK)
        return false;
    sqlite3_db_config(t->cache->db, SQLITE_DBCONFIG_DEFENSIVE, 0, NULL);
    t->cache->stop = image->cache->stop;
    const int code = sqlite3_deserialize(t->cache->db, "main", image->data, (sqlite3_int64)image->bytes,
                                         (sqlite3_int64)image->bytes, SQLITE_DESERIALIZE_READONLY);
    return code == SQLITE_OK &&
           fa2i_sql_script(t->cache, "PRAGMA cell_size_check = OFF; PRAGMA writable_schema = ON") == FA2_OK;
}

static void done(trial *t)
{
    fa2i_cache_close(t->cache);
}

/* The texts stay the caller's. */
static void begin(trial *t, const char *table, const char *sql, const char *quick, const char *wanted,
                  const char *faults)
{
    *t = (trial){.image = t->image,
                 .cache = t->cache,
                 .table = table,
                 .sql = sql,
                 .quick = quick,
                 .wanted = wanted,
                 .faults = faults,
                 .fewest = INT64_MAX};
    t->readable = is_readable(t);
}

/* Changes the best bit, if there is one. */
static void end(trial *t)
{
    sqlite3_finalize(t->quick_check);
    sqlite3_finalize(t->wanted_check);
    sqlite3_finalize(t->faults_count);
    if (t->at == 0)
        return;
    t->image->data[t->at] ^= t->bit;
    count_change(t->image);
}

/* Is the page number of a row impossible for its table or index? */
#define NO_ROOT "(type IN ('table', 'index')) <> (rootpage BETWEEN 2 AND (SELECT page_count FROM pragma_page_count))"

/* Is the list of tables damaged in its pages, or in its page numbers? */
static bool has_broken_schema(const trial *t)
{
    static const char sql[] = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE " NO_ROOT ") OR "
                              "(SELECT integrity_check FROM pragma_integrity_check('sqlite_schema')) IS NOT 'ok'";
    int64_t broken = 0;
    return fa2i_sql_number(t->cache, sql, NULL, 0, &broken) != FA2_OK || broken != 0;
}

/* Begins a statement with the names of the tables as rows t (name). Returns the text's length. */
static size_t begin_names(char *sql, size_t bytes, const char *const *tables, int count)
{
    size_t used = (size_t)snprintf(sql, bytes, "WITH t (name) AS (VALUES ('%s')", tables[0]);
    for (int i = 1; i < count; i++)
        used += (size_t)snprintf(sql + used, bytes - used, ", ('%s')", tables[i]);
    return used;
}

void fa2i_trial_schema(const fa2i_image *image, const char *const *tables, int count, bool all)
{
    static const char quick[] = "PRAGMA integrity_check('sqlite_schema')";
    static const char faults[] =
        "SELECT sum(n) FROM (SELECT count(*) AS n FROM sqlite_schema "
        "WHERE type NOT IN ('table', 'index', 'view', 'trigger') "
        "OR sql NOT LIKE 'CREATE ' || type || ' ' || name || ' %' AND sql NOT LIKE 'CREATE UNIQUE INDEX %' "
        "OR " NO_ROOT " UNION ALL SELECT count(*) - count(DISTINCT rootpage) FROM sqlite_schema WHERE rootpage > 0)";
    char sql[1024], wanted[1024];
    size_t used = begin_names(sql, sizeof sql, tables, count);
    snprintf(
        sql + used, sizeof sql - used,
        ") SELECT iif(count(*) = %d AND (SELECT integrity_check FROM pragma_integrity_check('sqlite_schema')) = 'ok', "
        "'ok', 'no') FROM t WHERE EXISTS (SELECT 1 FROM pragma_table_info(t.name))",
        count);
    used = begin_names(wanted, sizeof wanted, tables, count);
    snprintf(wanted + used, sizeof wanted - used,
             ") SELECT iif(count(*) = %d, 'ok', 'no') FROM t WHERE EXISTS (SELECT 1 FROM sqlite_schema WHERE sql LIKE "
             "'CREATE TABLE ' || t.name || ' %%')",
             count);
    trial t;
    if (open_image(&t, image)) {
        begin(&t, "sqlite_schema", sql, quick, wanted, faults);
        if (has_broken_schema(&t) || (all && !t.readable)) {
            if (t.readable)
                t.fewest = count_faults(&t);
            try_tree(&t, 1);
        }
        end(&t);
    }
    done(&t);
}

/* Tries a table's first page number. In the list of tables it follows the table's type and, twice, its name. Old rows
 * of that list may also match. */
static void try_root(trial *t, const char *table)
{
    enum { ROOT_BYTES = 2 };
    char mark[200];
    const unsigned char *data = t->image->data;
    const char *const quick = t->quick;
    const size_t bytes = (size_t)snprintf(mark, sizeof mark, "table%s%s", table, table);
    t->quick = NULL;
    for (size_t i = 0; i + bytes + 4 <= t->image->bytes; i++) {
        if (data[i] == (unsigned char)mark[0] && memcmp(data + i, mark, bytes) == 0)
            try_bytes(t, i + bytes, ROOT_BYTES);
    }
    t->quick = quick;
}

/* Is the readable table empty, or does it share its first page with another? */
static bool is_root_doubtful(const trial *t, const char *table)
{
    char sql[200];
    int64_t doubtful = 0;
    snprintf(sql, sizeof sql,
             "SELECT NOT EXISTS (SELECT 1 FROM %s) OR (SELECT count(*) FROM sqlite_schema a JOIN sqlite_schema b "
             "USING (rootpage) WHERE a.name = '%s') > 1",
             table, table);
    return fa2i_sql_number(t->cache, sql, NULL, 0, &doubtful) == FA2_OK && doubtful != 0;
}

static void try_table(trial *t, const char *table)
{
    char sql[100];
    int64_t first = 0;
    fa2i_text faults = {0};
    const fa2i_sql_value values[] = {fa2i_sql_text(table)};
    snprintf(sql, sizeof sql, "PRAGMA integrity_check('%s')", table);
    fa2i_mend_add_faults(&faults, table);
    if (!faults.failed) {
        begin(t, table, sql, sql, NULL, faults.data);
        if (!t->readable) {
            (void)fa2i_sql_number(t->cache, "SELECT rootpage FROM sqlite_schema WHERE name = ?",
                                  FA2I_SQL_VALUES(values), &first);
            try_root(t, table);
            try_tree(t, (unsigned)first);
        } else if (is_root_doubtful(t, table)) {
            t->fewest = count_faults(t);
            try_root(t, table);
        }
        end(t);
    }
    fa2i_text_done(&faults);
}

void fa2i_trial_tables(const fa2i_image *image, const char *const *tables, int count)
{
    trial t;
    if (open_image(&t, image)) {
        for (int i = 0; i < count; i++)
            try_table(&t, tables[i]);
    }
    done(&t);
}
