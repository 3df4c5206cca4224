/*
 * Code for winners that have none: imported ones, and those whose code was lost. What is known of them stays.
 *
 * The variant of each is expanded and compiled by this fa2 and this NVRTC; where that gives another key (another
 * compiler), what refers to the old kernel is bound to the new one. How a kernel is launched follows from its
 * variant, so the generator says it, not the database.
 */
#ifndef FA2I_RECOMPILE_H
#define FA2I_RECOMPILE_H

#include <signal.h>
#include "cache/cache.h"
#include "runtime/lua/generator.h"

typedef struct fa2i_recompiled {
    size_t
        wanted; /* kernels of winners without code, but for those that are known not to compile */
    size_t compiled;
    size_t failed; /* do not compile here, which is recorded */
    size_t
        unknown; /* this fa2 has no such variant, or this NVRTC no such SM: they stay as they are */
} fa2i_recompiled;

/* What cannot be compiled is told on stderr. FA2_E_NO_NVRTC: some are wanted, as *ret_recompiled says, and there is
 * none. When stopped, what was compiled is kept. */
fa2_status fa2i_recompile(fa2i_cache *cache, fa2i_generator *generator, int threads,
                          const volatile sig_atomic_t *stop, fa2i_recompiled *ret_recompiled);

#endif
