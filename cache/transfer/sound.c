/*
 * How: each table is judged by a query over rules.def and the temporary tables of the tables judged before it.
 */
#include "cache/transfer/sound.h"

#include <stdio.h>
#include "cache/database/rules.h"

#define SOUND(column, table) "t." column " IN (SELECT id FROM temp.sound_" table ")"

static const char problem_is_filed[] = "NOT fa2_misfiled(t.class"
#define FA2I_FIELD(name, ...) ", t." #name
#include "runtime/base/problem.def"
                                       ")";

/* The kernel of a result must be of its problem's class, and its code must run on the device. */
static const char result_fits[] = SOUND("device", "device") " AND " SOUND("problem", "problem") " AND " SOUND(
    "kernel", "kernel") " AND " SOUND("session", "session") " AND (SELECT device FROM session WHERE id = t.session) "
                                                            "= t.device"
                                                            " AND (SELECT p.class = k.class AND " FA2I_TARGET_FITS
                                                            " FROM problem p CROSS JOIN kernel k CROSS JOIN device d"
                                                            " WHERE p.id = t.problem AND k.id = t.kernel AND d.id = "
                                                            "t.device)";

const fa2i_judged fa2i_judged_tables[FA2I_JUDGED_COUNT] = {
    {"device", "id", "true"},
    {"problem", "id", problem_is_filed},
    {"session", "id", SOUND("device", "device")},
    {"kernel", "id", "true"},
    {"verification", "device, kernel", SOUND("device", "device") " AND " SOUND("kernel", "kernel")},
    {"measurement", "device, problem, kernel", result_fits},
    {"winner", "device, problem", result_fits},
};

static fa2_status judge(fa2i_cache *cache, const fa2i_judged *judged)
{
    fa2i_text text = {0};
    fa2i_text_add(&text, "CREATE TEMP TABLE sound_%s (%s, PRIMARY KEY (%s)) WITHOUT ROWID", judged->table, judged->key,
                  judged->key);
    fa2_status st = fa2i_sql_script_text(cache, &text);
    if (st != FA2_OK)
        return st;
    fa2i_text_add(&text, "INSERT INTO temp.sound_%s SELECT %s FROM %s t WHERE %s AND ", judged->table, judged->key,
                  judged->table, judged->also);
    fa2i_rules_add_fault(&text, judged->table);
    fa2i_text_add(&text, " IS NULL");
    return fa2i_sql_script_text(cache, &text);
}

fa2_status fa2i_sound_begin(fa2i_cache *cache)
{
    fa2_status st = FA2_OK;
    for (int i = 0; st == FA2_OK && i < FA2I_JUDGED_COUNT; i++)
        st = judge(cache, &fa2i_judged_tables[i]);
    return st;
}

fa2_status fa2i_sound_end(fa2i_cache *cache)
{
    fa2_status st = FA2_OK;
    for (int i = 0; st == FA2_OK && i < FA2I_JUDGED_COUNT; i++) {
        fa2i_text text = {0};
        fa2i_text_add(&text, "DROP TABLE temp.sound_%s", fa2i_judged_tables[i].table);
        st = fa2i_sql_script_text(cache, &text);
    }
    return st;
}

fa2_status fa2i_sound_count_faults(fa2i_cache *cache, const char *table, size_t *count, char *sentence,
                                   size_t sentence_bytes)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    fa2i_text text = {0};
    fa2i_text_add(&text, "SELECT count(*), min(fault) FROM (SELECT ");
    fa2i_rules_add_fault(&text, table);
    fa2i_text_add(&text, " AS fault FROM %s) WHERE fault IS NOT NULL", table);
    FA2_TRY(fa2i_sql_prepare_text(cache, &text, NULL, 0, &stmt));
    FA2_TRY(fa2i_sql_step(cache, stmt, &row));
    const size_t found = (size_t)sqlite3_column_int64(stmt, 0);
    if (found > 0 && sentence[0] == '\0')
        snprintf(sentence, sentence_bytes, "%s: %s", table, (const char *)sqlite3_column_text(stmt, 1));
    *count += found;
done:
    sqlite3_finalize(stmt);
    return st;
}
