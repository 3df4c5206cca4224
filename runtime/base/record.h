/*
 * The records that the layers exchange: card, variant, kernel. Plain data, no CUDA.
 */
#pragma once

#include <stdbool.h>
#include "fa2.h"
#include "runtime/base/problem.h"
#include "runtime/base/recipe.h"

#define FA2I_KEY_BYTES     32
#define FA2I_VARIANT_CHARS 256
#define FA2I_WHY_CHARS     192  /* why a kernel cannot be used, in one sentence */
#define FA2I_DETAIL_BYTES  1024 /* the part of a message that the database keeps, with NUL */

/* Bytes on the heap. Zeroed: empty. */
typedef struct fa2i_blob {
    void *data;
    size_t bytes;
} fa2i_blob;

/* SHA-256. */
typedef struct fa2i_key {
    uint8_t bytes[FA2I_KEY_BYTES];
} fa2i_key;

/* A GPU model: what distinguishes two cards, and what the cost model needs. Two cards of one compute capability may
 * differ: GTX 16xx report 7.5 and have no fast tensor cores. */
typedef struct fa2i_card {
    char name[128];
    int arch; /* 75, 80, 86, 87, 89, 90 ... */
    int sm_count;
    int smem_block_bytes; /* opt-in limit per block */
    int smem_sm_bytes;    /* per SM */
    int64_t l2_bytes;
    int clock_khz;           /* SM boost clock */
    int64_t bandwidth_bytes; /* device memory, per second */
    bool generic;            /* takes no code for one SM alone (sm_90a), because it stands for another SM, or its driver
                              * has no tensor maps. Not stored */
} fa2i_card;

/* Returns whether the database treats two cards as one device. Cards of one SM can differ, and clocks change. */
bool fa2i_card_is_same(const fa2i_card *a, const fa2i_card *b);

/* A proxy: a card that plays an older SM, so that the families of that SM can be timed without one. Its times are the
 * playing card's, so no call may take them. Its name says so, "proxy sm_86 on NVIDIA H100", and no driver reports such a
 * name. */
#define FA2I_PROXY_NAME "proxy sm_"
bool fa2i_card_is_proxy(const fa2i_card *card);

/* Returns the card as a proxy for the SM of another card, with the smaller limits of both. */
fa2i_card fa2i_card_proxy(const fa2i_card *card, const fa2i_card *of_sm);

/* One point of a family's tuning space. text is canonical, and it is the generator's only input: "fwd_sm80 d=64
 * dtype=fp16 causal=0 br=128 bc=64 ...". */
typedef struct fa2i_variant {
    char text[FA2I_VARIANT_CHARS];
    char class_key[FA2I_CLASS_CHARS]; /* class of the problems that it serves (fa2i_problem_class) */
    fa2i_recipe recipe;
    double cost_us; /* the cost model's time for the problem for which it was enumerated */
} fa2i_variant;

/* Checks that a variant's record has this class. FA2_E_INVALID names both. */
fa2_status fa2i_variant_check_class(const fa2i_variant *record, const char *class_key);

/* All possible results of a variant. X(name, value, text as stored). */
#define FA2I_OUTCOME_LIST(X)                                                                                           \
    X(FA2I_OUTCOME_OK, 0, "ok")                                                                                        \
    X(FA2I_OUTCOME_COMPILE_ERROR, 1, "compile_error")                                                                  \
    X(FA2I_OUTCOME_SPILLED, 2, "spilled")                                                                              \
    X(FA2I_OUTCOME_WRONG, 3, "wrong")                                                                                  \
    X(FA2I_OUTCOME_FAULT, 4, "fault")                                                                                  \
    X(FA2I_OUTCOME_HANG, 5, "hang")                                                                                    \
    X(FA2I_OUTCOME_LAUNCH_ERROR, 6, "launch_error")

typedef enum fa2i_outcome {
#define FA2I_OUTCOME_ENUM(name, value, text) name = value,
    FA2I_OUTCOME_LIST(FA2I_OUTCOME_ENUM)
#undef FA2I_OUTCOME_ENUM
} fa2i_outcome;

#define FA2I_OUTCOME_ONE(name, value, text) +1
enum { FA2I_OUTCOME_COUNT = FA2I_OUTCOME_LIST(FA2I_OUTCOME_ONE) }; /* their values are 0 ... FA2I_OUTCOME_COUNT - 1 */
#undef FA2I_OUTCOME_ONE

const char *fa2i_outcome_string(fa2i_outcome outcome);
bool fa2i_outcome_parse(const char *text, fa2i_outcome *ret_outcome);

/* A compiled variant (artifact). outcome says if there is code. For COMPILE_ERROR, image is empty and log has the
 * compiler's messages. */
typedef struct fa2i_kernel {
    fa2i_key key; /* fa2i_compile_key (runtime/cuda/compile.h) */
    fa2i_variant variant;
    char target[16];    /* "sm_86": image is a cubin; "compute_86": image is PTX */
    int nvrtc;          /* 1000 * major + 10 * minor */
    char generator[17]; /* hash of scripts and templates, 16 hex digits */
    fa2i_outcome outcome;
    int registers;   /* per thread of the main step; 0 for PTX that no driver loaded yet */
    int spill_bytes; /* stores + loads per thread of the main step. For PTX that a driver loaded, its stack, too */
    double compile_ms;
    char *log;       /* owned; NULL if empty */
    fa2i_blob image; /* owned; empty if only the record was asked for */
    int used_day;    /* if the code was stored: the day of its last use, counted from 1970-01-01 */
} fa2i_kernel;

/* Returns how badly a kernel spills, in bytes per thread, for comparisons. A kernel that is slow for another such
 * reason (a stack frame, products that wait for each other) ranks after all kernels that spill. */
enum { FA2I_SPILLS_SLOWED = 1 << 30 };
static inline int fa2i_kernel_spills(const fa2i_kernel *kernel)
{
    const bool is_slowed = kernel->outcome == FA2I_OUTCOME_SPILLED && kernel->spill_bytes == 0;
    return is_slowed ? FA2I_SPILLS_SLOWED : kernel->spill_bytes;
}

/* Returns a variant's text without the KIND fields, which repeat the problem. */
typedef struct fa2i_brief {
    char text[FA2I_VARIANT_CHARS];
} fa2i_brief;
fa2i_brief fa2i_variant_brief(const char *variant_text);

void fa2i_blob_done(fa2i_blob *blob);
void fa2i_kernel_done(fa2i_kernel *kernel);

/* Computes the SHA-256 of parts, each preceded by its length, so that no two lists of parts collide. */
typedef struct fa2i_part {
    const void *data;
    size_t bytes;
} fa2i_part;
void fa2i_key_of(const fa2i_part *parts, size_t count, fa2i_key *ret_key);
void fa2i_key_format(const fa2i_key *key, char out[2 * FA2I_KEY_BYTES + 1]);

/* Reads pairs of hex digits (0-9, a-f). Returns false if the text is anything else, or more than `most` bytes. */
bool fa2i_hex_parse(const char *text, uint8_t *out, size_t most, size_t *ret_count);
