/*
 * The kernels of a benchmark: each variant once, from the database or compiled, numbered as they are met;
 * the number is the id in the worker. Not thread-safe.
 */
#ifndef FA2I_BENCH_KERNELS_H
#define FA2I_BENCH_KERNELS_H

#include "cache/cache.h"
#include "runtime/lua/generator.h"
#include "tuner/worker/gpu.h"

typedef struct fa2i_kernel_list {
    const fa2i_gpu *gpu; /* borrowed, as are the next two */
    fa2i_generator *generator;
    fa2i_cache *cache; /* NULL: there is no database */
    fa2i_kernel *items;
    size_t count;
} fa2i_kernel_list;

/* The number of a variant's kernel. key: under which the database has it; NULL, or zeros: it has not. One
 * that does not compile is FA2_OK, with that outcome. FA2_E_NO_NVRTC: it must be compiled. */
fa2_status fa2i_kernel_list_find(fa2i_kernel_list *list, const fa2i_variant *variant,
                                 const fa2i_key *key, uint32_t *ret_id);

/* A fa2i_kernel_fn (tuner/worker/worker.h). */
const fa2i_kernel *fa2i_kernel_list_get(void *list, uint32_t id);

void fa2i_kernel_list_done(fa2i_kernel_list *list); /* what was borrowed stays */

#endif
