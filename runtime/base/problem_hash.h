/*
 * The hash of a problem's bytes, for tables of problems. Pure; thread-safe.
 */
#ifndef FA2I_BASE_PROBLEM_HASH_H
#define FA2I_BASE_PROBLEM_HASH_H

#include <stdint.h>
#include <string.h>
#include "fa2.h"

/* The reserved members are 0 in a valid problem, so they are not hashed. A comparison tells the others apart. */
enum { FA2I_HASHED_WORDS = (offsetof(fa2_problem, reserved) + 15) / 16 * 2 };
_Static_assert(sizeof(fa2_problem) == 128 && FA2I_HASHED_WORDS * sizeof(uint64_t) <= 128,
               "hash and comparison read bytes that exist, and no padding");

static inline uint64_t fa2i_hash_mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15); /* 2^64 / golden ratio: spreads low bits */
    return h ^ h >> 32;                            /* and brings the high ones down */
}

/* Two chains, which a processor follows at once: multiplications are slow to finish. */
static inline uint64_t fa2i_problem_hash(const fa2_problem *problem)
{
    uint64_t words[FA2I_HASHED_WORDS];
    uint64_t even = 0, odd = 0;

    memcpy(words, problem, sizeof(words));
    for (size_t i = 0; i < FA2I_HASHED_WORDS; i += 2) {
        even = fa2i_hash_mix(even, words[i]);
        odd = fa2i_hash_mix(odd, words[i + 1]);
    }
    return fa2i_hash_mix(even, odd);
}

#endif
