/*
 * The rules of shadow.h, word by word.
 *
 * - A read records which warps have read the word since its last write, and when each of them did. Of the last warp it
 *   keeps two threads. A writer conflicts with any other warp, and with another thread of its own warp. A write without
 *   conflict comes after all these reads, and so does everything that comes after the write.
 * - Accesses to parts of a word conflict only if they share bytes.
 * - An entry of four words is true for each of them, because they were written and read as a whole. An access to some
 *   of them divides the entry into halves, and an access to a part of a half splits that into words. A write of all of
 *   them joins them again, because all earlier accesses are settled then.
 */
#include "shadow.h"
#include "arena.h"
#include <stdlib.h>
#include <string.h>

/* AHEAD: chunks that are fetched early, four rows of 128 bytes. */
enum { AHEAD = 32 };
enum { WORD_BYTES = 4, HALF_BYTES = 8, CHUNK_BYTES = 16, HALF_WORDS = 2, CHUNK_WORDS = 4, WORD_MASK = 15, WARP = 32 };
enum { DIVIDED = 1, SPLIT = 2 }; /* bits of sim_word.divided; SPLIT << half */

size_t sim_shadow_chunks(size_t shared_bytes)
{
    return (shared_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
}

void sim_shadow_init(sim_shadow *shadow, size_t shared_bytes, unsigned warp_count)
{
    const size_t chunks = sim_shadow_chunks(shared_bytes);
    *shadow = (sim_shadow){.words = sim_host_memory((1 + CHUNK_WORDS) * chunks * sizeof(sim_word)),
                           .chunk_count = chunks,
                           .warp_count = warp_count,
                           .epoch = 1,
                           .first_epoch = 1};
}

void sim_shadow_done(sim_shadow *shadow)
{
    free(shadow->words);
    for (int by = 0; by < SIM_READERS; by++)
        free(shadow->read_epochs[by]);
    *shadow = (sim_shadow){0};
}

void sim_shadow_begin_block(sim_shadow *shadow)
{
    shadow->first_epoch = ++shadow->epoch;
    shadow->whole_barriers = 0;
    shadow->whole_epoch = shadow->first_epoch;
    for (unsigned warp = 0; warp < shadow->warp_count; warp++) {
        sim_clock *known = &shadow->known[warp];
        for (unsigned c = 0; c < SIM_COLUMNS; c++)
            known->ordered[c] = shadow->first_epoch;
        for (unsigned c = 0; c < SIM_FENCED; c++)
            known->fenced[c] = shadow->first_epoch;
        shadow->ahead_lanes[warp] = 0;
        shadow->synced[warp] = shadow->first_epoch;
        shadow->touched[warp] = 0;
    }
}

/* ---- words ---- */

/* Returns a mask of the bytes at .. at + bytes - 1 that lie in a word. */
static unsigned bytes_in_word(size_t word, uint32_t at, unsigned bytes)
{
    const uint32_t begin = (uint32_t)word * WORD_BYTES;
    if (at <= begin && at + bytes >= begin + WORD_BYTES)
        return WORD_MASK;
    unsigned mask = 0;
    for (unsigned i = 0; i < WORD_BYTES; i++)
        mask |= (unsigned)(begin + i >= at && begin + i < at + bytes) << i;
    return mask;
}

/* Returns the clock of the lane that makes the access. */
static inline const sim_clock *known_by(const sim_shadow *shadow, const sim_access *access)
{
    const unsigned warp = access->thread / WARP;
    const bool ahead = shadow->ahead_lanes[warp] >> access->thread % WARP & 1;
    return ahead && !access->all_lanes ? &shadow->ahead[warp] : &shadow->known[warp];
}

static inline unsigned mbarrier_of(unsigned writer)
{
    return writer % SIM_MBARRIERS;
}

/* Does the asynchronous proxy see what was written to the word? Its own writes need no fence. */
static inline bool is_fenced(const sim_clock *known, const sim_word *word)
{
    if (word->writer >= SIM_LOADED)
        return (word->writer & SIM_COPIED) == 0 ||
               word->write_epoch < known->fenced[SIM_SHADOW_WARPS + mbarrier_of(word->writer)];
    return word->write_epoch < known->fenced[word->writer / WARP];
}

static inline bool is_asynchronous(const sim_access *access)
{
    return access->loads || access->by == SIM_BY_PRODUCTS || access->by == SIM_BY_STORES;
}

/* Returns true if another thread's access at (epoch, sync) and the current access are unordered. */
static bool unordered(const sim_shadow *shadow, const sim_access *access, unsigned thread, uint32_t epoch,
                      uint16_t sync)
{
    const unsigned own = access->thread / WARP, other = thread / WARP;
    return thread != access->thread && epoch >= known_by(shadow, access)->ordered[other] &&
           (other != own || sync == access->sync);
}

/* Is a load's write, in the phase that began in the word's epoch, ordered before the current access? */
static bool load_ordered(const sim_shadow *shadow, const sim_access *access, const sim_word *word)
{
    return word->write_epoch < known_by(shadow, access)->ordered[SIM_LOADS + mbarrier_of(word->writer)];
}

/* Returns the epoch in which a warp last read the word. */
static uint32_t *read_epoch(sim_shadow *shadow, const sim_word *word, sim_reader by, unsigned warp)
{
    uint32_t **epochs = &shadow->read_epochs[by];
    if (*epochs == NULL)
        *epochs = sim_host_memory((1 + CHUNK_WORDS) * shadow->chunk_count * shadow->warp_count * sizeof **epochs);
    return *epochs + (size_t)(word - shadow->words) * shadow->warp_count + warp;
}

/* Are all readers ordered by a later barrier of all warps? This is the usual case, and cheap to test. */
static inline bool has_old_readers(const sim_shadow *shadow, const sim_word *word)
{
    return word->read_epoch < shadow->whole_epoch &&
           (word->readers[SIM_BY_PRODUCTS] | word->readers[SIM_BY_STORES] | word->readers[SIM_BY_MATRICES]) == 0;
}

/* Returns the warps that read the word as `by` and are not ordered before the current access. */
static inline uint32_t open_readers(sim_shadow *shadow, const sim_word *word, const sim_access *access, sim_reader by)
{
    if (word->readers[by] == 0)
        return 0;
    const uint32_t *ordered = known_by(shadow, access)->ordered + (unsigned)by * SIM_SHADOW_WARPS;
    const uint32_t *epochs = read_epoch(shadow, word, by, 0);
    uint32_t open = 0;
    for (uint32_t left = word->readers[by]; left != 0; left &= left - 1) {
        const unsigned warp = (unsigned)__builtin_ctz(left);
        open |= (uint32_t)(epochs[warp] >= ordered[warp]) << warp;
    }
    return open;
}

/* Is every write to the word ordered before the current access, and visible to it? This is the usual case, so it must
 * be cheap. Otherwise the rules decide if there is a conflict. */
static inline bool is_settled(const sim_shadow *shadow, const sim_word *word, const sim_access *access)
{
    if (!word->pending && word->write_epoch < shadow->whole_epoch && word->writer < SIM_LOADED &&
        !is_asynchronous(access))
        return true;
    const sim_clock *known = known_by(shadow, access);
    const unsigned column = word->writer >= SIM_LOADED ? SIM_LOADS + mbarrier_of(word->writer) : word->writer / WARP;
    return !word->pending && word->write_epoch < known->ordered[column] &&
           (!is_asynchronous(access) || is_fenced(known, word));
}

static sim_conflict meets_write(const sim_shadow *shadow, const sim_word *word, const sim_access *access, unsigned mask,
                                sim_conflict race, sim_party *ret_other)
{
    *ret_other = (sim_party){word->writer, word->write_op, false};
    if (word->write_epoch < shadow->first_epoch)
        return SIM_NO_CONFLICT;
    if (word->pending)
        return SIM_PENDING;
    if ((word->last_bytes & mask) == 0)
        return SIM_NO_CONFLICT;
    if (word->writer >= SIM_LOADED && !load_ordered(shadow, access, word))
        return SIM_LOADING;
    if (word->writer < SIM_LOADED && unordered(shadow, access, word->writer, word->write_epoch, word->write_sync))
        return race;
    return is_asynchronous(access) && !is_fenced(known_by(shadow, access), word) ? SIM_UNFENCED : SIM_NO_CONFLICT;
}

/* Returns the epoch before which reads by these warps are ordered before the current access. */
static uint32_t readers_ordered(const sim_shadow *shadow, const uint32_t readers[SIM_READERS], const sim_access *access)
{
    const uint32_t *ordered = known_by(shadow, access)->ordered;
    uint32_t before = UINT32_MAX;
    for (unsigned by = 0; by < SIM_READERS; by++)
        for (uint32_t left = readers[by]; left != 0; left &= left - 1) {
            const uint32_t epoch = ordered[by * SIM_SHADOW_WARPS + (unsigned)__builtin_ctz(left)];
            before = epoch < before ? epoch : before;
        }
    return before;
}

/* Are all readers ordered before the current access? Words next to each other have the same readers, as a rule. */
static inline bool has_ordered_readers(const sim_shadow *shadow, const sim_word *word, const sim_access *access)
{
    sim_found *found = access->found;
    if (found == NULL)
        return false;
    if (memcmp(found->readers, word->readers, sizeof found->readers) != 0) {
        memcpy(found->readers, word->readers, sizeof found->readers);
        found->before = readers_ordered(shadow, found->readers, access);
    }
    return word->read_epoch < found->before && word->other_epoch < found->before;
}

/* Checks a write against earlier reads of its bytes. */
static sim_conflict meets_read(sim_shadow *shadow, const sim_word *word, const sim_access *access, sim_party *ret_other)
{
    for (sim_reader by = SIM_BY_PRODUCTS; by < SIM_READERS; by++) {
        const uint32_t open = open_readers(shadow, word, access, by);
        if (open == 0 || (by == SIM_BY_MATRICES && (!access->loads || access->copied)))
            continue;
        *ret_other = (sim_party){(unsigned)__builtin_ctz(open) * WARP, word->read_op, true};
        return SIM_READ_WRITE;
    }
    const uint32_t open = open_readers(shadow, word, access, SIM_BY_WARP);
    const uint32_t others = open & ~(1u << access->thread / WARP);
    *ret_other = (sim_party){word->reader, word->read_op, false};
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
    return unordered(shadow, access, word->reader_2, word->read_epoch, word->read_sync) ? SIM_READ_WRITE
                                                                                        : SIM_NO_CONFLICT;
}

/* Forgets readers of other bytes of the word if they are ordered before a read of some bytes. */
static void forget_readers(sim_shadow *shadow, sim_word *word, const sim_access *access)
{
    uint32_t open = 0;
    for (sim_reader by = SIM_BY_WARP; by < SIM_READERS; by++)
        open |= word->readers[by] = open_readers(shadow, word, access, by);
    word->read_bytes = open == 0 ? 0 : word->read_bytes;
}

/* Did the warp itself read these bytes last, in this epoch? Then another read changes nothing, except for the second
 * thread. */
static inline bool is_known_read(const sim_shadow *shadow, const sim_word *word, const sim_access *access,
                                 unsigned mask)
{
    const unsigned warp = access->thread / WARP;
    return access->by == SIM_BY_WARP && word->read_epoch == shadow->epoch && word->reader / WARP == warp &&
           word->read_sync == access->sync && (mask & ~(unsigned)word->read_bytes) == 0 &&
           (word->readers[SIM_BY_WARP] >> warp & 1) != 0;
}

/* Notes a read by another actor than the warp's own instructions. epoch: where the warp's last such read is noted. */
static inline void note_other_read(const sim_shadow *shadow, sim_word *word, const sim_access *access, uint32_t *epoch)
{
    word->readers[access->by] |= 1u << access->thread / WARP;
    word->read_op = access->op;
    word->other_epoch = *epoch = shadow->epoch;
}

static inline void note_read(sim_shadow *shadow, sim_word *word, const sim_access *access, unsigned mask)
{
    const uint16_t thread = (uint16_t)access->thread;
    const uint32_t warp = 1u << thread / WARP;
    if (is_known_read(shadow, word, access, mask)) {
        if (!access->collective && thread != word->reader)
            word->reader_2 = thread;
        return;
    }
    const bool last = (word->readers[SIM_BY_WARP] & warp) != 0 &&
                      word->read_epoch >= known_by(shadow, access)->ordered[thread / WARP];
    if (mask != WORD_MASK && word->read_epoch != shadow->epoch)
        forget_readers(shadow, word, access);
    const bool known = last && word->reader / WARP == thread / WARP && word->read_sync == access->sync;
    uint32_t *epoch = read_epoch(shadow, word, access->by, thread / WARP);
    word->read_bytes |= (uint8_t)mask;
    if (access->by != SIM_BY_WARP) {
        note_other_read(shadow, word, access, epoch);
        return;
    }
    word->readers[SIM_BY_WARP] |= warp;
    *epoch = shadow->epoch;
    word->read_epoch = shadow->epoch;
    if (known && access->collective)
        return;
    if (known) {
        word->reader_2 = thread != word->reader ? thread : word->reader_2;
        return;
    }
    word->reader = word->reader_2 = thread;
    word->read_sync = (uint16_t)(access->sync - access->collective); /* as if before a bar.warp.sync */
    word->read_op = access->op;
}

static inline uint16_t writer_of(const sim_access *access)
{
    const unsigned loaded = SIM_LOADED | (access->copied ? SIM_COPIED : 0u) | access->mbarrier;
    return (uint16_t)(access->loads ? loaded : access->thread);
}

/* Notes a write of some bytes. A write of all bytes leaves the same, whatever was before. */
static inline __attribute__((always_inline)) void note_write(sim_shadow *shadow, sim_word *word,
                                                             const sim_access *access, unsigned mask)
{
    const uint16_t writer = writer_of(access);
    const uint32_t epoch = access->loads ? access->began : shadow->epoch;
    const bool first = mask == WORD_MASK || word->write_epoch < shadow->first_epoch;
    const bool same = word->writer == writer &&
                      (access->loads ? word->write_epoch == epoch
                                     : word->write_epoch >= known_by(shadow, access)->ordered[access->thread / WARP]);
    word->written = (uint8_t)(first ? mask : word->written | mask);
    word->last_bytes = (uint8_t)(mask != WORD_MASK && same ? word->last_bytes | mask : mask);
    word->writer = writer;
    word->write_epoch = epoch;
    word->write_sync = access->sync;
    word->write_op = access->op;
    word->pending = false;
    if (first || (word->read_bytes & ~mask) == 0) {
        memset(word->readers, 0, sizeof word->readers);
        word->read_bytes = 0;
    }
}

/* Was a word written by the actor who wrote another word, and not later? Then is_settled holds for it, if it does for
 * the other. */
static inline bool is_as_settled(const sim_word *word, const sim_word *other)
{
    const bool same_warp = (word->writer | other->writer) < SIM_LOADED && word->writer / WARP == other->writer / WARP;
    return !word->pending && (same_warp || word->writer == other->writer) && word->write_epoch <= other->write_epoch;
}

/* Can the word be written because another one could? */
static inline bool is_as_free(const sim_word *word, const sim_found *found)
{
    const sim_word *free = &found->free;
    return found->has_free && is_as_settled(word, free) && word->read_bytes == free->read_bytes &&
           memcmp(word->readers, free->readers, sizeof word->readers) == 0 && word->read_epoch <= free->read_epoch &&
           word->other_epoch <= free->other_epoch;
}

/* ---- ranges ---- */

/* Returns the entry of a half of a divided chunk (word: 0 or 2), or of one word of a split half. */
static sim_word *part_of(sim_shadow *shadow, size_t chunk, size_t word)
{
    return &shadow->words[shadow->chunk_count + CHUNK_WORDS * chunk + word];
}

/* Makes an entry of a part the same as that of the whole. */
static void copy_entry(sim_shadow *shadow, sim_word *part, const sim_word *whole)
{
    *part = *whole;
    for (sim_reader by = SIM_BY_WARP; by < SIM_READERS; by++)
        if (whole->readers[by] != 0)
            memcpy(read_epoch(shadow, part, by, 0), read_epoch(shadow, whole, by, 0),
                   shadow->warp_count * sizeof(uint32_t));
}

/* Is a chunk divided? If it was in an earlier block, its parts are as unwritten as the whole, and it is whole again.
 * write_epoch of a divided chunk is the time of the division. */
static inline bool is_divided(const sim_shadow *shadow, sim_word *whole)
{
    if (whole->divided != 0 && whole->write_epoch < shadow->first_epoch)
        whole->divided = 0;
    return whole->divided != 0;
}

static void divide(sim_shadow *shadow, size_t chunk)
{
    sim_word *whole = &shadow->words[chunk];
    copy_entry(shadow, part_of(shadow, chunk, 0), whole);
    copy_entry(shadow, part_of(shadow, chunk, HALF_WORDS), whole);
    whole->divided = DIVIDED;
    whole->write_epoch = shadow->epoch;
}

/* A function for a word. mask: the bytes of the access in it. */
typedef sim_conflict (*visit)(sim_shadow *shadow, sim_word *word, const sim_access *access, unsigned mask,
                              sim_party *ret_other);

/* Visits a half of a divided chunk, or some of its bytes. writes: see visit_range. */
static inline sim_conflict visit_half(sim_shadow *shadow, const sim_access *access, uint32_t at, unsigned bytes,
                                      bool writes, visit visit_word, sim_party *ret_other)
{
    const size_t chunk = at / CHUNK_BYTES, half = at % CHUNK_BYTES / HALF_BYTES;
    const size_t first = at / WORD_BYTES, last = (at + bytes - 1) / WORD_BYTES;
    const bool covered = bytes == HALF_BYTES;
    const uint8_t split = (uint8_t)(SPLIT << half);
    uint8_t *divided = &shadow->words[chunk].divided;
    sim_word *whole = part_of(shadow, chunk, half * HALF_WORDS);
    sim_conflict conflict = SIM_NO_CONFLICT;
    if (covered && (*divided & split) == 0)
        return visit_word(shadow, whole, access, WORD_MASK, ret_other);
    if ((*divided & split) == 0)
        copy_entry(shadow, whole + 1, whole);
    *divided |= split;
    for (size_t i = first; i <= last && conflict == SIM_NO_CONFLICT; i++)
        conflict = visit_word(shadow, whole + i % HALF_WORDS, access, bytes_in_word(i, at, bytes), ret_other);
    if (covered && writes && conflict == SIM_NO_CONFLICT)
        *divided &= (uint8_t)~split;
    return conflict;
}

/* Visits some bytes of a chunk by its parts. */
static inline sim_conflict visit_parts(sim_shadow *shadow, const sim_access *access, uint32_t at, unsigned bytes,
                                       bool writes, visit visit_word, sim_party *ret_other)
{
    const size_t chunk = at / CHUNK_BYTES;
    const uint32_t end = at + bytes;
    sim_conflict conflict = SIM_NO_CONFLICT;
    if (!is_divided(shadow, &shadow->words[chunk]))
        divide(shadow, chunk);
    for (uint32_t next; at < end && conflict == SIM_NO_CONFLICT; at = next) {
        next = (at / HALF_BYTES + 1) * HALF_BYTES;
        next = next < end ? next : end;
        conflict = visit_half(shadow, access, at, next - at, writes, visit_word, ret_other);
    }
    return conflict;
}

/* Visits all words of a range. writes: the access leaves all words of a covered chunk equal. */
static inline sim_conflict visit_range(sim_shadow *shadow, const sim_access *access, uint32_t at, unsigned bytes,
                                       bool writes, visit visit_word, sim_party *ret_other)
{
    const uint32_t end = at + bytes;
    sim_conflict conflict = SIM_NO_CONFLICT;
    for (uint32_t next; at < end && conflict == SIM_NO_CONFLICT; at = next) {
        sim_word *whole = &shadow->words[at / CHUNK_BYTES];
        next = (at / CHUNK_BYTES + 1) * CHUNK_BYTES;
        next = next < end ? next : end;
        const bool covered = next - at == CHUNK_BYTES;
        if (covered && !is_divided(shadow, whole)) {
            conflict = visit_word(shadow, whole, access, WORD_MASK, ret_other);
            continue;
        }
        conflict = visit_parts(shadow, access, at, next - at, writes, visit_word, ret_other);
        if (covered && writes && conflict == SIM_NO_CONFLICT)
            *whole = *part_of(shadow, at / CHUNK_BYTES, 0);
    }
    return conflict;
}

static inline __attribute__((always_inline)) sim_conflict
read_word(sim_shadow *shadow, sim_word *word, const sim_access *access, unsigned mask, sim_party *ret_other)
{
    if (word->write_epoch < shadow->first_epoch || (mask & ~(unsigned)word->written) != 0)
        return SIM_UNWRITTEN;
    const sim_conflict conflict = is_settled(shadow, word, access)
                                      ? SIM_NO_CONFLICT
                                      : meets_write(shadow, word, access, mask, SIM_WRITE_READ, ret_other);
    if (conflict == SIM_NO_CONFLICT)
        note_read(shadow, word, access, mask);
    return conflict;
}

static inline __attribute__((always_inline)) sim_conflict
write_word(sim_shadow *shadow, sim_word *word, const sim_access *access, unsigned mask, sim_party *ret_other)
{
    sim_found *found = mask == WORD_MASK ? access->found : NULL;
    sim_conflict conflict = SIM_NO_CONFLICT;
    if (found == NULL || !is_as_free(word, found)) {
        const bool settled = is_settled(shadow, word, access);
        const bool unread = (word->read_bytes & mask) == 0 || has_old_readers(shadow, word) ||
                            has_ordered_readers(shadow, word, access);
        if (!settled)
            conflict = meets_write(shadow, word, access, mask, SIM_WRITE_WRITE, ret_other);
        if (conflict == SIM_NO_CONFLICT && !unread)
            conflict = meets_read(shadow, word, access, ret_other);
        if (found != NULL && settled && unread) {
            found->has_free = true;
            found->free = *word;
        }
    }
    if (conflict == SIM_NO_CONFLICT)
        note_write(shadow, word, access, mask);
    return conflict;
}

static inline sim_conflict start_word(sim_shadow *shadow, sim_word *word, const sim_access *access, unsigned mask,
                                      sim_party *ret_other)
{
    const sim_conflict conflict = write_word(shadow, word, access, mask, ret_other);
    word->pending |= conflict == SIM_NO_CONFLICT;
    return conflict;
}

static inline sim_conflict land_word(sim_shadow *shadow, sim_word *word, const sim_access *access, unsigned mask,
                                     sim_party *ret_other)
{
    (void)ret_other;
    note_write(shadow, word, access, mask);
    return SIM_NO_CONFLICT;
}

/* Reads whole chunks by another actor than the warp's own instructions. */
static sim_conflict read_chunks(sim_shadow *shadow, const sim_access *access, uint32_t at, unsigned bytes,
                                sim_party *ret_other)
{
    sim_word *word = &shadow->words[at / CHUNK_BYTES];
    const sim_word *allowed = *access->allowed;
    uint32_t *epoch = read_epoch(shadow, word, access->by, access->thread / WARP);
    for (const uint32_t end = at + bytes; at < end; at += CHUNK_BYTES, word++, epoch += shadow->warp_count) {
        const bool whole = !word->divided && word->written == WORD_MASK;
        __builtin_prefetch(word + AHEAD, 1);
        __builtin_prefetch(epoch + AHEAD * shadow->warp_count, 1);
        if (whole && allowed != NULL && word->write_epoch >= shadow->first_epoch && is_as_settled(word, allowed)) {
            word->read_bytes = WORD_MASK;
            note_other_read(shadow, word, access, epoch);
            continue;
        }
        const sim_conflict conflict = visit_range(shadow, access, at, CHUNK_BYTES, false, read_word, ret_other);
        if (conflict != SIM_NO_CONFLICT)
            return conflict;
        if (whole && is_settled(shadow, word, access))
            *access->allowed = allowed = word;
    }
    return SIM_NO_CONFLICT;
}

sim_conflict sim_shadow_read(sim_shadow *shadow, const sim_access *access, uint32_t at, unsigned bytes,
                             sim_party *ret_other)
{
    if (access->allowed != NULL && (at | bytes) % CHUNK_BYTES == 0)
        return read_chunks(shadow, access, at, bytes, ret_other);
    return visit_range(shadow, access, at, bytes, false, read_word, ret_other);
}

sim_conflict sim_shadow_write(sim_shadow *shadow, const sim_access *access, uint32_t at, unsigned bytes,
                              sim_party *ret_other)
{
    return visit_range(shadow, access, at, bytes, true, write_word, ret_other);
}

sim_conflict sim_shadow_start(sim_shadow *shadow, const sim_access *access, uint32_t at, unsigned bytes,
                              sim_party *ret_other)
{
    return visit_range(shadow, access, at, bytes, true, start_word, ret_other);
}

void sim_shadow_land(sim_shadow *shadow, const sim_access *access, uint32_t at, unsigned bytes)
{
    sim_party none;
    (void)visit_range(shadow, access, at, bytes, true, land_word, &none);
}

/* ---- words of each lane ---- */

static inline sim_conflict visit_lane(sim_shadow *shadow, const sim_access *access, uint32_t at, unsigned bytes,
                                      bool writes, visit visit_word, sim_party *ret_other)
{
    const size_t chunk = at / CHUNK_BYTES;
    sim_word *whole = &shadow->words[chunk];
    if (bytes == CHUNK_BYTES)
        return is_divided(shadow, whole) ? visit_range(shadow, access, at, bytes, writes, visit_word, ret_other)
                                         : visit_word(shadow, whole, access, WORD_MASK, ret_other);
    if (!is_divided(shadow, whole))
        divide(shadow, chunk);
    return visit_half(shadow, access, at, bytes, writes, visit_word, ret_other);
}

static inline sim_conflict visit_lanes(sim_shadow *shadow, sim_access *access, const sim_lanes *lanes, unsigned bytes,
                                       bool writes, visit visit_word, int *ret_lane, sim_party *ret_other)
{
    const unsigned first = access->thread / WARP * WARP;
    for (int lane = 0; lane < WARP; lane++) { /* all at once: many are not in the cache */
        const size_t word = lanes->at[lane] / WORD_BYTES;
        __builtin_prefetch(&shadow->words[word / CHUNK_WORDS], 1);
        if (bytes < CHUNK_BYTES)
            __builtin_prefetch(part_of(shadow, word / CHUNK_WORDS, word % CHUNK_WORDS), 1);
    }
    for (uint32_t left = lanes->mask; left != 0; left &= left - 1) {
        const int lane = __builtin_ctz(left);
        access->thread = first + (unsigned)lane;
        const sim_conflict conflict = visit_lane(shadow, access, lanes->at[lane], bytes, writes, visit_word, ret_other);
        *ret_lane = lane;
        if (conflict != SIM_NO_CONFLICT)
            return conflict;
    }
    return SIM_NO_CONFLICT;
}

sim_conflict sim_shadow_read_lanes(sim_shadow *shadow, sim_access *access, const sim_lanes *lanes, int *ret_lane,
                                   sim_party *ret_other)
{
    if (lanes->bytes == CHUNK_BYTES)
        return visit_lanes(shadow, access, lanes, CHUNK_BYTES, false, read_word, ret_lane, ret_other);
    return visit_lanes(shadow, access, lanes, lanes->bytes, false, read_word, ret_lane, ret_other);
}

sim_conflict sim_shadow_write_lanes(sim_shadow *shadow, sim_access *access, const sim_lanes *lanes, int *ret_lane,
                                    sim_party *ret_other)
{
    if (lanes->bytes == CHUNK_BYTES)
        return visit_lanes(shadow, access, lanes, CHUNK_BYTES, true, write_word, ret_lane, ret_other);
    return visit_lanes(shadow, access, lanes, lanes->bytes, true, write_word, ret_lane, ret_other);
}

sim_conflict sim_shadow_start_lanes(sim_shadow *shadow, sim_access *access, const sim_lanes *lanes, int *ret_lane,
                                    sim_party *ret_other)
{
    if (lanes->bytes == CHUNK_BYTES)
        return visit_lanes(shadow, access, lanes, CHUNK_BYTES, true, start_word, ret_lane, ret_other);
    return visit_lanes(shadow, access, lanes, lanes->bytes, true, start_word, ret_lane, ret_other);
}

void sim_shadow_land_lanes(sim_shadow *shadow, sim_access *access, const sim_lanes *lanes)
{
    sim_party none;
    int lane;
    (void)visit_lanes(shadow, access, lanes, lanes->bytes, true, land_word, &lane, &none);
}
