/*
 * What runs: a launch of a program on a grid, its blocks, their warps.
 *
 * Warps run one after another in a block, each until it waits or ends; what another order would do is
 * covered by the checks, not by trying. Lanes of a warp run in lockstep under a
 * mask; a divergent branch pushes its sides on a stack, and they meet again at the branch's
 * immediate post-dominator.
 *
 * Errors: the first one stops the launch and is kept in it; handlers return after sim_stop as if
 * nothing had happened. A block belongs to one host thread; a launch is shared by all.
 */
#ifndef SIM_MACHINE_H
#define SIM_MACHINE_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include "memory.h"
#include "program.h"
#include "shadow_pool.h"
#include "wgmma.h"

enum { SIM_STORE_GROUPS = 16 };
enum { SIM_LANES = 32, SIM_STACK_MAX = 160, SIM_MESSAGE_BYTES = 1024, SIM_BARRIERS = 16 };
#define SIM_ALL_LANES 0xffffffffu

/* Where shared memory begins in its window (the first KiB is the system's on real devices), and
 * where the windows are in the generic address space. */
#define SIM_SHARED_BASE   1024u
#define SIM_SHARED_WINDOW 0x7e0000000000u
#define SIM_LOCAL_WINDOW  0x7e1000000000u
#define SIM_PARAM_WINDOW  0x7e2000000000u
#define SIM_WINDOW_BYTES  0x001000000000u

/* Per instruction of the program, summed over all warps. */
typedef struct sim_count {
    uint64_t executed;                     /* by warps */
    uint64_t wavefronts, wavefronts_ideal; /* of shared memory */
    uint64_t sectors, sectors_ideal;       /* of global memory, 32 bytes each */
} sim_count;

typedef struct sim_frame {
    int32_t pc, join;
    uint32_t mask;
} sim_frame;

typedef enum sim_state {
    SIM_RUNS,
    SIM_AT_BARRIER,
    SIM_AT_MBARRIER,
    SIM_AT_REGISTERS, /* for those that others give */
    SIM_ENDED
} sim_state;

/* One cp.async instruction of a warp, until all its lanes have waited for it. */
typedef struct sim_copy {
    uint32_t lanes; /* whose bytes have not landed */
    uint32_t address[SIM_LANES];
    uint32_t group[SIM_LANES]; /* per lane: the commit that it belongs to */
    uint8_t bytes;
    int32_t op;
    uint8_t data[SIM_LANES][16];
} sim_copy;

/* Bulk stores of a thread whose operands have not been read for sure. */
typedef struct sim_stores {
    uint32_t tokens[SIM_STORE_GROUPS]; /* of the groups, the oldest first (shadow.h) */
    unsigned groups;
    bool uncommitted;
    int32_t op; /* the last one */
} sim_stores;

/* Warps that have arrived at a barrier and do not wait there. */
typedef struct sim_arrivals {
    unsigned warps;
    uint32_t threads; /* that meet there */
    sim_clock clock;
} sim_arrivals;

/* A barrier in shared memory (exec_mbarrier.c). */
typedef struct sim_mbarrier {
    uint32_t address; /* in the shared space */
    uint32_t count;   /* arrivals of a phase */
    uint32_t missing; /* of the present one */
    int32_t bytes;    /* that it still waits for; negative: they came before they were announced */
    uint32_t phase;   /* number of the present one */
    uint32_t began;   /* its epoch */
    bool fenced;      /* the asynchronous proxy sees it */
    bool unawaited;   /* nobody has waited for what was loaded in phase `loaded` */
    uint32_t loaded;
    int32_t op;           /* that made it, */
    int maker;            /* in this warp */
    sim_clock open, done; /* what is known behind the present phase, and the one before */
} sim_mbarrier;

struct sim_block;

typedef struct sim_warp {
    uint32_t *file; /* registers */
    uint32_t *predicates;
    const uint32_t *constants;
    uint32_t mask;   /* lanes that execute this instruction */
    uint32_t active; /* lanes on this side of the branches */
    uint32_t alive;  /* lanes that have not ended */
    int32_t pc, next, join;
    sim_state state;
    uint32_t barrier;         /* at which it waits */
    uint32_t barrier_threads; /* that meet there; 0: all of the block */
    unsigned mbarrier;        /* at which it waits: its number */
    uint32_t parity;          /* of the phase for which it does */
    uint64_t refused;   /* mbarriers, a bit each, of which it was told that they are not done */
    unsigned registers; /* per thread, where warps give and take them */
    unsigned wanted_registers;
    sim_frame stack[SIM_STACK_MAX]; /* the sides that wait, innermost last */
    int depth;
    int index; /* in the block */
    uint64_t steps;
    struct sim_block *block;
    uint32_t commits[SIM_LANES]; /* cp.async.commit_group so far */
    sim_copy *copies;
    size_t copy_count, copy_capacity;
    sim_stores stores[SIM_LANES];
    sim_products products;
    uint16_t sync_epoch; /* grows with each bar.warp.sync of the whole warp */
    uint32_t unawaited;  /* lanes for which the launch before may still be at work */
} sim_warp;

typedef struct sim_launch {
    const sim_program *program;
    sim_memory *memory;
    sim_shadow_pool *shadows;
    unsigned grid[3], threads[3];
    unsigned thread_count, warp_count, block_count;
    uint32_t shared_bytes; /* static and dynamic */
    const uint8_t *params;
    unsigned registers; /* per thread */
    uint64_t budget;    /* instructions per warp */
    bool early;         /* the launch before may still be at work */
    bool reverse;       /* the last block begins first, and in a block the last warp */
    bool spoil;         /* a fault on demand: stores to global memory are wrong */
    uint32_t serial;    /* of the launch, for the shadow of global memory */
    atomic_uint next_block;
    atomic_bool stopped;
    pthread_mutex_t lock; /* of what follows */
    CUresult error;
    char message[SIM_MESSAGE_BYTES];
    sim_count *counts; /* [op_count]; added to when a worker ends */
} sim_launch;

typedef struct sim_block {
    sim_launch *launch;
    const sim_program *program;
    unsigned index, place[3];
    sim_warp *warps;
    uint8_t *shared; /* [launch->shared_bytes] */
    sim_shadow shadow;
    sim_arrivals arrivals[SIM_BARRIERS];
    sim_mbarrier mbarriers[SIM_MBARRIERS];
    unsigned mbarrier_count;
    uint32_t mbarriers_begin, mbarriers_end; /* they lie between, in the shared space */
    unsigned free_registers;                 /* that warps have given, of 32 threads each */
    uint8_t *local;                          /* [thread][local_bytes] */
    sim_count *counts;                       /* of this host thread */
} sim_block;

static inline unsigned sim_mbarrier_number(const sim_block *block, const sim_mbarrier *mbarrier)
{
    return (unsigned)(mbarrier - block->mbarriers);
}

/* Run a whole launch on up to host_threads threads of the host. The result is in launch->error. */
void sim_run(sim_launch *launch, unsigned host_threads);

/* Run the block from its beginning; its memory is the worker's. */
void sim_run_block(sim_block *block, unsigned index);

/* ---- waiting (waiting.c) ---- */

/* Begin a block: nobody has arrived anywhere. */
void sim_waiting_begin(sim_block *block);

/* Can a warp that waits go on? Then it runs. */
bool sim_wake(sim_warp *warp);

/* A warp arrives at a barrier; waits: it stays. Opens it if that was the last one, where somebody has only
 * arrived. */
void sim_arrive(sim_warp *warp, uint32_t barrier, uint32_t threads, bool waits);

/* No warp can go on: open the barriers that are complete. If there is none, the launch is stopped. */
void sim_open_barriers(sim_block *block);

/* All warps have ended: has the block left something under way? Then the launch is stopped. */
void sim_waiting_end(sim_block *block);

/* Lanes of a warp when it begins. */
uint32_t sim_lanes_at_start(const sim_launch *launch, unsigned warp);

/* The mbarrier at an address, on which all lanes that execute agree; NULL: the launch is stopped. */
sim_mbarrier *sim_mbarrier_at(sim_warp *warp, const uint64_t address[SIM_LANES]);

/* An mbarrier in a range of shared memory; NULL: there is none. */
const sim_mbarrier *sim_mbarrier_in(const sim_block *block, uint32_t address, unsigned bytes);

/* Bytes that an mbarrier was told of have come. */
void sim_mbarrier_complete(sim_warp *warp, sim_mbarrier *mbarrier, uint32_t bytes);

/* The asynchronous proxy sees the mbarriers that the warp made. */
void sim_mbarriers_fence(sim_warp *warp);
/* What the warp read by ldmatrix is in its registers. */
void sim_late_taken(sim_warp *warp);

/* Lanes end. false: their bulk stores may still read; the launch is stopped. */
bool sim_stores_done(sim_warp *warp, uint32_t lanes);

/* A fault on demand: every number that reaches global memory is another one. */
void sim_spoil(uint8_t *at, unsigned bytes);

/* What a lane's cp.async have not yet put into shared memory comes there, as loads that arrive at an
 * mbarrier in the phase that began in an epoch. */
void sim_copies_land_at(sim_warp *warp, int lane, unsigned mbarrier, uint32_t began);

/* ---- for handlers ---- */

/* Stop the launch with an error: the message names kernel, block, thread and source, then says
 * what. lane < 0: the whole warp. */
void sim_stop(sim_warp *warp, int lane, CUresult error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* "fwd_sm80: fill.cu.in:26 (in fwd.cu.in:203): cp.async...": where an instruction comes from. _place: without
 * its text, if it has lines of a source. */
void sim_describe(const sim_program *program, int32_t op, char *out, size_t bytes);
void sim_describe_place(const sim_program *program, int32_t op, char *out, size_t bytes);

static inline const uint32_t *sim_source(const sim_warp *w, int32_t operand)
{
    return operand >= 0 ? w->file + operand : w->constants + ~operand;
}

static inline const uint64_t *sim_source_64(const sim_warp *w, int32_t operand)
{
    return (const void *)sim_source(w, operand);
}

static inline bool sim_lane(uint32_t mask, int lane)
{
    return mask >> lane & 1;
}

static inline int sim_first_lane(uint32_t mask)
{
    return mask == 0 ? -1 : __builtin_ctz(mask);
}

static inline int sim_bits(uint32_t mask)
{
    return __builtin_popcount(mask);
}

/* Write a register in the lanes that execute. */
static inline void sim_put(sim_warp *w, int32_t operand, const uint32_t value[SIM_LANES])
{
    uint32_t *out = w->file + operand;
    if (w->mask == SIM_ALL_LANES) {
        for (int l = 0; l < SIM_LANES; l++)
            out[l] = value[l];
        return;
    }
    for (int l = 0; l < SIM_LANES; l++)
        out[l] = sim_lane(w->mask, l) ? value[l] : out[l];
}

static inline void sim_put_64(sim_warp *w, int32_t operand, const uint64_t value[SIM_LANES])
{
    uint64_t *out = (void *)(w->file + operand);
    for (int l = 0; l < SIM_LANES; l++)
        out[l] = sim_lane(w->mask, l) ? value[l] : out[l];
}

static inline uint32_t sim_predicate(const sim_warp *w, const sim_op *op, int source)
{
    const uint32_t value = w->predicates[op->src[source]];
    return op->negated >> source & 1 ? ~value : value;
}

static inline void sim_put_predicate(sim_warp *w, int32_t predicate, uint32_t value)
{
    w->predicates[predicate] = (w->predicates[predicate] & ~w->mask) | (value & w->mask);
}

static inline sim_count *sim_counter(const sim_warp *w)
{
    return &w->block->counts[w->pc];
}

static inline unsigned sim_thread(const sim_warp *w, int lane)
{
    return (unsigned)(w->index * SIM_LANES + lane);
}

/* The addresses of memory argument `which`, whose base is source `source`. */
void sim_addresses(const sim_warp *w, const sim_op *op, int which, int source,
                   uint64_t out[SIM_LANES]);

#endif
