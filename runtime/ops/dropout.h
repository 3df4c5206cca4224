/*
 * Decides which elements of P dropout keeps. The decision depends only on seed, offset, batch, head, row and column. If
 * a call is a part of a larger one (fa2_dropout_origin), head, row and column are those of the whole.
 *
 * Rows and pairs of columns have keys of 16 random bytes. The product of a row's key and a pair's key is a number: a
 * sum of 16 products of bytes. The pair's even column uses its lowest byte, and the odd column the next one. An element
 * is kept if its byte is at least a threshold. Tensor cores make such numbers for 8 or 16 rows and 8 pairs at once (mma
 * of u8), so the random bits of an element cost next to nothing.
 *
 * The threshold is p * 256, rounded down, or the next number. A choice of 32 bits decides: the element gets the next
 * number if its choice is below 2^32 times the remainder of p * 256. So p is exact to 2^-40. An element's choice is
 *
 *     word(plane, row / 32) + stratum(row / 2 % 4, column % 8) * 2^27   modulo 2^32
 *
 * word is the last word of the key of row 32 * (row / 32). stratum(r, c) is (c ^ 2 * r) * 4 + r, and takes each of
 * 0 ... 31 once. The choice does not depend on tile sizes. A kernel with queries as rows makes a lane's choices once,
 * before its loop over keys. A kernel with keys as rows makes them once for 32 queries.
 *
 * Keys come from Philox4x32 with 7 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). Its key
 * is the seed. Its counter is {low half of the offset, high half, a, b}. A key of fa2 has 4 words. For word t,
 * a = i / 32 * 32 + i % 8 * 4 + t. The word is word i / 8 % 4 of Philox, where
 *   - for a row, i is the row, and b is batch * heads_q + head, the plane. Byte 0 of the key is made odd;
 *   - for a pair of columns, i is column / 2, and b is 0xffffffff, which is no plane. Byte 1 is made odd.
 *
 * Byte k of a key is byte k % 4, from the lowest on, of word k / 4.
 *
 * Are the bytes as good as random ones? Mean and variance of dropout, for any sum of elements, need uniform bytes and
 * pairwise independence. With random keys:
 *   - The even column's byte is uniform. The column's byte is uniform, and multiplying it by the row's odd byte
 *     permutes 0 ... 255, whatever is added. For the same reason two pairs of columns have independent bytes, in one
 *     row or in two. So have two rows of one pair of columns, by the pair's odd byte.
 *   - The odd column's byte lies above sums that are nearly uniform modulo 65536. It has each value with a probability
 *     of 1/256 times 1 +- 6e-6, so the kept share is exact to 2e-6. The two bytes of a number are independent to 6e-6.
 *     The odd columns' bytes in one row, or of one pair of columns, make decisions correlated by at most 3e-6.
 *   - For two rows and two pairs of columns, all four even bytes are independent, with one exception: if the rows' keys
 *     are equal modulo 2 where it counts, one byte follows from the others. That has a probability of 2^-14.
 *   - Many bytes together are not independent. 17 rows of 16 bytes depend on each other linearly, and so do their
 *     numbers, with factors that the keys decide. Mean and variance of a sum do not show that.
 *
 * How good are the choices?
 *   - Words are random, so each choice is uniform. It is independent of an even column's byte, because the pair's byte
 *     0 makes that uniform for each row's key. It is nearly independent of an odd column's byte, because of the sums
 *     below that byte.
 *   - Choices make decisions dependent only within 32 rows of a plane. Let f be the remainder of p * 256. Then the
 *     covariance of two decisions is at most f (1 - f) / 65536, or 4e-6; at p = 0.17 that is a correlation of 3e-5. It
 *     is large beside p (1 - p) only if p < 1/256. Then, if an element is dropped, so are 1/256 of those with the same
 *     choice, and p of all others.
 *   - Strata make sums narrower than independent words would. Compared with independent decisions, the count of dropped
 *     elements in a row of 8192 has a larger variance: by 0.2 % at p = 0.17, and by 9 % at p = 0.001. Other blocks of
 *     32 rows, and other planes, have independent words.
 *
 * tests/test_dropout.c checks these statements.
 *
 * Pure functions; thread-safe.
 */
#pragma once

#include <stdbool.h>
#include "fa2.h"

/* A part begins at multiples of this: the keys of 32 rows, or of 64 columns, are made together. */
enum { FA2I_DROPOUT_BLOCK = 64 };

typedef struct fa2i_dropout_key {
    int16_t bytes[16]; /* 0 ... 255; 16 bits wide, because compilers then multiply eight at once */
} fa2i_dropout_key;

typedef struct fa2i_dropout_threshold {
    int byte;      /* 0 ... 255 */
    uint32_t part; /* number of choices, of 2^32, that get the threshold byte + 1 */
} fa2i_dropout_threshold;

/* Returns the threshold for a p in [0, 1). */
fa2i_dropout_threshold fa2i_dropout_threshold_of(float p);

/* Returns the factor of kept elements, 1 / (1 - p). */
float fa2i_dropout_scale(float p);

/* Returns the bits of an fp16 number, twice. A kernel adds it to 1024 + byte. The sum is at least 1 if the byte is not
 * below the threshold, else at most 0. */
uint32_t fa2i_dropout_bound(int threshold);

/* Return the key of a row, or of a pair of columns. plane: batch * heads_q + head. pair: column / 2. */
fa2i_dropout_key fa2i_dropout_row_key(uint64_t seed, uint64_t offset, int64_t plane, int32_t row);
fa2i_dropout_key fa2i_dropout_pair_key(uint64_t seed, uint64_t offset, int32_t pair);

/* Returns the number of a row and a pair. Its bytes 0 and 1 belong to the pair's columns. */
uint32_t fa2i_dropout_number(const fa2i_dropout_key *row, const fa2i_dropout_key *pair);

/* Returns the word on which the choices of 32 rows are based. */
uint32_t fa2i_dropout_word(uint64_t seed, uint64_t offset, int64_t plane, int32_t row);

/* Returns the threshold of an element, 0 ... 256. */
uint32_t fa2i_dropout_choose(fa2i_dropout_threshold threshold, uint32_t word, int32_t row, int32_t column);

/* Decides for one element. It makes the keys each time; for many elements use the functions above. */
bool fa2i_dropout_keeps(float p, uint64_t seed, uint64_t offset, int64_t plane, int32_t row, int32_t column);

void fa2i_philox(uint32_t counter[4], uint32_t key0, uint32_t key1, int rounds);
