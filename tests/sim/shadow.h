/*
 * What the device remembers about each 4-byte word of a block's shared memory: who wrote it and
 * when, who read it and when, whether a copy is on its way into it. From this it tells
 * uninitialised reads, races and early use of cp.async data.
 *
 * Time: the block's epoch grows with each barrier that opens, and an access has the epoch in which
 * it happened. Per pair of warps the shadow knows before which epoch the accesses of the one are
 * ordered before what the other does now: barriers of some warps only move theirs on, and what
 * those had learnt of the rest. Accesses by threads of one warp are also ordered if a bar.warp.sync
 * lies between. Epochs never start again, so a new block finds the words of the old one unwritten.
 *
 * Not thread-safe: a block belongs to one host thread.
 */
#ifndef SIM_SHADOW_H
#define SIM_SHADOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIM_SHADOW_WARPS = 32 };

typedef struct sim_word {
    uint32_t write_epoch, read_epoch;
    int32_t write_op, read_op; /* instruction, for messages */
    uint16_t writer;           /* thread */
    uint16_t reader, reader_2; /* two threads of one warp that read last, in read_sync */
    uint16_t write_sync, read_sync;
    uint32_t read_warps; /* that read it, unless ordered before the last read */
    uint8_t written;     /* bytes written in this block */
    uint8_t last_bytes;  /* bytes of the last write */
    uint8_t read_bytes;  /* bytes of their reads */
    bool pending;        /* a copy that nobody has waited for */
} sim_word;

typedef struct sim_shadow {
    sim_word *words;
    size_t word_count;
    uint32_t epoch, first_epoch; /* first_epoch: of this block */
    uint32_t whole_barriers;     /* of all warps, in this block */
    unsigned warp_count;
    /* [a][b]: what b did before this epoch is ordered before what a does now */
    uint32_t ordered[SIM_SHADOW_WARPS][SIM_SHADOW_WARPS];
} sim_shadow;

typedef enum sim_conflict {
    SIM_NO_CONFLICT,
    SIM_UNWRITTEN,  /* a read of what nobody wrote */
    SIM_WRITE_READ, /* a read of what another thread wrote, no barrier between */
    SIM_READ_WRITE, /* a write of what another thread read */
    SIM_WRITE_WRITE,
    SIM_PENDING /* the copy into it has not been waited for */
} sim_conflict;

typedef struct sim_access {
    unsigned thread;
    uint16_t sync; /* the warp's sync epoch */
    int32_t op;
    bool collective; /* done by the whole warp at once: later accesses of its threads come after it
                      */
} sim_access;

/* The other party of a conflict. */
typedef struct sim_party {
    unsigned thread;
    int32_t op;
} sim_party;

void sim_shadow_init(sim_shadow *shadow, size_t shared_bytes, unsigned warp_count);
void sim_shadow_done(sim_shadow *shadow);
void sim_shadow_begin_block(sim_shadow *shadow);
void sim_shadow_barrier(sim_shadow *shadow, uint32_t warps); /* those that met, a bit each */

/* Note an access to bytes at byte `at`, which is inside. On a conflict *ret_other is the other
 * party. */
sim_conflict sim_shadow_read(sim_shadow *shadow, const sim_access *access, uint32_t at,
                             unsigned bytes, sim_party *ret_other);
sim_conflict sim_shadow_write(sim_shadow *shadow, const sim_access *access, uint32_t at,
                              unsigned bytes, sim_party *ret_other);

/* A copy: it starts like a write and leaves the words pending; it lands as a write of its thread.
 */
sim_conflict sim_shadow_start(sim_shadow *shadow, const sim_access *access, uint32_t at,
                              unsigned bytes, sim_party *ret_other);
void sim_shadow_land(sim_shadow *shadow, const sim_access *access, uint32_t at, unsigned bytes);

#endif
