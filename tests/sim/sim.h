/*
 * What the software device exports beside the driver API: what it knows about the last launch. For
 * tests that link or load it, and for programs that want to know that this is no real device.
 *
 * Of several devices, that whose context is current in the calling thread is meant; without one,
 * the first. Not thread-safe against launches from other threads.
 */
#ifndef SIM_H
#define SIM_H

#include "model.h"

#define SIM_API __attribute__((visibility("default")))

/* The version of this interface, > 0: a driver that has this function is a software device, and its
 * times are modelled. */
SIM_API CUresult CUDAAPI fa2_sim_version(int *version);

/* Why the last error was: kernel, block, thread, source, both parties. "" if there was none. */
SIM_API const char *fa2_sim_message(void);

/* Sums of the launches that ended well since the last call, and the time of the last of them. */
SIM_API void fa2_sim_totals(sim_totals *ret_totals, double *ret_us);

/* Lines "file:line executed wavefronts/ideal sectors/ideal text" of the last launch, for the source
 * lines that touch memory. out is NUL-terminated in any case; returns the bytes wanted. */
SIM_API size_t fa2_sim_lines(char *out, size_t bytes);

/* Whether to note, from now on, which instructions are executed; either way, what was noted is
 * forgotten. A branch, which has a condition, is executed when it is taken. */
SIM_API void fa2_sim_cover(int wanted);

/* Lines "file:line executed/instructions taken/branches example", in no order: for each line of the
 * source how many instructions come from it, over the kernels that were launched, and how many of them
 * were executed in any launch; of branches how many were taken; and one that was not. What is loaded
 * now begins anew. As fa2_sim_lines. */
SIM_API size_t fa2_sim_coverage(char *out, size_t bytes);

/* Begin anew: read FA2_SIM_CARD and FA2_SIM_FAULT again, forget errors; cuInit stays done. Nothing
 * may be alive. */
SIM_API void fa2_sim_reset(void);

/* Objects and allocations that were made and not released. */
SIM_API size_t fa2_sim_live(void);

#endif
