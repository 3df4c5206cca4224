/*
 * The phases of `fa2-tune tune`, over one state: plan, compile, verify, time, report.
 *
 * Each distinct variant of all problems is one fa2i_tune_kernel. Problems refer to it by index. So a kernel is compiled
 * and verified once, however many problems want it. The index is also its id in the worker process.
 *
 * A later run finds in the database:
 * - the kernels with their outcomes,
 * - the verifications per device,
 * - the measurements per problem. Settled measurements are final.
 * A problem is settled when it has a measured winner and all its candidates are settled. Only this process writes to
 * the database.
 *
 * Errors. A failing kernel is a result. A problem that cannot be measured fails alone (FA2I_PROBLEM_FAILED, with a
 * message). A status means that the run cannot go on. A failure that may be the machine's fault (no memory, a signal, a
 * driver that is too old) is never stored against a kernel. Not thread-safe.
 */
#ifndef FA2I_TUNE_H
#define FA2I_TUNE_H

#include "cache/cache.h"
#include "runtime/cuda/compile.h"
#include "runtime/lua/generator.h"
#include "tuner/commands/commands.h"
#include "tuner/report/progress.h"
#include "tuner/judge/verify.h"
#include "tuner/search/prospect.h"
#include "tuner/search/text_index.h"
#include "tuner/worker/turn.h"
#include "tuner/worker/worker.h"

typedef struct fa2i_tune_kernel {
    fa2i_kernel kernel; /* owned; has its image once a problem needs it */
    bool needed;        /* a problem that is not settled wants it */
    bool staged;        /* a problem that was taken into a stage wants it */
    bool known;         /* compiled, or found in the database: kernel.outcome is valid */
    bool verified;      /* verification is valid */
    bool unsettled;     /* verification is a hang that may be slowness. It counts in this run and is not stored */
    bool noted;         /* not known, and the database has a record that it was left out */
    bool refuted;       /* another card found it wrong: verification holds that verdict, and known is set when it is
                         * staged */
    int64_t withheld;   /* id of the problem whose new winner is stored together with this verification
                         * (fa2i_timing.whole). 0: nothing is withheld */
    fa2i_verification verification;
} fa2i_tune_kernel;

typedef enum fa2i_problem_state {
    FA2I_PROBLEM_OPEN,     /* to be measured; at the end of the run: not reached */
    FA2I_PROBLEM_SETTLED,  /* measured by an earlier run */
    FA2I_PROBLEM_MEASURED, /* measured by this run */
    FA2I_PROBLEM_UNSERVED, /* no family serves it on this SM */
    FA2I_PROBLEM_FAILED
} fa2i_problem_state;

typedef struct fa2i_tune_problem {
    fa2_problem problem;
    fa2i_problem_state state;
    int64_t id;
    size_t rank;              /* index in options.shapes */
    double calls;             /* number of calls that a program makes; 1 if it is not known */
    double model_us;          /* of the cheapest candidate */
    double worth_us;          /* time that tuning is expected to save, over all calls */
    double calls_us;          /* time that all calls are expected to take */
    double about_s;           /* set by fa2i_tune_estimate: its time, without work that earlier problems do */
    bool fits;                /* it fits into the budget, after the problems before it */
    size_t *candidates;       /* kernel indexes, cheapest first by the cost model; owned */
    fa2i_prospect *prospects; /* of each candidate, set by fa2i_tune_judge; owned */
    size_t count;
    bool staged;       /* it was taken into a stage */
    bool all_wanted;   /* none of the candidates that were kept could run, so all are wanted */
    char message[512]; /* why it is UNSERVED or FAILED */
    /* SETTLED and MEASURED: */
    fa2i_winner winner;
    char variant[FA2I_VARIANT_CHARS];
    bool complete;       /* all rounds were run */
    bool lost;           /* SETTLED, but the winner's code is missing and must be compiled again */
    size_t winner_place; /* if lost: index of the winner's kernel */
} fa2i_tune_problem;

typedef enum fa2i_phase {
    FA2I_PHASE_PLAN,
    FA2I_PHASE_COMPILE,
    FA2I_PHASE_VERIFY,
    FA2I_PHASE_TIME,
    FA2I_PHASE_COUNT
} fa2i_phase;

typedef struct fa2i_tune {
    fa2i_options options;
    const volatile sig_atomic_t *stop;  /* set when the user stops the run */
    const volatile sig_atomic_t *spent; /* set when the budget is used up, or the user stops */
    fa2i_cache *cache;
    fa2i_generator *generator;
    bool absent; /* the database file did not exist. It is opened empty and gets a file when it is needed */
    fa2i_worker *worker; /* NULL until something has to run on the GPU */
    fa2i_card card;
    size_t memory_bytes; /* of the device */
    fa2i_target target;
    bool modelled; /* the device is software: its times are modelled */
    bool compiles; /* NVRTC is here; if not, target is the one of stored kernels */
    unsigned char uuid[16]; /* of the device */
    bool has_uuid;
    fa2i_turn turn, launches; /* tune_share.c */
    bool shared;              /* another tuner was seen on the device */
    bool beside;              /* another tuner works on problems of the same database */
    int driver;
    int threads; /* for compiling and for references */
    int64_t device, session;
    fa2i_tune_kernel *kernels;
    size_t kernel_count, kernel_capacity;
    fa2i_text_index places;      /* finds the index in kernels by the text of the variant */
    fa2i_refutation *refutations; /* by other cards; owned */
    size_t refutation_count;
    fa2i_tune_problem *problems; /* in the order of options.shapes, or by what tuning them is worth */
    size_t problem_count;
    fa2i_progress progress;
    double started_s;
    double phase_s[FA2I_PHASE_COUNT];
    /* The work that was done, counted in kernels. outcomes also counts needed kernels that earlier runs compiled. */
    size_t compiled, reused, verified;
    size_t spared, uncompiled; /* measurements left out as hopeless; kernels among them that were not compiled */
    size_t early;              /* searches that ended before all rounds */
    size_t mended;             /* problems whose winner got its code again */
    size_t by_others;          /* problems that another tuner measured meanwhile */
    size_t timed, failed; /* per problem: contenders, and contenders that failed while being timed */
    size_t outcomes[FA2I_OUTCOME_COUNT];
} fa2i_tune;

/* Lists candidates and keys of all problems, finds out which problems are settled, and teaches the estimates what the
 * database knows. Then it orders the others (fa2i_tune_order). Returns FA2_E_NO_NVRTC if there is no NVRTC and a wanted
 * kernel has no code. */
fa2_status fa2i_tune_plan(fa2i_tune *tune);

/* Finds the ids of open problems, and stores those that are not known. With --dry-run their id is -1. */
fa2_status fa2i_tune_find_ids(fa2i_tune *tune);

/* Sets *ret_dead if the database says that every candidate fails on this device. Then the problem's message says why,
 * and how to let the candidates be tried again. */
fa2_status fa2i_tune_find_dead(const fa2i_tune *tune, fa2i_tune_problem *problem, bool *ret_dead);

/* Loads what other cards found wrong. No call uses such kernels, so they count as failed here, too. Call it once, after
 * all kernels are listed. */
fa2_status fa2i_tune_find_refuted(fa2i_tune *tune);
bool fa2i_tune_is_refuted(const fa2i_tune *tune, const fa2i_key *key);

/* Teaches the estimates what the database measured. */
fa2_status fa2i_tune_learn_stored(fa2i_tune *tune);

/* Teaches the estimates new times: us[i] is the time of kernels[i] (an index) on the problem. */
fa2_status fa2i_tune_learn(fa2i_tune *tune, const fa2_problem *problem, const size_t *kernels,
                           const double *us, size_t count);

/* Estimates the times of an open problem's candidates, marks the hopeless ones, and computes what tuning the problem is
 * worth. The default and the winner so far are never hopeless. With --force or --all no candidate is. */
fa2_status fa2i_tune_judge(fa2i_tune *tune, fa2i_tune_problem *problem);

/* Says whether a kernel won the problem in an earlier run. */
bool fa2i_tune_is_winner(const fa2i_tune *tune, const fa2i_tune_problem *problem, size_t kernel);

/* Below this, the order and the output treat the gain as nothing. */
#define FA2I_TUNE_WORTH_US 0.05

/* Judges the problems that are not staged yet. With a budget, or if calls are known, it sorts them: the ones with the
 * most to save come first. Problems with nothing to save follow, longest total time first. */
fa2_status fa2i_tune_order(fa2i_tune *tune);

/* Says whether a budget or calls decide the order. If not, problems come as they were given. */
bool fa2i_tune_is_ordered(const fa2i_tune *tune);

/* Orders the problems, and takes the next ones and the kernels that they want. *ret_any: there are any. */
fa2_status fa2i_tune_next_stage(fa2i_tune *tune, bool *ret_any);

/* Marks the kernels that the open problems want. */
void fa2i_tune_find_needed(fa2i_tune *tune);

/* Looks in the database whether another tuner has settled an open problem meanwhile. If so, it becomes SETTLED and is
 * counted. */
fa2_status fa2i_tune_look_again(fa2i_tune *tune, fa2i_tune_problem *problem);

/* Claims a piece of work for this process: "verify" a class, or "measure" a problem. Returns false if another process
 * has it. wait: waits until that one is done, and returns false only if the budget ends before. */
bool fa2i_tune_claim(const fa2i_tune *tune, const char *what, const fa2_problem *problem,
                     bool wait);
void fa2i_tune_unclaim(const fa2i_tune *tune, const char *what, const fa2_problem *problem);

/* Waits until no other tuner has the device, and tells the user so. Does nothing with --share. */
void fa2i_tune_begin_turn(fa2i_tune *tune);

/* Call these around launches that are timed: no other tuner launches in between. */
void fa2i_tune_begin_launches(fa2i_tune *tune);
void fa2i_tune_end_launches(fa2i_tune *tune);

/* Says whether a kernel can run on this problem. It must have code, and must have passed its verification or not have
 * been verified yet. It must not spill, unless all candidates of the problem spill that are not refuted. */
bool fa2i_tune_usable(const fa2i_tune *tune, const fa2i_tune_problem *problem, size_t kernel);

/* Reads a kernel from the database, with its code unless it never had any. *ret_found: it needs no compiling, and the
 * caller owns *ret_kernel (fa2i_kernel_done). */
fa2_status fa2i_tune_find_stored(const fa2i_tune *tune, const fa2i_tune_kernel *of,
                                 fa2i_kernel *ret_kernel, bool *ret_found);

/* Makes every kernel of the stage known: takes it from the database, or compiles and stores it. */
fa2_status fa2i_tune_compile(fa2i_tune *tune);

/* Compiles the lost code of settled problems again. If the winner does not compile, the problem becomes OPEN. If the
 * budget ends before, the problem stays SETTLED and lost. */
fa2_status fa2i_tune_mend(fa2i_tune *tune);

/* Verifies every kernel of the stage that can run, once per device, and stores the verdicts. If the budget ends within
 * a class of problems, a later run verifies its passing kernels again. */
fa2_status fa2i_tune_verify(fa2i_tune *tune);

/* Makes the record of a kernel for the database. A kernel that was never compiled gets the target and the generator
 * with which it would be compiled. The record borrows what the kernel owns. */
void fa2i_tune_record(const fa2i_tune *tune, const fa2i_tune_kernel *k, fa2i_kernel *ret_record);

/* Like fa2i_cache_put_verification and fa2i_cache_put_results. If fa2-tune forget dropped kernels meanwhile, they store
 * these again first, and say so. */
fa2_status fa2i_tune_put_verdict(fa2i_tune *tune, const fa2i_tune_kernel *k, const fa2i_verification *verdict);
fa2_status fa2i_tune_put_results(fa2i_tune *tune, const fa2i_results_of *of, const fa2i_result *results, size_t count,
                                 const fa2i_winner *winner, size_t *ret_noted);

/* The seed of test data and of the order of samples: equal runs take equal samples. */
enum { FA2I_TUNE_SEED = 0xfa2 };

/* Returns the tensors on which a problem is measured. */
fa2i_case fa2i_tune_case(const fa2_problem *problem);

/* Measures the open problems of the stage, and stores measurements and winners. Problems that another tuner is
 * measuring stay open. If another tuner takes part, large problems are not left for the end. Large means more than 1 /
 * FA2I_TUNE_LARGE of the work that is left in the stage. */
enum { FA2I_TUNE_LARGE = 8 };
fa2_status fa2i_tune_time(fa2i_tune *tune);

/* Does the same for the problems that another tuner was measuring, and waits for it. */
fa2_status fa2i_tune_time_rest(fa2i_tune *tune);

/* Starts the worker unless it runs already. */
fa2_status fa2i_tune_worker(fa2i_tune *tune);

/* An estimate of a tuning: how many kernels it would compile and verify, how many problems it would measure, and about
 * how long it would take on a real card. A software device may take any time. */
typedef struct fa2i_tune_work {
    size_t compile, verify, measure;
    double seconds;
    size_t fit; /* problems to measure that fit the budget; without a budget, all of them */
} fa2i_tune_work;

/* Call it before anything is staged. Nothing can be staged afterwards. */
fa2_status fa2i_tune_estimate(fa2i_tune *tune, fa2i_tune_work *ret_work);
void fa2i_tune_print_work(const fa2i_tune *tune, const fa2i_tune_work *work);

bool fa2i_tune_stopped(const fa2i_tune *tune); /* by the user */
bool fa2i_tune_spent(const fa2i_tune *tune);   /* the budget is used up, or the user stopped */

/* Prints what the run is about to do, the result of one problem, and all results. */
void fa2i_tune_print_start(const fa2i_tune *tune);
void fa2i_tune_print_planned(fa2i_tune *tune); /* settled problems, and problems that cannot be tuned */
void fa2i_tune_print_problem(fa2i_tune *tune, const fa2i_tune_problem *problem);
void fa2i_tune_print_summary(const fa2i_tune *tune);
void fa2i_tune_print_json(const fa2i_tune *tune);

#endif
