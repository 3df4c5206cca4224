/*
 * Every rule comes from problem.def: limits, words, and the meaning of a missing field. Some fields give others their
 * meaning (window for window_left). Such a field counts as 1 if one of the others is given without it. If it is an
 * enumeration, 1 would be a guess, and must be given. With it at 0, the others may have their default, which is read
 * as 0.
 *
 * Checks name fields as fa2.h and shape files do. For a user who typed keys, the names in a message are replaced by
 * keys, so that one check serves both.
 */
#include "tuner/input/problem_text.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/status.h"

enum { VALUE_BYTES = 48, WORDS_BYTES = 128 };

fa2i_span fa2i_span_trim(fa2i_span text)
{
    while (text.bytes > 0 && isspace((unsigned char)text.data[0])) {
        text.data++;
        text.bytes--;
    }
    while (text.bytes > 0 && isspace((unsigned char)text.data[text.bytes - 1]))
        text.bytes--;
    return text;
}

bool fa2i_span_is(fa2i_span text, const char *word)
{
    return text.bytes == strlen(word) && memcmp(text.data, word, text.bytes) == 0;
}

/* Copies the value as a string, for parsing and for messages. Bytes that are not printable become '?'. */
static fa2_status copy_value(const char *name, fa2i_span text, char out[VALUE_BYTES])
{
    if (text.bytes >= VALUE_BYTES)
        return fa2i_fail(FA2_E_INVALID, "%s is a text of %zu characters; at most %d are read", name, text.bytes,
                         VALUE_BYTES - 1);
    for (size_t i = 0; i < text.bytes; i++)
        out[i] = isprint((unsigned char)text.data[i]) ? text.data[i] : '?';
    out[text.bytes] = '\0';
    if (strchr(out, '"') != NULL)
        return fa2i_fail(FA2_E_INVALID, "%s is %s; quotes are not supported, write the bare value", name, out);
    return FA2_OK;
}

/* Parses a number, or a word for one. */
static fa2_status parse_number(int field, const char *text, int32_t *ret_number)
{
    const char *name = fa2i_fields[field].name, *digits = text[0] == '-' ? text + 1 : text;
    char accepted[FA2I_ACCEPTED_CHARS];
    if (fa2i_field_parse_word(field, text, ret_number))
        return FA2_OK;
    if (*digits == '\0' || strspn(digits, "0123456789") != strlen(digits))
        return fa2i_fail(FA2_E_INVALID, "%s is \"%s\"; it must be %s", name, text,
                         fa2i_field_accepted(field, accepted));
    errno = 0;
    const long long number = strtoll(text, NULL, 10);
    if (errno == ERANGE || number > INT32_MAX || number < INT32_MIN)
        return fa2i_fail(FA2_E_INVALID, "%s is %s; its limit is %d", name, text, (int)INT32_MAX);
    *ret_number = (int32_t)number;
    return FA2_OK;
}

/* Lists the words of an enumeration from value `from` on: "fp16 or bf16". Returns out. */
static const char *list_words(int field, int32_t from, char out[WORDS_BYTES])
{
    const fa2i_field *f = &fa2i_fields[field];
    size_t used = 0;
    for (int32_t i = from; i <= f->most && used < WORDS_BYTES; i++) {
        const char *between = i == from ? "" : i == f->most ? " or " : ", ";
        used += (size_t)snprintf(out + used, WORDS_BYTES - used, "%s%s", between, fa2i_field_word(field, i));
    }
    return out;
}

static fa2_status no_such_word(const fa2i_field *field, int id, const char *value)
{
    char words[WORDS_BYTES];
    return fa2i_fail(FA2_E_INVALID, "%s is \"%s\"; it must be %s", field->name, value,
                     list_words(id, field->least, words));
}

fa2_status fa2i_problem_text_read(fa2i_problem_text *text, int field, fa2i_span value)
{
    const fa2i_field *f = &fa2i_fields[field];
    char copy[VALUE_BYTES];
    int32_t number = 0;
    fa2_status st = copy_value(f->name, value, copy);
    if (st != FA2_OK)
        return st;
    if (f->type == FA2I_TYPE_INT)
        st = parse_number(field, copy, &number);
    else if (!fa2i_field_parse_word(field, copy, &number))
        st = no_such_word(f, field, copy);
    if (st == FA2_OK && (number != 0 || fa2i_fields[field].needs < 0))
        st = fa2i_field_check(field, number); /* 0 may be right if the field has no meaning */
    if (st != FA2_OK)
        return st;
    fa2i_field_set(&text->problem, field, number);
    text->given[field] = true;
    return FA2_OK;
}

/* Reports all missing fields: "Hq, Sq and D". */
static fa2_status is_missing(int field)
{
    char keys[64] = "";
    size_t used = 0;
    int left = 0;
    for (int i = 0; i < FA2I_FIELD_COUNT; i++)
        left += fa2i_fields[i].missing == FA2I_MISSING_REQUIRED;
    for (int i = 0; i < FA2I_FIELD_COUNT && used < sizeof keys; i++) {
        if (fa2i_fields[i].missing != FA2I_MISSING_REQUIRED)
            continue;
        left--;
        used += (size_t)snprintf(keys + used, sizeof keys - used, "%s%s", fa2i_fields[i].key,
                                 left > 1    ? ", "
                                 : left == 1 ? " and "
                                             : "");
    }
    return fa2i_fail(FA2_E_INVALID, "%s is missing; %s must be given", fa2i_fields[field].key, keys);
}

/* Fills in a field that was not given. Those before it have their values. */
static fa2_status fill(fa2_problem *problem, int field)
{
    const fa2i_field *f = &fa2i_fields[field];
    if (f->needs >= 0 && fa2i_field_get(problem, f->needs) == 0)
        return FA2_OK; /* the field has no meaning, and stays 0 */
    if (f->missing == FA2I_MISSING_REQUIRED)
        return is_missing(field);
    fa2i_field_set(problem, field, fa2i_field_missing_value(problem, field));
    return FA2_OK;
}

/* Brings a given field and the one that it needs together. */
static fa2_status ask_for_needed(fa2i_problem_text *text, int field)
{
    const fa2i_field *f = &fa2i_fields[field], *needed = &fa2i_fields[f->needs];
    char words[WORDS_BYTES], value[FA2I_VALUE_CHARS];
    const int32_t number = fa2i_field_get(&text->problem, field);
    if (text->given[f->needs]) {
        if (fa2i_field_get(&text->problem, f->needs) == 0 && number == fa2i_field_missing_value(&text->problem, field))
            fa2i_field_set(&text->problem, field, 0);
        return FA2_OK;
    }
    if (f->role == FA2I_ROLE_KIND && number == 0)
        return FA2_OK; /* the feature's absence asks for nothing */
    if (needed->type != FA2I_TYPE_INT)
        return fa2i_fail(FA2_E_INVALID, "%s is %s, and %s is not given; give %s, too: %s", f->name,
                         fa2i_field_text(&text->problem, field, value), needed->name, needed->name,
                         list_words(f->needs, 1, words));
    fa2i_field_set(&text->problem, f->needs, 1);
    text->given[f->needs] = true;
    return FA2_OK;
}

fa2_status fa2i_problem_text_finish(const fa2i_problem_text *text, fa2_problem *ret_problem, int *ret_field)
{
    fa2i_problem_text whole = *text;
    whole.problem.struct_bytes = sizeof whole.problem;
    for (int field = FA2I_FIELD_COUNT - 1; field >= 0; field--) { /* backwards, because a needed field may need another
                                                                   * one */
        fa2_status st = FA2_OK;
        *ret_field = field;
        if (whole.given[field] && fa2i_fields[field].needs >= 0)
            st = ask_for_needed(&whole, field);
        if (st != FA2_OK)
            return st;
    }
    *ret_field = -1;
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        const fa2_status st = whole.given[field] ? FA2_OK : fill(&whole.problem, field);
        if (st != FA2_OK)
            return st;
    }
    const fa2_status st = fa2i_problem_find_fault(&whole.problem, ret_field);
    if (st == FA2_OK)
        *ret_problem = whole.problem;
    return st;
}

/* ---- the words of a message ---- */

static bool is_of_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Returns the key of the field with this name, or the word itself. */
static fa2i_span key_of(fa2i_span word)
{
    for (int field = 0; field < FA2I_FIELD_COUNT; field++)
        if (fa2i_span_is(word, fa2i_fields[field].name))
            return (fa2i_span){fa2i_fields[field].key, strlen(fa2i_fields[field].key)};
    return word;
}

fa2_status fa2i_fail_in_keys(fa2_status status)
{
    char text[FA2I_MESSAGE_BYTES];
    size_t used = 0;
    bool quoted = false; /* quoted text stays as the user typed it */
    for (const char *at = fa2_last_message(); *at != '\0' && used < sizeof text - 1;) {
        fa2i_span word = {at, 1};
        while (is_of_name(at[0]) && is_of_name(at[word.bytes]))
            word.bytes++;
        at += word.bytes;
        quoted ^= word.data[0] == '"';
        if (!quoted)
            word = key_of(word);
        for (size_t i = 0; i < word.bytes && used < sizeof text - 1; i++)
            text[used++] = word.data[i];
    }
    text[used] = '\0';
    return fa2i_fail(status, "%s", text);
}
