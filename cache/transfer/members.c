/*
 * Members of a JSON object. One statement, bound again for each member, gives its JSON type and its value. SQLite keeps
 * the row until the statement is reset, at the next member.
 */
#include "cache/transfer/members.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "cache/database/rules.h"
#include "runtime/base/shown.h"

fa2_status fa2i_members_open(fa2i_cache *cache, fa2i_members *ret_members)
{
    fa2i_members members = {.cache = cache};
    const fa2i_sql_value values[] = {fa2i_sql_text(NULL), fa2i_sql_text(NULL)};
    fa2_status st = fa2i_sql_need_json(cache);
    if (st == FA2_OK)
        st = fa2i_sql_prepare(cache, "SELECT json_type(?1, ?2), json_extract(?1, ?2)", FA2I_SQL_VALUES(values),
                              &members.member);
    if (st == FA2_OK)
        *ret_members = members;
    return st;
}

void fa2i_members_done(fa2i_members *members)
{
    sqlite3_finalize(members->member);
    *members = (fa2i_members){0};
}

/* SQLite cuts a text at an escaped NUL. */
static bool has_escaped_nul(const char *line)
{
    for (const char *c = strchr(line, '\\'); c != NULL; c = strchr(c + 2, '\\')) {
        if (strncmp(c, "\\u0000", 6) == 0)
            return true;
        if (c[1] == '\0')
            return false;
    }
    return false;
}

fa2_status fa2i_members_set(fa2i_members *members, const char *line)
{
    const fa2i_sql_value values[] = {fa2i_sql_text(line)};
    int64_t object = 0;
    fa2_status st =
        fa2i_sql_number(members->cache, "SELECT CASE WHEN json_valid(?1) THEN json_type(?1) = 'object' ELSE 0 END",
                        FA2I_SQL_VALUES(values), &object);
    if (st != FA2_OK)
        return st;
    if (!object)
        return fa2i_fail(
            FA2_E_INVALID,
            "this is not a JSON object, or was cut; it must be a line of what fa2-tune export or field-report wrote");
    if (has_escaped_nul(line))
        return fa2i_fail(FA2_E_INVALID, "the line has a NUL byte (\\u0000)");
    members->line = line;
    return FA2_OK;
}

/* Steps to a member. *ret_type is "" if it is missing, and borrowed until the next one. */
static fa2_status member(fa2i_members *members, const char *name, const char **ret_type)
{
    char path[64];
    bool row = false;
    snprintf(path, sizeof path, "$.%s", name);
    sqlite3_reset(members->member);
    int code = sqlite3_bind_text(members->member, 1, members->line, -1, SQLITE_STATIC);
    if (code == SQLITE_OK)
        code = sqlite3_bind_text(members->member, 2, path, -1, SQLITE_TRANSIENT);
    if (code != SQLITE_OK)
        return fa2i_sql_fail(members->cache, code);
    fa2_status st = fa2i_sql_step(members->cache, members->member, &row);
    if (st != FA2_OK)
        return st;
    const char *type = (const char *)sqlite3_column_text(members->member, 0);
    *ret_type = type != NULL ? type : "";
    return FA2_OK;
}

bool fa2i_members_has(fa2i_members *members, const char *name)
{
    const char *type = "";
    return member(members, name, &type) == FA2_OK && type[0] != '\0';
}

fa2_status fa2i_members_number(fa2i_members *members, const char *name, int64_t min, int64_t max, int64_t *ret)
{
    const char *type = "";
    fa2_status st = member(members, name, &type);
    if (st != FA2_OK)
        return st;
    /* A number that does not fit 64 bits comes as a real value. */
    const int64_t value = sqlite3_column_int64(members->member, 1);
    if (strcmp(type, "integer") != 0 || sqlite3_column_type(members->member, 1) != SQLITE_INTEGER || value < min ||
        value > max)
        return fa2i_fail(FA2_E_INVALID, "'%s' must be a whole number from %lld to %lld", name, (long long)min,
                         (long long)max);
    *ret = value;
    return FA2_OK;
}

/* Steps to a member and gets its text; "" if it is no text. */
static fa2_status plain_text(fa2i_members *members, const char *name, const char **ret_text)
{
    const char *type = "";
    const fa2_status st = member(members, name, &type);
    *ret_text = st == FA2_OK && strcmp(type, "text") == 0 ? (const char *)sqlite3_column_text(members->member, 1) : "";
    return st;
}

/* ---- columns ---- */

/* Steps to the member of a column. *ret_text is NULL if it is no text. */
static fa2_status column(fa2i_members *members, const char *name, const fa2i_rule **ret_rule, const char **ret_type,
                         const char **ret_text, size_t *ret_bytes)
{
    *ret_rule = fa2i_rule_of(members->table, name);
    const fa2_status st = member(members, name, ret_type);
    if (st != FA2_OK)
        return st;
    const bool text = strcmp(*ret_type, "text") == 0;
    *ret_text = text ? (const char *)sqlite3_column_text(members->member, 1) : NULL;
    *ret_bytes = text ? (size_t)sqlite3_column_bytes(members->member, 1) : 0;
    return FA2_OK;
}

static fa2_status refuse(const fa2i_rule *rule, const char *text)
{
    char sentence[FA2I_RULE_CHARS];
    fa2i_rule_sentence(rule, text, sentence);
    return fa2i_fail(FA2_E_INVALID, "%s", sentence);
}

fa2_status fa2i_members_int64(fa2i_members *members, const char *name, int64_t *ret)
{
    const fa2i_rule *rule = fa2i_rule_of(members->table, name);
    return fa2i_members_number(members, name, rule->least, rule->most, ret);
}

fa2_status fa2i_members_int(fa2i_members *members, const char *name, int *ret)
{
    int64_t value = 0;
    const fa2_status st = fa2i_members_int64(members, name, &value);
    if (st == FA2_OK)
        *ret = (int)value; /* the rules of int columns have limits that fit an int */
    return st;
}

fa2_status fa2i_members_bool(fa2i_members *members, const char *name, bool *ret)
{
    int value = 0;
    fa2_status st = fa2i_members_int(members, name, &value);
    if (st == FA2_OK)
        *ret = value == 1;
    return st;
}

fa2_status fa2i_members_real(fa2i_members *members, const char *name, double *ret)
{
    const fa2i_rule *rule = NULL;
    const char *type = "", *text = NULL;
    size_t bytes = 0;
    const fa2_status st = column(members, name, &rule, &type, &text, &bytes);
    if (st != FA2_OK)
        return st;
    if (rule->kind == FA2I_RULE_FINITE && strcmp(type, "null") == 0) {
        *ret = INFINITY;
        return FA2_OK;
    }
    const bool number = strcmp(type, "integer") == 0 || strcmp(type, "real") == 0;
    const double value = sqlite3_column_double(members->member, 1);
    if (!number || !fa2i_rule_takes_real(rule, value))
        return refuse(rule, NULL);
    *ret = value;
    return FA2_OK;
}

fa2_status fa2i_members_text(fa2i_members *members, const char *name, char *out, size_t out_bytes)
{
    const fa2i_rule *rule = NULL;
    const char *type = "", *text = NULL;
    size_t bytes = 0;
    const fa2_status st = column(members, name, &rule, &type, &text, &bytes);
    if (st != FA2_OK)
        return st;
    if (text == NULL || bytes >= out_bytes || !fa2i_rule_takes_text(rule, text, bytes))
        return refuse(rule, text);
    memcpy(out, text, bytes);
    out[bytes] = '\0';
    return FA2_OK;
}

fa2_status fa2i_members_word(fa2i_members *members, const char *name, char *out, size_t out_bytes)
{
    const char *text = "";
    const fa2_status st = plain_text(members, name, &text);
    if (st != FA2_OK)
        return st;
    if (text[0] == '\0' || strlen(text) >= out_bytes ||
        text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_")] != '\0')
        return fa2i_fail(FA2_E_INVALID, "'%s' must be a word of up to %zu letters a-z and digits", name, out_bytes - 1);
    memcpy(out, text, strlen(text) + 1);
    return FA2_OK;
}

fa2_status fa2i_members_remark(fa2i_members *members, const char *name, char *out, size_t out_bytes)
{
    const fa2i_rule *rule = NULL;
    const char *type = "", *text = NULL;
    size_t bytes = 0;
    const fa2_status st = column(members, name, &rule, &type, &text, &bytes);
    if (st != FA2_OK)
        return st;
    if (text == NULL)
        return refuse(rule, NULL);
    snprintf(out, out_bytes, "%s", text);
    for (size_t at = 0, count; out[at] != '\0'; at += count) {
        bool plain = false;
        count = fa2i_shown_character(out + at, strlen(out + at), &plain);
        if (!plain)
            memset(out + at, ' ', count);
    }
    return FA2_OK;
}

fa2_status fa2i_members_outcome(fa2i_members *members, const char *name, fa2i_outcome *ret)
{
    char text[32];
    const fa2_status st = fa2i_members_text(members, name, text, sizeof text);
    if (st == FA2_OK)
        (void)fa2i_outcome_parse(text, ret); /* the rule ensures that it is an outcome */
    return st;
}

fa2_status fa2i_members_bytes(fa2i_members *members, const char *name, uint8_t *out, size_t most, size_t *ret_count)
{
    const char *text = "";
    const fa2_status st = plain_text(members, name, &text);
    if (st != FA2_OK)
        return st;
    if (!fa2i_hex_parse(text, out, most, ret_count))
        return fa2i_fail(FA2_E_INVALID, "'%s' must be hex digits of at most %zu bytes", name, most);
    return FA2_OK;
}

fa2_status fa2i_members_key(fa2i_members *members, const char *name, fa2i_key *ret)
{
    const char *text = "";
    size_t bytes = 0;
    const fa2_status st = plain_text(members, name, &text);
    if (st != FA2_OK)
        return st;
    if (!fa2i_hex_parse(text, ret->bytes, FA2I_KEY_BYTES, &bytes) || bytes != FA2I_KEY_BYTES)
        return fa2i_fail(FA2_E_INVALID, "'%s' must be %d hex digits", name, 2 * FA2I_KEY_BYTES);
    return FA2_OK;
}
