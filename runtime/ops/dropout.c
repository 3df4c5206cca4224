/*
 * Computes the draws of kernels (templates/features/dropout.cuh), one number at a time. A mask is made tile by tile. So
 * few column keys are alive, and the row keys are made once for the columns of a tile.
 */
#include "runtime/ops/dropout.h"

#include <math.h>
#include "runtime/base/problem.h"
#include "runtime/base/sized.h"
#include "runtime/ops/features.h"

enum { ROUNDS = 7, MASK_PAIRS = 128 };

static const uint32_t no_plane = 0xffffffffu;

/* A float below 1 has 24 bits. So the remainder is at most 1 - 2^-24, and part does not overflow. */
fa2i_dropout_threshold fa2i_dropout_threshold_of(float p)
{
    const double bytes = (double)p * 256;
    const int byte = (int)bytes;
    return (fa2i_dropout_threshold){.byte = byte, .part = (uint32_t)ldexp(bytes - byte, 32)};
}

float fa2i_dropout_scale(float p)
{
    return (float)(1 / (1 - (double)p));
}

/* From 1024 on, fp16 numbers are 1 apart. So 1023 + threshold is 0x6400 + threshold - 1, except for 1023 itself. */
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

/* i: row or pair of columns. of: plane or no_plane. */
static fa2i_dropout_key key_of(uint64_t seed, uint64_t offset, uint32_t of, int32_t i)
{
    fa2i_dropout_key key;
    for (int t = 0; t < 4; t++) {
        uint32_t x[4] = {(uint32_t)offset, (uint32_t)(offset >> 32), (uint32_t)(i / 32 * 32 + i % 8 * 4 + t), of};
        fa2i_philox(x, (uint32_t)seed, (uint32_t)(seed >> 32), ROUNDS);
        for (int k = 0; k < 4; k++)
            key.bytes[4 * t + k] = (int16_t)(x[i / 8 % 4] >> 8 * k & 0xff);
    }
    return key;
}

fa2i_dropout_key fa2i_dropout_row_key(uint64_t seed, uint64_t offset, int64_t plane, int32_t row)
{
    fa2i_dropout_key key = key_of(seed, offset, (uint32_t)plane, row);
    key.bytes[0] |= 1;
    return key;
}

fa2i_dropout_key fa2i_dropout_pair_key(uint64_t seed, uint64_t offset, int32_t pair)
{
    fa2i_dropout_key key = key_of(seed, offset, no_plane, pair);
    key.bytes[1] |= 1;
    return key;
}

uint32_t fa2i_dropout_number(const fa2i_dropout_key *row, const fa2i_dropout_key *pair)
{
    int32_t sum = 0;
    for (int k = 0; k < 16; k++)
        sum += row->bytes[k] * pair->bytes[k];
    return (uint32_t)sum;
}

uint32_t fa2i_dropout_word(uint64_t seed, uint64_t offset, int64_t plane, int32_t row)
{
    const fa2i_dropout_key key = fa2i_dropout_row_key(seed, offset, plane, row / 32 * 32);
    uint32_t word = 0;
    for (int k = 0; k < 4; k++)
        word |= (uint32_t)key.bytes[12 + k] << 8 * k;
    return word;
}

uint32_t fa2i_dropout_choose(fa2i_dropout_threshold threshold, uint32_t word, int32_t row, int32_t column)
{
    const uint32_t r = (uint32_t)row / 2 % 4, c = (uint32_t)column % 8;
    const uint32_t choice = word + (((c ^ r * 2) * 4 + r) << 27);
    return (uint32_t)threshold.byte + (choice < threshold.part);
}

static bool keeps(uint32_t number, int32_t column, uint32_t threshold)
{
    return (number >> 8 * (column % 2) & 0xff) >= threshold;
}

bool fa2i_dropout_keeps(float p, uint64_t seed, uint64_t offset, int64_t plane, int32_t row, int32_t column)
{
    const fa2i_dropout_key of_row = fa2i_dropout_row_key(seed, offset, plane, row);
    const fa2i_dropout_key of_pair = fa2i_dropout_pair_key(seed, offset, column / 2);
    const uint32_t word = fa2i_dropout_word(seed, offset, plane, row);
    return keeps(fa2i_dropout_number(&of_row, &of_pair), column,
                 fa2i_dropout_choose(fa2i_dropout_threshold_of(p), word, row, column));
}

/* Fills the columns of MASK_PAIRS pairs, beginning at first_pair, in all rows. */
static void fill_mask(const fa2_problem *problem, const fa2_dropout *dropout, int32_t first_pair, uint8_t *mask)
{
    const fa2i_dropout_threshold threshold = fa2i_dropout_threshold_of(dropout->p);
    const int64_t planes = (int64_t)problem->batch * problem->heads_q;
    const int32_t first = 2 * first_pair, rest = problem->seq_k - first;
    const int32_t columns = rest < 2 * MASK_PAIRS ? rest : 2 * MASK_PAIRS;
    fa2i_dropout_key pairs[MASK_PAIRS];
    uint32_t word = 0;
    for (int32_t i = 0; i < (columns + 1) / 2; i++)
        pairs[i] = fa2i_dropout_pair_key(dropout->seed, dropout->offset, first_pair + i);
    for (int64_t plane = 0; plane < planes; plane++)
        for (int32_t row = 0; row < problem->seq_q; row++) {
            const fa2i_dropout_key key = fa2i_dropout_row_key(dropout->seed, dropout->offset, plane, row);
            uint8_t *out = mask + (plane * problem->seq_q + row) * problem->seq_k + first;
            if (row % 32 == 0)
                word = fa2i_dropout_word(dropout->seed, dropout->offset, plane, row);
            for (int32_t i = 0; i < columns; i += 2) {
                const uint32_t number = fa2i_dropout_number(&key, &pairs[i / 2]);
                out[i] = keeps(number, 0, fa2i_dropout_choose(threshold, word, row, i));
                if (i + 1 < columns)
                    out[i + 1] = keeps(number, 1, fa2i_dropout_choose(threshold, word, row, i + 1));
            }
        }
}

fa2_status fa2_dropout_mask(const fa2_problem *problem, const fa2_dropout *dropout, uint8_t *mask)
{
    fa2_problem copy;
    fa2_status st = fa2i_sized_problem_read(&problem, &copy);
    if (st == FA2_OK)
        st = fa2i_problem_check(problem);
    if (st == FA2_OK && dropout == NULL)
        st = fa2i_fail(FA2_E_INVALID, "dropout is NULL");
    if (st == FA2_OK)
        st = fa2i_dropout_check(dropout);
    if (st != FA2_OK)
        return st;
    if (dropout->seed_at != NULL || dropout->offset_at != NULL || mask == NULL)
        return fa2i_fail(FA2_E_INVALID,
                         "seed_at is %p, offset_at is %p and mask is %p; for a mask on the host the "
                         "first two are NULL, the last one is not",
                         (const void *)dropout->seed_at, (const void *)dropout->offset_at, (void *)mask);
    for (int32_t pair = 0; pair < (problem->seq_k + 1) / 2; pair += MASK_PAIRS)
        fill_mask(problem, dropout, pair, mask);
    return FA2_OK;
}
