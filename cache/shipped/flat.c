/*
 * Numbers are read here, because strtod uses the locale's decimal point.
 */
#include "cache/shipped/flat.h"

#include <math.h>
#include <string.h>

enum { DIGITS_MAX = 18 /* so that the value fits 64 bits */, POWER_MAX = 400 };

typedef struct cursor {
    const char *at, *end;
} cursor;

static bool take(cursor *c, char wanted)
{
    if (c->at == c->end || *c->at != wanted)
        return false;
    c->at++;
    return true;
}

/* Reads the text between quotes. */
static bool read_text(cursor *c, const char **ret_text, size_t *ret_bytes)
{
    if (!take(c, '"'))
        return false;
    const char *first = c->at;
    while (c->at < c->end && *c->at != '"')
        c->at += *c->at == '\\' && c->end - c->at > 1 ? 2 : 1;
    *ret_text = first;
    *ret_bytes = (size_t)(c->at - first);
    return take(c, '"');
}

static bool read_value(cursor *c, fa2i_flat_member *m)
{
    m->is_text = c->at < c->end && *c->at == '"';
    if (m->is_text)
        return read_text(c, &m->value, &m->value_bytes);
    m->value = c->at;
    while (c->at < c->end && strchr(",{}[]\"", *c->at) == NULL)
        c->at++;
    m->value_bytes = (size_t)(c->at - m->value);
    return m->value_bytes > 0;
}

bool fa2i_flat_read(const char *text, size_t bytes, fa2i_flat *ret_object)
{
    cursor c = {text, text + bytes};
    ret_object->count = 0;
    if (!take(&c, '{'))
        return false;
    do {
        if (ret_object->count == FA2I_FLAT_MEMBERS_MAX)
            return false;
        fa2i_flat_member *m = &ret_object->members[ret_object->count++];
        if (!read_text(&c, &m->name, &m->name_bytes) || !take(&c, ':') || !read_value(&c, m))
            return false;
    } while (take(&c, ','));
    return take(&c, '}') && c.at == c.end;
}

static const fa2i_flat_member *find(const fa2i_flat *object, const char *name)
{
    const size_t bytes = strlen(name);
    for (size_t i = 0; i < object->count; i++) {
        const fa2i_flat_member *m = &object->members[i];
        if (m->name_bytes == bytes && memcmp(m->name, name, bytes) == 0)
            return m;
    }
    return NULL;
}

bool fa2i_flat_has(const fa2i_flat *object, const char *name)
{
    return find(object, name) != NULL;
}

/* Reads as many digits as follow, and appends them to *value. Returns their number. */
static size_t read_digits(cursor *c, uint64_t *value)
{
    const char *first = c->at;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9') {
        if (c->at - first < DIGITS_MAX)
            *value = *value * 10 + (uint64_t)(*c->at - '0');
        c->at++;
    }
    return (size_t)(c->at - first);
}

bool fa2i_flat_integer(const fa2i_flat *object, const char *name, int64_t *ret)
{
    const fa2i_flat_member *m = find(object, name);
    uint64_t value = 0;
    if (m == NULL || m->is_text)
        return false;
    cursor c = {m->value, m->value + m->value_bytes};
    const bool minus = take(&c, '-');
    const size_t digits = read_digits(&c, &value);
    if (digits == 0 || digits > DIGITS_MAX || c.at != c.end)
        return false;
    *ret = minus ? -(int64_t)value : (int64_t)value;
    return true;
}

bool fa2i_flat_int(const fa2i_flat *object, const char *name, int *ret)
{
    int64_t value = 0;
    if (!fa2i_flat_integer(object, name, &value) || value < INT32_MIN || value > INT32_MAX)
        return false;
    *ret = (int)value;
    return true;
}

/* Reads 12, 12.5, 1.25e-05. The part before the point has at most 18 digits. Decimals after the 18th do not change the
 * double. */
bool fa2i_flat_real(const fa2i_flat *object, const char *name, double *ret)
{
    const fa2i_flat_member *m = find(object, name);
    uint64_t whole = 0, part = 0, power = 0;
    size_t decimals = 0;
    bool minus = false;
    if (m == NULL || m->is_text)
        return false;
    cursor c = {m->value, m->value + m->value_bytes};
    const size_t digits = read_digits(&c, &whole);
    if (digits == 0 || digits > DIGITS_MAX)
        return false;
    if (take(&c, '.') && (decimals = read_digits(&c, &part)) == 0)
        return false;
    if (take(&c, 'e') || take(&c, 'E')) {
        minus = take(&c, '-');
        (void)(minus || take(&c, '+'));
        if (read_digits(&c, &power) == 0 || power > POWER_MAX)
            return false;
    }
    if (c.at != c.end)
        return false;
    decimals = decimals < DIGITS_MAX ? decimals : DIGITS_MAX;
    const double value = (double)whole + (double)part / pow(10, (double)decimals);
    *ret = minus ? value / pow(10, (double)power) : value * pow(10, (double)power);
    return true;
}

bool fa2i_flat_text(const fa2i_flat *object, const char *name, char *out, size_t out_bytes)
{
    const fa2i_flat_member *m = find(object, name);
    size_t length = 0;
    if (m == NULL || !m->is_text || m->value_bytes >= out_bytes)
        return false;
    for (size_t i = 0; i < m->value_bytes; i++, length++) {
        if (m->value[i] == '\\' && strchr("\"\\/", m->value[++i]) == NULL)
            return false;
        out[length] = m->value[i];
    }
    out[length] = '\0';
    return true;
}
