/*
 * fa2-tune list and show: rows of the views `winners` and `measurements` as tables, one per device.
 *
 * The views name their columns, and a table here shows some of them. If a view lacks a column, it was not made by this
 * fa2: another version or a person has changed the database.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cache/content/report.h"
#include "runtime/base/alloc.h"
#include "runtime/plan/layers.h"
#include "runtime/plan/share.h"
#include "tuner/commands/commands.h"
#include "tuner/commands/database.h"
#include "tuner/commands/filter_options.h"
#include "tuner/report/table.h"

/* How a value is shown. */
enum { /* 0 and above: number of decimals */
       AS_IS = -1,
       AS_MARK = -2,
       AS_VARIANT = -3,
       AS_STATE = -4, /* from three columns: another version, code missing, something damaged */
       AS_REFUTED = -5,
       AS_DETAIL = -6 /* the detail of a measurement, and whether it is of another version */
};

typedef struct shown {
    const char *column, *title;
    char align;
    int how;
    const char *usual; /* the column is left out if all rows have this value; NULL: never */
} shown;

/* They follow the problem's fields. */
static const shown winner_columns[] = {
    {"median_us", "median us", 'r', 2, NULL},    {"model_us", "model us", 'r', 2, NULL},
    {"tflops", "TFLOPS", 'r', 2, NULL},          {"speedup_vs_default", "vs default", 'r', 3, NULL},
    {"source", "source", 'l', AS_IS, NULL},      {"damaged", "state", 'l', AS_STATE, ""},
    {"refuted", "refuted", 'l', AS_REFUTED, ""}, {"variant", "variant", 'l', AS_VARIANT, NULL},
};
enum { WINNER_COLUMNS = sizeof winner_columns / sizeof *winner_columns };

static const shown measurement_columns[] = {
    {"winner", "best", 'l', AS_MARK, NULL},
    {"outcome", "outcome", 'l', AS_IS, NULL},
    {"median_us", "median us", 'r', 2, NULL},
    {"q1_us", "q1 us", 'r', 2, NULL},
    {"q3_us", "q3 us", 'r', 2, NULL},
    {"min_us", "min us", 'r', 2, NULL},
    {"n", "n", 'r', AS_IS, NULL},
    {"source", "source", 'l', AS_IS, NULL},
    {"tflops", "TFLOPS", 'r', 2, NULL},
    {"max_error", "error/bound", 'r', 3, NULL},
    {"registers", "regs", 'r', AS_IS, NULL},
    {"spill_bytes", "spill B", 'r', AS_IS, NULL},
    {"smem_bytes", "smem B", 'r', AS_IS, NULL},
    {"variant", "variant", 'l', AS_VARIANT, NULL},
    {"detail", "detail", 'l', AS_DETAIL, NULL},
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

/* Returns the value of a column. If there is no such column, returns NULL and sets the listing's status. */
static const char *value_of(listing *l, const char *name, int columns, const char *const *names,
                            const char *const *values)
{
    for (int i = 0; i < columns; i++) {
        if (strcmp(names[i], name) == 0)
            return values[i];
    }
    l->status =
        fa2i_fail(FA2_E_DATABASE, "the database's view has no column '%s'; fa2-tune gc makes the views anew", name);
    return NULL;
}

static bool is_set(const char *value)
{
    return value != NULL && strcmp(value, "0") != 0;
}

static bool is_ok(const char *outcome)
{
    return outcome != NULL && strcmp(outcome, "ok") == 0;
}

/* Returns the value of a shown column. */
static const char *shown_value(listing *l, const shown *column, int columns, const char *const *names,
                               const char *const *values)
{
    const char *value = value_of(l, column->column, columns, names, values);
    if (column->how != AS_STATE && column->how != AS_DETAIL && column->how != AS_MARK)
        return value;
    const bool other = is_set(value_of(l, "other_version", columns, names, values));
    if (column->how == AS_MARK)
        return other ? "0" : value; /* no call uses it */
    if (column->how == AS_DETAIL)   /* the reason of a failure is shown for any version */
        return !other || !is_ok(value_of(l, "outcome", columns, names, values)) ? value
               : is_set(value_of(l, "winner", columns, names, values))
                   ? "won in another version of fa2; no call takes it"
                   : "of another version of fa2; no call takes it";
    const char *image = value_of(l, "has_image", columns, names, values);
    return other ? "other version" : image != NULL && !is_set(image) ? "missing" : is_set(value) ? "damaged" : "";
}

static void begin_table(listing *l, const char *heading)
{
    const char *titles[FA2I_TABLE_COLUMNS_MAX];
    for (size_t i = 0; i < l->count; i++)
        titles[i] = l->columns[i].title;
    snprintf(l->heading, sizeof l->heading, "%s", heading);
    fa2i_table_init(&l->table, l->align, titles);
}

/* Prints the open table, if there is one. */
static fa2_status end_table(listing *l)
{
    fa2_status st = FA2_OK;
    if (l->table.columns > 0) {
        fa2i_terminal_begin(stdout, FA2I_STYLE_HEAD);
        fa2i_shown_print(stdout, "%s", l->heading);
        fa2i_terminal_end(stdout, FA2I_STYLE_HEAD);
        putchar('\n');
        st = fa2i_table_print(&l->table, stdout);
        putchar('\n');
    }
    fa2i_table_done(&l->table);
    return st;
}

/* Returns the cell for a value. text is a buffer for a cell that must be formatted. */
static const char *cell_of(const shown *column, const char *value, char text[FA2I_VARIANT_CHARS])
{
    if (value == NULL || column->how == AS_IS || column->how == AS_STATE || column->how == AS_REFUTED ||
        column->how == AS_DETAIL)
        return value;
    if (column->how == AS_MARK)
        return is_set(value) ? "*" : "";
    if (column->how == AS_VARIANT)
        memcpy(text, fa2i_variant_brief(value).text, FA2I_VARIANT_CHARS);
    else
        snprintf(text, FA2I_VARIANT_CHARS, "%.*f", column->how, strtod(value, NULL));
    return text;
}

/* Chooses the style: bad for a failure or something lost or damaged, good for the best of several. */
static fa2i_style style_of(const listing *l, const char *const *cells)
{
    fa2i_style style = FA2I_STYLE_PLAIN;
    for (size_t i = 0; i < l->count; i++) {
        const shown *column = &l->columns[i];
        const char *cell = cells[i] == NULL ? "" : cells[i];
        if ((strcmp(column->column, "outcome") == 0 && strcmp(cell, "ok") != 0 && strcmp(cell, "left_out") != 0) ||
            ((column->how == AS_STATE || column->how == AS_REFUTED) && cell[0] != '\0'))
            return FA2I_STYLE_BAD;
        if (column->how == AS_MARK && cell[0] != '\0')
            style = FA2I_STYLE_GOOD;
    }
    return style;
}

static int add_row(void *user, int columns, const char *const *names, const char *const *values)
{
    listing *l = user;
    char heading[sizeof l->heading];
    const char *device = value_of(l, "device", columns, names, values);
    const char *arch = value_of(l, "arch", columns, names, values);
    if (l->status != FA2_OK)
        return 1;
    snprintf(heading, sizeof heading, "%s (sm_%s)", device != NULL ? device : "", arch != NULL ? arch : "");
    if (strcmp(heading, l->heading) != 0) {
        l->status = end_table(l);
        begin_table(l, heading);
    }
    const char *cells[FA2I_TABLE_COLUMNS_MAX];
    char texts[FA2I_TABLE_COLUMNS_MAX][FA2I_VARIANT_CHARS];
    for (size_t i = 0; i < l->count; i++) {
        const char *value = shown_value(l, &l->columns[i], columns, names, values);
        cells[i] = cell_of(&l->columns[i], value, texts[i]);
    }
    fa2i_table_add(&l->table, cells);
    fa2i_table_style(&l->table, style_of(l, cells));
    l->rows++;
    return l->status != FA2_OK;
}

/* Prints the last table, and returns the first failure. */
static fa2_status listing_end(listing *l, fa2_status st)
{
    if (st == FA2_OK)
        st = l->status;
    if (st == FA2_OK)
        return end_table(l);
    fa2i_table_done(&l->table);
    return st;
}

/* ---- list ---- */

_Static_assert(FA2I_FIELD_COUNT + WINNER_COLUMNS <= FA2I_TABLE_COLUMNS_MAX, "a table has room");

/* The columns of the list: the fields that are used, and the other columns. */
typedef struct winner_listing {
    shown all[FA2I_FIELD_COUNT + WINNER_COLUMNS];
    bool used[FA2I_FIELD_COUNT + WINNER_COLUMNS];
    listing l;
} winner_listing;

static shown column_of_field(int field)
{
    const fa2i_field *f = &fa2i_fields[field];
    const char *word = fa2i_field_word(field, 0);
    return (shown){.column = f->name,
                   .title = f->key,
                   .align = f->type == FA2I_TYPE_INT ? 'r' : 'l',
                   .how = AS_IS,
                   .usual = f->shown_always && f->needs < 0 ? NULL
                            : word != NULL                  ? word
                                                            : "0"};
}

static int note_used(void *user, int columns, const char *const *names, const char *const *values)
{
    winner_listing *w = user;
    for (size_t i = 0; i < sizeof w->all / sizeof *w->all; i++) {
        const char *value = shown_value(&w->l, &w->all[i], columns, names, values);
        w->used[i] = w->used[i] || w->all[i].usual == NULL || (value != NULL && strcmp(value, w->all[i].usual) != 0);
    }
    return w->l.status != FA2_OK;
}

/* A field that needs another one is shown with it, even with its usual value. */
static void use_what_is_asked(winner_listing *w)
{
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        if (fa2i_fields[field].needs >= 0)
            w->used[field] = w->used[fa2i_fields[field].needs];
    }
}

/* Reads twice: first to see which columns are used, then to print the rows. */
static fa2_status list_winners(fa2i_cache *cache, const fa2i_filter *filter, winner_listing *w)
{
    shown in_use[FA2I_FIELD_COUNT + WINNER_COLUMNS];
    size_t count = 0;
    *w = (winner_listing){.used = {false}};
    for (int field = 0; field < FA2I_FIELD_COUNT; field++)
        w->all[field] = column_of_field(field);
    memcpy(w->all + FA2I_FIELD_COUNT, winner_columns, sizeof winner_columns);
    fa2_status st = fa2i_cache_list_winners(cache, filter, note_used, w);
    if (st != FA2_OK || w->l.status != FA2_OK)
        return st != FA2_OK ? st : w->l.status;
    use_what_is_asked(w);
    for (size_t i = 0; i < sizeof w->all / sizeof *w->all; i++) {
        if (w->used[i])
            in_use[count++] = w->all[i];
    }
    listing_init(&w->l, in_use, count);
    return listing_end(&w->l, fa2i_cache_list_winners(cache, filter, add_row, &w->l));
}

static int count_damaged(void *user, int columns, const char *const *names, const char *const *values)
{
    *(size_t *)user += is_set(fa2i_row_value(columns, names, values, "damaged"));
    return 0;
}

/* With a filter, counts damaged winners among the listed ones. Without, counts all, also those that no view shows
 * because they refer to nothing. */
static fa2_status say_damaged(fa2i_cache *cache, const fa2i_filter *filter, size_t *ret_damaged)
{
    size_t damaged = 0;
    const fa2_status st = fa2i_filter_is_given(filter) ? fa2i_cache_list_winners(cache, filter, count_damaged, &damaged)
                                                       : fa2i_cache_damaged_winners(cache, &damaged);
    if (st == FA2_OK && damaged > 0)
        fprintf(stderr,
                "fa2-tune: %zu winner%s damaged, in the record or in the code; fa2-tune check says "
                "what is wrong, and what mends it\n",
                damaged, damaged == 1 ? " is" : "s are");
    *ret_damaged = damaged;
    return st;
}

/* Prints the winners of a database, under its path if several databases are listed. */
static fa2_status list_one(fa2i_cache *cache, const fa2i_filter *filter, bool with_path)
{
    winner_listing w;
    size_t damaged = 0;
    fa2_status st = FA2_OK;
    FA2_TRY(say_damaged(cache, filter, &damaged));
    if (with_path)
        fa2i_shown_print(stdout, "%s\n\n", fa2i_cache_path(cache));
    FA2_TRY(list_winners(cache, filter, &w));
    if (w.l.rows == 0 && damaged == 0) {
        fa2i_shown_print(stderr, "fa2-tune: there are no %swinners in %s yet\n",
                         fa2i_filter_is_given(filter) ? "such " : "", fa2i_cache_path(cache));
        FA2_TRY(fa2i_database_say_devices(cache, filter));
    }
done:
    return st;
}

static void say(void *user, const char *message)
{
    (void)user;
    fprintf(stderr, "fa2-tune: %s\n", message);
}

/* Opens the system's databases, which calls read, too. A database that was named is listed alone. */
static fa2_status open_system(const fa2i_options *options, fa2i_layers *ret_layers)
{
    char *share = NULL;
    fa2_status st = FA2_OK;
    if (options->db != NULL)
        return FA2_OK;
    FA2_TRY(fa2i_share_find(&share));
    FA2_TRY(fa2i_layers_open(share, say, NULL, ret_layers));
done:
    fa2i_free(share);
    return st;
}

/* Prints the winners of all databases as one array. */
static fa2_status list_json(fa2i_cache *const *caches, size_t count, const fa2i_filter *filter)
{
    size_t damaged = 0;
    fa2_status st = FA2_OK;
    for (size_t i = 0; st == FA2_OK && i < count; i++)
        st = say_damaged(caches[i], filter, &damaged);
    return st == FA2_OK ? fa2i_cache_print_winners_json(caches, count, filter, stdout) : st;
}

/* system: among them are the system's, so that each needs its path. */
static fa2_status list_text(fa2i_cache *const *caches, size_t count, bool system, const fa2i_filter *filter)
{
    fa2_status st = FA2_OK;
    for (size_t i = 0; st == FA2_OK && i < count; i++)
        st = list_one(caches[i], filter, system);
    return st;
}

/* own: the user's database; NULL: there is none. */
static fa2_status list_all(fa2i_cache *own, const fa2i_layers *system, const fa2i_options *options)
{
    fa2i_cache *caches[1 + FA2I_LAYERS_MAX];
    size_t count = 0;
    if (own != NULL)
        caches[count++] = own;
    for (size_t i = 0; i < system->count; i++)
        caches[count++] = system->caches[i];
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_database_check_device(caches, count, options));
    FA2_TRY(options->json ? list_json(caches, count, &options->filter)
                          : list_text(caches, count, system->count > 0, &options->filter));
    for (size_t i = 0; i < count; i++)
        FA2_TRY(fa2i_database_say_uncompiled(caches[i], &options->filter));
done:
    return st;
}

int fa2i_cmd_list(int argc, char **argv)
{
    fa2i_options options = {0};
    fa2i_cache *cache = NULL;
    fa2i_layers system = {.count = 0};
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_options_parse(argc, argv, FA2I_OPT_FILTER | FA2I_OPT_DB | FA2I_OPT_JSON, &options));
    FA2_TRY(fa2i_filter_find_device(&options));
    FA2_TRY(open_system(&options, &system));
    st = fa2i_database_open(options.db, FA2I_CACHE_READ, &cache);
    if (st == FA2_E_NOT_FOUND && system.count > 0)
        st = FA2_OK; /* the system's are listed */
    if (st == FA2_OK)
        st = list_all(cache, &system, &options);
done:
    fa2i_layers_close(&system);
    fa2i_cache_close(cache);
    fa2i_options_done(&options);
    return st == FA2_OK ? FA2I_EXIT_OK : fa2i_report_failure(st);
}

/* The most problems without measurements that are named, one per line. */
enum { UNKNOWN_SAID = 4 };

/* Says that nothing was measured for a problem, and shows what build chose for it. JSON has that by itself.
 * *ret_known: build chose something. */
static fa2_status show_unmeasured(fa2i_cache *cache, const fa2_problem *problem, const fa2i_options *options,
                                  bool *ret_known)
{
    fa2i_filter filter = {.device = options->filter.device, .problem = *problem};
    winner_listing w;
    memset(filter.given, true, sizeof filter.given);
    const fa2_status st = fa2i_cache_list_winners(cache, &filter, fa2i_row_note, ret_known);
    fa2i_shown_print(stderr, "fa2-tune: nothing was measured for %s in %s%s\n", fa2i_problem_shape(problem).text,
                     fa2i_cache_path(cache), *ret_known ? "; what the cost model chose:" : "");
    return st == FA2_OK && *ret_known && !options->json ? list_winners(cache, &filter, &w) : st;
}

static fa2_status show_problem(fa2i_cache *cache, const fa2_problem *problem, const fa2i_filter *filter)
{
    listing l;
    listing_init(&l, measurement_columns, sizeof measurement_columns / sizeof *measurement_columns);
    printf("%s\n\n", fa2i_problem_shape(problem).text);
    return listing_end(&l, fa2i_cache_list_measurements(cache, problem, filter, add_row, &l));
}

/* Adds the database's problems that pass the filter, after those that were named. */
static fa2_status add_filtered(fa2i_cache *cache, fa2i_options *options)
{
    fa2_problem *problems = NULL;
    size_t count = 0;
    if (options->shapes.count > 0 && !fa2i_filter_names_problem(&options->filter))
        return FA2_OK; /* --device filters the named ones */
    fa2_status st = fa2i_cache_known_problems(cache, &options->filter, &problems, &count);
    for (size_t i = 0; st == FA2_OK && i < count; i++)
        st = fa2i_shapes_add(&options->shapes, &problems[i], 0);
    if (st == FA2_OK && count == 0)
        fa2i_shown_print(
            stderr, "fa2-tune: nothing was measured or chosen for such problems in %s; fa2-tune list has the winners\n",
            fa2i_cache_path(cache));
    fa2i_free(problems);
    return st;
}

/* *ret_unknown: the number of problems without measurements. With JSON all problems are one document. */
static fa2_status show_all(fa2i_cache *cache, const fa2i_options *options, size_t *ret_unknown)
{
    const fa2i_filter filter = {.device = options->filter.device}; /* the problems are chosen already */
    fa2_status st = FA2_OK;
    *ret_unknown = 0;
    for (size_t i = 0; st == FA2_OK && i < options->shapes.count; i++) {
        const fa2_problem *problem = &options->shapes.items[i];
        bool known = false;
        st = fa2i_cache_list_measurements(cache, problem, &filter, fa2i_row_note, &known);
        if (st == FA2_OK && known && !options->json)
            st = show_problem(cache, problem, &filter);
        if (st == FA2_OK && !known && *ret_unknown < UNKNOWN_SAID)
            st = show_unmeasured(cache, problem, options, &known);
        *ret_unknown += !known;
    }
    if (*ret_unknown > UNKNOWN_SAID)
        fprintf(stderr, "fa2-tune: nor for %zu others of these problems\n", *ret_unknown - UNKNOWN_SAID);
    if (st == FA2_OK && options->json)
        st = fa2i_cache_print_measurements_json(cache, options->shapes.items, options->shapes.count, &filter, stdout);
    return st;
}

/* Finds out whether a database has a winner for one of the problems, or for those of the filter. */
static fa2_status has_winner(fa2i_cache *cache, const fa2i_options *options, bool *ret_has)
{
    if (options->shapes.count == 0)
        return fa2i_cache_list_winners(cache, &options->filter, fa2i_row_note, ret_has);
    fa2_status st = FA2_OK;
    for (size_t i = 0; st == FA2_OK && !*ret_has && i < options->shapes.count; i++) {
        fa2i_filter filter = {.device = options->filter.device, .problem = options->shapes.items[i]};
        memset(filter.given, true, sizeof filter.given);
        st = fa2i_cache_list_winners(cache, &filter, fa2i_row_note, ret_has);
    }
    return st;
}

/* Names the system's databases that have what the shown one lacks. One that cannot be read has nothing. */
static fa2_status say_system(const fa2i_options *options)
{
    fa2i_layers system = {.count = 0};
    fa2_status st = open_system(options, &system);
    for (size_t i = 0; st == FA2_OK && i < system.count; i++) {
        bool has = false;
        st = has_winner(system.caches[i], options, &has) == FA2_E_MEMORY ? FA2_E_MEMORY : FA2_OK;
        if (has)
            fa2i_shown_print(stderr,
                             "fa2-tune: %s, a system database, has winners for some of these problems; show "
                             "them with --db\n",
                             fa2i_cache_path(system.caches[i]));
    }
    fa2i_layers_close(&system);
    return st;
}

int fa2i_cmd_show(int argc, char **argv)
{
    fa2i_options options = {0};
    fa2i_cache *cache = NULL;
    fa2_status st = FA2_OK;
    size_t unknown = 0;
    int status = FA2I_EXIT_OK;
    FA2_TRY(fa2i_options_parse(argc, argv, FA2I_OPT_SHAPES | FA2I_OPT_FILTER_SHOWN | FA2I_OPT_DB | FA2I_OPT_JSON,
                               &options));
    if (options.shapes.count == 0 && options.shapes.ops == 0 && !fa2i_filter_is_given(&options.filter))
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "show needs --shape, --op or --device, for example "
                                         "--shape Hq=8,Sq=512,D=64 or --device all"));
    FA2_TRY(fa2i_filter_find_device(&options));
    st = fa2i_database_open(options.db, FA2I_CACHE_READ, &cache);
    if (st == FA2_E_NOT_FOUND) {
        status = fa2i_report_failure(st);
        st = say_system(&options);
        goto done;
    }
    FA2_TRY(st);
    FA2_TRY(fa2i_database_check_device(&cache, 1, &options));
    FA2_TRY(add_filtered(cache, &options));
    FA2_TRY(show_all(cache, &options, &unknown));
    if (unknown > 0 || options.shapes.count == 0) {
        status = FA2I_EXIT_FAILED;
        FA2_TRY(fa2i_database_say_devices(cache, &options.filter));
        FA2_TRY(fa2i_database_say_uncompiled(cache, &options.filter));
        FA2_TRY(say_system(&options));
    }
done:
    if (st != FA2_OK)
        status = fa2i_report_failure(st);
    fa2i_cache_close(cache);
    fa2i_options_done(&options);
    return status;
}
