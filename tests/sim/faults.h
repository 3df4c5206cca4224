/*
 * Injected faults. FA2_SIM_FAULT is a list "kind=n,kind=n"; n counts from 1 over all cards:
 *   alloc=n    the nth allocation fails (out of memory)
 *   load=n     the nth module is refused
 *   fault=n    the nth launch ends with an illegal address, a sticky error
 *   hang=n     the nth launch never ends
 *   wrong=n    the nth launch writes wrong numbers
 *   lost=n     the device is lost at the nth launch
 *   memory=n   each card has n bytes of memory
 * Each process counts separately. fa2-tune runs kernels in a worker, and starts a new one after each failure. So lost=1
 * hits every worker at its first launch, and every variant is blamed. With FA2_SIM_FAULT_COUNTS=file, all processes
 * that share the file count together, so the fault comes once. The file is created if necessary; remove it to start
 * anew. fa2-tune remembers a bad kernel in its database: to try the kernel again, use a new database.
 *
 * load=1 has no lasting effect when fa2-tune verifies or times several kernels. If an image is refused before the
 * driver has accepted any, the driver may be at fault. So that kernel is loaded again later, for the next case or after
 * another kernel was loaded, and then it is accepted. load=2 refuses the second kernel for good.
 *
 * Call these functions under the driver's lock.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum sim_fault {
    SIM_FAULT_ALLOC,
    SIM_FAULT_LOAD,
    SIM_FAULT_FAULT,
    SIM_FAULT_HANG,
    SIM_FAULT_WRONG,
    SIM_FAULT_LOST,
    SIM_FAULT_MEMORY,
    SIM_FAULTS
} sim_fault;

/* Reads the environment. Returns false if it is invalid or the file cannot be opened; the message says why. */
bool sim_faults_read(char *message, size_t bytes);

/* Reads a number > 0 of `length` digits, followed by a comma or the end of the text. All numbers of the environment are
 * read by it. Returns false, and leaves *ret_number, if it is no such number. */
bool sim_number_read(const char *text, size_t length, int64_t *ret_number);

/* Counts one occasion of a kind. Returns true if it is the one that fails. */
bool sim_fault_due(sim_fault kind);

/* Returns the n of a kind, 0 if it was not given. */
int64_t sim_fault_number(sim_fault kind);
