/*
 * The phases of `fa2-tune tune`, over one state: plan, compile, verify, time, report.
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
#pragma once

#include "runtime/lua/generator.h"
#include "tuner/input/shapes.h"
#include "tuner/judge/verify.h"
#include "tuner/report/progress.h"
#include "tuner/search/budget.h"
#include "tuner/search/findings.h"
#include "tuner/worker/gpu.h"
#include "tuner/worker/turn.h"
#include "tuner/worker/worker.h"

/* The user's request. Constant during a run. */
typedef struct fa2i_tune_request {
    const fa2i_shapes *shapes; /* the problems; borrowed */
    int device;                /* its number, for messages and for the worker */
    int threads;               /* for compiling and for references */
    bool force, all, share, dry_run, json;
} fa2i_tune_request;

/* A tuning: what it was asked and given (borrowed), what it works with, and what it found. */
typedef struct fa2i_tune {
    const fa2i_tune_request *request;
    const fa2i_budget *budget;
    const fa2i_gpu *gpu; /* the device */
    fa2i_cache *cache;
    fa2i_generator *generator;
    fa2i_worker *worker; /* NULL until something has to run on the GPU */
    fa2i_progress progress;
    fa2i_target target;       /* the device's; without NVRTC, the one of stored kernels */
    int64_t device, session;  /* ids in the database */
    fa2i_turn turn, launches; /* tune_share.c */
    bool shared;              /* another tuner was seen on the device */
    bool beside;              /* another tuner works on problems of the same database */
    fa2i_findings found;
} fa2i_tune;

/* Plans (fa2i_tune_plan), unless the user has stopped. */
fa2_status fa2i_tune_prepare(fa2i_tune *tune);

/* Compiles lost code, and then tunes the open problems until the budget is spent. */
fa2_status fa2i_tune_run(fa2i_tune *tune);

/* Ends the worker, and releases the database, the generator and what was found. */
void fa2i_tune_done(fa2i_tune *tune);

/* Lists candidates and keys of all problems, finds out which problems are settled, and teaches the estimates what the
 * database knows. Then it orders the others (fa2i_tune_order). Returns FA2_E_NO_NVRTC if there is no NVRTC and a wanted
 * kernel has no code. */
fa2_status fa2i_tune_plan(fa2i_tune *tune);

/* Finds the ids of open problems, and stores those that are not known. With --dry-run their id is -1. */
fa2_status fa2i_tune_find_ids(fa2i_tune *tune);

/* Sets *ret_dead if the database says that every candidate fails on this device. Then the problem's message says why,
 * and how to let the candidates be tried again. */
fa2_status fa2i_tune_find_dead(const fa2i_tune *tune, fa2i_tune_problem *problem, bool *ret_dead);

/* Teaches the estimates what the database measured. */
fa2_status fa2i_tune_learn_stored(const fa2i_tune *tune);

/* Teaches the estimates new times: us[i] is the time of kernels[i] (an index) on the problem. */
fa2_status fa2i_tune_learn(const fa2i_tune *tune, const fa2_problem *problem, const size_t *kernels, const double *us,
                           size_t count);

/* Estimates the times of an open problem's candidates, marks the hopeless ones, and computes what tuning the problem is
 * worth. The default and the winner so far are never hopeless. With --force or --all no candidate is. */
fa2_status fa2i_tune_judge(const fa2i_tune *tune, fa2i_tune_problem *problem);

/* Says whether a kernel won the problem in an earlier run. */
bool fa2i_tune_is_winner(const fa2i_tune *tune, const fa2i_tune_problem *problem, size_t kernel);

/* Below this, the order and the output treat the gain as nothing. */
#define FA2I_TUNE_WORTH_US 0.05

/* Judges the problems that are not staged yet. With a budget, or if calls are known, it sorts them: the ones with the
 * most to save come first. Problems with nothing to save follow, longest total time first. */
fa2_status fa2i_tune_order(fa2i_tune *tune);

/* Says whether a budget or calls decide the order. If not, problems come as they were given. */
bool fa2i_tune_is_ordered(const fa2i_tune_request *request, const fa2i_budget *budget);

/* Orders the problems, and takes the next ones and the kernels that they want. *ret_any: there are any. */
fa2_status fa2i_tune_next_stage(fa2i_tune *tune, bool *ret_any);

/* Looks in the database whether another tuner has settled an open problem meanwhile. If so, it becomes SETTLED and is
 * counted. */
fa2_status fa2i_tune_look_again(fa2i_tune *tune, fa2i_tune_problem *problem);

/* Claims a piece of work for this process: "verify" a class, or "measure" a problem. Returns false if another process
 * has it. wait: waits until that one is done, and returns false only if the budget ends before. */
bool fa2i_tune_claim(const fa2i_tune *tune, const char *what, const fa2_problem *problem, bool wait);
void fa2i_tune_unclaim(const fa2i_tune *tune, const char *what, const fa2_problem *problem);

/* Waits until no other tuner has the device, and tells the user so. Does nothing with --share. */
void fa2i_tune_begin_turn(fa2i_tune *tune);

/* Call these around launches that are timed: no other tuner launches in between. */
void fa2i_tune_begin_launches(fa2i_tune *tune);
void fa2i_tune_end_launches(fa2i_tune *tune);

/* Reads a kernel from the database, with its code unless it never had any. *ret_found: it needs no compiling, and the
 * caller owns *ret_kernel (fa2i_kernel_done). */
fa2_status fa2i_tune_find_stored(fa2i_cache *cache, const fa2i_tune_kernel *of, fa2i_kernel *ret_kernel,
                                 bool *ret_found);

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

/* Prints what the run is about to do, the result of one problem, and all results. */
void fa2i_tune_print_start(const fa2i_tune *tune);
void fa2i_tune_print_planned(fa2i_tune *tune); /* settled problems, and problems that cannot be tuned */
void fa2i_tune_print_problem(fa2i_tune *tune, const fa2i_tune_problem *problem);
void fa2i_tune_print_summary(const fa2i_tune *tune);
void fa2i_tune_print_json(const fa2i_tune *tune);
