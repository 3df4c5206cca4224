/*
 * Counts how often each problem was called. The number of problems is limited.
 *
 * Not thread-safe. Ownership: fa2i_call_table_done frees what a table holds.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "fa2.h"

enum { FA2I_CALL_TABLE_MOST = 32768 /* problems */ };

typedef struct fa2i_called {
    fa2_problem problem;
    uint64_t calls; /* 0: the slot is empty */
} fa2i_called;

typedef struct fa2i_call_table {
    fa2i_called *places;
    size_t place_count, count;
} fa2i_call_table; /* zeroed: empty */

/* Adds to the count of a problem. Returns false if the problem is new and there is no room or no memory for it. */
bool fa2i_call_table_add(fa2i_call_table *table, const fa2_problem *problem, uint64_t calls);

void fa2i_call_table_done(fa2i_call_table *table); /* zeroed objects are fine */
