/*
 * ldmatrix, stmatrix and mma.sync.
 *
 * An 8x8 matrix of 16-bit elements in a register is its 128 bytes in row order, because lane 4 * row + column / 2 holds
 * two neighbours. So a register is copied without permutation. So is a matrix of 8 rows, or columns, of 16 bytes.
 * matrix.h describes the sums of products.
 */
#include <math.h>
#include <string.h>
#include "access.h"
#include "matrix.h"
#include "traffic.h"

enum { SIDE = SIM_SIDE, MATRIX = SIDE * SIDE };

static bool all_lanes(sim_warp *w)
{
    if (w->mask == SIM_ALL_LANES)
        return true;
    sim_stop(w, -1, CUDA_ERROR_LAUNCH_FAILED, "lanes are missing: all 32 must execute it, 0x%08x do", w->mask);
    return false;
}

/* ---- ldmatrix; info: matrices, and 8 if transposed ---- */

static void transpose(uint32_t matrix[SIM_LANES])
{
    sim_elements rows[SIDE];
    memcpy(rows, matrix, sizeof rows);
    sim_transpose(rows);
    memcpy(matrix, rows, sizeof rows);
}

static void ldmatrix(const sim_op *op, sim_warp *w)
{
    const int matrices = op->info & 7;
    const uint32_t lanes = matrices == 4 ? SIM_ALL_LANES : (1u << matrices * SIDE) - 1;
    uint64_t address[SIM_LANES];
    uint32_t narrow[SIM_LANES], out[4][SIM_LANES];
    uint8_t *rows[SIM_LANES];
    if (!all_lanes(w))
        return;
    sim_addresses(w, op, 0, 0, address);
    LANES(l)
    address[l] = narrow[l] = (uint32_t)address[l];
    if (!sim_shared_lanes_collective(w, lanes, address, 16, rows))
        return;
    for (int l = 0; l < matrices * SIDE; l++)
        memcpy(&out[l / SIDE][l % SIDE * 4], rows[l], 16);
    for (int l = 0; w->block->program->late && l < matrices * SIDE; l++)
        if (sim_shared_read_matrices(w, l, address[l], 16) == NULL)
            return;
    sim_count_shared(sim_counter(w), lanes, narrow, 16);
    for (int m = 0; m < matrices; m++) {
        if (op->info & 8)
            transpose(out[m]);
        sim_put(w, op->dst[m], out[m]);
    }
}

/* ---- stmatrix; info the same ---- */

static void stmatrix(const sim_op *op, sim_warp *w)
{
    const int matrices = op->info & 7;
    uint64_t address[SIM_LANES];
    uint32_t narrow[SIM_LANES], in[4][SIM_LANES];
    if (!all_lanes(w))
        return;
    sim_addresses(w, op, 0, 0, address);
    LANES(l)
    narrow[l] = (uint32_t)address[l];
    for (int m = 0; m < matrices; m++) {
        memcpy(in[m], sim_source(w, op->src[1 + m]), sizeof in[m]);
        if (op->info & 8)
            transpose(in[m]);
    }
    for (int l = 0; l < matrices * SIDE; l++) {
        uint8_t *row = sim_shared_write(w, l, narrow[l], 16);
        if (row == NULL)
            return;
        memcpy(row, &in[l / SIDE][l % SIDE * 4], 16);
    }
    sim_count_shared(sim_counter(w), matrices == 4 ? SIM_ALL_LANES : (1u << matrices * SIDE) - 1, narrow, 16);
}

/* ---- mma m16n8k8 and m16n8k16; info: 2 k, 1 if bf16, SIM_FP16_SUMS ---- */

static void take_a(const sim_warp *w, int32_t source, bool bf16, float out[MATRIX])
{
    sim_elements rows[SIDE];
    memcpy(rows, sim_source(w, source), sizeof rows);
    for (int i = 0; i < SIDE; i++) {
        const sim_line row = sim_widen(rows[i], bf16);
        memcpy(out + i * SIDE, &row, sizeof row);
    }
}

/* A register holds B column by column. Read as rows, they have the order of lines. */
static void take_b(const sim_warp *w, int32_t source, bool bf16, sim_line out[SIDE])
{
    sim_elements columns[SIDE], rows[SIDE];
    memcpy(columns, sim_source(w, source), sizeof columns);
    for (int i = 0; i < SIDE; i++)
        rows[i] = columns[sim_line_order[i]];
    sim_transpose(rows);
    for (int k = 0; k < SIDE; k++)
        out[k] = sim_widen(rows[k], bf16);
}

/* Computes sum[row][column] += a[row][k] * b[k][column] for k in order. Not inlined: while a is in memory, the host
 * reads its elements at no extra cost. */
static __attribute__((noinline)) void accumulate(sim_line sum[SIDE], const float a[MATRIX], const sim_line b[SIDE])
{
    for (int row = 0; row < SIDE; row++) {
        sim_line total = sum[row];
        for (int k = 0; k < SIDE; k++)
            total = sim_add_product(total, a[row * SIDE + k], b[k]);
        sum[row] = total;
    }
}

/* Adds the product of an instruction's A and B to both halves of its 16 rows. */
static void add_products(const sim_op *op, const sim_warp *w, sim_line sum[2][SIDE])
{
    const int steps = op->info >> 4; /* of depth 8 */
    const bool bf16 = op->info & 1;
    sim_line b[SIDE];
    float a[MATRIX];
    for (int step = 0; step < steps; step++) {
        take_b(w, op->src[2 * steps + step], bf16, b);
        for (int half = 0; half < 2; half++) {
            take_a(w, op->src[2 * step + half], bf16, a);
            accumulate(sum[half], a, b);
        }
    }
}

static void mma(const sim_op *op, sim_warp *w)
{
    const int32_t *c = op->src + 3 * (op->info >> 4);
    sim_line sum[2][SIDE];
    if (!all_lanes(w))
        return;
    for (int half = 0; half < 2; half++)
        sim_take_lines(sim_source(w, c[2 * half]), sim_source(w, c[2 * half + 1]), sum[half]);
    add_products(op, w, sum);
    for (int half = 0; half < 2; half++)
        sim_put_lines(sum[half], w->file + op->dst[2 * half], w->file + op->dst[2 * half + 1]);
}

/* Drops the digits that fp32 has no room for. */
static float toward_zero(double x)
{
    const float nearest = (float)x;
    return fabs((double)nearest) > fabs(x) ? nextafterf(nearest, 0) : nearest;
}

/* TF32, m16n8k8: a register of A or B has fp32 numbers of 8 rows, or columns, and depth 4. The last 13 bits of a number
 * do not count. The sum is cut off to fp32, not rounded: an H100 does so. Kernels whose sums of thousands of products
 * stayed in C had elements of O that were wrong by 6e-5 there (0.0656451 for 0.0656489). info: as m16n8k16, which takes
 * the same time. */
static void mma_tf32(const sim_op *op, sim_warp *w)
{
    enum { DEPTH_OF_REGISTER = 4, IGNORED = 0x1fff };
    const int32_t *b = op->src + 4, *c = op->src + 6;
    sim_line sum[2][SIDE];
    double total[2 * SIDE][SIDE];
    if (!all_lanes(w))
        return;
    for (int half = 0; half < 2; half++)
        sim_take_lines(sim_source(w, c[2 * half]), sim_source(w, c[2 * half + 1]), sum[half]);
    for (int row = 0; row < 2 * SIDE; row++)
        for (int i = 0; i < SIDE; i++)
            total[row][i] = (double)sum[row / SIDE][row % SIDE][i];
    for (int k = 0; k < 2 * DEPTH_OF_REGISTER; k++) {
        const uint32_t *columns = sim_source(w, b[k / DEPTH_OF_REGISTER]);
        const int depth = k % DEPTH_OF_REGISTER;
        float line[SIDE];
        for (int i = 0; i < SIDE; i++)
            line[i] = sim_float(columns[sim_line_order[i] * DEPTH_OF_REGISTER + (unsigned)depth] & ~(uint32_t)IGNORED);
        for (int row = 0; row < 2 * SIDE; row++) {
            const uint32_t *rows = sim_source(w, op->src[k / DEPTH_OF_REGISTER * 2 + row / SIDE]);
            const float a = sim_float(rows[row % SIDE * DEPTH_OF_REGISTER + depth] & ~(uint32_t)IGNORED);
            for (int i = 0; i < SIDE; i++)
                total[row][i] += (double)a * (double)line[i];
        }
    }
    for (int row = 0; row < 2 * SIDE; row++)
        for (int i = 0; i < SIDE; i++)
            sum[row / SIDE][row % SIDE][i] = toward_zero(total[row][i]);
    for (int half = 0; half < 2; half++)
        sim_put_lines(sum[half], w->file + op->dst[2 * half], w->file + op->dst[2 * half + 1]);
}

/* fp16 sums: C and D have a register for each half of the rows. An instruction adds in fp32 and rounds its result to
 * fp16, to nearest. The PTX ISA says "at least half precision"; what the hardware does is not documented. */
static void mma_fp16(const sim_op *op, sim_warp *w)
{
    const int32_t *c = op->src + 3 * (op->info >> 4);
    sim_line sum[2][SIDE];
    if (!all_lanes(w))
        return;
    for (int half = 0; half < 2; half++)
        sim_take_half_lines(sim_source(w, c[half]), sum[half]);
    add_products(op, w, sum);
    for (int half = 0; half < 2; half++)
        sim_put_half_lines(sum[half], w->file + op->dst[half]);
}

/* ---- mma m8n8k16, m16n8k16 and m16n8k32 of bytes; info: rows / 8, whether bytes are signed, the rate of fp16 sums, and
 * k16 steps, each of which takes the time of a k8 step of 16-bit elements ---- */

enum { DEPTH = 16, SIGNED = 1 << 2 };

static int32_t number_of(uint8_t byte, bool is_signed)
{
    return is_signed ? (int8_t)byte : byte;
}

/* Sums out of range wrap. One register has the even columns of D, the other the odd ones. */
static void add_bytes(const uint32_t *a, const uint32_t *b, bool is_signed, uint32_t sum[2][SIM_LANES])
{
    uint8_t rows[SIDE][DEPTH], columns[SIDE][DEPTH];
    memcpy(rows, a, sizeof rows);
    memcpy(columns, b, sizeof columns);
    for (int row = 0; row < SIDE; row++)
        for (int column = 0; column < SIDE; column++) {
            uint32_t product = 0;
            for (int k = 0; k < DEPTH; k++)
                product += (uint32_t)(number_of(rows[row][k], is_signed) * number_of(columns[column][k], is_signed));
            sum[column % 2][row * (SIDE / 2) + column / 2] += product;
        }
}

static void mma_bytes(const sim_op *op, sim_warp *w)
{
    const int halves = op->info & 3, steps = op->info >> 4;
    const int32_t *b = op->src + halves * steps, *c = b + steps;
    uint32_t sum[2][2][SIM_LANES];
    if (!all_lanes(w))
        return;
    for (int half = 0; half < halves; half++) {
        for (int odd = 0; odd < 2; odd++)
            memcpy(sum[half][odd], sim_source(w, c[2 * half + odd]), sizeof sum[half][odd]);
        for (int step = 0; step < steps; step++)
            add_bytes(sim_source(w, op->src[halves * step + half]), sim_source(w, b[step]), op->info & SIGNED,
                      sum[half]);
    }
    for (int i = 0; i < 2 * halves; i++)
        sim_put(w, op->dst[i], sum[i / 2][i % 2]);
}

/* e4m3, m16n8k32: registers as of m16n8k32 of bytes. Sums are of fp32 here, like those of the products of 16 bits; the
 * hardware keeps fewer of their bits, in a way that is not documented. */
static void mma_e4m3(const sim_op *op, sim_warp *w)
{
    enum { STEPS = 2, HALVES = 2 };
    const int32_t *b = op->src + HALVES * STEPS, *c = b + STEPS;
    sim_line sum[HALVES][SIDE];
    if (!all_lanes(w))
        return;
    for (int half = 0; half < HALVES; half++)
        sim_take_lines(sim_source(w, c[2 * half]), sim_source(w, c[2 * half + 1]), sum[half]);
    for (int step = 0; step < STEPS; step++) {
        uint8_t columns[SIDE][DEPTH], rows[SIDE][DEPTH], line[SIDE];
        memcpy(columns, sim_source(w, b[step]), sizeof columns);
        for (int half = 0; half < HALVES; half++) {
            memcpy(rows, sim_source(w, op->src[HALVES * step + half]), sizeof rows);
            for (int k = 0; k < DEPTH; k++) {
                for (int i = 0; i < SIDE; i++)
                    line[i] = columns[sim_line_order[i]][k];
                const sim_line numbers = sim_widen_e4m3(line);
                for (int i = 0; i < SIDE; i++)
                    line[i] = rows[i][k];
                const sim_line factors = sim_widen_e4m3(line);
                for (int row = 0; row < SIDE; row++)
                    sum[half][row] += factors[row] * numbers;
            }
        }
    }
    for (int half = 0; half < HALVES; half++)
        sim_put_lines(sum[half], w->file + op->dst[2 * half], w->file + op->dst[2 * half + 1]);
}

#define STORES(count, form, info)                                                                                      \
    {"stmatrix.sync.aligned.m8n8." count ".shared.b16", "a " form, stmatrix, SIM_KIND_SHARED, info},                   \
    {                                                                                                                  \
        "stmatrix.sync.aligned.m8n8." count ".trans.shared.b16", "a " form, stmatrix, SIM_KIND_SHARED, (info) | 8      \
    }
#define MATRICES(count, form, info)                                                                                    \
    {"ldmatrix.sync.aligned.m8n8." count ".shared.b16", form " a", ldmatrix, SIM_KIND_SHARED, info},                   \
    {                                                                                                                  \
        "ldmatrix.sync.aligned.m8n8." count ".trans.shared.b16", form " a", ldmatrix, SIM_KIND_SHARED, (info) | 8      \
    }
#define MMA(shape, type, form, info)                                                                                   \
    {                                                                                                                  \
        "mma.sync.aligned." shape ".row.col.f32." type "." type ".f32", form, mma, SIM_KIND_TENSOR, info               \
    }

#define MMA_FP16(shape, form, info)                                                                                    \
    {                                                                                                                  \
        "mma.sync.aligned." shape ".row.col.f16.f16.f16.f16", form, mma_fp16, SIM_KIND_TENSOR, (info) | SIM_FP16_SUMS  \
    }

#define MMA_BYTES(shape, type, form, info)                                                                             \
    {                                                                                                                  \
        "mma.sync.aligned." shape ".row.col.s32." type "." type ".s32", form, mma_bytes, SIM_KIND_TENSOR, info         \
    }

static const sim_row rows[] = {
    MATRICES("x1", "1r", 1),
    MATRICES("x2", "2r", 2),
    MATRICES("x4", "4r", 4),
    STORES("x1", "1s", 1),
    STORES("x2", "2s", 2),
    STORES("x4", "4s", 4),
    MMA("m16n8k8", "f16", "4r 2s 1s 4s", 1 << 4),
    MMA("m16n8k8", "bf16", "4r 2s 1s 4s", 1 << 4 | 1),
    MMA("m16n8k16", "f16", "4r 4s 2s 4s", 2 << 4),
    MMA("m16n8k16", "bf16", "4r 4s 2s 4s", 2 << 4 | 1),
    {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "4r 4s 2s 4s", mma_tf32, SIM_KIND_TENSOR, 2 << 4},
    MMA_FP16("m16n8k8", "2r 2s 1s 2s", 1 << 4),
    MMA_FP16("m16n8k16", "2r 4s 2s 2s", 2 << 4),
    MMA_BYTES("m8n8k16", "u8", "2r 1s 1s 2s", 1 << 4 | 1),
    MMA_BYTES("m8n8k16", "s8", "2r 1s 1s 2s", 1 << 4 | SIM_FP16_SUMS | SIGNED | 1),
    MMA_BYTES("m16n8k16", "u8", "4r 2s 1s 4s", 1 << 4 | 2),
    MMA_BYTES("m16n8k32", "s8", "4r 4s 2s 4s", 2 << 4 | SIM_FP16_SUMS | SIGNED | 2),
    {"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "4r 4s 2s 4s", mma_e4m3, SIM_KIND_TENSOR, 2 << 4},
};

const sim_rows sim_rows_matrix = {rows, sizeof rows / sizeof *rows};
