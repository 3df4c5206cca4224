/*
 * Operands of wgmma in shared memory: matrix descriptors, and the elements that they name, by the PTX ISA's canonical
 * layouts. Also the record of a warp's products.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIM_PRODUCT_GROUPS = 16 };
enum { SIM_OPERAND_CHUNK = 16, SIM_OPERAND_SIDE = 8 }; /* bytes; rows that a pattern repeats */

/* An instruction of a warpgroup. All its warps must execute it with the same values. */
typedef struct sim_group_step {
    int32_t op;
    uint64_t a, b; /* descriptors */
    bool add;
} sim_group_step;

/* A warp's products. Groups are committed but not waited for. If there are too many, the oldest ones share an entry.
 * Zero it first. */
typedef struct sim_products {
    uint32_t tokens[SIM_PRODUCT_GROUPS]; /* of the groups (shadow.h), oldest first */
    unsigned groups;
    size_t done; /* number of its warpgroup's steps that it has executed */
    /* in the warpgroup's first warp: steps that some warp has not executed yet, and a few older ones */
    sim_group_step *steps;
    size_t step_count, step_capacity;
} sim_products;

struct sim_warp;
struct sim_block;

/* The shape of a product: its columns, and whether its depth is 16 elements of 16 bits, or 32 of 8 bits. It is in its
 * row's info, above two flags of the handler. */
#define SIM_BYTES      4
#define SIM_COLUMNS(n) ((n) << 3)

static inline int sim_product_columns(int32_t info)
{
    return info >> 3;
}

static inline int sim_product_shape(int32_t info)
{
    return info >> 2;
}

/* A matrix: K-major (rows of A, or columns of B), or transposed, which only 16-bit elements can be. */
typedef struct sim_operand {
    uint32_t start;           /* address in the shared space */
    uint32_t leading, stride; /* bytes */
    unsigned chunks;          /* of 16 bytes, per row of the swizzle pattern; 1: no swizzle */
    bool transposed;          /* MN-major */
} sim_operand;

/* Checks an instruction that all lanes of all warps of a warpgroup must execute. Returns false, and stops the launch,
 * if some do not. */
bool sim_group_alike(struct sim_warp *warp);

/* Called when all warps of a block have ended. Stops the launch if a warp has not executed the same products as the
 * others of its warpgroup, or has not waited for them. */
void sim_products_end(struct sim_block *block);

/* Decodes a descriptor. Returns what is wrong with it, or NULL. */
const char *sim_operand_of(uint64_t descriptor, bool transposed, sim_operand *ret_operand);

/* Stores the addresses of 8 elements of 16 bits, or of 16 of 8 bits, for eight rows from `row` on, a multiple of 8.
 * K-major: columns of k from 8 or 16 * part on, of each row. MN-major: rows 8 * part and up of each of eight columns of
 * k, from `row` on. */
static inline void sim_operand_at(const sim_operand *o, unsigned row, unsigned part, uint32_t at[SIM_OPERAND_SIDE])
{
    const unsigned eight = row / SIM_OPERAND_SIDE, chunks = o->chunks;
    uint32_t first = o->start;
    if (chunks == 1)
        first += o->transposed ? part * o->stride + eight * o->leading : eight * o->stride + part * o->leading;
    else
        first += eight * o->stride + (part & (chunks - 1)) * SIM_OPERAND_CHUNK +
                 (part >> __builtin_ctz(chunks)) * o->leading;
    for (unsigned i = 0; i < SIM_OPERAND_SIDE; i++) {
        const uint32_t plain = first + i * chunks * SIM_OPERAND_CHUNK;
        at[i] = plain ^ (plain >> 7 & (chunks - 1)) * SIM_OPERAND_CHUNK;
    }
}

/* Records that a warp's product reads 32 bytes of k of rows first ... first + rows - 1, multiples of 8. false: the
 * launch is stopped. */
bool sim_operand_read(struct sim_warp *warp, const sim_operand *operand, unsigned first, unsigned rows);
