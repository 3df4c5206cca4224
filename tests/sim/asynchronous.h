/*
 * Small kernels of sm_90a for the tests of asynchronous instructions: a PTX body that uses shared memory, two mbarriers
 * and a tensor map.
 *
 * The kernel is k(map, in, out). A body may use the registers %p<16>, %r<64>, %rd<16>. Before the body:
 *   %r0            the thread
 *   %r20           shared memory, 4096 bytes
 *   %r21, %r22     two mbarriers after it
 *   %r23           the thread's word of shared memory
 *   %r24 ... %r27  in[200] ... in[203]
 *   %rd1, %rd2     in; the thread's word of out
 *   %rd4           the map
 *   %p1, %p5       thread 0; not in the first warp
 * After the body, %r10 is stored to out.
 */
#pragma once

#include "tests/sim/bench_device.h"

enum { ASYNC_IN_WORDS = 256, ASYNC_THREADS_MAX = 288 };

typedef struct async_run {
    const char *bounds; /* .maxntid ...; NULL: none */
    const char *body;
    unsigned threads;
    const CUtensorMap *map; /* NULL: zeros */
    const uint32_t *in;     /* [ASYNC_IN_WORDS] */
    uint32_t *out;          /* [threads] */
} async_run;

/* Loads, launches, waits and reads, on an open device. Returns the error of the first call that fails. */
CUresult async_launch(const async_run *run);

/* Fills `in` with distinct numbers. */
void async_fill(uint32_t in[ASYNC_IN_WORDS]);

#define MAKE_ONLY(count) "@%p1 mbarrier.init.shared::cta.b64 [%r21], " count ";"
#define MAKE(count)      MAKE_ONLY(count) "@%p1 fence.mbarrier_init.release.cluster; bar.sync 0;"
#define EXPECT(bytes)    "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], " bytes ";"
#define LOAD(bytes)                                                                                                    \
    "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r20], "                                  \
    "[%rd1], " bytes ", [%r21];"
#define ARRIVE      "mbarrier.arrive.shared::cta.b64 _, [%r21];"
#define WAIT(phase) "{ again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r21], " phase "; @!%p2 bra again; }"
/* Without a loop: the phase may not be complete. */
#define TRY(phase) "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r21], " phase ";"
/* The same for all arrivals of 64 threads. */
#define AGAIN(bytes) EXPECT(bytes) "@!%p1 " ARRIVE
/* %p3: the first lane of its warp. */
#define LANE_0 "and.b32 %r31, %r0, 31; setp.eq.u32 %p3, %r31, 0;"
#define READ   "ld.shared.b32 %r10, [%r23];"
#define WRITE  "st.shared.b32 [%r23], %r0;"
/* The word of the same lane in the other warp. */
#define READ_OTHER   "xor.b32 %r30, %r23, 128; ld.shared.b32 %r10, [%r30];"
#define FENCE        "fence.proxy.async.shared::cta;"
#define COPY         "cp.async.ca.shared.global [%r23], [%rd1], 4;"
#define COPY_ARRIVES "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r21];"
