/*
 * Results of kernels: verifications, measurements, winners, and the choices among them. store_results.c stores what a
 * tuning found out about a problem.
 */
#include "cache/database/columns.h"

#include <string.h>
#include "cache/database/rules.h"
#include "runtime/base/alloc.h"

/* The facts that decide which kernel runs are read from the rows themselves, so that a damaged index does not matter. A
 * table WITHOUT ROWID is stored as the index of its primary key, which the statement has to name. */
#define WINNER_ROWS       "winner w INDEXED BY sqlite_autoindex_winner_1"
#define VERIFICATION_ROWS "verification v INDEXED BY sqlite_autoindex_verification_1"

/* ---- verification ---- */

fa2_status fa2i_row_put_verification(fa2i_cache *cache, int64_t device, const fa2i_key *kernel,
                                     const fa2i_verification *verification)
{
    int64_t id = 0;
    const fa2_status st = fa2i_row_kernel_id(cache, kernel, &id);
    const fa2i_sql_value values[] = {fa2i_sql_int(device), fa2i_sql_int(id),
                                     fa2i_sql_text(fa2i_outcome_string(verification->outcome)),
                                     fa2i_sql_real(verification->max_error), fa2i_sql_text(verification->detail)};
    return st != FA2_OK ? st
                        : fa2i_sql_run(cache,
                                       "INSERT OR REPLACE INTO verification (device, kernel, outcome, max_error, "
                                       "detail, verified_at) VALUES (?,?,?,?,?," FA2I_SQL_NOW ")",
                                       FA2I_SQL_VALUES(values));
}

fa2_status fa2i_cache_put_verification(fa2i_cache *cache, int64_t device, const fa2i_key *kernel,
                                       const fa2i_verification *verification)
{
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_WRITE);
    if (st == FA2_OK)
        st = fa2i_row_put_verification(cache, device, kernel, verification);
    return fa2i_sql_end(cache, st);
}

/* A damaged row counts as missing. */
static const char damaged[] = "row that is sound; see fa2-tune check";

static fa2_status not_found(const fa2i_cache *cache, fa2_status st, const char *what)
{
    return st == FA2_E_NOT_FOUND ? fa2i_fail(st, "%s: there is no %s", cache->path, what) : st;
}

fa2_status fa2i_cache_get_verification(fa2i_cache *cache, int64_t device, const fa2i_key *kernel,
                                       fa2i_verification *ret_verification)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    fa2i_verification found = {0};
    const fa2i_sql_value values[] = {fa2i_sql_int(device), fa2i_sql_key(kernel)};
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    st = fa2i_sql_row(cache,
                      "SELECT v.outcome, v.max_error, v.detail FROM verification v "
                      "JOIN kernel k ON k.id = v.kernel WHERE v.device = ? AND k.key = ?",
                      FA2I_SQL_VALUES(values), &stmt);
    FA2_TRY(not_found(cache, st, "verification of this kernel on this device"));
    found.max_error = fa2i_sql_column_error(stmt, 1);
    fa2i_sql_column_text(stmt, 2, found.detail, sizeof found.detail);
    if (!fa2i_sql_column_outcome(stmt, 0, &found.outcome) || !(found.max_error >= 0))
        st = not_found(cache, FA2_E_NOT_FOUND, damaged);
done:
    st = fa2i_sql_close(cache, stmt, st);
    if (st == FA2_OK)
        *ret_verification = found;
    return st;
}

/* A row with any other word than "ok" refutes the kernel. If the word is no outcome, it counts as wrong. */
static fa2_status find_refutation(fa2i_cache *cache, const char *sql, fa2i_sql_value of, fa2i_outcome *ret_outcome)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    fa2i_outcome outcome = FA2I_OUTCOME_OK;
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    st = fa2i_sql_row(cache, sql, &of, 1, &stmt);
    if (st == FA2_OK && !fa2i_sql_column_outcome(stmt, 0, &outcome))
        outcome = FA2I_OUTCOME_WRONG;
    st = st == FA2_E_NOT_FOUND ? FA2_OK : st;
done:
    st = fa2i_sql_close(cache, stmt, st);
    if (st == FA2_OK)
        *ret_outcome = outcome;
    return st;
}

#define REFUTATION_OF(column)                                                                                          \
    "SELECT v.outcome FROM " VERIFICATION_ROWS " CROSS JOIN kernel k ON k.id = v.kernel "                              \
    "WHERE v.outcome <> 'ok' AND +k." column " = ? ORDER BY v.device LIMIT 1"

fa2_status fa2i_cache_refutation(fa2i_cache *cache, const fa2i_key *kernel, fa2i_outcome *ret_outcome)
{
    return find_refutation(cache, REFUTATION_OF("key"), fa2i_sql_key(kernel), ret_outcome);
}

fa2_status fa2i_cache_variant_refutation(fa2i_cache *cache, const char *variant, fa2i_outcome *ret_outcome)
{
    return find_refutation(cache, REFUTATION_OF("variant"), fa2i_sql_text(variant), ret_outcome);
}

fa2_status fa2i_cache_refutations(fa2i_cache *cache, int64_t other_than, fa2i_refutation **ret_refutations,
                                  size_t *ret_count)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    fa2i_refutation *list = NULL;
    size_t count = 0, capacity = 0;
    const fa2i_sql_value values[] = {fa2i_sql_int(other_than)};
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    FA2_TRY(fa2i_sql_prepare(cache,
                             "SELECT k.key, v.outcome, d.name, v.detail FROM " VERIFICATION_ROWS
                             " CROSS JOIN kernel k ON k.id = v.kernel LEFT JOIN device d ON d.id = v.device "
                             "WHERE v.outcome <> 'ok' AND v.device <> ? AND length(k.key) = 32 ORDER BY v.device, k.id",
                             FA2I_SQL_VALUES(values), &stmt));
    while (fa2i_sql_next(cache, stmt, &st)) {
        FA2_TRY(FA2I_GROW(list, count + 1, capacity));
        fa2i_refutation *one = &list[count++];
        *one = (fa2i_refutation){.outcome = FA2I_OUTCOME_WRONG};
        memcpy(one->kernel.bytes, sqlite3_column_blob(stmt, 0), FA2I_KEY_BYTES);
        (void)fa2i_sql_column_outcome(stmt, 1, &one->outcome); /* a damaged outcome counts as wrong */
        fa2i_sql_column_text(stmt, 2, one->device, sizeof one->device);
        fa2i_sql_column_text(stmt, 3, one->detail, sizeof one->detail);
    }
done:
    st = fa2i_sql_close(cache, stmt, st);
    if (st != FA2_OK) {
        fa2i_free(list);
        return st;
    }
    *ret_refutations = list;
    *ret_count = count;
    return FA2_OK;
}

/* ---- measurements ---- */

fa2_status fa2i_cache_get_measurement(fa2i_cache *cache, int64_t device, int64_t problem, const fa2i_key *kernel,
                                      fa2i_measurement *ret_measurement)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    fa2i_measurement found = {0};
    const fa2i_sql_value values[] = {fa2i_sql_int(device), fa2i_sql_int(problem), fa2i_sql_key(kernel)};
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    st = fa2i_sql_row(cache,
                      "SELECT m.outcome, m.settled, m.n, m.min_us, m.q1_us, m.median_us, m.q3_us, "
                      "m.max_error, m.detail FROM measurement m JOIN kernel k ON k.id = m.kernel "
                      "WHERE m.device = ? AND m.problem = ? AND k.key = ?",
                      FA2I_SQL_VALUES(values), &stmt);
    FA2_TRY(not_found(cache, st, "measurement of this kernel on this problem"));
    found.settled = sqlite3_column_int(stmt, 1) != 0;
    found.n = sqlite3_column_int(stmt, 2);
    found.min_us = sqlite3_column_double(stmt, 3);
    found.q1_us = sqlite3_column_double(stmt, 4);
    found.median_us = sqlite3_column_double(stmt, 5);
    found.q3_us = sqlite3_column_double(stmt, 6);
    found.max_error = fa2i_sql_column_error(stmt, 7);
    fa2i_sql_column_text(stmt, 8, found.detail, sizeof found.detail);
    if (!fa2i_sql_column_outcome(stmt, 0, &found.outcome) || fa2i_measurement_fault(&found) != NULL)
        st = not_found(cache, FA2_E_NOT_FOUND, damaged);
done:
    st = fa2i_sql_close(cache, stmt, st);
    if (st == FA2_OK)
        *ret_measurement = found;
    return st;
}

/* ---- winners ---- */

#define WINNER_COLUMNS "k.key, w.measured, w.median_us, w.default_us, w.model_us"
enum { WINNER_COLUMN_COUNT = 5 };

/* Returns false if the row is damaged. */
static bool read_winner(sqlite3_stmt *stmt, fa2i_winner *ret_winner)
{
    fa2i_winner winner = {
        .measured = sqlite3_column_int(stmt, 1) != 0,
        .median_us = sqlite3_column_double(stmt, 2),
        .default_us = sqlite3_column_double(stmt, 3),
        .model_us = sqlite3_column_double(stmt, 4),
    };
    const void *key = sqlite3_column_blob(stmt, 0);
    const bool has_key = key != NULL && sqlite3_column_bytes(stmt, 0) == FA2I_KEY_BYTES;
    if (has_key)
        memcpy(winner.kernel.bytes, key, FA2I_KEY_BYTES);
    *ret_winner = winner;
    return has_key && fa2i_winner_fault(&winner) == NULL;
}

fa2_status fa2i_cache_get_winner(fa2i_cache *cache, int64_t device, int64_t problem, fa2i_winner *ret_winner)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    fa2i_winner found = {0};
    const fa2i_sql_value values[] = {fa2i_sql_int(device), fa2i_sql_int(problem)};
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    st = fa2i_sql_row(cache,
                      "SELECT " WINNER_COLUMNS " FROM winner w CROSS JOIN kernel k "
                      "ON k.id = w.kernel WHERE w.device = ? AND w.problem = ?",
                      FA2I_SQL_VALUES(values), &stmt);
    FA2_TRY(not_found(cache, st, "winner for this problem on this device"));
    if (!read_winner(stmt, &found))
        st = not_found(cache, FA2_E_NOT_FOUND, damaged);
done:
    st = fa2i_sql_close(cache, stmt, st);
    if (st == FA2_OK)
        *ret_winner = found;
    return st;
}

fa2_status fa2i_cache_get_compiler(fa2i_cache *cache, int64_t device, int *ret_nvrtc, char ret_target[16])
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    const fa2i_sql_value values[] = {fa2i_sql_int(device)};
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    st = fa2i_sql_row(cache,
                      "SELECT nvrtc, target FROM kernel WHERE id IN (SELECT kernel FROM winner WHERE device = ?1 "
                      "UNION SELECT kernel FROM verification WHERE device = ?1) ORDER BY id DESC LIMIT 1",
                      FA2I_SQL_VALUES(values), &stmt);
    FA2_TRY(not_found(cache, st, "kernel for this device"));
    *ret_nvrtc = sqlite3_column_int(stmt, 0);
    fa2i_sql_column_text(stmt, 1, ret_target, 16);
done:
    return fa2i_sql_close(cache, stmt, st);
}

/* ---- choices ---- */

/* The joins go from row to row by ids alone, in this order. */
static const char choices_sql[] =
    "SELECT " WINNER_COLUMNS ", d.name, d.sm_count, d.smem_block_bytes, d.l2_bytes, d.real, "
    "k.class, k.recipe, k.variant, k.id IS NULL, "
    "k.id IN (SELECT kernel FROM " VERIFICATION_ROWS " WHERE outcome <> 'ok')"
#define FA2I_FIELD(name, ...) ", p." #name
#include "runtime/base/problem.def"
    " FROM " WINNER_ROWS " CROSS JOIN device d ON d.id = w.device CROSS JOIN problem p ON p.id = w.problem "
    "CROSS JOIN session s ON s.id = w.session AND s.device = w.device LEFT JOIN kernel k ON k.id = w.kernel "
    "WHERE d.arch = ?1 AND p.class = ?2 ORDER BY w.measured DESC, d.real DESC, d.name"
#define ORDER_KIND(name)                       ""
#define ORDER_SIZE(name)                       ", p." #name
#define FA2I_FIELD(name, key, type, role, ...) ORDER_##role(name)
#include "runtime/base/problem.def"
#undef ORDER_KIND
#undef ORDER_SIZE
    ", d.id";

typedef enum fit { FITS, OTHER_ABI, OTHER_CLASS, REFUTED, MISSING, OTHER_PROBLEM, BAD_RECORD } fit;

/* The faults of winners that are choices nevertheless. */
static const char *const faults[OTHER_PROBLEM] = {
    [OTHER_ABI] = "it is of another version of fa2; tune the problem again with this one",
    [OTHER_CLASS] = "its kernel is for problems of another class; see fa2-tune check",
    [REFUTED] = "it failed its verification",
    [MISSING] = "its kernel's row is missing; see fa2-tune check",
};

/* Does the row's kernel serve the class, and if not, why? A kernel whose own record is damaged fits: its loader notices
 * the damage and says what to do. *choice is always written. */
static fit read_choice(const fa2i_cache *cache, sqlite3_stmt *stmt, const char *class_key, int abi, fa2i_choice *choice)
{
    const int c = WINNER_COLUMN_COUNT;
    const char *recipe_text = (const char *)sqlite3_column_text(stmt, c + 6);
    char of_kernel[FA2I_CLASS_CHARS], of_problem[FA2I_CLASS_CHARS];
    fa2i_recipe recipe;
    const bool is_missing = sqlite3_column_int(stmt, c + 8) != 0;
    const bool is_winner =
        read_winner(stmt, &choice->winner) || (is_missing && fa2i_winner_fault(&choice->winner) == NULL);
    fa2i_sql_column_text(stmt, c, choice->device, sizeof choice->device);
    choice->sm_count = sqlite3_column_int(stmt, c + 1);
    choice->smem_block_bytes = sqlite3_column_int64(stmt, c + 2);
    choice->l2_bytes = sqlite3_column_int64(stmt, c + 3);
    choice->real = sqlite3_column_int(stmt, c + 4) != 0;
    fa2i_sql_column_text(stmt, c + 5, of_kernel, sizeof of_kernel);
    fa2i_sql_column_text(stmt, c + 7, choice->variant, sizeof choice->variant);
    if (!is_winner || fa2i_columns_read(cache, stmt, c + 10, &choice->problem) != FA2_OK)
        return BAD_RECORD;
    fa2i_problem_class(&choice->problem, of_problem); /* from the fields, because the column may be wrong */
    if (strcmp(of_problem, class_key) != 0)
        return OTHER_PROBLEM;
    if (is_missing)
        return MISSING;
    if (strcmp(of_kernel, class_key) != 0)
        return OTHER_CLASS;
    choice->refuted = sqlite3_column_int(stmt, c + 9) != 0;
    if (choice->refuted)
        return REFUTED;
    if (recipe_text == NULL || fa2i_recipe_parse(recipe_text, &recipe) != FA2_OK)
        return FITS;
    return recipe.abi == abi ? FITS : OTHER_ABI;
}

/* Winners that do not fit. The log is told when the mutex is free; the rest is told another time. Refuted and missing
 * kernels are not told here: the caller that asks for their problem does that. */
typedef struct misfits {
    fa2i_key kernels[16];
    fit fits[16];
    size_t count;
} misfits;

static void add_misfit(misfits *found, const fa2i_choice *choice, fit how)
{
    if (found->count == sizeof found->fits / sizeof found->fits[0])
        return;
    found->kernels[found->count] = choice->winner.kernel;
    found->fits[found->count++] = how;
}

static void report_misfits(fa2i_cache *cache, const misfits *found)
{
    static const char *const why[] = {
        [OTHER_ABI] = "is of another version of fa2, which computes or launches such kernels otherwise, "
                      "and is not used",
        [OTHER_CLASS] = "is the winner for a problem of another class and is not used",
        [OTHER_PROBLEM] = "is the winner for a problem of another class and is not used",
        [BAD_RECORD] = "wins by a record that is damaged and does not count",
    };
    for (size_t i = 0; i < found->count; i++)
        fa2i_row_report_unused(cache, &found->kernels[i], why[found->fits[i]],
                               found->fits[i] == OTHER_ABI ? "tune its problems again with this one"
                                                           : "see fa2-tune check");
}

fa2_status fa2i_cache_winner_archs(fa2i_cache *cache, const fa2_problem *problem, int without,
                                   char ret_archs[FA2I_ARCHS_CHARS])
{
    static const char sql[] = "SELECT coalesce(group_concat('sm_' || arch, ', '), '') FROM (SELECT DISTINCT d.arch "
                              "FROM problem p JOIN winner w ON w.problem = p.id JOIN device d ON d.id = w.device WHERE "
#define FA2I_FIELD(name, ...) "p." #name " = ? AND "
#include "runtime/base/problem.def"
                              "d.arch <> ? ORDER BY d.arch)";
    fa2i_sql_value values[FA2I_FIELD_COUNT + 1];
    sqlite3_stmt *stmt = NULL;
    fa2_status st;
    fa2i_columns_values(problem, values);
    values[FA2I_FIELD_COUNT] = fa2i_sql_int(without);
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    FA2_TRY(fa2i_sql_row(cache, sql, FA2I_SQL_VALUES(values), &stmt));
    fa2i_sql_column_line(stmt, 0, ret_archs, FA2I_ARCHS_CHARS);
done:
    return fa2i_sql_close(cache, stmt, st);
}

fa2_status fa2i_cache_choices(fa2i_cache *cache, int arch, const fa2_problem *problem, int abi,
                              fa2i_choice **ret_choices, size_t *ret_count)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    fa2i_choice *choices = NULL;
    size_t count = 0;
    size_t capacity = 0;
    misfits unfit = {.count = 0};
    char class_key[FA2I_CLASS_CHARS];
    fa2i_problem_class(problem, class_key);
    const fa2i_sql_value values[] = {fa2i_sql_int(arch), fa2i_sql_text(class_key)};
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    FA2_TRY(fa2i_sql_prepare(cache, choices_sql, FA2I_SQL_VALUES(values), &stmt));
    while (fa2i_sql_next(cache, stmt, &st)) {
        FA2_TRY(FA2I_GROW(choices, count + 1, capacity));
        choices[count] = (fa2i_choice){.arch = arch};
        const fit how = read_choice(cache, stmt, class_key, abi, &choices[count]);
        if (how != FITS && how != REFUTED && how != MISSING)
            add_misfit(&unfit, &choices[count], how);
        if (how < OTHER_PROBLEM)
            choices[count++].fault = faults[how];
    }
done:
    st = fa2i_sql_close(cache, stmt, st);
    if (st != FA2_OK) {
        fa2i_free(choices);
        return st;
    }
    report_misfits(cache, &unfit);
    *ret_choices = choices;
    *ret_count = count;
    return FA2_OK;
}
