/*
 * Operands of wgmma in shared memory: matrix descriptors, and the elements that they name, by the
 * PTX ISA's canonical layouts. And what a warp remembers of its products.
 */
#ifndef SIM_WGMMA_H
#define SIM_WGMMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIM_PRODUCT_GROUPS = 16 };

/* An instruction of a warpgroup, which its warps must execute alike. */
typedef struct sim_group_step {
    int32_t op;
    uint64_t a, b; /* descriptors */
    bool add;
} sim_group_step;

/* Of a warp. Groups are those that it committed and has not waited for; of more than there is room
 * for the oldest are as one. Zeroed to begin with. */
typedef struct sim_products {
    uint32_t tokens[SIM_PRODUCT_GROUPS]; /* of the groups (shadow.h), the oldest first */
    unsigned groups;
    size_t done; /* steps of its warpgroup that it has done */
    /* in the first warp of a warpgroup: those that not all of its warps have done, and some before */
    sim_group_step *steps;
    size_t step_count, step_capacity;
} sim_products;

struct sim_warp;
struct sim_block;

/* The columns of a product, in the info of its row above two flags of its handler. */
#define SIM_COLUMN_SHIFT 2
#define SIM_COLUMNS(n)   ((n) << SIM_COLUMN_SHIFT)

static inline int sim_product_columns(int32_t info)
{
    return info >> SIM_COLUMN_SHIFT;
}

/* A matrix of 16-bit elements, as K-major rows (of A, or columns of B) or transposed. */
typedef struct sim_operand {
    uint32_t start;           /* address in the shared space */
    uint32_t leading, stride; /* bytes */
    unsigned chunks;          /* of 16 bytes, in a row of the swizzle's pattern; 1: no swizzle */
    bool transposed;          /* MN-major */
} sim_operand;

/* An instruction that all warps of a warpgroup execute. false: the launch is stopped, as not all of them do, or not
 * all lanes. */
bool sim_group_alike(struct sim_warp *warp);

/* All warps of a block have ended: has each done what the others of its warpgroup have, and waited for
 * its products? Else the launch is stopped. */
void sim_products_end(struct sim_block *block);

/* What a descriptor says. NULL, or what is wrong with it. */
const char *sim_operand_of(uint64_t descriptor, bool transposed, sim_operand *ret_operand);

/* The address of 8 elements. K-major: of row `row`, columns 8 * part ...; MN-major: of column `row` of
 * k, rows 8 * part ... */
uint32_t sim_operand_at(const sim_operand *operand, unsigned row, unsigned part);

/* Note that a warp's product reads 16 columns of k of rows first ... first + rows - 1, multiples of 8.
 * false: the launch is stopped. */
bool sim_operand_read(struct sim_warp *warp, const sim_operand *operand, unsigned first,
                      unsigned rows);

#endif
