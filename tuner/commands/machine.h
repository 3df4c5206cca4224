/*
 * The parts of CUDA on this machine: the driver, NVRTC and the devices. Something that is missing is a finding, not an
 * error: its message is kept.
 */
#pragma once

#include "runtime/cuda/device.h"

enum { FA2I_MACHINE_ARCHS_MAX = 64 };

typedef struct fa2i_found {
    fa2_status status;
    char message[FA2I_MESSAGE_BYTES]; /* why it is missing */
} fa2i_found;

typedef struct fa2i_machine_device {
    fa2i_card card;
    int64_t memory_bytes;
    fa2i_found state; /* FA2_OK and a new enough SM: usable */
} fa2i_machine_device;

typedef struct fa2i_machine {
    fa2i_found driver, nvrtc;
    int driver_version; /* 1000 * major + 10 * minor of the CUDA version that it supports */
    int nvrtc_version;
    int archs[FA2I_MACHINE_ARCHS_MAX]; /* those that NVRTC compiles for */
    int arch_count;
    fa2i_machine_device *devices; /* owned */
    int device_count, usable;
} fa2i_machine;

/* Looks everything up. FA2_E_MEMORY alone. The caller calls fa2i_machine_done. */
fa2_status fa2i_machine_look(fa2i_machine *ret_machine);
void fa2i_machine_done(fa2i_machine *machine);

/* Prints the libraries, and a table of the devices, on stdout. */
fa2_status fa2i_machine_print(const fa2i_machine *machine);
