/*
 * Numbers of a problem's dtype as bits. Pure; thread-safe.
 */
#pragma once

#include "fa2.h"

/* Converts between numbers and bits of a dtype of 16 bits. Rounds to nearest, ties to even. NaN stays NaN. */
uint16_t fa2i_to_bits(fa2_dtype dtype, float value);
float fa2i_from_bits(fa2_dtype dtype, uint16_t bits);

/* Writes and reads element `at` of an array of any dtype. The array is aligned to its elements. */
void fa2i_put_number(fa2_dtype dtype, void *elements, size_t at, float value);
float fa2i_get_number(fa2_dtype dtype, const void *elements, size_t at);

/* Reads `count` elements from element `first` on. */
void fa2i_get_numbers(fa2_dtype dtype, const void *elements, size_t first, size_t count, float *out);

float fa2i_rounded(fa2_dtype dtype, float value); /* to the nearest number of the dtype */

/* Returns the bits of a number's digits, with the one before the point. */
int fa2i_significant_bits(fa2_dtype dtype);

/* Returns half a unit in the last place of the dtype at a finite value: the most that rounding may change it. */
double fa2i_half_unit(fa2_dtype dtype, double value);
