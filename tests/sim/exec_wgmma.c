/*
 * wgmma.mma_async (products) with its fences and groups.
 *
 * A warp computes its 16 rows when it issues the product. That is correct because its operands must not change until
 * the wait for it. hazards.c checks this for registers. The shadow checks it for shared memory: it treats a group's
 * reads as lasting until the wait. The four warps of a warpgroup must execute the same, but need not meet.
 *
 * Accumulators have the layout of mma.sync, for each 8 columns. Sums of e4m3 products are rounded to fp32, as all
 * others (matrix.h). The hardware keeps fewer of their bits, in a way that is not documented. Sums of s8 products are
 * exact integers of 32 bits.
 */
#include <string.h>
#include "access.h"
#include "arena.h"
#include "matrix.h"

enum { GROUP_WARPS = 4, ROWS = 16, DEPTH = 16, DEPTH_MAX = 32, COLUMNS_MAX = 256, SIDE = SIM_SIDE };
enum { BF16 = 1, INTEGERS = 1, A_REGISTERS = 2 }; /* bits of info below the shape: the type, by its size, and A */

typedef struct product {
    const sim_op *op;
    int tiles, depth;
    bool bf16, bytes, integers, add, a_in_registers; /* bytes: integers, or e4m3 */
    float scale;                                     /* of the products: 1 or -1 */
    sim_operand a, b;
} product;

/* A warp's operands as numbers: its rows of A, times the scale, and all columns of B. */
typedef struct numbers {
    float a[ROWS][DEPTH_MAX];
    sim_line b[DEPTH_MAX][COLUMNS_MAX / SIDE];
} numbers;

/* ---- the same steps in all warps of a warpgroup ---- */

/* Returns false, and stops the launch, if a lane or a warp is missing. */
static bool is_whole(sim_warp *w)
{
    if (w->mask != SIM_ALL_LANES) {
        sim_stop(w, -1, CUDA_ERROR_LAUNCH_FAILED, "lanes are missing: all 32 must execute it, 0x%08x do", w->mask);
        return false;
    }
    if ((unsigned)(w->index | (GROUP_WARPS - 1)) >= w->block->launch->warp_count) {
        sim_stop(w, -1, CUDA_ERROR_LAUNCH_FAILED, "the block's last warps are no warpgroup: it has %u",
                 w->block->launch->warp_count);
        return false;
    }
    return true;
}

static void add_step(sim_products *first, const sim_group_step *step)
{
    first->steps = sim_host_grow(first->steps, first->step_count, &first->step_capacity, sizeof *first->steps);
    first->steps[first->step_count++] = *step;
}

/* Forgets steps that all four warps have executed. */
static void forget_steps(sim_warp *group)
{
    for (int i = 0; i < GROUP_WARPS; i++)
        if (group[i].products.done != group->products.step_count)
            return;
    for (int i = 0; i < GROUP_WARPS; i++)
        group[i].products.done = 0;
    group->products.step_count = 0;
}

static bool is_alike(sim_warp *w, const sim_group_step *step)
{
    sim_warp *group = &w->block->warps[w->index / GROUP_WARPS * GROUP_WARPS];
    sim_products *first = &group->products;
    char other[512];
    if (w->products.done == first->step_count)
        add_step(first, step);
    const sim_group_step *known = &first->steps[w->products.done++];
    if (known->op != step->op) {
        sim_describe(w->block->program, known->op, other, sizeof other);
        sim_stop(w, -1, CUDA_ERROR_LAUNCH_FAILED, "the warps of a warpgroup part: another one executes %s", other);
        return false;
    }
    if (known->a != step->a || known->b != step->b || known->add != step->add) {
        sim_stop(w, -1, CUDA_ERROR_LAUNCH_FAILED,
                 "the warps of a warpgroup differ in its operands: descriptors 0x%llx, 0x%llx, "
                 "scale-d %d; of another one 0x%llx, 0x%llx, %d",
                 (unsigned long long)step->a, (unsigned long long)step->b, step->add, (unsigned long long)known->a,
                 (unsigned long long)known->b, known->add);
        return false;
    }
    forget_steps(group);
    return true;
}

bool sim_group_alike(sim_warp *w)
{
    return is_whole(w) && is_alike(w, &(sim_group_step){.op = w->pc});
}

void sim_products_end(sim_block *block)
{
    char missed[512];
    for (unsigned i = 0; i < block->launch->warp_count; i++) {
        sim_warp *w = &block->warps[i];
        const sim_products *first = &block->warps[i / GROUP_WARPS * GROUP_WARPS].products;
        w->pc = block->program->op_count - 1;
        if (w->products.done < first->step_count) {
            sim_describe(block->program, first->steps[w->products.done].op, missed, sizeof missed);
            sim_stop(w, -1, CUDA_ERROR_LAUNCH_FAILED, "the warp ends, and others of its warpgroup have executed %s",
                     missed);
        } else if (w->products.groups > 0) {
            sim_stop(w, -1, CUDA_ERROR_LAUNCH_FAILED,
                     "early: the warp ends, and has not waited for its last %u groups of products", w->products.groups);
        }
    }
}

/* ---- fence and groups; hazards.c checks the registers before execution ---- */

static void fence(const sim_op *op, sim_warp *w)
{
    (void)op;
    sim_group_alike(w);
}

static void commit_group(const sim_op *op, sim_warp *w)
{
    (void)op;
    sim_products *p = &w->products;
    if (!sim_group_alike(w))
        return;
    if (p->groups == SIM_PRODUCT_GROUPS) {
        p->groups--;
        memmove(p->tokens, p->tokens + 1, p->groups * sizeof *p->tokens);
    }
    p->tokens[p->groups++] = sim_shadow_commit(&w->block->shadow);
}

static void wait_group(const sim_op *op, sim_warp *w)
{
    sim_products *p = &w->products;
    if (!sim_group_alike(w) || op->immediate >= (int64_t)p->groups)
        return;
    const unsigned kept = (unsigned)op->immediate, done = p->groups - kept;
    sim_shadow_finished(&w->block->shadow, (unsigned)w->index, SIM_BY_PRODUCTS, p->tokens[done - 1]);
    memmove(p->tokens, p->tokens + done, kept * sizeof *p->tokens);
    p->groups = kept;
}

/* ---- operands ---- */

static bool take_descriptor(sim_warp *w, int32_t source, uint64_t transposed, sim_operand *ret, uint64_t *ret_bits)
{
    const uint64_t *lanes = sim_source_64(w, source);
    LANES(l)
    if (lanes[l] != lanes[0]) {
        sim_stop(w, l, CUDA_ERROR_LAUNCH_FAILED, "its descriptor is 0x%llx, that of lane 0 is 0x%llx",
                 (unsigned long long)lanes[l], (unsigned long long)lanes[0]);
        return false;
    }
    const char *wrong = sim_operand_of(lanes[0], transposed != 0, ret);
    if (wrong != NULL)
        sim_stop(w, -1, CUDA_ERROR_LAUNCH_FAILED, "descriptor 0x%llx: %s", (unsigned long long)lanes[0], wrong);
    *ret_bits = lanes[0];
    return wrong == NULL;
}

static bool take_truth(sim_warp *w, const sim_op *op, int source, bool *ret_truth)
{
    *ret_truth = op->immediate != 0;
    if (op->src[source] == SIM_NONE)
        return true;
    const uint32_t lanes = sim_predicate(w, op, source);
    *ret_truth = lanes != 0;
    if (lanes == 0 || lanes == SIM_ALL_LANES)
        return true;
    sim_stop(w, -1, CUDA_ERROR_LAUNCH_FAILED, "scale-d is not the same in all lanes: 0x%08x", lanes);
    return false;
}

static bool is_scale(uint32_t value)
{
    return value == 1 || value == UINT32_MAX;
}

/* Sources: A (4 registers or a descriptor), B, scale-d, scales of A and B, transposition of A (if it has a descriptor)
 * and of B. Matrices of bytes are never transposed, and integers have no scales. */
static bool take_operands(sim_warp *w, product *p)
{
    const int32_t *src = p->op->src + (p->a_in_registers ? 4 : 1);
    const uint32_t scale_a = p->integers ? 1 : *sim_source(w, src[2]);
    const uint32_t scale_b = p->integers ? 1 : *sim_source(w, src[3]);
    const uint32_t transpose_a = p->a_in_registers || p->bytes ? 0 : *sim_source(w, src[4]);
    const uint32_t transpose_b = p->bytes ? 0 : *sim_source(w, src[p->a_in_registers ? 4 : 5]);
    sim_group_step step = {.op = w->pc};
    if (!is_scale(scale_a) || !is_scale(scale_b) || transpose_a > 1 || transpose_b > 1) {
        sim_stop(w, -1, CUDA_ERROR_LAUNCH_FAILED,
                 "scales are 1 or -1, here %d and %d; transpositions 0 or 1, here %u and %u", (int)scale_a,
                 (int)scale_b, transpose_a, transpose_b);
        return false;
    }
    p->scale = scale_a == scale_b ? 1.0f : -1.0f;
    return (p->a_in_registers || take_descriptor(w, p->op->src[0], transpose_a, &p->a, &step.a)) &&
           take_descriptor(w, src[0], transpose_b, &p->b, &step.b) &&
           take_truth(w, p->op, (int)(src + 1 - p->op->src), &p->add) && (step.add = p->add, is_alike(w, &step));
}

/* ---- elements ---- */

/* Reads the chunks of eight rows from `row` on, a multiple of 8. */
static inline void chunks_at(const sim_warp *w, const sim_operand *o, unsigned row, unsigned part,
                             sim_elements out[SIDE])
{
    uint32_t at[SIDE];
    sim_operand_at(o, row, part, at);
    for (unsigned i = 0; i < SIDE; i++)
        memcpy(&out[i], w->block->shared + (at[i] - SIM_SHARED_BASE), sizeof out[i]);
}

static void take_b(const sim_warp *w, const product *p, numbers *out)
{
    for (unsigned tile = 0; tile < (unsigned)p->tiles; tile++)
        for (unsigned half = 0; half < DEPTH / SIDE; half++) {
            sim_elements m[SIDE], columns[SIDE];
            if (p->b.transposed) {
                chunks_at(w, &p->b, SIDE * half, tile, m);
                for (unsigned i = 0; i < SIDE; i++)
                    m[i] = __builtin_shufflevector(m[i], m[i], 0, 2, 4, 6, 1, 3, 5, 7);
            } else {
                chunks_at(w, &p->b, SIDE * tile, half, columns);
                for (unsigned i = 0; i < SIDE; i++)
                    m[i] = columns[sim_line_order[i]];
                sim_transpose(m);
            }
            for (unsigned i = 0; i < SIDE; i++)
                out->b[SIDE * half + i][tile] = sim_widen(m[i], p->bf16);
        }
}

/* A chunk of 16 bytes as numbers, in two lines. */
static void widen_bytes(sim_elements chunk, bool integers, sim_line out[2])
{
    uint8_t bytes[2 * SIDE];
    memcpy(bytes, &chunk, sizeof bytes);
    for (int i = 0; i < 2; i++)
        out[i] = integers ? sim_widen_s8(bytes + SIDE * i) : sim_widen_e4m3(bytes + SIDE * i);
}

static void take_b_bytes(const sim_warp *w, const product *p, numbers *out)
{
    for (unsigned tile = 0; tile < (unsigned)p->tiles; tile++)
        for (unsigned half = 0; half < 2; half++) {
            sim_elements columns[SIDE];
            chunks_at(w, &p->b, SIDE * tile, half, columns);
            for (unsigned column = 0; column < SIDE; column++) {
                sim_line line[2];
                widen_bytes(columns[sim_line_order[column]], p->integers, line);
                for (unsigned k = 0; k < 2 * SIDE; k++)
                    out->b[2 * SIDE * half + k][tile][column] = line[k / SIDE][k % SIDE];
            }
        }
}

/* Writes a chunk of a row of A: part `half` of its depth. */
static void put_a(const product *p, sim_elements chunk, unsigned half, float row[DEPTH_MAX])
{
    sim_line line[2];
    if (p->bytes)
        widen_bytes(chunk, p->integers, line);
    else
        line[0] = sim_widen(chunk, p->bf16);
    for (int i = 0; i < (p->bytes ? 2 : 1); i++) {
        line[i] *= p->scale;
        memcpy(row + (unsigned)p->depth / 2 * half + SIDE * i, &line[i], sizeof line[i]);
    }
}

/* Reads part (h, half) of A: 8 rows from 8 * h, half of the depth. */
static void take_a_part(const sim_warp *w, const product *p, unsigned h, unsigned half, numbers *out)
{
    const unsigned first = (unsigned)w->index % GROUP_WARPS * ROWS + SIDE * h;
    sim_elements m[SIDE];
    if (p->a_in_registers) {
        memcpy(m, sim_source(w, p->op->src[2 * half + h]), sizeof m);
    } else if (p->a.transposed) {
        chunks_at(w, &p->a, SIDE * half, first / SIDE, m);
        sim_transpose(m);
    } else {
        chunks_at(w, &p->a, first, half, m);
    }
    for (unsigned i = 0; i < SIDE; i++)
        put_a(p, m[i], half, out->a[SIDE * h + i]);
}

/* ---- the product ---- */

/* Adds integers, which the sums of 32 products of bytes are, to those in an accumulator's 8x8 part. */
static void add_integers(const sim_line sum[SIDE], bool add, uint32_t *even, uint32_t *odd)
{
    for (int row = 0; row < SIDE; row++)
        for (int i = 0; i < SIDE; i++) {
            uint32_t *at = (i < SIDE / 2 ? even : odd) + 4 * row + i % (SIDE / 2);
            *at = (add ? *at : 0) + (uint32_t)(int32_t)sum[row][i];
        }
}

/* The registers of rows 8 * h ... 8 * h + 7 of a tile of 8 columns: its even columns, then its odd ones. */
static uint32_t *sums_at(const sim_warp *w, const product *p, int tile, int h, int odd)
{
    return w->file + p->op->dst[4 * tile + 2 * h + odd];
}

static void multiply(const sim_warp *w, const product *p, const numbers *n, int tile, int h)
{
    const float(*a)[DEPTH_MAX] = &n->a[SIDE * h];
    uint32_t *even = sums_at(w, p, tile, h, 0), *odd = sums_at(w, p, tile, h, 1);
    sim_line sum[SIDE] = {{0}};
    if (p->add && !p->integers)
        sim_take_lines(even, odd, sum);
    for (int k = 0; k < p->depth; k++)
        for (int row = 0; row < SIDE; row++)
            sum[row] = sim_add_product(sum[row], a[row][k], n->b[k][tile]);
    if (p->integers)
        add_integers(sum, p->add, even, odd);
    else
        sim_put_lines(sum, even, odd);
}

#ifdef __AVX512F__
/* The same for two neighbouring tiles, with a vector for a row of both. The compiler keeps the sums in registers only
 * if all loops over rows are unrolled and no part of a sum has an address. */
static void multiply_two(const sim_warp *w, const product *p, const numbers *n, int tile, int h)
{
    const float(*a)[DEPTH_MAX] = &n->a[SIDE * h];
    uint32_t *parts[4];
    __m512 sum[SIDE];
    for (int i = 0; i < 4; i++)
        parts[i] = sums_at(w, p, tile + i / 2, h, i % 2);
#pragma GCC unroll 8
    for (int row = 0; row < SIDE; row++) {
        sum[row] = _mm512_setzero_ps();
        if (!p->add)
            continue;
        sum[row] = _mm512_castps128_ps512(_mm_loadu_ps((const float *)parts[0] + 4 * row));
        sum[row] = _mm512_insertf32x4(sum[row], _mm_loadu_ps((const float *)parts[1] + 4 * row), 1);
        sum[row] = _mm512_insertf32x4(sum[row], _mm_loadu_ps((const float *)parts[2] + 4 * row), 2);
        sum[row] = _mm512_insertf32x4(sum[row], _mm_loadu_ps((const float *)parts[3] + 4 * row), 3);
    }
    for (int k = 0; k < p->depth; k++) {
        const __m512 b = _mm512_loadu_ps(&n->b[k][tile]);
#pragma GCC unroll 8
        for (int row = 0; row < SIDE; row++)
            sum[row] = _mm512_fmadd_ps(_mm512_set1_ps(a[row][k]), b, sum[row]);
    }
    const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32((int)SIM_NAN));
#pragma GCC unroll 8
    for (int row = 0; row < SIDE; row++) {
        const __mmask16 is_nan = _mm512_cmp_ps_mask(sum[row], sum[row], _CMP_UNORD_Q);
        const __m512 bits = _mm512_mask_blend_ps(is_nan, sum[row], nan);
        _mm_storeu_ps((float *)parts[0] + 4 * row, _mm512_castps512_ps128(bits));
        _mm_storeu_ps((float *)parts[1] + 4 * row, _mm512_extractf32x4_ps(bits, 1));
        _mm_storeu_ps((float *)parts[2] + 4 * row, _mm512_extractf32x4_ps(bits, 2));
        _mm_storeu_ps((float *)parts[3] + 4 * row, _mm512_extractf32x4_ps(bits, 3));
    }
}
#endif

static void mma_async(const sim_op *op, sim_warp *w)
{
    product p = {.op = op,
                 .tiles = sim_product_columns(op->info) / SIDE,
                 .depth = op->info & SIM_BYTES ? DEPTH_MAX : DEPTH,
                 .bf16 = (op->info & (SIM_BYTES | BF16)) == BF16,
                 .bytes = (op->info & SIM_BYTES) != 0,
                 .integers = (op->info & (SIM_BYTES | INTEGERS)) == (SIM_BYTES | INTEGERS),
                 .a_in_registers = (op->info & A_REGISTERS) != 0};
    const unsigned first = (unsigned)w->index % GROUP_WARPS * ROWS;
    numbers n;
    if (!is_whole(w) || !take_operands(w, &p) || !(p.a_in_registers || sim_operand_read(w, &p.a, first, ROWS)) ||
        !sim_operand_read(w, &p.b, 0, (unsigned)p.tiles * SIDE))
        return;
    if (p.bytes)
        take_b_bytes(w, &p, &n);
    else
        take_b(w, &p, &n);
    for (unsigned part = 0; part < 4; part++)
        take_a_part(w, &p, part / 2, part % 2, &n);
    for (int h = 0; h < 2; h++) {
        int tile = 0;
#ifdef __AVX512F__
        for (; !p.integers && tile + 1 < p.tiles; tile += 2)
            multiply_two(w, &p, &n, tile, h);
#endif
        for (; tile < p.tiles; tile++)
            multiply(w, &p, &n, tile, h);
    }
}

/* ---- broken rules (hazards.c) ---- */

static void stop_hazard(const sim_op *op, sim_warp *w, const char *what, const char *alone)
{
    char other[512];
    if (op->info == SIM_NONE) {
        sim_stop(w, -1, CUDA_ERROR_LAUNCH_FAILED, "%s", alone);
        return;
    }
    sim_describe(w->block->program, op->info, other, sizeof other);
    sim_stop(w, -1, CUDA_ERROR_LAUNCH_FAILED, "%s %s", what, other);
}

void sim_unfenced(const sim_op *op, sim_warp *w)
{
    stop_hazard(op, w, "unfenced: no wgmma.fence is between it and an access to its registers at",
                "unfenced: no wgmma.fence is before the first product");
}

void sim_touches_pending(const sim_op *op, sim_warp *w)
{
    stop_hazard(op, w, "early: no wgmma.wait_group has waited for registers that belong to",
                "early: no wgmma.wait_group has waited for its registers");
}

void sim_other_shape(const sim_op *op, sim_warp *w)
{
    stop_hazard(op, w, "early: no wgmma.wait_group has waited for a product of another shape in its registers:",
                "early: no wgmma.wait_group has waited for a product of another shape");
}

/* ---- rows ---- */

#define PRODUCT(n, half, type, after, transpose_a, transpose_b, info)                                                  \
    {"wgmma.mma_async.sync.aligned.m64n" #n type, #half "R S S T" after transpose_a transpose_b, mma_async,            \
     SIM_KIND_PRODUCT, SIM_COLUMNS(n) | (info)},                                                                       \
    {                                                                                                                  \
        "wgmma.mma_async.sync.aligned.m64n" #n type, #half "R 4s S T" after transpose_b, mma_async, SIM_KIND_PRODUCT,  \
            SIM_COLUMNS(n) | (info) | A_REGISTERS                                                                      \
    }
#define PRODUCTS(n, half)                                                                                              \
    PRODUCT(n, half, "k16.f32.f16.f16", " k k", " k", " k", 0),                                                        \
        PRODUCT(n, half, "k16.f32.bf16.bf16", " k k", " k", " k", BF16),                                               \
        PRODUCT(n, half, "k32.f32.e4m3.e4m3", " k k", "", "", SIM_BYTES)
/* Integers have fewer numbers of columns. */
#define ALL_PRODUCTS(n, half) PRODUCTS(n, half), PRODUCT(n, half, "k32.s32.s8.s8", "", "", "", SIM_BYTES | INTEGERS)

static const sim_row rows[] = {
    ALL_PRODUCTS(8, 4),
    ALL_PRODUCTS(16, 8),
    ALL_PRODUCTS(24, 12),
    ALL_PRODUCTS(32, 16),
    PRODUCTS(40, 20),
    ALL_PRODUCTS(48, 24),
    PRODUCTS(56, 28),
    ALL_PRODUCTS(64, 32),
    PRODUCTS(72, 36),
    ALL_PRODUCTS(80, 40),
    PRODUCTS(88, 44),
    ALL_PRODUCTS(96, 48),
    PRODUCTS(104, 52),
    ALL_PRODUCTS(112, 56),
    PRODUCTS(120, 60),
    ALL_PRODUCTS(128, 64),
    PRODUCTS(136, 68),
    ALL_PRODUCTS(144, 72),
    PRODUCTS(152, 76),
    ALL_PRODUCTS(160, 80),
    PRODUCTS(168, 84),
    ALL_PRODUCTS(176, 88),
    PRODUCTS(184, 92),
    ALL_PRODUCTS(192, 96),
    PRODUCTS(200, 100),
    ALL_PRODUCTS(208, 104),
    PRODUCTS(216, 108),
    ALL_PRODUCTS(224, 112),
    PRODUCTS(232, 116),
    ALL_PRODUCTS(240, 120),
    PRODUCTS(248, 124),
    ALL_PRODUCTS(256, 128),
    {"wgmma.fence.sync.aligned", "", fence, SIM_KIND_CONTROL, 0},
    {"wgmma.commit_group.sync.aligned", "", commit_group, SIM_KIND_CONTROL, 0},
    {"wgmma.wait_group.sync.aligned", "i", wait_group, SIM_KIND_CONTROL, 0},
};

const sim_rows sim_rows_products = {rows, sizeof rows / sizeof *rows};
