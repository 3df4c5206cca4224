/*
 * Reads a file of `fa2-tune bench --format json`, or a field report. Both have facts about a card that no database
 * holds: its ceilings, and the times of naive attention.
 *
 * Returns FA2_E_INVALID if the file is neither, or cannot be read. Not thread-safe.
 */
#pragma once

#include "tuner/report/gather.h"

/* Fills ceilings (device, name, unit, rate) and naive (device, shape, median_us) in *gathered. The caller owns them
 * also after an error. */
fa2_status fa2i_benchmark_file_read(const char *path, fa2i_gathered *gathered);

/* Fills *rows with device, shape and median_us of each problem's first kernel, which is the runtime's choice, and with
 * l2 of the benchmark ("warm" or "cold"). Field reports have none: FA2_E_INVALID. *rows must be zeroed; the caller owns it also after an error. */
fa2_status fa2i_benchmark_file_times(const char *path, fa2i_rows *rows);
