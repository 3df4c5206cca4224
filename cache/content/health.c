/*
 * How: SQL finds damaged images with fa2_seal (seal.c), and impossible values with fa2_fault (rules.c).
 */
#include "cache/content/report.h"

#include <stdio.h>
#include <string.h>
#include "cache/transfer/sound.h"

/* Runs SQLite's own check. */
static fa2_status examine_file(fa2i_cache *cache, fa2i_cache_health *health)
{
    sqlite3_stmt *stmt = NULL;
    char problem[200];
    fa2_status st = fa2i_sql_row(cache, "PRAGMA integrity_check(1)", NULL, 0, &stmt);
    if (st == FA2_OK) {
        fa2i_sql_column_line(stmt, 0, problem, sizeof problem);
        health->intact = strcmp(problem, "ok") == 0;
        if (!health->intact)
            snprintf(health->first_problem, sizeof health->first_problem,
                     "%s; fa2-tune gc makes the file anew from what can be read", problem);
    }
    sqlite3_finalize(stmt);
    return st;
}

/* Problems that are invalid, or whose row has another class than their fields. */
static const char misfiled_table[] = "CREATE TEMP TABLE misfiled AS SELECT id FROM problem WHERE fa2_misfiled(class"
#define FA2I_FIELD(name, ...) ", " #name
#include "runtime/base/problem.def"
                                     ")";

/* Rows of a table that tie a kernel to a problem of another class, to a device that does not run its code, or to a
 * session of another device. */
#define MISFITS(table)                                                                                                 \
    " FROM " table " WHERE problem IN (SELECT id FROM temp.misfiled) OR EXISTS "                                       \
    "(SELECT 1 FROM problem p CROSS JOIN kernel k CROSS JOIN device d CROSS JOIN session s "                           \
    "WHERE p.id = " table ".problem AND k.id = " table ".kernel AND d.id = " table ".device "                          \
    "AND s.id = " table ".session AND (p.class <> k.class OR s.device <> d.id "                                        \
    "OR NOT " FA2I_TARGET_FITS "))"

/* fault: the sentence about the first row with an impossible value. */
static fa2_status examine_rows(fa2i_cache *cache, fa2i_cache_health *health, char *fault, size_t fault_bytes)
{
    const fa2i_sql_count counts[] = {
        {"SELECT count(*) FROM kernel", &health->kernels},
        {"SELECT count(*) FROM image", &health->images},
        {"SELECT count(*) FROM measurement", &health->measurements},
        {"SELECT count(*) FROM winner", &health->winners},
        {"SELECT count(*) FROM (" FA2I_DAMAGED_IMAGES ")", &health->damaged_images},
        {"SELECT count(*) FROM pragma_foreign_key_check", &health->dangling},
        {"SELECT (SELECT count(*)" MISFITS("winner") ") + (SELECT count(*)" MISFITS(
             "measurement") ") + (SELECT count(*) FROM temp.misfiled)",
         &health->misfits},
        {"SELECT count(*) FROM winner WHERE (kernel NOT IN (SELECT kernel FROM image) "
         "OR kernel IN (" FA2I_DAMAGED_IMAGES ")) AND kernel NOT IN (" FA2I_OTHER_KERNELS
         ") AND kernel NOT IN (" FA2I_REFUTED_KERNELS ")",
         &health->without_code},
        {"SELECT count(*) FROM winner WHERE kernel IN (" FA2I_OTHER_KERNELS ")", &health->other_version},
        {"SELECT count(*) FROM winner WHERE kernel IN (" FA2I_REFUTED_KERNELS ")", &health->refuted},
        {"SELECT count(*) FROM winner JOIN measurement USING (device, problem, kernel) WHERE outcome <> 'ok' "
         "AND kernel NOT IN (" FA2I_REFUTED_KERNELS ")",
         &health->failed},
    };
    static const char *const own[] = {"code", "image", "setting", "answer"}; /* tables that export leaves out */
    fa2_status st = fa2i_sql_script(cache, misfiled_table);
    if (st == FA2_OK)
        st = fa2i_sql_counts(cache, counts, sizeof counts / sizeof counts[0]);
    for (int i = 0; st == FA2_OK && i < FA2I_JUDGED_COUNT; i++)
        st = fa2i_sound_count_faults(cache, fa2i_judged_tables[i].table, &health->faults, fault, fault_bytes);
    for (size_t i = 0; st == FA2_OK && i < sizeof own / sizeof *own; i++)
        st = fa2i_sound_count_faults(cache, own[i], &health->faults, fault, fault_bytes);
    return st == FA2_OK ? fa2i_sql_script(cache, "DROP TABLE temp.misfiled") : st;
}

/* Writes one sentence about the rows. */
static void describe_rows(fa2i_cache_health *health, const char *fault)
{
    const struct {
        size_t count;
        const char *what, *remedy;
    } findings[] = {
        {health->damaged_images, "kernels whose code is damaged",
         ", none of them a winner that a call takes; fa2-tune gc drops it"},
        {health->misfits, "rows that tie a problem to a kernel, a class, an SM or a session that is not its own",
         "; fa2-tune gc mends or drops them"},
        {health->dangling, "rows that refer to rows that are not there", "; fa2-tune gc mends or drops them"},
        {health->without_code, "winners without code",
         "; fa2-tune gc compiles it where NVRTC is, as does their next call; what was measured stays"},
        {health->refuted, "winners that a card's verification refuted, and that no call takes",
         "; fa2-tune list shows them, and tuning their problems again finds others (where the verdict is held for "
         "wrong: fa2-tune forget --failures --shape of the problem, and tune again)"},
        {health->failed, "winners that failed when they were measured",
         "; fa2-tune show says how, and tuning their problems again measures them anew"},
        {health->other_version, "winners of another version of fa2, which no call takes",
         "; fa2-tune list shows them, and tuning their problems again finds this version's"},
    };
    char *text = health->first_problem;
    const size_t bytes = sizeof health->first_problem;
    size_t first = 0;
    while (first < sizeof findings / sizeof *findings && findings[first].count == 0)
        first++;
    if (health->faults > 0)
        snprintf(text, bytes,
                 "rows with values that cannot be: %zu (%s); fa2-tune gc mends them, or drops them and what refers to "
                 "them",
                 health->faults, fault);
    else if (health->damaged_images > 0 && health->without_code > 0)
        snprintf(text, bytes,
                 "kernels whose code is damaged: %zu, and winners without sound code: %zu; fa2-tune gc drops the "
                 "damaged, and compiles that of winners again where NVRTC is, as does their next call",
                 health->damaged_images, health->without_code);
    else if (first < sizeof findings / sizeof *findings)
        snprintf(text, bytes, "%s: %zu%s", findings[first].what, findings[first].count, findings[first].remedy);
}

/* Checks the schema first, because rows cannot be read if columns are missing. */
static fa2_status examine(fa2i_cache *cache, fa2i_cache_health *health)
{
    char schema[300], fault[400] = "";
    bool readable = false;
    fa2_status st = fa2i_schema_examine(cache, schema, sizeof schema, &readable);
    if (st == FA2_OK)
        st = examine_file(cache, health);
    if (st != FA2_OK)
        return st;
    health->schema = schema[0] == '\0';
    if (!health->schema)
        snprintf(health->first_problem, sizeof health->first_problem, "%s", schema);
    if (readable)
        st = examine_rows(cache, health, fault, sizeof fault);
    if (st == FA2_OK && health->schema && (health->intact || health->faults > 0))
        describe_rows(health, fault); /* SQLite's check reports wrong values, too, but says less */
    return st;
}

fa2_status fa2i_cache_check(fa2i_cache *cache, fa2i_cache_health *ret_health)
{
    fa2i_cache_health health = {.schema = true};
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_READ);
    if (st == FA2_OK)
        st = examine(cache, &health);
    const int code = sqlite3_errcode(cache->db) & 0xff;
    const bool damaged = st != FA2_OK && (code == SQLITE_CORRUPT || code == SQLITE_NOTADB);
    /* A changed text of a table can make SQLite refuse statements about its rows. */
    const bool has_other_text = st != FA2_OK && code == SQLITE_ERROR && !health.schema;
    if (damaged) {
        health.intact = false;
        snprintf(health.first_problem, sizeof health.first_problem,
                 "%s; fa2-tune gc makes the file anew from what can be read", sqlite3_errmsg(cache->db));
    }
    st = fa2i_sql_end(cache, st);
    if (st != FA2_OK && !damaged && !has_other_text)
        return st;
    *ret_health = health;
    return FA2_OK;
}

bool fa2i_cache_is_damaged(const fa2i_cache_health *health)
{
    return !health->intact || !health->schema ||
           health->damaged_images + health->faults + health->dangling + health->misfits > 0;
}

bool fa2i_cache_is_healthy(const fa2i_cache_health *health)
{
    return health->first_problem[0] == '\0';
}
