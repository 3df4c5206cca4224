/*
 * Interleaved halving. tests/test_search.c repeats the simulation that chose it over sequential sampling.
 *
 * Invariants:
 * - alive[] holds the indexes of contenders that are still in: outcome OK, no duplicates.
 * - Probe times are never mixed with samples, because they were taken in another state of the caches.
 */
#include <math.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "tuner/judge/case.h"
#include "tuner/search/search.h"

typedef struct run {
    fa2i_search *search;
    fa2i_contender *contenders;
    size_t count;
    uint32_t *alive;
    size_t alive_count;
    fa2i_sample *samples; /* room for the longest round */
    uint64_t random;
} run;

static void drop_failed(run *r)
{
    size_t kept = 0;
    for (size_t i = 0; i < r->alive_count; i++)
        if (r->contenders[r->alive[i]].outcome == FA2I_OUTCOME_OK)
            r->alive[kept++] = r->alive[i];
    r->alive_count = kept;
}

/* Queues one sweep over the living, in the order of alive[] or shuffled. */
static void queue_sweep(run *r, fa2i_sample *samples, bool shuffled)
{
    for (size_t i = 0; i < r->alive_count; i++)
        samples[i] = (fa2i_sample){.contender = r->alive[i]};
    for (size_t i = r->alive_count; shuffled && i > 1; i--) {
        size_t other = (size_t)(fa2i_random(&r->random) % i);
        fa2i_sample held = samples[i - 1];
        samples[i - 1] = samples[other];
        samples[other] = held;
    }
}

static fa2_status take(run *r, size_t count)
{
    fa2_status st = r->search->sample(r->search->user, r->samples, count, r->search->launches, r->search->best_us);
    if (st != FA2_OK)
        return st;
    for (size_t i = 0; i < count; i++) {
        const fa2i_sample *sample = &r->samples[i];
        if (!sample->taken)
            r->search->stopped = true;
        else if (sample->outcome != FA2I_OUTCOME_OK)
            r->contenders[sample->contender].outcome = sample->outcome;
    }
    return FA2_OK;
}

static void probe_results(run *r, const fa2i_sample *samples, size_t count)
{
    double best = INFINITY;
    for (size_t i = 0; i < count; i++) {
        fa2i_contender *contender = &r->contenders[samples[i].contender];
        if (!samples[i].taken || samples[i].outcome != FA2I_OUTCOME_OK)
            continue;
        contender->probe_us = samples[i].us;
        contender->statistics = (fa2i_statistics){samples[i].us, samples[i].us, samples[i].us, samples[i].us};
        best = fmin(best, samples[i].us);
    }
    r->search->best_us = isfinite(best) ? best : 0;
}

/* All warm-ups come before all timed launches: the first ones also wake the GPU's clocks. */
static fa2_status probe(run *r)
{
    size_t count = r->alive_count;
    queue_sweep(r, r->samples, false);
    queue_sweep(r, r->samples + count, false);
    fa2_status st = take(r, 2 * count);
    if (st != FA2_OK)
        return st;
    probe_results(r, r->samples + count, count);
    drop_failed(r);
    if (r->search->stopped || r->alive_count == 0 || r->search->best_us >= FA2I_SEARCH_SHORT_US)
        return FA2_OK;
    r->search->launches = FA2I_SEARCH_BATCH;
    count = r->alive_count;
    queue_sweep(r, r->samples, false);
    st = take(r, count);
    probe_results(r, r->samples, count);
    drop_failed(r);
    return st;
}

static void drop_slow_probes(run *r)
{
    size_t kept = 0;
    for (size_t i = 0; i < r->alive_count; i++) {
        uint32_t index = r->alive[i];
        bool near = r->contenders[index].probe_us <= FA2I_SEARCH_PROBE_KEEP * r->search->best_us;
        if (near || index == r->search->default_index)
            r->alive[kept++] = index;
    }
    r->alive_count = kept;
}

static void add_samples(run *r, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fa2i_contender *contender = &r->contenders[r->samples[i].contender];
        if (r->samples[i].taken && r->samples[i].outcome == FA2I_OUTCOME_OK)
            contender->samples[contender->count++] = r->samples[i].us;
    }
    for (size_t i = 0; i < r->alive_count; i++) {
        fa2i_contender *contender = &r->contenders[r->alive[i]];
        if (contender->count > 0)
            contender->statistics = fa2i_statistics_of(contender->samples, contender->count);
    }
}

/* Sorts alive[] by median (insertion sort: there are a few dozen) and sets best_us. */
static void rank(run *r)
{
    for (size_t i = 1; i < r->alive_count; i++) {
        uint32_t index = r->alive[i];
        double median = r->contenders[index].statistics.median;
        size_t j = i;
        for (; j > 0 && r->contenders[r->alive[j - 1]].statistics.median > median; j--)
            r->alive[j] = r->alive[j - 1];
        r->alive[j] = index;
    }
    if (r->alive_count > 0)
        r->search->best_us = r->contenders[r->alive[0]].statistics.median;
}

static void keep_best_third(run *r)
{
    size_t keep = (r->alive_count + 2) / 3;
    keep = keep < 2 ? 2 : keep;
    size_t kept = 0;
    for (size_t i = 0; i < r->alive_count; i++)
        if (i < keep || r->alive[i] == r->search->default_index)
            r->alive[kept++] = r->alive[i];
    r->alive_count = kept;
}

static fa2_status run_round(run *r, size_t samples_each)
{
    size_t count = 0;
    for (size_t i = 0; i < samples_each; i++, count += r->alive_count)
        queue_sweep(r, r->samples + count, true);
    fa2_status st = take(r, count);
    if (st != FA2_OK)
        return st;
    add_samples(r, count);
    drop_failed(r);
    rank(r);
    return FA2_OK;
}

/* Says whether the first contender in alive[], sorted by median, is clearly faster than the others. */
static bool is_decided(const run *r)
{
    const fa2i_statistics *best = &r->contenders[r->alive[0]].statistics;
    for (size_t i = 1; i < r->alive_count; i++) {
        const fa2i_statistics *other = &r->contenders[r->alive[i]].statistics;
        if (other->min <= best->q3 || other->median < FA2I_SEARCH_APART * best->median)
            return false;
    }
    return r->alive_count > 0;
}

static fa2_status run_rounds(run *r)
{
    fa2i_search *search = r->search;
    for (size_t each = FA2I_SEARCH_FIRST_ROUND; each <= FA2I_SEARCH_LAST_ROUND; each *= 2) {
        if (search->spent != NULL && search->spent(search->user))
            return FA2_OK;
        fa2_status st = run_round(r, each);
        if (st != FA2_OK || search->stopped)
            return st;
        if (each == FA2I_SEARCH_LAST_ROUND)
            break;
        keep_best_third(r);
        search->early = is_decided(r);
        if (search->early)
            break;
    }
    search->complete = true;
    return FA2_OK;
}

static fa2_status run_exact(run *r)
{
    const fa2_status st = r->alive_count > 0 ? run_round(r, 1) : FA2_OK;
    if (st != FA2_OK || r->search->stopped)
        return st;
    keep_best_third(r);
    r->search->complete = true;
    return FA2_OK;
}

static fa2_status run_noisy(run *r)
{
    const fa2_status st = probe(r);
    if (st != FA2_OK)
        return st;
    drop_slow_probes(r);
    return !r->search->stopped && r->alive_count > 0 ? run_rounds(r) : FA2_OK;
}

fa2_status fa2i_search_run(fa2i_search *search, fa2i_contender *contenders, size_t count)
{
    fa2_status st = FA2_OK;
    run r = {.search = search, .contenders = contenders, .count = count, .random = search->seed};
    search->stopped = search->complete = search->early = false;
    search->launches = 1;
    search->best_us = 0;
    FA2_TRY(FA2I_NEW(r.alive, count));
    FA2_TRY(FA2I_NEW(r.samples, count * FA2I_SEARCH_LAST_ROUND));
    for (size_t i = 0; i < count; i++)
        if (contenders[i].outcome == FA2I_OUTCOME_OK)
            r.alive[r.alive_count++] = (uint32_t)i;
    FA2_TRY(search->exact ? run_exact(&r) : run_noisy(&r));
    for (size_t i = 0; i < r.alive_count; i++)
        contenders[r.alive[i]].finalist = true;
done:
    fa2i_free(r.alive);
    fa2i_free(r.samples);
    return st;
}

static bool eligible(const fa2i_contender *contender, bool finalists)
{
    return contender->outcome == FA2I_OUTCOME_OK && contender->finalist == finalists &&
           contender->statistics.median > 0;
}

/* Says whether a wins against b when their times are tied. */
static bool preferred(const fa2i_contender *a, const fa2i_contender *b)
{
    if (a->smem_bytes != b->smem_bytes)
        return a->smem_bytes < b->smem_bytes;
    if (a->registers != b->registers)
        return a->registers < b->registers;
    return strcmp(a->text, b->text) < 0;
}

static size_t pick_among(const fa2i_contender *contenders, size_t count, size_t default_index, bool finalists)
{
    size_t leader = count;
    for (size_t i = 0; i < count; i++)
        if (eligible(&contenders[i], finalists) &&
            (leader == count || contenders[i].statistics.median < contenders[leader].statistics.median))
            leader = i;
    if (leader == count)
        return count;
    double limit = FA2I_SEARCH_TIE * contenders[leader].statistics.median;
    if (default_index < count && eligible(&contenders[default_index], finalists))
        limit = fmin(limit, contenders[default_index].statistics.median);
    size_t winner = leader;
    for (size_t i = 0; i < count; i++)
        if (eligible(&contenders[i], finalists) && contenders[i].statistics.median <= limit &&
            contenders[i].statistics.min <= contenders[leader].statistics.q3 &&
            preferred(&contenders[i], &contenders[winner]))
            winner = i;
    return winner;
}

size_t fa2i_search_pick(const fa2i_contender *contenders, size_t count, size_t default_index)
{
    size_t winner = pick_among(contenders, count, default_index, true);
    return winner < count ? winner : pick_among(contenders, count, default_index, false);
}
