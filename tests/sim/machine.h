/*
 * The running state: a launch of a program on a grid, its blocks, their warps.
 *
 * The warps of a block run in turn, each until it waits or ends. Other orders are not tried; the checks find their
 * effects. Lanes of a warp run in lockstep under a mask. A divergent branch pushes its sides on a stack. They meet
 * again at the branch's immediate post-dominator.
 *
 * Errors: the first one stops the launch and is kept in it. After sim_stop, handlers return as usual. A block belongs
 * to one host thread. A launch is shared by all.
 */
#pragma once

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

/* Where shared memory begins in its window (real devices reserve the first KiB), and where the windows are in the
 * generic address space. */
#define SIM_SHARED_BASE   1024u
#define SIM_SHARED_WINDOW 0x7e0000000000u
#define SIM_LOCAL_WINDOW  0x7e1000000000u
#define SIM_PARAM_WINDOW  0x7e2000000000u
#define SIM_WINDOW_BYTES  0x001000000000u

/* Counters of one instruction of the program, summed over all warps. */
typedef struct sim_count {
    /* Executed by warps. A block counts where they begin to execute instructions in a row (`begun`, less those where
     * they end), and in `executed` how many were skipped, as a negative number. */
    uint64_t executed, begun;
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
    SIM_AT_REGISTERS, /* for registers that other warps release */
    SIM_ENDED
} sim_state;

/* One cp.async instruction of a warp, until all its lanes have waited for it. */
typedef struct sim_copy {
    uint32_t lanes; /* lanes whose bytes have not landed */
    uint32_t address[SIM_LANES];
    uint32_t group[SIM_LANES]; /* per lane: the number of its commit group */
    uint8_t bytes;
    int32_t op;
    uint8_t data[SIM_LANES][16];
} sim_copy;

/* Bulk stores of a thread that may still read their operands. */
typedef struct sim_stores {
    uint32_t tokens[SIM_STORE_GROUPS]; /* of the groups, oldest first (shadow.h) */
    unsigned groups;
    bool uncommitted;
    int32_t op; /* the last store */
} sim_stores;

/* Warps that have arrived at a barrier without waiting there. */
typedef struct sim_arrivals {
    unsigned warps;
    uint32_t threads; /* number that the barrier expects */
    sim_clock clock;
} sim_arrivals;

/* A barrier in shared memory (exec_mbarrier.c). */
typedef struct sim_mbarrier {
    uint32_t address; /* in the shared space */
    uint32_t count;   /* arrivals that complete a phase */
    uint32_t missing; /* arrivals missing in the current phase */
    int32_t bytes;    /* bytes that it still waits for; negative: they came before they were announced */
    uint32_t phase;   /* number of the current phase */
    uint32_t began;   /* epoch in which it began */
    bool fenced;      /* the asynchronous proxy sees the mbarrier */
    bool unawaited;   /* no thread has waited for what was loaded in phase `loaded` */
    uint32_t loaded;
    int32_t op;           /* the instruction that made it */
    int maker;            /* the warp that made it */
    sim_clock open, done; /* known after the current phase, and after the one before */
} sim_mbarrier;

struct sim_block;

typedef struct sim_warp {
    uint32_t *file; /* register file */
    uint32_t *predicates;
    const uint32_t *constants;
    uint32_t mask;   /* lanes that execute this instruction */
    uint32_t active; /* lanes on this side of the branches */
    uint32_t alive;  /* lanes that have not ended */
    int32_t pc, next, join;
    sim_state state;
    uint32_t barrier;         /* the barrier at which it waits */
    uint32_t barrier_threads; /* threads expected there; 0: the whole block */
    unsigned mbarrier;        /* number of the mbarrier at which it waits */
    uint32_t parity;          /* of the phase that it waits for */
    uint64_t refused;         /* mask of the mbarriers that answered "not done" to it */
    unsigned registers;       /* per thread, if warps release and request them */
    unsigned wanted_registers;
    sim_frame stack[SIM_STACK_MAX]; /* the sides that wait, innermost last */
    int depth;
    int index; /* in the block */
    uint64_t steps;
    struct sim_block *block;
    uint32_t commits[SIM_LANES]; /* number of cp.async.commit_group so far */
    sim_copy *copies;
    size_t copy_count, copy_capacity;
    sim_stores stores[SIM_LANES];
    sim_products products;
    uint16_t sync_epoch; /* grows with each bar.warp.sync of the whole warp */
    uint32_t unawaited;  /* lanes that have not waited for the launch before, which may still run */
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
    bool early;         /* the launch before may still run */
    bool reverse;       /* the last block begins first, and in a block the last warp */
    bool spoil;         /* injected fault: stores to global memory are wrong */
    uint32_t serial;    /* number of the launch, for the marks of global memory */
    atomic_uint next_block;
    atomic_bool stopped;
    pthread_mutex_t lock; /* protects the fields below */
    CUresult error;
    char message[SIM_MESSAGE_BYTES];
    sim_count *counts; /* [op_count]; each worker adds its own when it ends */
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
    uint32_t mbarriers_begin, mbarriers_end; /* range of all mbarriers in the shared space */
    unsigned free_registers;                 /* released by warps; unit: one for each of 32 threads */
    uint8_t *local;                          /* [warp][local_bytes / 4][lane], words of 4 bytes */
    sim_count *counts;                       /* [op_count + 1], of this host thread */
} sim_block;

static inline unsigned sim_mbarrier_number(const sim_block *block, const sim_mbarrier *mbarrier)
{
    return (unsigned)(mbarrier - block->mbarriers);
}

/* Runs a whole launch on up to host_threads threads of the host. The result is in launch->error. */
void sim_run(sim_launch *launch, unsigned host_threads);

/* Runs a block from its beginning, in the worker's memory. */
void sim_run_block(sim_block *block, unsigned index);

/* ---- waiting (waiting.c) ---- */

/* Begins a block: no warp has arrived anywhere. */
void sim_waiting_begin(sim_block *block);

/* Returns true, and lets the warp run, if what it waits for has happened. */
bool sim_wake(sim_warp *warp);

/* A warp arrives at a barrier. waits: it stays there. Opens the barrier if this was the last arrival and some warp has
 * arrived without waiting. */
void sim_arrive(sim_warp *warp, uint32_t barrier, uint32_t threads, bool waits);

/* Called when no warp can go on. Opens the barriers that are complete. If there are none, stops the launch. */
void sim_open_barriers(sim_block *block);

/* Called when all warps have ended. Stops the launch if the block has left work unfinished. */
void sim_waiting_end(sim_block *block);

/* Returns the lanes with which a warp begins. */
uint32_t sim_lanes_at_start(const sim_launch *launch, unsigned warp);

/* Returns the mbarrier at an address that must be equal in all executing lanes. NULL: the launch is stopped. */
sim_mbarrier *sim_mbarrier_at(sim_warp *warp, const uint64_t address[SIM_LANES]);

/* Returns an mbarrier in a range of shared memory, or NULL. */
const sim_mbarrier *sim_mbarrier_in(const sim_block *block, uint32_t address, unsigned bytes);

/* Bytes have arrived that an mbarrier expects. */
void sim_mbarrier_complete(sim_warp *warp, sim_mbarrier *mbarrier, uint32_t bytes);

/* Makes the mbarriers that the warp initialised visible to the asynchronous proxy. */
void sim_mbarriers_fence(sim_warp *warp);
/* All words that the warp read by ldmatrix are in its registers now. */
void sim_late_taken(sim_warp *warp);

/* Lanes end. Returns false, and stops the launch, if their bulk stores may still read. */
bool sim_stores_done(sim_warp *warp, uint32_t lanes);

/* The injected fault: changes a number on its way to global memory. */
void sim_spoil(uint8_t *at, unsigned bytes);

/* Lets a lane's outstanding cp.async land in shared memory. They count as loads that arrive at an mbarrier, in the
 * phase that began in epoch `began`. */
void sim_copies_land_at(sim_warp *warp, int lane, unsigned mbarrier, uint32_t began);

/* ---- for handlers ---- */

/* Stops the launch with an error. The message begins with kernel, block, thread and source. lane < 0: the whole
 * warp. */
void sim_stop(sim_warp *warp, int lane, CUresult error, const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Describe where an instruction comes from: "fwd_sm80: loads.cuh:26 (in fwd.cuh:203): cp.async...". _place leaves
 * out the text of the instruction if it has source lines. */
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

/* Writes a register in the executing lanes. */
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
    if (w->mask == SIM_ALL_LANES) {
        for (int l = 0; l < SIM_LANES; l++)
            out[l] = value[l];
        return;
    }
    for (int l = 0; l < SIM_LANES; l++) {
        const uint64_t taken = 0 - (uint64_t)(w->mask >> l & 1); /* so written, it is vectorised */
        out[l] = (value[l] & taken) | (out[l] & ~taken);
    }
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

/* Stores the addresses of memory argument `which`. Source `source` is its base. */
void sim_addresses(const sim_warp *w, const sim_op *op, int which, int source, uint64_t out[SIM_LANES]);
