/*
 * The fields of a problem as people write them: values of --shape and of shape files, for every field of problem.def,
 * and messages about them. Pure. Errors: FA2_E_INVALID names field, value and what is accepted.
 */
#pragma once

#include "runtime/base/problem.h"

/* A piece of a text. Borrowed; not terminated. */
typedef struct fa2i_span {
    const char *data;
    size_t bytes;
} fa2i_span;

fa2i_span fa2i_span_trim(fa2i_span text); /* removes white space at both ends */
bool fa2i_span_is(fa2i_span text, const char *word);

/* A problem that is being read. Zeroed is empty. */
typedef struct fa2i_problem_text {
    fa2_problem problem;
    bool given[FA2I_FIELD_COUNT];
} fa2i_problem_text;

/* Reads one value, and checks it by itself. */
fa2_status fa2i_problem_text_read(fa2i_problem_text *text, int field, fa2i_span value);

/* Fills in the fields that were not given, and checks the whole problem. FA2_E_INVALID names what is missing.
 * *ret_field: the field that the message is about, or -1. */
fa2_status fa2i_problem_text_finish(const fa2i_problem_text *text, fa2_problem *ret_problem, int *ret_field);

/* Replaces the names of fields in the present message by the keys of --shape, except in quotes. Returns status, which
 * is not FA2_OK. */
fa2_status fa2i_fail_in_keys(fa2_status status);
