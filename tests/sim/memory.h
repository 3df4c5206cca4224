/*
 * Global memory: a card's allocations, as host memory with device addresses, and the records of accesses to their
 * words.
 *
 * An address is reused only after all others of the card, some 53,000 allocations later, so use after free is detected.
 * Addresses lie far apart, so an access past the end never reaches another allocation. Each card has its own range.
 * To detect races, each 4-byte word has marks: the last write, and a read, of the running launch. Four words share them
 * as long as each access covers all four. They are created when a kernel first touches the allocation.
 *
 * Do not allocate or release while a launch runs. Kernel accesses may come from many host threads.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* launch (11 bits) | divided (1) | several (1) | added (1) | epoch (14) | block (26) | thread (10); 0: none */
typedef atomic_uint_fast64_t sim_mark;

typedef struct sim_allocation {
    uint64_t base;
    size_t bytes;
    uint8_t *data;   /* NULL: released */
    sim_mark *marks; /* two per 16 bytes: the last write, a read; NULL: no kernel touched it yet */
    sim_mark *parts; /* two per word, for divided chunks */
    size_t chunks;
} sim_allocation;

typedef struct sim_memory {
    sim_allocation *allocations; /* by base */
    size_t count, capacity;
    atomic_size_t found; /* index of the last allocation found, where the next search begins */
    uint64_t next, end;  /* addresses that were never used */
    size_t again;        /* the allocation after which the search for reusable addresses continues */
    size_t total_bytes, used_bytes;
    pthread_mutex_t lock; /* for creating marks */
} sim_memory;

void sim_memory_init(sim_memory *memory, int card, size_t total_bytes); /* card: 0 ... 7 */
void sim_memory_done(sim_memory *memory);

/* Returns false if the card, or the host, has no room. bytes > 0. */
bool sim_memory_get(sim_memory *memory, size_t bytes, uint64_t *ret_address);
bool sim_memory_release(sim_memory *memory, uint64_t address); /* false: not an allocation's base */

/* Returns the last allocation, live or released, that begins at or before an address. NULL: there is none. */
sim_allocation *sim_memory_find(sim_memory *memory, uint64_t address);

/* Is a range inside a live allocation, which begins at or before it? */
static inline bool sim_memory_holds(const sim_allocation *a, uint64_t address, size_t bytes)
{
    return a->data != NULL && address - a->base <= a->bytes && bytes <= a->bytes - (address - a->base);
}

/* Returns the host memory of a range. NULL if the range is not inside one live allocation. */
uint8_t *sim_memory_at(sim_memory *memory, uint64_t address, size_t bytes);

/* Returns the number of live allocations. */
size_t sim_memory_live(const sim_memory *memory);

/* Writes a description for messages: "16 bytes behind the 4096 bytes at 0x...". */
void sim_memory_describe(sim_memory *memory, uint64_t address, char *out, size_t out_bytes);

/* The thread that accesses a word, for the marks. */
typedef struct sim_toucher {
    uint32_t launch; /* serial, > 0 */
    uint32_t block;
    unsigned thread;
    uint32_t epoch; /* of the block, from 0 */
} sim_toucher;

/* Call it before the first access of a launch. */
void sim_memory_begin_launch(sim_memory *memory, uint32_t serial);

/* SIM_ADD: an atomic access. Atomic accesses do not race with each other. */
typedef enum sim_way_of_access { SIM_READ, SIM_WRITE, SIM_ADD } sim_way_of_access;

/* Records an access to words of a live allocation. Returns false if it races with the access in *ret_other. */
bool sim_memory_note(sim_memory *memory, sim_allocation *allocation, size_t first, size_t words,
                     sim_way_of_access access, const sim_toucher *who, sim_toucher *ret_other);

/* The same for a warp's lanes in turn, each with its own first word. who: the thread of lane 0. *ret_lane is the lane
 * that races. */
bool sim_memory_note_lanes(sim_memory *memory, sim_allocation *allocation, uint32_t lanes, const size_t first[],
                           size_t words, sim_way_of_access access, const sim_toucher *who, int *ret_lane,
                           sim_toucher *ret_other);
