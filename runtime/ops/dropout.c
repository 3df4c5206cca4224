/*
 * Philox4x32 with 7 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), whence
 * its constants. A call of it gives 16 bytes, one per element of P; kernels compute the same.
 */
#include "runtime/ops/dropout.h"

#include <math.h>
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/ops/features.h"

enum { ROUNDS = 7 };

int fa2i_dropout_threshold(float p)
{
    const long threshold = lround((double)p * 256);
    return threshold > 255 ? 255 : (int)threshold;
}

double fa2i_dropout_scale(int threshold)
{
    return 256.0 / (256 - threshold);
}

/* From 1024 on numbers of fp16 are 1 apart: 1023 + threshold is 0x6400 and threshold - 1, but for 1023 itself. */
uint32_t fa2i_dropout_bound(int threshold)
{
    const uint32_t negative = 0x8000;
    return (negative | (threshold == 0 ? 0x63feu : 0x6400u + (uint32_t)threshold - 1)) * 0x10001u;
}

void fa2i_philox(uint32_t counter[4], uint32_t key0, uint32_t key1, int rounds)
{
    uint32_t *x = counter;
    for (int round = 0; round < rounds; round++) {
        const uint64_t a = UINT64_C(0xd2511f53) * x[0], b = UINT64_C(0xcd9e8d57) * x[2];
        x[0] = (uint32_t)(b >> 32) ^ x[1] ^ key0;
        x[1] = (uint32_t)b;
        x[2] = (uint32_t)(a >> 32) ^ x[3] ^ key1;
        x[3] = (uint32_t)a;
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
}

bool fa2i_dropout_keeps(int threshold, uint64_t seed, uint64_t offset, int64_t plane, int32_t row,
                        int32_t column)
{
    uint32_t x[4] = {(uint32_t)offset, (uint32_t)(row / 16 * 32 + row % 8 * 4 + column / 2 % 4),
                     (uint32_t)(offset >> 32) ^ (uint32_t)plane, (uint32_t)(column / 32)};
    fa2i_philox(x, (uint32_t)seed, (uint32_t)(seed >> 32), ROUNDS);
    const uint32_t word = x[column / 16 % 2 * 2 + row / 8 % 2];
    const uint32_t byte = word >> 8 * (column / 8 % 2 * 2 + column % 2) & 0xff;
    return byte >= (uint32_t)threshold;
}

fa2_status fa2_dropout_mask(const fa2_problem *problem, const fa2_dropout *dropout, uint8_t *mask)
{
    fa2_status st = fa2i_problem_check(problem);
    if (st == FA2_OK && dropout == NULL)
        st = fa2i_fail(FA2_E_INVALID, "dropout is NULL");
    if (st == FA2_OK)
        st = fa2i_dropout_check(dropout);
    if (st != FA2_OK)
        return st;
    if (dropout->seed_at != NULL || dropout->offset_at != NULL || mask == NULL)
        return fa2i_fail(
            FA2_E_INVALID,
            "seed_at is %p, offset_at is %p and mask is %p; for a mask on the host the "
            "first two are NULL, the last one is not",
            (const void *)dropout->seed_at, (const void *)dropout->offset_at, (void *)mask);
    const int threshold = fa2i_dropout_threshold(dropout->p);
    const int64_t planes = (int64_t)problem->batch * problem->heads_q;
    for (int64_t plane = 0; plane < planes; plane++)
        for (int32_t row = 0; row < problem->seq_q; row++)
            for (int32_t column = 0; column < problem->seq_k; column++)
                *mask++ = fa2i_dropout_keeps(threshold, dropout->seed, dropout->offset, plane, row,
                                             column);
    return FA2_OK;
}
