/*
 * The checks of accesses, and their messages.
 */
#include "access.h"
#include <stdio.h>

enum { COPIED_BYTES = 16 }; /* the asynchronous proxy moves multiples of it */
enum { WORD = 4 };          /* bytes of a word of the shadow */

static inline bool is_aligned(sim_warp *w, int lane, uint64_t address, unsigned bytes)
{
    if ((address & (bytes - 1)) == 0) /* bytes is a power of two */
        return true;
    sim_stop(w, lane, CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address: %u bytes at 0x%llx", bytes,
             (unsigned long long)address);
    return false;
}

/* Returns all bits if the lane is among these, else 0. Loops that use it are vectorised. */
static inline uint64_t taken_by(uint32_t lanes, int lane)
{
    return 0 - (uint64_t)(lanes >> lane & 1);
}

/* ---- shared ---- */

static inline bool is_in_shared(sim_warp *w, int lane, uint64_t address, unsigned bytes)
{
    const uint32_t size = w->block->launch->shared_bytes;
    if (address >= SIM_SHARED_BASE && address - SIM_SHARED_BASE <= size && bytes <= size - (address - SIM_SHARED_BASE))
        return true;
    sim_stop(w, lane, CUDA_ERROR_ILLEGAL_ADDRESS, "outside of shared memory: %u bytes at offset %lld; the block has %u",
             bytes, (long long)(address - SIM_SHARED_BASE), size);
    return false;
}

/* Writes "... by thread 5 at ", or another actor. */
static void describe_party(const sim_warp *w, const sim_party *other, char *out, size_t bytes)
{
    const bool load = other->thread >= SIM_LOADED;
    char place[512];
    sim_describe(w->block->program, other->op, place, sizeof place);
    if (load)
        snprintf(out, bytes, "a load at %s", place);
    else if (other->asynchronous)
        snprintf(out, bytes, "what warp %u began at %s", other->thread / SIM_LANES, place);
    else
        snprintf(out, bytes, "thread %u at %s", other->thread, place);
}

static void stop_conflict(sim_warp *w, int lane, sim_conflict conflict, const sim_access *access,
                          const sim_party *other, uint64_t address)
{
    static const char *const what[] = {
        [SIM_UNWRITTEN] = "uninitialised: it reads shared memory at offset %u that nobody wrote",
        [SIM_WRITE_READ] = "race: it reads shared memory at offset %u, written without a barrier "
                           "between by ",
        [SIM_READ_WRITE] = "race: it writes shared memory at offset %u, read without a barrier "
                           "between by ",
        [SIM_WRITE_WRITE] = "race: it writes shared memory at offset %u, also written without a "
                            "barrier between by ",
        [SIM_PENDING] = "early: shared memory at offset %u waits for the cp.async of ",
        [SIM_LOADING] = "early: shared memory at offset %u is written without a wait for its "
                        "mbarrier's phase between by ",
        [SIM_UNFENCED] = "proxy: it %s shared memory at offset %u through the asynchronous proxy, "
                         "written without fence.proxy.async between by ",
    };
    const unsigned offset = (unsigned)(address - SIM_SHARED_BASE);
    char first[192], second[560] = "";
    if (conflict == SIM_UNFENCED)
        snprintf(first, sizeof first, what[conflict], access->loads ? "writes" : "reads", offset);
    else
        snprintf(first, sizeof first, what[conflict], offset);
    if (conflict != SIM_UNWRITTEN)
        describe_party(w, other, second, sizeof second);
    sim_stop(w, lane, CUDA_ERROR_LAUNCH_FAILED, "%s%s", first, second);
}

static sim_access access_of(const sim_warp *w, int lane, int32_t op)
{
    return (sim_access){.thread = sim_thread(w, lane), .sync = w->sync_epoch, .op = op};
}

typedef sim_conflict (*note)(sim_shadow *, const sim_access *, uint32_t, unsigned, sim_party *);

/* Only mbarrier instructions may change an mbarrier. */
static bool spares_mbarriers(sim_warp *w, int lane, uint64_t address, unsigned bytes)
{
    const sim_block *block = w->block;
    const uint32_t at = (uint32_t)address;
    char made[256];
    if (at >= block->mbarriers_end || at + bytes <= block->mbarriers_begin)
        return true;
    const sim_mbarrier *m = sim_mbarrier_in(block, at, bytes);
    if (m == NULL)
        return true;
    sim_describe_place(block->program, m->op, made, sizeof made);
    sim_stop(w, lane, CUDA_ERROR_LAUNCH_FAILED, "it writes over the mbarrier at offset %u, made at %s",
             m->address - SIM_SHARED_BASE, made);
    return false;
}

static inline uint8_t *shared_at(sim_warp *w, int lane, uint64_t address, unsigned bytes, const sim_access *access,
                                 note note_access)
{
    const uint32_t at = (uint32_t)(address - SIM_SHARED_BASE);
    if (note_access != sim_shadow_read && !spares_mbarriers(w, lane, address, bytes))
        return NULL;
    sim_shadow *shadow = &w->block->shadow;
    sim_party other;
    if (!access->collective && access->by == SIM_BY_WARP && !access->loads)
        shadow->touched[w->index] |= 1u << lane;
    const sim_conflict conflict = note_access(shadow, access, at, bytes, &other);
    if (conflict == SIM_NO_CONFLICT)
        return w->block->shared + at;
    stop_conflict(w, lane, conflict, access, &other, address);
    return NULL;
}

static inline bool lanes_at(sim_warp *w, uint32_t lanes, const uint64_t address[SIM_LANES], unsigned bytes,
                            bool collective, note note_access, uint8_t *ret_at[SIM_LANES])
{
    sim_access access = access_of(w, 0, w->pc);
    sim_found found = {.has_free = false};
    access.collective = access.all_lanes = collective;
    access.found = w->block->shadow.ahead_lanes[w->index] == 0 ? &found : NULL;
    for (uint32_t left = lanes; left != 0; left &= left - 1) {
        const int lane = sim_first_lane(left);
        access.thread = sim_thread(w, lane);
        if (!is_in_shared(w, lane, address[lane], bytes) || !is_aligned(w, lane, address[lane], bytes))
            return false;
        ret_at[lane] = shared_at(w, lane, address[lane], bytes, &access, note_access);
        if (ret_at[lane] == NULL)
            return false;
    }
    return true;
}

/* lanes_at for words. It first checks the limits of all lanes; lanes_at then finds the lane that is outside. */
static inline bool words_at(sim_warp *w, uint32_t lanes, const uint64_t address[SIM_LANES], unsigned bytes,
                            bool collective, note note_access, sim_note_lanes note_lanes, uint8_t *ret_at[SIM_LANES])
{
    const sim_block *block = w->block;
    const uint32_t size = block->launch->shared_bytes;
    const uint64_t mbarriers = block->mbarriers_begin, mbarriers_bytes = block->mbarriers_end - mbarriers;
    sim_shadow *shadow = &w->block->shadow;
    sim_access access = access_of(w, 0, w->pc);
    sim_lanes places = {.mask = lanes, .bytes = bytes};
    bool inside = size >= bytes && bytes >= WORD;
    for (int l = 0; l < SIM_LANES; l++) {
        const uint64_t offset = (address[l] - SIM_SHARED_BASE) & taken_by(lanes, l);
        const uint64_t after = offset + SIM_SHARED_BASE + bytes - 1 - mbarriers; /* huge: before the mbarriers */
        places.at[l] = (uint32_t)offset;
        inside &= (offset & (bytes - 1)) == 0 && offset <= (uint64_t)size - bytes &&
                  (note_access == sim_shadow_read || mbarriers_bytes == 0 || after >= mbarriers_bytes + bytes - 1);
    }
    if (!inside)
        return lanes_at(w, lanes, address, bytes, collective, note_access, ret_at);
    sim_party other;
    sim_found found = {.has_free = false};
    int lane = 0;
    for (int l = 0; l < SIM_LANES; l++)
        ret_at[l] = block->shared + places.at[l];
    access.collective = access.all_lanes = collective;
    access.found = shadow->ahead_lanes[w->index] == 0 ? &found : NULL;
    if (!collective)
        shadow->touched[w->index] |= lanes;
    const sim_conflict conflict = note_lanes(shadow, &access, &places, &lane, &other);
    if (conflict != SIM_NO_CONFLICT)
        stop_conflict(w, lane, conflict, &access, &other, address[lane]);
    return conflict == SIM_NO_CONFLICT;
}

bool sim_shared_lanes(sim_warp *w, uint32_t lanes, const uint64_t address[SIM_LANES], unsigned bytes, bool write,
                      uint8_t *ret_at[SIM_LANES])
{
    return write ? words_at(w, lanes, address, bytes, false, sim_shadow_write, sim_shadow_write_lanes, ret_at)
                 : words_at(w, lanes, address, bytes, false, sim_shadow_read, sim_shadow_read_lanes, ret_at);
}

bool sim_shared_lanes_collective(sim_warp *w, uint32_t lanes, const uint64_t address[SIM_LANES], unsigned bytes,
                                 uint8_t *ret_at[SIM_LANES])
{
    return words_at(w, lanes, address, bytes, true, sim_shadow_read, sim_shadow_read_lanes, ret_at);
}

bool sim_shared_lanes_start(sim_warp *w, uint32_t lanes, const uint64_t address[SIM_LANES], unsigned bytes)
{
    uint8_t *at[SIM_LANES];
    return words_at(w, lanes, address, bytes, false, sim_shadow_start, sim_shadow_start_lanes, at);
}

static inline uint8_t *lane_at(sim_warp *w, int lane, uint64_t address, unsigned bytes, bool collective,
                               note note_access)
{
    sim_access access = access_of(w, lane, w->pc);
    access.collective = collective;
    if (!is_in_shared(w, lane, address, bytes) || !is_aligned(w, lane, address, bytes))
        return NULL;
    return shared_at(w, lane, address, bytes, &access, note_access);
}

uint8_t *sim_shared_read(sim_warp *w, int lane, uint64_t address, unsigned bytes)
{
    return lane_at(w, lane, address, bytes, false, sim_shadow_read);
}

uint8_t *sim_shared_read_collective(sim_warp *w, int lane, uint64_t address, unsigned bytes)
{
    return lane_at(w, lane, address, bytes, true, sim_shadow_read);
}

uint8_t *sim_shared_write(sim_warp *w, int lane, uint64_t address, unsigned bytes)
{
    return lane_at(w, lane, address, bytes, false, sim_shadow_write);
}

bool sim_shared_start(sim_warp *w, int lane, uint64_t address, unsigned bytes)
{
    return lane_at(w, lane, address, bytes, false, sim_shadow_start) != NULL;
}

void sim_shared_lanes_land(sim_warp *w, uint32_t lanes, const uint32_t address[SIM_LANES], unsigned bytes, int32_t op)
{
    sim_access access = access_of(w, 0, op);
    sim_lanes places = {.mask = lanes, .bytes = bytes};
    for (int l = 0; l < SIM_LANES; l++)
        places.at[l] = sim_lane(lanes, l) ? address[l] - SIM_SHARED_BASE : 0;
    sim_shadow_land_lanes(&w->block->shadow, &access, &places);
    w->block->shadow.touched[w->index] |= lanes;
}

/* ---- shared, through the asynchronous proxy ---- */

static const uint8_t *read_by(sim_warp *w, int lane, uint64_t address, unsigned bytes, sim_reader by)
{
    sim_access access = access_of(w, lane, w->pc);
    access.by = by;
    access.all_lanes = by != SIM_BY_STORES;
    if (!is_in_shared(w, lane, address, bytes) || !is_aligned(w, lane, address, COPIED_BYTES))
        return NULL;
    return shared_at(w, lane, address, bytes, &access, sim_shadow_read);
}

bool sim_shared_read_products(sim_warp *w, const sim_span *spans, unsigned count)
{
    const sim_word *allowed = NULL;
    sim_access access = access_of(w, 0, w->pc);
    access.by = SIM_BY_PRODUCTS;
    access.allowed = &allowed;
    access.all_lanes = true;
    for (const sim_span *span = spans; span < spans + count; span++)
        if (!is_in_shared(w, 0, span->address, span->bytes) || !is_aligned(w, 0, span->address, COPIED_BYTES) ||
            shared_at(w, 0, span->address, span->bytes, &access, sim_shadow_read) == NULL)
            return false;
    return true;
}

const uint8_t *sim_shared_read_stores(sim_warp *w, int lane, uint64_t address, unsigned bytes)
{
    return read_by(w, lane, address, bytes, SIM_BY_STORES);
}

const uint8_t *sim_shared_read_matrices(sim_warp *w, int lane, uint64_t address, unsigned bytes)
{
    return read_by(w, lane, address, bytes, SIM_BY_MATRICES);
}

static sim_access load_of(const sim_warp *w, int lane, int32_t op, unsigned mbarrier, uint32_t began)
{
    sim_access access = access_of(w, lane, op);
    access.loads = true;
    access.mbarrier = (uint16_t)mbarrier;
    access.began = began;
    return access;
}

uint8_t *sim_shared_load(sim_warp *w, int lane, uint64_t address, unsigned bytes, unsigned mbarrier, uint32_t began)
{
    sim_access access = load_of(w, lane, w->pc, mbarrier, began);
    sim_found found = {.has_free = false};
    access.found = &found;
    if (!is_in_shared(w, lane, address, bytes) || !is_aligned(w, lane, address, COPIED_BYTES))
        return NULL;
    return shared_at(w, lane, address, bytes, &access, sim_shadow_write);
}

uint8_t *sim_shared_land_at(sim_warp *w, int lane, uint32_t address, unsigned bytes, int32_t op, unsigned mbarrier,
                            uint32_t began)
{
    sim_access access = load_of(w, lane, op, mbarrier, began);
    access.copied = true;
    const uint32_t at = address - SIM_SHARED_BASE;
    sim_shadow_land(&w->block->shadow, &access, at, bytes);
    return w->block->shared + at;
}

/* ---- global ---- */

static const char *const verbs[] = {"reads", "writes", "adds to"}; /* by sim_way_of_access */

static void stop_race(sim_warp *w, int lane, uint64_t address, sim_way_of_access access, const sim_toucher *other)
{
    const unsigned *grid = w->block->launch->grid;
    sim_stop(w, lane, CUDA_ERROR_LAUNCH_FAILED,
             "race: it %s global memory at 0x%llx, which thread %u of block (%u, %u, %u) accessed, "
             "with no order between",
             verbs[access], (unsigned long long)address, other->thread, other->block % grid[0],
             other->block / grid[0] % grid[1], other->block / grid[0] / grid[1]);
}

/* Finds the allocation that a lane accesses. NULL: the launch is stopped. */
static sim_allocation *find_allocation(sim_warp *w, int lane, uint64_t address, unsigned bytes,
                                       sim_way_of_access access)
{
    sim_memory *memory = w->block->launch->memory;
    if (sim_lane(w->unawaited, lane)) {
        sim_stop(w, lane, CUDA_ERROR_LAUNCH_FAILED,
                 "early: it %s %u bytes of global memory before griddepcontrol.wait, and the "
                 "launch before may be at work",
                 verbs[access], bytes);
        return NULL;
    }
    sim_allocation *a = sim_memory_find(memory, address);
    if (a != NULL && sim_memory_holds(a, address, bytes))
        return a;
    char where[160];
    sim_memory_describe(memory, address, where, sizeof where);
    sim_stop(w, lane, CUDA_ERROR_ILLEGAL_ADDRESS,
             "illegal address: it %s %u bytes of global memory that are not allocated: %s", verbs[access], bytes,
             where);
    return NULL;
}

static sim_toucher toucher_of(const sim_warp *w, int lane)
{
    const sim_block *block = w->block;
    return (sim_toucher){block->launch->serial, block->index, sim_thread(w, lane), block->shadow.whole_barriers};
}

/* Limits: barriers of some warps do not order global memory here, because kernels do not use them for it. Accesses of
 * different threads to parts of one word are not distinguished. */
static bool is_noted(unsigned bytes, bool constant)
{
    return bytes >= 4 && !constant;
}

/* Finds the lane's bytes. The caller checks the alignment. */
static uint8_t *global_at(sim_warp *w, int lane, uint64_t address, unsigned bytes, sim_way_of_access access,
                          bool constant)
{
    sim_allocation *a = find_allocation(w, lane, address, bytes, access);
    if (a == NULL)
        return NULL;
    const size_t at = (size_t)(address - a->base);
    const sim_toucher who = toucher_of(w, lane);
    sim_toucher other;
    if (is_noted(bytes, constant) &&
        !sim_memory_note(w->block->launch->memory, a, at / 4, (at + bytes) / 4 - at / 4, access, &who, &other)) {
        stop_race(w, lane, address, access, &other);
        return NULL;
    }
    return a->data + at;
}

uint8_t *sim_global_at(sim_warp *w, int lane, uint64_t address, unsigned bytes, sim_way_of_access access, bool constant)
{
    uint8_t *at = global_at(w, lane, address, bytes, access, constant);
    return at != NULL && is_aligned(w, lane, address, bytes) ? at : NULL;
}

/* Returns the allocation that all lanes access at aligned addresses. NULL: there is none, or a lane must not access
 * it. */
static sim_allocation *common_allocation(const sim_warp *w, uint32_t lanes, const uint64_t address[SIM_LANES],
                                         unsigned bytes)
{
    const uint64_t some = address[sim_first_lane(lanes)];
    uint64_t least = some, most = some, bits = 0;
    for (int l = 0; l < SIM_LANES; l++) {
        const uint64_t at = some ^ ((address[l] ^ some) & taken_by(lanes, l));
        least = at < least ? at : least;
        most = at > most ? at : most;
        bits |= at;
    }
    sim_allocation *a = sim_memory_find(w->block->launch->memory, least);
    const bool ok = a != NULL && (bits & (bytes - 1)) == 0 && (w->unawaited & lanes) == 0 &&
                    sim_memory_holds(a, least, bytes) && sim_memory_holds(a, most, bytes);
    return ok ? a : NULL;
}

static bool each_global_at(sim_warp *w, uint32_t lanes, const uint64_t address[SIM_LANES], unsigned bytes,
                           sim_way_of_access access, bool constant, uint8_t *ret_at[SIM_LANES])
{
    for (uint32_t left = lanes; left != 0; left &= left - 1) {
        const int lane = sim_first_lane(left);
        ret_at[lane] = sim_global_at(w, lane, address[lane], bytes, access, constant);
        if (ret_at[lane] == NULL)
            return false;
    }
    return true;
}

bool sim_global_lanes(sim_warp *w, uint32_t lanes, const uint64_t address[SIM_LANES], unsigned bytes,
                      sim_way_of_access access, bool constant, uint8_t *ret_at[SIM_LANES])
{
    sim_allocation *a = common_allocation(w, lanes, address, bytes);
    if (a == NULL)
        return each_global_at(w, lanes, address, bytes, access, constant, ret_at);
    sim_toucher who = toucher_of(w, 0), other;
    const uint64_t base = a->base;
    uint8_t *data = a->data;
    size_t words[SIM_LANES];
    int lane;
    for (int l = 0; l < SIM_LANES; l++) {
        const size_t at = (size_t)(address[l] - base) & taken_by(lanes, l);
        words[l] = at / 4;
        ret_at[l] = data + at;
    }
    if (!is_noted(bytes, constant) ||
        sim_memory_note_lanes(w->block->launch->memory, a, lanes, words, bytes / 4, access, &who, &lane, &other))
        return true;
    stop_race(w, lane, address[lane], access, &other);
    return false;
}

uint8_t *sim_global_row(sim_warp *w, int lane, uint64_t address, unsigned bytes, sim_way_of_access access)
{
    return is_aligned(w, lane, address, 2) ? global_at(w, lane, address, bytes, access, false) : NULL;
}

ptx_space sim_resolve(uint64_t *address)
{
    static const struct {
        uint64_t base;
        ptx_space space;
    } windows[] = {{SIM_SHARED_WINDOW, PTX_SPACE_SHARED},
                   {SIM_LOCAL_WINDOW, PTX_SPACE_LOCAL},
                   {SIM_PARAM_WINDOW, PTX_SPACE_PARAM}};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        if (*address - windows[i].base < SIM_WINDOW_BYTES) {
            *address -= windows[i].base;
            return windows[i].space;
        }
    return PTX_SPACE_GLOBAL;
}
