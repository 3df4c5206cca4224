/*
 * Addresses of elements, in units of 16 bytes (8 elements). W is the number of units in a row of the swizzle pattern:
 * 8, 4 or 2. Without a swizzle, a core matrix of 8 rows is contiguous. LBO and SBO are the descriptor's leading and
 * stride byte offsets. The first dimension is M of A, or N of B:
 *
 *   K-major, swizzled:   row % 8 * W + row / 8 * SBO + k / 8
 *   K-major, none:       row % 8 + row / 8 * SBO + k / 8 * LBO
 *   MN-major, swizzled:  row / 8 % W + row / 8 / W * LBO + k % 8 * W + k / 8 * SBO
 *   MN-major, none:      row / 8 * SBO + k % 8 + k / 8 * LBO
 *
 * Then the swizzle permutes chunks: bits from 4 on of the address are XORed with as many bits from 7 on. W says how
 * many bits.
 */
#include "wgmma.h"
#include "access.h"

enum { CHUNK = SIM_OPERAND_CHUNK, SIDE = SIM_OPERAND_SIDE };
enum { SPANS_MAX = 512 }; /* 256 rows of two chunks, or 16 of 32 */

const char *sim_operand_of(uint64_t descriptor, bool transposed, sim_operand *ret_operand)
{
    static const unsigned chunks[] = {1, 8, 4, 2}; /* by swizzle mode */
    const uint64_t used = 0xc00e3fff3fff3fff;
    *ret_operand = (sim_operand){.start = (uint32_t)(descriptor & 0x3fff) * CHUNK,
                                 .leading = (uint32_t)(descriptor >> 16 & 0x3fff) * CHUNK,
                                 .stride = (uint32_t)(descriptor >> 32 & 0x3fff) * CHUNK,
                                 .chunks = chunks[descriptor >> 62],
                                 .transposed = transposed};
    if ((descriptor & ~used) != 0)
        return "bits that mean nothing are set in it";
    if ((descriptor >> 49 & 7) != 0)
        return "the software device knows no base offset but 0: patterns begin at multiples of "
               "their "
               "size";
    return NULL;
}

/* Returns how many chunks of each of eight rows, from part `part` on, are adjacent in any order, up to `most`. ret_at:
 * where they begin. */
static unsigned runs_of(const sim_operand *o, unsigned row, unsigned part, unsigned most, uint32_t ret_at[SIDE])
{
    unsigned chunks = o->chunks;
    while (chunks > most)
        chunks /= 2;
    const uint32_t bytes = chunks * CHUNK; /* a power of two */
    uint32_t last[SIDE], apart = 0;
    sim_operand_at(o, row, part, ret_at);
    sim_operand_at(o, row, part + chunks - 1, last);
    for (unsigned i = 0; i < SIDE; i++)
        apart |= (ret_at[i] ^ last[i]) & (0 - bytes);
    if (apart != 0)
        return 1;
    for (unsigned i = 0; i < SIDE; i++)
        ret_at[i] &= 0 - bytes;
    return chunks;
}

bool sim_operand_read(sim_warp *w, const sim_operand *o, unsigned first, unsigned rows)
{
    const unsigned row_first = o->transposed ? 0 : first, row_count = o->transposed ? 16 : rows;
    const unsigned part_first = o->transposed ? first / SIDE : 0;
    const unsigned part_count = o->transposed ? rows / SIDE : 2;
    /* Without a swizzle, eight rows of a part are adjacent. */
    const unsigned joined = o->chunks == 1 ? SIDE : 1;
    sim_span spans[SPANS_MAX];
    unsigned count = 0;
    for (unsigned row = row_first; row < row_first + row_count; row += SIDE)
        for (unsigned part = part_first, run; part < part_first + part_count; part += run) {
            uint32_t at[SIDE];
            run = runs_of(o, row, part, part_first + part_count - part, at);
            for (unsigned i = 0; i < SIDE; i += joined)
                spans[count++] = (sim_span){at[i], run * joined * CHUNK};
        }
    return sim_shared_read_products(w, spans, count);
}
