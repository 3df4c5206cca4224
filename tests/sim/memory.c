/*
 * Allocations in the order of their addresses; marks of words as packed 64-bit atomics.
 *
 * - Addresses grow to the end of the card's range. Then the ranges of released allocations are reused in turn. Several
 *   neighbours are joined if one is too small.
 * - A chunk of 16 bytes has one pair of marks as long as each access of the launch covers it. An access to a part of it
 *   divides it: from then on each word has its own marks, which begin as copies.
 * - Marks need no order between each other. Each is read and replaced on its own. Two host threads may so hide a race
 *   at one chunk from each other; it is found at the next chunk.
 * - A mark holds 11 bits of the launch's serial number. All marks are cleared when these bits restart.
 */
#include "memory.h"
#include "arena.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ADDRESS 0x100000000000u
#define CARD_BYTES    0x0d0000000000u /* addresses of each card */
#define SPACING_BYTES 0x10000000u     /* gap after each allocation */
enum { ALIGN_BYTES = 512, LAUNCHES = 2047 };
enum { CHUNK_BYTES = 16, CHUNK_WORDS = 4, MARKS = 2 };

void sim_memory_init(sim_memory *memory, int card, size_t total_bytes)
{
    const uint64_t first = FIRST_ADDRESS + (uint64_t)card * CARD_BYTES;
    *memory = (sim_memory){.next = first, .end = first + CARD_BYTES, .total_bytes = total_bytes};
    pthread_mutex_init(&memory->lock, NULL);
}

static void free_marks(sim_allocation *a, sim_mark *marks)
{
    free(marks);
    free(a->parts);
    a->marks = a->parts = NULL;
}

static void release(sim_allocation *a)
{
    free(a->data);
    free_marks(a, a->marks);
    a->data = NULL;
}

void sim_memory_done(sim_memory *memory)
{
    for (size_t i = 0; i < memory->count; i++)
        release(&memory->allocations[i]);
    free(memory->allocations);
    pthread_mutex_destroy(&memory->lock);
    *memory = (sim_memory){0};
}

static size_t rounded(size_t bytes)
{
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

/* Appends an allocation after all others. Returns NULL if the host has no memory. */
static sim_allocation *append(sim_memory *memory, uint64_t span)
{
    if (memory->count == memory->capacity) {
        const size_t capacity = memory->capacity == 0 ? 64 : 2 * memory->capacity;
        sim_allocation *larger = realloc(memory->allocations, capacity * sizeof *memory->allocations);
        if (larger == NULL)
            return NULL;
        memory->allocations = larger;
        memory->capacity = capacity;
    }
    sim_allocation *a = &memory->allocations[memory->count++];
    *a = (sim_allocation){.base = memory->next};
    memory->next += span;
    return a;
}

/* Returns how many released allocations from `first` on have together `span` addresses, 0 if they have fewer. */
static size_t count_released(const sim_memory *memory, size_t first, uint64_t span)
{
    for (size_t i = first; i < memory->count && memory->allocations[i].data == NULL; i++) {
        const uint64_t end = i + 1 < memory->count ? memory->allocations[i + 1].base : memory->next;
        if (end - memory->allocations[first].base >= span)
            return i + 1 - first;
    }
    return 0;
}

/* Reuses addresses of released allocations. The search begins after the last reused one. Returns NULL if there are
 * none. */
static sim_allocation *reuse(sim_memory *memory, uint64_t span)
{
    for (size_t tries = 0; tries < memory->count; tries++) {
        const size_t at = memory->again++ % memory->count;
        const size_t taken = count_released(memory, at, span);
        sim_allocation *a = &memory->allocations[at];
        if (taken == 0)
            continue;
        memory->count -= taken - 1;
        memmove(a + 1, a + taken, (memory->count - at - 1) * sizeof *a);
        memory->again = at + 1;
        return a;
    }
    return NULL;
}

bool sim_memory_get(sim_memory *memory, size_t bytes, uint64_t *ret_address)
{
    if (bytes > memory->total_bytes || rounded(bytes) > memory->total_bytes - memory->used_bytes)
        return false;
    const uint64_t span = rounded(bytes) + SPACING_BYTES;
    uint8_t *data = malloc(bytes); /* not zeroed, like a real device's memory */
    if (data == NULL)
        return false;
    sim_allocation *a = span <= memory->end - memory->next ? append(memory, span) : reuse(memory, span);
    if (a == NULL) {
        free(data);
        return false;
    }
    *a = (sim_allocation){
        .base = a->base, .bytes = bytes, .data = data, .chunks = (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES};
    *ret_address = a->base;
    memory->used_bytes += rounded(bytes);
    return true;
}

/* Does an address lie in an allocation or in the gap after it? */
static bool is_at(const sim_memory *memory, size_t index, uint64_t address)
{
    return index < memory->count && memory->allocations[index].base <= address &&
           (index + 1 == memory->count || address < memory->allocations[index + 1].base);
}

sim_allocation *sim_memory_find(sim_memory *memory, uint64_t address)
{
    size_t low = atomic_load_explicit(&memory->found, memory_order_relaxed), high = memory->count;
    if (is_at(memory, low, address))
        return &memory->allocations[low];
    low = 0;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (memory->allocations[middle].base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return NULL;
    atomic_store_explicit(&memory->found, low - 1, memory_order_relaxed);
    return &memory->allocations[low - 1];
}

bool sim_memory_release(sim_memory *memory, uint64_t address)
{
    sim_allocation *a = sim_memory_find(memory, address);
    if (a == NULL || a->base != address || a->data == NULL)
        return false;
    memory->used_bytes -= rounded(a->bytes);
    release(a);
    return true;
}

uint8_t *sim_memory_at(sim_memory *memory, uint64_t address, size_t bytes)
{
    const sim_allocation *a = sim_memory_find(memory, address);
    return a != NULL && sim_memory_holds(a, address, bytes) ? a->data + (address - a->base) : NULL;
}

size_t sim_memory_live(const sim_memory *memory)
{
    size_t live = 0;
    for (size_t i = 0; i < memory->count; i++)
        live += memory->allocations[i].data != NULL;
    return live;
}

void sim_memory_describe(sim_memory *memory, uint64_t address, char *out, size_t out_bytes)
{
    const sim_allocation *a = sim_memory_find(memory, address);
    if (a == NULL) {
        snprintf(out, out_bytes, "0x%llx is before all allocations", (unsigned long long)address);
        return;
    }
    const uint64_t at = address - a->base;
    snprintf(out, out_bytes, "0x%llx is %llu bytes %s the %s %zu bytes at 0x%llx", (unsigned long long)address,
             (unsigned long long)(at < a->bytes ? at : at - a->bytes), at < a->bytes ? "into" : "behind",
             a->data == NULL ? "released" : "allocated", a->bytes, (unsigned long long)a->base);
}

/* ---- marks ---- */

#define LAUNCH_SHIFT 53
#define DIVIDED      ((uint64_t)1 << 52)
#define SEVERAL      ((uint64_t)1 << 51)
#define ADDED        ((uint64_t)1 << 50)
#define WHO          (((uint64_t)1 << 36) - 1) /* mask of block and thread */

static uint64_t pack(const sim_toucher *who)
{
    const uint64_t launch = who->launch % LAUNCHES + 1;
    return launch << LAUNCH_SHIFT | (uint64_t)(who->epoch & 0x3fff) << 36 | (uint64_t)(who->block & 0x3ffffff) << 10 |
           (who->thread & 0x3ff);
}

static inline uint64_t launch_of(uint64_t mark)
{
    return mark >> LAUNCH_SHIFT;
}

static sim_toucher unpack(uint64_t mark, uint32_t launch)
{
    return (sim_toucher){.launch = launch,
                         .block = (uint32_t)(mark >> 10) & 0x3ffffff,
                         .thread = (unsigned)mark & 0x3ff,
                         .epoch = (uint32_t)(mark >> 36) & 0x3fff};
}

/* Is a mark from this launch, and from a thread that no barrier orders before `mine`? */
static inline bool collides(uint64_t mark, uint64_t mine)
{
    const uint64_t different = mark ^ mine;
    if (launch_of(different) != 0 || (mark & DIVIDED) != 0)
        return false; /* another launch's mark, or none; or another host thread has just divided the chunk */
    const bool same_block = (different >> 10 & 0x3ffffff) == 0;
    const bool same_thread = same_block && (different & 0x3ff) == 0;
    const bool same_epoch = (different >> 36 & 0x3fff) == 0;
    if (same_thread && (mark & SEVERAL) == 0)
        return false;
    return !same_block || same_epoch;
}

static bool make_marks(sim_memory *memory, sim_allocation *a)
{
    bool ok = true;
    pthread_mutex_lock(&memory->lock);
    if (a->marks == NULL) {
        sim_mark *marks = calloc(a->chunks, MARKS * sizeof *marks);
        a->parts = malloc(a->chunks * CHUNK_WORDS * MARKS * sizeof *a->parts);
        ok = marks != NULL && a->parts != NULL;
        if (ok)
            __atomic_store_n(&a->marks, marks, __ATOMIC_RELEASE);
        else
            free_marks(a, marks);
    }
    pthread_mutex_unlock(&memory->lock);
    return ok;
}

static inline void note_read(sim_mark *mark, uint64_t before, uint64_t mine)
{
    uint64_t after = mine;
    if (launch_of(before) == launch_of(mine))
        after = ((before ^ mine) & WHO) != 0 ? before | SEVERAL : mine | (before & SEVERAL);
    if (after != before)
        atomic_store_explicit(mark, after, memory_order_relaxed);
}

/* Returns false if the access races with *ret_mark. */
static inline bool note_word(sim_mark *write_mark, sim_way_of_access access, uint64_t mine, uint64_t *ret_mark)
{
    sim_mark *read_mark = write_mark + 1;
    const uint64_t written = atomic_load_explicit(write_mark, memory_order_relaxed);
    const uint64_t read = atomic_load_explicit(read_mark, memory_order_relaxed);
    if (collides(written, mine) && !(access == SIM_ADD && (written & ADDED) != 0)) {
        *ret_mark = written;
        return false;
    }
    if (access == SIM_READ) {
        note_read(read_mark, read, mine);
        return true;
    }
    if (collides(read, mine)) {
        *ret_mark = read;
        return false;
    }
    atomic_store_explicit(write_mark, access == SIM_ADD ? mine | ADDED : mine, memory_order_relaxed);
    return true;
}

/* Returns false if the host has no room for marks of such a large allocation: its accesses are not checked. */
static bool has_marks(sim_memory *memory, sim_allocation *a)
{
    return __atomic_load_n(&a->marks, __ATOMIC_ACQUIRE) != NULL || make_marks(memory, a);
}

/* Is there a mark for each word of the chunk? Marks of other launches count for nothing. */
static inline bool is_divided(uint64_t written, uint64_t mine)
{
    return (written & DIVIDED) != 0 && launch_of(written) == launch_of(mine);
}

/* Notes an access to some words of a chunk. */
static bool note_parts(sim_allocation *a, size_t first, size_t words, sim_way_of_access access, uint64_t mine,
                       uint64_t *ret_mark)
{
    sim_mark *whole = &a->marks[MARKS * (first / CHUNK_WORDS)];
    sim_mark *parts = &a->parts[MARKS * (first / CHUNK_WORDS * CHUNK_WORDS)];
    uint64_t old[MARKS]; /* read once: another host thread may divide the chunk, too */
    for (unsigned i = 0; i < MARKS; i++)
        old[i] = atomic_load_explicit(&whole[i], memory_order_relaxed);
    if (!is_divided(old[0], mine)) {
        for (unsigned i = 0; i < MARKS * CHUNK_WORDS; i++)
            atomic_store_explicit(&parts[i], old[i % MARKS], memory_order_relaxed);
        atomic_store_explicit(whole, DIVIDED | launch_of(mine) << LAUNCH_SHIFT, memory_order_relaxed);
    }
    for (size_t word = first % CHUNK_WORDS; words > 0; word++, words--)
        if (!note_word(&parts[MARKS * word], access, mine, ret_mark))
            return false;
    return true;
}

/* Is there one pair of marks for the chunk? */
static inline bool is_whole(const sim_allocation *a, size_t chunk, uint64_t mine)
{
    return !is_divided(atomic_load_explicit(&a->marks[MARKS * chunk], memory_order_relaxed), mine);
}

static bool note_range(sim_allocation *a, size_t first, size_t words, sim_way_of_access access, uint64_t mine,
                       uint64_t *ret_mark)
{
    for (size_t part; words > 0; first += part, words -= part) {
        const size_t chunk = first / CHUNK_WORDS, rest = CHUNK_WORDS - first % CHUNK_WORDS;
        part = rest < words ? rest : words;
        if (part == CHUNK_WORDS && is_whole(a, chunk, mine)
                ? !note_word(&a->marks[MARKS * chunk], access, mine, ret_mark)
                : !note_parts(a, first, part, access, mine, ret_mark))
            return false;
    }
    return true;
}

static inline bool note_words(sim_allocation *a, size_t first, size_t words, sim_way_of_access access, uint64_t mine,
                              uint64_t *ret_mark)
{
    const size_t chunk = first / CHUNK_WORDS;
    if (words == CHUNK_WORDS && first % CHUNK_WORDS == 0 && is_whole(a, chunk, mine))
        return note_word(&a->marks[MARKS * chunk], access, mine, ret_mark);
    return note_range(a, first, words, access, mine, ret_mark);
}

bool sim_memory_note(sim_memory *memory, sim_allocation *a, size_t first, size_t words, sim_way_of_access access,
                     const sim_toucher *who, sim_toucher *ret_other)
{
    uint64_t mark;
    if (!has_marks(memory, a) || note_words(a, first, words, access, pack(who), &mark))
        return true;
    *ret_other = unpack(mark, who->launch);
    return false;
}

bool sim_memory_note_lanes(sim_memory *memory, sim_allocation *a, uint32_t lanes, const size_t first[], size_t words,
                           sim_way_of_access access, const sim_toucher *who, int *ret_lane, sim_toucher *ret_other)
{
    const uint64_t mine = pack(who);
    if (!has_marks(memory, a))
        return true;
    for (unsigned lane = 0; lane < 32; lane++) /* all at once: few are in the cache */
        __builtin_prefetch(&a->marks[MARKS * (first[lane] / CHUNK_WORDS)], 1);
    for (uint32_t left = lanes; left != 0; left &= left - 1) {
        const unsigned lane = (unsigned)__builtin_ctz(left);
        uint64_t mark;
        if (note_words(a, first[lane], words, access, mine + lane, &mark)) /* the lowest bits are the thread */
            continue;
        *ret_lane = (int)lane;
        *ret_other = unpack(mark, who->launch);
        return false;
    }
    return true;
}

void sim_memory_begin_launch(sim_memory *memory, uint32_t serial)
{
    if (serial % LAUNCHES != 0)
        return;
    for (size_t i = 0; i < memory->count; i++) {
        sim_allocation *a = &memory->allocations[i];
        for (size_t mark = 0; a->marks != NULL && mark < MARKS * a->chunks; mark++)
            atomic_store_explicit(&a->marks[mark], 0, memory_order_relaxed);
    }
}
