/*
 * Code for winners that have none: imported ones, and those whose code was lost. What is known of them stays.
 *
 * The variant of each is expanded and compiled by this fa2 and this NVRTC; where that gives another key (another
 * compiler), what refers to the old kernel is bound to the new one. How a kernel is launched follows from its
 * variant, so the generator says it, not the database; but a record whose recipe has another abi is of a kernel
 * that computes or is launched otherwise (runtime/base/recipe.h), and none here is what was measured.
 */
#ifndef FA2I_RECOMPILE_H
#define FA2I_RECOMPILE_H

#include <signal.h>
#include "cache/cache.h"
#include "runtime/lua/generator.h"

typedef struct fa2i_recompiled {
    /* Kernels of winners without code, but for those that are known not to compile. */
    size_t wanted;
    size_t compiled;
    /* Do not compile here, which is recorded. */
    size_t failed;
    /* This fa2 has no such variant, or another of that abi, or this NVRTC no such SM: they stay as they are. */
    size_t unknown;
} fa2i_recompiled;

/* What cannot be compiled is told on stderr. FA2_E_NO_NVRTC: some are wanted, as *ret_recompiled says, and there is
 * none. When stopped, what was compiled is kept. */
fa2_status fa2i_recompile(fa2i_cache *cache, fa2i_generator *generator, int threads,
                          const volatile sig_atomic_t *stop, fa2i_recompiled *ret_recompiled);

#endif
