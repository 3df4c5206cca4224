/*
 * Devices, problems, sessions and kernels of an export, and the ids by which results refer to them.
 */
#include "cache/transfer/import.h"

#include <stdio.h>
#include <string.h>

/* ---- ids ---- */

/* unknown: kernels that were passed over */
static const char tables[] = "CREATE TEMP TABLE import_id (type TEXT NOT NULL, theirs INTEGER NOT NULL, "
                             "ours INTEGER NOT NULL, PRIMARY KEY (type, theirs)) STRICT, WITHOUT ROWID;"
                             "CREATE TEMP TABLE import_unknown (key BLOB PRIMARY KEY) STRICT, WITHOUT ROWID";

fa2_status fa2i_import_begin(fa2i_cache *cache)
{
    return fa2i_sql_script(cache, tables);
}

fa2_status fa2i_import_end(fa2i_cache *cache)
{
    return fa2i_sql_script(cache, "DROP TABLE temp.import_id; DROP TABLE temp.import_unknown");
}

fa2_status fa2i_import_remember_id(fa2i_import *in)
{
    int64_t theirs = 0;
    fa2_status st = fa2i_members_number(&in->members, "id", INT64_MIN, INT64_MAX, &theirs);
    if (st != FA2_OK)
        return st;
    const fa2i_sql_value values[] = {fa2i_sql_text(in->type), fa2i_sql_int(theirs), fa2i_sql_int(in->ours)};
    st = fa2i_sql_run(in->cache, "INSERT OR IGNORE INTO temp.import_id VALUES (?,?,?)", FA2I_SQL_VALUES(values));
    if (st == FA2_OK && sqlite3_changes(in->cache->db) == 0)
        return fa2i_fail(FA2_E_INVALID, "'id' %lld is given to two lines of type %s", (long long)theirs, in->type);
    return st;
}

fa2_status fa2i_import_id(fa2i_import *in, const char *type, int64_t *ret_ours)
{
    int64_t theirs = 0;
    fa2_status st = fa2i_members_number(&in->members, type, INT64_MIN, INT64_MAX, &theirs);
    if (st != FA2_OK)
        return st;
    const fa2i_sql_value values[] = {fa2i_sql_text(type), fa2i_sql_int(theirs)};
    st = fa2i_sql_number(in->cache, "SELECT ours FROM temp.import_id WHERE type = ? AND theirs = ?",
                         FA2I_SQL_VALUES(values), ret_ours);
    if (st == FA2_E_NOT_FOUND)
        return fa2i_fail(FA2_E_INVALID, "there is no %s with the id %lld above", type, (long long)theirs);
    return st;
}

static fa2_status find_unknown(fa2i_import *in, const fa2i_key *key)
{
    const fa2i_sql_value values[] = {fa2i_sql_key(key)};
    int64_t one = 0;
    const fa2_status st =
        fa2i_sql_number(in->cache, "SELECT 1 FROM temp.import_unknown WHERE key = ?", FA2I_SQL_VALUES(values), &one);
    in->is_unknown = st == FA2_OK;
    return st == FA2_E_NOT_FOUND ? FA2_OK : st;
}

fa2_status fa2i_import_kernel_id(fa2i_import *in, int64_t *ret_ours)
{
    fa2i_key key;
    *ret_ours = 0;
    fa2_status st = fa2i_members_key(&in->members, "kernel", &key);
    if (st == FA2_OK && in->counts.unknown > 0)
        st = find_unknown(in, &key);
    if (st == FA2_OK && !in->is_unknown)
        st = fa2i_row_kernel_id(in->cache, &key, ret_ours);
    if (st == FA2_E_NOT_FOUND)
        return fa2i_fail(FA2_E_INVALID, "'kernel' is the key of no kernel above");
    return st;
}

/* ---- lines ---- */

fa2_status fa2i_import_device(fa2i_import *in)
{
    fa2_status st;
    fa2i_card card = {0};
    bool is_real = false;
    FA2_TRY(fa2i_members_text(&in->members, "name", card.name, sizeof card.name));
    FA2_TRY(fa2i_members_int(&in->members, "arch", &card.arch));
    FA2_TRY(fa2i_members_int(&in->members, "sm_count", &card.sm_count));
    FA2_TRY(fa2i_members_int(&in->members, "smem_block_bytes", &card.smem_block_bytes));
    FA2_TRY(fa2i_members_int(&in->members, "smem_sm_bytes", &card.smem_sm_bytes));
    FA2_TRY(fa2i_members_int64(&in->members, "l2_bytes", &card.l2_bytes));
    FA2_TRY(fa2i_members_int(&in->members, "clock_khz", &card.clock_khz));
    FA2_TRY(fa2i_members_int64(&in->members, "bandwidth_bytes", &card.bandwidth_bytes));
    FA2_TRY(fa2i_members_bool(&in->members, "real", &is_real));
    FA2_TRY(fa2i_row_device(in->cache, &card, is_real, &in->ours));
done:
    return st;
}

/* Finds a member of a problem's line that this fa2 does not know. Such a member may be all that tells the problem from
 * another one. */
static const char unknown_member_sql[] = "SELECT key FROM json_each(?) WHERE key NOT IN ('type', 'id'"
#define FA2I_FIELD(name, ...) ", '" #name "'"
#include "runtime/base/problem.def"
                                         ")";

static fa2_status refuse_unknown_members(fa2i_import *in)
{
    const fa2i_sql_value values[] = {fa2i_sql_text(in->members.line)};
    sqlite3_stmt *stmt = NULL;
    fa2_status st = fa2i_sql_row(in->cache, unknown_member_sql, FA2I_SQL_VALUES(values), &stmt);
    if (st == FA2_OK)
        st = fa2i_fail(FA2_E_INVALID,
                       "the problem has the member '%.60s', which this fa2 does not "
                       "know: use the newer fa2 that wrote the file",
                       (const char *)sqlite3_column_text(stmt, 0));
    else if (st == FA2_E_NOT_FOUND)
        st = FA2_OK;
    sqlite3_finalize(stmt);
    return st;
}

/* May this field be missing? It may if it came later and texts leave it out when it is 0, because older files lack
 * it. */
static bool may_be_missing(int field)
{
    const fa2i_field *f = &fa2i_fields[field];
    return f->needs >= 0 || !f->shown_always;
}

static fa2_status read_field(fa2i_import *in, fa2_problem *problem, int field)
{
    const fa2i_field *f = &fa2i_fields[field];
    char word[32];
    int32_t value = 0;
    int64_t number = 0;
    fa2_status st;
    if (may_be_missing(field) && !fa2i_members_has(&in->members, f->name))
        return FA2_OK;
    if (f->type == FA2I_TYPE_INT) {
        st = fa2i_members_number(&in->members, f->name, INT32_MIN, INT32_MAX, &number);
        value = (int32_t)number;
    } else {
        st = fa2i_members_word(&in->members, f->name, word, sizeof word);
        if (st == FA2_OK && !fa2i_field_parse_word(field, word, &value))
            st = fa2i_fail(FA2_E_INVALID, "'%s' is '%s', which this fa2 does not know", f->name, word);
    }
    if (st == FA2_OK)
        fa2i_field_set(problem, field, value);
    return st;
}

fa2_status fa2i_import_problem(fa2i_import *in)
{
    fa2_problem problem = {.struct_bytes = sizeof problem, .op = FA2_OP_FORWARD};
    fa2_status st = refuse_unknown_members(in);
    for (int field = 0; st == FA2_OK && field < FA2I_FIELD_COUNT; field++)
        st = read_field(in, &problem, field);
    return st == FA2_OK ? fa2i_row_problem(in->cache, &problem, &in->ours) : st;
}

fa2_status fa2i_import_session(fa2i_import *in)
{
    fa2_status st;
    int64_t device = 0;
    int driver = 0;
    int nvrtc = 0;
    char generator[17];
    char started_at[32];
    bool modelled = false;
    FA2_TRY(fa2i_import_id(in, "device", &device));
    FA2_TRY(fa2i_members_int(&in->members, "driver", &driver));
    FA2_TRY(fa2i_members_int(&in->members, "nvrtc", &nvrtc));
    FA2_TRY(fa2i_members_text(&in->members, "generator", generator, sizeof generator));
    FA2_TRY(fa2i_members_text(&in->members, "started_at", started_at, sizeof started_at));
    FA2_TRY(fa2i_members_bool(&in->members, "modelled", &modelled));
    const fa2i_sql_value values[] = {fa2i_sql_int(device),     fa2i_sql_int(driver),      fa2i_sql_int(nvrtc),
                                     fa2i_sql_text(generator), fa2i_sql_text(started_at), fa2i_sql_int(modelled)};
    /* A file that is imported again, or comes back to where it was written, adds nothing. */
    st = fa2i_sql_number(in->cache,
                         "SELECT id FROM session WHERE device = ? AND driver = ? AND nvrtc = ? "
                         "AND generator = ? AND started_at = ? AND modelled = ?",
                         FA2I_SQL_VALUES(values), &in->ours);
    if (st == FA2_E_NOT_FOUND)
        st = fa2i_sql_number(in->cache,
                             "INSERT INTO session (device, driver, nvrtc, generator, started_at, "
                             "modelled, origin) VALUES (?,?,?,?,?,?,'import') RETURNING id",
                             FA2I_SQL_VALUES(values), &in->ours);
done:
    return st;
}

static fa2_status read_kernel(fa2i_import *in, fa2i_kernel *kernel)
{
    fa2_status st;
    fa2i_variant *variant = &kernel->variant;
    char recipe[FA2I_RECIPE_CHARS];
    FA2_TRY(fa2i_members_key(&in->members, "key", &kernel->key));
    FA2_TRY(fa2i_members_text(&in->members, "variant", variant->text, sizeof variant->text));
    FA2_TRY(fa2i_members_text(&in->members, "class", variant->class_key, sizeof variant->class_key));
    FA2_TRY(fa2i_members_text(&in->members, "recipe", recipe, sizeof recipe));
    FA2_TRY(fa2i_recipe_parse(recipe, &variant->recipe));
    FA2_TRY(fa2i_members_text(&in->members, "target", kernel->target, sizeof kernel->target));
    FA2_TRY(fa2i_members_int(&in->members, "nvrtc", &kernel->nvrtc));
    FA2_TRY(fa2i_members_text(&in->members, "generator", kernel->generator, sizeof kernel->generator));
    FA2_TRY(fa2i_members_outcome(&in->members, "outcome", &kernel->outcome));
    FA2_TRY(fa2i_members_int(&in->members, "registers", &kernel->registers));
    FA2_TRY(fa2i_members_int(&in->members, "spill_bytes", &kernel->spill_bytes));
    FA2_TRY(fa2i_members_real(&in->members, "compile_ms", &kernel->compile_ms));
done:
    return st;
}

/* Makes import pass over all later rows that refer to this kernel. */
static fa2_status pass_over(fa2i_import *in, const fa2i_kernel *kernel)
{
    const fa2i_sql_value values[] = {fa2i_sql_key(&kernel->key)};
    const int before = sqlite3_total_changes(in->cache->db);
    if (in->counts.unknown == 0)
        snprintf(in->counts.first_unknown, sizeof in->counts.first_unknown, "%s", fa2_last_message());
    const fa2_status st =
        fa2i_sql_run(in->cache, "INSERT OR IGNORE INTO temp.import_unknown VALUES (?)", FA2I_SQL_VALUES(values));
    in->is_unknown = true;
    if (sqlite3_total_changes(in->cache->db) > before) /* else the file has it twice */
        in->counts.unknown++;
    return st;
}

fa2_status fa2i_import_kernel(fa2i_import *in)
{
    fa2i_kernel kernel = {0};
    int64_t id = 0;
    fa2_status st = read_kernel(in, &kernel);
    if (st == FA2_OK && in->variant != NULL)
        st = in->variant(in->user, &kernel.variant);
    if (st == FA2_E_NOT_FOUND)
        return pass_over(in, &kernel);
    if (st != FA2_OK)
        return st;
    st = fa2i_row_kernel_id(in->cache, &kernel.key, &id);
    return st == FA2_E_NOT_FOUND ? fa2i_row_put_kernel(in->cache, &kernel, &id) : st;
}
