/*
 * A shadow fits if it has the same size. If the pool is full, the oldest shadow is released.
 */
#include "shadow_pool.h"

#define EPOCH_MAX (UINT32_MAX / 2) /* limit for keeping a shadow: no launch needs as many more */

void sim_shadow_pool_init(sim_shadow_pool *pool)
{
    *pool = (sim_shadow_pool){0};
    pthread_mutex_init(&pool->lock, NULL);
}

void sim_shadow_pool_done(sim_shadow_pool *pool)
{
    for (unsigned i = 0; i < SIM_POOL_SHADOWS; i++)
        sim_shadow_done(&pool->kept[i]);
    pthread_mutex_destroy(&pool->lock);
}

void sim_shadow_take(sim_shadow_pool *pool, size_t shared_bytes, unsigned warp_count, sim_shadow *ret_shadow)
{
    const size_t chunks = sim_shadow_chunks(shared_bytes);
    bool found = false;
    pthread_mutex_lock(&pool->lock);
    for (unsigned i = 0; i < SIM_POOL_SHADOWS && !found; i++) {
        sim_shadow *kept = &pool->kept[i];
        found = kept->words != NULL && kept->chunk_count == chunks && kept->warp_count == warp_count;
        if (found) {
            *ret_shadow = *kept;
            *kept = (sim_shadow){0};
        }
    }
    pthread_mutex_unlock(&pool->lock);
    if (!found)
        sim_shadow_init(ret_shadow, shared_bytes, warp_count);
}

void sim_shadow_give(sim_shadow_pool *pool, sim_shadow *shadow)
{
    if (shadow->epoch > EPOCH_MAX) {
        sim_shadow_done(shadow);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    sim_shadow *place = &pool->kept[pool->oldest];
    for (unsigned i = 0; i < SIM_POOL_SHADOWS && place->words != NULL; i++)
        place = &pool->kept[(pool->oldest + 1 + i) % SIM_POOL_SHADOWS];
    if (place->words != NULL)
        pool->oldest = (pool->oldest + 1) % SIM_POOL_SHADOWS;
    sim_shadow_done(place);
    *place = *shadow;
    pthread_mutex_unlock(&pool->lock);
    *shadow = (sim_shadow){0};
}
