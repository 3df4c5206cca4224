/*
 * The fields of a problem as people write them: column names of shape files, keys of --shape,
 * values. Pure; errors are FA2_E_INVALID naming field, value and what is accepted.
 */
#ifndef FA2I_PROBLEM_FIELDS_H
#define FA2I_PROBLEM_FIELDS_H

#include "runtime/base/record.h"

/* A piece of a text. Borrowed; not terminated. */
typedef struct fa2i_span {
    const char *data;
    size_t bytes;
} fa2i_span;

fa2i_span fa2i_span_trim(fa2i_span text); /* without white space at both ends */
bool fa2i_span_is(fa2i_span text, const char *word);

enum {
    FA2I_FIELD_BATCH,
    FA2I_FIELD_HEADS_Q,
    FA2I_FIELD_HEADS_KV,
    FA2I_FIELD_SEQ_Q,
    FA2I_FIELD_SEQ_K,
    FA2I_FIELD_HEAD_DIM,
    FA2I_FIELD_DTYPE,
    FA2I_FIELD_CAUSAL,
    FA2I_FIELD_COUNT
};

typedef struct fa2i_problem_field {
    const char *column; /* "seq_q" */
    const char *key;    /* "Sq" */
} fa2i_problem_field;

extern const fa2i_problem_field fa2i_problem_fields[FA2I_FIELD_COUNT];

/* Read one value and check it by itself; what relates two fields (fa2i_problem_check) is left to
 * the caller, who knows when all are there. */
fa2_status fa2i_problem_field_parse(int field, fa2i_span text, fa2_problem *problem);

#endif
