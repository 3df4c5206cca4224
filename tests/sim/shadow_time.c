/*
 * The clocks of shadow.h: what warps, and lanes that are ahead of their warp, know of each other.
 */
#include "shadow.h"
#include <string.h>

static void later(uint32_t *epoch, uint32_t other)
{
    *epoch = *epoch > other ? *epoch : other;
}

void sim_shadow_merge(sim_clock *into, const sim_clock *from)
{
    for (unsigned c = 0; c < SIM_COLUMNS; c++)
        later(&into->ordered[c], from->ordered[c]);
    for (unsigned c = 0; c < SIM_FENCED; c++)
        later(&into->fenced[c], from->fenced[c]);
}

/* Gives all lanes of a warp the same clock. */
static void meet(sim_shadow *shadow, unsigned warp)
{
    if (shadow->ahead_lanes[warp] != 0)
        shadow->known[warp] = shadow->ahead[warp];
    shadow->ahead_lanes[warp] = 0;
}

void sim_shadow_barrier(sim_shadow *shadow, uint32_t warps, const sim_clock *arrived)
{
    static const sim_clock nothing;
    sim_clock latest = arrived == NULL ? nothing : *arrived; /* becomes the joint knowledge of the warps that meet */
    const uint32_t epoch = ++shadow->epoch;
    for (unsigned a = 0; a < shadow->warp_count; a++) {
        if ((warps >> a & 1) == 0)
            continue;
        meet(shadow, a);
        sim_shadow_merge(&latest, &shadow->known[a]);
        latest.ordered[a] = epoch;
    }
    for (unsigned a = 0; a < shadow->warp_count; a++) {
        if ((warps >> a & 1) == 0)
            continue;
        shadow->known[a] = latest;
        shadow->synced[a] = epoch;
        shadow->touched[a] = 0;
    }
    if (__builtin_popcount(warps) == (int)shadow->warp_count) {
        shadow->whole_barriers++;
        shadow->whole_epoch = epoch;
    }
}

void sim_shadow_warp_barrier(sim_shadow *shadow, unsigned warp, uint32_t lanes, uint32_t alive)
{
    uint32_t *ahead = &shadow->ahead_lanes[warp];
    if (lanes != alive) {
        *ahead |= (lanes & *ahead) != 0 ? lanes : 0;
        return;
    }
    meet(shadow, warp);
    shadow->synced[warp] = ++shadow->epoch;
    shadow->touched[warp] = 0;
}

/* Returns the epoch before which all of the warp's accesses are covered by what these lanes do now. */
static uint32_t done_by(sim_shadow *shadow, unsigned warp, uint32_t lanes, uint32_t alive)
{
    const bool all = lanes == alive || (shadow->touched[warp] & ~lanes) == 0;
    return all ? ++shadow->epoch : shadow->synced[warp];
}

void sim_shadow_release(sim_shadow *shadow, unsigned warp, uint32_t lanes, uint32_t alive, sim_clock *into)
{
    const bool ahead = (lanes & shadow->ahead_lanes[warp]) != 0;
    sim_shadow_merge(into, ahead ? &shadow->ahead[warp] : &shadow->known[warp]);
    later(&into->ordered[warp], done_by(shadow, warp, lanes, alive));
}

void sim_shadow_acquire(sim_shadow *shadow, unsigned warp, uint32_t lanes, uint32_t alive, const sim_clock *from)
{
    uint32_t *ahead = &shadow->ahead_lanes[warp];
    if (lanes == alive) {
        sim_shadow_merge(&shadow->known[warp], from);
        if (*ahead == 0)
            return;
    } else if (*ahead == 0) {
        shadow->ahead[warp] = shadow->known[warp];
    }
    sim_shadow_merge(&shadow->ahead[warp], from);
    *ahead |= lanes == alive ? 0 : lanes;
    if ((alive & ~*ahead) == 0)
        meet(shadow, warp);
}

static void fence(sim_clock *known, unsigned warp, uint32_t own)
{
    for (unsigned w = 0; w < SIM_SHADOW_WARPS; w++)
        later(&known->fenced[w], known->ordered[w]);
    for (unsigned m = 0; m < SIM_MBARRIERS; m++)
        later(&known->fenced[SIM_SHADOW_WARPS + m], known->ordered[SIM_LOADS + m]);
    later(&known->fenced[warp], own);
}

void sim_shadow_fence(sim_shadow *shadow, unsigned warp, uint32_t lanes, uint32_t alive)
{
    const uint32_t own = done_by(shadow, warp, lanes, alive);
    fence(&shadow->known[warp], warp, own);
    if (shadow->ahead_lanes[warp] != 0)
        fence(&shadow->ahead[warp], warp, own);
}

uint32_t sim_shadow_commit(sim_shadow *shadow)
{
    return ++shadow->epoch;
}

void sim_shadow_finished(sim_shadow *shadow, unsigned warp, sim_reader by, uint32_t token)
{
    const unsigned column = (unsigned)by * SIM_SHADOW_WARPS + warp;
    later(&shadow->known[warp].ordered[column], token);
    later(&shadow->ahead[warp].ordered[column], token);
}
