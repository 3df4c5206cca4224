/*
 * Each plan is in a hash chain and in a list ordered by age. At the limit, a new plan takes the memory of the oldest.
 *
 * The look-up works without a lock, because:
 * - Memory of plans is reused, and only fa2i_plans_done frees it. So a reader's pointer always points to some plan.
 * - A reader compares and copies words, each of them atomic. It takes the copy only if the version is the same, and
 *   even, before and after. The writer makes the version odd before the first word and even after the last one. Each
 *   word is stored with release and loaded with acquire, so a reader that sees a new word also sees the odd version.
 * - A plan may move to another chain while a reader is at it. The reader goes on in that chain, and may miss a plan.
 *   Then the caller asks again under its lock. STEPS_MOST ends a walk through chains that change all the time.
 *
 * Age: readers write nothing. They see whether a plan was moved to the front of the list in this era. If it was not,
 * the caller moves it. An era ends after ERA moves. So a plan in use ages by at most one era, and the last
 * FA2I_PLANS_KEPT problems in use are among PLANS_MOST.
 */
#include "runtime/plan/plan.h"

#include <stdatomic.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/problem_hash.h"

enum {
    ERA = FA2I_PLANS_KEPT / 4,
    PLANS_MOST = FA2I_PLANS_KEPT + ERA,
    PLACE_BITS = 14,
    PLACES = 1 << PLACE_BITS,
    STEPS_MOST = 256,
    PROBLEM_WORDS = FA2I_HASHED_WORDS, /* the fields; the other bytes are the same in all valid problems */
    RESERVED_WORDS = (sizeof(fa2_problem) - offsetof(fa2_problem, op) - FA2I_FIELD_BYTES) / sizeof(uint64_t),
    READY_WORDS = sizeof(fa2i_ready) / sizeof(uint64_t)
};
_Static_assert(sizeof(fa2i_ready) % sizeof(uint64_t) == 0, "it is copied by words");

typedef _Atomic(uint64_t) shared_word;

struct fa2i_kept_plan {
    shared_word version; /* odd while it is being written */
    shared_word problem[PROBLEM_WORDS];
    shared_word ready[READY_WORDS];
    _Atomic(fa2i_kept_plan *) next; /* next in the hash chain */
    _Atomic(uint32_t) era;          /* the era in which it was last moved to the front */
    /* Only for functions that change the table. */
    fa2i_kept_plan *newer, *older;
    fa2i_plan plan;
};

static _Atomic(fa2i_kept_plan *) *place_of(const fa2i_plans *plans, const fa2_problem *problem)
{
    return &plans->places[fa2i_problem_hash(problem) >> (64 - PLACE_BITS)];
}

fa2_status fa2i_plans_init(fa2i_plans *plans)
{
    *plans = (fa2i_plans){.places = fa2i_alloc_array(PLACES, sizeof *plans->places)};
    return plans->places != NULL ? FA2_OK : fa2i_fail(FA2_E_MEMORY, "no memory for the table of plans");
}

void fa2i_plans_done(fa2i_plans *plans)
{
    while (plans->newest != NULL) {
        fa2i_kept_plan *kept = plans->newest;
        plans->newest = kept->older;
        fa2i_free(kept);
    }
    fa2i_free((void *)plans->places);
    *plans = (fa2i_plans){.places = NULL};
}

/* ---- reading ---- */

static uint64_t load(const shared_word *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

/* Compares four words at a time, because a loop costs as much as the words. */
static bool is_of(const fa2i_kept_plan *kept, const uint64_t words[PROBLEM_WORDS])
{
    const shared_word *of = kept->problem;
    for (size_t i = 0; i < PROBLEM_WORDS; i += 4)
        if (((words[i] ^ load(&of[i])) | (words[i + 1] ^ load(&of[i + 1])) | (words[i + 2] ^ load(&of[i + 2])) |
             (words[i + 3] ^ load(&of[i + 3]))) != 0)
            return false;
    return true;
}

/* Returns true if a reserved member after the fields is not 0. Such a problem is not valid, so it has no plan. */
static bool has_reserved(const fa2_problem *problem)
{
    uint64_t words[RESERVED_WORDS], any = 0;
    memcpy(words, (const char *)&problem->op + FA2I_FIELD_BYTES, sizeof words);
    for (size_t i = 0; i < RESERVED_WORDS; i++)
        any |= words[i];
    return any != 0;
}

/* Copies four words at a time, for the same reason. */
static void copy_ready(const fa2i_kept_plan *kept, uint64_t ready[READY_WORDS])
{
    for (size_t i = 0; i < READY_WORDS / 4 * 4; i += 4) {
        ready[i] = load(&kept->ready[i]);
        ready[i + 1] = load(&kept->ready[i + 1]);
        ready[i + 2] = load(&kept->ready[i + 2]);
        ready[i + 3] = load(&kept->ready[i + 3]);
    }
    for (size_t i = READY_WORDS / 4 * 4; i < READY_WORDS; i++)
        ready[i] = load(&kept->ready[i]);
}

fa2i_found fa2i_plans_find(const fa2i_plans *plans, const fa2_problem *problem, fa2i_ready *ret_ready)
{
    uint64_t words[PROBLEM_WORDS], ready[READY_WORDS];
    const fa2i_kept_plan *kept = atomic_load_explicit(place_of(plans, problem), memory_order_acquire);
    if (has_reserved(problem))
        return FA2I_PLAN_NONE;
    memcpy(words, &problem->op, sizeof words);
    for (int step = 0; kept != NULL && step < STEPS_MOST; step++) {
        const uint64_t version = atomic_load_explicit(&kept->version, memory_order_acquire);
        if (!is_of(kept, words)) {
            kept = atomic_load_explicit(&kept->next, memory_order_acquire);
            continue;
        }
        copy_ready(kept, ready);
        if (version % 2 != 0 || atomic_load_explicit(&kept->version, memory_order_relaxed) != version)
            break;
        memcpy(ret_ready, ready, sizeof ready);
        return atomic_load_explicit(&kept->era, memory_order_relaxed) ==
                       atomic_load_explicit(&plans->era, memory_order_relaxed)
                   ? FA2I_PLAN_FRESH
                   : FA2I_PLAN_AGED;
    }
    return FA2I_PLAN_NONE;
}

/* ---- changing ---- */

static void write_words(shared_word *to, const void *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t word;
        memcpy(&word, (const char *)from + i * sizeof word, sizeof word);
        atomic_store_explicit(&to[i], word, memory_order_release);
    }
}

static void write_plan(fa2i_kept_plan *kept, const fa2i_plan *plan)
{
    const uint64_t version = atomic_load_explicit(&kept->version, memory_order_relaxed);
    atomic_store_explicit(&kept->version, version + 1, memory_order_relaxed);
    write_words(kept->problem, &plan->problem.op, PROBLEM_WORDS);
    write_words(kept->ready, &plan->ready, READY_WORDS);
    atomic_store_explicit(&kept->version, version + 2, memory_order_release);
    kept->plan = *plan;
}

static void take_from_list(fa2i_plans *plans, const fa2i_kept_plan *kept)
{
    *(kept->newer != NULL ? &kept->newer->older : &plans->newest) = kept->older;
    *(kept->older != NULL ? &kept->older->newer : &plans->oldest) = kept->newer;
}

static void put_first(fa2i_plans *plans, fa2i_kept_plan *kept)
{
    uint32_t era = atomic_load_explicit(&plans->era, memory_order_relaxed);
    if (++plans->moved == ERA) {
        plans->moved = 0;
        atomic_store_explicit(&plans->era, ++era, memory_order_relaxed);
    }
    atomic_store_explicit(&kept->era, era, memory_order_relaxed);
    kept->newer = NULL;
    kept->older = plans->newest;
    *(plans->newest != NULL ? &plans->newest->newer : &plans->oldest) = kept;
    plans->newest = kept;
}

/* Takes the oldest plan out of the table. */
static fa2i_kept_plan *take_oldest(fa2i_plans *plans)
{
    fa2i_kept_plan *kept = plans->oldest;
    _Atomic(fa2i_kept_plan *) *at = place_of(plans, &kept->plan.problem);
    while (atomic_load_explicit(at, memory_order_relaxed) != kept)
        at = &atomic_load_explicit(at, memory_order_relaxed)->next;
    atomic_store_explicit(at, atomic_load_explicit(&kept->next, memory_order_relaxed), memory_order_release);
    take_from_list(plans, kept);
    plans->count--;
    return kept;
}

static fa2i_kept_plan *get(const fa2i_plans *plans, const fa2_problem *problem)
{
    fa2i_kept_plan *kept = atomic_load_explicit(place_of(plans, problem), memory_order_relaxed);
    while (kept != NULL && memcmp(&kept->plan.problem, problem, sizeof *problem) != 0)
        kept = atomic_load_explicit(&kept->next, memory_order_relaxed);
    return kept;
}

const fa2i_plan *fa2i_plans_get(fa2i_plans *plans, const fa2_problem *problem)
{
    fa2i_kept_plan *kept = get(plans, problem);
    if (kept == NULL)
        return NULL;
    take_from_list(plans, kept);
    put_first(plans, kept);
    return &kept->plan;
}

fa2_status fa2i_plans_put(fa2i_plans *plans, const fa2i_plan *plan)
{
    fa2i_kept_plan *kept = get(plans, &plan->problem);
    if (kept != NULL) {
        write_plan(kept, plan);
        return FA2_OK;
    }
    kept = plans->count < PLANS_MOST ? fa2i_alloc(sizeof *kept) : take_oldest(plans);
    if (kept == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for a plan");
    _Atomic(fa2i_kept_plan *) *at = place_of(plans, &plan->problem);
    write_plan(kept, plan);
    atomic_store_explicit(&kept->next, atomic_load_explicit(at, memory_order_relaxed), memory_order_release);
    atomic_store_explicit(at, kept, memory_order_release);
    put_first(plans, kept);
    plans->count++;
    return FA2_OK;
}
