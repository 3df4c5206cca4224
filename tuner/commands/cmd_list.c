/*
 * fa2-tune list and show: rows of the views `winners` and `measurements` as tables, one per device.
 *
 * The views name their columns; a table here is a choice of them. A column that a view does not
 * have is a bug, found by the tests.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cache/report.h"
#include "tuner/commands/commands.h"
#include "tuner/commands/database.h"
#include "tuner/report/table.h"

/* How a value is shown. */
enum { AS_IS = -1, AS_MARK = -2, AS_VARIANT = -3 }; /* else: decimals */

typedef struct shown {
    const char *column, *title;
    char align;
    int how;
} shown;

static const shown winner_columns[] = {
    {"batch", "B", 'r', AS_IS},         {"heads_q", "Hq", 'r', AS_IS},
    {"heads_kv", "Hkv", 'r', AS_IS},    {"seq_q", "Sq", 'r', AS_IS},
    {"seq_k", "Sk", 'r', AS_IS},        {"head_dim", "D", 'r', AS_IS},
    {"dtype", "dtype", 'l', AS_IS},     {"causal", "causal", 'r', AS_IS},
    {"median_us", "median us", 'r', 2}, {"model_us", "model us", 'r', 2},
    {"tflops", "TFLOPS", 'r', 2},       {"speedup_vs_default", "vs default", 'r', 3},
    {"source", "source", 'l', AS_IS},   {"variant", "variant", 'l', AS_VARIANT},
};

static const shown measurement_columns[] = {
    {"winner", "best", 'l', AS_MARK},
    {"outcome", "outcome", 'l', AS_IS},
    {"median_us", "median us", 'r', 2},
    {"q1_us", "q1 us", 'r', 2},
    {"q3_us", "q3 us", 'r', 2},
    {"min_us", "min us", 'r', 2},
    {"n", "n", 'r', AS_IS},
    {"tflops", "TFLOPS", 'r', 2},
    {"max_error", "error/bound", 'r', 3},
    {"registers", "regs", 'r', AS_IS},
    {"spill_bytes", "spill B", 'r', AS_IS},
    {"smem_bytes", "smem B", 'r', AS_IS},
    {"variant", "variant", 'l', AS_VARIANT},
    {"detail", "detail", 'l', AS_IS},
};

typedef struct listing {
    const shown *columns;
    size_t count;
    char align[FA2I_TABLE_COLUMNS_MAX + 1];
    char heading[192]; /* of the open table: device and SM; "" before the first row */
    fa2i_table table;
    size_t rows;
    fa2_status status;
} listing;

static void listing_init(listing *l, const shown *columns, size_t count)
{
    assert(count <= FA2I_TABLE_COLUMNS_MAX);
    *l = (listing){.columns = columns, .count = count};
    for (size_t i = 0; i < count; i++)
        l->align[i] = columns[i].align;
}

static const char *value_of(const char *name, int columns, const char *const *names,
                            const char *const *values)
{
    for (int i = 0; i < columns; i++) {
        if (strcmp(names[i], name) == 0)
            return values[i];
    }
    assert(false); /* the view has no such column */
    return NULL;
}

static void begin_table(listing *l, const char *heading)
{
    const char *titles[FA2I_TABLE_COLUMNS_MAX];
    for (size_t i = 0; i < l->count; i++)
        titles[i] = l->columns[i].title;
    snprintf(l->heading, sizeof l->heading, "%s", heading);
    fa2i_table_init(&l->table, l->align, titles);
}

/* Print what is open, if anything. */
static fa2_status end_table(listing *l)
{
    fa2_status st = FA2_OK;
    if (l->table.columns > 0) {
        printf("%s\n", l->heading);
        st = fa2i_table_print(&l->table, stdout);
        putchar('\n');
    }
    fa2i_table_done(&l->table);
    return st;
}

/* The cell for a value; text is room for one that has to be written. */
static const char *cell_of(const shown *column, const char *value, char text[FA2I_VARIANT_CHARS])
{
    if (value == NULL || column->how == AS_IS)
        return value;
    if (column->how == AS_MARK)
        return strcmp(value, "0") == 0 ? "" : "*";
    if (column->how == AS_VARIANT)
        fa2i_variant_brief(value, text, FA2I_VARIANT_CHARS);
    else
        snprintf(text, FA2I_VARIANT_CHARS, "%.*f", column->how, strtod(value, NULL));
    return text;
}

static int add_row(void *user, int columns, const char *const *names, const char *const *values)
{
    listing *l = user;
    char heading[sizeof l->heading];
    snprintf(heading, sizeof heading, "%s (sm_%s)", value_of("device", columns, names, values),
             value_of("arch", columns, names, values));
    if (strcmp(heading, l->heading) != 0) {
        l->status = end_table(l);
        begin_table(l, heading);
    }
    const char *cells[FA2I_TABLE_COLUMNS_MAX];
    char texts[FA2I_TABLE_COLUMNS_MAX][FA2I_VARIANT_CHARS];
    for (size_t i = 0; i < l->count; i++) {
        const char *value = value_of(l->columns[i].column, columns, names, values);
        cells[i] = cell_of(&l->columns[i], value, texts[i]);
    }
    fa2i_table_add(&l->table, cells);
    l->rows++;
    return l->status != FA2_OK;
}

/* Print the last table, and pass on whatever failed first. */
static fa2_status listing_end(listing *l, fa2_status st)
{
    if (st == FA2_OK)
        st = l->status;
    if (st == FA2_OK)
        return end_table(l);
    fa2i_table_done(&l->table);
    return st;
}

int fa2i_cmd_list(int argc, char **argv)
{
    fa2i_options options = {0};
    fa2i_cache *cache = NULL;
    listing l;
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_options_parse(argc, argv, FA2I_OPT_DB | FA2I_OPT_JSON, &options));
    FA2_TRY(fa2i_database_open(options.db, FA2I_CACHE_READ, &cache));
    if (options.json) {
        FA2_TRY(fa2i_cache_print_winners_json(cache, stdout));
        goto done;
    }
    listing_init(&l, winner_columns, sizeof winner_columns / sizeof *winner_columns);
    FA2_TRY(listing_end(&l, fa2i_cache_list_winners(cache, add_row, &l)));
    if (l.rows == 0)
        fprintf(stderr, "fa2-tune: there are no winners in %s yet\n", fa2i_cache_path(cache));
done:
    fa2i_cache_close(cache);
    fa2i_options_done(&options);
    return st == FA2_OK ? FA2I_EXIT_OK : fa2i_report_failure(st);
}

static void say_unknown(const fa2i_cache *cache, const fa2_problem *problem)
{
    char shape[128];
    fa2i_problem_format(problem, shape, sizeof shape);
    fprintf(stderr, "fa2-tune: nothing was measured for %s in %s\n", shape, fa2i_cache_path(cache));
}

static fa2_status show_problem(fa2i_cache *cache, const fa2_problem *problem, bool *ret_known)
{
    char shape[128];
    listing l;
    listing_init(&l, measurement_columns, sizeof measurement_columns / sizeof *measurement_columns);
    fa2i_problem_format(problem, shape, sizeof shape);
    printf("%s\n\n", shape);
    const fa2_status st =
        listing_end(&l, fa2i_cache_list_measurements(cache, problem, add_row, &l));
    *ret_known = l.rows > 0;
    return st;
}

static int note_row(void *user, int columns, const char *const *names, const char *const *values)
{
    (void)columns, (void)names, (void)values;
    *(bool *)user = true;
    return 1; /* one is enough */
}

static fa2_status show_problem_json(fa2i_cache *cache, const fa2_problem *problem, bool *ret_known)
{
    *ret_known = false;
    const fa2_status st = fa2i_cache_list_measurements(cache, problem, note_row, ret_known);
    return st == FA2_OK ? fa2i_cache_print_measurements_json(cache, problem, stdout) : st;
}

int fa2i_cmd_show(int argc, char **argv)
{
    fa2i_options options = {0};
    fa2i_cache *cache = NULL;
    fa2_status st = FA2_OK;
    int status = FA2I_EXIT_OK;
    FA2_TRY(
        fa2i_options_parse(argc, argv, FA2I_OPT_SHAPES | FA2I_OPT_DB | FA2I_OPT_JSON, &options));
    if (options.shapes.count == 0)
        FA2_TRY(
            fa2i_fail(FA2_E_INVALID, "show needs --shape, for example --shape Hq=8,Sq=512,D=64"));
    if (options.json && options.shapes.count > 1)
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "show --json takes one shape; there are %zu",
                          options.shapes.count));
    FA2_TRY(fa2i_database_open(options.db, FA2I_CACHE_READ, &cache));
    for (size_t i = 0; i < options.shapes.count; i++) {
        const fa2_problem *problem = &options.shapes.items[i];
        bool known = false;
        FA2_TRY(options.json ? show_problem_json(cache, problem, &known)
                             : show_problem(cache, problem, &known));
        if (!known) {
            say_unknown(cache, problem);
            status = FA2I_EXIT_FAILED;
        }
    }
done:
    if (st != FA2_OK)
        status = fa2i_report_failure(st);
    fa2i_cache_close(cache);
    fa2i_options_done(&options);
    return status;
}
