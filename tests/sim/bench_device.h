/*
 * Small kernels on the software device, for its own tests: open a card, run a body of PTX over
 * vectors of 32-bit words, see the error and its message.
 *
 * The kernel is k(in, out), one dimension. Registers that a body may use: %p<16>, %h<16> (16 bits),
 * %r<64>, %f<64>, %rd<32>; shared memory is `smem`. Before the body, %r0 is the thread in the
 * block, %r1 ... %r4 are in[i], in[i + 32], in[i + 64], in[i + 96] (i: the thread % 32), %rd1 and
 * %rd2 the addresses of in[i] and out[thread of the grid]; behind it %r10 ... %r13 go to out[..], 4
 * words apart by the number of threads.
 */
#ifndef SIM_BENCH_DEVICE_H
#define SIM_BENCH_DEVICE_H

#include "tests/sim/sim.h"

enum { BENCH_IN_WORDS = 128 };

typedef struct bench_run {
    const char *body;
    int target;                             /* 75, 80, 90 (sm_90a); 0: 80 */
    unsigned blocks, threads, shared_bytes; /* 0: 1 block, 32 threads */
    const uint32_t *in;                     /* [BENCH_IN_WORDS]; NULL: zeros */
    uint32_t *out;                          /* [4 * blocks * threads]; NULL: not wanted */
} bench_run;

/* Begin with a card, without errors and objects of before. Ends the test if that fails. */
void bench_open(const char *card);

/* Begin with the environment as it is, which must be refused: what is said of it; "" if it is not
 * refused. cuInit was called before. */
const char *bench_start_refused(void);

/* Load, launch, wait, read. The error of the first call that fails. */
CUresult bench_launch(const bench_run *run);

/* The same for a whole PTX module with an entry k(in, out), the words of both given. */
CUresult bench_module(const char *ptx, unsigned blocks, unsigned threads, unsigned shared_bytes,
                      size_t in_words, size_t out_words);

/* The same, with what is in `in`, and out for what comes out. */
CUresult bench_module_of(const char *ptx, unsigned threads, unsigned shared_bytes,
                         const uint32_t *in, size_t in_words, uint32_t *out, size_t out_words);

/* Numbers for the lanes, always the same: any bits; floats about 1; packed halves about 1. */
void bench_bits(uint32_t out[BENCH_IN_WORDS], uint64_t seed);
void bench_floats(uint32_t out[BENCH_IN_WORDS], uint64_t seed);
void bench_halves(uint32_t out[BENCH_IN_WORDS], bool bf16, uint64_t seed);

/* What such a half means. */
double bench_half_value(uint32_t bits, bool bf16);

#endif
