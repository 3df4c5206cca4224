/*
 * How: a value is checked by putting it into a problem that is otherwise valid, so that the limits
 * are written once, in fa2i_problem_check.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/status.h"
#include "tuner/input/problem_fields.h"

enum { VALUE_BYTES = 48 };

const fa2i_problem_field fa2i_problem_fields[FA2I_FIELD_COUNT] = {
    [FA2I_FIELD_BATCH] = {"batch", "B"},         [FA2I_FIELD_HEADS_Q] = {"heads_q", "Hq"},
    [FA2I_FIELD_HEADS_KV] = {"heads_kv", "Hkv"}, [FA2I_FIELD_SEQ_Q] = {"seq_q", "Sq"},
    [FA2I_FIELD_SEQ_K] = {"seq_k", "Sk"},        [FA2I_FIELD_HEAD_DIM] = {"head_dim", "D"},
    [FA2I_FIELD_DTYPE] = {"dtype", "dtype"},     [FA2I_FIELD_CAUSAL] = {"causal", "causal"},
};

static int32_t *field_of(fa2_problem *problem, int field)
{
    switch (field) {
    case FA2I_FIELD_BATCH:
        return &problem->batch;
    case FA2I_FIELD_HEADS_Q:
        return &problem->heads_q;
    case FA2I_FIELD_HEADS_KV:
        return &problem->heads_kv;
    case FA2I_FIELD_SEQ_Q:
        return &problem->seq_q;
    case FA2I_FIELD_SEQ_K:
        return &problem->seq_k;
    case FA2I_FIELD_HEAD_DIM:
        return &problem->head_dim;
    default:
        return &problem->causal;
    }
}

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

/* The value as a string, for parsing and for messages: bytes that are not printable become '?'. */
static fa2_status copy_value(const char *name, fa2i_span text, char out[VALUE_BYTES])
{
    if (text.bytes >= VALUE_BYTES)
        return fa2i_fail(FA2_E_INVALID, "%s is a text of %zu characters; at most %d are read", name,
                         text.bytes, VALUE_BYTES - 1);
    for (size_t i = 0; i < text.bytes; i++)
        out[i] = isprint((unsigned char)text.data[i]) ? text.data[i] : '?';
    out[text.bytes] = '\0';
    if (strchr(out, '"') != NULL)
        return fa2i_fail(FA2_E_INVALID, "%s is %s; quotes are not supported, write the bare value",
                         name, out);
    return FA2_OK;
}

static fa2_status parse_number(const char *name, const char *text, int32_t *ret_number)
{
    const char *digits = text[0] == '-' ? text + 1 : text;
    if (*digits == '\0' || strspn(digits, "0123456789") != strlen(digits))
        return fa2i_fail(FA2_E_INVALID, "%s is \"%s\"; it must be a whole number", name, text);
    errno = 0;
    const long long number = strtoll(text, NULL, 10);
    if (errno == ERANGE || number > INT32_MAX || number < INT32_MIN)
        return fa2i_fail(FA2_E_INVALID, "%s is %s; its limit is %d", name, text, (int)INT32_MAX);
    *ret_number = (int32_t)number;
    return FA2_OK;
}

fa2_status fa2i_problem_field_parse(int field, fa2i_span text, fa2_problem *problem)
{
    const char *name = fa2i_problem_fields[field].column;
    char value[VALUE_BYTES];
    fa2_status st = copy_value(name, text, value);
    if (st != FA2_OK)
        return st;
    if (field == FA2I_FIELD_DTYPE) {
        if (fa2i_dtype_parse(value, &problem->dtype))
            return FA2_OK;
        return fa2i_fail(FA2_E_INVALID, "%s is \"%s\"; it must be fp16 or bf16", name, value);
    }
    int32_t number = 0;
    st = parse_number(name, value, &number);
    if (st != FA2_OK)
        return st;
    fa2_problem probe = {
        .batch = 1, .heads_q = 1, .heads_kv = 1, .seq_q = 1, .seq_k = 1, .head_dim = 8};
    *field_of(&probe, field) = number;
    if (field == FA2I_FIELD_HEADS_KV && number > 0)
        probe.heads_q = number; /* by itself, any count of kv heads serves as many query heads */
    *field_of(problem, field) = number;
    return fa2i_problem_check(&probe);
}
