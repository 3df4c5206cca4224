/*
 * The state that a planner's files share: the classes of problems with what was found out for them, the evidence, the
 * database, and the log. database.c opens the database and follows its file. These files find kernels:
 *
 *     planner.c              decides: the winner of a problem, or the best estimate
 *     planner_candidates.c   lists the kernels that a problem can have
 *     planner_kernels.c      makes a kernel ready: from the database, or by compiling
 *
 * A predicting planner says what a call would get. It makes the same decisions, but stops before it would load,
 * compile or store a kernel. It cannot predict that a driver refuses code if the driver refused nothing like it yet.
 * It cannot predict the result of a first compilation either. It reads code to see that it is valid. If the cache is
 * open for writing, like a context's, reading removes damaged code.
 *
 * Not thread-safe: the planner's caller holds the lock. Ownership: classes stay at one address until
 * fa2i_planner_done.
 */
#pragma once

#include "cache/content/notes.h"
#include "runtime/cuda/compile.h"
#include "runtime/lua/generator.h"
#include "runtime/plan/answers.h"
#include "runtime/plan/counters.h"
#include "runtime/plan/layers.h"
#include "runtime/plan/winners.h"

/* Findings for earlier problems of a class, so that another shape of the class costs no SQLite and no Lua. */
typedef struct fa2i_class {
    char key[FA2I_CLASS_CHARS]; /* fa2i_problem_class */
    fa2i_winners winners;
    bool is_untuned;      /* the databases were read, and have no winner of the class */
    uint64_t reading;     /* counts readings of the database: answers of earlier readings no longer hold */
    bool told_default;    /* the log says that nothing is tuned for the class */
    bool told_unreadable; /* the log says that the winners cannot be read */
    bool told_without;    /* the log says that scattered biases are read slowly */
    struct fa2i_class *next;
} fa2i_class;

/* The evidence about an operation that the generator has learned. */
typedef struct fa2i_calibration {
    bool is_calibrated;
    bool is_partial; /* learned without the database, which could not be read */
    int64_t version; /* fa2i_cache_data_version */
    fa2i_evidence evidence;
    bool knows_shipped; /* shipped was read */
    fa2i_evidence shipped;
} fa2i_calibration;

/* Distinguishes a file from another one, and from its earlier state. */
typedef struct fa2i_file_state {
    bool is_there;
    uint64_t device, inode;
    int64_t changed_ns;
} fa2i_file_state;

/* Notes for later processes that are not written yet (notes.c). */
enum { FA2I_NOTES_ANSWERS = 16, FA2I_NOTES_USED = 64, FA2I_NOTES_MOST = 1024 };
typedef struct fa2i_notes {
    fa2i_stored_answer answers[FA2I_NOTES_ANSWERS];
    fa2i_key used[FA2I_NOTES_USED]; /* kernels whose code was loaded */
    size_t answer_count, used_count;
    size_t noted;       /* answers of this planner so far; at most FA2I_NOTES_MOST */
    bool has_compiled;  /* the last answer compiled a kernel */
    int64_t written_ns; /* when notes were last written; 0: never */
    int64_t used_ns;    /* since when `used` has an entry */
} fa2i_notes;

typedef struct fa2i_planner {
    const fa2i_device *device; /* borrowed */
    int arch;                  /* fa2_config.arch; 0: the device's own */
    fa2i_log_fn log;           /* may be NULL, like log_at */
    void (*log_at)(void *user, fa2_log_level level, const char *message);
    void *log_user;
    int log_level;             /* a fa2_log_level; 0: FA2_LOG_INFO */
    char *database;            /* path, for messages; NULL if no database is used */
    fa2i_cache *cache;         /* NULL if there is no database, or none is used */
    fa2i_layers layers;        /* the system's databases, below the user's */
    bool is_named;             /* the caller chose the path; it is not the default */
    bool never_writes;         /* fa2_config.read_only */
    bool read_only;            /* nothing is written to cache: because of never_writes, or because the file cannot be
                                * written */
    bool told_unstored;        /* the log says that nothing can be stored now */
    bool is_unusable;          /* a file exists, and it cannot be opened */
    bool is_deleted;           /* the file that was open is gone, and no other took its place */
    int64_t looked_ns;         /* when the file was last looked at (fa2i_clock_ns) */
    int64_t tried_ns;          /* when opening it was last tried */
    fa2i_file_state tried;     /* the file's state after that */
    bool predicts;             /* predicts only: nothing is loaded or compiled */
    bool as_ptx;               /* the driver is known to refuse cubins */
    char *share;               /* folder of the files that come with fa2 (share.h); NULL if none is used */
    bool told_share;           /* the log says what is wrong with it */
    fa2i_generator *generator; /* created when a problem is not tuned itself */
    fa2i_calibration calibrations[FA2I_OPS];
    fa2i_notes notes;
    bool knows_basis;
    fa2i_key basis;         /* of stored answers (notes.c) */
    bool told_undumped;     /* the log says that FA2_DUMP's folder cannot be written */
    bool told_old_nvrtc;    /* the log says what this NVRTC is too old for */
    fa2_status no_compiler; /* why nothing is compiled: FA2_E_FORBIDDEN by the config; FA2_E_NO_NVRTC after it was not
                             * found; else FA2_OK */
    fa2i_target target;     /* compilation target; its name is "" until it is known */
    fa2i_kernels kernels;
    fa2i_answers answers;
    fa2i_counters counters;
    fa2i_class *classes; /* classes of the problems so far, the most recently used first */
} fa2i_planner;

/* Finds the class of a valid problem, or creates it. NULL if out of memory, with a message. */
fa2i_class *fa2i_planner_class(fa2i_planner *planner, const fa2_problem *problem);

/* The result of trying to have a kernel. slot == NULL: it cannot be used. */
typedef struct fa2i_attempt {
    fa2i_slot *slot;               /* it can be launched; if the planner predicts: it could be */
    fa2i_origin origin;            /* of its code */
    fa2_status refusal;            /* if slot is NULL: why; the last message says it, too */
    bool predicted;                /* it was refused without a try */
    bool for_now;                  /* it cannot be used now, but the database may be readable later */
    bool lost;                     /* the database has no valid code of it; code that the driver refuses is valid */
    bool made;                     /* it was compiled now: it was neither in the database nor loaded */
    fa2i_outcome refuted;          /* why verification failed; FA2I_OUTCOME_OK if it did not */
    char text[FA2I_VARIANT_CHARS]; /* the variant, if known */
    char why[FA2I_WHY_CHARS];      /* if it cannot be used: the reason in words, without the variant */
} fa2i_attempt;

/* Notes that a kernel can be used: slot's code was compiled, or the database has it. */
void fa2i_attempt_take(fa2i_attempt *attempt, fa2i_slot *slot);

/* Notes that a kernel cannot be used, for the reason in the last message. */
void fa2i_attempt_refuse(fa2i_attempt *attempt, fa2_status refusal, const char *text);

/* Returns whether the kernel of a slot can be used as it is. */
bool fa2i_planner_is_ready(const fa2i_planner *planner, const fa2i_slot *slot);

/* Logs, once per slot, that a kernel is passed over for the reason in the last message. what: for example "a tuned
 * kernel". */
void fa2i_planner_pass_over(const fa2i_planner *planner, fa2i_slot *slot, const char *what);

/* Logs, once per outage, that the database cannot be read, for the reason in the last message. */
void fa2i_planner_unreadable(const fa2i_planner *planner, fa2i_class *of);

/* Logs, once per class, that a kernel reads a bias slowly (fa2i_op.is_scattered), for the reason in the last
 * message. */
void fa2i_planner_do_without(fa2i_planner *planner, const fa2_problem *problem);

/* Sends a sentence to the log, if there is one that wants this level. */
void fa2i_planner_log(const fa2i_planner *planner, fa2_log_level level, const char *format, ...) FA2I_PRINTF(3, 4);

/* An fa2i_log_fn for the modules that the planner uses: user is the planner. Their lines count as errors. */
void fa2i_planner_hear(void *user, const char *message);
