/*
 * The state of a card while it is measured, by NVML (libnvidia-ml.so.1, loaded at run time): clocks,
 * temperature, what holds clocks back, energy. Whatever of it is not there is said to be unknown; nothing
 * fails for it. FA2_NVML_LIBRARY can name the library. Not thread-safe.
 */
#ifndef FA2I_NVML_H
#define FA2I_NVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed: there is none. */
typedef struct fa2i_nvml {
    void *library, *device;
    char why[256];   /* it is not there */
    char driver[80]; /* "580.159.03"; "" */
} fa2i_nvml;

/* Find the device of this UUID, as the CUDA driver gives it. Whether it was found: device != NULL. */
void fa2i_nvml_open(const unsigned char uuid[16], fa2i_nvml *ret_nvml);
void fa2i_nvml_close(fa2i_nvml *nvml); /* zeroed objects are fine */

/* Between the first look and the last one. Zeroed: nobody looked. */
typedef struct fa2i_conditions {
    size_t looks;
    unsigned sm_mhz_least, sm_mhz_most, memory_mhz; /* 0: not known */
    unsigned celsius_least, celsius_most;           /* 0: not known */
    uint64_t held_back;                             /* reasons, bits of NVML, at any look */
} fa2i_conditions;

void fa2i_nvml_look(const fa2i_nvml *nvml, fa2i_conditions *conditions);

/* "power cap, thermal slowdown" of what slows a busy card down; "" for nothing. */
void fa2i_held_back_text(uint64_t held_back, char *out, size_t out_bytes);

/* Energy that the card has taken since some time, in mJ; false: it does not count. */
bool fa2i_nvml_energy(const fa2i_nvml *nvml, uint64_t *ret_mj);

#endif
