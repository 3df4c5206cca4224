/*
 * Shadows that launches have used, kept for those that come: most launches are small, and to make a shadow,
 * which is many times as large as the memory that it is of, took longer than some of them. Times never start
 * again (shadow.h), so what is kept needs no clearing.
 *
 * A pool may be used by several threads at once. Zeroed is empty.
 */
#ifndef SIM_SHADOW_POOL_H
#define SIM_SHADOW_POOL_H

#include <pthread.h>
#include "shadow.h"

enum { SIM_POOL_SHADOWS = 8 };

typedef struct sim_shadow_pool {
    pthread_mutex_t lock;
    sim_shadow kept[SIM_POOL_SHADOWS]; /* without words: none */
    unsigned oldest;
} sim_shadow_pool;

void sim_shadow_pool_init(sim_shadow_pool *pool);
void sim_shadow_pool_done(sim_shadow_pool *pool);

/* A shadow as sim_shadow_init makes it, but for the time, which may go on; until it is given back. */
void sim_shadow_take(sim_shadow_pool *pool, size_t shared_bytes, unsigned warp_count,
                     sim_shadow *ret_shadow);
void sim_shadow_give(sim_shadow_pool *pool, sim_shadow *shadow);

#endif
