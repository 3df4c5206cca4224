/*
 * Which elements of P dropout keeps: a function of seed, offset, batch, head, row and column alone.
 *
 * Rows and pairs of columns have keys, 16 random bytes each; the product of a row's key and a pair's, a sum of 16
 * products of bytes, is a number of which the pair's even column has the lowest byte, the odd one the next. An element
 * is kept if its byte is at least a threshold. Tensor cores make such numbers for 8 or 16 rows and 8 pairs at once
 * (mma of u8), so the random bits of an element cost next to nothing.
 *
 * The threshold is p * 256, rounded down, or the next number. A choice of 32 bits decides: the element gets the next
 * number if its choice is below the rest of p * 256, times 2^32. So p is right to 2^-40. An element's choice is
 *
 *     word(plane, row / 32) + stratum(row / 2 % 4, column % 8) * 2^27   modulo 2^32
 *
 * word is the last word of the key of row 32 * (row / 32); stratum(r, c) is (c ^ 2 * r) * 4 + r, each of 0 ... 31 once.
 * It does not depend on tile sizes. A kernel with queries as rows makes a lane's choices once, before its loop over
 * keys. A kernel with keys as rows makes them once for 32 queries.
 *
 * Keys are of Philox4x32 with 7 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), its key
 * the seed, its counter {low half of the offset, high half, a, b}. Word t of 4 of a key is word i / 8 % 4 of Philox
 * with a = i / 32 * 32 + i % 8 * 4 + t, where
 *   - of a row, i is the row and b is batch * heads_q + head, the plane; byte 0 of the key is made odd;
 *   - of a pair of columns, i is column / 2 and b is 0xffffffff, which is no plane; byte 1 is made odd.
 * Byte k of a key is byte k % 4, from the lowest on, of word k / 4.
 *
 * Are the bytes as good as random ones? Dropout's mean and variance, of whatever sum of elements, need each byte to be
 * uniform and each two to be independent. With random keys
 *   - the even column's byte is uniform: the row's odd byte times the column's, which is uniform, permutes 0 ... 255,
 *     whatever is added. Two pairs of columns have independent ones for the same reason, in a row or in different
 *     ones; so have two rows of a pair of columns, by the pair's odd byte;
 *   - the odd column's byte, above sums that are nearly uniform modulo 65536, has each value with a probability of
 *     1/256 times 1 +- 6e-6; so a share that is kept is right within 2e-6. The two bytes of a number are independent
 *     within 6e-6; odd columns' bytes in one row, or of one pair of columns, make decisions correlated by 3e-6 at most;
 *   - of two rows and two pairs of columns, all four even bytes are independent unless the rows' keys are equal modulo
 *     2 where it counts, which happens with a probability of 2^-14: then one follows from the others;
 *   - not so all at once: 17 rows of 16 bytes depend on each other linearly, and so do their numbers, with factors
 *     that the keys decide. No mean and no variance of a sum shows that.
 * How good are the choices?
 *   - words are random, so each choice is uniform. It is independent of an even column's byte, because the pair's byte
 *     0 makes that uniform for each row's key. It is nearly independent of an odd column's byte, because of the sums
 *     below that byte;
 *   - decisions depend on each other by choices in 32 rows of a plane alone. With f the rest of p * 256, the covariance
 *     of two is at most f (1 - f) / 65536, or 4e-6: at p = 0.17 a correlation of 3e-5. It is large beside p (1 - p)
 *     only where p < 1/256: if an element is dropped, so are 1/256 of those with the same choice, and p of all others;
 *   - strata make sums narrower than independent words would. Beside independent decisions the count
 *     of dropped elements in a row of 8192 has a variance that is 0.2 % larger at p = 0.17, and 9 % at p = 0.001. Other
 *     blocks of 32 rows, and other planes, have independent words.
 * tests/test_dropout.c holds the reference against this.
 *
 * Pure; thread-safe.
 */
#ifndef FA2I_OPS_DROPOUT_H
#define FA2I_OPS_DROPOUT_H

#include <stdbool.h>
#include "fa2.h"

typedef struct fa2i_dropout_key {
    int16_t bytes[16]; /* 0 ... 255; of 16 bits, because compilers then multiply eight at once */
} fa2i_dropout_key;

typedef struct fa2i_dropout_threshold {
    int byte;      /* 0 ... 255 */
    uint32_t part; /* choices, of 2^32, that get the threshold byte + 1 */
} fa2i_dropout_threshold;

/* The threshold for a p in [0, 1). */
fa2i_dropout_threshold fa2i_dropout_threshold_of(float p);

/* The factor of kept elements: 1 / (1 - p). */
float fa2i_dropout_scale(float p);

/* What a kernel adds to 1024 + byte, in fp16: at least 1 if that is not below the threshold, otherwise at most 0. The
 * number's bits, twice. */
uint32_t fa2i_dropout_bound(int threshold);

/* plane: batch * heads_q + head. pair: column / 2. */
fa2i_dropout_key fa2i_dropout_row_key(uint64_t seed, uint64_t offset, int64_t plane, int32_t row);
fa2i_dropout_key fa2i_dropout_pair_key(uint64_t seed, uint64_t offset, int32_t pair);

/* Bytes 0 and 1 are of the pair's columns. */
uint32_t fa2i_dropout_number(const fa2i_dropout_key *row, const fa2i_dropout_key *pair);

/* The word with which the choices of 32 rows begin. */
uint32_t fa2i_dropout_word(uint64_t seed, uint64_t offset, int64_t plane, int32_t row);

/* The threshold of an element, 0 ... 256. */
uint32_t fa2i_dropout_choose(fa2i_dropout_threshold threshold, uint32_t word, int32_t row,
                             int32_t column);

/* All of that for one element. It makes the keys anew; the functions above are for many elements. */
bool fa2i_dropout_keeps(float p, uint64_t seed, uint64_t offset, int64_t plane, int32_t row,
                        int32_t column);

void fa2i_philox(uint32_t counter[4], uint32_t key0, uint32_t key1, int rounds);

#endif
