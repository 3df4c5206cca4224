/*
 * Decides which of a problem's candidates are worth measuring: it finds the candidates that cannot win, and the gain
 * that measuring the others promises. The input is the expected time of each, and how far it may be off.
 *
 * Pure; thread-safe. Times are in us. A doubt is the standard deviation of the time's logarithm. Doubts are taken as
 * independent and normal.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "runtime/lua/generator.h"

typedef struct fa2i_prediction {
    fa2i_judgement judgement;
    bool hopeless; /* result of fa2i_predictions_sort_out */
} fa2i_prediction;

/* A candidate is left out if two conditions hold:
 * - It is slower than the best by more than FA2I_PREDICTION_BEHIND standard deviations of the difference.
 * - Both estimates rest on measurements that are worth at least FA2I_PREDICTION_KNOWN of one of this very problem. The
 *   model alone is fitted to one card, and is no proof.
 * This was replayed in any order on 7372 timings from an H200, all candidates of 182 problems. It leaves out 30 % of
 * them and loses at most 0.3 %. On 3577 timings of 109 other problems it leaves out 29 % and loses at most 1.2 %. */
#define FA2I_PREDICTION_BEHIND 2.5
#define FA2I_PREDICTION_KNOWN  0.05

/* Marks the candidates that cannot win. */
void fa2i_predictions_sort_out(fa2i_prediction *predictions, size_t count);

/* Returns the share of the first choice's time that measuring is expected to save, from 0 to 1. The first choice is the
 * candidate with the least expected time. It would be used without measuring. */
double fa2i_predictions_gain(const fa2i_prediction *predictions, size_t count);

/* Returns the expected time of the first choice; 0 if there is none. */
double fa2i_predictions_us(const fa2i_prediction *predictions, size_t count);
