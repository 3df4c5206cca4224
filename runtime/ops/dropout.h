/*
 * Which elements of P dropout keeps: a function of seed, offset, batch, head, row and column alone.
 *
 * Philox4x32 with 7 rounds (Salmon et al. 2011), key = seed, counter = {low half of the offset,
 * row / 16 * 32 + row % 8 * 4 + column / 2 % 4, high half of the offset xor (batch * heads_q + head), column / 32}. Of
 * what comes out, x, byte column / 8 % 2 * 2 + column % 2 of x[column / 16 % 2 * 2 + row / 8 % 2] is the element's. It
 * is kept if that is at least the threshold, the probability times 256, rounded, at most 255.
 *
 * Pure; thread-safe.
 */
#ifndef FA2I_OPS_DROPOUT_H
#define FA2I_OPS_DROPOUT_H

#include <stdbool.h>
#include "fa2.h"

/* 0 ... 255; p is in [0, 1). */
int fa2i_dropout_threshold(float p);

/* What kept elements are multiplied by. */
double fa2i_dropout_scale(int threshold);

/* What a kernel adds to 1024 + byte, in fp16: at least 1 if that is not below the threshold, otherwise at most 0. The
 * number's bits, twice. */
uint32_t fa2i_dropout_bound(int threshold);

/* plane: batch * heads_q + head. */
bool fa2i_dropout_keeps(int threshold, uint64_t seed, uint64_t offset, int64_t plane, int32_t row,
                        int32_t column);

void fa2i_philox(uint32_t counter[4], uint32_t key0, uint32_t key1, int rounds);

#endif
