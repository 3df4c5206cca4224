/*
 * The hash of a problem, for hash tables. Pure function; thread-safe.
 */
#pragma once

#include <stdint.h>
#include <string.h>
#include "runtime/base/problem.h"

enum { FA2I_HASHED_WORDS = FA2I_FIELD_BYTES / sizeof(uint64_t) };
_Static_assert(FA2I_HASHED_WORDS % 4 == 0, "words are hashed by four");

/* Multiplies each word by its own factor, so that no product waits for another one. Use the high bits, because they are
 * mixed best. */
static inline uint64_t fa2i_problem_hash(const fa2_problem *problem)
{
    static const uint64_t factors[FA2I_HASHED_WORDS] = {
        UINT64_C(0xed2ef1c113d1e9e3), UINT64_C(0x2507759b36af971f), UINT64_C(0xb2c753574d99d19d),
        UINT64_C(0x3ce0216ce6746773), UINT64_C(0x0639f08b7f0a674d), UINT64_C(0x09de6e53b861afb7),
        UINT64_C(0x5320dff019a90675), UINT64_C(0x54913be582490b3b), UINT64_C(0x0e9ba56dd7d3a0af),
        UINT64_C(0xb0c9049e85d62cf3), UINT64_C(0xfe1f014ef1d7e893), UINT64_C(0x78015f97e1bda755),
        UINT64_C(0x99e90c3b5ef74753), UINT64_C(0x8adb5a900030e565), UINT64_C(0xc812ab06c15930b7),
        UINT64_C(0x86502637205c5a85),
    };
    uint64_t words[FA2I_HASHED_WORDS], even = 0, odd = 0;

    memcpy(words, &problem->op, sizeof words);
    for (size_t i = 0; i < FA2I_HASHED_WORDS; i += 4) {
        even += words[i] * factors[i] + words[i + 2] * factors[i + 2];
        odd += words[i + 1] * factors[i + 1] + words[i + 3] * factors[i + 3];
    }
    const uint64_t sum = even + odd;
    return (sum ^ sum >> 32) * UINT64_C(0x9e3779b97f4a7c15); /* 2^64 / golden ratio: spreads low bits */
}
