/*
 * Faults on demand. FA2_SIM_FAULT is a list "kind=n,kind=n", n counted from 1 over all cards:
 *   alloc=n    the nth allocation fails (out of memory)
 *   load=n     the nth module is refused
 *   fault=n    the nth launch ends with an illegal address, which is sticky
 *   hang=n     the nth launch never ends
 *   wrong=n    the nth launch writes wrong numbers
 *   lost=n     the device is lost at the nth launch
 *   memory=n   each card has n bytes of memory
 * With FA2_SIM_FAULT_COUNTS=file the counts go on across the processes that share the file.
 *
 * Called under the driver's lock.
 */
#ifndef SIM_FAULTS_H
#define SIM_FAULTS_H

#include <stdbool.h>
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

/* Read the environment. false: FA2_SIM_FAULT is not understood, and *ret_part is the part. */
bool sim_faults_read(const char **ret_part);

/* Count one occasion for a kind. true: this is the one that fails. */
bool sim_fault_due(sim_fault kind);

/* The n of a kind; 0: not wanted. */
int64_t sim_fault_number(sim_fault kind);

#endif
