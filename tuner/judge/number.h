/*
 * Numbers of a problem's dtype as bits. Pure; thread-safe.
 */
#ifndef FA2I_NUMBER_H
#define FA2I_NUMBER_H

#include "fa2.h"

/* Bits of the dtype and numbers. Rounds to nearest, ties to even; NaN stays NaN. */
uint16_t fa2i_to_bits(fa2_dtype dtype, float value);
float fa2i_from_bits(fa2_dtype dtype, uint16_t bits);

void fa2i_from_all_bits(fa2_dtype dtype, const uint16_t *bits, size_t count, float *out);

float fa2i_rounded(fa2_dtype dtype, float value); /* to the nearest number of the dtype */

/* Half a unit in the last place of the dtype's numbers around a finite value: as far as rounding may move it. */
double fa2i_half_unit(fa2_dtype dtype, double value);

#endif
