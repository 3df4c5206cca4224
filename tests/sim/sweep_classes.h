/*
 * The classes of problems whose candidates a sweep runs.
 */
#pragma once

#include "runtime/base/record.h"
#include "runtime/base/status.h"

enum { SWEEP_CLASSES_MAX = 512 };

typedef enum sweep_sample {
    SWEEP_STEP,     /* every n-th candidate on all cards */
    SWEEP_ONE_CARD, /* candidates on one card each, in turn */
    SWEEP_EACH_CARD /* one or two for each card; a card without any is an error */
} sweep_sample;

/* (D, causal, features) with the dtype, as a problem. */
typedef struct sweep_class {
    fa2_problem problem;
    sweep_sample sample;
    int step;
    size_t turn;   /* of a set of features; the same set in another dtype has the next turn */
    bool own_only; /* tests instructions that only one card has, and only candidates with them */
} sweep_class;

typedef struct sweep_classes {
    sweep_class items[SWEEP_CLASSES_MAX];
    size_t count;
} sweep_classes;

/* Finds the classes. all: each set of features with each of several D. The caller has zeroed *classes. */
fa2_status sweep_classes_find(sweep_classes *classes, fa2_dtype dtype, bool all);
