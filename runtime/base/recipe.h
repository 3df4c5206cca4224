/*
 * A recipe describes how to launch a variant. The generator writes it. It is one text beside the code, stored and
 * hashed with it, and parsed once, when a kernel is loaded.
 *
 * The text is a head and the steps in the order in which they run, with "; " before each step:
 *
 *     op=forward abi=2 rows=16 keys=64 pack=1 waves=2 splits=256 workspace=partials;
 *     fwd_splitkv_sm80 role=main threads=128 smem=49152 blocks=row_tiles;
 *     fwd_splitkv_sm80_combine role=combine threads=128 smem=0 early=1 blocks=rows/4
 *
 * (on one line). Words are separated by one space, in the order of the members below. Defaults are left out, so that
 * equal recipes have equal texts.
 *
 * A parsed recipe is safe to launch: numbers are within the limits that are named here, and dependent members agree.
 * Pure functions; thread-safe. Errors: FA2_E_INVALID naming the step, the word and its limits.
 */
#pragma once

#include <stdbool.h>
#include "fa2.h"

#define FA2I_RECIPE_CHARS 640
#define FA2I_RECIPE_STEPS 6
#define FA2I_RECIPE_MAPS  5
#define FA2I_ENTRY_CHARS  64

/* The purpose of a step. X(NAME, word). */
#define FA2I_ROLE_LIST(X)                                                                                              \
    X(FA2I_STEP_MAIN, "main")           /* the operation itself; timed, shown and checked for fitting */               \
    X(FA2I_STEP_COMBINE, "combine")     /* merges partial results; runs only if keys are split */                      \
    X(FA2I_STEP_PREPARE, "prepare")     /* before the main step */                                                     \
    X(FA2I_STEP_CONVERT, "convert")     /* after it: turns results in the workspace into outputs */                    \
    X(FA2I_STEP_HEAD_SUMS, "head_sums") /* after prepare: sums of prepared rows, a number per head */                  \
    X(FA2I_STEP_CLEAR, "clear")         /* before the main step: zeros what that adds to */                            \
    X(FA2I_STEP_QUANTISE, "quantise")   /* before the main step: rounds K to 8-bit integers */

/* The work of one block of a step, and the operations that have such blocks. X(NAME, word, ops).
 *
 * Padded rows are the query rows of all heads and batches. Each head is rounded up to whole tiles of `rows`. In packed
 * sequences, each sequence is rounded up to whole tiles of 8. */
#define FA2I_BLOCKS_LIST(X)                                                                                            \
    X(FA2I_BLOCKS_ROW_TILES, "row_tiles", FORWARD) /* `rows` rows of a head, and one of the splits of the keys */      \
    X(FA2I_BLOCKS_RESIDENT_ROW_TILES, "resident_row_tiles",                                                            \
      FORWARD)                         /* several of these; block_rows blocks on each SM, at most one a tile */        \
    X(FA2I_BLOCKS_ONE, "one", FORWARD) /* all the work */                                                              \
    X(FA2I_BLOCKS_ROWS, "rows", FORWARD | MERGE) /* block_rows rows of all heads and batches */                        \
    X(FA2I_BLOCKS_KEYS, "keys", FORWARD)         /* block_rows keys of a sequence, in whole `keys` */                  \
    X(FA2I_BLOCKS_NEW_ROWS, "new_rows",                                                                                \
      FORWARD) /* block_rows rows: new K and V, one for each query; also Q if it is rotated */                         \
    X(FA2I_BLOCKS_HEAD_TILES, "head_tiles", FORWARD)    /* block_rows tiles of `keys` keys of a key head */            \
    X(FA2I_BLOCKS_PADDED_ROWS, "padded_rows", BACKWARD) /* block_rows padded rows */                                   \
    X(FA2I_BLOCKS_QUERY_TILES, "query_tiles", BACKWARD) /* block_rows queries of a query head */                       \
    X(FA2I_BLOCKS_KEY_TILES, "key_tiles", BACKWARD)     /* `keys` keys of a key head */                                \
    X(FA2I_BLOCKS_KEY_AND_QUERY_TILES, "key_and_query_tiles",                                                          \
      BACKWARD) /* first key tiles, then block_rows rows of a query head */                                            \
    X(FA2I_BLOCKS_KEY_TILE_SUMS, "key_tile_sums", BACKWARD) /* dK or dV of a tile of keys */                           \
    X(FA2I_BLOCKS_HEADS, "heads", BACKWARD)                 /* a query head, in all batches */                         \
    X(FA2I_BLOCKS_KEY_HEADS, "key_heads", BACKWARD)         /* a key head, in one batch */                             \
    X(FA2I_BLOCKS_SCORE_ROWS, "score_rows", BACKWARD)       /* block_rows queries of heads and batches */

/* The contents of the workspace, and the operations that have them. X(NAME, word, ops). */
#define FA2I_WORKSPACE_LIST(X)                                                                                         \
    X(FA2I_WORKSPACE_NONE, "none", FORWARD | BACKWARD | MERGE)                                                         \
    X(FA2I_WORKSPACE_PARTIALS, "partials", FORWARD)                         /* O and LSE of each split, fp32 */        \
    X(FA2I_WORKSPACE_QUERIES, "queries", FORWARD)                           /* Q, rotated */                           \
    X(FA2I_WORKSPACE_PARTIALS_AND_QUERIES, "partials_and_queries", FORWARD) /* both */                                 \
    X(FA2I_WORKSPACE_COUNTER, "counter", FORWARD) /* 32 bits that count the work tiles begun */                        \
    X(FA2I_WORKSPACE_COLUMN_KEYS, "column_keys",                                                                       \
      FORWARD) /* such a counter in 128 bytes, and then 8 bytes for each key of the prepare        \
                * step's blocks: the factors of dropout */                   \
    X(FA2I_WORKSPACE_SCORES, "scores", FORWARD) /* S of all heads and batches, in the dtype */                         \
    X(FA2I_WORKSPACE_INT8_KEYS, "int8_keys",                                                                           \
      FORWARD) /* K in 8-bit integers, scales, means (templates/forward/int8_keys.cuh) */                              \
    X(FA2I_WORKSPACE_INT8_KEYS_AND_VALUES, "int8_keys_and_values",                                                     \
      FORWARD) /* the same, and V in e4m3 (templates/hopper/bytes_tiles.cuh) */                                        \
    X(FA2I_WORKSPACE_INT8_KEYS_AND_COLUMNS, "int8_keys_and_columns",                                                   \
      FORWARD)                               /* the same, V as in templates/forward/fp8_columns.cuh */                 \
    X(FA2I_WORKSPACE_ROWS, "rows", BACKWARD) /* LSE and delta of padded rows, fp32 */                                  \
    X(FA2I_WORKSPACE_ROWS_AND_DQ, "rows_and_dq",                                                                       \
      BACKWARD) /* rows, and `columns` numbers of each, fp32; packed: of each row of dQ */                             \
    X(FA2I_WORKSPACE_ROWS_DQ_AND_TURNS, "rows_dq_and_turns",                                                           \
      BACKWARD) /* rows_and_dq, a counter for each tile of `rows` queries, and one for all */                          \
    X(FA2I_WORKSPACE_ROWS_AND_TURNS, "rows_and_turns", BACKWARD) /* rows, and these counters */                        \
    X(FA2I_WORKSPACE_DQ_OF_TILES, "dq_of_tiles",                                                                       \
      BACKWARD) /* `columns` numbers of each padded row, fp32, if the keys of a head fill several  \
                 * tiles of `keys`. Else nothing, and nothing is converted */

/* The operands that kernels read or write by tensor maps, and their operations. X(NAME, word, ops). */
#define FA2I_MAPPED_LIST(X)                                                                                            \
    X(FA2I_MAPPED_Q, "q", FORWARD | BACKWARD)                                                                          \
    X(FA2I_MAPPED_K, "k", FORWARD | BACKWARD)                                                                          \
    X(FA2I_MAPPED_V, "v", FORWARD | BACKWARD)                                                                          \
    X(FA2I_MAPPED_O, "o", FORWARD)                                                                                     \
    X(FA2I_MAPPED_DO, "do", BACKWARD)                                                                                  \
    X(FA2I_MAPPED_BIAS, "bias", FORWARD) /* of 16 bits, if a map can express it (op.h) */

#define FA2I_ENUM_NAME(name, ...) name,
typedef enum fa2i_role { FA2I_ROLE_LIST(FA2I_ENUM_NAME) } fa2i_role;
typedef enum fa2i_blocks { FA2I_BLOCKS_LIST(FA2I_ENUM_NAME) } fa2i_blocks;
typedef enum fa2i_workspace { FA2I_WORKSPACE_LIST(FA2I_ENUM_NAME) } fa2i_workspace;
typedef enum fa2i_mapped { FA2I_MAPPED_LIST(FA2I_ENUM_NAME) } fa2i_mapped;
#undef FA2I_ENUM_NAME

typedef struct fa2i_step {
    char entry[FA2I_ENTRY_CHARS]; /* the kernel's name in the image: letters, digits, '_' */
    fa2i_role role;
    int threads;        /* per block: a multiple of 32 from 32 to 1024 */
    int smem_bytes;     /* smem: dynamic shared memory per block, 0 to 1 MiB */
    int cluster;        /* blocks per cluster, 1 to 16; default 1 */
    int early;          /* 1: it may begin while the step before still runs. Its kernel then waits for that step, if its
                         * code is for SM 9.0 or newer. Default 0 */
    fa2i_blocks blocks; /* "rows/4": FA2I_BLOCKS_ROWS, block_rows 4. It must be one of the operation's */
    int block_rows;     /* 1 to 65536; default 1 */
} fa2i_step;

/* A tensor map of an operand, [batch, head, seq, column], and the box of one load or store. */
typedef struct fa2i_map {
    fa2i_mapped operand;
    int rows; /* the box: so many rows of a head, 1 to 256, and 64 columns, with the 128-byte swizzle */
} fa2i_map;

typedef struct fa2i_recipe {
    char text[FA2I_RECIPE_CHARS];
    fa2_op op;
    int abi;   /* version of the operation's parameter block plus the class's revision, 1 to 1000000 */
    int rows;  /* forward: query rows per block of the main step (Br); backward: query rows per mainloop step of such a
                * block; 1 to 65536 */
    int keys;  /* forward: keys per mainloop step; backward: keys per block; 1 to 65536 */
    int pack;  /* 1: the query heads of a group are rows of one matrix; default 0 */
    int waves; /* n: the keys (backward: the queries) are split among blocks so that each SM gets about n blocks, n up
                * to 64. Default 0: a block sees all keys of its rows (backward: all queries of its keys) */
    int max_splits; /* splits: at most so many blocks share the keys of a row; 2 to 65536 if there are waves; default
                     * 1 */
    int heads;   /* backward, n: if a group has more query heads than n, a block has n of them. Blocks that share keys
                     * add to sums of dk and dv in the workspace. Default 0: the queries are split by waves, or not */
    int columns; /* columns of a row of dq, or of partial sums of dk and dv, 1 to 65536 there; default 0 */
    fa2i_workspace workspace; /* one of the operation's; default none */
    char suffix[2];           /* of the target: "a" for sm_90a; default "" */
    int map_count;            /* maps: "q/64,k/128". They are the kernels' second parameter, one after the other, 128
                               * bytes each; default none */
    fa2i_map maps[FA2I_RECIPE_MAPS];
    int step_count; /* at least one of the steps is a main step */
    fa2i_step steps[FA2I_RECIPE_STEPS];
} fa2i_recipe;

/* Parses a recipe. Copies text. On error *ret_recipe is untouched. */
fa2_status fa2i_recipe_parse(const char *text, fa2i_recipe *ret_recipe);

/* Writes text from the other members, and checks them like fa2i_recipe_parse. */
fa2_status fa2i_recipe_format(fa2i_recipe *recipe);

/* The first returns the first main step. The second returns the first step of a role, or NULL. The recipe was
 * parsed. */
const fa2i_step *fa2i_recipe_main(const fa2i_recipe *recipe);
const fa2i_step *fa2i_recipe_step(const fa2i_recipe *recipe, fa2i_role role);

/* Returns a class's revision, which is added to the operation's abi in its recipes. The revision counts how often the
 * computation of such kernels changed while the operation's parameters stayed the same:
 * - Dropout: the function of the mask changed twice (runtime/ops/dropout.h); then calls became parts of larger ones.
 * - An additive bias: numbers like -1e9, which hide keys, gave NaN.
 * - Packed sequences: rows outside of all sequences were not written, and the workspace had another layout.
 *
 * A revision never falls, so neither an older nor a newer library takes the other's kernels. The text of a variant does
 * for a class_key, too. */
int fa2i_recipe_revision(const char *class_key);

/* Returns the word of an operand in recipes. The string is static. */
const char *fa2i_mapped_word(fa2i_mapped operand);

/* Returns whether the workspace holds Q. */
static inline bool fa2i_recipe_has_queries(const fa2i_recipe *recipe)
{
    return recipe->workspace == FA2I_WORKSPACE_QUERIES || recipe->workspace == FA2I_WORKSPACE_PARTIALS_AND_QUERIES;
}

/* Returns whether a step rounds V, and leaves it in the workspace. */
static inline bool fa2i_recipe_rounds_values(const fa2i_recipe *recipe)
{
    return recipe->workspace == FA2I_WORKSPACE_INT8_KEYS_AND_VALUES ||
           recipe->workspace == FA2I_WORKSPACE_INT8_KEYS_AND_COLUMNS;
}

/* Returns whether a step rounds K, and leaves it in the workspace. */
static inline bool fa2i_recipe_rounds(const fa2i_recipe *recipe)
{
    return recipe->workspace == FA2I_WORKSPACE_INT8_KEYS || fa2i_recipe_rounds_values(recipe);
}

/* Returns the largest dynamic shared memory of a block of any step, in bytes. */
int fa2i_recipe_most_smem(const fa2i_recipe *recipe);
