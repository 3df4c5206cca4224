/*
 * The tuning database: one SQLite file that holds devices, problems, kernels with their cubins, measurements and
 * winners. It knows no CUDA. database/schema.sql is the schema, and explains each table.
 * People read it through the views `winners` and `measurements`. Its folders:
 *
 *     database/   the file: opening, trust, schema, rules, repair
 *     content/    what is kept in it: kernels, results, notes, claims, clean-up
 *     transfer/   export and import
 *     shipped/    times that come with fa2
 *
 * Errors. FA2_E_DATABASE with file and cause; FA2_E_NOT_FOUND for a row that does not exist. After an error the
 * database is as before the call, because each write is one transaction. A database is a cache: a damaged kernel is
 * reported once through the log and counts as missing; it is never run. A damaged verification, measurement or winner
 * counts as missing, too.
 * Trust. A cubin is code: files are created 0600, and a file that others can write is refused. If others can write its
 * folder, opening it for writing is refused, and opening it for reading reads a copy in memory (trust.h).
 * Threads. A cache serialises its callers; several processes may use one file.
 * Never carry a cache across fork.
 */
#pragma once

#include <signal.h>
#include "runtime/base/record.h"

typedef struct fa2i_cache fa2i_cache;

typedef enum fa2i_cache_mode {
    FA2I_CACHE_READ,  /* must exist */
    FA2I_CACHE_WRITE, /* created, with its folders, when missing */
    FA2I_CACHE_REPAIR /* for writing, must exist; a damaged file is made anew, and so are missing tables */
} fa2i_cache_mode;

typedef void (*fa2i_log_fn)(void *user, const char *message);

/* Returns $FA2_DB, else $XDG_CACHE_HOME/fa2/fa2.db, else ~/.cache/fa2/fa2.db. *ret_path belongs to the caller
 * (fa2i_free). */
fa2_status fa2i_cache_default_path(char **ret_path);

/* Did the user name that path with $FA2_DB? */
bool fa2i_cache_is_named(void);

/* The suffixes of the files that SQLite and this fa2 may keep beside a database; NULL ends the list. SQLite's come
 * first, and the first of these are the journals, which may hold content that the file itself does not have yet. */
enum { FA2I_CACHE_JOURNALS = 2, FA2I_CACHE_SQLITE_FILES = 3 };
extern const char *const fa2i_cache_side_files[];

/* Open and check. For writing, a new file gets its tables. FA2_E_NOT_FOUND: the mode is FA2I_CACHE_READ and the file
 * does not exist. FA2_E_DATABASE: the file is no fa2 database, was made by a newer fa2, is damaged, or others can write
 * it. Also: the file cannot be read or cannot be written. The message says which, and what to do. log may be NULL. */
fa2_status fa2i_cache_open(const char *path, fa2i_cache_mode mode, fa2i_log_fn log, void *log_user,
                           fa2i_cache **ret_cache);

/* The same, with one limit for all waits for a process that holds the file locked. *wait_ms is the limit, and is set to
 * what is left of it. Later calls wait FA2I_CACHE_WAIT_MS. After a wait in vain, calls do not wait until the lock is
 * seen gone or a minute has passed. */
enum { FA2I_CACHE_WAIT_MS = 10000 };
fa2_status fa2i_cache_open_within(const char *path, fa2i_cache_mode mode, int *wait_ms, fa2i_log_fn log, void *log_user,
                                  fa2i_cache **ret_cache);

/* Open with FA2I_CACHE_REPAIR. The log is told what is done with a damaged file, because that may take half a minute.
 * When *stop becomes nonzero, this call and all later ones end with FA2_E_DATABASE. Then this call has not changed the
 * file, and of later ones each transaction is done as a whole or not at all. stop is borrowed until the cache is
 * closed. */
fa2_status fa2i_cache_open_to_mend(const char *path, const volatile sig_atomic_t *stop, fa2i_log_fn log, void *log_user,
                                   fa2i_cache **ret_cache);

/* From this call to the next one, all waits together take at most FA2I_CACHE_WAIT_MS. */
void fa2i_cache_begin_call(fa2i_cache *cache);

void fa2i_cache_close(fa2i_cache *cache); /* NULL is fine */

/* Set the limit of processor time for each transaction. The default is ten seconds; commands that read or write whole
 * databases need more. Call it before other threads use the cache. */
#define FA2I_CACHE_LONG_S 600.0
void fa2i_cache_allow_seconds(fa2i_cache *cache, double seconds);

/* Could FA2I_CACHE_WRITE open or create this file? Checks permissions alone, and creates nothing. */
fa2_status fa2i_cache_check_writable(const char *path);

/* Write the content of the cache into another file, which must be empty or missing. */
fa2_status fa2i_cache_copy(fa2i_cache *cache, const char *path);

/* Remove a database that no process has open, and the files beside it. */
void fa2i_cache_remove(const char *path);

/* Open an empty database in memory. Readers use it where there is no file. path: for messages. */
fa2_status fa2i_cache_open_empty(const char *path, fa2i_cache **ret_cache);

/* Close the cache after a failure that was already reported. If this opening created the file, and it holds no row,
 * remove it. The thread's message may change. */
void fa2i_cache_abandon(fa2i_cache *cache);

const char *fa2i_cache_path(const fa2i_cache *cache); /* borrowed */

/* Was the open file deleted or replaced by another one? Then every transaction fails with FA2_E_DATABASE. Costs one
 * stat call. */
bool fa2i_cache_has_moved(fa2i_cache *cache);

/* Get a number that changes with every commit that changed the content. Commits of this cache and of other processes
 * count, under whatever name they opened the file. This cache's own notes (content/notes.h) do not change it. Reads no
 * table. */
fa2_status fa2i_cache_data_version(fa2i_cache *cache, int64_t *ret_version);

/* ---- kernels ---- */

/* Insert or replace record and image. If the file would pass its size limit, other code is dropped first
 * (cache/content/size_limit.h). */
fa2_status fa2i_cache_put_kernel(fa2i_cache *cache, const fa2i_kernel *kernel);

/* Store what loading the code told about a record: registers and spill_bytes of PTX, which only a driver compiles. */
fa2_status fa2i_cache_note_loaded(fa2i_cache *cache, const fa2i_kernel *kernel);

/* Get a kernel. FA2_E_NOT_FOUND: there is no such kernel, its record has no recipe that a launch can follow, or the
 * recipe has another abi than the caller's operation. With with_image also: the image is missing or does not match its
 * seal. The seal covers key, variant, class, recipe, target and code. The caller must check that the class is the one
 * that it needs. *ret_kernel belongs to the caller (fa2i_kernel_done). */
fa2_status fa2i_cache_get_kernel(fa2i_cache *cache, const fa2i_key *key, int abi, bool with_image,
                                 fa2i_kernel *ret_kernel);

/* ---- identities: find, or insert ---- */

/* real: the card of a device; else the card stands for an SM in an offline build. */
fa2_status fa2i_cache_device(fa2i_cache *cache, const fa2i_card *card, bool real, int64_t *ret_id);

/* A row whose class does not match its fields does not count. It is removed, with the rows that refer to it, before the
 * problem is inserted. */
fa2_status fa2i_cache_problem(fa2i_cache *cache, const fa2_problem *problem, int64_t *ret_id);

/* The same for many at once. */
fa2_status fa2i_cache_problems(fa2i_cache *cache, const fa2_problem *const *problems, size_t count, int64_t *ret_ids);

typedef struct fa2i_session {
    int64_t device;
    int driver; /* 1000 * major + 10 * minor; 0 offline */
    int nvrtc;
    char generator[17];
    char origin[16]; /* "tune", "build", "import" */
    bool modelled;   /* its times come from the cost model or from a software device */
} fa2i_session;

fa2_status fa2i_cache_session_begin(fa2i_cache *cache, const fa2i_session *session, int64_t *ret_id);
fa2_status fa2i_cache_session_end(fa2i_cache *cache, int64_t session);

/* ---- verifications and measurements of a kernel on a device ---- */

/* Verification does not depend on the tuned problem: it runs on adversarial shapes. */
typedef struct fa2i_verification {
    fa2i_outcome outcome;
    double max_error;               /* largest error over its bound, over all cases: <= 1 is right */
    char detail[FA2I_DETAIL_BYTES]; /* the worst case, or the failure */
} fa2i_verification;

fa2_status fa2i_cache_put_verification(fa2i_cache *cache, int64_t device, const fa2i_key *kernel,
                                       const fa2i_verification *verification);
fa2_status fa2i_cache_get_verification(fa2i_cache *cache, int64_t device, const fa2i_key *kernel,
                                       fa2i_verification *ret_verification);

/* Get the outcome of a verification on any device that refuted this kernel, or FA2I_OUTCOME_OK. A kernel that fails on
 * one card is not trusted on another. */
fa2_status fa2i_cache_refutation(fa2i_cache *cache, const fa2i_key *kernel, fa2i_outcome *ret_outcome);

/* The same for any kernel of a variant, whichever compiler made it. */
fa2_status fa2i_cache_variant_refutation(fa2i_cache *cache, const char *variant, fa2i_outcome *ret_outcome);

typedef struct fa2i_refutation {
    fa2i_key kernel;
    fa2i_outcome outcome; /* not FA2I_OUTCOME_OK */
    char device[128];     /* the device of the verification */
    char detail[FA2I_DETAIL_BYTES];
} fa2i_refutation;

/* Get all refutations by devices other than this one, in the order of the devices. *ret_refutations belongs to the
 * caller (fa2i_free). */
fa2_status fa2i_cache_refutations(fa2i_cache *cache, int64_t other_than, fa2i_refutation **ret_refutations,
                                  size_t *ret_count);

typedef struct fa2i_measurement {
    fa2i_outcome outcome;
    bool settled; /* 1: final for this kernel and problem; a later run skips it */
    int n;        /* samples */
    double min_us, q1_us, median_us, q3_us;
    double max_error; /* on this problem's sampled rows, over its bound; 0 when not checked */
    char detail[FA2I_DETAIL_BYTES];
} fa2i_measurement;

fa2_status fa2i_cache_get_measurement(fa2i_cache *cache, int64_t device, int64_t problem, const fa2i_key *kernel,
                                      fa2i_measurement *ret_measurement);

/* ---- winners ---- */

typedef struct fa2i_winner {
    fa2i_key kernel;
    bool measured;     /* 0: ranked by the cost model */
    double median_us;  /* 0 when not measured */
    double default_us; /* the default variant's median in the same session; 0 when not measured */
    double model_us;   /* from the cost model, or from the software device that timed it */
} fa2i_winner;

fa2_status fa2i_cache_put_winner(fa2i_cache *cache, int64_t session, int64_t device, int64_t problem,
                                 const fa2i_winner *winner);
fa2_status fa2i_cache_get_winner(fa2i_cache *cache, int64_t device, int64_t problem, fa2i_winner *ret_winner);

/* Get the NVRTC and the target (record fields nvrtc, target) of the newest kernel that won or was verified on a device.
 * FA2_E_NOT_FOUND: no kernel did. */
fa2_status fa2i_cache_get_compiler(fa2i_cache *cache, int64_t device, int *ret_nvrtc, char ret_target[16]);

/* ---- all results of a problem ---- */

typedef struct fa2i_results_of {
    int64_t session, device, problem;
} fa2i_results_of;

typedef struct fa2i_result {
    fa2i_key kernel;
    /* The record of a kernel that was not worth compiling: stored without an image if there is no such kernel. Else
     * NULL. */
    const fa2i_kernel *record;
    const fa2i_verification *verdict; /* the kernel's verification on this device; NULL: none */
    fa2i_measurement measurement;
} fa2i_result;

/* Store measurements, verifications and the winner (unless NULL) in one transaction. If one is refused, nothing is
 * stored. There is one row per (device, problem, kernel) and one winner per (device, problem): a new one replaces the
 * old one. session says where they come from. *ret_noted (may be NULL): the number of new records. */
fa2_status fa2i_cache_put_results(fa2i_cache *cache, const fa2i_results_of *of, const fa2i_result *results,
                                  size_t count, const fa2i_winner *winner, size_t *ret_noted);

/* Get the SMs that have winners of this very problem, without one SM: "sm_80, sm_86"; "": there are none. */
enum { FA2I_ARCHS_CHARS = 64 };
fa2_status fa2i_cache_winner_archs(fa2i_cache *cache, const fa2_problem *problem, int without,
                                   char ret_archs[FA2I_ARCHS_CHARS]);

/* A winner and the facts that the chooser compares. */
typedef struct fa2i_choice {
    fa2i_winner winner;
    fa2_problem problem;
    char device[128];
    int arch;
    int sm_count;
    int64_t smem_block_bytes;
    int64_t l2_bytes;
    bool real;                        /* the device was real */
    const char *fault;                /* for people: why no call takes its kernel; NULL: the rows know no reason */
    bool refuted;                     /* the fault is a refutation (fa2i_cache_refutation) */
    char variant[FA2I_VARIANT_CHARS]; /* "" if its row is missing */
} fa2i_choice;

/* Get all winners of this SM and of the problem's class, in a fixed order. A winner has a fault unless its kernel
 * exists, is of the class and of this abi, and was refuted on no device. Other faults show only on loading: lost code,
 * a damaged record, a kernel that does not compile or does not fit the card. No index of the file decides which kernel
 * goes with which problem.
 * If there is no winner, the result is FA2_OK with *ret_count = 0. *ret_choices belongs to the caller (fa2i_free). */
fa2_status fa2i_cache_choices(fa2i_cache *cache, int arch, const fa2_problem *problem, int abi,
                              fa2i_choice **ret_choices, size_t *ret_count);
