/*
 * Notes of a context for later processes: the kernels that it took for problems that were not tuned, and the day on
 * which it loaded code. They are no measurements, and export leaves them out.
 *
 * An answer holds only until its grounds change. The database deletes it when measurements, winners, verifications, or
 * kernels of its class change (database/schema.sql). The caller's `basis` stands for the grounds outside the database:
 * scripts, templates, shipped times, the rules of this version.
 * Times in us. Errors and threads as in cache.h.
 */
#pragma once

#include "cache/cache.h"

/* The basis of a choice of a kernel (runtime/plan/choose.h). */
typedef struct fa2i_decision {
    fa2_rule rule;
    fa2_problem problem; /* the problem that was measured or ranked; with FA2_RULE_DEFAULT the problem as the model saw
                          * it */
    char device[128];    /* the card on which it was measured or ranked */
    bool real;           /* true: that card is a device; false: it stands for an SM */
    bool measured;       /* false: modelled */
    double median_us;    /* the kernel's time on that problem and card, if measured; else 0 */
    double distance;     /* distance from that problem; 0 for FA2_RULE_EXACT */
    double estimate_us;  /* estimated time on this problem; for FA2_RULE_EXACT the measured time */
    bool corrected;      /* the model's estimate, corrected by measurements of other classes */
    fa2_problem neighbour; /* if corrected: the nearest of the measured problems */
    bool replaces;         /* passed_over is the problem's winner; not stored */
    size_t passed_count;   /* number of better kernels that cannot be used */
    /* The first of them. "" if its record is unreadable, too. */
    char passed_over[FA2I_VARIANT_CHARS];
    char why[FA2I_WHY_CHARS]; /* why passed_over cannot be used */
} fa2i_decision;

/* The kernel for a question, and the basis of its choice. */
typedef struct fa2i_stored_answer {
    fa2i_key question; /* hash of what was asked */
    fa2i_key basis;
    fa2i_key kernel;
    char class_key[FA2I_CLASS_CHARS];
    int tried;
    fa2i_decision decision;
    int64_t version; /* of the database for which it holds: fa2i_cache_data_version; not stored */
} fa2i_stored_answer;

/* Find the answer to a question on this basis. FA2_E_NOT_FOUND: no row has it, or its row is impossible. */
fa2_status fa2i_cache_get_answer(fa2i_cache *cache, const fa2i_key *question, const fa2i_key *basis,
                                 fa2i_stored_answer *ret_answer);

enum { FA2I_ANSWERS_MOST = 4096 /* the most answers that a database keeps */ };

/* Store the answers whose version is the database's. Each replaces an earlier answer to its question. Store also that
 * the code of these kernels was used today. Does not wait: if the file is locked, returns FA2_E_DATABASE and stores
 * nothing. The fa2i_cache_data_version of this cache does not change. */
fa2_status fa2i_cache_put_notes(fa2i_cache *cache, const fa2i_stored_answer *answers, size_t answer_count,
                                const fa2i_key *used, size_t used_count);

/* Returns the version (fa2i_cache_data_version) that `version` has become by this cache's own commits, if no other
 * process wrote since. */
int64_t fa2i_cache_own_version(const fa2i_cache *cache, int64_t version);

/* Returns today's number: days since 1970-01-01. */
int fa2i_cache_today(void);
