/*
 * Counts with small sets: words per bank for a phase, sorted addresses for sectors. Lanes are usually sorted already,
 * so the insertion sort is one pass.
 */
#include "traffic.h"
#include <string.h>

enum { BANKS = 32, SECTOR_BYTES = 32 };

typedef struct phase {
    uint32_t words[BANKS][SIM_LANES];
    uint8_t used[BANKS];
    unsigned most;
} phase;

static void add_word(phase *p, uint32_t word)
{
    const uint32_t bank = word % BANKS;
    for (unsigned i = 0; i < p->used[bank]; i++)
        if (p->words[bank][i] == word)
            return;
    p->words[bank][p->used[bank]++] = word;
    if (p->used[bank] > p->most)
        p->most = p->used[bank];
}

/* Eight lanes of 16 bytes. Banks are treated in groups of four, because one access always uses a group. */
static unsigned wide_phase(uint32_t mask, const uint32_t *address)
{
    uint32_t chunks[8][8];
    unsigned used[8] = {0}, most = 0;
    for (int l = 0; l < 8; l++) {
        if (!sim_lane(mask, l))
            continue;
        const uint32_t chunk = address[l] / 16, group = chunk % 8;
        unsigned i = 0;
        while (i < used[group] && chunks[group][i] != chunk)
            i++;
        if (i == used[group])
            chunks[group][used[group]++] = chunk;
        most = used[group] > most ? used[group] : most;
    }
    return most;
}

static unsigned narrow_phase(uint32_t mask, const uint32_t *address, int lanes, unsigned bytes)
{
    phase p;
    p.most = 0;
    for (int b = 0; b < BANKS; b++)
        p.used[b] = 0;
    for (int l = 0; l < lanes; l++) {
        if (!sim_lane(mask, l))
            continue;
        add_word(&p, address[l] / 4);
        if (bytes == 8)
            add_word(&p, address[l] / 4 + 1);
    }
    return p.most;
}

void sim_count_shared(sim_count *count, uint32_t mask, const uint32_t address[SIM_LANES], unsigned bytes)
{
    const int lanes = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
    for (int first = 0; first < SIM_LANES; first += lanes) {
        const uint32_t part = mask >> first;
        const unsigned wavefronts =
            bytes == 16 ? wide_phase(part, address + first) : narrow_phase(part, address + first, lanes, bytes);
        count->wavefronts += wavefronts;
        count->wavefronts_ideal += wavefronts > 0;
    }
}

static int sorted_addresses(uint32_t mask, const uint64_t address[SIM_LANES], uint64_t sorted[SIM_LANES])
{
    int count = 0;
    for (int l = 0; l < SIM_LANES; l++) {
        if (!sim_lane(mask, l))
            continue;
        int at = count++;
        while (at > 0 && sorted[at - 1] > address[l]) {
            sorted[at] = sorted[at - 1];
            at--;
        }
        sorted[at] = address[l];
    }
    return count;
}

/* Do all lanes access bytes next to each other, in their order? */
static bool is_row(uint32_t mask, const uint64_t address[SIM_LANES], unsigned bytes)
{
    uint64_t differs = 0;
    for (int l = 0; l < SIM_LANES; l++)
        differs |= (address[l] - address[0]) ^ (uint64_t)bytes * (unsigned)l;
    return differs == 0 && mask == SIM_ALL_LANES;
}

/* Copies the addresses of all lanes. Returns false if some lanes do not execute the instruction, or if an address is
 * smaller than the one before. */
static bool take_ascending(uint32_t mask, const uint64_t address[SIM_LANES], uint64_t out[SIM_LANES])
{
    bool descends = false;
    for (int l = 1; l < SIM_LANES; l++)
        descends |= address[l] < address[l - 1];
    memcpy(out, address, SIM_LANES * sizeof *out);
    return mask == SIM_ALL_LANES && !descends;
}

void sim_count_global(sim_count *count, uint32_t mask, const uint64_t address[SIM_LANES], unsigned bytes)
{
    if (is_row(mask, address, bytes)) {
        const uint64_t all = (uint64_t)bytes * SIM_LANES;
        count->sectors += (address[0] + all - 1) / SECTOR_BYTES - address[0] / SECTOR_BYTES + 1;
        count->sectors_ideal += all / SECTOR_BYTES;
        return;
    }
    uint64_t sorted[SIM_LANES];
    int lanes = SIM_LANES;
    if (mask == 0)
        return;
    if (!take_ascending(mask, address, sorted))
        lanes = sorted_addresses(mask, address, sorted);
    uint64_t sectors = (sorted[0] + bytes - 1) / SECTOR_BYTES - sorted[0] / SECTOR_BYTES + 1, different = bytes;
    for (int i = 1; i < lanes; i++) {
        const uint64_t end = sorted[i] + bytes, last_end = sorted[i - 1] + bytes;
        const uint64_t first = sorted[i] / SECTOR_BYTES, next = (last_end - 1) / SECTOR_BYTES + 1;
        sectors += (end - 1) / SECTOR_BYTES + 1 - (first > next ? first : next);
        different += end - (sorted[i] > last_end ? sorted[i] : last_end);
    }
    count->sectors += sectors;
    count->sectors_ideal += (different + SECTOR_BYTES - 1) / SECTOR_BYTES;
}
