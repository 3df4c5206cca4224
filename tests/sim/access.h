/*
 * One lane's access to memory with all its checks: inside, aligned, initialised, no race. Shared by ld, st, cp.async
 * and ldmatrix.
 */
#pragma once

#include "machine.h"

/* Return the place of an address in shared memory, for `bytes` bytes to read or write. NULL: the launch is stopped.
 * collective: the whole warp does it together (ldmatrix), so no thread of the warp continues before all have read. */
uint8_t *sim_shared_read(sim_warp *w, int lane, uint64_t address, unsigned bytes);
uint8_t *sim_shared_read_collective(sim_warp *w, int lane, uint64_t address, unsigned bytes);
uint8_t *sim_shared_write(sim_warp *w, int lane, uint64_t address, unsigned bytes);

/* The same for several lanes in turn. false: the launch is stopped. */
bool sim_shared_lanes(sim_warp *w, uint32_t lanes, const uint64_t address[SIM_LANES], unsigned bytes, bool write,
                      uint8_t *ret_at[SIM_LANES]);
bool sim_shared_lanes_collective(sim_warp *w, uint32_t lanes, const uint64_t address[SIM_LANES], unsigned bytes,
                                 uint8_t *ret_at[SIM_LANES]);

/* Adds to a number in global memory. Blocks on other host threads may do so at the same time. */
void sim_add_float(uint32_t *word, float x);

typedef struct sim_span {
    uint32_t address, bytes; /* adjacent bytes, multiples of 16 */
} sim_span;

/* Reads of a warp's products (wgmma) or bulk stores, by the asynchronous proxy. They last until sim_shadow_finished.
 * lane: the issuing lane. */
bool sim_shared_read_products(sim_warp *w, const sim_span *spans, unsigned count);
const uint8_t *sim_shared_read_stores(sim_warp *w, int lane, uint64_t address, unsigned bytes);
/* Records a read of ldmatrix a second time (SIM_BY_MATRICES). */
const uint8_t *sim_shared_read_matrices(sim_warp *w, int lane, uint64_t address, unsigned bytes);

/* Returns the destination of a load that arrives at an mbarrier, in the phase that began in epoch `began`. */
uint8_t *sim_shared_load(sim_warp *w, int lane, uint64_t address, unsigned bytes, unsigned mbarrier, uint32_t began);

/* Start a copy to this destination. Its words stay pending until they land. lanes: in
 * turn; false: the launch is stopped. */
bool sim_shared_start(sim_warp *w, int lane, uint64_t address, unsigned bytes);
bool sim_shared_lanes_start(sim_warp *w, uint32_t lanes, const uint64_t address[SIM_LANES], unsigned bytes);
void sim_shared_lanes_land(sim_warp *w, uint32_t lanes, const uint32_t address[SIM_LANES], unsigned bytes, int32_t op);

/* The same, but the copy arrives at an mbarrier. */
uint8_t *sim_shared_land_at(sim_warp *w, int lane, uint32_t address, unsigned bytes, int32_t op, unsigned mbarrier,
                            uint32_t began);

/* Returns the place of an address in global memory. constant: reads of it cannot race. */
uint8_t *sim_global_at(sim_warp *w, int lane, uint64_t address, unsigned bytes, sim_way_of_access access,
                       bool constant);

/* The same for several lanes in turn. false: the launch is stopped. */
bool sim_global_lanes(sim_warp *w, uint32_t lanes, const uint64_t address[SIM_LANES], unsigned bytes,
                      sim_way_of_access access, bool constant, uint8_t *ret_at[SIM_LANES]);

/* The same for any number of adjacent bytes, such as a tensor's row, aligned to 2 bytes. */
uint8_t *sim_global_row(sim_warp *w, int lane, uint64_t address, unsigned bytes, sim_way_of_access access);

/* Returns the space of a generic address, and replaces the address by the one in that space. */
ptx_space sim_resolve(uint64_t *address);
