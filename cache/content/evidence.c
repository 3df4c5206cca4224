/*
 * How: read the kernels first, then the times, set by set. Rows come sorted by device and problem, measured ones before
 * modelled ones. A sorted list maps a kernel's id to its index.
 *
 * - A time counts only if the kernel's class is the class of the problem's fields. It does not count if the problem's
 *   row has another class; gc drops such a row.
 * - A winner without a measurement of its own (imported, or ranked offline) counts as a measurement.
 */
#include "cache/content/evidence.h"

#include <string.h>
#include "cache/database/columns.h"
#include "cache/database/rules.h"
#include "runtime/base/alloc.h"

/* Rows are appended; arrays grow by doubling. */
typedef struct reading {
    fa2i_cache *cache;
    const fa2i_card *card;
    fa2_op op;
    int abi;
    fa2i_evidence found;
    int64_t *ids; /* of the kernels, ascending */
    size_t kernel_room, id_room, set_room, time_room;
    bool passed;          /* a problem was passed over, because its row has another class than its fields */
    fa2i_key passed_with; /* the first kernel that was timed on that problem */
} reading;

void fa2i_evidence_done(fa2i_evidence *evidence)
{
    fa2i_free(evidence->kernels);
    fa2i_free(evidence->sets);
    fa2i_free(evidence->times);
    *evidence = (fa2i_evidence){0};
}

fa2_status fa2i_evidence_reserve(fa2i_evidence *e, size_t kernels, size_t sets, size_t times)
{
    size_t full[3] = {0}; /* no array is known to have room */
    fa2_status st = FA2_OK;
    FA2_TRY(FA2I_GROW(e->kernels, e->kernel_count + kernels + 1, full[0]));
    FA2_TRY(FA2I_GROW(e->sets, e->set_count + sets + 1, full[1]));
    FA2_TRY(FA2I_GROW(e->times, e->time_count + times + 1, full[2]));
done:
    return st;
}

/* ---- kernels ---- */

/* A proxy's results are evidence for proxies of the SM alone. */
#define IS_PROXY "(d.name GLOB '" FA2I_PROXY_NAME "*') "

/* Kernels that were verified, timed, or won. */
#define TRIED_BY                                                                                                       \
    "(SELECT t.kernel FROM device d JOIN (SELECT device, kernel FROM verification UNION ALL "                          \
    "SELECT device, kernel FROM measurement UNION ALL SELECT device, kernel FROM winner) t ON t.device = d.id WHERE "
#define TRIED_BY_PROXIES TRIED_BY IS_PROXY ")"
#define TRIED_BY_DEVICES TRIED_BY "NOT " IS_PROXY ")"

/* Kernels that were made for the SM, or measured on it. For a device, those that only proxies tried are left out. */
static const char kernels_sql[] =
    "SELECT k.id, k.key, k.variant, k.class, k.recipe, k.registers, k.outcome, "
    "EXISTS (SELECT 1 FROM image i WHERE i.kernel = k.id), k.generator, k.spill_bytes > 0 FROM kernel k "
    "WHERE k.outcome IN ('ok', 'spilled') "
    "AND (rtrim(k.target, 'abcdefghijklmnopqrstuvwxyz') IN ('sm_' || ?1, 'compute_' || ?1) "
    "OR k.id IN (SELECT m.kernel FROM measurement m WHERE m.device IN (SELECT id FROM device WHERE arch = ?1)) "
    "OR k.id IN (SELECT w.kernel FROM winner w WHERE w.device IN (SELECT id FROM device WHERE arch = ?1))) "
    "AND (?2 OR k.id NOT IN " TRIED_BY_PROXIES " OR k.id IN " TRIED_BY_DEVICES ") "
    "AND k.id NOT IN (SELECT kernel FROM verification WHERE outcome <> 'ok') "
    "AND k.id NOT IN (SELECT kernel FROM measurement "
    "WHERE outcome IN ('wrong', 'fault', 'hang', 'launch_error')) ORDER BY k.id";

/* Reads the row's kernel. Returns false if it is not for this operation, version or card. */
static bool read_kernel(const reading *r, sqlite3_stmt *stmt, fa2i_known_kernel *ret_kernel)
{
    fa2i_known_kernel kernel = {.registers = sqlite3_column_int(stmt, 5), .has_code = sqlite3_column_int(stmt, 7) != 0};
    fa2i_recipe recipe;
    fa2i_outcome outcome;
    const char *recipe_text = (const char *)sqlite3_column_text(stmt, 4);
    const void *key = sqlite3_column_blob(stmt, 1);
    if (key == NULL || sqlite3_column_bytes(stmt, 1) != FA2I_KEY_BYTES || recipe_text == NULL ||
        fa2i_recipe_parse(recipe_text, &recipe) != FA2_OK || recipe.op != r->op ||
        fa2i_recipe_most_smem(&recipe) > r->card->smem_block_bytes || !fa2i_sql_column_outcome(stmt, 6, &outcome) ||
        !fa2i_row_has_generator(stmt, 8) || kernel.registers < 0)
        return false;
    memcpy(kernel.key.bytes, key, FA2I_KEY_BYTES);
    fa2i_sql_column_text(stmt, 2, kernel.text, sizeof kernel.text);
    fa2i_sql_column_text(stmt, 3, kernel.class_key, sizeof kernel.class_key);
    fa2i_sql_column_text(stmt, 8, kernel.generator, sizeof kernel.generator);
    if (recipe.abi != r->abi + fa2i_recipe_revision(kernel.class_key))
        return false;
    kernel.spilled = outcome == FA2I_OUTCOME_SPILLED;
    kernel.is_known_to_spill = kernel.spilled || sqlite3_column_int(stmt, 9) != 0;
    *ret_kernel = kernel;
    return true;
}

static fa2_status add_kernel(reading *r, sqlite3_stmt *stmt)
{
    fa2i_evidence *found = &r->found;
    fa2_status st = FA2I_GROW(found->kernels, found->kernel_count + 1, r->kernel_room);
    if (st == FA2_OK)
        st = FA2I_GROW(r->ids, found->kernel_count + 1, r->id_room);
    if (st == FA2_OK && read_kernel(r, stmt, &found->kernels[found->kernel_count]))
        r->ids[found->kernel_count++] = sqlite3_column_int64(stmt, 0);
    return st;
}

/* Finds the index of an id; false: it is no kernel of the list. */
static bool find_kernel(const reading *r, int64_t id, size_t *ret_index)
{
    size_t low = 0, high = r->found.kernel_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (r->ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_index = low;
    return low < r->found.kernel_count && r->ids[low] == id;
}

/* ---- times ---- */

/* A measurement of one launch also counts: it is a probe that was not worth more. The winner was timed most often, and
 * beside the others. So no other kernel's time is below it: a median of few launches can be lower by chance. */
static const char times_sql[] =
    "WITH timed AS (SELECT m.device, m.problem, m.kernel, max(m.median_us, ifnull(1.001 * w.median_us, 0)) AS us, "
    "NOT s.modelled AS measured FROM measurement m JOIN session s ON s.id = m.session AND s.device = m.device "
    "LEFT JOIN winner w ON w.device = m.device AND w.problem = m.problem AND w.kernel <> m.kernel "
    "AND w.session >= m.session AND w.measured AND NOT s.modelled WHERE m.outcome = 'ok' AND m.n > 0 UNION ALL "
    "SELECT w.device, w.problem, w.kernel, iif(w.measured, w.median_us, w.model_us), w.measured "
    "FROM winner w JOIN session s ON s.id = w.session AND s.device = w.device "
    "WHERE NOT EXISTS (SELECT 1 FROM measurement m WHERE m.device = w.device "
    "AND m.problem = w.problem AND m.kernel = w.kernel AND m.outcome = 'ok' AND m.n > 0)) "
    "SELECT t.device, t.problem, t.kernel, t.us, t.measured, d.name, d.arch, d.sm_count, "
    "d.smem_block_bytes, d.smem_sm_bytes, d.l2_bytes, d.clock_khz, d.bandwidth_bytes, d.real, p.class"
#define FA2I_FIELD(name, ...) ", p." #name
#include "runtime/base/problem.def"
    " FROM timed t JOIN device d ON d.id = t.device JOIN problem p ON p.id = t.problem "
    "WHERE d.arch = ?1 AND " IS_PROXY "= ?4 AND p.op = ?2 AND t.us > 0 AND t.us <= ?3 ORDER BY t.device, t.problem, "
    "t.measured DESC, t.kernel";

static fa2i_known_set read_set(sqlite3_stmt *stmt)
{
    fa2i_known_set set = {
        .card = {.arch = sqlite3_column_int(stmt, 6),
                 .sm_count = sqlite3_column_int(stmt, 7),
                 .smem_block_bytes = sqlite3_column_int(stmt, 8),
                 .smem_sm_bytes = sqlite3_column_int(stmt, 9),
                 .l2_bytes = sqlite3_column_int64(stmt, 10),
                 .clock_khz = sqlite3_column_int(stmt, 11),
                 .bandwidth_bytes = sqlite3_column_int64(stmt, 12)},
        .measured = sqlite3_column_int(stmt, 4) != 0,
        .real = sqlite3_column_int(stmt, 13) != 0,
    };
    fa2i_sql_column_text(stmt, 5, set.card.name, sizeof set.card.name);
    return set;
}

/* Reads the row's problem. Returns false if it is invalid, or if its row has another class than its fields. */
static bool read_problem(reading *r, sqlite3_stmt *stmt, size_t kernel, fa2_problem *ret_problem)
{
    char class_key[FA2I_CLASS_CHARS];
    const char *filed = (const char *)sqlite3_column_text(stmt, 14);
    if (fa2i_columns_read(r->cache, stmt, 15, ret_problem) != FA2_OK)
        return false;
    fa2i_problem_class(ret_problem, class_key);
    const bool is_filed = filed != NULL && strcmp(filed, class_key) == 0;
    if (!is_filed && !r->passed)
        r->passed_with = r->found.kernels[kernel].key;
    r->passed |= !is_filed;
    return is_filed;
}

/* Finds the row's set: the last one, or a new one. NULL with FA2_OK: the row is damaged. */
static fa2_status find_set(reading *r, sqlite3_stmt *stmt, size_t kernel, int64_t last[3], fa2i_known_set **ret_set)
{
    fa2i_evidence *found = &r->found;
    const int64_t device = sqlite3_column_int64(stmt, 0), id = sqlite3_column_int64(stmt, 1),
                  measured = sqlite3_column_int(stmt, 4) != 0;

    *ret_set = NULL;
    if (found->set_count == 0 || device != last[0] || id != last[1] || measured != last[2]) {
        fa2i_known_set set = read_set(stmt);
        if (!fa2i_card_is_sound(&set.card) || !read_problem(r, stmt, kernel, &set.problem))
            return FA2_OK;
        const fa2_status st = FA2I_GROW(found->sets, found->set_count + 1, r->set_room);
        if (st != FA2_OK)
            return st;
        found->sets[found->set_count] = set;
        found->sets[found->set_count++].first = found->time_count;
        last[0] = device;
        last[1] = id;
        last[2] = measured;
    }
    *ret_set = &found->sets[found->set_count - 1];
    return FA2_OK;
}

static fa2_status add_time(reading *r, sqlite3_stmt *stmt, int64_t last[3])
{
    fa2i_evidence *found = &r->found;
    fa2i_known_set *set = NULL;
    char class_key[FA2I_CLASS_CHARS];
    size_t kernel = 0;
    if (!find_kernel(r, sqlite3_column_int64(stmt, 2), &kernel))
        return FA2_OK;
    fa2_status st = find_set(r, stmt, kernel, last, &set);
    if (st != FA2_OK || set == NULL)
        return st;
    fa2i_problem_class(&set->problem, class_key);
    if (strcmp(class_key, found->kernels[kernel].class_key) != 0)
        return FA2_OK;
    st = FA2I_GROW(found->times, found->time_count + 1, r->time_room);
    if (st != FA2_OK)
        return st;
    found->times[found->time_count++] = (fa2i_known_time){.kernel = kernel, .us = sqlite3_column_double(stmt, 3)};
    found->kernels[kernel].timed = true;
    set->count++;
    return FA2_OK;
}

/* ---- all ---- */

static fa2_status read_kernels(reading *r)
{
    sqlite3_stmt *stmt = NULL;
    const fa2i_sql_value values[] = {fa2i_sql_int(r->card->arch), fa2i_sql_int(fa2i_card_is_proxy(r->card))};
    fa2_status st = fa2i_sql_prepare(r->cache, kernels_sql, FA2I_SQL_VALUES(values), &stmt);
    while (st == FA2_OK && fa2i_sql_next(r->cache, stmt, &st))
        st = add_kernel(r, stmt);
    sqlite3_finalize(stmt);
    return st;
}

static fa2_status read_times(reading *r)
{
    sqlite3_stmt *stmt = NULL;
    int64_t last[3] = {0};
    const fa2i_sql_value values[] = {fa2i_sql_int(r->card->arch),
                                     fa2i_sql_text(fa2i_field_word(FA2I_FIELD_op, (int32_t)r->op)),
                                     fa2i_sql_real(FA2I_US_MAX), fa2i_sql_int(fa2i_card_is_proxy(r->card))};
    fa2_status st = fa2i_sql_prepare(r->cache, times_sql, FA2I_SQL_VALUES(values), &stmt);
    while (st == FA2_OK && fa2i_sql_next(r->cache, stmt, &st))
        st = add_time(r, stmt, last);
    sqlite3_finalize(stmt);
    return st;
}

fa2_status fa2i_cache_evidence(fa2i_cache *cache, const fa2i_card *card, fa2_op op, int abi,
                               fa2i_evidence *ret_evidence)
{
    reading r = {.cache = cache, .card = card, .op = op, .abi = abi};
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_READ);
    if (st == FA2_OK)
        st = read_kernels(&r);
    if (st == FA2_OK)
        st = read_times(&r);
    st = fa2i_sql_end(cache, st);
    fa2i_free(r.ids);
    if (st == FA2_OK && r.passed)
        fa2i_row_report_unused(cache, &r.passed_with,
                               "was timed on a problem that is filed under another class, which does not count",
                               "see fa2-tune check");
    if (st == FA2_OK)
        *ret_evidence = r.found;
    else
        fa2i_evidence_done(&r.found);
    return st;
}
