/*
 * Shared by the tests of the generator. FA2_SOURCE_DIR is the top of the source tree. If it is unset, the current
 * folder is.
 */
#pragma once

#include <stdlib.h>
#include "check.h"
#include "runtime/lua/generator.h"

static const char good[] = "fwd_sm80 d=64 dtype=fp16 causal=0 br=128 bc=64 warps=4 kstages=2 "
                           "vstages=2 layout=swizzle q=smem fill=whole";

static inline fa2_problem problem_of(int head_dim, fa2_dtype dtype, int causal, int seq)
{
    return (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                         .dtype = dtype,
                         .batch = 2,
                         .heads_q = 8,
                         .heads_kv = 8,
                         .seq_q = seq,
                         .seq_k = seq,
                         .head_dim = head_dim,
                         .causal = causal};
}

/* Returns true if the variant divides the keys. */
static inline bool is_split(const fa2i_variant *v)
{
    return strncmp(v->text, "fwd_splitkv_", 12) == 0;
}

/* Creates a generator. Ends the test if that fails. */
static inline fa2i_generator *open_generator(void)
{
    fa2i_generator *generator = NULL;
    if (fa2i_generator_create(&generator) != FA2_OK) {
        fprintf(stderr, "%s\n", fa2_last_message());
        exit(1);
    }
    return generator;
}

/* Points FA2_GEN_PATH at a folder of the source tree. NULL unsets it. */
static inline void generator_path(const char *folder)
{
    const char *source = getenv("FA2_SOURCE_DIR");
    char path[1024];
    unsetenv("FA2_GEN_PATH");
    if (folder == NULL)
        return;
    snprintf(path, sizeof path, "%s/%s", source == NULL ? "." : source, folder);
    setenv("FA2_GEN_PATH", path, 1);
}
