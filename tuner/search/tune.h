/*
 * The phases of `fa2-tune tune`, over one state: plan, compile, verify, time, report.
 *
 * Every distinct variant of all problems is one fa2i_tune_kernel; problems refer to them by index,
 * so a kernel is compiled and verified once however many problems want it. The index is also its id
 * in the worker process.
 *
 * What a later run finds in the database: kernels with their outcome, verifications per device, and
 * per problem measurements, of which the settled ones are final. A problem is settled when it has a
 * measured winner and all its candidates are settled. Only this process writes to the database.
 *
 * Errors. A failing kernel is a result, a problem that cannot be measured fails alone
 * (FA2I_PROBLEM_FAILED with a message); a status means that nothing can go on. What may be the
 * fault of the machine (no memory, a signal, a driver that is too old) is stored of no kernel. Not
 * thread-safe.
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
    fa2i_kernel kernel; /* owned; with its image once it is known to be needed */
    bool needed;        /* by a problem that is not settled */
    bool staged;        /* by one that was taken into a stage */
    bool known;         /* compiled, or found in the database: kernel.outcome counts */
    bool verified;      /* verification counts */
    bool unsettled;     /* verification is a hang that may be slowness; it counts in this run and is not stored */
    bool noted;         /* not known, and the database was told that it was left out */
    bool refuted;       /* by another card: verification counts when it is staged, and it is known then */
    int64_t withheld;   /* the id of the problem with whose new winner the database gets this verification
                         * (fa2i_timing.whole); 0: it has it */
    fa2i_verification verification;
} fa2i_tune_kernel;

typedef enum fa2i_problem_state {
    FA2I_PROBLEM_OPEN,     /* to be measured; at the end: not reached */
    FA2I_PROBLEM_SETTLED,  /* measured by an earlier run */
    FA2I_PROBLEM_MEASURED, /* by this run */
    FA2I_PROBLEM_UNSERVED, /* no family serves it on this SM */
    FA2I_PROBLEM_FAILED
} fa2i_problem_state;

typedef struct fa2i_tune_problem {
    fa2_problem problem;
    fa2i_problem_state state;
    int64_t id;
    size_t rank;              /* in options.shapes */
    double calls;             /* that a program makes; 1 where nothing is known */
    double model_us;          /* of the cheapest candidate */
    double worth_us;          /* that tuning it is expected to save, of all calls */
    double calls_us;          /* that all calls are expected to take */
    double about_s;           /* fa2i_tune_estimate: what it takes beside those before it */
    bool fits;                /* into the budget, behind those before it */
    size_t *candidates;       /* kernel indexes, cheapest first by the cost model; owned */
    fa2i_prospect *prospects; /* of each candidate, as of fa2i_tune_judge; owned */
    size_t count;
    bool staged;       /* its turn has come */
    bool all_wanted;   /* of what was not left out nothing could run */
    char message[512]; /* why it is UNSERVED or FAILED */
    /* SETTLED and MEASURED: */
    fa2i_winner winner;
    char variant[FA2I_VARIANT_CHARS];
    bool complete;       /* all rounds were run */
    bool lost;           /* SETTLED: but for the winner's code, which must be compiled again */
    size_t winner_place; /* of the lost: its kernel's index */
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
    const volatile sig_atomic_t *stop;  /* by the user */
    const volatile sig_atomic_t *spent; /* the budget; or stopped */
    fa2i_cache *cache;
    fa2i_generator *generator;
    bool absent; /* there was no such database: it is empty, and no file, until it is needed */
    fa2i_worker *worker; /* NULL until something has to run on the GPU */
    fa2i_card card;
    size_t memory_bytes; /* of the device */
    fa2i_target target;
    bool modelled; /* the device is software: its times are modelled */
    bool compiles; /* NVRTC is here; if not, target is that of stored kernels */
    unsigned char uuid[16]; /* of the device */
    bool has_uuid;
    fa2i_turn turn, launches; /* tune_share.c */
    bool shared;              /* another tuner was seen on the device */
    bool beside;              /* another one takes problems of the same database */
    int driver;
    int threads; /* for compiling and for references */
    int64_t device, session;
    fa2i_tune_kernel *kernels;
    size_t kernel_count, kernel_capacity;
    fa2i_text_index places;      /* of kernels, by their variants' texts */
    fa2i_refutation *refutations; /* by other cards; owned */
    size_t refutation_count;
    fa2i_tune_problem *problems; /* in the order of options.shapes, or of what they are worth */
    size_t problem_count;
    fa2i_progress progress;
    double started_s;
    double phase_s[FA2I_PHASE_COUNT];
    /* What was done, in kernels; outcomes also count what earlier runs found out about needed
     * ones. */
    size_t compiled, reused, verified;
    size_t spared, uncompiled; /* measurements, and of these kernels, left out as hopeless */
    size_t early;              /* searches that ended before all rounds */
    size_t mended;             /* problems whose winner got its code again */
    size_t by_others;          /* problems that another tuner measured meanwhile */
    size_t timed, failed; /* per problem: contenders, and those that failed while being timed */
    size_t outcomes[FA2I_OUTCOME_COUNT];
} fa2i_tune;

/* Candidates and keys of all problems, which of the problems are settled, and what the database teaches
 * about the others, in their order (fa2i_tune_order). FA2_E_NO_NVRTC when there is none and a kernel that is
 * wanted has no code. */
fa2_status fa2i_tune_plan(fa2i_tune *tune);

/* The ids of open problems, which are stored where they are not known; with --dry-run -1 is the id of those. */
fa2_status fa2i_tune_find_ids(fa2i_tune *tune);

/* What every candidate failed by, if every one has, by what the database knows of the device: then the problem's
 * message says so, and what lets them be tried again. Else *ret_dead is false. */
fa2_status fa2i_tune_find_dead(const fa2i_tune *tune, fa2i_tune_problem *problem, bool *ret_dead);

/* What other cards found against kernels: no call takes these, so they are known to fail here, too. Once, when all
 * kernels are listed. */
fa2_status fa2i_tune_find_refuted(fa2i_tune *tune);
bool fa2i_tune_is_refuted(const fa2i_tune *tune, const fa2i_key *key);

/* Let the database's measurements count for judgements. */
fa2_status fa2i_tune_learn_stored(fa2i_tune *tune);

/* And these, just taken: us of kernels (indexes) on a problem. */
fa2_status fa2i_tune_learn(fa2i_tune *tune, const fa2_problem *problem, const size_t *kernels,
                           const double *us, size_t count);

/* What the candidates of an open problem are expected to take, which are hopeless, and what tuning it is worth.
 * The default and the winner so far are never hopeless; nothing is with --force or --all. */
fa2_status fa2i_tune_judge(fa2i_tune *tune, fa2i_tune_problem *problem);

/* Whether a kernel won the problem in an earlier run. */
bool fa2i_tune_is_winner(const fa2i_tune *tune, const fa2i_tune_problem *problem, size_t kernel);

/* Less is nothing to gain, to people and to the order. */
#define FA2I_TUNE_WORTH_US 0.05

/* Judge the problems whose turn has not come; with a budget, or where calls are known, those that are worth the
 * most come first then, and of those that are worth nothing the ones whose calls take longest. */
fa2_status fa2i_tune_order(fa2i_tune *tune);

/* Whether there is more than the order in which the problems were given: a budget, or calls. */
bool fa2i_tune_is_ordered(const fa2i_tune *tune);

/* Order, and take the next problems and what they want of kernels; *ret_any: there are any. */
fa2_status fa2i_tune_next_stage(fa2i_tune *tune, bool *ret_any);

/* Which kernels the open problems want. */
void fa2i_tune_find_needed(fa2i_tune *tune);

/* Has another tuner settled an open problem meanwhile? Then it is SETTLED, and counted. */
fa2_status fa2i_tune_look_again(fa2i_tune *tune, fa2i_tune_problem *problem);

/* Claim a piece of work ("verify" a class, "measure" a problem) for this process; false: another
 * has it. wait: for its end; false then when the budget ends before. */
bool fa2i_tune_claim(const fa2i_tune *tune, const char *what, const fa2_problem *problem,
                     bool wait);
void fa2i_tune_unclaim(const fa2i_tune *tune, const char *what, const fa2_problem *problem);

/* Wait until no other tuner has the device, and say so; not with --share. */
void fa2i_tune_begin_turn(fa2i_tune *tune);

/* Around launches that count: nobody else's run at the same time. */
void fa2i_tune_begin_launches(fa2i_tune *tune);
void fa2i_tune_end_launches(fa2i_tune *tune);

/* Whether a kernel's code can run on this problem: it has code, does not spill (unless all of the
 * problem's candidates do that are not refuted), and passed its verification or was not verified yet. */
bool fa2i_tune_usable(const fa2i_tune *tune, const fa2i_tune_problem *problem, size_t kernel);

/* A kernel as the database has it, with its code unless it never had any. *ret_found: it needs no compiling; the
 * kernel is the caller's then (fa2i_kernel_done). */
fa2_status fa2i_tune_find_stored(const fa2i_tune *tune, const fa2i_tune_kernel *of,
                                 fa2i_kernel *ret_kernel, bool *ret_found);

/* Make every kernel of the stage known: from the database, else compiled and stored. */
fa2_status fa2i_tune_compile(fa2i_tune *tune);

/* Compile again what settled problems lost. One whose winner does not compile is OPEN then; one that the budget did not
 * reach stays SETTLED, and lost. */
fa2_status fa2i_tune_mend(fa2i_tune *tune);

/* Verify every kernel of the stage that can run, once per device, and store the verdicts. When the budget
 * ends amid a class of problems, a later run verifies its kernels that passed so far again. */
fa2_status fa2i_tune_verify(fa2i_tune *tune);

/* Make the record of a kernel for the database. A kernel that was never compiled gets the target and the generator with
 * which it would be compiled. The record borrows what the kernel owns. */
void fa2i_tune_record(const fa2i_tune *tune, const fa2i_tune_kernel *k, fa2i_kernel *ret_record);

/* fa2i_cache_put_verification and fa2i_cache_put_results. If fa2-tune forget dropped kernels meanwhile, they store
 * these again first, and say so. */
fa2_status fa2i_tune_put_verdict(fa2i_tune *tune, const fa2i_tune_kernel *k, const fa2i_verification *verdict);
fa2_status fa2i_tune_put_results(fa2i_tune *tune, const fa2i_results_of *of, const fa2i_result *results, size_t count,
                                 const fa2i_winner *winner, size_t *ret_noted);

/* The seed of test data and of the order of samples: equal runs take equal samples. */
enum { FA2I_TUNE_SEED = 0xfa2 };

/* The tensors on which a problem is measured. */
fa2i_case fa2i_tune_case(const fa2_problem *problem);

/* Measure the open problems of the stage and store measurements and winners. Those that another tuner is
 * measuring stay open. Beside another one, a problem that is more than 1 / FA2I_TUNE_LARGE of what is left of the
 * stage is not left for the end. */
enum { FA2I_TUNE_LARGE = 8 };
fa2_status fa2i_tune_time(fa2i_tune *tune);

/* The same for those, when that one is done. */
fa2_status fa2i_tune_time_rest(fa2i_tune *tune);

/* The worker, started when it is first wanted. */
fa2_status fa2i_tune_worker(fa2i_tune *tune);

/* What tuning would do, from what is planned: what is to be compiled and to be verified of it, and
 * about how long all takes (seconds, of a real card: a software device takes as long as it likes). */
typedef struct fa2i_tune_work {
    size_t compile, verify, measure;
    double seconds;
    size_t fit; /* problems to measure that fit the budget; without one, all */
} fa2i_tune_work;

/* Nothing may be staged, and nothing can be afterwards. */
fa2_status fa2i_tune_estimate(fa2i_tune *tune, fa2i_tune_work *ret_work);
void fa2i_tune_print_work(const fa2i_tune *tune, const fa2i_tune_work *work);

bool fa2i_tune_stopped(const fa2i_tune *tune); /* by the user */
bool fa2i_tune_spent(const fa2i_tune *tune);   /* the budget; or stopped */

/* What the run is about to do, what came of one problem, and of all. */
void fa2i_tune_print_start(const fa2i_tune *tune);
void fa2i_tune_print_planned(fa2i_tune *tune); /* all that is settled, and what cannot be tuned */
void fa2i_tune_print_problem(fa2i_tune *tune, const fa2i_tune_problem *problem);
void fa2i_tune_print_summary(const fa2i_tune *tune);
void fa2i_tune_print_json(const fa2i_tune *tune);

#endif
