/*
 * Sources: CUDA programming guide (limits by compute capability), NVIDIA's white papers and data
 * sheets (SM counts, clocks, memory), gen/core/arch.lua (rates; GeForce cards sum fp16 products in fp32
 * at half the rate of fp16).
 */
#include "cards.h"
#include <string.h>

enum { REGISTERS_SM = 65536, REGISTER_GRAIN = 256, LANES = 32 };

#define MIB(n) ((int64_t)(n) << 20)

static const sim_card cards[] = {
    {"t4",    "Tesla T4", 75,     40,         65536, 65536, 0,  32, 16, 1590000,
     5001000, 256,        MIB(4), MIB(15109), 1024,  1024,  64, 64, 16, 1},
    {"rtx2060", "NVIDIA GeForce RTX 2060",
     75,        30,
     65536,     65536,
     0,         32,
     16,        1680000,
     7001000,   192,
     MIB(3),    MIB(5926),
     512,       512,
     64,        64,
     16,        2},
    {"a100",  "NVIDIA A100-SXM4-80GB",
     80,      108,
     166912,  167936,
     1024,    64,
     32,      1410000,
     1593000, 5120,
     MIB(40), MIB(81153),
     2048,    1475,
     128,     64,
     16,      1},
    {"rtx3060", "NVIDIA GeForce RTX 3060",
     86,        28,
     101376,    102400,
     1024,      48,
     16,        1777000,
     7501000,   192,
     2359296,   MIB(12045),
     512,       368,
     128,       128,
     16,        2},
    {"orin",  "Orin", 87,     16,         166912, 167936, 1024, 48,  16, 1300000,
     3200000, 256,    MIB(4), MIB(30592), 2048,   1475,   128,  128, 16, 1},
    {"l4",    "NVIDIA L4", 89,      58,         101376, 102400, 1024, 48,  24, 2040000,
     6251000, 192,         MIB(48), MIB(22563), 1024,   737,    128,  128, 16, 1},
    {"rtx4070", "NVIDIA GeForce RTX 4070",
     89,        46,
     101376,    102400,
     1024,      48,
     24,        2475000,
     10501000,  192,
     MIB(36),   MIB(11987),
     512,       368,
     128,       128,
     16,        2},
    {"rtx4090", "NVIDIA GeForce RTX 4090",
     89,        128,
     101376,    102400,
     1024,      48,
     24,        2520000,
     10501000,  384,
     MIB(72),   MIB(24080),
     512,       368,
     128,       128,
     16,        2},
    {"l20",   "NVIDIA L20", 89,      92,         101376, 102400, 1024, 48,  24, 2520000,
     9001000, 384,          MIB(96), MIB(45589), 1024,   737,    128,  128, 16, 1},
    {"h200",  "NVIDIA H200", 90,      132,         232448, 233472, 1024, 64,  32, 1980000,
     3201000, 6144,          MIB(60), MIB(143771), 2414,   1741,   128,  128, 16, 1},
};

const sim_card *sim_card_find(const char *key, size_t length)
{
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++)
        if (strlen(cards[i].key) == length && memcmp(cards[i].key, key, length) == 0)
            return &cards[i];
    return NULL;
}

const char *sim_card_keys(void)
{
    return "t4, rtx2060, a100, rtx3060, orin, l4, rtx4070, rtx4090, l20, h200";
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

int sim_card_resident(const sim_card *card, int threads, int registers, size_t smem_bytes)
{
    const int warps = (threads + LANES - 1) / LANES;
    const int warp_registers = (registers * LANES + REGISTER_GRAIN - 1) / REGISTER_GRAIN * REGISTER_GRAIN;
    const size_t grain = card->sm == 75 ? 256 : 128;
    const size_t smem = (smem_bytes + (size_t)card->smem_reserved_bytes + grain - 1) / grain * grain;
    int blocks = smaller(card->blocks, card->warps / warps);
    /* Each scheduler, a quarter of the SM, has its own registers. */
    blocks = smaller(blocks, REGISTERS_SM / 4 / warp_registers * 4 / warps);
    if (smem > 0)
        blocks = smaller(blocks, (int)((size_t)card->smem_sm_bytes / smem));
    return blocks;
}
