/*
 * From a problem to a plan: choose a tuned kernel from the database, or else take the cost model's
 * first choice and compile it; load it; write down why.
 *
 * Threads. One at a time: the caller holds a lock, and the log is called with that lock held.
 * Errors. What belongs to one kernel (a damaged image, a driver that refuses it, a compiler error)
 * is told through the log, and the next best kernel is taken; it becomes the call's error only when
 * nothing is left. What belongs to the process or the device (memory, a broken context, no NVRTC)
 * is returned at once. After an error the planner can be used on.
 */
#ifndef FA2I_PLANNER_H
#define FA2I_PLANNER_H

#include "runtime/cuda/compile.h"
#include "runtime/lua/generator.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/winners.h"

/* Classes of problems that may share a kernel: head_dim / 8 (1 ... 32), dtype, causal. */
enum { FA2I_PLANNER_CLASSES = 33 * 2 * 2 };

typedef struct fa2i_default fa2i_default;

/* What was found out for earlier problems of a class, so that another shape of it costs no SQLite
 * and no Lua. */
typedef struct fa2i_class {
    fa2i_winners winners;
    fa2i_default *defaults; /* answers of the default rule; owned by planner_default.c */
    bool told_default;      /* the log knows that nothing is tuned for the class */
    bool told_unreadable;   /* and that the winners cannot be read */
} fa2i_class;

typedef struct fa2i_planner {
    const fa2i_device *device; /* borrowed */
    int arch;                  /* fa2_config.arch; 0: the device's own */
    fa2i_log_fn log;           /* may be NULL */
    void *log_user;
    char *database;            /* path, for messages; NULL: none is used */
    fa2i_cache *cache;         /* NULL: there is none, or none was used */
    bool read_only;            /* nothing is written to cache */
    fa2i_generator *generator; /* created when a kernel must be compiled */
    fa2i_target target;        /* what is compiled for; "" until then */
    fa2i_kernels kernels;
    fa2i_class classes[FA2I_PLANNER_CLASSES]; /* see fa2i_planner_class */
} fa2i_planner;

/* Open the database that config asks for; config and its strings are copied. A database that cannot
 * be written is used read-only, one that is not there is no error; FA2_E_DATABASE: it is there and
 * cannot be used. */
fa2_status fa2i_planner_init(fa2i_planner *planner, const fa2i_device *device,
                             const fa2_config *config);

void fa2i_planner_done(fa2i_planner *planner); /* zeroed objects are fine */

/* A plan for a valid problem. It borrows its kernel from the planner. */
fa2_status fa2i_planner_make(fa2i_planner *planner, const fa2_problem *problem,
                             fa2i_plan *ret_plan);

/* Say why a plan of this planner is as it is (explain.c). Needs no lock: it reads what does not
 * change. */
void fa2i_planner_explain(const fa2i_planner *planner, const fa2i_plan *plan,
                          fa2_explanation *ret_explanation);

/* ---- between the planner's own files ---- */

/* The class of a valid problem; belongs to the planner. */
fa2i_class *fa2i_planner_class(fa2i_planner *planner, const fa2_problem *problem);

/* The default rule (planner_default.c): fill in slot, decision and tried. plan->problem is set. */
fa2_status fa2i_planner_pick_default(fa2i_planner *planner, fa2i_plan *plan);
void fa2i_planner_forget_defaults(fa2i_class *of);

/* Tell the log, once, that a kernel ("a tuned kernel") is passed over for the reason in the last
 * message. */
void fa2i_planner_pass_over(const fa2i_planner *planner, fa2i_slot *slot, const char *what);

/* Send a sentence to the log, if there is one. */
void fa2i_planner_log(const fa2i_planner *planner, const char *format, ...) FA2I_PRINTF(2, 3);

#endif
