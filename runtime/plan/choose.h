/*
 * Chooses the kernel for a problem on a card: the winner of exactly this problem, else the best estimate
 * (fa2i_generator_rank).
 *
 * Pure functions without CUDA or database. The caller supplies the way to use a kernel. The run time and `fa2-tune
 * explain` are the callers, so both decide alike.
 */
#pragma once

#include "cache/content/notes.h"
#include "runtime/lua/generator.h"

/* Returns this card's winner for exactly this problem among choices (fa2i_cache_choices), or NULL. A choice is this
 * card's if name, SM, SM count, shared memory and L2 agree and a device made it. A choice without a fault is
 * preferred. */
const fa2i_choice *fa2i_choose_exact(const fa2i_choice *choices, size_t count, const fa2i_card *card,
                                     const fa2_problem *problem);

/* Fills in the basis of such a choice. */
void fa2i_decide_exact(const fa2i_choice *choice, fa2i_decision *ret_decision);

/* The result of trying to use a kernel. */
typedef struct fa2i_trial {
    bool usable;
    bool predicted; /* it is unusable, and this was known before compiling */
    int spills;     /* if usable: fa2i_kernel_spills */
} fa2i_trial;

/* Tries an option. A status other than FA2_OK ends the choice. */
typedef fa2_status (*fa2i_try_fn)(void *user, const fa2i_option *option, fa2i_trial *ret_trial);

/* Chooses the first option that is usable, and that was measured or does not spill. Otherwise chooses the
 * usable one that spills least. Tries at most FA2I_COMPILE_MOST options that must be compiled. *ret_chosen is the
 * option's index, or count if none is usable. *ret_tried (may be NULL) is the number of options tried. */
enum { FA2I_COMPILE_MOST = 4 /* each takes about a second, and a caller is waiting */ };
fa2_status fa2i_choose_option(const fa2i_option *options, size_t count, fa2i_try_fn try_option, void *user,
                              size_t *ret_chosen, size_t *ret_tried);

/* Fills in the basis of choosing options[chosen]. asked is the problem for which the options were ranked, with this
 * evidence, on this card. */
void fa2i_decide_option(const fa2i_option *options, size_t chosen, const fa2i_evidence *evidence,
                        const fa2_problem *asked, const fa2i_card *card, fa2i_decision *ret_decision);

/* Adapts a decision that was made for the end of a step to another problem of the step. */
void fa2i_decide_for_other(const fa2_problem *problem, fa2i_decision *decision);

/* Notes that a kernel ranked before the chosen one cannot be used. The first is remembered; all are counted. */
void fa2i_decide_passed_over(const char *text, const char *why, fa2i_decision *decision);

/* Notes that the problem's winner cannot be used. It is remembered in preference to others. counted: it was already
 * counted. */
void fa2i_decide_replaces(const char *text, const char *why, bool counted, fa2i_decision *decision);

/* The next best kernel: the first usable one after the chosen one. Spills, and the number of kernels that would have to
 * be compiled, do not count here. */
typedef struct fa2i_runner_up {
    char text[FA2I_VARIANT_CHARS]; /* "" if no other is usable, or it is not known */
    double us;                     /* estimated time */
    const char *but;               /* why it is not taken although it is estimated to be faster; else NULL */
} fa2i_runner_up;

/* Finds the first usable option after the chosen text. If no option has that text, it considers all options. */
fa2_status fa2i_choose_runner_up(const fa2i_option *options, size_t count, const fa2i_decision *decision,
                                 const char *chosen, fa2i_try_fn try_option, void *user, fa2i_runner_up *ret_runner_up);
