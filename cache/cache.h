/*
 * The tuning database: one SQLite file that holds devices, problems, kernels with their cubins,
 * measurements and winners. Knows no CUDA. The schema, with each table's meaning, is
 * cache/schema.sql, schema_2.sql and schema_3.sql; people read it through the views `winners` and `measurements`.
 *
 * Errors. FA2_E_DATABASE with file and cause; FA2_E_NOT_FOUND for a row that is not there. After an
 * error the database is as before the call: each write is one transaction. A database is a cache: a
 * damaged kernel is reported once through the log and is a miss, never a wrong kernel; a damaged
 * verification, measurement or winner is a miss.
 * Trust. A cubin is code: files are created 0600, and one that others can write is refused. Where they can write its
 * folder, it is refused for writing, and reading reads a copy in memory (trust.h).
 * Threads. A cache serialises its callers; several processes may use one file.
 * Never carry a cache across fork.
 */
#ifndef FA2I_CACHE_H
#define FA2I_CACHE_H

#include "runtime/base/record.h"

typedef struct fa2i_cache fa2i_cache;

typedef enum fa2i_cache_mode {
    FA2I_CACHE_READ,  /* must exist */
    FA2I_CACHE_WRITE, /* created, with its folders, when missing */
    FA2I_CACHE_REPAIR /* for writing, must exist; made anew if it is damaged, as are tables that are missing */
} fa2i_cache_mode;

typedef void (*fa2i_log_fn)(void *user, const char *message);

/* $FA2_DB, else $XDG_CACHE_HOME/fa2/fa2.db, else ~/.cache/fa2/fa2.db. *ret_path belongs to the
 * caller (fa2i_free). */
fa2_status fa2i_cache_default_path(char **ret_path);

/* Did the user name that path, by $FA2_DB? */
bool fa2i_cache_is_named(void);

/* What SQLite and this fa2 may keep beside a database is called as it is, with one of these behind; NULL ends them.
 * The first are the journals, in which may lie what the file itself does not have yet, and the others of SQLite. */
enum { FA2I_CACHE_JOURNALS = 2, FA2I_CACHE_SQLITE_FILES = 3 };
extern const char *const fa2i_cache_side_files[];

/* Open, check and, for writing, migrate forward. FA2_E_NOT_FOUND: FA2I_CACHE_READ and no
 * such file. FA2_E_DATABASE: not an fa2 database, made by a newer fa2, damaged, writable by others,
 * not readable or not writable; the message says which and what to do. log may be NULL. */
fa2_status fa2i_cache_open(const char *path, fa2i_cache_mode mode, fa2i_log_fn log, void *log_user,
                           fa2i_cache **ret_cache);

/* The same, with a limit for all waits for a process that holds the file locked: *wait_ms, which is set to the rest of
 * it. Later calls wait FA2I_CACHE_WAIT_MS. After a wait in vain they do not wait, until the lock is seen gone or a
 * minute has passed. */
enum { FA2I_CACHE_WAIT_MS = 10000 };
fa2_status fa2i_cache_open_within(const char *path, fa2i_cache_mode mode, int *wait_ms, fa2i_log_fn log,
                                  void *log_user, fa2i_cache **ret_cache);

/* From here to the next such call all waits together take FA2I_CACHE_WAIT_MS at most. */
void fa2i_cache_begin_call(fa2i_cache *cache);

void fa2i_cache_close(fa2i_cache *cache); /* NULL is fine */

/* Let each transaction take so much processor time. The default is ten seconds; commands that read or write whole
 * databases need more. Call it before other threads use the cache. */
#define FA2I_CACHE_LONG_S 600.0
void fa2i_cache_allow_seconds(fa2i_cache *cache, double seconds);

/* Would FA2I_CACHE_WRITE open it, or make it? As far as permissions say; nothing is made. */
fa2_status fa2i_cache_check_writable(const char *path);

/* Write what it holds into another file, which is empty or not there. */
fa2_status fa2i_cache_copy(fa2i_cache *cache, const char *path);

/* Remove a database that nobody has open, with what is kept beside it. */
void fa2i_cache_remove(const char *path);

/* An empty database that is in memory only, for reading what is not there. path: for messages. */
fa2_status fa2i_cache_open_empty(const char *path, fa2i_cache **ret_cache);

/* Close, after a failure that is reported already: a file that this opening created, and that holds no
 * row, is removed again. The thread's message may be another afterwards. */
void fa2i_cache_abandon(fa2i_cache *cache);

const char *fa2i_cache_path(const fa2i_cache *cache); /* borrowed */

/* Was the open file deleted, or was another one put in its place? Then every transaction fails with FA2_E_DATABASE.
 * Costs one look at the file system. */
bool fa2i_cache_has_moved(fa2i_cache *cache);

/* A number that is another one after every commit that changed the content: this cache's or another
 * process's, under whatever name that opened the file. This cache's own notes (cache/notes.h) do not change it. Reads
 * no table. */
fa2_status fa2i_cache_data_version(fa2i_cache *cache, int64_t *ret_version);

/* ---- kernels ---- */

/* Insert or replace record and image. Where the file would pass its size limit, other code is dropped first
 * (cache/size_limit.h). */
fa2_status fa2i_cache_put_kernel(fa2i_cache *cache, const fa2i_kernel *kernel);

/* Let a record have what loading its code told: registers and spill_bytes of PTX, which only a driver compiles. */
fa2_status fa2i_cache_note_loaded(fa2i_cache *cache, const fa2i_kernel *kernel);

/* FA2_E_NOT_FOUND also when the image is missing or not what was sealed (with_image), when the record
 * has no recipe that can be followed, or one of another abi: the caller knows the operation. Sealed
 * together are key, variant, class, recipe, target and code; whether the class is the one that the
 * caller needs is for the caller to compare. *ret_kernel belongs to the caller (fa2i_kernel_done). */
fa2_status fa2i_cache_get_kernel(fa2i_cache *cache, const fa2i_key *key, int abi, bool with_image,
                                 fa2i_kernel *ret_kernel);

/* ---- identities: find, or insert ---- */

/* real: the card of a device; else it stands for an SM in an offline build. */
fa2_status fa2i_cache_device(fa2i_cache *cache, const fa2i_card *card, bool real, int64_t *ret_id);

/* A row that is filed under another class is none: it gives way, with what refers to it, to what is inserted. */
fa2_status fa2i_cache_problem(fa2i_cache *cache, const fa2_problem *problem, int64_t *ret_id);

/* The same for many at once. */
fa2_status fa2i_cache_problems(fa2i_cache *cache, const fa2_problem *const *problems, size_t count,
                               int64_t *ret_ids);

typedef struct fa2i_session {
    int64_t device;
    int driver; /* 1000 * major + 10 * minor; 0 offline */
    int nvrtc;
    char generator[17];
    char origin[16]; /* "tune", "build", "import" */
    bool modelled;   /* its times are: by the cost model, or by a software device */
} fa2i_session;

fa2_status fa2i_cache_session_begin(fa2i_cache *cache, const fa2i_session *session,
                                    int64_t *ret_id);
fa2_status fa2i_cache_session_end(fa2i_cache *cache, int64_t session);

/* ---- what was found out about a kernel on a device ---- */

/* Verification does not depend on the tuned problem: it runs on adversarial shapes. */
typedef struct fa2i_verification {
    fa2i_outcome outcome;
    double max_error; /* largest error over its bound, over all cases: <= 1 is right */
    char detail[FA2I_DETAIL_BYTES]; /* the worst case, or what failed */
} fa2i_verification;

fa2_status fa2i_cache_put_verification(fa2i_cache *cache, int64_t device, const fa2i_key *kernel,
                                       const fa2i_verification *verification);
fa2_status fa2i_cache_get_verification(fa2i_cache *cache, int64_t device, const fa2i_key *kernel,
                                       fa2i_verification *ret_verification);

/* What a verification on any device found against this kernel: its outcome, where that is not
 * FA2I_OUTCOME_OK. A kernel that fails on one card is not trusted on another. */
fa2_status fa2i_cache_refutation(fa2i_cache *cache, const fa2i_key *kernel,
                                 fa2i_outcome *ret_outcome);

/* The same against any kernel of a variant, whoever compiled it. */
fa2_status fa2i_cache_variant_refutation(fa2i_cache *cache, const char *variant, fa2i_outcome *ret_outcome);

typedef struct fa2i_refutation {
    fa2i_key kernel;
    fa2i_outcome outcome; /* not FA2I_OUTCOME_OK */
    char device[128];     /* whose verification it is */
    char detail[FA2I_DETAIL_BYTES];
} fa2i_refutation;

/* All that devices other than this one found against kernels, in the devices' order. *ret_refutations
 * belongs to the caller (fa2i_free). */
fa2_status fa2i_cache_refutations(fa2i_cache *cache, int64_t other_than,
                                  fa2i_refutation **ret_refutations, size_t *ret_count);

typedef struct fa2i_measurement {
    fa2i_outcome outcome;
    bool settled; /* 1: this kernel's fate on this problem is decided; a later run skips it */
    int n;        /* samples */
    double min_us, q1_us, median_us, q3_us;
    double max_error; /* on this problem's sampled rows, over its bound; 0 when not checked */
    char detail[FA2I_DETAIL_BYTES];
} fa2i_measurement;

fa2_status fa2i_cache_get_measurement(fa2i_cache *cache, int64_t device, int64_t problem,
                                      const fa2i_key *kernel, fa2i_measurement *ret_measurement);

/* ---- winners ---- */

typedef struct fa2i_winner {
    fa2i_key kernel;
    bool measured;     /* 0: ranked by the cost model */
    double median_us;  /* 0 when not measured */
    double default_us; /* the default variant's median in the same session; 0 when not measured */
    double model_us;   /* by the cost model; where a software device timed it, by that */
} fa2i_winner;

fa2_status fa2i_cache_put_winner(fa2i_cache *cache, int64_t session, int64_t device,
                                 int64_t problem, const fa2i_winner *winner);
fa2_status fa2i_cache_get_winner(fa2i_cache *cache, int64_t device, int64_t problem,
                                 fa2i_winner *ret_winner);

/* Which NVRTC made the newest of the kernels that won, or were verified, on a device, and for what (a record's nvrtc
 * and target). FA2_E_NOT_FOUND. */
fa2_status fa2i_cache_get_compiler(fa2i_cache *cache, int64_t device, int *ret_nvrtc, char ret_target[16]);

/* ---- all that was found out about a problem ---- */

typedef struct fa2i_results_of {
    int64_t session, device, problem;
} fa2i_results_of;

typedef struct fa2i_result {
    fa2i_key kernel;
    /* Of one that was not worth compiling: stored without an image if there is no such kernel; else
     * NULL. */
    const fa2i_kernel *record;
    const fa2i_verification *verdict; /* of the kernel on this device, stored with it; NULL: none */
    fa2i_measurement measurement;
} fa2i_result;

/* Measurements, verdicts, and the winner unless it is NULL, as one: all or nothing, so one that is refused
 * refuses all. One row per (device, problem, kernel) and one winner per (device, problem): a new one
 * replaces the old; session tells where it is from. *ret_noted (may be NULL): how many records were
 * new. */
fa2_status fa2i_cache_put_results(fa2i_cache *cache, const fa2i_results_of *of,
                                  const fa2i_result *results, size_t count,
                                  const fa2i_winner *winner, size_t *ret_noted);

/* A winner with what the chooser compares. */
typedef struct fa2i_choice {
    fa2i_winner winner;
    fa2_problem problem;
    char device[128];
    int arch;
    int sm_count;
    int64_t smem_block_bytes;
    int64_t l2_bytes;
    bool real;         /* the device was real */
    const char *fault; /* why no call takes its kernel, for people; NULL: as far as the rows say one may */
    bool refuted;      /* that is its fault: fa2i_cache_refutation */
    char variant[FA2I_VARIANT_CHARS]; /* "" where its row is missing */
} fa2i_choice;

/* All winners of this SM that are of the problem's class, with a fault unless their kernels are there, of the class
 * and of this abi, and refuted nowhere. That its code is lost, or its record damaged, or that it does not compile or
 * fit the card, is seen on loading. In a fixed order. No index of the file has a say in which kernel goes with which
 * problem.
 * None is FA2_OK with *ret_count = 0. *ret_choices belongs to the caller (fa2i_free). */
fa2_status fa2i_cache_choices(fa2i_cache *cache, int arch, const fa2_problem *problem, int abi,
                              fa2i_choice **ret_choices, size_t *ret_count);

#endif
