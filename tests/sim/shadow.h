/*
 * What the device remembers about each 4-byte word of a block's shared memory: who wrote it and
 * when, who read it and when, whether a copy is on its way into it. From this it tells
 * uninitialised reads, races, early use of what is copied, and missing fences between proxies. Four words
 * side by side are remembered as one as long as each access takes all of them.
 *
 * Who does something is a column: each warp by its own instructions (the generic proxy), and, through
 * the asynchronous one, its products (wgmma), its stores (bulk copies to global memory), and the loads
 * that arrive at an mbarrier.
 *
 * Time: the block's epoch grows with each event that orders something, and an access has the epoch in
 * which it happened; what a load writes has the epoch in which the phase of its mbarrier began. Per warp
 * a clock says before which epoch the accesses of each column are ordered before what the warp does
 * now, and which writes of other warps are, by a proxy fence, seen by the asynchronous proxy. Barriers
 * and mbarriers hand clocks on. Accesses by threads of one warp are also ordered if a bar.warp.sync lies
 * between. Epochs never start again, so a new block finds the words of the old one unwritten.
 *
 * Lanes that waited at an mbarrier without the others of their warp are ahead of these until the warp meets
 * again. Those that waited for different phases count as one.
 *
 * Words that ldmatrix reads come when they come: where a warp arrives at an mbarrier before it has used
 * them (late.c), the read is not ordered before a load of a tensor's or of bytes into the same place.
 *
 * Not told apart: which lanes of a warp have waited for their stores; other reads before a load into the
 * same place need no proxy fence.
 *
 * Not thread-safe: a block belongs to one host thread.
 */
#ifndef SIM_SHADOW_H
#define SIM_SHADOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIM_SHADOW_WARPS = 32, SIM_MBARRIERS = 64 };

/* The columns of a clock; a kind of reader has one for each warp. */
typedef enum sim_reader {
    SIM_BY_WARP,
    SIM_BY_PRODUCTS,
    SIM_BY_STORES,
    SIM_BY_MATRICES, /* ldmatrix once more, whose words are used later; only loads ask for it */
    SIM_READERS
} sim_reader;
enum {
    SIM_LOADS = SIM_READERS * SIM_SHADOW_WARPS, /* and the number of the mbarrier */
    SIM_COLUMNS = SIM_LOADS + SIM_MBARRIERS,
    SIM_FENCED = SIM_SHADOW_WARPS + SIM_MBARRIERS
};

typedef struct sim_clock {
    uint32_t ordered[SIM_COLUMNS]; /* what the column did before this epoch comes before ... */
    /* ... and what the warp, or copies by threads that arrived at the mbarrier, wrote by then is seen by the
     * asynchronous proxy */
    uint32_t fenced[SIM_FENCED];
} sim_clock;

/* One word, or four that are aligned to their size. */
typedef struct sim_word {
    uint32_t write_epoch, read_epoch;
    int32_t write_op, read_op; /* instruction, for messages */
    uint16_t writer; /* thread; or SIM_LOADED and the number of an mbarrier, and SIM_COPIED */
    uint16_t reader, reader_2; /* two threads of one warp that read last, in read_sync */
    uint16_t write_sync, read_sync;
    uint8_t written;               /* bytes written in this block */
    uint8_t last_bytes;            /* bytes of the last write */
    uint8_t read_bytes;            /* bytes of the reads since then */
    bool pending;                  /* a copy that nobody has waited for */
    bool divided;                  /* of four words: each is remembered on its own */
    uint32_t readers[SIM_READERS]; /* warps that read it since the last write */
} sim_word;

enum { SIM_LOADED = 0x8000, SIM_COPIED = 0x4000 };

typedef struct sim_shadow {
    sim_word *words; /* those of 16 bytes, then for each of them four of 4 bytes */
    size_t chunk_count;
    uint32_t *read_epochs[SIM_READERS]; /* [word][warp]; NULL: not needed yet */
    uint32_t epoch, first_epoch;        /* first_epoch: of this block */
    uint32_t whole_barriers;            /* of all warps, in this block */
    uint32_t whole_epoch;               /* of the last one: it orders what warps did themselves before it */
    unsigned warp_count;
    /* By all lanes; and by those that are ahead, if there are such. */
    sim_clock known[SIM_SHADOW_WARPS];
    sim_clock ahead[SIM_SHADOW_WARPS];
    uint32_t ahead_lanes[SIM_SHADOW_WARPS];
    /* Since when no barrier or bar.warp.sync orders the lanes of a warp, and those that have accessed
     * memory since then. */
    uint32_t synced[SIM_SHADOW_WARPS], touched[SIM_SHADOW_WARPS];
} sim_shadow;

typedef enum sim_conflict {
    SIM_NO_CONFLICT,
    SIM_UNWRITTEN,  /* a read of what nobody wrote */
    SIM_WRITE_READ, /* a read of what another thread wrote, no barrier between */
    SIM_READ_WRITE, /* a write of what another thread read */
    SIM_WRITE_WRITE,
    SIM_PENDING, /* the copy into it has not been waited for */
    SIM_LOADING, /* nor the mbarrier at which the load into it arrives */
    SIM_UNFENCED /* asynchronous access to what a thread wrote, no proxy fence between */
} sim_conflict;

typedef struct sim_access {
    unsigned thread;
    uint16_t sync; /* the warp's sync epoch */
    int32_t op;
    bool collective; /* done by the whole warp at once: later accesses of its threads come after it
                      */
    bool all_lanes;  /* takes what all lanes of the warp know */
    sim_reader by;   /* a read: by what of the thread's warp */
    bool loads;  /* a write, by a load that arrives at `mbarrier`, in the phase that began then */
    bool copied; /* such a load is a thread's copy (cp.async) */
    uint16_t mbarrier;
    uint32_t began;
} sim_access;

/* The other party of a conflict. */
typedef struct sim_party {
    unsigned thread; /* for a load: no thread's number */
    int32_t op;
    bool asynchronous; /* it reads through the asynchronous proxy */
} sim_party;

size_t sim_shadow_chunks(size_t shared_bytes);
void sim_shadow_init(sim_shadow *shadow, size_t shared_bytes, unsigned warp_count);
void sim_shadow_done(sim_shadow *shadow);
void sim_shadow_begin_block(sim_shadow *shadow);

/* Those that met, a bit each; what is behind it comes also after what `arrived` knows (NULL: nobody
 * only arrived). */
void sim_shadow_barrier(sim_shadow *shadow, uint32_t warps, const sim_clock *arrived);
/* Lanes of a warp meet; all of those that are alive, or some. */
void sim_shadow_warp_barrier(sim_shadow *shadow, unsigned warp, uint32_t lanes, uint32_t alive);

/* What lanes of a warp know and have done, added to a clock. What others of its lanes (alive) have done
 * since they met last is not released: if there is such, nothing since then is. */
void sim_shadow_release(sim_shadow *shadow, unsigned warp, uint32_t lanes, uint32_t alive,
                        sim_clock *into);
void sim_shadow_acquire(sim_shadow *shadow, unsigned warp, uint32_t lanes, uint32_t alive,
                        const sim_clock *from);
void sim_shadow_merge(sim_clock *into, const sim_clock *from);

/* A fence between the proxies. */
void sim_shadow_fence(sim_shadow *shadow, unsigned warp, uint32_t lanes, uint32_t alive);

/* A token for what was begun up to now; and: what a warp's products, stores or ldmatrix had begun when the
 * token was made has read its operands. */
uint32_t sim_shadow_commit(sim_shadow *shadow);
void sim_shadow_finished(sim_shadow *shadow, unsigned warp, sim_reader by, uint32_t token);

/* Note an access to bytes at byte `at`, which is inside. On a conflict *ret_other is the other
 * party. */
sim_conflict sim_shadow_read(sim_shadow *shadow, const sim_access *access, uint32_t at,
                             unsigned bytes, sim_party *ret_other);
sim_conflict sim_shadow_write(sim_shadow *shadow, const sim_access *access, uint32_t at,
                              unsigned bytes, sim_party *ret_other);

/* The same for 16 bytes, aligned, of each of these lanes in turn: access->thread is theirs, *ret_lane the one that
 * meets a conflict. */
sim_conflict sim_shadow_read_lanes(sim_shadow *shadow, sim_access *access, uint32_t lanes,
                                   const uint32_t at[], int *ret_lane, sim_party *ret_other);

/* A copy: it starts like a write and leaves the words pending; it lands as a write of its thread, or
 * as a load.
 */
sim_conflict sim_shadow_start(sim_shadow *shadow, const sim_access *access, uint32_t at,
                              unsigned bytes, sim_party *ret_other);
void sim_shadow_land(sim_shadow *shadow, const sim_access *access, uint32_t at, unsigned bytes);

#endif
