/*
 * What a planner holds, and what its files share: the classes of problems with what was found out for
 * them, the evidence, the database, and the log. planner_database.c opens the database and follows its file. The ways
 * to a kernel (planner.c for the winner of a problem, planner_estimate.c for the best estimate, planner_compile.c for
 * what must be compiled) stand above it.
 *
 * A planner that foresees goes the same ways, and ends each where a kernel would be loaded or compiled:
 * what it decides is what a call would get, and nothing is loaded, compiled or stored. It cannot know what a
 * driver refuses that refused nothing like it yet, nor how a kernel turns out that was never compiled. It reads code,
 * to see that it is sound; where the cache is open to be written, as a context's is, reading drops what is damaged.
 *
 * Not thread-safe: the planner's caller holds the lock. Ownership. Classes live, at one address, until
 * fa2i_planner_state_done.
 */
#ifndef FA2I_PLANNER_STATE_H
#define FA2I_PLANNER_STATE_H

#include "cache/notes.h"
#include "runtime/cuda/compile.h"
#include "runtime/lua/generator.h"
#include "runtime/plan/answers.h"
#include "runtime/plan/winners.h"

/* What was found out for earlier problems of a class, so that another shape of it costs no SQLite
 * and no Lua. */
typedef struct fa2i_class {
    char key[FA2I_CLASS_CHARS]; /* fa2i_problem_class */
    fa2i_winners winners;
    uint64_t reading;           /* counts readings of the database: answers of earlier readings no longer hold */
    bool told_default;          /* the log knows that nothing is tuned for the class */
    bool told_unreadable;       /* and that the winners cannot be read */
    bool told_without;          /* and that scattered biases are read slowly */
    struct fa2i_class *next;
} fa2i_class;

/* What the generator was taught of an operation. */
typedef struct fa2i_taught {
    bool is_taught;
    bool is_partial; /* without the database, which could not be read */
    int64_t version; /* fa2i_cache_data_version */
    fa2i_evidence evidence;
    bool knows_shipped; /* shipped was read */
    fa2i_evidence shipped;
} fa2i_taught;

/* Tells a file from another one, and from its earlier state. */
typedef struct fa2i_file_state {
    bool is_there;
    uint64_t device, inode;
    int64_t changed_ns;
} fa2i_file_state;

/* Notes for later processes that are not written yet: planner_notes.c. */
enum { FA2I_NOTES_ANSWERS = 16, FA2I_NOTES_USED = 64, FA2I_NOTES_MOST = 1024 };
typedef struct fa2i_notes {
    fa2i_stored_answer answers[FA2I_NOTES_ANSWERS];
    fa2i_key used[FA2I_NOTES_USED]; /* kernels whose code was loaded */
    size_t answer_count, used_count;
    size_t noted;       /* answers of this planner so far; at most FA2I_NOTES_MOST */
    bool has_compiled;  /* the last answer did */
    int64_t written_ns; /* when notes were written last; 0: never */
    int64_t used_ns;    /* since when there is something in `used` */
} fa2i_notes;

typedef struct fa2i_planner {
    const fa2i_device *device; /* borrowed */
    int arch;                  /* fa2_config.arch; 0: the device's own */
    fa2i_log_fn log;           /* may be NULL */
    void *log_user;
    char *database;            /* path, for messages; NULL: none is used */
    fa2i_cache *cache;         /* NULL: there is none, or none was used */
    bool is_named;             /* the path is the caller's, not the default one */
    bool never_writes;         /* fa2_config.read_only */
    bool read_only;            /* nothing is written to cache: for that, or because the file cannot be written */
    bool told_unstored;        /* the log knows that nothing can be stored now */
    bool is_unusable;          /* a file is there, and it cannot be opened */
    bool is_deleted;           /* the file that was open is gone, and there is no other yet */
    int64_t looked_ns;         /* when the file was last looked at: fa2i_clock_ns */
    int64_t tried_ns;          /* and when it was opened, or could not be */
    fa2i_file_state tried;     /* what it was after that */
    bool foresees;             /* nothing is loaded or compiled */
    bool as_ptx;               /* the driver is known to have no use for cubins */
    char *share;               /* folder of what comes with fa2 (share.h); NULL: none is used */
    bool told_share;           /* the log knows what is wrong with it */
    fa2i_generator *generator; /* created when a problem is not tuned itself */
    fa2i_taught taught[FA2I_OPS];
    fa2i_notes notes;
    bool knows_basis;
    fa2i_key basis; /* of stored answers: planner_notes.c */
    bool told_undumped;  /* the log knows that FA2_DUMP cannot be written */
    bool told_old_nvrtc; /* the log knows what this NVRTC is too old for */
    fa2_status no_compiler; /* why nothing is compiled: FA2_E_FORBIDDEN by the config, or
                             * FA2_E_NO_NVRTC once it was asked for; else FA2_OK */
    fa2i_target target;  /* what is compiled for; "" until then */
    fa2i_kernels kernels;
    fa2i_answers answers;
    fa2i_class *classes; /* those of the problems so far, the last one that was asked for first */
} fa2i_planner;

void fa2i_planner_state_done(fa2i_planner *planner); /* zeroed objects are fine */

/* Find the class of a valid problem, or make it. NULL when out of memory, with a message. */
fa2i_class *fa2i_planner_class(fa2i_planner *planner, const fa2_problem *problem);

/* What came of trying to have a kernel. slot == NULL: it cannot be used. */
typedef struct fa2i_attempt {
    fa2i_slot *slot;      /* it can be launched; of a planner that foresees: it could be */
    fa2i_origin origin;   /* of its code */
    fa2_status refusal;   /* else: why, as does the last message */
    bool foreseen;        /* it was refused without a try */
    bool for_now;         /* the database may be readable later */
    bool lost;            /* the database has no sound code of it; what the driver refuses is sound */
    bool made;            /* it was compiled now: not found in the database, nor loaded already */
    fa2i_outcome refuted; /* what verification found against it; FA2I_OUTCOME_OK: nothing */
    char text[FA2I_VARIANT_CHARS]; /* the variant, if that is known */
    char why[FA2I_WHY_CHARS];      /* if it cannot be used: for people, without the variant */
} fa2i_attempt;

/* Say that a kernel can be used, as code that the database has, or that was compiled. */
void fa2i_attempt_take(fa2i_attempt *attempt, fa2i_slot *slot);

/* Say that a kernel cannot be used, for the reason in the last message. */
void fa2i_attempt_refuse(fa2i_attempt *attempt, fa2_status refusal, const char *text);

/* Can the kernel of a slot be taken as it is? */
bool fa2i_planner_is_ready(const fa2i_planner *planner, const fa2i_slot *slot);

/* Tell the log, once, that a kernel ("a tuned kernel") is passed over for the reason in the last
 * message. */
void fa2i_planner_pass_over(const fa2i_planner *planner, fa2i_slot *slot, const char *what);

/* Tell the log, once in an outage, that the database cannot be read, for the reason in the last
 * message. */
void fa2i_planner_unreadable(const fa2i_planner *planner, fa2i_class *of);

/* Tell the log, once for a class, that a bias is read by a kernel that is slow at it (fa2i_op.is_scattered), for the
 * reason in the last message. */
void fa2i_planner_do_without(fa2i_planner *planner, const fa2_problem *problem);

/* Send a sentence to the log, if there is one. */
void fa2i_planner_log(const fa2i_planner *planner, const char *format, ...) FA2I_PRINTF(2, 3);

#endif
