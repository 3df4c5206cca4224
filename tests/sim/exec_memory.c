/*
 * ld and st in all spaces. Each lane's access is checked and executed separately. The traffic is counted per warp.
 * Loads read all lanes before they write a register, because the address may be in that register.
 *
 * info: bytes of an element, number of elements, sign extension, the space, and if the registers are wider (64 bits)
 * than the elements.
 */
#include <string.h>
#include "access.h"
#include "lanes.h"
#include "traffic.h"

#define INFO(bytes, count, is_signed, space) ((bytes) | (count) << 4 | (is_signed) << 7 | (int)(space) << 8)
enum { WORD = 4 };

#define WIDE (1 << 12)

typedef struct form {
    unsigned bytes, count, total;
    bool is_signed, wide; /* wide: 64-bit registers */
    ptx_space space;
} form;

static form form_of(const sim_op *op)
{
    form f = {.bytes = op->info & 15,
              .count = op->info >> 4 & 7,
              .is_signed = op->info >> 7 & 1,
              .wide = (op->info & WIDE) != 0 || (op->info & 15) == 8,
              .space = (ptx_space)(op->info >> 8 & 15)};
    f.total = f.bytes * f.count;
    return f;
}

/* Where each lane's bytes are. Successive words of a lane lie word_step bytes apart. */
typedef struct places {
    uint8_t *at[SIM_LANES]; /* valid for lanes that do not execute the instruction, too */
    size_t word_step;
    bool row; /* the words of all lanes are neighbours, in their order */
} places;

static bool are_equal(const uint64_t address[SIM_LANES])
{
    uint64_t differs = 0;
    LANES(l)
    differs |= address[l] ^ address[0];
    return differs == 0;
}

/* ---- parameters and local memory ---- */

/* They are private, so only limits and alignment are checked. Stops the launch if a lane violates them. */
static bool check_private(sim_warp *w, bool param, const uint64_t address[SIM_LANES], unsigned bytes)
{
    const sim_program *p = w->block->program;
    const size_t size = param ? p->function->param_bytes : p->local_bytes;
    for (uint32_t left = w->mask; left != 0; left &= left - 1) {
        const int l = sim_first_lane(left);
        if (address[l] > size || bytes > size - address[l])
            sim_stop(w, l, CUDA_ERROR_ILLEGAL_ADDRESS, "outside of %s: %u bytes at %lld of %zu",
                     param ? "the parameters" : "local memory", bytes, (long long)address[l], size);
        else if (address[l] % bytes != 0)
            sim_stop(w, l, CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address: %u bytes at %lld", bytes,
                     (long long)address[l]);
        else
            continue;
        return false;
    }
    return true;
}

/* Stores each executing lane's address as an offset, 0 for other lanes. Returns false if check_private may stop. */
static bool take_offsets(const sim_warp *w, const uint64_t address[SIM_LANES], unsigned bytes, size_t size,
                         uint32_t offset[SIM_LANES])
{
    uint64_t bits = 0;
    uint32_t most = 0;
    LANES(l)
    {
        const uint64_t at = address[l] & (0 - (uint64_t)(w->mask >> l & 1)); /* so written, it is vectorised */
        offset[l] = (uint32_t)at;
        bits |= at;
        most = offset[l] > most ? offset[l] : most;
    }
    return bits >> 32 == 0 && (bits & (bytes - 1)) == 0 && (uint64_t)most + bytes <= size;
}

static bool find_parameters(sim_warp *w, const uint64_t address[SIM_LANES], unsigned bytes, places *ret_places)
{
    uint8_t *base = (uint8_t *)(uintptr_t)w->block->launch->params;
    uint32_t offset[SIM_LANES];
    if (!take_offsets(w, address, bytes, w->block->program->function->param_bytes, offset) &&
        !check_private(w, true, address, bytes))
        return false;
    LANES(l)
    ret_places->at[l] = base + offset[l];
    ret_places->row = false;
    return true;
}

/* Lanes usually access the same place in their local memories, such as an element of an array in registers on a real
 * device. Equal words of a warp's local memories are neighbours: [warp][word][lane]. */
static bool find_local(sim_warp *w, const uint64_t address[SIM_LANES], unsigned bytes, places *ret_places)
{
    const size_t size = w->block->program->local_bytes;
    uint8_t *base = w->block->local + (size_t)w->index * SIM_LANES * size;
    uint32_t offset[SIM_LANES];
    ret_places->word_step = WORD * SIM_LANES;
    ret_places->row = are_equal(address) && address[0] < size && bytes <= size - address[0] && address[0] % bytes == 0;
    if (ret_places->row) {
        base += address[0] / WORD * WORD * SIM_LANES + address[0] % WORD;
        LANES(l)
        ret_places->at[l] = base + WORD * l;
        return true;
    }
    if (!take_offsets(w, address, bytes, size, offset) && !check_private(w, false, address, bytes))
        return false;
    LANES(l)
    ret_places->at[l] = base + (size_t)(offset[l] / WORD * WORD) * SIM_LANES + offset[l] % WORD + WORD * l;
    return true;
}

/* ---- all spaces ---- */

/* Gives lanes that do not execute the instruction the first lane's place. So loops over lanes need no mask, and sim_put
 * drops what such lanes load. */
static void complete(const sim_warp *w, places *where)
{
    uint8_t *first = where->at[sim_first_lane(w->mask)];
    for (uint32_t left = ~w->mask; left != 0; left &= left - 1)
        where->at[sim_first_lane(left)] = first;
    uintptr_t differs = 0;
    LANES(l)
    differs |= ((uintptr_t)where->at[l] - (uintptr_t)where->at[0]) ^ (uintptr_t)(WORD * l);
    where->row = differs == 0;
}

/* Finds the bytes of each executing lane. false: the launch is stopped. */
static bool find_lanes(sim_warp *w, ptx_space space, const uint64_t address[SIM_LANES], unsigned bytes, bool write,
                       places *ret_places)
{
    bool ok = false;
    ret_places->word_step = WORD;
    if (space == PTX_SPACE_LOCAL)
        return find_local(w, address, bytes, ret_places);
    if (space == PTX_SPACE_PARAM)
        return find_parameters(w, address, bytes, ret_places);
    if (space == PTX_SPACE_SHARED)
        ok = sim_shared_lanes(w, w->mask, address, bytes, write, ret_places->at);
    else
        ok = sim_global_lanes(w, w->mask, address, bytes, write ? SIM_WRITE : SIM_READ, space == PTX_SPACE_CONST,
                              ret_places->at);
    if (ok)
        complete(w, ret_places);
    return ok;
}

/* ---- traffic ---- */

/* Counts the lanes' traffic. The space is that of the first lane. */
static void count_traffic(sim_warp *w, ptx_space space, const uint64_t address[SIM_LANES], unsigned bytes)
{
    uint64_t first = address[sim_first_lane(w->mask)];
    uint32_t narrow[SIM_LANES];
    const uint64_t before = first;
    if (space == PTX_SPACE_GENERIC)
        space = sim_resolve(&first);
    if (space == PTX_SPACE_GLOBAL)
        sim_count_global(sim_counter(w), w->mask, address, bytes);
    if (space != PTX_SPACE_SHARED)
        return;
    LANES(l)
    narrow[l] = (uint32_t)(address[l] - (before - first));
    sim_count_shared(sim_counter(w), w->mask, narrow, bytes);
}

/* ---- moving the elements ---- */

void sim_spoil(uint8_t *at, unsigned bytes)
{
    for (unsigned i = 1; i < bytes; i += 2)
        at[i] ^= 0x20; /* flips an exponent bit of fp16, bf16 and fp32 */
}

/* Returns where byte `at` of a lane's access is, relative to its first. */
static size_t skip_to(const places *where, unsigned at)
{
    return at / WORD * where->word_step + at % WORD;
}

/* Host and device are both little-endian. A conversion from a signed type extends the sign. */
#define GATHER(type, register_type)                                                                                    \
    LANES(l)                                                                                                           \
    {                                                                                                                  \
        type value;                                                                                                    \
        memcpy(&value, where->at[l] + skip, sizeof value);                                                             \
        out[l] = (register_type)value;                                                                                 \
    }

static void gather(const places *where, size_t skip, const form *f, uint32_t out[SIM_LANES])
{
    if (f->bytes == 4 && where->row)
        memcpy(out, where->at[0] + skip, WORD * SIM_LANES);
    else if (f->bytes == 4)
        GATHER(uint32_t, uint32_t)
    else if (f->bytes == 2 && f->is_signed)
        GATHER(int16_t, uint32_t)
    else if (f->bytes == 2)
        GATHER(uint16_t, uint32_t)
    else if (f->is_signed)
        GATHER(int8_t, uint32_t)
    else
        GATHER(uint8_t, uint32_t)
}

static void gather_wide(const places *where, size_t skip, const form *f, uint64_t out[SIM_LANES])
{
    if (f->bytes == 8 && where->word_step == WORD)
        GATHER(uint64_t, uint64_t)
    else if (f->bytes == 4 && f->is_signed)
        GATHER(int32_t, uint64_t)
    else if (f->bytes >= 4)
        GATHER(uint32_t, uint64_t)
    else if (f->bytes == 2 && f->is_signed)
        GATHER(int16_t, uint64_t)
    else if (f->bytes == 2)
        GATHER(uint16_t, uint64_t)
    else if (f->is_signed)
        GATHER(int8_t, uint64_t)
    else
        GATHER(uint8_t, uint64_t)
}

/* Adds the upper words of elements of 8 bytes whose words are apart. */
static void gather_upper(const places *where, size_t skip, uint64_t out[SIM_LANES])
{
    LANES(l)
    {
        uint32_t upper;
        memcpy(&upper, where->at[l] + skip, sizeof upper);
        out[l] |= (uint64_t)upper << 32;
    }
}

static void load_from(const sim_op *op, sim_warp *w, const form *f, ptx_space space, const uint64_t address[SIM_LANES])
{
    places where;
    if (!find_lanes(w, space, address, f->total, false, &where))
        return;
    for (unsigned i = 0; i < f->count; i++) {
        const size_t skip = skip_to(&where, i * f->bytes);
        uint32_t narrow[SIM_LANES];
        uint64_t wide[SIM_LANES];
        if (!f->wide) {
            gather(&where, skip, f, narrow);
            sim_put(w, op->dst[i], narrow);
            continue;
        }
        gather_wide(&where, skip, f, wide);
        if (f->bytes == 8 && where.word_step != WORD)
            gather_upper(&where, skip + where.word_step, wide);
        sim_put_64(w, op->dst[i], wide);
    }
}

/* Writes `bytes` of each executing lane's register. step: bytes from lane to lane in the register. */
#define SCATTER(bytes)                                                                                                 \
    for (uint32_t left = w->mask; left != 0; left &= left - 1) {                                                       \
        const int l = sim_first_lane(left);                                                                            \
        memcpy(where->at[l] + skip, source + step * l, bytes);                                                         \
    }

static void scatter(const sim_warp *w, const char *source, int step, unsigned bytes, const places *where, size_t skip)
{
    if (bytes == 4)
        SCATTER(4)
    else if (bytes == 8)
        SCATTER(8)
    else if (bytes == 2)
        SCATTER(2)
    else
        SCATTER(1)
}

static void store_to(const sim_op *op, sim_warp *w, const form *f, ptx_space space, const uint64_t address[SIM_LANES])
{
    places where;
    if (!find_lanes(w, space, address, f->total, true, &where))
        return;
    const int step = f->wide ? 8 : 4;
    const bool row = f->bytes == 4 && !f->wide && w->mask == SIM_ALL_LANES && where.row;
    const bool apart = f->bytes == 8 && where.word_step != WORD;
    for (unsigned i = 0; i < f->count; i++) {
        const char *source = (const void *)sim_source(w, op->src[1 + i]);
        const size_t skip = skip_to(&where, i * f->bytes);
        if (row)
            memcpy(where.at[0] + skip, source, WORD * SIM_LANES);
        else
            scatter(w, source, step, apart ? WORD : f->bytes, &where, skip);
        if (apart)
            scatter(w, source + WORD, step, WORD, &where, skip + where.word_step);
    }
    if (w->block->launch->spoil && f->space == PTX_SPACE_GLOBAL)
        for (uint32_t left = w->mask; left != 0; left &= left - 1)
            sim_spoil(where.at[sim_first_lane(left)], f->total);
}

typedef void (*mover)(const sim_op *op, sim_warp *w, const form *f, ptx_space space, const uint64_t address[SIM_LANES]);

/* Moves what lies at generic addresses, by groups of lanes whose addresses are in the same space. */
static void move_generic(const sim_op *op, sim_warp *w, const form *f, uint64_t address[SIM_LANES], mover move)
{
    const uint32_t all = w->mask;
    ptx_space spaces[SIM_LANES];
    LANES(l)
    spaces[l] = sim_resolve(&address[l]);
    for (uint32_t left = all; left != 0 && w->state == SIM_RUNS; left &= ~w->mask) {
        const ptx_space space = spaces[sim_first_lane(left)];
        uint32_t group = 0;
        LANES(l)
        group |= (uint32_t)(spaces[l] == space) << l;
        w->mask = group & all;
        move(op, w, f, space, address);
    }
    w->mask = all;
}

/* Reads the address that all lanes have, also those that do not execute the instruction. Returns false if there is no
 * such address. */
static bool take_common(const sim_op *op, const sim_warp *w, uint64_t *ret_address)
{
    const int32_t base = op->src[0];
    const uint64_t offset = (uint64_t)op->offset[0];
    if (base == SIM_NONE) {
        *ret_address = offset;
        return true;
    }
    if (op->address_64[0]) {
        const uint64_t *wide = sim_source_64(w, base);
        *ret_address = offset + wide[0];
        return are_equal(wide);
    }
    const uint32_t *narrow = sim_source(w, base);
    uint32_t differs = 0;
    LANES(l)
    differs |= narrow[l] ^ narrow[0];
    *ret_address = (uint32_t)(offset + narrow[0]);
    return differs == 0;
}

/* Returns the host's address of what all lanes access at an address, in local memory: of lane 0's word. NULL: in other
 * spaces, or if it is outside or misaligned. */
static uint8_t *find_common(const sim_warp *w, ptx_space space, uint64_t address, unsigned bytes)
{
    const sim_program *p = w->block->program;
    const bool local = space == PTX_SPACE_LOCAL;
    const size_t size = local ? p->local_bytes : space == PTX_SPACE_PARAM ? p->function->param_bytes : 0;
    if (address >= size || bytes > size - address || address % bytes != 0)
        return NULL;
    return local ? w->block->local + (size_t)w->index * SIM_LANES * size + address * SIM_LANES
                 : (uint8_t *)(uintptr_t)w->block->launch->params + address;
}

/* Loads words of parameters and local memory, if all lanes have the same address. Returns false if it did nothing. */
static bool load_common(const sim_op *op, sim_warp *w, const form *f)
{
    ptx_space space = f->space;
    uint64_t address;
    if (f->bytes < WORD || (f->bytes == WORD) == f->wide || !take_common(op, w, &address))
        return false;
    if (space == PTX_SPACE_GENERIC)
        space = sim_resolve(&address);
    const uint8_t *at = find_common(w, space, address, f->total);
    if (at == NULL || (space == PTX_SPACE_LOCAL && f->wide))
        return false;
    for (unsigned i = 0; i < f->count; i++, at += f->bytes * (space == PTX_SPACE_LOCAL ? SIM_LANES : 1)) {
        const uint32_t *word = (const void *)at;
        if (space == PTX_SPACE_LOCAL)
            SIM_SET(w, op->dst[i], uint32_t, word[l]);
        else if (f->wide)
            SIM_SET(w, op->dst[i], uint64_t, (uint64_t)word[1] << 32 | word[0]);
        else
            SIM_SET(w, op->dst[i], uint32_t, word[0]);
    }
    return true;
}

/* The same for stores to local memory by the whole warp. */
static bool store_common(const sim_op *op, const sim_warp *w, const form *f)
{
    ptx_space space = f->space;
    uint64_t address;
    if (f->bytes != WORD || f->wide || w->mask != SIM_ALL_LANES || !take_common(op, w, &address))
        return false;
    if (space == PTX_SPACE_GENERIC)
        space = sim_resolve(&address);
    uint8_t *at = space == PTX_SPACE_LOCAL ? find_common(w, space, address, f->total) : NULL;
    for (unsigned i = 0; at != NULL && i < f->count; i++)
        memcpy(at + (size_t)i * WORD * SIM_LANES, sim_source(w, op->src[1 + i]), WORD * SIM_LANES);
    return at != NULL;
}

static inline void move_lanes(const sim_op *op, sim_warp *w, const form *given, mover move)
{
    const form f = *given;
    uint64_t address[SIM_LANES];
    sim_addresses(w, op, 0, 0, address);
    count_traffic(w, f.space, address, f.total);
    if (f.space != PTX_SPACE_GENERIC) {
        move(op, w, &f, f.space, address);
    } else if (are_equal(address)) {
        const ptx_space space = sim_resolve(&address[0]);
        for (int l = 1; l < SIM_LANES; l++)
            address[l] = address[0];
        move(op, w, &f, space, address);
    } else {
        move_generic(op, w, &f, address, move);
    }
}

static void load(const sim_op *op, sim_warp *w)
{
    const form f = form_of(op);
    if (!load_common(op, w, &f))
        move_lanes(op, w, &f, load_from);
}

static void store(const sim_op *op, sim_warp *w)
{
    const form f = form_of(op);
    if (!store_common(op, w, &f))
        move_lanes(op, w, &f, store_to);
}

/* ---- rows ---- */

#define LOAD(text, kind, space, type, bytes, is_signed, r)                                                             \
    {"ld." text type, r " a", load, kind, INFO(bytes, 1, is_signed, space)},                                           \
    {                                                                                                                  \
        "ld." text "v2." type, "2" r " a", load, kind, INFO(bytes, 2, is_signed, space)                                \
    }
#define LOAD_4(text, kind, space, type, bytes, is_signed, r)                                                           \
    LOAD(text, kind, space, type, bytes, is_signed, r),                                                                \
    {                                                                                                                  \
        "ld." text "v4." type, "4" r " a", load, kind, INFO(bytes, 4, is_signed, space)                                \
    }
/* One element in a register of 64 bits. */
#define LOAD_WIDE(text, kind, space, type, bytes, is_signed)                                                           \
    {                                                                                                                  \
        "ld." text type, "d a", load, kind, INFO(bytes, 1, is_signed, space) | WIDE                                    \
    }
#define LOADS(text, kind, space)                                                                                       \
    LOAD_WIDE(text, kind, space, "u8", 1, 0), LOAD_WIDE(text, kind, space, "s8", 1, 1),                                \
        LOAD_WIDE(text, kind, space, "u16", 2, 0), LOAD_WIDE(text, kind, space, "s16", 2, 1),                          \
        LOAD_WIDE(text, kind, space, "u32", 4, 0), LOAD_WIDE(text, kind, space, "s32", 4, 1),                          \
        LOAD_4(text, kind, space, "b8", 1, 0, "r"), LOAD_4(text, kind, space, "u8", 1, 0, "r"),                        \
        LOAD_4(text, kind, space, "s8", 1, 1, "r"), LOAD_4(text, kind, space, "b16", 2, 0, "r"),                       \
        LOAD_4(text, kind, space, "u16", 2, 0, "r"), LOAD_4(text, kind, space, "s16", 2, 1, "r"),                      \
        LOAD_4(text, kind, space, "b32", 4, 0, "r"), LOAD_4(text, kind, space, "u32", 4, 0, "r"),                      \
        LOAD_4(text, kind, space, "s32", 4, 0, "r"), LOAD_4(text, kind, space, "f32", 4, 0, "r"),                      \
        LOAD(text, kind, space, "b64", 8, 0, "d"), LOAD(text, kind, space, "u64", 8, 0, "d"),                          \
        LOAD(text, kind, space, "s64", 8, 0, "d")

#define STORE(text, kind, space, type, bytes, s)                                                                       \
    {"st." text type, "a " s, store, kind, INFO(bytes, 1, 0, space)},                                                  \
    {                                                                                                                  \
        "st." text "v2." type, "a 2" s, store, kind, INFO(bytes, 2, 0, space)                                          \
    }
#define STORE_4(text, kind, space, type, bytes, s)                                                                     \
    STORE(text, kind, space, type, bytes, s),                                                                          \
    {                                                                                                                  \
        "st." text "v4." type, "a 4" s, store, kind, INFO(bytes, 4, 0, space)                                          \
    }
#define STORES(text, kind, space)                                                                                      \
    {"st." text "u32", "a S", store, kind, INFO(4, 1, 0, space) | WIDE},                                               \
        {"st." text "b32", "a S", store, kind, INFO(4, 1, 0, space) | WIDE}, STORE_4(text, kind, space, "b8", 1, "s"), \
        STORE_4(text, kind, space, "u8", 1, "s"), STORE_4(text, kind, space, "b16", 2, "s"),                           \
        STORE_4(text, kind, space, "u16", 2, "s"), STORE_4(text, kind, space, "b32", 4, "s"),                          \
        STORE_4(text, kind, space, "u32", 4, "s"), STORE_4(text, kind, space, "f32", 4, "s"),                          \
        STORE(text, kind, space, "b64", 8, "S"), STORE(text, kind, space, "u64", 8, "S")

static const sim_row rows[] = {
    LOADS("param.", SIM_KIND_PARAM, PTX_SPACE_PARAM),
    LOADS("const.", SIM_KIND_PARAM, PTX_SPACE_CONST),
    LOADS("shared.", SIM_KIND_SHARED, PTX_SPACE_SHARED),
    LOADS("volatile.shared.", SIM_KIND_SHARED, PTX_SPACE_SHARED),
    LOADS("global.", SIM_KIND_GLOBAL, PTX_SPACE_GLOBAL),
    LOADS("global.cg.", SIM_KIND_GLOBAL, PTX_SPACE_GLOBAL),
    LOADS("global.nc.", SIM_KIND_GLOBAL, PTX_SPACE_GLOBAL),
    LOADS("volatile.global.", SIM_KIND_GLOBAL, PTX_SPACE_GLOBAL),
    LOADS("local.", SIM_KIND_GLOBAL, PTX_SPACE_LOCAL),
    LOADS("", SIM_KIND_GLOBAL, PTX_SPACE_GENERIC),
    STORES("shared.", SIM_KIND_SHARED, PTX_SPACE_SHARED),
    STORES("volatile.shared.", SIM_KIND_SHARED, PTX_SPACE_SHARED),
    STORES("global.", SIM_KIND_GLOBAL, PTX_SPACE_GLOBAL),
    STORES("volatile.global.", SIM_KIND_GLOBAL, PTX_SPACE_GLOBAL),
    STORES("local.", SIM_KIND_GLOBAL, PTX_SPACE_LOCAL),
    STORES("", SIM_KIND_GLOBAL, PTX_SPACE_GENERIC),
};

const sim_rows sim_rows_memory = {rows, sizeof rows / sizeof *rows};
