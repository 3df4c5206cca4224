/*
 * - Code does not matter here, because an import brings none. All kernels are treated as if they had code.
 * - The generator says what the runtime would choose without a problem's own measurements. It learns all other
 *   measurements for that.
 */
#include "tuner/bench/accuracy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/ops/op.h"
#include "runtime/ops/steps.h"

/* ---- ranks ---- */

typedef struct place {
    double value, rank;
    size_t index;
} place;

static int by_value(const void *a, const void *b)
{
    const place *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

static int by_index(const void *a, const void *b)
{
    const place *x = a, *y = b;
    return (x->index > y->index) - (x->index < y->index);
}

/* Computes the rank of each number. places is in the order of values. Equal numbers get the mean of their ranks. */
static void rank(const double *values, size_t count, place *places)
{
    for (size_t i = 0; i < count; i++)
        places[i] = (place){.value = values[i], .index = i};
    qsort(places, count, sizeof *places, by_value);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first; end < count && !(places[end].value > places[first].value); end++)
            continue;
        for (size_t i = first; i < end; i++)
            places[i].rank = (double)(first + end - 1) / 2;
    }
    qsort(places, count, sizeof *places, by_index);
}

/* Correlates ranks, whose mean is known. */
static double correlate(const place *x, const place *y, size_t count)
{
    const double mean = (double)(count - 1) / 2;
    double xy = 0, xx = 0, yy = 0;
    for (size_t i = 0; i < count; i++) {
        xy += (x[i].rank - mean) * (y[i].rank - mean);
        xx += (x[i].rank - mean) * (x[i].rank - mean);
        yy += (y[i].rank - mean) * (y[i].rank - mean);
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 0;
}

fa2_status fa2i_rank_correlation(const double *x, const double *y, size_t count, double *ret_rho)
{
    place *places = fa2i_alloc_array(2 * count, sizeof *places);
    if (places == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for %zu places", 2 * count);
    rank(x, count, places);
    rank(y, count, places + count);
    *ret_rho = correlate(places, places + count, count);
    fa2i_free(places);
    return FA2_OK;
}

/* ---- problems ---- */

typedef struct work {
    fa2i_generator *generator;
    const fa2i_card *card;
    bool measured;
    fa2i_evidence evidence; /* owned */
    fa2i_known_set *others; /* owned: the sets of all other problems */
} work;

static bool counts(const work *w, const fa2i_known_set *set)
{
    return set->real && fa2i_card_is_same(&set->card, w->card) && set->measured == w->measured && set->count > 1;
}

/* Returns the us of a variant in a set; 0: it was not timed. */
static double time_of(const work *w, const fa2i_known_set *set, const char *text)
{
    const fa2i_known_time *times = w->evidence.times + set->first;
    for (size_t i = 0; i < set->count; i++)
        if (strcmp(w->evidence.kernels[times[i].kernel].text, text) == 0)
            return times[i].us;
    return 0;
}

/* *ret_known: this fa2 has the variant. A report may come from another version. */
static fa2_status look_up(const work *w, const char *text, bool *ret_known)
{
    fa2i_variant variant;
    const fa2_status st = fa2i_generator_variant(w->generator, text, &variant);
    *ret_known = st == FA2_OK;
    return st == FA2_E_NOT_FOUND ? FA2_OK : st;
}

/* Compares the variants that are known; out->variants is their number. Fills the rest if there are two or more. */
static fa2_status compare_model(const work *w, const fa2i_known_set *set, fa2i_accuracy *out)
{
    fa2_status st = FA2_OK;
    const fa2i_known_time *times = w->evidence.times + set->first;
    double *numbers = fa2i_alloc_array(2 * set->count, sizeof *numbers);
    double *model = numbers, *us = numbers == NULL ? NULL : numbers + set->count;
    size_t first = 0, best = 0, count = 0;
    if (numbers == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for %zu times", set->count);
    for (size_t i = 0; i < set->count; i++) {
        const fa2i_known_kernel *k = &w->evidence.kernels[times[i].kernel];
        bool known = false;
        FA2_TRY(look_up(w, k->text, &known));
        if (!known)
            continue;
        us[count] = times[i].us;
        FA2_TRY(fa2i_generator_cost(w->generator, k->text, &set->problem, w->card, k->registers, &model[count]));
        if (count == 0 || model[count] < model[first]) {
            first = count;
            memcpy(out->first, k->text, sizeof out->first);
        }
        best = us[count] < us[best] ? count : best;
        count++;
    }
    out->variants = count;
    if (count < 2)
        goto done;
    FA2_TRY(fa2i_rank_correlation(model, us, count, &out->rank_correlation));
    out->best_us = us[best];
    out->first_loss = us[first] / us[best] - 1;
done:
    fa2i_free(numbers);
    return st;
}

static fa2_status find_regret(const work *w, const fa2i_known_set *set, fa2i_accuracy *out)
{
    fa2_status st = FA2_OK;
    fa2i_evidence rest = w->evidence;
    fa2i_option *options = NULL;
    size_t count = 0;
    const fa2_problem asked = fa2i_problem_asked(&set->problem, w->card->sm_count);
    rest.sets = w->others;
    rest.set_count = 0;
    for (size_t i = 0; i < w->evidence.set_count; i++) {
        const fa2i_known_set *other = &w->evidence.sets[i];
        if (memcmp(&other->problem, &set->problem, sizeof other->problem) != 0)
            rest.sets[rest.set_count++] = *other;
    }
    FA2_TRY(fa2i_generator_learn(w->generator, set->problem.op, &rest, w->card));
    FA2_TRY(fa2i_generator_rank(w->generator, &asked, w->card, &options, &count));
    memcpy(out->chosen, options[0].text, sizeof out->chosen);
    const double us = time_of(w, set, out->chosen);
    out->regret = us > 0 ? us / out->best_us - 1 : FA2I_ACCURACY_UNKNOWN;
done:
    fa2i_free(options);
    return st;
}

fa2_status fa2i_accuracy_find(fa2i_generator *generator, fa2i_cache *cache, const fa2i_card *card, fa2_op op,
                              bool measured, fa2i_accuracy **ret_list, size_t *ret_count)
{
    fa2_status st = FA2_OK;
    work w = {.generator = generator, .card = card, .measured = measured};
    fa2i_accuracy *list = NULL;
    size_t count = 0;
    const fa2_problem any = {.struct_bytes = sizeof(fa2_problem), .op = op};
    FA2_TRY(fa2i_cache_evidence(cache, card, op, fa2i_op_of(&any)->abi, &w.evidence));
    for (size_t i = 0; i < w.evidence.kernel_count; i++)
        w.evidence.kernels[i].has_code = true;
    FA2_TRY(FA2I_NEW(list, w.evidence.set_count + 1));
    FA2_TRY(FA2I_NEW(w.others, w.evidence.set_count + 1));
    for (size_t i = 0; i < w.evidence.set_count; i++) {
        const fa2i_known_set *set = &w.evidence.sets[i];
        if (!counts(&w, set))
            continue;
        list[count] = (fa2i_accuracy){.problem = set->problem};
        FA2_TRY(compare_model(&w, set, &list[count]));
        if (list[count].variants < 2)
            continue;
        FA2_TRY(find_regret(&w, set, &list[count]));
        count++;
    }
    *ret_list = list;
    *ret_count = count;
    list = NULL; /* the caller owns it now */
done:
    fa2i_free(w.others);
    fa2i_free(list);
    fa2i_evidence_done(&w.evidence);
    return st;
}
