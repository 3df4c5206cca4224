/*
 * The expected minimum of independent normal variables is the integral of the probability that all of them are above
 * t.
 */
#include "tuner/search/prediction.h"

#include <math.h>

enum { STEPS = 64 };
static const double reach = 4; /* standard deviations; the tails beyond are ignored */

/* Returns the candidate with the least expected time, or count if there is none. known: considers only candidates that
 * rest on measurements. */
static size_t find_best(const fa2i_prediction *predictions, size_t count, bool known)
{
    size_t best = count;
    for (size_t i = 0; i < count; i++) {
        const fa2i_judgement *one = &predictions[i].judgement;
        if (one->us > 0 && (!known || one->known >= FA2I_PREDICTION_KNOWN) &&
            (best == count || one->us < predictions[best].judgement.us))
            best = i;
    }
    return best;
}

void fa2i_predictions_sort_out(fa2i_prediction *predictions, size_t count)
{
    const size_t index = find_best(predictions, count, true);
    const fa2i_judgement best = index < count ? predictions[index].judgement : (fa2i_judgement){0};
    for (size_t i = 0; i < count; i++) {
        const fa2i_judgement *one = &predictions[i].judgement;
        predictions[i].hopeless = index < count && one->us > 0 && one->known >= FA2I_PREDICTION_KNOWN &&
                                  log(one->us / best.us) > FA2I_PREDICTION_BEHIND * hypot(one->doubt, best.doubt);
    }
}

/* Returns the probability that all times are above exp(t). */
static double chance_above(const fa2i_prediction *predictions, size_t count, double t)
{
    double chance = 1;
    for (size_t i = 0; i < count; i++) {
        const fa2i_judgement *one = &predictions[i].judgement;
        const double deviation = fmax(one->doubt, 1e-6);
        if (one->us > 0)
            chance *= 0.5 * erfc((t - log(one->us)) / (deviation * sqrt(2)));
    }
    return chance;
}

double fa2i_predictions_gain(const fa2i_prediction *predictions, size_t count)
{
    const size_t best = find_best(predictions, count, false);
    if (best == count)
        return 0;
    const double most = log(predictions[best].judgement.us);
    double least = most, above = 0;
    for (size_t i = 0; i < count; i++) {
        const fa2i_judgement *one = &predictions[i].judgement;
        if (one->us > 0)
            least = fmin(least, log(one->us) - reach * one->doubt);
    }
    /* The integral goes beyond the first choice's own time by `reach` of its deviations, so that its own doubt is
     * included. */
    const double step = (most + reach * predictions[best].judgement.doubt - least) / STEPS;
    for (int i = 0; i < STEPS; i++)
        above += step * chance_above(predictions, count, least + (i + 0.5) * step);
    return fmax(0, 1 - exp(least + above - most));
}

double fa2i_predictions_us(const fa2i_prediction *predictions, size_t count)
{
    const size_t best = find_best(predictions, count, false);
    return best < count ? predictions[best].judgement.us : 0;
}
