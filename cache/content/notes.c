/*
 * - The transaction that stores an answer compares its version with the database's, because another process may have
 *   written new evidence since the answer was found.
 * - Problems are stored as the bytes of their fields. A row is checked when it is read; an impossible row counts as
 *   missing.
 */
#include "cache/content/notes.h"

#include <string.h>
#include <time.h>
#include "cache/internal.h"

enum { SECONDS_OF_DAY = 24 * 60 * 60, DAYS_MOST = 1000000 /* as rules.def has it */ };

int fa2i_cache_today(void)
{
    const time_t day = time(NULL) / SECONDS_OF_DAY;
    return day < 0 ? 0 : day > DAYS_MOST ? DAYS_MOST : (int)day;
}

/* ---- reading ---- */

/* Reads the problem in a column; false: these bytes are no problem. */
static bool read_problem(sqlite3_stmt *stmt, int column, fa2_problem *ret_problem)
{
    const void *bytes = sqlite3_column_blob(stmt, column);
    if (bytes == NULL || sqlite3_column_bytes(stmt, column) != FA2I_FIELD_BYTES)
        return false;
    *ret_problem = (fa2_problem){.struct_bytes = sizeof *ret_problem};
    memcpy(&ret_problem->op, bytes, FA2I_FIELD_BYTES);
    return fa2i_problem_check(ret_problem) == FA2_OK;
}

/* Reads a time or a distance. */
static bool read_number(sqlite3_stmt *stmt, int column, double *ret_number)
{
    *ret_number = sqlite3_column_double(stmt, column);
    return *ret_number >= 0 && *ret_number <= FA2I_US_MAX;
}

/* Reads the columns of answer_sql. false: the row is impossible. */
static bool read_answer(sqlite3_stmt *stmt, fa2i_stored_answer *ret_answer)
{
    fa2i_stored_answer answer = {.rule = (fa2_rule)sqlite3_column_int(stmt, 2),
                                 .tried = sqlite3_column_int(stmt, 3),
                                 .measured = sqlite3_column_int(stmt, 5) != 0,
                                 .real = sqlite3_column_int(stmt, 9) != 0,
                                 .corrected = sqlite3_column_int(stmt, 15) != 0,
                                 .passed_count = sqlite3_column_int(stmt, 12)};
    const void *key = sqlite3_column_blob(stmt, 0);
    if (key == NULL || sqlite3_column_bytes(stmt, 0) != FA2I_KEY_BYTES || answer.tried < 1 || answer.passed_count < 0 ||
        (int)answer.rule < FA2_RULE_EXACT || answer.rule > FA2_RULE_SHIPPED ||
        !read_number(stmt, 4, &answer.estimate_us) || !read_number(stmt, 6, &answer.median_us) ||
        !read_number(stmt, 7, &answer.distance) || !read_problem(stmt, 10, &answer.near) ||
        (answer.corrected && !read_problem(stmt, 11, &answer.neighbour)))
        return false;
    memcpy(answer.kernel.bytes, key, FA2I_KEY_BYTES);
    fa2i_sql_column_text(stmt, 1, answer.class_key, sizeof answer.class_key);
    fa2i_sql_column_text(stmt, 8, answer.device, sizeof answer.device);
    fa2i_sql_column_text(stmt, 13, answer.passed_over, sizeof answer.passed_over);
    fa2i_sql_column_text(stmt, 14, answer.why, sizeof answer.why);
    *ret_answer = answer;
    return true;
}

static const char answer_sql[] =
    "SELECT k.key, a.kind, a.rule, a.tried, a.estimate_us, a.measured, a.near_us, a.distance, a.card, a.real, "
    "a.near, a.neighbour, a.passed, a.passed_over, a.why, a.corrected FROM answer a JOIN kernel k ON k.id = a.kernel "
    "WHERE a.question = ? AND a.basis = ? AND a.kind = k.class";

fa2_status fa2i_cache_get_answer(fa2i_cache *cache, const fa2i_key *question, const fa2i_key *basis,
                                 fa2i_stored_answer *ret_answer)
{
    const fa2i_sql_value values[] = {fa2i_sql_key(question), fa2i_sql_key(basis)};
    sqlite3_stmt *stmt = NULL;
    fa2_status st;
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    FA2_TRY(fa2i_sql_row(cache, answer_sql, FA2I_SQL_VALUES(values), &stmt));
    if (!read_answer(stmt, ret_answer))
        st = FA2_E_NOT_FOUND;
done:
    return fa2i_sql_close(cache, stmt, st);
}

/* ---- writing ---- */

static fa2_status put_answer(fa2i_cache *cache, const fa2i_stored_answer *answer)
{
    const fa2i_sql_value values[] = {
        fa2i_sql_key(&answer->question),    fa2i_sql_key(&answer->basis),
        fa2i_sql_text(answer->class_key),   fa2i_sql_int(answer->rule),
        fa2i_sql_int(answer->tried),        fa2i_sql_real(answer->estimate_us),
        fa2i_sql_int(answer->measured),     fa2i_sql_real(answer->median_us),
        fa2i_sql_real(answer->distance),    fa2i_sql_text(answer->device),
        fa2i_sql_int(answer->real),         fa2i_sql_blob(&answer->near.op, FA2I_FIELD_BYTES),
        fa2i_sql_int(answer->corrected),    fa2i_sql_blob(&answer->neighbour.op, FA2I_FIELD_BYTES),
        fa2i_sql_int(answer->passed_count), fa2i_sql_text(answer->passed_over),
        fa2i_sql_text(answer->why),         fa2i_sql_key(&answer->kernel),
    };
    return fa2i_sql_run(cache,
                        "INSERT OR REPLACE INTO answer (question, basis, kind, rule, tried, estimate_us, measured, "
                        "near_us, distance, card, real, near, corrected, neighbour, passed, passed_over, why, kernel) "
                        "SELECT ?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?, k.id FROM kernel k JOIN image i ON i.kernel = k.id "
                        "WHERE k.key = ?",
                        FA2I_SQL_VALUES(values));
}

static fa2_status drop_old_answers(fa2i_cache *cache)
{
    const fa2i_sql_value values[] = {fa2i_sql_int(FA2I_ANSWERS_MOST)};
    return fa2i_sql_run(cache, "DELETE FROM answer WHERE id <= (SELECT max(id) FROM answer) - ?",
                        FA2I_SQL_VALUES(values));
}

static fa2_status put_used(fa2i_cache *cache, const fa2i_key *kernel)
{
    const fa2i_sql_value values[] = {fa2i_sql_int(fa2i_cache_today()), fa2i_sql_key(kernel)};
    return fa2i_sql_run(cache, "UPDATE image SET used = ? WHERE kernel = (SELECT id FROM kernel WHERE key = ?)",
                        FA2I_SQL_VALUES(values));
}

static fa2_status put_all(fa2i_cache *cache, const fa2i_stored_answer *answers, size_t answer_count,
                          const fa2i_key *used, size_t used_count)
{
    int64_t version = 0;
    fa2_status st;
    FA2_TRY(fa2i_sql_data_version(cache, &version));
    for (size_t i = 0; i < answer_count; i++)
        if (answers[i].version == version)
            FA2_TRY(put_answer(cache, &answers[i]));
    FA2_TRY(drop_old_answers(cache));
    for (size_t i = 0; i < used_count; i++)
        FA2_TRY(put_used(cache, &used[i]));
done:
    return st;
}

fa2_status fa2i_cache_put_notes(fa2i_cache *cache, const fa2i_stored_answer *answers, size_t answer_count,
                                const fa2i_key *used, size_t used_count)
{
    fa2_status st = fa2i_sql_begin_at_once(cache);
    const int64_t before = sqlite3_total_changes(cache->db);
    if (st == FA2_OK)
        st = put_all(cache, answers, answer_count, used, used_count);
    cache->noted_rows += sqlite3_total_changes(cache->db) - before;
    return fa2i_sql_end(cache, st);
}
