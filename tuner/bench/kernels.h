/*
 * The kernels of a benchmark. Each variant is there once, from the database or compiled, numbered in the order of its
 * first use. The number is its id in the worker. Not thread-safe.
 */
#pragma once

#include "cache/cache.h"
#include "runtime/lua/generator.h"
#include "tuner/worker/gpu.h"

typedef struct fa2i_kernel_list {
    const fa2i_gpu *gpu; /* borrowed, as are generator and cache */
    fa2i_generator *generator;
    fa2i_cache *cache; /* NULL: there is no database */
    fa2i_kernel *items;
    size_t count;
} fa2i_kernel_list;

/* Finds the number of a variant's kernel. key: its key in the database; NULL or zeros: it is not there. If it does not
 * compile, returns FA2_OK, and its outcome says so. FA2_E_NO_NVRTC: it must be compiled. */
fa2_status fa2i_kernel_list_find(fa2i_kernel_list *list, const fa2i_variant *variant, const fa2i_key *key,
                                 uint32_t *ret_id);

/* An fa2i_kernel_fn (tuner/worker/worker.h). */
const fa2i_kernel *fa2i_kernel_list_get(void *list, uint32_t id);

void fa2i_kernel_list_done(fa2i_kernel_list *list); /* does not close borrowed members */
