/*
 * Memory of the software device that is released all at once: the parser's and the decoder's data of a module.
 *
 * The device is test equipment. If the host has no memory left, it says so and ends the process. So nothing here
 * returns NULL. One arena must not be used by two threads at once.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct sim_chunk sim_chunk;

/* Zeroed: empty. */
typedef struct sim_arena {
    sim_chunk *chunks;
} sim_arena;

/* Returns zeroed memory, aligned to 64 bytes. It lives until sim_arena_done. */
void *sim_arena_get(sim_arena *arena, size_t count, size_t size);
char *sim_arena_text(sim_arena *arena, const char *at, size_t length); /* a copy, with NUL */
void sim_arena_done(sim_arena *arena);

/* Makes room for one more element in a growing array of the arena. Returns the array, which may have moved. Updates
 * capacity and keeps count elements. */
void *sim_arena_grow(sim_arena *arena, void *array, size_t count, size_t *capacity, size_t size);

/* Returns zeroed host memory, aligned to 64 bytes. The caller frees it with free. _grow: as sim_arena_grow, but it
 * frees the old array. */
void *sim_host_memory(size_t bytes);
void *sim_host_grow(void *array, size_t count, size_t *capacity, size_t size);
