/*
 * How: collect the rows that must go in temporary tables, then delete them with one simple statement per table.
 */
#include "cache/content/filter.h"

#include <inttypes.h>
#include "cache/database/columns.h"
#include "runtime/base/alloc.h"

static void add_contains(fa2i_text *sql, const char *column, const char *part)
{
    fa2i_text_add(sql, " AND instr(lower(%s), lower('", column);
    for (; *part != '\0'; part++)
        fa2i_text_add(sql, *part == '\'' ? "''" : "%c", *part);
    fa2i_text_add(sql, "')) > 0");
}

void fa2i_filter_where(const fa2i_filter *filter, const char *device, const char *variant, const char *fields,
                       fa2i_text *sql)
{
    if (filter == NULL)
        return;
    if (filter->device != NULL)
        add_contains(sql, device, filter->device);
    if (filter->variant != NULL)
        add_contains(sql, variant, filter->variant);
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        if (!filter->given[field])
            continue;
        const int32_t value = fa2i_field_get(&filter->problem, field);
        const char *word = fa2i_field_word(field, value);
        fa2i_text_add(sql, " AND %s%s = ", fields, fa2i_fields[field].name);
        if (word != NULL)
            fa2i_text_add(sql, "'%s'", word);
        else
            fa2i_text_add(sql, "%" PRId32, value);
    }
}

/* ---- problems ---- */

static fa2_status read_problems(fa2i_cache *cache, sqlite3_stmt *stmt, fa2_problem **ret_problems, size_t *ret_count)
{
    fa2_status st = FA2_OK;
    size_t capacity = 0;
    while (fa2i_sql_next(cache, stmt, &st)) {
        st = FA2I_GROW(*ret_problems, *ret_count + 1, capacity);
        if (st != FA2_OK)
            return st;
        st = fa2i_columns_read(cache, stmt, 0, &(*ret_problems)[*ret_count]);
        *ret_count += st == FA2_OK; /* a damaged problem does not count */
    }
    return st;
}

fa2_status fa2i_cache_known_problems(fa2i_cache *cache, const fa2i_filter *filter, fa2_problem **ret_problems,
                                     size_t *ret_count)
{
    static const char columns[] = "SELECT "
#define FA2I_FIELD(name, ...) #name ", "
#include "runtime/base/problem.def"
                                  "1 FROM ";
    fa2_status st;
    fa2i_text text = {0};
    sqlite3_stmt *stmt = NULL;
    fa2_problem *problems = NULL;
    size_t count = 0;
    fa2i_text_add(&text, "%smeasurements WHERE true", columns);
    fa2i_filter_where(filter, "device", "variant", "", &text);
    fa2i_text_add(&text, " UNION %swinners WHERE true", columns);
    fa2i_filter_where(filter, "device", "variant", "", &text);
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    FA2_TRY(fa2i_columns_make_views(cache));
    FA2_TRY(fa2i_sql_prepare_text(cache, &text, NULL, 0, &stmt));
    FA2_TRY(read_problems(cache, stmt, &problems, &count));
done:
    fa2i_text_done(&text);
    st = fa2i_sql_close(cache, stmt, st);
    if (st != FA2_OK) {
        fa2i_free(problems);
        return st;
    }
    *ret_problems = problems;
    *ret_count = count;
    return FA2_OK;
}

/* ---- forgetting ---- */

/* Each collects the rows of one table that go. */
static const char collect[] = "CREATE TEMP TABLE gone AS SELECT m.device, m.problem, m.kernel FROM measurement m "
                              "JOIN device d ON d.id = m.device JOIN problem p ON p.id = m.problem "
                              "JOIN kernel k ON k.id = m.kernel "
                              "LEFT JOIN verification v ON v.device = m.device AND v.kernel = m.kernel WHERE true";

static const char collect_winners[] = "CREATE TEMP TABLE gone_winner AS SELECT w.device, w.problem FROM winner w "
                                      "JOIN device d ON d.id = w.device JOIN problem p ON p.id = w.problem "
                                      "JOIN kernel k ON k.id = w.kernel WHERE true";

static const char collect_verified[] =
    "CREATE TEMP TABLE gone_verdict AS SELECT v.device, v.kernel FROM verification v "
    "JOIN device d ON d.id = v.device JOIN kernel k ON k.id = v.kernel WHERE true";

static const char collect_kernels[] = "CREATE TEMP TABLE gone_kernel AS SELECT k.id FROM kernel k WHERE true";

static const char collect_classes[] =
    "CREATE TEMP TABLE gone_class AS SELECT DISTINCT p.class FROM problem p WHERE true";

static fa2_status run_with(fa2i_cache *cache, const char *base, const fa2i_filter *filter, const char *failures)
{
    fa2i_text text = {0};
    fa2i_text_add(&text, "%s", base);
    fa2i_filter_where(filter, "d.name", "k.variant", "p.", &text);
    if (filter->failures)
        fa2i_text_add(&text, "%s", failures);
    return fa2i_sql_script_text(cache, &text);
}

bool fa2i_filter_names_problem(const fa2i_filter *filter)
{
    for (int field = 0; field < FA2I_FIELD_COUNT; field++)
        if (filter->given[field])
            return true;
    return false;
}

/* Keeps only the verifications of the selected problems. For failures it compares classes, because a tuning that was
 * stopped left verifications, but no row of a problem. */
static fa2_status keep_of_problems(fa2i_cache *cache, const fa2i_filter *filter)
{
    fa2i_filter fields = *filter;
    fields.device = fields.variant = NULL;
    if (!filter->failures)
        return fa2i_sql_script(cache, "DELETE FROM temp.gone_verdict WHERE kernel NOT IN "
                                      "(SELECT kernel FROM temp.gone)");
    const fa2_status st = run_with(cache, collect_classes, &fields, "");
    return st != FA2_OK ? st
                        : fa2i_sql_script(cache, "DELETE FROM temp.gone_verdict WHERE kernel NOT IN "
                                                 "(SELECT id FROM kernel WHERE class IN "
                                                 "(SELECT class FROM temp.gone_class))");
}

static fa2_status collect_all(fa2i_cache *cache, const fa2i_filter *filter)
{
    fa2_status st;
    /* Verifications and code belong to no problem. */
    fa2i_filter verdicts = {.device = filter->device, .variant = filter->variant};
    fa2i_filter kernels = {.variant = filter->variant};
    const bool of_problems = fa2i_filter_names_problem(filter);
    verdicts.failures = kernels.failures = filter->failures;
    FA2_TRY(run_with(cache, collect, filter, " AND (m.outcome <> 'ok' OR coalesce(v.outcome, 'ok') <> 'ok')"));
    FA2_TRY(run_with(cache, collect_winners, filter, " AND false"));
    FA2_TRY(run_with(cache, collect_verified, &verdicts, " AND v.outcome <> 'ok'"));
    FA2_TRY(run_with(cache, collect_kernels, &kernels, " AND k.outcome <> 'ok'"));
    if (of_problems)
        FA2_TRY(keep_of_problems(cache, filter));
    if (of_problems && filter->variant == NULL && !filter->failures)
        FA2_TRY(fa2i_sql_script(cache, "DELETE FROM temp.gone_verdict"));
    if (of_problems || filter->device != NULL || (filter->variant == NULL && !filter->failures))
        FA2_TRY(fa2i_sql_script(cache, "DELETE FROM temp.gone_kernel"));
done:
    return st;
}

/* A problem that loses its winner is raced again as a whole. */
static const char collect_losers[] =
    "INSERT INTO temp.gone_winner SELECT device, problem FROM winner w WHERE EXISTS (SELECT 1 FROM "
    "temp.gone g WHERE g.device = w.device AND g.problem = w.problem AND g.kernel = w.kernel) "
    "OR w.kernel IN (SELECT id FROM temp.gone_kernel)";

/* The rows of each table that go. */
#define GONE_WINNERS "winner WHERE (device, problem) IN (SELECT device, problem FROM temp.gone_winner)"
#define GONE_MEASUREMENTS                                                                                              \
    "measurement WHERE (device, problem, kernel) IN (SELECT device, problem, kernel FROM temp.gone) "                  \
    "OR kernel IN (SELECT id FROM temp.gone_kernel)"
#define GONE_VERIFICATIONS                                                                                             \
    "verification WHERE (device, kernel) IN (SELECT device, kernel FROM temp.gone_verdict) "                           \
    "OR kernel IN (SELECT id FROM temp.gone_kernel)"
#define GONE_KERNELS "kernel WHERE id IN (SELECT id FROM temp.gone_kernel)"

static const char drop_all[] = "UPDATE measurement SET settled = 0 WHERE outcome = 'ok' AND (device, problem) IN "
                               "(SELECT device, problem FROM temp.gone_winner);"
                               "DELETE FROM " GONE_WINNERS ";"
                               "DELETE FROM " GONE_MEASUREMENTS ";"
                               "DELETE FROM " GONE_VERIFICATIONS ";"
                               "DELETE FROM " GONE_KERNELS ";";

static const char drop_tables[] = "DROP TABLE IF EXISTS temp.gone; DROP TABLE IF EXISTS temp.gone_winner;"
                                  "DROP TABLE IF EXISTS temp.gone_verdict; DROP TABLE IF EXISTS temp.gone_kernel;"
                                  "DROP TABLE IF EXISTS temp.gone_class;";

static fa2_status count_gone(fa2i_cache *cache, fa2i_forgotten *ret_counts)
{
    const fa2i_sql_count counts[] = {
        {"SELECT count(*) FROM " GONE_MEASUREMENTS, &ret_counts->measurements},
        {"SELECT count(*) FROM " GONE_WINNERS, &ret_counts->winners},
        {"SELECT count(*) FROM " GONE_VERIFICATIONS, &ret_counts->verifications},
        {"SELECT count(*) FROM " GONE_KERNELS, &ret_counts->kernels},
    };
    return fa2i_sql_counts(cache, counts, sizeof counts / sizeof counts[0]);
}

static fa2_status forget(fa2i_cache *cache, const fa2i_filter *filter, fa2i_cache_mode mode,
                         fa2i_forgotten *ret_forgotten)
{
    fa2_status st;
    fa2i_forgotten gone = {0};
    FA2_TRY(fa2i_sql_begin(cache, mode));
    FA2_TRY(collect_all(cache, filter));
    FA2_TRY(fa2i_sql_script(cache, collect_losers));
    FA2_TRY(count_gone(cache, &gone));
    if (mode == FA2I_CACHE_WRITE)
        FA2_TRY(fa2i_sql_script(cache, drop_all));
    FA2_TRY(fa2i_sql_script(cache, drop_tables));
done:
    st = fa2i_sql_end(cache, st);
    if (st == FA2_OK)
        *ret_forgotten = gone;
    return st;
}

fa2_status fa2i_cache_forget(fa2i_cache *cache, const fa2i_filter *filter, fa2i_forgotten *ret_forgotten)
{
    return forget(cache, filter, FA2I_CACHE_WRITE, ret_forgotten);
}

fa2_status fa2i_cache_would_forget(fa2i_cache *cache, const fa2i_filter *filter, fa2i_forgotten *ret_forgotten)
{
    return forget(cache, filter, FA2I_CACHE_READ, ret_forgotten);
}
