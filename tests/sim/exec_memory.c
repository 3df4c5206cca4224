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
#define WIDE                                 (1 << 12)

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

/* Parameters and local memory are private, so only limits and alignment are checked. */
static uint8_t *private_at(sim_warp *w, int lane, ptx_space space, uint64_t address, unsigned bytes)
{
    const sim_program *p = w->block->program;
    const bool param = space == PTX_SPACE_PARAM;
    const size_t size = param ? p->function->param_bytes : p->local_bytes;
    if (address > size || bytes > size - address) {
        sim_stop(w, lane, CUDA_ERROR_ILLEGAL_ADDRESS, "outside of %s: %u bytes at %lld of %zu",
                 param ? "the parameters" : "local memory", bytes, (long long)address, size);
        return NULL;
    }
    if (address % bytes != 0) {
        sim_stop(w, lane, CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address: %u bytes at %lld", bytes,
                 (long long)address);
        return NULL;
    }
    return param ? (uint8_t *)(uintptr_t)w->block->launch->params + address
                 : w->block->local + sim_thread(w, lane) * p->local_bytes + address;
}

static uint8_t *memory_at(sim_warp *w, int lane, ptx_space space, uint64_t address, unsigned bytes, bool write)
{
    if (space == PTX_SPACE_GENERIC)
        space = sim_resolve(&address);
    switch (space) {
    case PTX_SPACE_SHARED:
        return write ? sim_shared_write(w, lane, address, bytes) : sim_shared_read(w, lane, address, bytes);
    case PTX_SPACE_GLOBAL:
        return sim_global_at(w, lane, address, bytes, write ? SIM_WRITE : SIM_READ, false);
    case PTX_SPACE_CONST:
        return sim_global_at(w, lane, address, bytes, SIM_READ, true);
    default:
        return private_at(w, lane, space, address, bytes);
    }
}

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

static uint64_t element(const uint8_t *at, const form *f)
{
    uint64_t value = 0;
    sim_copy_bytes(&value, at, f->bytes); /* host and device are both little-endian */
    if (f->is_signed && f->bytes < 8 && value >> (8 * f->bytes - 1))
        value |= ~(uint64_t)0 << 8 * f->bytes;
    return value;
}

/* Finds the bytes of each executing lane. false: the launch is stopped. */
static bool find_lanes(sim_warp *w, const form *f, const uint64_t address[SIM_LANES], bool write,
                       uint8_t *at[SIM_LANES])
{
    switch (f->space) {
    case PTX_SPACE_SHARED:
        return sim_shared_lanes(w, w->mask, address, f->total, write, at);
    case PTX_SPACE_GLOBAL:
        return sim_global_lanes(w, w->mask, address, f->total, write ? SIM_WRITE : SIM_READ, false, at);
    default:
        for (uint32_t left = w->mask; left != 0; left &= left - 1) {
            const int l = sim_first_lane(left);
            at[l] = memory_at(w, l, f->space, address[l], f->total, write);
            if (at[l] == NULL)
                return false;
        }
        return true;
    }
}

static void load(const sim_op *op, sim_warp *w)
{
    const form f = form_of(op);
    uint64_t address[SIM_LANES], wide[SIM_LANES] = {0};
    uint32_t narrow[SIM_LANES] = {0};
    uint8_t *at[SIM_LANES];
    sim_addresses(w, op, 0, 0, address);
    count_traffic(w, f.space, address, f.total);
    if (!find_lanes(w, &f, address, false, at))
        return;
    for (unsigned i = 0; i < f.count; i++) {
        for (uint32_t left = w->mask; left != 0; left &= left - 1) {
            const int l = sim_first_lane(left);
            if (f.wide)
                wide[l] = element(at[l] + i * f.bytes, &f);
            else if (f.bytes == 4)
                memcpy(&narrow[l], at[l] + i * f.bytes, 4);
            else
                narrow[l] = (uint32_t)element(at[l] + i * f.bytes, &f);
        }
        if (f.wide)
            sim_put_64(w, op->dst[i], wide);
        else
            sim_put(w, op->dst[i], narrow);
    }
}

void sim_spoil(uint8_t *at, unsigned bytes)
{
    for (unsigned i = 1; i < bytes; i += 2)
        at[i] ^= 0x20; /* flips an exponent bit of fp16, bf16 and fp32 */
}

static void store(const sim_op *op, sim_warp *w)
{
    const form f = form_of(op);
    uint64_t address[SIM_LANES];
    uint8_t *at[SIM_LANES];
    sim_addresses(w, op, 0, 0, address);
    count_traffic(w, f.space, address, f.total);
    if (!find_lanes(w, &f, address, true, at))
        return;
    for (unsigned i = 0; i < f.count; i++) {
        const char *source = (const void *)sim_source(w, op->src[1 + i]);
        for (uint32_t left = w->mask; left != 0; left &= left - 1) {
            const int l = sim_first_lane(left);
            sim_copy_bytes(at[l] + i * f.bytes, source + (f.wide ? 8 : 4) * l, f.bytes);
        }
    }
    if (w->block->launch->spoil && f.space == PTX_SPACE_GLOBAL)
        for (uint32_t left = w->mask; left != 0; left &= left - 1)
            sim_spoil(at[sim_first_lane(left)], f.total);
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
