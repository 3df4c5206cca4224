/*
 * A list of chunks, filled from the front. A request that does not fit gets a new chunk of at least its size.
 */
#include "arena.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, CHUNK_BYTES = 1 << 18 };

struct sim_chunk {
    sim_chunk *next;
    size_t used, size;
    char *data;
};

void *sim_host_memory(size_t bytes)
{
    const size_t rounded = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    void *memory = aligned_alloc(ALIGN, rounded == 0 ? ALIGN : rounded);
    if (memory == NULL) {
        fprintf(stderr, "software device: the host has no %zu bytes left\n", bytes);
        exit(1);
    }
    memset(memory, 0, rounded);
    return memory;
}

void *sim_host_grow(void *array, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return array;
    *capacity = *capacity == 0 ? 64 : 2 * *capacity;
    void *larger = sim_host_memory(*capacity * size);
    if (count > 0)
        memcpy(larger, array, count * size);
    free(array);
    return larger;
}

static sim_chunk *add_chunk(sim_arena *arena, size_t bytes)
{
    sim_chunk *chunk = sim_host_memory(sizeof *chunk);
    chunk->size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    chunk->data = sim_host_memory(chunk->size);
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    return chunk;
}

void *sim_arena_get(sim_arena *arena, size_t count, size_t size)
{
    const size_t bytes = (count * size + ALIGN - 1) / ALIGN * ALIGN;
    sim_chunk *chunk = arena->chunks;
    if (chunk == NULL || chunk->size - chunk->used < bytes)
        chunk = add_chunk(arena, bytes);
    void *memory = chunk->data + chunk->used;
    chunk->used += bytes;
    return memory;
}

char *sim_arena_text(sim_arena *arena, const char *at, size_t length)
{
    char *copy = sim_arena_get(arena, length + 1, 1);
    memcpy(copy, at, length);
    return copy;
}

void *sim_arena_grow(sim_arena *arena, void *array, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return array;
    *capacity = *capacity == 0 ? 64 : 2 * *capacity;
    void *larger = sim_arena_get(arena, *capacity, size);
    if (count > 0)
        memcpy(larger, array, count * size);
    return larger;
}

void sim_arena_done(sim_arena *arena)
{
    while (arena->chunks != NULL) {
        sim_chunk *chunk = arena->chunks;
        arena->chunks = chunk->next;
        free(chunk->data);
        free(chunk);
    }
}
