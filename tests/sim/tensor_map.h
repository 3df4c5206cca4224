/*
 * Tensor maps: the contents that cuTensorMapEncodeTiled puts into the opaque 128 bytes, and how copies in kernels read
 * them. Only maps of rows, without interleave, with adjacent elements in each dimension.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { SIM_MAP_RANK = 5, SIM_MAP_BYTES = 128, SIM_MAP_ALIGN = 64 };

typedef struct sim_tensor_map {
    uint64_t mark; /* shows that it is a map */
    uint64_t address;
    uint64_t strides[SIM_MAP_RANK - 1]; /* bytes; of dimensions 1 and up */
    uint32_t last[SIM_MAP_RANK];        /* largest index of each dimension */
    uint16_t box[SIM_MAP_RANK];
    uint8_t rank, elem_bytes;
    uint8_t swizzled; /* mask of the three bits above the chunk's bits that are XORed into them: 0, 1, 3 or 7 */
} sim_tensor_map;

/* Returns false if these bytes are no tensor map. */
bool sim_tensor_map_read(const uint8_t bytes[SIM_MAP_BYTES], sim_tensor_map *ret_map);
