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
    fa2i_stored_answer answer = {.tried = sqlite3_column_int(stmt, 3)};
    fa2i_decision *d = &answer.decision;
    const void *key = sqlite3_column_blob(stmt, 0);
    const int rule = sqlite3_column_int(stmt, 2), passed = sqlite3_column_int(stmt, 12);
    d->corrected = sqlite3_column_int(stmt, 15) != 0;
    if (key == NULL || sqlite3_column_bytes(stmt, 0) != FA2I_KEY_BYTES || answer.tried < 1 || passed < 0 ||
        rule < FA2_RULE_EXACT || rule > FA2_RULE_SHIPPED || !read_number(stmt, 4, &d->estimate_us) ||
        !read_number(stmt, 6, &d->median_us) || !read_number(stmt, 7, &d->distance) ||
        !read_problem(stmt, 10, &d->problem) || (d->corrected && !read_problem(stmt, 11, &d->neighbour)))
        return false;
    memcpy(answer.kernel.bytes, key, FA2I_KEY_BYTES);
    fa2i_sql_column_text(stmt, 1, answer.class_key, sizeof answer.class_key);
    d->rule = (fa2_rule)rule;
    d->measured = sqlite3_column_int(stmt, 5) != 0;
    fa2i_sql_column_text(stmt, 8, d->device, sizeof d->device);
    d->real = sqlite3_column_int(stmt, 9) != 0;
    d->passed_count = (size_t)passed;
    fa2i_sql_column_text(stmt, 13, d->passed_over, sizeof d->passed_over);
    fa2i_sql_column_text(stmt, 14, d->why, sizeof d->why);
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
    const fa2i_decision *d = &answer->decision;
    const fa2i_sql_value values[] = {fa2i_sql_key(&answer->question),
                                     fa2i_sql_key(&answer->basis),
                                     fa2i_sql_text(answer->class_key),
                                     fa2i_sql_int(d->rule),
                                     fa2i_sql_int(answer->tried),
                                     fa2i_sql_real(d->estimate_us),
                                     fa2i_sql_int(d->measured),
                                     fa2i_sql_real(d->median_us),
                                     fa2i_sql_real(d->distance),
                                     fa2i_sql_text(d->device),
                                     fa2i_sql_int(d->real),
                                     fa2i_sql_blob(&d->problem.op, FA2I_FIELD_BYTES),
                                     fa2i_sql_int(d->corrected),
                                     fa2i_sql_blob(&d->neighbour.op, FA2I_FIELD_BYTES),
                                     fa2i_sql_int((int)d->passed_count),
                                     fa2i_sql_text(d->passed_over),
                                     fa2i_sql_text(d->why),
                                     fa2i_sql_key(&answer->kernel)};
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
