/*
 * What attention means, apart from the sums: which keys a query sees, and what becomes of a score
 * before the softmax. Masks and caps as fa2.h defines them; every reference and every test on the host
 * takes them from here. Pure; thread-safe.
 */
#ifndef FA2I_ATTENTION_H
#define FA2I_ATTENTION_H

#include <math.h>
#include <stdbool.h>
#include "fa2.h"

/* What is said of sequences on the device, as host copies; NULL: not said. Borrowed. */
typedef struct fa2i_said {
    const int32_t *seqused_k; /* [batch] */
} fa2i_said;

/* A sequence as a problem of its own. */
static inline fa2_problem fa2i_sequence_of(const fa2_problem *problem, const fa2i_said *said,
                                           int32_t batch)
{
    fa2_problem sequence = *problem;
    if (problem->seqused) {
        const int32_t used = said->seqused_k[batch];
        sequence.seq_k = used < 0 ? 0 : used < problem->seq_k ? used : problem->seq_k;
    }
    return sequence;
}

/* Keys first ... end - 1; first == end: none. */
typedef struct fa2i_keys {
    int32_t first, end;
} fa2i_keys;

/* The keys that a query sees. */
static inline fa2i_keys fa2i_keys_seen(const fa2_problem *problem, int32_t query)
{
    const int64_t place = (int64_t)query + problem->seq_k - problem->seq_q;
    int64_t first = 0, end = problem->seq_k;
    if (problem->causal && place + 1 < end)
        end = place + 1;
    if (problem->window && problem->window_left >= 0 && place - problem->window_left > first)
        first = place - problem->window_left;
    if (problem->window && problem->window_right >= 0 && place + problem->window_right + 1 < end)
        end = place + problem->window_right + 1;
    if (end <= first)
        return (fa2i_keys){0, 0};
    return (fa2i_keys){(int32_t)first, (int32_t)end};
}

static inline bool fa2i_key_is_seen(const fa2_problem *problem, int32_t query, int32_t key)
{
    const fa2i_keys keys = fa2i_keys_seen(problem, query);
    return key >= keys.first && key < keys.end;
}

/* A scaled score, capped; softcap 0: as it is. */
static inline double fa2i_score_capped(double score, double softcap)
{
    return softcap > 0 ? softcap * tanh(score / softcap) : score;
}

/* The score that is capped to this one, which is smaller than the cap. */
static inline double fa2i_score_uncapped(double capped, double softcap)
{
    return softcap > 0 ? softcap * atanh(capped / softcap) : capped;
}

#endif
