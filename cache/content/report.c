/*
 * The views as rows of text, and as JSON. Each connection makes them from fixed text, because the views in the file are
 * for people and may be anything.
 *
 * The members of a JSON object are made from the view's list of columns. So objects have the view's columns, and only the
 * views' texts name them.
 */
#include "cache/content/report.h"

#include <errno.h>
#include <string.h>
#include "cache/database/columns.h"
#include "cache/transfer/sound.h"
#include "cache/database/versions.h"
#include "runtime/base/alloc.h"
#include "runtime/base/shown.h"
#include "runtime/base/text.h"

enum { COLUMNS_MAX = 96 };

#define ORDER_IF_KIND_KIND(name) ", " #name
#define ORDER_IF_KIND_SIZE(name) ""
#define ORDER_IF_SIZE_KIND(name) ""
#define ORDER_IF_SIZE_SIZE(name) ", " #name

static const char winners_from[] = " FROM winners WHERE true";

static const char winners_order[] = " ORDER BY device, arch"
#define FA2I_FIELD(name, key, type, role, ...) ORDER_IF_KIND_##role(name)
#include "runtime/base/problem.def"
#define FA2I_FIELD(name, key, type, role, ...) ORDER_IF_SIZE_##role(name)
#include "runtime/base/problem.def"
                                    ", source";

static const char measurements_from[] = " FROM measurements WHERE true";

static const char measurements_of_problem[] = " FROM measurements WHERE true"
#define FA2I_FIELD(name, ...) " AND " #name " = ?"
#include "runtime/base/problem.def"
    ;

/* Measurements with times first, then variants that were left out, then failures. */
static const char measurements_order[] =
    " ORDER BY device, arch"
#define FA2I_FIELD(name, key, type, role, ...) ORDER_IF_KIND_##role(name)
#include "runtime/base/problem.def"
#define FA2I_FIELD(name, key, type, role, ...) ORDER_IF_SIZE_##role(name)
#include "runtime/base/problem.def"
    ", outcome NOT IN ('ok', 'left_out'), median_us IS NULL, median_us, outcome, variant, key";

/* ---- damage ---- */

/* Winners that are damaged, or whose code is, and the columns that identify their row in the view. */
static const char damaged_table[] =
    "CREATE TEMP TABLE damaged AS SELECT d.name AS device, d.arch, w.tuned_at, lower(hex(k.key)) AS key"
#define FA2I_FIELD(name, ...) ", p." #name
#include "runtime/base/problem.def"
    " FROM winner w LEFT JOIN device d ON d.id = w.device LEFT JOIN problem p ON p.id = w.problem "
    "LEFT JOIN kernel k ON k.id = w.kernel WHERE (w.device, w.problem) NOT IN "
    "(SELECT device, problem FROM temp.sound_winner) "
    "OR w.kernel IN (" FA2I_DAMAGED_IMAGES " AND i.kernel IN (SELECT kernel FROM winner))";

/* Kernels that a device found wrong, with their keys as the view shows them. */
static const char refuted_table[] =
    "CREATE TEMP TABLE refuted AS SELECT lower(hex(k.key)) AS key, min(v.outcome) AS outcome "
    "FROM verification v JOIN kernel k ON k.id = v.kernel WHERE v.outcome <> 'ok' GROUP BY k.id";

static const char drop_damaged[] = "DROP TABLE temp.damaged; DROP TABLE temp.refuted";

/* Is a row of the view among the damaged ones? */
static const char damaged_column[] =
    "EXISTS (SELECT 1 FROM temp.damaged x WHERE x.device IS winners.device "
    "AND x.arch IS winners.arch AND x.tuned_at IS winners.tuned_at AND x.key IS winners.key"
#define FA2I_FIELD(name, ...) " AND x." #name " IS winners." #name
#include "runtime/base/problem.def"
    ")";

static const char refuted_column[] = "(SELECT x.outcome FROM temp.refuted x WHERE x.key IS winners.key)";

/* Call it inside a transaction. The tables disappear if it fails; else drop_damaged drops them. */
static fa2_status begin_damaged(fa2i_cache *cache)
{
    fa2_status st;
    FA2_TRY(fa2i_sound_begin(cache));
    FA2_TRY(fa2i_sql_script(cache, damaged_table));
    FA2_TRY(fa2i_sql_script(cache, refuted_table));
    FA2_TRY(fa2i_sound_end(cache));
done:
    return st;
}

/* ---- rows ---- */

const char *fa2i_row_value(int columns, const char *const *names, const char *const *values, const char *name)
{
    for (int i = 0; i < columns; i++)
        if (strcmp(names[i], name) == 0)
            return values[i];
    return NULL;
}

int fa2i_row_note(void *user, int columns, const char *const *names, const char *const *values)
{
    (void)columns, (void)names, (void)values;
    *(bool *)user = true;
    return 1;
}

static fa2_status send_rows(fa2i_cache *cache, sqlite3_stmt *stmt, fa2i_row_fn row_fn, void *user)
{
    const char *names[COLUMNS_MAX];
    const char *values[COLUMNS_MAX];
    const int columns = sqlite3_column_count(stmt);
    fa2_status st = FA2_OK;
    int stop = 0;
    if (columns > COLUMNS_MAX)
        return fa2i_fail(FA2_E_DATABASE,
                         "%s: a view has %d columns, and this fa2 shows up to %d; fa2-tune gc "
                         "--db '%s' makes the views anew",
                         cache->path, columns, (int)COLUMNS_MAX, cache->path);
    for (int i = 0; i < columns; i++)
        names[i] = sqlite3_column_name(stmt, i);
    while (!stop && fa2i_sql_next(cache, stmt, &st)) {
        for (int i = 0; i < columns; i++)
            values[i] = (const char *)sqlite3_column_text(stmt, i);
        stop = row_fn(user, columns, names, values);
    }
    return st;
}

/* A column that is shown after the columns of a view. */
typedef struct extra {
    const char *name, *sql;
} extra;

static const extra of_winners[] = {{"damaged", damaged_column},
                                   {"refuted", refuted_column},
                                   {"other_version", FA2I_OTHER_VERSION_OF("winners.key")},
                                   {NULL, NULL}};
static const extra of_measurements[] = {{"other_version", FA2I_OTHER_VERSION_OF("measurements.key")}, {NULL, NULL}};
static const extra no_extras[] = {{NULL, NULL}};

/* A view, the choice and the order of its rows, and further columns to show. */
typedef struct query {
    const char *view, *from, *order;
    const fa2i_filter *filter;
    const extra *extras;
} query;

static void add_query(fa2i_text *sql, const query *q)
{
    fa2i_text_add(sql, "%s", q->from);
    fa2i_filter_where(q->filter, "device", "variant", "", sql);
    fa2i_text_add(sql, "%s", q->order);
}

static query winners_query(const fa2i_filter *filter)
{
    return (query){"winners", winners_from, winners_order, filter, of_winners};
}

static query measurements_query(const fa2i_filter *filter)
{
    return (query){"measurements", measurements_of_problem, measurements_order, filter, of_measurements};
}

static fa2_status list(fa2i_cache *cache, const query *q, const fa2i_sql_value *values, size_t count, fa2i_row_fn row,
                       void *user)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    fa2i_text text = {0};
    FA2_TRY(fa2i_columns_make_views(cache));
    fa2i_text_add(&text, "SELECT *");
    for (const extra *e = q->extras; e->name != NULL; e++)
        fa2i_text_add(&text, ", %s AS %s", e->sql, e->name);
    add_query(&text, q);
    FA2_TRY(fa2i_sql_prepare_text(cache, &text, values, count, &stmt));
    FA2_TRY(send_rows(cache, stmt, row, user));
done:
    sqlite3_finalize(stmt);
    return st;
}

fa2_status fa2i_cache_list_winners(fa2i_cache *cache, const fa2i_filter *filter, fa2i_row_fn row, void *user)
{
    const query q = winners_query(filter);
    fa2_status st;
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    FA2_TRY(begin_damaged(cache));
    FA2_TRY(list(cache, &q, NULL, 0, row, user));
    FA2_TRY(fa2i_sql_script(cache, drop_damaged));
done:
    return fa2i_sql_end(cache, st);
}

fa2_status fa2i_cache_damaged_winners(fa2i_cache *cache, size_t *ret_count)
{
    fa2_status st;
    int64_t count = 0;
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    FA2_TRY(begin_damaged(cache));
    FA2_TRY(fa2i_sql_number(cache, "SELECT count(*) FROM temp.damaged", NULL, 0, &count));
    FA2_TRY(fa2i_sql_script(cache, drop_damaged));
    *ret_count = (size_t)count;
done:
    return fa2i_sql_end(cache, st);
}

fa2_status fa2i_cache_list_measurements(fa2i_cache *cache, const fa2_problem *problem, const fa2i_filter *filter,
                                        fa2i_row_fn row, void *user)
{
    const query q = measurements_query(filter);
    fa2i_sql_value values[FA2I_FIELD_COUNT];
    fa2_status st = fa2i_problem_check(problem);
    if (st != FA2_OK)
        return st;
    fa2i_columns_values(problem, values);
    st = fa2i_sql_begin(cache, FA2I_CACHE_READ);
    if (st == FA2_OK)
        st = list(cache, &q, FA2I_SQL_VALUES(values), row, user);
    return fa2i_sql_end(cache, st);
}

/* Lists the rows in a transaction of its own. The query takes no values. */
static fa2_status list_alone(fa2i_cache *cache, const query *q, fa2i_row_fn row, void *user)
{
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_READ);
    if (st == FA2_OK)
        st = list(cache, q, NULL, 0, row, user);
    return fa2i_sql_end(cache, st);
}

fa2_status fa2i_cache_list_all_measurements(fa2i_cache *cache, const fa2i_filter *filter, fa2i_row_fn row, void *user)
{
    const query q = {"measurements", measurements_from, measurements_order, filter, no_extras};
    return list_alone(cache, &q, row, user);
}

fa2_status fa2i_cache_list_devices(fa2i_cache *cache, fa2i_row_fn row, void *user)
{
    static const char from[] =
        " FROM (SELECT d.*, CASE WHEN NOT EXISTS (SELECT 1 FROM winner WHERE device = d.id)"
        " AND NOT EXISTS (SELECT 1 FROM measurement WHERE device = d.id) THEN"
        " (SELECT count(*) || ' of its kernels did not compile: ' || coalesce("
        "min(nullif(substr(log, 1, instr(log || char(10), char(10)) - 1), '')), 'no reason was stored')"
        " FROM kernel WHERE rtrim(target, 'af') IN ('sm_' || d.arch, 'compute_' || d.arch)"
        " GROUP BY NULL HAVING min(outcome = 'compile_error'))"
        " END AS uncompiled FROM device d) WHERE true";
    const query q = {"device", from, " ORDER BY name, arch, real, id", NULL, no_extras};
    return list_alone(cache, &q, row, user);
}

fa2_status fa2i_cache_list_sessions(fa2i_cache *cache, fa2i_row_fn row, void *user)
{
    static const char from[] =
        " FROM (SELECT d.name AS device, d.arch, s.origin, s.started_at, s.ended_at, s.modelled,"
        " s.driver, s.nvrtc, s.generator, coalesce(m.count, 0) AS measurements, s.id"
        " FROM session s JOIN device d ON d.id = s.device LEFT JOIN (SELECT session,"
        " count(*) AS count FROM measurement GROUP BY session) m ON m.session = s.id) WHERE true";
    const query q = {"session", from, " ORDER BY started_at, id", NULL, no_extras};
    return list_alone(cache, &q, row, user);
}

fa2_status fa2i_cache_list_json(fa2i_cache *cache, const char *sql, const char *json, fa2i_row_fn row, void *user)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    const fa2i_sql_value values[] = {fa2i_sql_text(json)};
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    FA2_TRY(fa2i_sql_need_json(cache));
    FA2_TRY(fa2i_sql_prepare(cache, sql, FA2I_SQL_VALUES(values), &stmt));
    FA2_TRY(send_rows(cache, stmt, row, user));
done:
    return fa2i_sql_close(cache, stmt, st);
}

/* ---- JSON ---- */

/* Adds a member of the object. SQLite's json_object() takes too few arguments for all members. value: an expression. */
static void add_member(fa2i_text *sql, const char *name, const char *value)
{
    fa2i_text_add(sql, " || ',\"%s\":' || json_quote(%s)", name, value);
}

/* Adds the member that says in which file a row is. */
static void add_path(fa2i_text *sql, const fa2i_cache *cache)
{
    fa2i_text_add(sql, " || ',\"database\":' || json_quote('");
    for (const char *c = fa2i_cache_path(cache); *c != '\0'; c++)
        fa2i_text_add(sql, *c == '\'' ? "''" : "%c", *c);
    fa2i_text_add(sql, "')");
}

/* Makes "SELECT '{' || '"device":' || json_quote(device) || ..." and the rest of the query. */
static fa2_status json_query(fa2i_cache *cache, const query *q, fa2i_text *sql)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    const fa2i_sql_value values[] = {fa2i_sql_text(q->view)};
    FA2_TRY(fa2i_sql_row(cache,
                         "SELECT group_concat(printf('''\"%w\":'' || json_quote(fa2_json_value(\"%w\"))', name, name), "
                         "' || '','' || ') FROM (SELECT name FROM pragma_table_info(?) ORDER BY cid)",
                         FA2I_SQL_VALUES(values), &stmt));
    fa2i_text_add(sql, "SELECT '{' || %s", (const char *)sqlite3_column_text(stmt, 0));
    for (const extra *e = q->extras; e->name != NULL; e++)
        add_member(sql, e->name, e->sql);
    add_path(sql, cache);
    fa2i_text_add(sql, " || '}'");
    add_query(sql, q);
done:
    sqlite3_finalize(stmt);
    return st;
}

/* An array that is being printed, element by element. */
typedef struct json_array {
    FILE *out;
    size_t count;
} json_array;

static fa2_status print_elements(fa2i_cache *cache, sqlite3_stmt *stmt, json_array *to)
{
    fa2_status st;
    while (fa2i_sql_next(cache, stmt, &st)) {
        fputs(to->count++ == 0 ? "[\n" : ",\n", to->out);
        fa2i_json_print(to->out, (const char *)sqlite3_column_text(stmt, 0));
    }
    return st;
}

/* Ends the array, and begins it first if it has no elements. */
static fa2_status end_array(const json_array *to)
{
    fputs(to->count == 0 ? "[\n]\n" : "\n]\n", to->out);
    if (fflush(to->out) != 0 || ferror(to->out))
        return fa2i_fail(FA2_E_IO, "cannot write the JSON (%s)", strerror(errno));
    return FA2_OK;
}

static fa2_status print_json(fa2i_cache *cache, const query *q, const fa2i_sql_value *values, size_t count,
                             json_array *to)
{
    fa2_status st;
    fa2i_text sql = {0};
    sqlite3_stmt *stmt = NULL;
    FA2_TRY(fa2i_sql_need_json(cache));
    FA2_TRY(fa2i_columns_make_views(cache));
    FA2_TRY(json_query(cache, q, &sql));
    FA2_TRY(fa2i_sql_prepare_text(cache, &sql, values, count, &stmt));
    FA2_TRY(print_elements(cache, stmt, to));
done:
    sqlite3_finalize(stmt);
    return st;
}

static fa2_status print_winners(fa2i_cache *cache, const fa2i_filter *filter, json_array *to)
{
    const query q = winners_query(filter);
    fa2_status st;
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    FA2_TRY(begin_damaged(cache));
    FA2_TRY(print_json(cache, &q, NULL, 0, to));
    FA2_TRY(fa2i_sql_script(cache, drop_damaged));
done:
    return fa2i_sql_end(cache, st);
}

fa2_status fa2i_cache_print_winners_json(fa2i_cache *const *caches, size_t count, const fa2i_filter *filter, FILE *out)
{
    json_array array = {.out = out};
    fa2_status st = FA2_OK;
    for (size_t i = 0; st == FA2_OK && i < count; i++)
        st = print_winners(caches[i], filter, &array);
    return st == FA2_OK ? end_array(&array) : st;
}

/* Prints a problem's measurements; if there are none, its winners. */
static fa2_status print_problem(fa2i_cache *cache, const fa2_problem *problem, const fa2i_filter *filter,
                                json_array *to)
{
    const query q = measurements_query(filter);
    const size_t before = to->count;
    fa2i_filter unmeasured = {.device = filter == NULL ? NULL : filter->device, .problem = *problem};
    fa2i_sql_value values[FA2I_FIELD_COUNT];
    fa2i_columns_values(problem, values);
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_READ);
    if (st == FA2_OK)
        st = print_json(cache, &q, FA2I_SQL_VALUES(values), to);
    st = fa2i_sql_end(cache, st);
    memset(unmeasured.given, true, sizeof unmeasured.given);
    return st == FA2_OK && to->count == before ? print_winners(cache, &unmeasured, to) : st;
}

fa2_status fa2i_cache_print_measurements_json(fa2i_cache *cache, const fa2_problem *problems, size_t count,
                                              const fa2i_filter *filter, FILE *out)
{
    json_array array = {.out = out};
    fa2_status st = FA2_OK;
    for (size_t i = 0; st == FA2_OK && i < count; i++)
        st = fa2i_problem_check(&problems[i]);
    for (size_t i = 0; st == FA2_OK && i < count; i++)
        st = print_problem(cache, &problems[i], filter, &array);
    return st == FA2_OK ? end_array(&array) : st;
}
