/*
 * Global memory: allocations of a card, as host memory behind addresses of their own, and what the
 * device remembers about their words.
 *
 * Addresses are given out again only after all others of the card, some 53,000 allocations later, so use after free is
 * seen. They lie far apart, so that running over an end never reaches another allocation; each card has a range of its
 * own. Per
 * 4-byte word the last write and a read of the running launch are kept (made when a kernel first
 * touches the allocation), which tells races.
 *
 * Allocation and release must not happen while a launch runs; kernel accesses may come from many
 * host threads.
 */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* launch (12 bits) | several (1) | added (1) | epoch (14) | block (26) | thread (10); 0: none */
typedef atomic_uint_fast64_t sim_mark;

typedef struct sim_allocation {
    uint64_t base;
    size_t bytes;
    uint8_t *data; /* NULL: released */
    sim_mark
        *marks; /* two per word: of its last write, of a read; NULL: no kernel touched it yet */
    size_t words;
} sim_allocation;

typedef struct sim_memory {
    sim_allocation *allocations; /* by base */
    size_t count, capacity;
    atomic_size_t found; /* where the last address was looked for, which is where the next one is */
    uint64_t next, end;  /* of the addresses not given out yet */
    size_t again;        /* the allocation from which on addresses are given out again */
    size_t total_bytes, used_bytes;
    pthread_mutex_t lock; /* of making marks */
} sim_memory;

void sim_memory_init(sim_memory *memory, int card, size_t total_bytes); /* card: 0 ... 7 */
void sim_memory_done(sim_memory *memory);

/* false: the card has no room, or the host. bytes > 0. */
bool sim_memory_get(sim_memory *memory, size_t bytes, uint64_t *ret_address);
bool sim_memory_release(sim_memory *memory, uint64_t address); /* false: not an allocation's base */

/* The allocation that an address is in or behind, released ones too; NULL: before all. */
sim_allocation *sim_memory_find(sim_memory *memory, uint64_t address);

/* Host memory of a range, all inside one live allocation; NULL: it is not. */
uint8_t *sim_memory_at(sim_memory *memory, uint64_t address, size_t bytes);

/* Live allocations. */
size_t sim_memory_live(const sim_memory *memory);

/* "16 bytes behind the 4096 bytes at 0x...", for messages. */
void sim_memory_describe(sim_memory *memory, uint64_t address, char *out, size_t out_bytes);

/* Who accesses a word, for the marks. */
typedef struct sim_toucher {
    uint32_t launch; /* serial, > 0 */
    uint32_t block;
    unsigned thread;
    uint32_t epoch; /* of the block, from 0 */
} sim_toucher;

/* Before the first access of a launch. */
void sim_memory_begin_launch(sim_memory *memory, uint32_t serial);

/* SIM_ADD: atomically; such accesses do not race with each other. */
typedef enum sim_way_of_access { SIM_READ, SIM_WRITE, SIM_ADD } sim_way_of_access;

/* Note an access to words of a live allocation. false: a race with the access in *ret_other. */
bool sim_memory_note(sim_memory *memory, sim_allocation *allocation, size_t first, size_t words,
                     sim_way_of_access access, const sim_toucher *who, sim_toucher *ret_other);

#endif
