/*
 * Bulk copies and tensor copies in both directions, bulk additions, their groups, and the proxy fence.
 *
 * A load moves its data when it is issued. But for the checks, its destination must not be touched before a wait for
 * the phase of its mbarrier (shadow.h). A store also moves its data at once. For the checks it reads until its thread
 * has waited for its group.
 *
 * A part of a box outside the tensor counts as many bytes as one inside. Loads write zeros there, and stores write
 * nothing.
 */
#include <string.h>
#include "access.h"
#include "lanes.h"
#include "tensor_map.h"

enum { CHUNK_BYTES = 16, ROW_BYTES_MAX = 2048, TENSOR_ALIGN = 128, SECTOR_BYTES = 32, WAVEFRONT_BYTES = 128 };

static bool is_multiple(sim_warp *w, int lane, uint64_t value, unsigned of, const char *what)
{
    if (value % of == 0)
        return true;
    sim_stop(w, lane, CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned: %s is 0x%llx, no multiple of %u", what,
             (unsigned long long)value, of);
    return false;
}

static void count_shared(sim_warp *w, unsigned bytes)
{
    const unsigned wavefronts = (bytes + WAVEFRONT_BYTES - 1) / WAVEFRONT_BYTES;
    sim_counter(w)->wavefronts += wavefronts;
    sim_counter(w)->wavefronts_ideal += wavefronts;
}

static void count_global(sim_warp *w, uint64_t address, unsigned bytes)
{
    if (bytes == 0)
        return;
    const uint64_t sectors = (address + bytes - 1) / SECTOR_BYTES - address / SECTOR_BYTES + 1;
    sim_counter(w)->sectors += sectors;
    sim_counter(w)->sectors_ideal += (bytes + SECTOR_BYTES - 1) / SECTOR_BYTES;
}

/* Returns the mbarrier at which a lane's load arrives. The asynchronous proxy must see it. NULL: the launch is stopped.
 * */
static sim_mbarrier *arrives_at(sim_warp *w, int lane, const uint64_t address[SIM_LANES])
{
    sim_mbarrier *m = sim_mbarrier_at(w, address);
    if (m != NULL && !m->fenced) {
        sim_stop(w, lane, CUDA_ERROR_LAUNCH_FAILED,
                 "proxy: no fence.mbarrier_init lies between the making of its mbarrier and the load");
        return NULL;
    }
    return m;
}

/* ---- contiguous bytes ---- */

static void load_lane(const sim_op *op, sim_warp *w, int lane, uint64_t to, uint64_t from,
                      const uint64_t mbarrier[SIM_LANES])
{
    const uint32_t bytes = sim_source(w, op->src[2])[lane];
    sim_mbarrier *m = arrives_at(w, lane, mbarrier);
    if (m == NULL || !is_multiple(w, lane, bytes, CHUNK_BYTES, "the number of bytes") ||
        !is_multiple(w, lane, from, CHUNK_BYTES, "the source") || bytes == 0)
        return;
    const uint8_t *source = sim_global_row(w, lane, from, bytes, SIM_READ);
    uint8_t *at =
        source == NULL ? NULL : sim_shared_load(w, lane, to, bytes, sim_mbarrier_number(w->block, m), m->began);
    if (at == NULL)
        return;
    memcpy(at, source, bytes);
    count_shared(w, bytes);
    count_global(w, from, bytes);
    sim_mbarrier_complete(w, m, bytes);
}

static void load_bytes(const sim_op *op, sim_warp *w)
{
    uint64_t to[SIM_LANES], from[SIM_LANES], mbarrier[SIM_LANES];
    sim_addresses(w, op, 0, 0, to);
    sim_addresses(w, op, 1, 1, from);
    sim_addresses(w, op, 2, 3, mbarrier);
    for (int l = 0; l < SIM_LANES && w->state == SIM_RUNS; l++)
        if (sim_lane(w->mask, l))
            load_lane(op, w, l, to[l], from[l], mbarrier);
}

/* ---- boxes of tensors ---- */

/* A box of a map, and the row that is being copied. */
typedef struct box {
    sim_tensor_map map;
    int32_t at[SIM_MAP_RANK]; /* coordinates of its first element */
    unsigned index[SIM_MAP_RANK], row_bytes, rows;
} box;

/* Reads the map at a generic address. It is a parameter of the kernel. */
static bool read_map(sim_warp *w, int lane, uint64_t address, unsigned rank, sim_tensor_map *map)
{
    const uint64_t size = w->block->program->function->param_bytes;
    if (sim_resolve(&address) != PTX_SPACE_PARAM) {
        sim_stop(w, lane, CUDA_ERROR_NOT_SUPPORTED, "a tensor map that is no parameter of the kernel");
        return false;
    }
    if (!is_multiple(w, lane, address, SIM_MAP_ALIGN, "the address of the tensor map"))
        return false;
    if (address + SIM_MAP_BYTES > size || !sim_tensor_map_read(w->block->launch->params + address, map) ||
        map->rank != rank) {
        sim_stop(w, lane, CUDA_ERROR_LAUNCH_FAILED,
                 "there is no tensor map of rank %u at byte %llu of "
                 "the parameters",
                 rank, (unsigned long long)address);
        return false;
    }
    return true;
}

/* info: the rank. first: index of the source after the map's address. */
static bool read_box(const sim_op *op, sim_warp *w, int lane, uint64_t map, int first, box *b)
{
    *b = (box){.rows = 1};
    if (!read_map(w, lane, map, (unsigned)op->info, &b->map))
        return false;
    for (int i = 0; i < op->info; i++) {
        b->at[i] = (int32_t)sim_source(w, op->src[first + 1 + i])[lane];
        b->rows *= i > 0 ? b->map.box[i] : 1;
    }
    b->row_bytes = b->map.box[0] * (unsigned)b->map.elem_bytes;
    return true;
}

static void next_row(box *b)
{
    for (unsigned i = 1; i < b->map.rank && ++b->index[i] == b->map.box[i]; i++)
        b->index[i] = 0;
}

/* Finds the bytes of the row that are in the tensor: *ret_from is their offset in the row. Returns how many. */
static unsigned inside(const box *b, unsigned *ret_from, uint64_t *ret_address)
{
    const sim_tensor_map *map = &b->map;
    const int64_t begin = b->at[0] > 0 ? b->at[0] : 0, extent = (int64_t)map->last[0] + 1;
    const int64_t behind = (int64_t)b->at[0] + map->box[0], end = behind < extent ? behind : extent;
    uint64_t address = map->address + (uint64_t)begin * map->elem_bytes;
    for (unsigned i = 1; i < map->rank; i++) {
        const int64_t at = (int64_t)b->at[i] + b->index[i];
        if (at < 0 || at > map->last[i])
            return 0;
        address += (uint64_t)at * map->strides[i - 1];
    }
    *ret_from = (unsigned)(begin - b->at[0]) * map->elem_bytes;
    *ret_address = address;
    return end > begin ? (unsigned)(end - begin) * map->elem_bytes : 0;
}

/* Returns the place of a chunk: the 16-byte chunks of 128-byte rows are permuted by the address bits above. */
static uint32_t swizzled(const sim_tensor_map *map, uint32_t address)
{
    return address ^ (address >> 3 & (uint32_t)map->swizzled << 4);
}

static bool load_rows(sim_warp *w, int lane, box *b, uint32_t to, uint8_t *at)
{
    uint8_t row[ROW_BYTES_MAX];
    for (unsigned r = 0; r < b->rows; r++, next_row(b)) {
        unsigned from = 0;
        uint64_t address = 0;
        const unsigned bytes = inside(b, &from, &address);
        const uint8_t *source = bytes == 0 ? row : sim_global_row(w, lane, address, bytes, SIM_READ);
        if (source == NULL)
            return false;
        memset(row, 0, b->row_bytes);
        if (bytes > 0)
            memcpy(row + from, source, bytes);
        for (unsigned i = 0; i < b->row_bytes; i += CHUNK_BYTES)
            memcpy(at + (swizzled(&b->map, to + r * b->row_bytes + i) - to), row + i, CHUNK_BYTES);
        count_global(w, address, bytes);
    }
    return true;
}

static void load_box(const sim_op *op, sim_warp *w, int lane, uint64_t to, uint64_t map,
                     const uint64_t mbarrier[SIM_LANES])
{
    box b;
    sim_mbarrier *m = arrives_at(w, lane, mbarrier);
    if (m == NULL || !read_box(op, w, lane, map, 1, &b) || !is_multiple(w, lane, to, TENSOR_ALIGN, "the destination"))
        return;
    const unsigned bytes = b.rows * b.row_bytes;
    uint8_t *at = sim_shared_load(w, lane, to, bytes, sim_mbarrier_number(w->block, m), m->began);
    if (at == NULL || !load_rows(w, lane, &b, (uint32_t)to, at))
        return;
    count_shared(w, bytes);
    sim_mbarrier_complete(w, m, bytes);
}

static void load_tensor(const sim_op *op, sim_warp *w)
{
    uint64_t to[SIM_LANES], map[SIM_LANES], mbarrier[SIM_LANES];
    sim_addresses(w, op, 0, 0, to);
    sim_addresses(w, op, 1, 1, map);
    sim_addresses(w, op, 2, 2 + op->info, mbarrier);
    for (int l = 0; l < SIM_LANES && w->state == SIM_RUNS; l++)
        if (sim_lane(w->mask, l))
            load_box(op, w, l, to[l], map[l], mbarrier);
}

/* ---- stores and their groups ---- */

/* Reads the chunks of a row that have elements in the tensor. Others are not read. */
static bool read_row(const box *b, sim_warp *w, int lane, uint32_t address, unsigned first, unsigned bytes,
                     uint8_t row[ROW_BYTES_MAX])
{
    for (unsigned i = first / CHUNK_BYTES * CHUNK_BYTES; i < first + bytes; i += CHUNK_BYTES) {
        const uint8_t *chunk = sim_shared_read_stores(w, lane, swizzled(&b->map, address + i), CHUNK_BYTES);
        if (chunk == NULL)
            return false;
        memcpy(row + i, chunk, CHUNK_BYTES);
    }
    return true;
}

static void store_box(const sim_op *op, sim_warp *w, int lane, uint64_t map, uint64_t from)
{
    box b;
    uint8_t row[ROW_BYTES_MAX];
    if (!read_box(op, w, lane, map, 0, &b) || !is_multiple(w, lane, from, TENSOR_ALIGN, "the source"))
        return;
    for (unsigned r = 0; r < b.rows; r++, next_row(&b)) {
        unsigned first = 0;
        uint64_t address = 0;
        const unsigned bytes = inside(&b, &first, &address);
        if (bytes == 0)
            continue;
        if (!read_row(&b, w, lane, (uint32_t)from + r * b.row_bytes, first, bytes, row))
            return;
        uint8_t *to = sim_global_row(w, lane, address, bytes, SIM_WRITE);
        if (to == NULL)
            return;
        memcpy(to, row + first, bytes);
        count_shared(w, bytes);
        count_global(w, address, bytes);
        if (w->block->launch->spoil)
            sim_spoil(to, bytes);
    }
    w->stores[lane].uncommitted = true;
    w->stores[lane].op = w->pc;
}

static void store_tensor(const sim_op *op, sim_warp *w)
{
    uint64_t map[SIM_LANES], from[SIM_LANES];
    sim_addresses(w, op, 0, 0, map);
    sim_addresses(w, op, 1, 1 + op->info, from);
    for (int l = 0; l < SIM_LANES && w->state == SIM_RUNS; l++)
        if (sim_lane(w->mask, l))
            store_box(op, w, l, map[l], from[l]);
}

/* Adds fp32 numbers of shared memory to those in global memory. */
static void add_lane(const sim_op *op, sim_warp *w, int lane, uint64_t to, uint64_t from)
{
    const uint32_t bytes = sim_source(w, op->src[2])[lane];
    if (!is_multiple(w, lane, bytes, CHUNK_BYTES, "the number of bytes") ||
        !is_multiple(w, lane, to, CHUNK_BYTES, "the destination") ||
        !is_multiple(w, lane, from, CHUNK_BYTES, "the source") || bytes == 0)
        return;
    uint8_t *at = sim_global_row(w, lane, to, bytes, SIM_ADD);
    for (unsigned i = 0; at != NULL && i < bytes; i += CHUNK_BYTES) {
        const uint8_t *chunk = sim_shared_read_stores(w, lane, (uint32_t)from + i, CHUNK_BYTES);
        float x[CHUNK_BYTES / sizeof(float)];
        if (chunk == NULL)
            return;
        memcpy(x, chunk, sizeof x);
        for (unsigned n = 0; n < CHUNK_BYTES / sizeof *x; n++)
            sim_add_float((uint32_t *)(void *)(at + i) + n, x[n]);
    }
    count_shared(w, bytes);
    count_global(w, to, bytes);
    w->stores[lane].uncommitted = true;
    w->stores[lane].op = w->pc;
}

static void add_bytes(const sim_op *op, sim_warp *w)
{
    uint64_t to[SIM_LANES], from[SIM_LANES];
    sim_addresses(w, op, 0, 0, to);
    sim_addresses(w, op, 1, 1, from);
    for (int l = 0; l < SIM_LANES && w->state == SIM_RUNS; l++)
        if (sim_lane(w->mask, l))
            add_lane(op, w, l, to[l], from[l]);
}

static void commit(const sim_op *op, sim_warp *w)
{
    (void)op;
    const uint32_t token = sim_shadow_commit(&w->block->shadow);
    LANES(l)
    {
        sim_stores *stores = &w->stores[l];
        if (!sim_lane(w->mask, l))
            continue;
        if (stores->groups == SIM_STORE_GROUPS) {
            sim_stop(w, l, CUDA_ERROR_NOT_SUPPORTED, "more than %d groups of bulk stores", SIM_STORE_GROUPS);
            return;
        }
        stores->tokens[stores->groups++] = token;
        stores->uncommitted = false;
    }
}

/* Waits until all but the last n groups have read their operands. They have written then, too: they do so at once. */
static void wait_read(const sim_op *op, sim_warp *w)
{
    const uint64_t pending = (uint64_t)op->immediate;
    LANES(l)
    {
        sim_stores *stores = &w->stores[l];
        if (!sim_lane(w->mask, l) || stores->groups <= pending)
            continue;
        const unsigned done = stores->groups - (unsigned)pending;
        sim_shadow_finished(&w->block->shadow, (unsigned)w->index, SIM_BY_STORES, stores->tokens[done - 1]);
        stores->groups -= done;
        memmove(stores->tokens, stores->tokens + done, stores->groups * sizeof *stores->tokens);
    }
}

bool sim_stores_done(sim_warp *w, uint32_t lanes)
{
    LANES(l)
    {
        const sim_stores *stores = &w->stores[l];
        if (!sim_lane(lanes, l) || (stores->groups == 0 && !stores->uncommitted))
            continue;
        char place[512];
        sim_describe(w->block->program, stores->op, place, sizeof place);
        sim_stop(w, l, CUDA_ERROR_LAUNCH_FAILED,
                 "early: the thread ends, and has not waited until shared memory was read by %s", place);
        return false;
    }
    return true;
}

static void fence(const sim_op *op, sim_warp *w)
{
    (void)op;
    sim_late_taken(w);
    sim_shadow_fence(&w->block->shadow, (unsigned)w->index, w->mask, w->alive);
    sim_mbarriers_fence(w);
}

#define ROW(opcode, form, handler, info)                                                                               \
    {                                                                                                                  \
        opcode, form, handler, SIM_KIND_ASYNC, info                                                                    \
    }

static const sim_row rows[] = {
    ROW("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", "a a s a", load_bytes, 0),
    ROW("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes", "a 4t a", load_tensor, 4),
    ROW("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group", "4t a", store_tensor, 4),
    ROW("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32", "a a s", add_bytes, 0),
    ROW("cp.async.bulk.commit_group", "", commit, 0),
    ROW("cp.async.bulk.wait_group", "i", wait_read, 0),
    ROW("cp.async.bulk.wait_group.read", "i", wait_read, 0),
    ROW("fence.proxy.async.shared::cta", "", fence, 0),
};

const sim_rows sim_rows_bulk = {rows, sizeof rows / sizeof *rows};
