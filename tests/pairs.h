/*
 * Sets of settings of a problem such that every two that go together are in one of them, and each is in one without
 * each other.
 *
 * A setting is a field of the problem at a value that says something: softcap=1, a bias in bf16, append with
 * rotary embedding by halves. Those of one field exclude each other. A list has settings of an operation; a set is a
 * bit mask of settings of a list.
 *
 * Pure; the same sets each time.
 */
#ifndef FA2_TESTS_PAIRS_H
#define FA2_TESTS_PAIRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fa2.h"

enum { PAIRS_SETTINGS_MAX = 64, PAIRS_SETS_MAX = 128, PAIRS_TURNS = 3 };

/* All settings of forward, and of backward; and those that families of SM 9.0's own instructions serve: forward's,
 * backward's, and those of latent attention, where V lies in K, D above 256. */
typedef enum pairs_list {
    PAIRS_FORWARD,
    PAIRS_BACKWARD,
    PAIRS_FORWARD_SM90,
    PAIRS_BACKWARD_SM90,
    PAIRS_LATENT_SM90,
    PAIRS_LISTS
} pairs_list;

/* How many bits are set. */
static inline int pairs_ones(uint64_t set)
{
    int count = 0;
    for (; set != 0; set &= set - 1)
        count++;
    return count;
}

/* How many settings a list has, and what one is called. */
int pairs_count(pairs_list list);
const char *pairs_name(pairs_list list, int setting);

/* Whether they are values of one field. */
bool pairs_exclude(pairs_list list, int a, int b);

/* Two settings of different fields, or one, and what they bring. Whether a problem may have all of a set. */
uint64_t pairs_of(pairs_list list, int a, int b);
bool pairs_allowed(pairs_list list, uint64_t set);

/* The sets of a list. Returns how many. */
size_t pairs_sets(pairs_list list, uint64_t sets[PAIRS_SETS_MAX]);

/* The problem's KIND fields, and a window's and a page's size. turn: D is another one each turn, of PAIRS_TURNS. */
fa2_problem pairs_problem(pairs_list list, fa2_dtype dtype, uint64_t set, size_t turn);

#endif
