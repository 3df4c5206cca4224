/*
 * measured = model x (what the problem is off by) x (what the kernel is off by): the former is the
 * mean over the kernels that were measured, in logarithms, and has no say in ranks.
 */
#include "tuner/search/learned.h"

#include <math.h>

/* Where nothing is known of a kernel the model is taken at its word. */
static double predicted_us(const fa2i_lesson *lesson)
{
    const fa2i_learned *learned = lesson->learned;
    const double factor = learned->problems > 0 ? exp(learned->sum / (double)learned->problems) : 1;
    return lesson->model_us * factor;
}

static bool is_sure(const fa2i_lesson *lesson)
{
    return lesson->learned->problems >= FA2I_LEARNED_PROBLEMS;
}

void fa2i_learned_judge(fa2i_lesson *lessons, size_t count)
{
    double best = INFINITY;
    for (size_t i = 0; i < count; i++)
        if (is_sure(&lessons[i]))
            best = fmin(best, predicted_us(&lessons[i]));
    for (size_t i = 0; i < count; i++)
        lessons[i].hopeless =
            is_sure(&lessons[i]) && predicted_us(&lessons[i]) > FA2I_LEARNED_BEHIND * best;
}

void fa2i_learned_add(fa2i_lesson *lessons, size_t count)
{
    double sum = 0;
    size_t measured = 0;
    for (size_t i = 0; i < count; i++) {
        if (lessons[i].measured_us > 0 && lessons[i].model_us > 0) {
            sum += log(lessons[i].measured_us / lessons[i].model_us);
            measured++;
        }
    }
    for (size_t i = 0; measured > 1 && i < count; i++) {
        if (lessons[i].measured_us > 0 && lessons[i].model_us > 0) {
            lessons[i].learned->sum +=
                log(lessons[i].measured_us / lessons[i].model_us) - sum / (double)measured;
            lessons[i].learned->problems++;
        }
    }
}
