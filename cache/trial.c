/*
 * How: SQLite reads the bytes where they lie, and forgets what it read when the file's counter changes. So a try costs
 * one check of one table, without opening anything.
 *
 * Invariants:
 * - at most one bit is changed for each call, and only if the check finds nothing wrong then;
 * - the time is limited, because a large table takes long to check.
 */
#include "cache/trial.h"

#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/clock.h"

enum { PAGES_MOST = 256, CELLS_MOST = 512, CELL_BYTES = 48, OVERFLOW_MOST = 64, FILE_HEADER_BYTES = 100 };
enum { LEAF_INDEX = 10, LEAF_TABLE = 13, INNER_INDEX = 2, INNER_TABLE = 5 };
#define TRIAL_SECONDS 20.0

/* A table whose pages are tried. */
typedef struct trial {
    const fa2i_image *image;
    sqlite3 *db;
    const char *sql; /* its first column is "ok" if nothing is wrong */
    double deadline;
    bool found;
} trial;

static unsigned number_at(const unsigned char *at, int bytes)
{
    unsigned number = 0;
    for (int i = 0; i < bytes; i++)
        number = number << 8 | at[i];
    return number;
}

/* ---- one try ---- */

/* SQLite compares two counters before it believes what it read before: of the content, and of the tables. */
static void count_change(const fa2i_image *image)
{
    image->data[27]++;
    image->data[95] = image->data[27];
    image->data[43]++;
}

/* "" where SQLite cannot even check. */
static void check(const trial *t, char *out, size_t out_bytes)
{
    sqlite3_stmt *stmt = NULL;
    out[0] = '\0';
    if (sqlite3_prepare_v2(t->db, t->sql, -1, &stmt, NULL) == SQLITE_OK && sqlite3_step(stmt) == SQLITE_ROW) {
        const char *said = (const char *)sqlite3_column_text(stmt, 0);
        snprintf(out, out_bytes, "%s", said != NULL ? said : "");
    }
    if (sqlite3_finalize(stmt) != SQLITE_OK)
        out[0] = '\0';
}

static bool is_ok(const trial *t)
{
    char said[80];
    check(t, said, sizeof said);
    return strcmp(said, "ok") == 0;
}

/* Can every row be read, whatever it holds? SQLite says first what is wrong with pages. */
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

/* Tries each bit of some bytes. */
static void try_bytes(trial *t, size_t first, size_t count)
{
    for (size_t i = first; i < first + count && i < t->image->bytes && !t->found; i++) {
        for (int bit = 0; bit < 8 && !t->found && fa2i_clock_thread_s() < t->deadline; bit++) {
            t->image->data[i] ^= (unsigned char)(1U << bit);
            count_change(t->image);
            t->found = is_ok(t);
            if (!t->found)
                t->image->data[i] ^= (unsigned char)(1U << bit);
        }
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

/* Bytes of a row that lie in its cell, as SQLite's file format has it; all of them: nothing lies elsewhere. */
static size_t local_bytes(const fa2i_image *image, const page *p, size_t payload)
{
    const size_t usable = image->page_bytes, least = (usable - 12) * 32 / 255 - 23;
    const size_t most = p->type == LEAF_TABLE ? usable - 35 : (usable - 12) * 64 / 255 - 23;
    if (payload <= most)
        return payload;
    const size_t fitting = least + (payload - least) % (usable - 4);
    return fitting <= most ? fitting : least;
}

/* The numbers of the pages on which a long row goes on. */
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
    for (int i = 0; i < OVERFLOW_MOST && at + 4 <= image->bytes && !t->found; i++) {
        const unsigned next = number_at(image->data + at, 4);
        try_bytes(t, at, 4);
        if (next == 0 || next > image->bytes / image->page_bytes)
            return;
        at = (next - 1) * image->page_bytes;
    }
}

/* First what all cells depend on. */
static void try_page(trial *t, unsigned number)
{
    const page p = page_of(t->image, number);
    try_bytes(t, p.header + 3, 2); /* number of cells */
    try_bytes(t, p.header, 1);
    try_bytes(t, p.header + 5, 2);
    try_bytes(t, p.header + 8, 4 + 2 * (size_t)p.cells);
    for (unsigned i = 0; i < p.cells && !t->found; i++)
        try_overflow(t, &p, cell_of(t->image, &p, i));
    for (unsigned i = 0; i < p.cells && !t->found; i++)
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

/* A page, and those below it as far as their numbers can be read. */
static void try_tree(trial *t, unsigned root)
{
    pages found = {.count = 0};
    const fa2i_image *image = t->image;
    add_page(image, &found, root);
    for (int i = 0; i < found.count; i++) { /* more come while it runs */
        const page p = page_of(image, found.numbers[i]);
        for (unsigned c = 0; p.is_inner && c < p.cells; c++) {
            const size_t at = cell_of(image, &p, c);
            if (at + 4 <= p.start + image->page_bytes)
                add_page(image, &found, number_at(image->data + at, 4));
        }
        if (p.is_inner)
            add_page(image, &found, number_at(image->data + p.header + 8, 4));
    }
    for (int i = 0; i < found.count && !t->found; i++)
        try_page(t, found.numbers[i]);
}

/* ---- tables ---- */

static bool begin(trial *t, const fa2i_image *image, const char *sql)
{
    *t = (trial){.image = image, .sql = sql, .deadline = fa2i_clock_thread_s() + TRIAL_SECONDS};
    int code = sqlite3_open_v2(":memory:", &t->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_deserialize(t->db, "main", image->data, (sqlite3_int64)image->bytes, (sqlite3_int64)image->bytes,
                                   SQLITE_DESERIALIZE_READONLY);
    return code == SQLITE_OK && sqlite3_exec(t->db, "PRAGMA writable_schema = ON", NULL, NULL, NULL) == SQLITE_OK &&
           !is_readable(t);
}

void fa2i_trial_schema(const fa2i_image *image, const char *const *tables, int count)
{
    char sql[1024];
    size_t used = (size_t)snprintf(sql, sizeof sql, "WITH t (name) AS (VALUES ('%s')", tables[0]);
    for (int i = 1; i < count; i++)
        used += (size_t)snprintf(sql + used, sizeof sql - used, ", ('%s')", tables[i]);
    snprintf(
        sql + used, sizeof sql - used,
        ") SELECT iif(count(*) = %d AND (SELECT integrity_check FROM pragma_integrity_check('sqlite_schema')) = 'ok', "
        "'ok', 'no') FROM t WHERE EXISTS (SELECT 1 FROM pragma_table_info(t.name))",
        count);
    trial t;
    if (begin(&t, image, sql))
        try_tree(&t, 1);
    sqlite3_close(t.db);
}

/* Where the list of tables says on which page a table begins: after its type and, twice, its name. NULL: nowhere. */
static unsigned char *find_root(const fa2i_image *image, const char *table)
{
    char mark[200];
    const size_t bytes = (size_t)snprintf(mark, sizeof mark, "table%s%s", table, table);
    for (size_t i = 0; i + bytes + 4 <= image->bytes; i++) {
        if (image->data[i] == (unsigned char)mark[0] && memcmp(image->data + i, mark, bytes) == 0)
            return image->data + i + bytes;
    }
    return NULL;
}

bool fa2i_trial_table(const fa2i_image *image, const char *table)
{
    enum { ROOT_BYTES = 2 };
    char sql[100], root_sql[100];
    trial t;
    unsigned char *root = find_root(image, table);
    snprintf(sql, sizeof sql, "PRAGMA integrity_check('%s')", table);
    snprintf(root_sql, sizeof root_sql, "SELECT rootpage FROM sqlite_schema WHERE name = '%s'", table);
    if (begin(&t, image, sql)) {
        sqlite3_stmt *stmt = NULL;
        unsigned first = 0;
        if (sqlite3_prepare_v2(t.db, root_sql, -1, &stmt, NULL) == SQLITE_OK && sqlite3_step(stmt) == SQLITE_ROW)
            first = (unsigned)sqlite3_column_int(stmt, 0);
        sqlite3_finalize(stmt);
        try_tree(&t, first);
        if (root != NULL)
            try_bytes(&t, (size_t)(root - image->data), ROOT_BYTES);
    }
    sqlite3_close(t.db);
    return t.found;
}
