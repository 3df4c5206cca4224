/*
 * Keeps shadows of finished launches for later launches. Most launches are small, and making a shadow took longer than
 * some of them, because it is many times as large as the memory that it describes. Epochs never restart (shadow.h), so
 * a kept shadow needs no clearing.
 *
 * A pool may be used by several threads at once. Zeroed is empty.
 */
#pragma once

#include <pthread.h>
#include "shadow.h"

enum { SIM_POOL_SHADOWS = 8 };

typedef struct sim_shadow_pool {
    pthread_mutex_t lock;
    sim_shadow kept[SIM_POOL_SHADOWS]; /* an entry without words is empty */
    unsigned oldest;
} sim_shadow_pool;

void sim_shadow_pool_init(sim_shadow_pool *pool);
void sim_shadow_pool_done(sim_shadow_pool *pool);

/* Lends a shadow as sim_shadow_init makes it, except that its epochs may be higher, until it is given back. */
void sim_shadow_take(sim_shadow_pool *pool, size_t shared_bytes, unsigned warp_count, sim_shadow *ret_shadow);
void sim_shadow_give(sim_shadow_pool *pool, sim_shadow *shadow);
