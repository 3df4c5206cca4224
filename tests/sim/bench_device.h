/*
 * Small kernels on the software device, for the device's own tests: open a card, run a PTX body on vectors of 32-bit
 * words, inspect the error and its message.
 *
 * The kernel is k(in, out), one-dimensional. A body may use the registers %p<16>, %h<16> (16 bits), %r<64>, %f<64>,
 * %rd<32>, and shared memory `smem`. Before the body, with i = thread % 32:
 *   %r0            the thread in the block
 *   %r1 ... %r4    in[i], in[i + 32], in[i + 64], in[i + 96]
 *   %rd1, %rd2     the addresses of in[i] and out[thread in the grid]
 * After the body, %r10 ... %r13 are stored to out[thread], out[thread + threads], ...
 */
#pragma once

#include "tests/sim/sim.h"

enum { BENCH_IN_WORDS = 128 };

typedef struct bench_run {
    const char *body;
    int target;                             /* 75, 80, 90 (sm_90a); 0: 80 */
    unsigned blocks, threads, shared_bytes; /* 0: 1 block, 32 threads */
    const uint32_t *in;                     /* [BENCH_IN_WORDS]; NULL: zeros */
    uint32_t *out;                          /* [4 * blocks * threads]; NULL: not wanted */
} bench_run;

/* Opens a card without errors or objects of earlier runs. Ends the test if that fails. */
void bench_open(const char *card);

/* Starts with the current environment, which must be refused. Returns the message, "" if it is not refused. cuInit was
 * called before. */
const char *bench_start_refused(void);

/* Loads, launches, waits and reads. Returns the error of the first call that fails. */
CUresult bench_launch(const bench_run *run);

/* The same for a whole PTX module with an entry k(in, out). The last arguments are the words of `in` and `out`. */
CUresult bench_module(const char *ptx, unsigned blocks, unsigned threads, unsigned shared_bytes, size_t in_words,
                      size_t out_words);

/* The same with given contents of `in`, and a result in `out`. */
CUresult bench_module_of(const char *ptx, unsigned threads, unsigned shared_bytes, const uint32_t *in, size_t in_words,
                         uint32_t *out, size_t out_words);

/* Fill with numbers for the lanes, the same for each seed: any bits; floats around 1; packed halves around 1. */
void bench_bits(uint32_t out[BENCH_IN_WORDS], uint64_t seed);
void bench_floats(uint32_t out[BENCH_IN_WORDS], uint64_t seed);
void bench_halves(uint32_t out[BENCH_IN_WORDS], bool bf16, uint64_t seed);

/* Returns the value of such a half. */
double bench_half_value(uint32_t bits, bool bf16);
