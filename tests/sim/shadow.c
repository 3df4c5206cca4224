/*
 * The rules of shadow.h, word by word.
 *
 * - A read keeps which warps read the word and are not ordered before it, and of the last warp two
 * threads: a writer conflicts with any other warp, and with another thread of its own warp. What is
 * ordered before the last read need not be kept, as that one is or is not ordered before the
 * writer. All that are kept count as of the epoch of the last: where a named barrier orders only
 * some of them before a writer this may report a race that is none; it never hides one.
 * - Sub-word accesses conflict only if their bytes meet.
 */
#include "shadow.h"
#include "arena.h"
#include <stdlib.h>

enum { WORD_BYTES = 4, WARP = 32 };

void sim_shadow_init(sim_shadow *shadow, size_t shared_bytes, unsigned warp_count)
{
    const size_t words = (shared_bytes + WORD_BYTES - 1) / WORD_BYTES;
    *shadow = (sim_shadow){.words = sim_host_memory(words * sizeof(sim_word)),
                           .word_count = words,
                           .warp_count = warp_count,
                           .epoch = 1,
                           .first_epoch = 1};
}

void sim_shadow_done(sim_shadow *shadow)
{
    free(shadow->words);
    *shadow = (sim_shadow){0};
}

void sim_shadow_begin_block(sim_shadow *shadow)
{
    shadow->first_epoch = ++shadow->epoch;
    shadow->whole_barriers = 0;
    for (unsigned a = 0; a < shadow->warp_count; a++)
        for (unsigned b = 0; b < shadow->warp_count; b++)
            shadow->ordered[a][b] = shadow->first_epoch;
}

void sim_shadow_barrier(sim_shadow *shadow, uint32_t warps)
{
    uint32_t latest[SIM_SHADOW_WARPS] = {0}; /* what those that meet know together */
    const uint32_t epoch = ++shadow->epoch;
    for (unsigned a = 0; a < shadow->warp_count; a++)
        for (unsigned b = 0; warps >> a & 1 && b < shadow->warp_count; b++)
            if (shadow->ordered[a][b] > latest[b])
                latest[b] = shadow->ordered[a][b];
    for (unsigned a = 0; a < shadow->warp_count; a++)
        for (unsigned b = 0; warps >> a & 1 && b < shadow->warp_count; b++)
            shadow->ordered[a][b] = warps >> b & 1 ? epoch : latest[b];
    shadow->whole_barriers += __builtin_popcount(warps) == (int)shadow->warp_count;
}

/* Bytes at .. at + bytes - 1 that lie in a word, as a mask. */
static unsigned bytes_in_word(size_t word, uint32_t at, unsigned bytes)
{
    const uint32_t begin = (uint32_t)word * WORD_BYTES;
    if (at <= begin && at + bytes >= begin + WORD_BYTES)
        return 15;
    unsigned mask = 0;
    for (unsigned i = 0; i < WORD_BYTES; i++)
        mask |= (unsigned)(begin + i >= at && begin + i < at + bytes) << i;
    return mask;
}

/* Are a thread's access at (epoch, sync) and the present one by another thread unordered? */
static bool unordered(const sim_shadow *shadow, const sim_access *access, unsigned thread,
                      uint32_t epoch, uint16_t sync)
{
    const unsigned own = access->thread / WARP, other = thread / WARP;
    return thread != access->thread && epoch >= shadow->ordered[own][other] &&
           (other != own || sync == access->sync);
}

/* The warps that read the word, unless ordered before the present access. */
static uint32_t open_readers(const sim_shadow *shadow, const sim_word *word,
                             const sim_access *access)
{
    const uint32_t *ordered = shadow->ordered[access->thread / WARP];
    uint32_t open = 0;
    if (word->read_epoch < shadow->first_epoch)
        return 0;
    for (uint32_t left = word->read_warps; left != 0; left &= left - 1) {
        const unsigned warp = (unsigned)__builtin_ctz(left);
        open |= (uint32_t)(word->read_epoch >= ordered[warp]) << warp;
    }
    return open;
}

static sim_conflict meets_write(const sim_shadow *shadow, const sim_word *word,
                                const sim_access *access, unsigned mask, sim_conflict race,
                                sim_party *ret_other)
{
    *ret_other = (sim_party){word->writer, word->write_op};
    if (word->pending && word->write_epoch >= shadow->first_epoch)
        return SIM_PENDING;
    if ((word->last_bytes & mask) != 0 &&
        unordered(shadow, access, word->writer, word->write_epoch, word->write_sync))
        return race;
    return SIM_NO_CONFLICT;
}

static sim_conflict meets_read(const sim_shadow *shadow, const sim_word *word,
                               const sim_access *access, unsigned mask, sim_party *ret_other)
{
    if ((word->read_bytes & mask) == 0)
        return SIM_NO_CONFLICT;
    const uint32_t open = open_readers(shadow, word, access);
    const uint32_t others = open & ~(1u << access->thread / WARP);
    *ret_other = (sim_party){word->reader, word->read_op};
    if (open == 0)
        return SIM_NO_CONFLICT;
    if (others != 0) {
        if ((others >> word->reader / WARP & 1) == 0)
            ret_other->thread = (unsigned)__builtin_ctz(others) * WARP;
        return SIM_READ_WRITE;
    }
    if (unordered(shadow, access, word->reader, word->read_epoch, word->read_sync))
        return SIM_READ_WRITE;
    ret_other->thread = word->reader_2;
    return unordered(shadow, access, word->reader_2, word->read_epoch, word->read_sync)
               ? SIM_READ_WRITE
               : SIM_NO_CONFLICT;
}

static void note_read(const sim_shadow *shadow, sim_word *word, const sim_access *access,
                      unsigned mask)
{
    const uint16_t thread = (uint16_t)access->thread;
    const uint32_t warp = 1u << thread / WARP;
    if (word->read_epoch != shadow->epoch) {
        word->read_warps = open_readers(shadow, word, access);
        word->read_bytes = word->read_warps == 0 ? 0 : word->read_bytes;
        word->read_epoch = shadow->epoch;
    }
    const bool known = (word->read_warps & warp) != 0 && word->reader / WARP == thread / WARP &&
                       word->read_sync == access->sync;
    word->read_warps |= warp;
    word->read_bytes |= (uint8_t)mask;
    if (known && access->collective)
        return;
    if (known) {
        word->reader_2 = thread != word->reader ? thread : word->reader_2;
        return;
    }
    word->reader = word->reader_2 = thread;
    word->read_sync = (uint16_t)(access->sync - access->collective); /* as if before a barrier */
    word->read_op = access->op;
}

static void note_write(const sim_shadow *shadow, sim_word *word, const sim_access *access,
                       unsigned mask)
{
    const unsigned thread = access->thread;
    const bool first = word->write_epoch < shadow->first_epoch;
    const bool same = word->writer == access->thread &&
                      word->write_epoch >= shadow->ordered[thread / WARP][thread / WARP];
    word->written = (uint8_t)(first ? mask : word->written | mask);
    word->last_bytes = (uint8_t)(same ? word->last_bytes | mask : mask);
    word->writer = (uint16_t)access->thread;
    word->write_epoch = shadow->epoch;
    word->write_sync = access->sync;
    word->write_op = access->op;
    word->pending = false;
}

sim_conflict sim_shadow_read(sim_shadow *shadow, const sim_access *access, uint32_t at,
                             unsigned bytes, sim_party *ret_other)
{
    const size_t last = (at + bytes - 1) / WORD_BYTES;
    for (size_t i = at / WORD_BYTES; i <= last; i++) {
        sim_word *word = &shadow->words[i];
        const unsigned mask = bytes_in_word(i, at, bytes);
        if (word->write_epoch < shadow->first_epoch || (mask & ~(unsigned)word->written) != 0)
            return SIM_UNWRITTEN;
        const sim_conflict conflict =
            meets_write(shadow, word, access, mask, SIM_WRITE_READ, ret_other);
        if (conflict != SIM_NO_CONFLICT)
            return conflict;
        note_read(shadow, word, access, mask);
    }
    return SIM_NO_CONFLICT;
}

static sim_conflict write_range(sim_shadow *shadow, const sim_access *access, uint32_t at,
                                unsigned bytes, bool pending, sim_party *ret_other)
{
    const size_t last = (at + bytes - 1) / WORD_BYTES;
    for (size_t i = at / WORD_BYTES; i <= last; i++) {
        sim_word *word = &shadow->words[i];
        const unsigned mask = bytes_in_word(i, at, bytes);
        sim_conflict conflict = meets_write(shadow, word, access, mask, SIM_WRITE_WRITE, ret_other);
        if (conflict == SIM_NO_CONFLICT)
            conflict = meets_read(shadow, word, access, mask, ret_other);
        if (conflict != SIM_NO_CONFLICT)
            return conflict;
        note_write(shadow, word, access, mask);
        word->pending = pending;
    }
    return SIM_NO_CONFLICT;
}

sim_conflict sim_shadow_write(sim_shadow *shadow, const sim_access *access, uint32_t at,
                              unsigned bytes, sim_party *ret_other)
{
    return write_range(shadow, access, at, bytes, false, ret_other);
}

sim_conflict sim_shadow_start(sim_shadow *shadow, const sim_access *access, uint32_t at,
                              unsigned bytes, sim_party *ret_other)
{
    return write_range(shadow, access, at, bytes, true, ret_other);
}

void sim_shadow_land(sim_shadow *shadow, const sim_access *access, uint32_t at, unsigned bytes)
{
    const size_t last = (at + bytes - 1) / WORD_BYTES;
    for (size_t i = at / WORD_BYTES; i <= last; i++)
        note_write(shadow, &shadow->words[i], access, bytes_in_word(i, at, bytes));
}
