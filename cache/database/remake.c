/*
 * How: SQLite's own check finds damage. The file's bytes become a database in memory, with a header as this fa2 writes
 * it. There each table's CREATE text is restored if one bit of it is wrong.
 *
 * Invariants:
 * - the file is locked from the check until it is written;
 * - a last page that is not whole is ignored;
 * - only the tables are read, and the index of the problems, which has their fields. Everything else is made anew;
 * - a row that its table's types and conditions refuse is left out and counted;
 * - answers are left out, because contexts find them again.
 */
#include "cache/database/remake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "cache/database/columns.h"
#include "cache/database/limits.h"
#include "cache/database/mend.h"
#include "cache/database/rules.h"
#include "cache/database/trial.h"
#include "cache/database/trust.h"
#include "runtime/base/alloc.h"
#include "runtime/base/clock.h"

/* Each table refers only to tables before it. */
static const char *const tables[] = {"device",       "problem",     "session", "kernel",  "code",  "image",
                                     "verification", "measurement", "winner",  "setting", "answer"};
enum { TABLE_COUNT = sizeof tables / sizeof *tables, COPIED_COUNT = TABLE_COUNT - 1 };

/* ---- is it damaged? ---- */

/* The columns of a table, with their types and conditions, in a fixed order. */
#define COLUMNS_OF(table)                                                                                              \
    "(SELECT group_concat(x, ', ') FROM (SELECT name || ' ' || type || ' ' || \"notnull\" || ' ' || pk AS x "          \
    "FROM pragma_table_info(" table ") ORDER BY name))"

fa2_status fa2i_remake_has_columns(fa2i_cache *cache, fa2i_cache *reference, const char *table, bool *ret_has)
{
    static const char sql[] = "SELECT " COLUMNS_OF("?1");
    const fa2i_sql_value values[] = {fa2i_sql_text(table)};
    sqlite3_stmt *ours = NULL, *theirs = NULL;
    fa2_status st;
    FA2_TRY(fa2i_sql_row(reference, sql, FA2I_SQL_VALUES(values), &ours));
    FA2_TRY(fa2i_sql_row(cache, sql, FA2I_SQL_VALUES(values), &theirs));
    const char *text = (const char *)sqlite3_column_text(theirs, 0);
    *ret_has = text != NULL && strcmp(text, (const char *)sqlite3_column_text(ours, 0)) == 0;
done:
    sqlite3_finalize(ours);
    sqlite3_finalize(theirs);
    return st;
}

/* Is one bit wrong in a row of sqlite_schema, or has a row a value that is no text? */
static fa2_status has_wrong_bit(fa2i_cache *cache, fa2i_cache *reference, bool *ret_wrong)
{
#define ROW  "type || name || tbl_name || sql"
#define ROWS "FROM sqlite_schema WHERE sql IS NOT NULL"
    static const char list[] = "SELECT json_group_array(" ROW ") " ROWS;
    static const char count_wrong[] =
        "WITH t (x) AS MATERIALIZED (SELECT " ROW " " ROWS
        ") SELECT (SELECT count(*) FROM t CROSS JOIN json_each(?) o WHERE fa2_wrong_bits(t.x, o.value) = 1) + "
        "(SELECT count(*) " ROWS
        " AND typeof(type) || typeof(name) || typeof(tbl_name) || typeof(sql) <> 'texttexttexttext')";
#undef ROW
#undef ROWS
    sqlite3_stmt *ours = NULL;
    int64_t count = 0;
    fa2_status st;
    FA2_TRY(fa2i_sql_row(reference, list, NULL, 0, &ours));
    const fa2i_sql_value values[] = {fa2i_sql_text((const char *)sqlite3_column_text(ours, 0))};
    FA2_TRY(fa2i_sql_number(cache, count_wrong, FA2I_SQL_VALUES(values), &count));
    *ret_wrong = count > 0;
done:
    sqlite3_finalize(ours);
    return st;
}

/* Is this code the fault of the file? Other failures say nothing about the file. */
static bool is_damage(int code)
{
    const int primary = code & 0xff;
    return primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB || primary == SQLITE_ERROR || primary == SQLITE_TOOBIG;
}

/* The result of the check of a file. */
typedef struct finding {
    char cause[sizeof((fa2i_remade *)0)->cause]; /* the damage; "": not damaged, or not of this version */
    bool intact;                                 /* SQLite can read all of it, and no table has a wrong name */
} finding;

/* Does sqlite_schema have a name that a new database does not have? */
static fa2_status has_strange_name(fa2i_cache *cache, fa2i_cache *reference, bool *ret_has)
{
    static const char list[] = "SELECT json_group_array(type || name) FROM sqlite_schema";
    static const char count[] = "SELECT count(*) FROM sqlite_schema WHERE type IS NULL OR name IS NULL "
                                "OR type || name NOT IN (SELECT value FROM json_each(?))";
    sqlite3_stmt *ours = NULL;
    int64_t strange = 0;
    fa2_status st;
    FA2_TRY(fa2i_sql_row(reference, list, NULL, 0, &ours));
    const fa2i_sql_value values[] = {fa2i_sql_text((const char *)sqlite3_column_text(ours, 0))};
    FA2_TRY(fa2i_sql_number(cache, count, FA2I_SQL_VALUES(values), &strange));
    *ret_has = strange > 0;
done:
    sqlite3_finalize(ours);
    return st;
}

/* Does the header's version differ from ours? *ret_wrong: it differs in one bit, and the file has as many objects as
 * ours. */
static fa2_status has_wrong_version(fa2i_cache *cache, fa2i_cache *reference, bool *ret_other, bool *ret_wrong)
{
    static const char count[] = "SELECT count(*) FROM sqlite_schema WHERE sql IS NOT NULL";
    int64_t ours = 0, theirs = 0, our_count = 0, their_count = 0;
    fa2_status st;
    FA2_TRY(fa2i_sql_number(reference, "PRAGMA user_version", NULL, 0, &ours));
    FA2_TRY(fa2i_sql_number(cache, "PRAGMA user_version", NULL, 0, &theirs));
    FA2_TRY(fa2i_sql_number(reference, count, NULL, 0, &our_count));
    FA2_TRY(fa2i_sql_number(cache, count, NULL, 0, &their_count));
    const uint32_t bits = (uint32_t)ours ^ (uint32_t)theirs;
    *ret_other = bits != 0;
    *ret_wrong = bits != 0 && (bits & (bits - 1)) == 0 && our_count == their_count;
done:
    return st;
}

/* Call it inside a transaction. */
static fa2_status look(fa2i_cache *cache, fa2i_cache *reference, finding *f)
{
    int64_t id = 0;
    bool has = true, wrong = false, other_version = false, wrong_version = false, strange = false;
    sqlite3_stmt *stmt = NULL;
    fa2_status st;
    FA2_TRY(fa2i_sql_number(cache, "PRAGMA application_id", NULL, 0, &id));
    FA2_TRY(has_wrong_bit(cache, reference, &wrong));
    FA2_TRY(has_wrong_version(cache, reference, &other_version, &wrong_version));
    for (int i = 0; has && i < TABLE_COUNT; i++)
        FA2_TRY(fa2i_remake_has_columns(cache, reference, tables[i], &has));
    if (!has && id == FA2I_APPLICATION_ID)
        FA2_TRY(has_strange_name(cache, reference, &strange));
    FA2_TRY(fa2i_sql_row(cache, "PRAGMA integrity_check(1)", NULL, 0, &stmt));
    fa2i_sql_column_line(stmt, 0, f->cause, sizeof f->cause);
    f->intact = strcmp(f->cause, "ok") == 0;
    if (other_version && !(wrong_version && has))
        f->cause[0] = '\0'; /* the tables are of a version that this fa2 does not know */
    else if (f->intact && (!has || wrong))
        snprintf(f->cause, sizeof f->cause, "a table is not the one that this fa2 makes");
    else if (f->intact && (other_version || id != FA2I_APPLICATION_ID))
        snprintf(f->cause, sizeof f->cause, "its header does not say that it is of this fa2");
    else if (f->intact)
        f->cause[0] = '\0';
    f->intact = f->intact && !strange;
done:
    sqlite3_finalize(stmt);
    if (st == FA2_OK || !is_damage(sqlite3_errcode(cache->db)))
        return st;
    snprintf(f->cause, sizeof f->cause, "%s", sqlite3_errmsg(cache->db));
    return FA2_OK;
}

/* ---- reading ---- */

enum { PAGE_LEAST = 512, PAGE_MOST = 65536 };

/* Writes the numbers of SQLite's file header that are the same in every file of fa2, and the numbers that depend on the
 * size. */
static void put_header(unsigned char *data, size_t bytes, unsigned page_bytes)
{
    static const unsigned char magic[16] = "SQLite format 3";
    static const struct {
        unsigned char at, value;
    } numbers[] = {{18, 1}, {19, 1}, {20, 0}, {21, 64}, {22, 32}, {23, 32}, {44, 0}, {45, 0},
                   {46, 0}, {47, 4}, {52, 0}, {53, 0},  {54, 0},  {55, 0},  {56, 0}, {57, 0},
                   {58, 0}, {59, 1}, {64, 0}, {65, 0},  {66, 0},  {67, 0}};
    const size_t pages = bytes / page_bytes;
    memcpy(data, magic, sizeof magic);
    data[16] = (unsigned char)(page_bytes >> 8); /* 65536 is stored as 1 */
    data[17] = (unsigned char)(page_bytes >> 16);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        data[numbers[i].at] = numbers[i].value;
    for (unsigned i = 0; i < 4; i++) {
        data[28 + i] = (unsigned char)(pages >> (24 - 8 * i));
        data[92 + i] = data[24 + i]; /* so that SQLite uses the number of pages */
    }
}

/* Opens the data, and takes them over. SQLite reads as much of the schema as it can. */
static fa2_status open_source(const fa2i_cache *cache, unsigned char *data, size_t bytes, fa2i_cache **ret_source)
{
    fa2i_cache *source = NULL;
    fa2_status st = fa2i_cache_open_bytes(cache->path, FA2I_CACHE_WRITE, data, bytes, &source);
    if (st != FA2_OK)
        return st;
    sqlite3_db_config(source->db, SQLITE_DBCONFIG_DEFENSIVE, 0, NULL);
    source->stop = cache->stop;
    source->remade.hopeless = true;
    st = fa2i_sql_script(source, "PRAGMA cell_size_check = OFF; PRAGMA writable_schema = ON");
    if (st == FA2_OK)
        *ret_source = source;
    else
        fa2i_cache_close(source);
    return st;
}

/* Restores the text of each table in whose row one bit is wrong. */
static fa2_status restore_texts(fa2i_cache *source, fa2i_cache *reference)
{
    static const fa2i_sql_value none[2];
    fa2_status st;
    sqlite3_stmt *text = NULL, *restore = NULL;
    FA2_TRY(fa2i_sql_prepare(reference, "SELECT sql FROM sqlite_schema WHERE name = ?", none, 1, &text));
    /* Fails if SQLite cannot read the list of tables. Then nothing is restored. */
    (void)fa2i_sql_prepare(source,
                           "UPDATE sqlite_schema SET type = 'table', name = ?1, tbl_name = ?1, sql = ?2 WHERE "
                           "fa2_wrong_bits(type || name || tbl_name || sql, 'table' || ?1 || ?1 || ?2) BETWEEN 0 AND 1",
                           none, 2, &restore);
    for (int i = 0; restore != NULL && i < TABLE_COUNT; i++) {
        const fa2i_sql_value name[] = {fa2i_sql_text(tables[i])};
        FA2_TRY(fa2i_sql_again(reference, text, FA2I_SQL_VALUES(name)));
        const fa2i_sql_value values[] = {name[0], fa2i_sql_text((const char *)sqlite3_column_text(text, 0))};
        (void)fa2i_sql_again(source, restore, FA2I_SQL_VALUES(values));
    }
    sqlite3_reset(restore); /* ends its transaction */
    /* Other objects are not read, and must not run. */
    (void)fa2i_sql_run(source, "DELETE FROM sqlite_schema WHERE type IS NOT 'table' AND sql IS NOT NULL", NULL, 0);
done:
    sqlite3_finalize(text);
    sqlite3_finalize(restore);
    return st;
}

/* Does it have as many tables as there should be? */
static bool has_table_count(fa2i_cache *source)
{
    static const char count[] = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'";
    int64_t found = 0;
    return fa2i_sql_number(source, count, NULL, 0, &found) == FA2_OK && found == TABLE_COUNT;
}

/* Does it have all tables and no others, with all their columns, of any type? */
static bool has_tables(fa2i_cache *source, fa2i_cache *reference)
{
    static const char list[] = "SELECT json_group_array(name), count(*) FROM pragma_table_info(?)";
    static const char count[] = "SELECT count(*) FROM pragma_table_info(?) WHERE name IN (SELECT value FROM "
                                "json_each(?))";
    static const fa2i_sql_value none[2];
    sqlite3_stmt *ours = NULL, *theirs = NULL;
    bool has = has_table_count(source) && fa2i_sql_prepare(reference, list, none, 1, &ours) == FA2_OK &&
               fa2i_sql_prepare(source, count, none, 2, &theirs) == FA2_OK;
    for (int i = 0; has && i < TABLE_COUNT; i++) {
        const fa2i_sql_value name[] = {fa2i_sql_text(tables[i])};
        has = fa2i_sql_again(reference, ours, FA2I_SQL_VALUES(name)) == FA2_OK;
        if (!has)
            break;
        const fa2i_sql_value both[] = {name[0], fa2i_sql_text((const char *)sqlite3_column_text(ours, 0))};
        has = fa2i_sql_again(source, theirs, FA2I_SQL_VALUES(both)) == FA2_OK &&
              sqlite3_column_int64(theirs, 0) == sqlite3_column_int64(ours, 1);
    }
    sqlite3_finalize(ours);
    sqlite3_finalize(theirs);
    return has;
}

/* Makes the bytes of a database in which the tables' texts are restored. *ret_data belongs to the caller
 * (sqlite3_free). */
static fa2_status open_tables(const fa2i_cache *cache, fa2i_cache *reference, const fa2i_image *image,
                              unsigned char **ret_data, sqlite3_int64 *ret_bytes)
{
    fa2_status st;
    fa2i_cache *source = NULL;
    unsigned char *copy = sqlite3_malloc64(image->bytes);
    if (copy == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for %zu bytes", image->bytes);
    memcpy(copy, image->data, image->bytes);
    FA2_TRY(open_source(cache, copy, image->bytes, &source));
    FA2_TRY(restore_texts(source, reference));
    *ret_data = sqlite3_serialize(source->db, "main", ret_bytes, 0);
    if (*ret_data == NULL)
        st = fa2i_fail(FA2_E_MEMORY, "no memory for %zu bytes", image->bytes);
done:
    fa2i_cache_close(source);
    return st;
}

/* Opens these bytes again with this page size, so that the restored texts count. FA2_E_NOT_FOUND: tables are
 * missing. */
static fa2_status open_with(const fa2i_cache *cache, fa2i_cache *reference, const fa2i_image *image,
                            fa2i_cache **ret_source)
{
    unsigned char *data = NULL;
    sqlite3_int64 bytes = 0;
    fa2i_cache *source = NULL;
    put_header(image->data, image->bytes, (unsigned)image->page_bytes);
    fa2_status st = open_tables(cache, reference, image, &data, &bytes);
    if (st != FA2_OK)
        return st;
    fa2i_image restored = *image;
    restored.data = data;
    restored.bytes = (size_t)bytes;
    fa2i_trial_tables(&restored, tables, COPIED_COUNT);
    st = open_source(cache, data, (size_t)bytes, &source);
    if (st == FA2_OK && !has_tables(source, reference))
        st = FA2_E_NOT_FOUND;
    if (st == FA2_OK)
        *ret_source = source;
    else
        fa2i_cache_close(source);
    return st;
}

/* Reads the file as whole pages of this size. Returns false if it has none, or if it is no size of a page. */
static bool set_page_size(fa2i_image *image, size_t bytes, size_t size)
{
    if (size < PAGE_LEAST || size > PAGE_MOST || (size & (size - 1)) != 0 || size > bytes)
        return false;
    image->page_bytes = size;
    image->bytes = bytes - bytes % size;
    return true;
}

/* rest: the number of bytes after the last whole page. */
static void say_rest(const fa2i_cache *cache, size_t rest)
{
    fa2i_text line = {0};
    fa2i_text_add(&line, "%s: its last page is not whole; its %zu byte%s ignored", cache->path, rest,
                  rest == 1 ? " is" : "s are");
    if (cache->log != NULL && !line.failed)
        cache->log(cache->log_user, line.data);
    fa2i_text_done(&line);
}

/* intact: SQLite finds no fault with the file's pages. */
static fa2_status read_source(const fa2i_cache *cache, fa2i_cache *reference, const char *resolved, bool intact,
                              fa2i_cache **ret_source)
{
    unsigned char *data = NULL;
    size_t bytes = 0;
    double next_line = fa2i_now_s() + 1;
    fa2_status st = fa2i_trust_read(cache->path, resolved, &data, &bytes);
    if (st != FA2_OK || bytes < PAGE_LEAST) {
        sqlite3_free(data);
        return st != FA2_OK ? st : FA2_E_NOT_FOUND;
    }
    const unsigned said = (unsigned)data[16] << 8 | (unsigned)data[17] << 16;
    fa2i_image image = {
        .data = data, .cache = cache, .deadline = fa2i_clock_thread_s() + FA2I_TRIAL_SECONDS, .next_line = &next_line};
    const bool is_size = set_page_size(&image, bytes, said);
    if (is_size && !intact) { /* before the list of tables is written */
        put_header(data, image.bytes, said);
        fa2i_trial_schema(&image, tables, TABLE_COUNT, false);
    }
    st = is_size ? open_with(cache, reference, &image, ret_source) : FA2_E_NOT_FOUND;
    if (is_size && !intact && st == FA2_E_NOT_FOUND) {
        fa2i_trial_schema(&image, tables, TABLE_COUNT, true);
        st = open_with(cache, reference, &image, ret_source);
    }
    for (size_t size = PAGE_LEAST; !intact && st == FA2_E_NOT_FOUND && set_page_size(&image, bytes, size); size *= 2)
        st = open_with(cache, reference, &image, ret_source);
    if (st == FA2_OK && image.bytes < bytes)
        say_rest(cache, bytes - image.bytes);
    sqlite3_free(data);
    return fa2i_limits_stopped(cache) && st == FA2_E_NOT_FOUND ? fa2i_limits_fail_stopped(cache) : st;
}

/* ---- copying ---- */

/* Makes "SELECT mended value, ... FROM table" and "INSERT ... VALUES (?, ...)". */
static fa2_status make_copy_texts(fa2i_cache *fresh, const char *table, fa2i_text *select, fa2i_text *insert)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    fa2i_text marks = {0};
    const fa2i_sql_value values[] = {fa2i_sql_text(table)};

    FA2_TRY(fa2i_sql_prepare(fresh, "SELECT name FROM pragma_table_info(?)", FA2I_SQL_VALUES(values), &stmt));
    fa2i_text_add(insert, "INSERT OR IGNORE INTO %s (", table);
    for (const char *separator = ""; fa2i_sql_next(fresh, stmt, &st); separator = ", ") {
        const char *name = (const char *)sqlite3_column_text(stmt, 0);
        fa2i_text_add(select, "%s", separator[0] == '\0' ? "SELECT " : separator);
        fa2i_rules_add_mended(select, table, name);
        fa2i_text_add(insert, "%s%s", separator, name);
        fa2i_text_add(&marks, "%s?", separator);
    }
    if (st != FA2_OK)
        goto done;
    fa2i_text_add(select, " FROM %s t NOT INDEXED", table);
    fa2i_text_add(insert, ") VALUES (%s)", marks.data);
    if (select->failed || insert->failed || marks.failed)
        st = fa2i_fail(FA2_E_MEMORY, "out of memory");
done:
    sqlite3_finalize(stmt);
    fa2i_text_done(&marks);
    return st;
}

/* Copies rows until the end, or until a row cannot be read: *ret_all is then false. Counts the rows that were
 * refused. */
static fa2_status copy_rows(fa2i_cache *source, fa2i_cache *fresh, const char *select, const char *insert,
                            bool *ret_all, size_t *refused)
{
    fa2_status st = FA2_OK;
    sqlite3_stmt *from = NULL, *to = NULL; /* its values are bound for each row */
    int code = sqlite3_prepare_v2(source->db, select, -1, &from, NULL);
    const int prepared = sqlite3_prepare_v2(fresh->db, insert, -1, &to, NULL);
    if (prepared != SQLITE_OK)
        st = fa2i_sql_fail(fresh, prepared);
    while (st == FA2_OK && code == SQLITE_OK && (code = sqlite3_step(from)) == SQLITE_ROW) {
        for (int i = 0; i < sqlite3_column_count(from); i++)
            sqlite3_bind_value(to, i + 1, sqlite3_column_value(from, i));
        const int stored = sqlite3_step(to);
        if (stored != SQLITE_DONE && (stored & 0xff) != SQLITE_CONSTRAINT)
            st = fa2i_sql_fail(fresh, stored);
        *refused += stored != SQLITE_DONE || sqlite3_changes(fresh->db) == 0;
        sqlite3_reset(to);
        code = SQLITE_OK;
    }
    *ret_all = code == SQLITE_DONE;
    if (st == FA2_OK && !*ret_all && !is_damage(code))
        st = fa2i_sql_fail(source, code);
    sqlite3_finalize(from);
    sqlite3_finalize(to);
    return st;
}

/* Copies from both ends, so that one wrong page loses no rows of other pages. */
static fa2_status copy_table(fa2i_cache *source, fa2i_cache *fresh, const char *table, size_t *refused)
{
    static const struct {
        const char *table, *key;
    } keys[] = {{"verification", "device DESC, kernel DESC"},
                {"measurement", "device DESC, problem DESC, kernel DESC"},
                {"winner", "device DESC, problem DESC"},
                {"setting", "name DESC"}};
    const char *key = "rowid DESC";
    fa2i_text select = {0}, insert = {0};
    bool all = true;
    size_t again = 0;
    fa2_status st = make_copy_texts(fresh, table, &select, &insert);
    if (st == FA2_OK)
        st = copy_rows(source, fresh, select.data, insert.data, &all, refused);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        key = strcmp(table, keys[i].table) == 0 ? keys[i].key : key;
    fa2i_text_add(&select, " ORDER BY %s", key);
    if (st == FA2_OK && !all && !select.failed)
        st = copy_rows(source, fresh, select.data, insert.data, &all, &again);
    fa2i_text_done(&select);
    fa2i_text_done(&insert);
    return st;
}

/* Copies the content of the file's own index of problems, as far as it is readable. */
static fa2_status copy_problem_fields(fa2i_cache *cache, fa2i_cache *fresh)
{
    fa2i_text select = {0}, insert = {0};
    bool all = false;
    size_t none = 0;
    fa2_status st = fa2i_mend_make_copy(fresh);
    fa2i_text_add(&select, "SELECT id, %s FROM problem INDEXED BY problem_fields", fa2i_columns_fields);
    fa2i_text_add(&insert, "INSERT OR IGNORE INTO temp.problem_copy VALUES (?");
    for (int i = 0; i < FA2I_FIELD_COUNT; i++)
        fa2i_text_add(&insert, ", ?");
    fa2i_text_add(&insert, ")");
    if (select.failed || insert.failed)
        st = fa2i_fail(FA2_E_MEMORY, "out of memory");
    if (st == FA2_OK) {
        fa2_status copied = fa2i_sql_begin(cache, FA2I_CACHE_READ);
        if (copied == FA2_OK)
            copied = copy_rows(cache, fresh, select.data, insert.data, &all, &none);
        (void)fa2i_sql_end(cache, copied); /* the rows themselves are copied already */
    }
    fa2i_text_done(&select);
    fa2i_text_done(&insert);
    return st;
}

static fa2_status copy_all(fa2i_cache *cache, fa2i_cache *source, fa2i_cache *fresh, size_t *refused)
{
    fa2_status st;
    size_t dropped = 0, put = 0;
    source->mended = 0;
    sqlite3_db_config(fresh->db, SQLITE_DBCONFIG_ENABLE_FKEY, 0, NULL);
    FA2_TRY(fa2i_sql_begin(fresh, FA2I_CACHE_WRITE));
    for (int i = 0; i < COPIED_COUNT; i++)
        FA2_TRY(copy_table(source, fresh, tables[i], refused));
    FA2_TRY(copy_problem_fields(cache, fresh));
    FA2_TRY(fa2i_mend_by_copy(fresh, &dropped, &put));
    source->mended += put;
    *refused = *refused + dropped > put ? *refused + dropped - put : 0;
done:
    return fa2i_sql_end(fresh, st);
}

/* ---- writing ---- */

/* Writes the header of the database that was read from the file. Without it SQLite refuses to write to the file. */
static fa2_status write_header(const fa2i_cache *cache, fa2i_cache *source, const char *resolved)
{
    enum { HEADER_BYTES = 100 };
    sqlite3_int64 bytes = 0;
    const unsigned char *data = sqlite3_serialize(source->db, "main", &bytes, SQLITE_SERIALIZE_NOCOPY);
    if (data == NULL || bytes < HEADER_BYTES)
        return fa2i_fail(FA2_E_MEMORY, "out of memory");
    const int file = open(resolved, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    const bool is_written = file >= 0 && pwrite(file, data, HEADER_BYTES, 0) == HEADER_BYTES && fsync(file) == 0;
    const int error = errno;
    if (file >= 0)
        close(file);
    return is_written ? FA2_OK : fa2i_fail(FA2_E_IO, "%s: cannot be written (%s)", cache->path, strerror(error));
}

/* Does SQLite refuse to write because of the file's header? */
static bool has_wrong_header(int code)
{
    return code == SQLITE_NOTADB || code == SQLITE_READONLY || (code & 0xff) == SQLITE_CORRUPT;
}

static int overwrite(fa2i_cache *cache, fa2i_cache *fresh)
{
    sqlite3_backup *backup = sqlite3_backup_init(cache->db, "main", fresh->db, "main");
    if (backup == NULL)
        return sqlite3_extended_errcode(cache->db);
    sqlite3_backup_step(backup, -1);
    return sqlite3_backup_finish(backup);
}

/* Opens the file again, because a connection remembers the header that it read first. */
static fa2_status reconnect(fa2i_cache *cache, const char *resolved)
{
    sqlite3_close(cache->db);
    cache->db = NULL;
    return fa2i_cache_connect(cache, resolved, SQLITE_OPEN_READWRITE);
}

static fa2_status write_fresh(fa2i_cache *cache, fa2i_cache *source, fa2i_cache *fresh, const char *resolved)
{
    fa2_status st = FA2_OK;
    int code = overwrite(cache, fresh);
    if (has_wrong_header(code)) {
        FA2_TRY(write_header(cache, source, resolved));
        FA2_TRY(reconnect(cache, resolved));
        code = overwrite(cache, fresh);
    }
    if (code != SQLITE_OK)
        st = fa2i_sql_fail(cache, code);
    else if (sqlite3_exec(cache->db, "SELECT count(*) FROM sqlite_schema", NULL, NULL, NULL) != SQLITE_OK)
        st = reconnect(cache, resolved); /* the text encoding was another one */
done:
    return st;
}

/* ---- all ---- */

static void say_begin(const fa2i_cache *cache, const finding *f)
{
    fa2i_text line = {0};
    fa2i_text_add(&line,
                  "%s: is damaged (%s); reading what can be read. The file is written at the end, at once, and "
                  "stays as it is if this is stopped before",
                  cache->path, f->cause);
    if (cache->log != NULL && !line.failed)
        cache->log(cache->log_user, line.data);
    fa2i_text_done(&line);
}

static fa2_status remake(fa2i_cache *cache, fa2i_cache *fresh, const char *resolved, const finding *f)
{
    fa2_status st;
    fa2i_cache *source = NULL;
    size_t refused = 0;
    say_begin(cache, f);
    /* A log may hold content that the file does not have yet. */
    (void)sqlite3_exec(cache->db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL);
    FA2_TRY(read_source(cache, fresh, resolved, f->intact, &source));
    FA2_TRY(copy_all(cache, source, fresh, &refused));
    FA2_TRY(write_fresh(cache, source, fresh, resolved));
    cache->mended += source->mended;
    cache->remade = (fa2i_remade){.done = true, .refused = refused};
    snprintf(cache->remade.cause, sizeof cache->remade.cause, "%s", f->cause);
done:
    fa2i_cache_close(source);
    cache->remade.hopeless = st == FA2_E_NOT_FOUND;
    return st == FA2_E_NOT_FOUND ? FA2_OK : st;
}

fa2_status fa2i_remake_if_damaged(fa2i_cache *cache, const char *resolved)
{
    fa2_status st;
    finding f = {.cause = ""};
    fa2i_cache *fresh = NULL;
    FA2_TRY(fa2i_cache_open_empty("a new database", &fresh));
    (void)sqlite3_exec(cache->db, "PRAGMA locking_mode = EXCLUSIVE", NULL, NULL, NULL);
    st = fa2i_sql_begin(cache, FA2I_CACHE_WRITE);
    if (st == FA2_OK)
        st = look(cache, fresh, &f);
    else if (has_wrong_header(sqlite3_extended_errcode(cache->db))) /* no other process can write to it either */
        snprintf(f.cause, sizeof f.cause, "%s", sqlite3_errmsg(cache->db));
    const fa2_status ended = fa2i_sql_end(cache, st);
    st = f.cause[0] != '\0' ? remake(cache, fresh, resolved, &f) : ended;
    (void)sqlite3_exec(cache->db, "PRAGMA locking_mode = NORMAL; SELECT count(*) FROM sqlite_schema", NULL, NULL, NULL);
done:
    fa2i_cache_close(fresh);
    return st;
}
