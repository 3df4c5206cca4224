/*
 * Compiles code for winners that have none: imported winners, and winners whose code was lost. All that is known of
 * them stays.
 *
 * The variant of each is expanded and compiled by this fa2 and this NVRTC. If that gives another key (another
 * compiler), everything that refers to the old kernel is bound to the new one. The generator says how a kernel is
 * launched, because that follows from its variant; the database does not. If the abi of the record's recipe differs
 * (runtime/base/recipe.h), its kernel was computed or launched in another way, and no kernel here is the one that was
 * measured.
 */
#pragma once

#include <signal.h>
#include "cache/cache.h"
#include "runtime/lua/generator.h"

typedef struct fa2i_recompiled {
    /* Kernels of winners without code, except kernels that are known not to compile. */
    size_t wanted;
    size_t compiled;
    /* They do not compile here, and the database records that. */
    size_t failed;
    /* They stay as they are: this fa2 has no such variant or another abi for it, or this NVRTC does not know the SM. */
    size_t unknown;
} fa2i_recompiled;

/* Prints on stderr what cannot be compiled. Returns FA2_E_NO_NVRTC if there is no NVRTC and *ret_recompiled.wanted is
 * not 0. If it is stopped, everything that was compiled is kept. */
fa2_status fa2i_recompile(fa2i_cache *cache, fa2i_generator *generator, int threads, const volatile sig_atomic_t *stop,
                          fa2i_recompiled *ret_recompiled);
