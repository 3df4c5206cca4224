/*
 * Tensor maps: what cuTensorMapEncodeTiled puts into the opaque 128 bytes, and how kernels' copies read
 * it. Maps of rows without interleave, with elements that lie side by side in each dimension.
 */
#ifndef SIM_TENSOR_MAP_H
#define SIM_TENSOR_MAP_H

#include <stdbool.h>
#include <stdint.h>

enum { SIM_MAP_RANK = 5, SIM_MAP_BYTES = 128, SIM_MAP_ALIGN = 64 };

typedef struct sim_tensor_map {
    uint64_t mark; /* that it is one */
    uint64_t address;
    uint64_t strides[SIM_MAP_RANK - 1]; /* bytes; of dimensions 1 ... */
    uint32_t last[SIM_MAP_RANK];        /* index of each dimension */
    uint16_t box[SIM_MAP_RANK];
    uint8_t rank, elem_bytes;
    uint8_t swizzled; /* which of the three bits above the chunk's are added to it: 0, 1, 3 or 7 */
} sim_tensor_map;

/* false: these bytes are no tensor map. */
bool sim_tensor_map_read(const uint8_t bytes[SIM_MAP_BYTES], sim_tensor_map *ret_map);

#endif
