/*
 * Working beside other tuners. Work that two tuners must not do twice is claimed (cache/content/claims.h): the
 * verification of a class and the measurement of a problem. Claims are per device as the database knows it, so that
 * equal cards share the work. Things that must not happen at once use a turn (tuner/worker/turn.h). A tuner has the
 * device from its first launch to its last, unless it runs with --share. Timed launches always run alone.
 */
#include <stdio.h>
#include <string.h>
#include "cache/content/claims.h"
#include "tuner/search/tune.h"

/* ---- claims ---- */

static fa2i_key key_of(const fa2i_tune *tune, const char *what, const fa2_problem *problem)
{
    fa2i_key key;
    char text[64 + FA2I_PROBLEM_CHARS], of[FA2I_PROBLEM_CHARS];
    if (strcmp(what, "verify") == 0)
        fa2i_problem_class(problem, of);
    else
        memcpy(of, fa2i_problem_shape(problem).text, sizeof of);
    snprintf(text, sizeof text, "%s %lld %s", what, (long long)tune->device, of);
    const fa2i_part part = {text, strlen(text)};
    fa2i_key_of(&part, 1, &key);
    return key;
}

bool fa2i_tune_claim(const fa2i_tune *tune, const char *what, const fa2_problem *problem, bool wait)
{
    const fa2i_key key = key_of(tune, what, problem);
    const double since_s = fa2i_now_s();
    while (!fa2i_cache_claim(tune->cache, &key)) {
        if (!wait || fa2i_budget_is_spent(tune->budget))
            return false;
        if (fa2i_now_s() - since_s > FA2I_CLAIMS_QUIET_S)
            fa2i_cache_say_waiting(tune->cache, "verifying or measuring the same kernels");
        fa2i_nap();
    }
    return true;
}

void fa2i_tune_unclaim(const fa2i_tune *tune, const char *what, const fa2_problem *problem)
{
    const fa2i_key key = key_of(tune, what, problem);
    fa2i_cache_unclaim(tune->cache, &key);
}

/* ---- turns ---- */

static void name_of(const fa2i_tune *tune, const char *what, char out[FA2I_TURN_CHARS])
{
    int used = snprintf(out, FA2I_TURN_CHARS, "fa2-%s/", what);
    for (size_t i = 0; i < sizeof tune->gpu->uuid; i++)
        used += snprintf(out + used, FA2I_TURN_CHARS - (size_t)used, "%02x", tune->gpu->uuid[i]);
}

/* holder: the process that has the device and does not share it; 0: there is none. */
static void say_shared(fa2i_tune *tune, pid_t holder)
{
    if (holder > 0)
        fa2i_note(&tune->progress,
                  "fa2-tune: another fa2-tune (process %ld) is measuring on device %d; taking turns with it",
                  (long)holder, tune->request->device);
}

void fa2i_tune_begin_turn(fa2i_tune *tune)
{
    char name[FA2I_TURN_CHARS], process[32] = "";
    bool told = false;
    if (!tune->gpu->has_uuid)
        return;
    name_of(tune, "tuner", name);
    if (tune->request->share) {
        say_shared(tune, fa2i_turn_holder(name));
        return;
    }
    while (!fa2i_turn_take(name, &tune->turn) && !fa2i_budget_is_spent(tune->budget)) {
        if (!told) {
            const pid_t holder = fa2i_turn_holder(name);
            if (holder > 0)
                snprintf(process, sizeof process, " (process %ld)", (long)holder);
            fa2i_note(&tune->progress,
                      "fa2-tune: another fa2-tune%s is measuring on device %d; waiting for its end "
                      "(--share: take turns with it)",
                      process, tune->request->device);
        }
        told = true;
        fa2i_nap();
    }
}

void fa2i_tune_begin_launches(fa2i_tune *tune)
{
    char name[FA2I_TURN_CHARS];
    if (!tune->gpu->has_uuid)
        return;
    name_of(tune, "launch", name);
    if (tune->shared) { /* the other one is likely to wait */
        fa2i_nap();
        fa2i_nap();
    }
    while (!fa2i_turn_take(name, &tune->launches) && !fa2i_budget_is_stopped(tune->budget)) {
        tune->shared = true;
        fa2i_nap();
    }
}

void fa2i_tune_end_launches(fa2i_tune *tune)
{
    fa2i_turn_give_back(&tune->launches);
}
