/*
 * What a file of `fa2-tune bench --format json`, or a field report, says of a card: its ceilings, and the times of
 * naive attention, which no database holds.
 *
 * FA2_E_INVALID: the file is neither, or cannot be read. Not thread-safe.
 */
#ifndef FA2I_BENCHMARK_FILE_H
#define FA2I_BENCHMARK_FILE_H

#include "tuner/report/gather.h"

/* Fill ceilings (device, name, unit, rate) and naive (device, shape, median_us) of what was gathered, which the
 * caller owns also after an error. */
fa2_status fa2i_benchmark_file_read(const char *path, fa2i_gathered *gathered);

#endif
