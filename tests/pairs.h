/*
 * Sets of a problem's settings. They cover all pairs: every two settings that may occur together are together in a set.
 * For every two settings, there is also a set with the first and without the second.
 *
 * A setting is a field of the problem with a value other than "off": softcap=1, a bias in bf16, append with rotary
 * embedding by halves. Settings of one field exclude each other. A list holds the settings of an operation. A set is a
 * bit mask of settings of a list.
 *
 * Pure functions; the sets are always the same.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fa2.h"

enum { PAIRS_SETTINGS_MAX = 64, PAIRS_SETS_MAX = 128, PAIRS_TURNS = 3 };

/* All settings of forward; all of backward; and the settings that families with SM 9.0's own instructions support:
 * forward, backward, and latent attention, where V lies in K and D is above 256. */
typedef enum pairs_list {
    PAIRS_FORWARD,
    PAIRS_BACKWARD,
    PAIRS_FORWARD_SM90,
    PAIRS_BACKWARD_SM90,
    PAIRS_LATENT_SM90,
    PAIRS_LISTS
} pairs_list;

/* Returns the number of bits that are set. */
static inline int pairs_ones(uint64_t set)
{
    int count = 0;
    for (; set != 0; set &= set - 1)
        count++;
    return count;
}

/* The number of settings in a list, and the name of one. */
int pairs_count(pairs_list list);
const char *pairs_name(pairs_list list, int setting);

/* Returns true if both are values of one field. */
bool pairs_exclude(pairs_list list, int a, int b);

/* pairs_of returns one setting, or two of different fields, with the settings that they require. pairs_allowed returns
 * true if a problem may have all settings of a set. */
uint64_t pairs_of(pairs_list list, int a, int b);
bool pairs_allowed(pairs_list list, uint64_t set);

/* Stores the sets of a list. Returns their number. */
size_t pairs_sets(pairs_list list, uint64_t sets[PAIRS_SETS_MAX]);

/* Returns a problem with these settings, including sizes of windows and pages. turn chooses D, of PAIRS_TURNS values.
 * */
fa2_problem pairs_problem(pairs_list list, fa2_dtype dtype, uint64_t set, size_t turn);
