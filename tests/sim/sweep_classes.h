/*
 * The classes of problems whose candidates a sweep runs.
 */
#ifndef FA2_SIM_SWEEP_CLASSES_H
#define FA2_SIM_SWEEP_CLASSES_H

#include "runtime/base/record.h"
#include "runtime/base/status.h"

enum { SWEEP_CLASSES_MAX = 512 };

typedef enum sweep_sample {
    SWEEP_STEP,     /* every n-th candidate of all cards */
    SWEEP_ONE_CARD, /* of one card, in turn */
    SWEEP_EACH_CARD /* one or two of each card; it is an error if there are none */
} sweep_sample;

/* (D, causal, features) of the dtype, as a problem. */
typedef struct sweep_class {
    fa2_problem problem;
    sweep_sample sample;
    int step;
    size_t turn;   /* of a set: of the same set in another dtype it is the next one */
    bool own_only; /* is for instructions that a card alone has, and is served by them */
} sweep_class;

typedef struct sweep_classes {
    sweep_class items[SWEEP_CLASSES_MAX];
    size_t count;
} sweep_classes;

/* all: each set of features with each of some D. Classes are zeroed before. */
fa2_status sweep_classes_find(sweep_classes *classes, fa2_dtype dtype, bool all);

#endif
