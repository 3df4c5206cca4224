/*
 * Databases with one error, made without the library. check.h counts failures.
 */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <sys/stat.h>
#include "check.h"

static inline void copy_file(const char *from, const char *to)
{
    static char bytes[1 << 20];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    CHECK(in != NULL && out != NULL);
    const size_t count = fread(bytes, 1, sizeof bytes, in);
    CHECK(count > 0 && count < sizeof bytes);
    CHECK_EQ(fwrite(bytes, 1, count, out), count);
    fclose(in);
    CHECK_EQ(fclose(out), 0);
    CHECK_EQ(chmod(to, 0600), 0);
}

/* Runs SQL on the file without the library. Returns false if SQLite itself refuses it. */
static inline bool damage(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    CHECK_EQ(sqlite3_open(path, &db), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(db,
                          "PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF; "
                          "PRAGMA ignore_check_constraints = ON",
                          NULL, NULL, NULL),
             SQLITE_OK);
    const int code = sqlite3_exec(db, sql, NULL, NULL, NULL);
    if (code != SQLITE_OK && code != SQLITE_CONSTRAINT && code != SQLITE_MISMATCH)
        fprintf(stderr, "%s: %s\n", sql, sqlite3_errmsg(db));
    CHECK(code == SQLITE_OK || code == SQLITE_CONSTRAINT || code == SQLITE_MISMATCH);
    sqlite3_close(db);
    return code == SQLITE_OK;
}

/* The same in rows of `problem` alone, as a wrong bit does it: the index problem_fields keeps what it has. */
static inline void damage_problem_row(const char *path, const char *sql)
{
    CHECK(damage(path, "PRAGMA writable_schema = ON; CREATE TABLE kept AS SELECT * FROM sqlite_schema "
                       "WHERE name = 'problem_fields'; DELETE FROM sqlite_schema WHERE name = 'problem_fields'"));
    CHECK(damage(path, sql));
    CHECK(damage(path, "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema SELECT * FROM kept; DROP TABLE kept"));
}

/* Values that some column may not have. */
static const char *const damage_values[] = {
    "-3",
    "0",
    "1e999",
    "-1e999",
    "-0.5",
    "1 << 62",
    "''",
    "'bogus'",
    "char(27) || '[2J'",
    "printf('%20000s', 'x')",
    "x'00'",
    "NULL",
};

/* A function that sets a column of a table to a value. number: the column holds numbers. */
typedef void (*damage_fn)(void *user, const char *table, const char *column, const char *value, bool number,
                          const char *sql);

/* Calls `with` for each column and each of the values, except for ids of rows and references to them. Returns the
 * number of columns. */
static inline int damage_each_column(const char *path, damage_fn with, void *user)
{
    static const char columns[] = "SELECT m.name, c.name, c.type IN ('INTEGER', 'REAL') FROM sqlite_schema m, "
                                  "pragma_table_info(m.name) c WHERE m.type = 'table' AND c.pk = 0 "
                                  "AND c.name NOT IN ('device', 'problem', 'kernel', 'session', 'code', 'id')";
    char sql[160];
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    int count = 0;
    CHECK_EQ(sqlite3_open(path, &db), SQLITE_OK);
    CHECK_EQ(sqlite3_prepare_v2(db, columns, -1, &stmt, NULL), SQLITE_OK);
    for (; sqlite3_step(stmt) == SQLITE_ROW; count++) {
        const char *table = (const char *)sqlite3_column_text(stmt, 0);
        const char *column = (const char *)sqlite3_column_text(stmt, 1);
        for (size_t i = 0; i < sizeof damage_values / sizeof *damage_values; i++) {
            const bool unique = strcmp(column, "key") == 0 || strcmp(column, "hash") == 0;
            snprintf(sql, sizeof sql, "UPDATE %s SET %s = %s%s", table, column, damage_values[i],
                     unique ? " WHERE id = 2" : "");
            with(user, table, column, damage_values[i], sqlite3_column_int(stmt, 2) != 0, sql);
        }
    }
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return count;
}
