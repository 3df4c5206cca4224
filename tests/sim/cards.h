/*
 * The cards that the device simulates, as their drivers describe them, and their rates for the modelled time.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct sim_card {
    const char *key, *name;
    int sm, sm_count;
    int smem_block_bytes, smem_sm_bytes; /* opt-in limit of a block; of an SM */
    int smem_reserved_bytes;             /* per resident block */
    int warps, blocks;                   /* resident per SM */
    int clock_khz, memory_clock_khz, bus_bits;
    int64_t l2_bytes, memory_bytes;
    /* per SM and clock */
    int tensor_flop, tensor_k8_flop, smem_rate_bytes, fp32, special;
    int fp16_sums; /* how many times as fast products with fp16 sums are */
} sim_card;

/* Returns the card of a key ("rtx3060") of this length, or NULL. */
const sim_card *sim_card_find(const char *key, size_t length);

/* Returns "t4, rtx2060, ...", for messages. */
const char *sim_card_keys(void);

/* Returns how many blocks of a kernel an SM can hold at once. */
int sim_card_resident(const sim_card *card, int threads, int registers, size_t smem_bytes);
