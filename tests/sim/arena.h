/*
 * Memory of the software device that is released all at once: what the parser and the decoder make
 * of a module.
 *
 * The device is test equipment: where the host itself has no memory left, it says so and ends the
 * process, so nothing here returns NULL. One arena must not be used by two threads at once.
 */
#ifndef SIM_ARENA_H
#define SIM_ARENA_H

#include <stddef.h>
#include <stdint.h>

typedef struct sim_chunk sim_chunk;

/* Zeroed is empty. */
typedef struct sim_arena {
    sim_chunk *chunks;
} sim_arena;

/* Zeroed, aligned to 64 bytes, until sim_arena_done. */
void *sim_arena_get(sim_arena *arena, size_t count, size_t size);
char *sim_arena_text(sim_arena *arena, const char *at, size_t length); /* a copy, with NUL */
void sim_arena_done(sim_arena *arena);

/* Make room for one element more in a growing array of the arena: the array, perhaps moved.
 * capacity is updated; count elements are kept. */
void *sim_arena_grow(sim_arena *arena, void *array, size_t count, size_t *capacity, size_t size);

/* Zeroed host memory aligned to 64 bytes; the caller frees it with free. _grow: as sim_arena_grow,
 * the array that was is freed. */
void *sim_host_memory(size_t bytes);
void *sim_host_grow(void *array, size_t count, size_t *capacity, size_t size);

#endif
