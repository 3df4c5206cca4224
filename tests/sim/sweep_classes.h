/*
 * The classes of problems whose candidates a sweep runs.
 */
#ifndef FA2_SIM_SWEEP_CLASSES_H
#define FA2_SIM_SWEEP_CLASSES_H

#include "runtime/base/record.h"
#include "runtime/base/status.h"

enum { SWEEP_CLASSES_MAX = 512 };

/* (D, causal, features) of the dtype, as a problem. */
typedef struct sweep_class {
    fa2_problem problem;
    int step;      /* every so manieth candidate is run */
    bool one_card; /* those of one card, not of all */
} sweep_class;

typedef struct sweep_classes {
    sweep_class items[SWEEP_CLASSES_MAX];
    size_t count;
} sweep_classes;

/* all: each set of features with each D and mask. Classes are zeroed before. */
fa2_status sweep_classes_find(sweep_classes *classes, fa2_dtype dtype, bool all);

#endif
