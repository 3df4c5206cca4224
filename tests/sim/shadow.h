/*
 * What the device remembers about each 4-byte word of a block's shared memory: who wrote it and when, who read it and
 * when, and if a copy into it is on its way. From this it detects uninitialised reads, races, use of copied data before
 * it arrived, and missing proxy fences. Four adjacent words, or two, are kept as one as long as each access covers all
 * of them.
 *
 * An actor is a column. Each warp has a column for its own instructions (the generic proxy), and columns for its
 * asynchronous work: its products (wgmma) and its stores (bulk copies to global memory). Loads that arrive at an
 * mbarrier have a column, too.
 *
 * Time: the block's epoch grows with each event that orders accesses. An access has the epoch in which it happened. A
 * load's write has the epoch in which the phase of its mbarrier began. Each warp has a clock. It says for each column:
 * accesses before which epoch are ordered before what the warp does now. It also says which writes of other warps a
 * proxy fence has made visible to the asynchronous proxy. Barriers and mbarriers pass clocks on. A bar.warp.sync also
 * orders accesses of one warp's threads. Epochs never restart, so a new block finds the words of the old one unwritten.
 *
 * Lanes that waited at an mbarrier without the rest of their warp are ahead of the rest until the warp meets again.
 * Lanes that waited for different phases are treated alike.
 *
 * Words that ldmatrix reads may arrive late. If a warp arrives at an mbarrier before it has used them (late.c), the
 * read is not ordered before a load (of a tensor or of bytes) into the same place.
 *
 * Limits: it does not distinguish which lanes of a warp have waited for their stores. Reads other than ldmatrix need no
 * proxy fence before a load into the same place.
 *
 * Not thread-safe: a block belongs to one host thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIM_SHADOW_WARPS = 32, SIM_MBARRIERS = 64 };

/* The columns of a clock. Each kind of reader has one column per warp. */
typedef enum sim_reader {
    SIM_BY_WARP,
    SIM_BY_PRODUCTS,
    SIM_BY_STORES,
    SIM_BY_MATRICES, /* ldmatrix again, because its words may be used later; only loads check it */
    SIM_READERS
} sim_reader;
enum {
    SIM_LOADS = SIM_READERS * SIM_SHADOW_WARPS, /* plus the number of the mbarrier */
    SIM_COLUMNS = SIM_LOADS + SIM_MBARRIERS,
    SIM_FENCED = SIM_SHADOW_WARPS + SIM_MBARRIERS
};

typedef struct sim_clock {
    uint32_t ordered[SIM_COLUMNS]; /* accesses of the column before this epoch are ordered before now */
    /* The asynchronous proxy sees what the warp wrote before this epoch. The last entries say the same of copies by
     * threads that arrived at an mbarrier. */
    uint32_t fenced[SIM_FENCED];
} sim_clock;

/* One word, or two or four words aligned to their size. */
typedef struct sim_word {
    uint32_t write_epoch;
    uint16_t writer; /* a thread; or SIM_LOADED with the number of an mbarrier, and SIM_COPIED */
    uint16_t write_sync;
    uint8_t written;                  /* mask of the bytes written in this block */
    uint8_t last_bytes;               /* mask of the last write */
    uint8_t read_bytes;               /* mask of the reads since then */
    bool pending;                     /* a copy into it was not waited for yet */
    uint32_t readers[SIM_READERS];    /* mask of the warps that read it since the last write */
    uint32_t read_epoch, other_epoch; /* of the last read by a warp's own instructions, and by other actors */
    int32_t write_op, read_op;        /* instructions, for messages */
    uint16_t reader, reader_2;        /* two threads of the warp that read last, at read_sync */
    uint16_t read_sync;
    uint8_t divided; /* an entry of four words: if its halves, or words, have their own entries */
} sim_word;

enum { SIM_LOADED = 0x8000, SIM_COPIED = 0x4000 };

typedef struct sim_shadow {
    sim_word *words; /* entries of 16 bytes, then four entries of 4 bytes, or of 8 in turn, for each of them */
    size_t chunk_count;
    uint32_t *read_epochs[SIM_READERS]; /* [word][warp]; NULL: not needed yet */
    uint32_t epoch, first_epoch;        /* first_epoch: where this block began */
    uint32_t whole_barriers;            /* barriers of all warps in this block */
    uint32_t whole_epoch;               /* of the last such barrier: it orders all warps' own earlier accesses */
    unsigned warp_count;
    /* The clocks of all lanes, and of lanes that are ahead, if there are any. */
    sim_clock known[SIM_SHADOW_WARPS];
    sim_clock ahead[SIM_SHADOW_WARPS];
    uint32_t ahead_lanes[SIM_SHADOW_WARPS];
    /* The epoch of the last barrier or bar.warp.sync that orders the warp's lanes, and the lanes that have accessed
     * memory since then. */
    uint32_t synced[SIM_SHADOW_WARPS], touched[SIM_SHADOW_WARPS];
} sim_shadow;

typedef enum sim_conflict {
    SIM_NO_CONFLICT,
    SIM_UNWRITTEN,  /* it reads a word that was never written */
    SIM_WRITE_READ, /* it reads what another thread wrote, without a barrier between */
    SIM_READ_WRITE, /* it writes what another thread read, without a barrier between */
    SIM_WRITE_WRITE,
    SIM_PENDING, /* it uses a word before it waited for the copy into it */
    SIM_LOADING, /* it uses a word before it waited for the mbarrier of the load into it */
    SIM_UNFENCED /* an asynchronous access to what a thread wrote, without a proxy fence between */
} sim_conflict;

/* What the writes of one instruction have found, if one clock holds for all of them. Zero it first. */
typedef struct sim_found {
    uint32_t readers[SIM_READERS]; /* reads by these warps before this epoch are ordered before the writes */
    uint32_t before;
    bool has_free;
    sim_word free; /* as it was: the whole of it could be written, and no reader was looked at alone */
} sim_found;

typedef struct sim_access {
    unsigned thread;
    uint16_t sync; /* the warp's sync epoch */
    int32_t op;
    bool collective; /* the whole warp does it at once: later accesses of its threads come after it */
    bool all_lanes;  /* it may use what any lane of the warp has waited for */
    sim_reader by;   /* of a read: which actor of the thread's warp */
    bool loads;      /* a write by a load that arrives at `mbarrier`, in the phase that began in that epoch */
    bool copied;     /* such a load that is a thread's own copy (cp.async) */
    uint16_t mbarrier;
    uint32_t began;
    /* Of several reads of one instruction, the same place for all of them: a word of which the rules allowed a read.
     * They are not asked again for words that were written at the same time. */
    const sim_word **allowed;
    sim_found *found; /* of several writes of one instruction, the same place for all of them; or NULL */
} sim_access;

/* The other access of a conflict. */
typedef struct sim_party {
    unsigned thread; /* of a load: not a thread's number */
    int32_t op;
    bool asynchronous; /* it reads by the asynchronous proxy */
} sim_party;

size_t sim_shadow_chunks(size_t shared_bytes);
void sim_shadow_init(sim_shadow *shadow, size_t shared_bytes, unsigned warp_count);
void sim_shadow_done(sim_shadow *shadow);
void sim_shadow_begin_block(sim_shadow *shadow);

/* A barrier of these warps (a bit mask). Later accesses also come after what `arrived` knows: warps that arrived
 * without waiting. NULL: there are none. */
void sim_shadow_barrier(sim_shadow *shadow, uint32_t warps, const sim_clock *arrived);
/* Some or all living lanes of a warp meet. */
void sim_shadow_warp_barrier(sim_shadow *shadow, unsigned warp, uint32_t lanes, uint32_t alive);

/* Adds to a clock what these lanes know and have done. If other living lanes of the warp have accessed memory since
 * they last met, then nothing since that meeting is added. */
void sim_shadow_release(sim_shadow *shadow, unsigned warp, uint32_t lanes, uint32_t alive, sim_clock *into);
void sim_shadow_acquire(sim_shadow *shadow, unsigned warp, uint32_t lanes, uint32_t alive, const sim_clock *from);
void sim_shadow_merge(sim_clock *into, const sim_clock *from);

/* A proxy fence. */
void sim_shadow_fence(sim_shadow *shadow, unsigned warp, uint32_t lanes, uint32_t alive);

/* commit returns a token for all work begun up to now. finished: the warp's products, stores or ldmatrix begun before
 * the token have read their operands. */
uint32_t sim_shadow_commit(sim_shadow *shadow);
void sim_shadow_finished(sim_shadow *shadow, unsigned warp, sim_reader by, uint32_t token);

/* Record an access to bytes at offset `at`, inside the memory. On a conflict *ret_other is the other access. */
sim_conflict sim_shadow_read(sim_shadow *shadow, const sim_access *access, uint32_t at, unsigned bytes,
                             sim_party *ret_other);
sim_conflict sim_shadow_write(sim_shadow *shadow, const sim_access *access, uint32_t at, unsigned bytes,
                              sim_party *ret_other);

/* A copy. start checks it like a write and makes its words pending. land records it as a write of its thread, or as a
 * load. */
sim_conflict sim_shadow_start(sim_shadow *shadow, const sim_access *access, uint32_t at, unsigned bytes,
                              sim_party *ret_other);
void sim_shadow_land(sim_shadow *shadow, const sim_access *access, uint32_t at, unsigned bytes);

/* Lanes that access 4, 8 or 16 aligned bytes each. */
typedef struct sim_lanes {
    uint32_t mask;
    unsigned bytes;
    uint32_t at[32]; /* 0 of other lanes */
} sim_lanes;

/* The same for lanes in turn. access->thread is set for each; *ret_lane is the lane with the conflict. */
typedef sim_conflict (*sim_note_lanes)(sim_shadow *shadow, sim_access *access, const sim_lanes *lanes, int *ret_lane,
                                       sim_party *ret_other);
sim_conflict sim_shadow_read_lanes(sim_shadow *shadow, sim_access *access, const sim_lanes *lanes, int *ret_lane,
                                   sim_party *ret_other);
sim_conflict sim_shadow_write_lanes(sim_shadow *shadow, sim_access *access, const sim_lanes *lanes, int *ret_lane,
                                    sim_party *ret_other);
sim_conflict sim_shadow_start_lanes(sim_shadow *shadow, sim_access *access, const sim_lanes *lanes, int *ret_lane,
                                    sim_party *ret_other);
void sim_shadow_land_lanes(sim_shadow *shadow, sim_access *access, const sim_lanes *lanes);
