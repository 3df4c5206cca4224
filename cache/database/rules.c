/*
 * - SQL names a rule by its number: fa2_fault(number, value).
 * - A value of another type than the rule's is invalid.
 */
#include "cache/database/rules.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "cache/database/columns.h"
#include "runtime/base/shown.h"

#define NONE         NULL
#define NO_GENERATOR "'0000000000000000'"
#define NO_MOMENT    "'1970-01-01T00:00:00Z'"

static const fa2i_rule rules[] = {
#define FA2I_RULE(table, column, kind, least, most, mend)                                                              \
    {#table, #column, FA2I_RULE_##kind, (int64_t)(least), (int64_t)(most), mend},
#include "cache/database/rules.def"
#undef FA2I_RULE
};
enum { RULE_COUNT = sizeof rules / sizeof *rules };

const fa2i_rule *fa2i_rule_of(const char *table, const char *column)
{
    for (size_t i = 0; i < RULE_COUNT; i++)
        if (strcmp(rules[i].column, column) == 0 && strcmp(rules[i].table, table) == 0)
            return &rules[i];
    assert(false && "a column without a rule");
    return &rules[0];
}

/* ---- values ---- */

static bool takes_int(const fa2i_rule *rule, int64_t value)
{
    return rule->kind == FA2I_RULE_ID || (rule->kind == FA2I_RULE_INT && value >= rule->least && value <= rule->most);
}

bool fa2i_rule_takes_real(const fa2i_rule *rule, double value)
{
    return (rule->kind == FA2I_RULE_REAL && value >= 0 && value <= FA2I_US_MAX) ||
           (rule->kind == FA2I_RULE_FINITE && value >= 0 && isfinite(value));
}

/* In the pattern, '0' stands for a digit and 'h' for a hex digit (0-9, a-f). Other characters stand for themselves. */
static bool has_form(const char *text, size_t bytes, const char *pattern)
{
    if (strlen(pattern) != bytes)
        return false;
    for (size_t i = 0; i < bytes; i++) {
        const bool digit = text[i] >= '0' && text[i] <= '9';
        const bool letter = text[i] >= 'a' && text[i] <= 'f';
        if (pattern[i] == '0' ? !digit : pattern[i] == 'h' ? !digit && !letter : text[i] != pattern[i])
            return false;
    }
    return true;
}

static bool is_one_of(const char *text, size_t bytes, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(words[i]) == bytes && memcmp(words[i], text, bytes) == 0)
            return true;
    return false;
}

static bool is_target(const char *text, size_t bytes)
{
    return has_form(text, bytes, "sm_00") || has_form(text, bytes, "sm_000") || has_form(text, bytes, "compute_00") ||
           has_form(text, bytes, "compute_000");
}

/* If false, the thread's message says why. */
static bool is_recipe(const char *text)
{
    fa2i_recipe recipe;
    return fa2i_recipe_parse(text, &recipe) == FA2_OK;
}

static const char *const outcomes[] = {
#define OUTCOME_TEXT(name, value, text) text,
    FA2I_OUTCOME_LIST(OUTCOME_TEXT)
#undef OUTCOME_TEXT
};
static const char *const origins[] = {"tune", "build", "import"};

bool fa2i_rule_takes_text(const fa2i_rule *rule, const char *text, size_t bytes)
{
    static const char variant[] = "abcdefghijklmnopqrstuvwxyz0123456789_= ";
    if (memchr(text, '\0', bytes) != NULL)
        return false; /* import refuses it */
    switch (rule->kind) {
    case FA2I_RULE_LOG:
        return true;
    case FA2I_RULE_REMARK:
        return bytes <= (size_t)rule->most;
    case FA2I_RULE_OUTCOME:
        return is_one_of(text, bytes, outcomes, sizeof outcomes / sizeof *outcomes);
    case FA2I_RULE_ORIGIN:
        return is_one_of(text, bytes, origins, sizeof origins / sizeof *origins);
    case FA2I_RULE_TARGET:
        return is_target(text, bytes);
    case FA2I_RULE_HEX16:
        return has_form(text, bytes, "hhhhhhhhhhhhhhhh");
    case FA2I_RULE_MOMENT:
    case FA2I_RULE_ENDED:
        return has_form(text, bytes, "0000-00-00T00:00:00Z");
    case FA2I_RULE_TEXT:
    case FA2I_RULE_VARIANT:
    case FA2I_RULE_RECIPE:
        return bytes >= (size_t)rule->least && bytes <= (size_t)rule->most && fa2i_shown_is_plain(text, bytes) &&
               (rule->kind != FA2I_RULE_VARIANT || strspn(text, variant) == bytes) &&
               (rule->kind != FA2I_RULE_RECIPE || is_recipe(text));
    default:
        return false;
    }
}

/* ---- sentences ---- */

_Static_assert(2 * FA2I_KEY_BYTES == 64, "the text of FA2I_RULE_KEY says 64");

static void describe(const fa2i_rule *rule, char *out, size_t bytes)
{
    static const char *const texts[] = {[FA2I_RULE_FINITE] = "a finite number from 0 on, or null",
                                        [FA2I_RULE_OUTCOME] = "an outcome (ok, compile_error, ...)",
                                        [FA2I_RULE_ORIGIN] = "tune, build or import",
                                        [FA2I_RULE_TARGET] = "like sm_86 or compute_86",
                                        [FA2I_RULE_HEX16] = "16 hex digits",
                                        [FA2I_RULE_MOMENT] = "like 2026-11-21T17:45:00Z",
                                        [FA2I_RULE_ENDED] = "like 2026-11-21T17:45:00Z",
                                        [FA2I_RULE_LOG] = "text without NUL, or null",
                                        [FA2I_RULE_ID] = "a whole number",
                                        [FA2I_RULE_BYTES] = "bytes",
                                        [FA2I_RULE_KEY] = "64 hex digits",
                                        [FA2I_RULE_PROBLEM] = "the bytes of a problem"};
    if (texts[rule->kind] != NULL)
        snprintf(out, bytes, "%s", texts[rule->kind]);
    else if (rule->kind == FA2I_RULE_INT)
        snprintf(out, bytes, "a whole number from %lld to %lld", (long long)rule->least, (long long)rule->most);
    else if (rule->kind == FA2I_RULE_REAL)
        snprintf(out, bytes, "a number from 0 to %g", FA2I_US_MAX);
    else if (rule->kind == FA2I_RULE_REMARK)
        snprintf(out, bytes, "text of up to %d bytes without NUL", (int)rule->most);
    else
        snprintf(out, bytes, "text of %d to %d bytes%s", (int)rule->least, (int)rule->most,
                 rule->kind == FA2I_RULE_VARIANT  ? " of a-z, 0-9, '_', '=' and blanks"
                 : rule->kind == FA2I_RULE_RECIPE ? " that says how a kernel is launched"
                                                  : " of printable UTF-8");
}

void fa2i_rule_sentence(const fa2i_rule *rule, const char *value, char out[FA2I_RULE_CHARS])
{
    char wanted[120];
    describe(rule, wanted, sizeof wanted);
    const bool shown = value != NULL && fa2i_shown_is_plain(value, strlen(value));
    if (shown && rule->kind == FA2I_RULE_RECIPE && !is_recipe(value)) {
        snprintf(out, FA2I_RULE_CHARS, "%s", fa2_last_message());
        return;
    }
    snprintf(out, FA2I_RULE_CHARS, "'%s' must be %s%s%.60s%s", rule->column, wanted, shown ? ", and is '" : "",
             shown ? value : "", shown ? "'" : "");
}

/* ---- results ---- */

const char *fa2i_winner_fault(const fa2i_winner *w)
{
    const double us[] = {w->median_us, w->default_us, w->model_us};
    for (size_t i = 0; i < sizeof us / sizeof us[0]; i++) {
        if (!(us[i] >= 0 && us[i] <= FA2I_US_MAX)) /* refuses NaN, too */
            return "its times are not all from 0 to 1e15 us";
    }
    return (w->measured ? w->median_us : w->model_us) > 0 ? NULL : "the time that ranks it is 0 us";
}

const char *fa2i_measurement_fault(const fa2i_measurement *m)
{
    const double us[] = {m->min_us, m->q1_us, m->median_us, m->q3_us};
    for (size_t i = 0; i < sizeof us / sizeof us[0]; i++)
        if (!(us[i] >= 0 && us[i] <= FA2I_US_MAX))
            return "its times are not all from 0 to 1e15 us";
    if (m->n < 0 || m->max_error < 0)
        return "its number of samples or its error is below 0";
    return m->n == 0 || m->median_us > 0 ? NULL : "its samples took 0 us";
}

bool fa2i_card_is_sound(const fa2i_card *card)
{
    const struct {
        const char *column;
        int64_t value;
    } numbers[] = {{"arch", card->arch},
                   {"sm_count", card->sm_count},
                   {"smem_block_bytes", card->smem_block_bytes},
                   {"smem_sm_bytes", card->smem_sm_bytes},
                   {"l2_bytes", card->l2_bytes},
                   {"clock_khz", card->clock_khz},
                   {"bandwidth_bytes", card->bandwidth_bytes}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!takes_int(fa2i_rule_of("device", numbers[i].column), numbers[i].value))
            return false;
    return true;
}

/* ---- SQL ---- */

static bool takes(const fa2i_rule *rule, sqlite3_value *value)
{
    switch (sqlite3_value_type(value)) {
    case SQLITE_INTEGER:
        return takes_int(rule, sqlite3_value_int64(value));
    case SQLITE_FLOAT:
        return fa2i_rule_takes_real(rule, sqlite3_value_double(value));
    case SQLITE_BLOB:
        return rule->kind == FA2I_RULE_BYTES ||
               (rule->kind == FA2I_RULE_KEY && sqlite3_value_bytes(value) == FA2I_KEY_BYTES) ||
               (rule->kind == FA2I_RULE_PROBLEM && sqlite3_value_bytes(value) == FA2I_FIELD_BYTES);
    case SQLITE_NULL:
        return rule->kind == FA2I_RULE_FINITE || rule->kind == FA2I_RULE_ENDED || rule->kind == FA2I_RULE_LOG;
    default: {
        /* sqlite3_value_text comes first, because it may convert the value, which changes the length. */
        const char *text = (const char *)sqlite3_value_text(value);
        return text != NULL && fa2i_rule_takes_text(rule, text, (size_t)sqlite3_value_bytes(value));
    }
    }
}

static void fault_sql(sqlite3_context *context, int count, sqlite3_value **values)
{
    char sentence[FA2I_RULE_CHARS];
    const fa2i_rule *rule = &rules[sqlite3_value_int(values[0])];
    (void)count;
    if (takes(rule, values[1]))
        return;
    const bool blob = sqlite3_value_type(values[1]) == SQLITE_BLOB;
    fa2i_rule_sentence(rule, blob ? NULL : (const char *)sqlite3_value_text(values[1]), sentence);
    sqlite3_result_text(context, sentence, -1, SQLITE_TRANSIENT);
}

static bool holds_bytes(const fa2i_rule *rule)
{
    return rule->kind == FA2I_RULE_KEY || rule->kind == FA2I_RULE_BYTES || rule->kind == FA2I_RULE_PROBLEM;
}

static bool holds_text(const fa2i_rule *rule)
{
    return rule->kind != FA2I_RULE_INT && rule->kind != FA2I_RULE_ID && rule->kind != FA2I_RULE_REAL &&
           rule->kind != FA2I_RULE_FINITE && !holds_bytes(rule);
}

/* fa2_mended(rule, value[, mend]). One bit of a row distinguishes text from bytes. So a value of the other type is
 * taken as the type that the rule wants. */
static void mended_sql(sqlite3_context *context, int count, sqlite3_value **values)
{
    const fa2i_rule *rule = &rules[sqlite3_value_int(values[0])];
    const int type = sqlite3_value_type(values[1]);
    size_t *mended = sqlite3_user_data(context);
    if (takes(rule, values[1])) {
        sqlite3_result_value(context, values[1]);
        return;
    }
    ++*mended;
    if (type == SQLITE_TEXT && holds_bytes(rule)) {
        const void *data = sqlite3_value_blob(values[1]); /* first: it may change the length */
        sqlite3_result_blob(context, data, sqlite3_value_bytes(values[1]), SQLITE_TRANSIENT);
        return;
    }
    if (type == SQLITE_BLOB && holds_text(rule)) {
        const char *text = (const char *)sqlite3_value_text(values[1]);
        const int bytes = sqlite3_value_bytes(values[1]);
        if (text != NULL && (count < 3 || fa2i_rule_takes_text(rule, text, (size_t)bytes))) {
            sqlite3_result_text(context, text, bytes, SQLITE_TRANSIENT);
            return;
        }
    }
    sqlite3_result_value(context, values[count < 3 ? 1 : 2]);
}

/* fa2_json_value(value): NULL if JSON cannot hold the value: a number that is not finite, or bytes. */
static void json_value_sql(sqlite3_context *context, int count, sqlite3_value **values)
{
    const int type = sqlite3_value_type(values[0]);
    const bool is_number = type != SQLITE_FLOAT || isfinite(sqlite3_value_double(values[0]));
    (void)count;
    if (type != SQLITE_BLOB && is_number)
        sqlite3_result_value(context, values[0]);
}

/* fa2_winner_fault(measured, median_us, default_us, model_us) */
static void winner_fault_sql(sqlite3_context *context, int count, sqlite3_value **values)
{
    const fa2i_winner winner = {.measured = sqlite3_value_int(values[0]) != 0,
                                .median_us = sqlite3_value_double(values[1]),
                                .default_us = sqlite3_value_double(values[2]),
                                .model_us = sqlite3_value_double(values[3])};
    (void)count;
    sqlite3_result_text(context, fa2i_winner_fault(&winner), -1, SQLITE_STATIC);
}

/* fa2_measurement_fault(n, median_us) */
static void measurement_fault_sql(sqlite3_context *context, int count, sqlite3_value **values)
{
    const fa2i_measurement measurement = {.n = sqlite3_value_int(values[0]),
                                          .median_us = sqlite3_value_double(values[1])};
    (void)count;
    sqlite3_result_text(context, fa2i_measurement_fault(&measurement), -1, SQLITE_STATIC);
}

int fa2i_rules_register(sqlite3 *db, size_t *mended)
{
    static const fa2i_sql_function functions[] = {{"fa2_fault", 2, fault_sql},
                                                  {"fa2_winner_fault", 4, winner_fault_sql},
                                                  {"fa2_measurement_fault", 2, measurement_fault_sql},
                                                  {"fa2_mended", -1, mended_sql},
                                                  {"fa2_json_value", 1, json_value_sql}};
    return fa2i_sql_register(db, FA2I_SQL_VALUES(functions), mended);
}

void fa2i_rules_add_fault(fa2i_text *sql, const char *table)
{
    fa2i_text_add(sql, "coalesce(");
    for (int i = 0; i < RULE_COUNT; i++)
        if (strcmp(rules[i].table, table) == 0)
            fa2i_text_add(sql, "fa2_fault(%d, %s), ", i, rules[i].column);
    if (strcmp(table, "problem") == 0)
        fa2i_text_add(sql, "fa2_problem_fault(%s), ", fa2i_columns_fields);
    if (strcmp(table, "winner") == 0)
        fa2i_text_add(sql, "fa2_winner_fault(measured, median_us, default_us, model_us), ");
    if (strcmp(table, "measurement") == 0)
        fa2i_text_add(sql, "fa2_measurement_fault(n, median_us), ");
    fa2i_text_add(sql, "NULL)");
}

/* Returns the index of a column's rule; -1: it has none. */
static int find_rule(const char *table, const char *column)
{
    for (int i = 0; i < RULE_COUNT; i++)
        if (strcmp(rules[i].table, table) == 0 && strcmp(rules[i].column, column) == 0)
            return i;
    return -1;
}

void fa2i_rules_add_mended(fa2i_text *sql, const char *table, const char *column)
{
    const int i = find_rule(table, column);
    if (i < 0)
        fa2i_text_add(sql, "t.%s", column);
    else if (rules[i].mend == NULL)
        fa2i_text_add(sql, "fa2_mended(%d, t.%s)", i, column);
    else
        fa2i_text_add(sql, "fa2_mended(%d, t.%s, %s)", i, column, rules[i].mend);
}

fa2_status fa2i_rules_mend(fa2i_cache *cache)
{
    fa2_status st = FA2_OK;
    for (int i = 0; st == FA2_OK && i < RULE_COUNT; i++) {
        fa2i_text sql = {0};
        if (rules[i].mend == NULL)
            continue;
        fa2i_text_add(&sql, "UPDATE OR IGNORE %s AS t SET %s = ", rules[i].table, rules[i].column);
        fa2i_rules_add_mended(&sql, rules[i].table, rules[i].column);
        fa2i_text_add(&sql, " WHERE fa2_fault(%d, t.%s) IS NOT NULL", i, rules[i].column);
        st = fa2i_sql_script_text(cache, &sql);
    }
    return st;
}
