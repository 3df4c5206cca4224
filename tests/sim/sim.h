/*
 * Functions that the software device exports beside the driver API: facts about the last launch. They are for tests
 * that link or load it, and for programs that must know that this is no real device.
 *
 * With several devices, they mean the device whose context is current in the calling thread, else the first one. They
 * must not run during launches from other threads.
 */
#pragma once

#include "model.h"

#define SIM_API __attribute__((visibility("default")))

/* Stores the version of this interface, > 0. A driver that has this function is a software device, and its times are
 * modelled. */
SIM_API CUresult CUDAAPI fa2_sim_version(int *version);

/* Returns the cause of the last error: kernel, block, thread, source, both accesses. "" if there was none. */
SIM_API const char *fa2_sim_message(void);

/* Stores the sums of the launches that ended without error since the last call, and the time of the last of them. */
SIM_API void fa2_sim_totals(sim_totals *ret_totals, double *ret_us);

/* Writes lines "file:line executed wavefronts/ideal sectors/ideal text" of the last launch, for source lines that
 * access memory. out is always NUL-terminated. Returns the number of bytes needed. */
SIM_API size_t fa2_sim_lines(char *out, size_t bytes);

/* Starts or stops counting executed instructions. Both forget earlier counts. A conditional branch counts as executed
 * when it is taken. */
SIM_API void fa2_sim_cover(int wanted);

/* Writes lines "file:line executed/instructions taken/branches example", unordered, one for each source line: how many
 * instructions of all launched kernels come from it, and how many of them were ever executed; how many branches were
 * taken; and an instruction that was not executed. Modules that are loaded now start at 0. Otherwise as
 * fa2_sim_lines. */
SIM_API size_t fa2_sim_coverage(char *out, size_t bytes);

/* Reads FA2_SIM_CARD and FA2_SIM_FAULT again and forgets errors. cuInit stays called. No object may be alive. */
SIM_API void fa2_sim_reset(void);

/* Returns the number of unreleased objects and allocations. */
SIM_API size_t fa2_sim_live(void);
