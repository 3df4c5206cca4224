/*
 * The state of a card while it is measured, by NVML (libnvidia-ml.so.1, loaded at run time): clocks, temperature,
 * causes of lower clocks, energy. Missing values are unknown; nothing fails because of them. FA2_NVML_LIBRARY may name
 * the library. Not thread-safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed: NVML is not available. */
typedef struct fa2i_nvml {
    void *library, *device;
    char why[256];   /* why it is not available */
    char driver[80]; /* "580.159.03", or "" */
} fa2i_nvml;

/* Finds the device with this UUID, as the CUDA driver gives it. device stays NULL if it is not found. */
void fa2i_nvml_open(const unsigned char uuid[16], fa2i_nvml *ret_nvml);
void fa2i_nvml_close(fa2i_nvml *nvml); /* accepts zeroed objects */

/* The range of values over all readings. Zeroed: there was no reading. */
typedef struct fa2i_conditions {
    size_t looks;
    unsigned sm_mhz_least, sm_mhz_most, memory_mhz; /* 0: not known */
    unsigned celsius_least, celsius_most;           /* 0: not known */
    uint64_t held_back;                             /* causes, as NVML's bits, at any reading */
} fa2i_conditions;

void fa2i_nvml_look(const fa2i_nvml *nvml, fa2i_conditions *conditions);

/* Writes the causes that slow a busy card down: "power cap, thermal slowdown", or "". */
void fa2i_held_back_text(uint64_t held_back, char *out, size_t out_bytes);

/* Reads the energy that the card has used since some fixed time, in mJ. Returns false if it does not count energy. */
bool fa2i_nvml_energy(const fa2i_nvml *nvml, uint64_t *ret_mj);
