/*
 * Faults on demand. FA2_SIM_FAULT is a list "kind=n,kind=n", n counted from 1 over all cards:
 *   alloc=n    the nth allocation fails (out of memory)
 *   load=n     the nth module is refused
 *   fault=n    the nth launch ends with an illegal address, which is sticky
 *   hang=n     the nth launch never ends
 *   wrong=n    the nth launch writes wrong numbers
 *   lost=n     the device is lost at the nth launch
 *   memory=n   each card has n bytes of memory
 * Each process counts for itself. fa2-tune runs kernels in a worker, and starts a new one after
 * each failure: lost=1 hits every worker at its first launch, and every variant gets the blame.
 * With FA2_SIM_FAULT_COUNTS=file the counts go on across all processes that share the file, which
 * is made if need be, so that the fault comes once; to begin anew, remove the file. fa2-tune
 * remembers a bad kernel in its database: to try it again, take a new database.
 *
 * load=1 leaves no trace where fa2-tune verifies or times several kernels. An image that is refused
 * before the driver has taken any may be the driver's fault, so that kernel is loaded again (for the
 * next case, or when another was), and then it is taken. load=2 refuses the second kernel for good.
 *
 * Called under the driver's lock.
 */
#ifndef SIM_FAULTS_H
#define SIM_FAULTS_H

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

/* Read the environment. false: it is not understood, or the file does not open, as message says. */
bool sim_faults_read(char *message, size_t bytes);

/* A number > 0 of that many digits, behind which text ends or has a comma. Every number of the
 * environment is read with it. false: it is none, *ret_number is untouched. */
bool sim_number_read(const char *text, size_t length, int64_t *ret_number);

/* Count one occasion for a kind. true: this is the one that fails. */
bool sim_fault_due(sim_fault kind);

/* The n of a kind; 0: not wanted. */
int64_t sim_fault_number(sim_fault kind);

#endif
