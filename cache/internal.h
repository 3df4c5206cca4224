/*
 * Inside the cache: the open database, a thin layer over SQLite that keeps each statement to a few lines, and the row
 * functions that several files share.
 *
 * Errors. Statuses and messages as in cache.h; fa2i_sql_fail makes them from SQLite's result codes.
 * Threads. All functions declared after fa2i_sql_begin run between begin and end, so under the mutex.
 * Ownership. Statements belong to the caller (sqlite3_finalize).
 */
#pragma once

#include <pthread.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include "cache/cache.h"
#include "runtime/base/status.h"
#include "runtime/base/text.h"

enum {
    FA2I_APPLICATION_ID = 0x46413254, /* as in schema.sql */
    FA2I_EXPORT_VERSION = 2,          /* of the format that export.c describes */
    FA2I_PIECE_BYTES = 7000,          /* the most bytes of code in a line of it */
    FA2I_CODE_BYTES_MAX = 64 << 20    /* the most of one kernel */
};

/* No time is longer: 30 years. The limit ensures that stored times can be exported and imported again. */
#define FA2I_US_MAX 1e15

/* The changes that opening made to a damaged file: remake.h. */
typedef struct fa2i_remade {
    bool done;       /* the file was made anew */
    size_t refused;  /* rows that no table accepted */
    char cause[200]; /* the damage of the file */
    bool hopeless;   /* too little of the file can be read */
} fa2i_remade;

struct fa2i_cache {
    sqlite3 *db;
    char *path; /* as the caller gave it, for messages */
    bool writable;
    bool created; /* this opening created the file */
    /* wait.c: */
    fa2i_cache_mode mode; /* of the transaction: FA2I_CACHE_READ or FA2I_CACHE_WRITE */
    int wait_ms;          /* rest of the time to wait for a process that holds the file locked */
    bool waits_by_call;   /* wait_ms limits a whole opening or call (fa2i_cache_begin_call) */
    int64_t locked_ns[2]; /* by mode: the time of a wait in vain (fa2i_clock_ns); 0: not known as locked */
    fa2i_log_fn log;
    void *log_user;
    pthread_mutex_t mutex;
    fa2i_key *reported; /* damaged kernels that the log has been told about */
    size_t reported_count;
    int64_t noted_rows; /* rows that this connection's notes changed: notes.c */
    bool at_once;       /* the open transaction does not wait for a lock */
    pthread_mutex_t claims_mutex;
    double seconds_max, deadline;      /* of a transaction, in the thread's processor time: limits.c */
    const volatile sig_atomic_t *stop; /* nonzero ends statements and trials; NULL: nothing does */
    int claims;                        /* descriptor of the file of claims, + 1; 0: not open; -1: it cannot be used */
    fa2i_remade remade;
    size_t mended;    /* values that fa2_mended mended: rules.c */
    bool claims_told; /* the log was told that this process waits for another one's claim */
};

/* ---- claims.c ---- */

/* Give all claims back, before the database is closed. */
void fa2i_claims_close(fa2i_cache *cache);

/* ---- wait.c: a file that another process holds locked ---- */

/* Install the function by which SQLite waits. Returns SQLite's result code. */
int fa2i_wait_register(fa2i_cache *cache);

/* Call these under the mutex: before a transaction begins, and after it was committed. */
void fa2i_wait_begin(fa2i_cache *cache, fa2i_cache_mode mode);
void fa2i_wait_end(fa2i_cache *cache);

/* ---- path.c: files and folders ---- */

/* Is there no such file? A file in a folder that this user may not search counts as there. */
bool fa2i_path_is_missing(const char *path);

/* Create the file (0600) if it is missing (*ret_created), and folders (0700) below an existing $HOME or
 * $XDG_CACHE_HOME; elsewhere the folder must be there. */
fa2_status fa2i_path_create(const char *path, bool *ret_created);

/* Could fa2i_path_create make a missing file? Checks permissions alone, and creates nothing. */
fa2_status fa2i_path_check_creatable(const char *path);

/* Refuse a file that is not regular or not readable, that others can write, or that belongs to another user.
 * *ret_resolved has no symbolic links and belongs to the caller (fa2i_free). FA2_E_NOT_FOUND: there is no such file. */
fa2_status fa2i_path_check(const char *path, char **ret_resolved, struct stat *ret_info);

/* The same for the files that SQLite keeps beside the database. */
fa2_status fa2i_path_check_side_files(const char *name, const char *resolved);

/* FA2_E_DATABASE: the file or its folder cannot be written; the message says why and what helps. name: the path as the
 * caller gave it. */
fa2_status fa2i_path_check_writable(const char *name, const char *resolved);

/* Can files be created in the folder of this file? */
fa2_status fa2i_path_folder_writable(const char *resolved, bool *ret_writable);

/* ---- open.c ---- */

/* Is this SQLite (sqlite3_libversion_number) new enough? */
fa2_status fa2i_cache_library_check(int version);

/* Returns "WAL" only for SQLite versions that fixed the WAL reset bug. */
const char *fa2i_cache_journal_mode(int library_version);

/* Open a file in cache->db, by SQLite's name for it, and configure the connection. */
fa2_status fa2i_cache_connect(fa2i_cache *cache, const char *name, int flags);

/* Open these bytes as a database in memory. For reading, check them as a file; for writing, do not read them yet. Takes
 * over the data (sqlite3_free). path: for messages. */
fa2_status fa2i_cache_open_bytes(const char *path, fa2i_cache_mode mode, unsigned char *data, size_t bytes,
                                 fa2i_cache **ret_cache);

/* ---- schema.c: the version, and the objects of ours ---- */

/* Is the version ours, and every table there? FA2_E_DATABASE says what to do. FA2_E_NOT_FOUND: the file is empty. */
fa2_status fa2i_schema_check(fa2i_cache *cache);

/* Bring the schema to that which a new file has. A missing table is FA2_E_DATABASE unless repair is set. Repair makes
 * missing tables and changed indexes and triggers anew, and drops foreign ones. */
fa2_status fa2i_schema_bring_forward(fa2i_cache *cache, bool repair);

/* Inside a transaction: write a sentence about the first difference from a new file, with what to do; "" if there is
 * none. *ret_readable: every table has its columns. */
fa2_status fa2i_schema_examine(fa2i_cache *cache, char *sentence, size_t sentence_bytes, bool *ret_readable);

/* ---- sql.c ---- */

typedef enum fa2i_sql_kind { FA2I_SQL_INT, FA2I_SQL_REAL, FA2I_SQL_TEXT, FA2I_SQL_BLOB } fa2i_sql_kind;

/* A value to bind; text and blobs are borrowed until the statement is finalized. */
typedef struct fa2i_sql_value {
    fa2i_sql_kind kind;
    int64_t integer;
    double real;
    const void *data;
    size_t bytes;
} fa2i_sql_value;

static inline fa2i_sql_value fa2i_sql_int(int64_t integer)
{
    return (fa2i_sql_value){.kind = FA2I_SQL_INT, .integer = integer};
}

/* A number that is not finite is bound as NULL. */
static inline fa2i_sql_value fa2i_sql_real(double real)
{
    return (fa2i_sql_value){.kind = FA2I_SQL_REAL, .real = real};
}

/* A NULL pointer is bound as NULL. */
static inline fa2i_sql_value fa2i_sql_text(const char *text)
{
    return (fa2i_sql_value){.kind = FA2I_SQL_TEXT, .data = text};
}

static inline fa2i_sql_value fa2i_sql_blob(const void *data, size_t bytes)
{
    return (fa2i_sql_value){.kind = FA2I_SQL_BLOB, .data = data, .bytes = bytes};
}

static inline fa2i_sql_value fa2i_sql_key(const fa2i_key *key)
{
    return fa2i_sql_blob(key->bytes, FA2I_KEY_BYTES);
}

/* An array and its length, as two arguments; a function cannot count its caller's array. */
#define FA2I_SQL_VALUES(array) (array), sizeof(array) / sizeof((array)[0])

/* The number of rows that other tables refer to; 0: nothing was ever stored. Valid for every version. */
#define FA2I_COUNT_ROWS "(SELECT count(*) FROM device) + (SELECT count(*) FROM problem) + (SELECT count(*) FROM kernel)"

/* The current time in the format of the tables, or the latest time that they can hold if the clock is later. */
#define FA2I_SQL_NOW "coalesce(strftime('%Y-%m-%dT%H:%M:%SZ', 'now'), '9999-12-31T23:59:59Z')"

/* SQL functions of fa2, whose results depend on their arguments alone. */
typedef struct fa2i_sql_function {
    const char *name;
    int arguments; /* -1: any number */
    void (*function)(sqlite3_context *context, int count, sqlite3_value **values);
} fa2i_sql_function;

/* Registers them with a connection; user: their sqlite3_user_data. Returns SQLite's result code. */
int fa2i_sql_register(sqlite3 *db, const fa2i_sql_function *functions, size_t count, void *user);

/* Makes the status for an SQLite result code. The message has the path, SQLite's words and what to do. */
fa2_status fa2i_sql_fail(const fa2i_cache *cache, int code);

/* fa2i_cache_has_moved, under the mutex. */
bool fa2i_sql_has_moved(const fa2i_cache *cache);

/* Lock, and begin a transaction. Always followed by fa2i_sql_end, also after a failure. */
fa2_status fa2i_sql_begin(fa2i_cache *cache, fa2i_cache_mode mode);

/* The same for writing, without waiting: FA2_E_DATABASE if another process has the file locked. */
fa2_status fa2i_sql_begin_at_once(fa2i_cache *cache);

/* fa2i_cache_data_version, inside a transaction. */
fa2_status fa2i_sql_data_version(fa2i_cache *cache, int64_t *ret_version);

/* Commit if st is FA2_OK, else roll back; unlock. Returns st, or why the commit failed. */
fa2_status fa2i_sql_end(fa2i_cache *cache, fa2_status st);

/* The same for a transaction of one statement, which is finalized. */
fa2_status fa2i_sql_close(fa2i_cache *cache, sqlite3_stmt *stmt, fa2_status st);

/* Prepare and bind. On FA2_OK *ret_stmt belongs to the caller. */
fa2_status fa2i_sql_prepare(fa2i_cache *cache, const char *sql, const fa2i_sql_value *values, size_t count,
                            sqlite3_stmt **ret_stmt);

/* The same for a text that was composed, which is then empty. */
fa2_status fa2i_sql_prepare_text(fa2i_cache *cache, fa2i_text *text, const fa2i_sql_value *values, size_t count,
                                 sqlite3_stmt **ret_stmt);

/* *ret_row: there is a row to read. */
fa2_status fa2i_sql_step(fa2i_cache *cache, sqlite3_stmt *stmt, bool *ret_row);

/* Takes the next row, so that `while (fa2i_sql_next(cache, stmt, &st))` runs for each. Returns false after the last row,
 * and after an error, which is in *ret_status. */
bool fa2i_sql_next(fa2i_cache *cache, sqlite3_stmt *stmt, fa2_status *ret_status);

/* Runs a statement anew, with other values, to its first row. FA2_E_NOT_FOUND: it has none. */
fa2_status fa2i_sql_again(fa2i_cache *cache, sqlite3_stmt *stmt, const fa2i_sql_value *values, size_t count);

/* Prepare and take the first row. FA2_E_NOT_FOUND, without a message: there is no row. */
fa2_status fa2i_sql_row(fa2i_cache *cache, const char *sql, const fa2i_sql_value *values, size_t count,
                        sqlite3_stmt **ret_stmt);

/* Run one statement for its effect. */
fa2_status fa2i_sql_run(fa2i_cache *cache, const char *sql, const fa2i_sql_value *values, size_t count);

/* Get the first column of the first row. FA2_E_NOT_FOUND, without a message: there is no row. */
fa2_status fa2i_sql_number(fa2i_cache *cache, const char *sql, const fa2i_sql_value *values, size_t count,
                           int64_t *ret_number);

/* A statement that counts, and the variable that receives its number. */
typedef struct fa2i_sql_count {
    const char *sql;
    size_t *ret_count;
} fa2i_sql_count;

fa2_status fa2i_sql_counts(fa2i_cache *cache, const fa2i_sql_count *counts, size_t count);

/* Several statements, without parameters. */
fa2_status fa2i_sql_script(fa2i_cache *cache, const char *script);

/* The same for a text that was composed, which is then empty. */
fa2_status fa2i_sql_script_text(fa2i_cache *cache, fa2i_text *text);

/* FA2_E_DATABASE when this SQLite was built without its JSON functions. */
fa2_status fa2i_sql_need_json(fa2i_cache *cache);

/* Read columns of the current row. Text is cut to fit; NULL is "". column_line makes it one line. A NULL error is
 * INFINITY. The last one returns false if the value is no outcome. */
void fa2i_sql_column_text(sqlite3_stmt *stmt, int column, char *out, size_t out_bytes);
void fa2i_sql_column_line(sqlite3_stmt *stmt, int column, char *out, size_t out_bytes);
double fa2i_sql_column_error(sqlite3_stmt *stmt, int column);
bool fa2i_sql_column_outcome(sqlite3_stmt *stmt, int column, fa2i_outcome *ret_outcome);

/* ---- seal.c: binds code to its record ---- */

/* Computes the hash of a kernel's key, variant, class, recipe and target, and of its image. In SQL: fa2_seal(key,
 * variant, class, recipe, target, data). fa2_hash(data) is the hash of the code alone. */
void fa2i_seal_of(const fa2i_kernel *kernel, fa2i_key *ret_seal);

/* Register both functions with SQLite. Returns SQLite's result code. */
int fa2i_seal_register(sqlite3 *db);

/* Kernels that no call takes: a card's verification refuted them, or they are of another version of fa2
 * (cache/database/versions.h). */
#define FA2I_REFUTED_KERNELS "SELECT kernel FROM verification WHERE outcome <> 'ok'"
#define FA2I_OTHER_KERNELS   "SELECT id FROM kernel WHERE fa2_other_version(class, recipe)"

/* Kernels whose code is missing or does not match its seal. The caller may append a condition. Rows are found by their
 * ids, so that a damaged index does not matter. */
#define FA2I_DAMAGED_IMAGES                                                                                            \
    "SELECT i.kernel FROM image i CROSS JOIN kernel k ON k.id = i.kernel "                                             \
    "LEFT JOIN code c ON c.id = i.code "                                                                               \
    "WHERE (c.hash IS NOT fa2_hash(c.data) "                                                                           \
    "OR i.seal IS NOT fa2_seal(k.key, k.variant, k.class, k.recipe, k.target, c.data))"

/* ---- cache.c: rows, inside a transaction ---- */

/* Find, or insert. */
fa2_status fa2i_row_device(fa2i_cache *cache, const fa2i_card *card, bool real, int64_t *ret_id);
fa2_status fa2i_row_problem(fa2i_cache *cache, const fa2_problem *problem, int64_t *ret_id);

/* Insert or replace the record; images are not touched. */
fa2_status fa2i_row_put_kernel(fa2i_cache *cache, const fa2i_kernel *kernel, int64_t *ret_id);

/* Insert, replace or (empty) remove the image of a kernel whose record was put under this id. */
fa2_status fa2i_row_put_image(fa2i_cache *cache, int64_t id, const fa2i_kernel *kernel);

/* The same for code whose seal is known. */
fa2_status fa2i_row_put_sealed(fa2i_cache *cache, int64_t id, const fa2i_blob *image, const fa2i_key *seal);

/* FA2_E_NOT_FOUND, with a message, when there is no such kernel. */
fa2_status fa2i_row_kernel_id(fa2i_cache *cache, const fa2i_key *key, int64_t *ret_id);

/* results.c: insert or replace the verification of a kernel. Errors as above. */
fa2_status fa2i_row_put_verification(fa2i_cache *cache, int64_t device, const fa2i_key *kernel,
                                     const fa2i_verification *verification);

/* Read a record selected by FA2I_KERNEL_COLUMNS. An invalid recipe is read as an empty one, without steps. *ret_kernel
 * belongs to the caller. FA2_E_NOT_FOUND, with a message: the row is damaged. */
#define FA2I_KERNEL_COLUMNS                                                                                            \
    "k.key, k.variant, k.class, k.recipe, k.target, k.nvrtc, k.generator, k.outcome, "                                 \
    "k.registers, k.spill_bytes, k.compile_ms, k.log"
enum { FA2I_KERNEL_COLUMN_COUNT = 12 };
fa2_status fa2i_row_read_kernel(const fa2i_cache *cache, sqlite3_stmt *stmt, fa2i_kernel *ret_kernel);

/* Does this column hold a valid generator of a kernel? */
bool fa2i_row_has_generator(sqlite3_stmt *stmt, int column);

/* Tell the log, once for each kernel, why it is not used ("is damaged and is not used"), and what to do. Call it
 * outside a transaction. */
void fa2i_row_report_unused(fa2i_cache *cache, const fa2i_key *key, const char *what, const char *remedy);
