/*
 * Which kernel for this problem on this card: the winner of this very problem, else the best estimate
 * (fa2i_generator_rank). Pure; no CUDA, no database: what it takes to use a kernel is the caller's, who is
 * the runtime or `fa2-tune explain`, so that both decide alike.
 */
#ifndef FA2I_CHOOSE_H
#define FA2I_CHOOSE_H

#include "cache/cache.h"
#include "runtime/lua/generator.h"

/* What a choice rests on. */
typedef struct fa2i_decision {
    fa2_rule rule;
    fa2_problem problem; /* where it was measured or ranked; by default, as the model saw it */
    char device[128];    /* the card of that */
    bool real;           /* that card is a device's; else it stands for an SM */
    bool measured;       /* else modelled */
    double median_us;    /* the kernel's time there, if measured; else 0 */
    double distance;     /* from there; 0 for exact */
    double estimate_us;  /* of its time on the problem; for exact what was measured */
    bool corrected;      /* by the model, which measurements of other classes correct */
    fa2_problem kin;     /* if corrected: the nearest of those */
    bool replaces;       /* passed_over is the problem's winner */
    size_t passed_count; /* kernels that come before this one, and cannot be used */
    /* The first of them; "" also where its record is unreadable. */
    char passed_over[FA2I_VARIANT_CHARS];
    char why[FA2I_WHY_CHARS]; /* it cannot be used */
} fa2i_decision;

/* This card's winner for this very problem among choices (fa2i_cache_choices); NULL: there is none. A
 * choice is this card's when name, SM, SM count, shared memory and L2 agree, and it was a device. One without a fault
 * comes first. */
const fa2i_choice *fa2i_choose_exact(const fa2i_choice *choices, size_t count,
                                     const fa2i_card *card, const fa2_problem *problem);

/* What a choice so made rests on. */
void fa2i_decide_exact(const fa2i_choice *choice, fa2i_decision *ret_decision);

/* What came of trying to use a kernel. */
typedef struct fa2i_trial {
    bool usable;
    bool foreseen; /* that it is not was known before it was compiled */
    int spills;    /* of one that is: fa2i_kernel_spills */
} fa2i_trial;

/* Try an option. A status that is not FA2_OK ends the choice. */
typedef fa2_status (*fa2i_try_fn)(void *user, const fa2i_option *option, fa2i_trial *ret_trial);

/* The first option that can be used and does not spill, or was measured; else the one that spills
 * least. FA2I_COMPILE_MOST options at most are tried that must be compiled. *ret_chosen: its index, count if
 * none can be used; *ret_tried (may be NULL): how many were tried. */
enum { FA2I_COMPILE_MOST = 4 /* each takes about a second, and a caller is waiting */ };
fa2_status fa2i_choose_option(const fa2i_option *options, size_t count, fa2i_try_fn try_option,
                              void *user, size_t *ret_chosen, size_t *ret_tried);

/* What options[chosen] rests on. asked: the problem for which they were ranked, with this evidence, on
 * this card. */
void fa2i_decide_option(const fa2i_option *options, size_t chosen, const fa2i_evidence *evidence,
                        const fa2_problem *asked, const fa2i_card *card,
                        fa2i_decision *ret_decision);

/* Let a decision that was made for the end of a step be that of one of its problems. */
void fa2i_decide_for_other(const fa2_problem *problem, fa2i_decision *decision);

/* Note that a kernel that comes before the chosen one cannot be used. The first is remembered, all are counted. */
void fa2i_decide_passed_over(const char *text, const char *why, fa2i_decision *decision);

/* Note that the problem's winner cannot be used, which is remembered before others. counted: it is one of those that
 * were noted. */
void fa2i_decide_replaces(const char *text, const char *why, bool counted, fa2i_decision *decision);

/* The kernel that comes next: of those that can be used, the first behind the chosen one. Whether it spills, and how
 * many would have to be compiled, is not weighed. */
typedef struct fa2i_runner_up {
    char text[FA2I_VARIANT_CHARS]; /* "": there is none, or it is not known */
    double us;                     /* its estimate */
    const char *but; /* why it is not taken where it is estimated to be faster; else NULL */
} fa2i_runner_up;

/* The next option behind the chosen one's text that can be used; of all, where that is none of them. */
fa2_status fa2i_choose_runner_up(const fa2i_option *options, size_t count,
                                 const fa2i_decision *decision, const char *chosen,
                                 fa2i_try_fn try_option, void *user, fa2i_runner_up *ret_runner_up);

#endif
