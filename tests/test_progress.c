/*
 * The estimate of the remaining time: within a factor of two if the past pace allows one, otherwise none.
 */
#include "check.h"
#include "tuner/report/progress.h"

enum { ITEMS = 400 };

typedef struct outcome {
    int shown, wrong; /* estimates; estimates that are off by more than a factor of two */
    int first;        /* the item after which the first estimate came; 0: none */
} outcome;

/* Processes items that take these seconds. Ignores estimates below a second. */
static outcome follow(const double *seconds, int count)
{
    fa2i_progress progress;
    outcome found = {0};
    double now = 0, total = 0;
    fa2i_progress_begin(&progress, "counting", (size_t)count);
    progress.started_s = 0;
    for (int i = 0; i < count; i++)
        total += seconds[i];
    for (int i = 0; i < count; i++) {
        now += seconds[i];
        fa2i_progress_count(&progress, now);
        const double left = fa2i_progress_left(&progress, now), truth = total - now;
        if (left < 0)
            continue;
        found.first = found.shown++ == 0 ? i + 1 : found.first;
        found.wrong += (left > 1 || truth > 1) && (left > 2 * truth || truth > 2 * left);
    }
    return found;
}

int main(void)
{
    double seconds[ITEMS];
    uint64_t state = 1;

    /* Constant times, and random ones within a factor of three. */
    for (int i = 0; i < ITEMS; i++)
        seconds[i] = 0.1;
    outcome found = follow(seconds, ITEMS);
    CHECK_EQ(found.wrong, 0);
    CHECK(found.first > 0 && found.first <= 16);
    for (int i = 0; i < ITEMS; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        seconds[i] = 0.1 + 0.2 * (double)(state >> 40) / 0x1p24;
    }
    found = follow(seconds, ITEMS);
    CHECK_EQ(found.wrong, 0);
    CHECK(found.first > 0 && found.first <= ITEMS / 4);

    /* A slow first item of 6 s; the other 39 take 1 s together. */
    for (int i = 0; i < 40; i++)
        seconds[i] = i == 0 ? 6 : 1.0 / 39;
    CHECK_EQ(follow(seconds, 40).wrong, 0);

    /* Every item takes longer than the one before: no estimate is better than a wrong one. */
    seconds[0] = 0.01;
    for (int i = 1; i < 30; i++)
        seconds[i] = seconds[i - 1] * 1.4;
    CHECK_EQ(follow(seconds, 30).shown, 0);

    /* Cases of 30 launches with a reference before each. */
    for (int i = 0; i < 360; i++)
        seconds[i] = i % 30 == 0 ? 0.6 : 0.01;
    found = follow(seconds, 360);
    CHECK_EQ(found.wrong, 0);
    CHECK(found.first > 30 && found.first < 180);

    CHECK_STR(fa2i_plural(1), "");
    CHECK_STR(fa2i_plural(0), "s");
    return check_done();
}
