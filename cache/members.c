/*
 * Members of a JSON object. One statement, bound again for each member, gives its JSON type and its
 * value; SQLite keeps the row until the statement is reset, which is at the next member.
 */
#include "cache/members.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double REAL_MAX = FA2I_US_MAX;

fa2_status fa2i_members_open(fa2i_cache *cache, fa2i_members *ret_members)
{
    fa2i_members members = {.cache = cache};
    const fa2i_sql_value values[] = {fa2i_sql_text(NULL), fa2i_sql_text(NULL)};
    fa2_status st = fa2i_sql_need_json(cache);
    if (st == FA2_OK)
        st = fa2i_sql_prepare(cache, "SELECT json_type(?1, ?2), json_extract(?1, ?2)",
                              FA2I_SQL_VALUES(values), &members.member);
    if (st == FA2_OK)
        *ret_members = members;
    return st;
}

void fa2i_members_done(fa2i_members *members)
{
    sqlite3_finalize(members->member);
    *members = (fa2i_members){0};
}

fa2_status fa2i_members_set(fa2i_members *members, const char *line)
{
    const fa2i_sql_value values[] = {fa2i_sql_text(line)};
    int64_t object = 0;
    fa2_status st = fa2i_sql_number(
        members->cache, "SELECT CASE WHEN json_valid(?1) THEN json_type(?1) = 'object' ELSE 0 END",
        FA2I_SQL_VALUES(values), &object);
    if (st != FA2_OK)
        return st;
    if (!object)
        return fa2i_fail(FA2_E_INVALID, "this is not a JSON object");
    members->line = line;
    return FA2_OK;
}

/* Step to a member; *ret_type is "" when it is missing, and borrowed until the next one. */
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

fa2_status fa2i_members_int64(fa2i_members *members, const char *name, int64_t min, int64_t max,
                              int64_t *ret)
{
    const char *type = "";
    fa2_status st = member(members, name, &type);
    if (st != FA2_OK)
        return st;
    /* what does not fit 64 bits comes as a real value */
    const int64_t value = sqlite3_column_int64(members->member, 1);
    if (strcmp(type, "integer") != 0 || sqlite3_column_type(members->member, 1) != SQLITE_INTEGER ||
        value < min || value > max)
        return fa2i_fail(FA2_E_INVALID, "'%s' must be a whole number from %lld to %lld", name,
                         (long long)min, (long long)max);
    *ret = value;
    return FA2_OK;
}

fa2_status fa2i_members_int(fa2i_members *members, const char *name, int min, int max, int *ret)
{
    int64_t value = 0;
    fa2_status st = fa2i_members_int64(members, name, min, max, &value);
    if (st == FA2_OK)
        *ret = (int)value;
    return st;
}

fa2_status fa2i_members_bool(fa2i_members *members, const char *name, bool *ret)
{
    int value = 0;
    fa2_status st = fa2i_members_int(members, name, 0, 1, &value);
    if (st == FA2_OK)
        *ret = value == 1;
    return st;
}

static fa2_status real(fa2i_members *members, const char *name, bool null_is_infinite, double *ret)
{
    const char *type = "";
    fa2_status st = member(members, name, &type);
    if (st != FA2_OK)
        return st;
    if (null_is_infinite && strcmp(type, "null") == 0) {
        *ret = INFINITY;
        return FA2_OK;
    }
    const bool number = strcmp(type, "integer") == 0 || strcmp(type, "real") == 0;
    const double value = sqlite3_column_double(members->member, 1);
    if (!number || !(value >= 0 && value <= REAL_MAX))
        return fa2i_fail(FA2_E_INVALID, "'%s' must be a number from 0 to %g%s", name, REAL_MAX,
                         null_is_infinite ? ", or null" : "");
    *ret = value;
    return FA2_OK;
}

fa2_status fa2i_members_real(fa2i_members *members, const char *name, double *ret)
{
    return real(members, name, false, ret);
}

fa2_status fa2i_members_error(fa2i_members *members, const char *name, double *ret)
{
    return real(members, name, true, ret);
}

/* Length of the control character at text, 0 if there is none. A terminal obeys also those of
 * Latin-1 (0x80 to 0x9f), which are two bytes in UTF-8. */
static size_t control(const char *text)
{
    const unsigned char first = (unsigned char)text[0];
    const unsigned char second = first != 0 ? (unsigned char)text[1] : 0;
    if (first < 0x20 || first == 0x7f)
        return 1;
    return first == 0xc2 && second >= 0x80 && second <= 0x9f ? 2 : 0;
}

fa2_status fa2i_members_text(fa2i_members *members, const char *name, char *out, size_t out_bytes)
{
    const char *type = "";
    fa2_status st = member(members, name, &type);
    if (st != FA2_OK)
        return st;
    const char *text =
        strcmp(type, "text") == 0 ? (const char *)sqlite3_column_text(members->member, 1) : NULL;
    const size_t bytes = text != NULL ? (size_t)sqlite3_column_bytes(members->member, 1) : 0;
    bool good = bytes >= 1 && bytes < out_bytes;
    for (size_t i = 0; good && i < bytes; i++)
        good = control(text + i) == 0;
    if (!good)
        return fa2i_fail(FA2_E_INVALID,
                         "'%s' must be text of 1 to %zu bytes without control characters", name,
                         out_bytes - 1);
    memcpy(out, text, bytes);
    out[bytes] = '\0';
    return FA2_OK;
}

fa2_status fa2i_members_remark(fa2i_members *members, const char *name, char *out, size_t out_bytes)
{
    const char *type = "";
    fa2_status st = member(members, name, &type);
    if (st != FA2_OK)
        return st;
    if (strcmp(type, "text") != 0)
        return fa2i_fail(FA2_E_INVALID, "'%s' must be text", name);
    fa2i_sql_column_text(members->member, 1, out, out_bytes);
    for (char *c = out; *c != '\0'; c++) {
        const size_t length = control(c);
        memset(c, ' ', length);
    }
    return FA2_OK;
}

fa2_status fa2i_members_outcome(fa2i_members *members, const char *name, fa2i_outcome *ret)
{
    char text[32];
    fa2_status st = fa2i_members_text(members, name, text, sizeof text);
    if (st != FA2_OK)
        return st;
    if (!fa2i_outcome_parse(text, ret))
        return fa2i_fail(FA2_E_INVALID, "'%s' is the unknown outcome '%s'", name, text);
    return FA2_OK;
}

/* The value of a digit 0-9, a-f; -1 for all else. */
static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *found = c != '\0' ? strchr(digits, c) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

static bool has_form(const char *text, const char *pattern)
{
    if (strlen(text) != strlen(pattern))
        return false;
    for (; *pattern != '\0'; text++, pattern++) {
        const int digit = hex_digit(*text);
        if (*pattern == '0' ? digit < 0 || digit > 9
                            : (*pattern == 'h' ? digit < 0 : *text != *pattern))
            return false;
    }
    return true;
}

fa2_status fa2i_members_form(fa2i_members *members, const char *name, const char *pattern,
                             char *out, size_t out_bytes)
{
    char text[80];
    fa2_status st = fa2i_members_text(members, name, text, sizeof text);
    if (st != FA2_OK)
        return st;
    if (!has_form(text, pattern))
        return fa2i_fail(FA2_E_INVALID, "'%s' must have the form %s (0: digit, h: hex digit)", name,
                         pattern);
    snprintf(out, out_bytes, "%s", text);
    return FA2_OK;
}

fa2_status fa2i_members_key(fa2i_members *members, const char *name, fa2i_key *ret)
{
    char text[80];
    fa2_status st = fa2i_members_text(members, name, text, sizeof text);
    if (st != FA2_OK)
        return st;
    bool good = strlen(text) == 2 * FA2I_KEY_BYTES;
    for (const char *c = text; *c != '\0'; c++)
        good = good && hex_digit(*c) >= 0;
    if (!good)
        return fa2i_fail(FA2_E_INVALID, "'%s' must be %d hex digits", name, 2 * FA2I_KEY_BYTES);
    for (size_t i = 0; i < FA2I_KEY_BYTES; i++)
        ret->bytes[i] = (uint8_t)(16 * hex_digit(text[2 * i]) + hex_digit(text[2 * i + 1]));
    return FA2_OK;
}
