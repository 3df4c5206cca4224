/*
 * One lane's access to memory with all its checks: inside, aligned, initialised, no race. What ld,
 * st, cp.async and ldmatrix have in common.
 */
#ifndef SIM_ACCESS_H
#define SIM_ACCESS_H

#include "machine.h"

/* The byte of shared memory at an address of the shared space; `bytes` of them are read or written.
 * NULL: the launch is stopped. collective: by an instruction that the whole warp does together
 * (ldmatrix): no thread of the warp goes on before all have read. */
uint8_t *sim_shared_read(sim_warp *w, int lane, uint64_t address, unsigned bytes);
uint8_t *sim_shared_read_collective(sim_warp *w, int lane, uint64_t address, unsigned bytes);
uint8_t *sim_shared_write(sim_warp *w, int lane, uint64_t address, unsigned bytes);

/* The same for lanes one after the other. false: the launch is stopped. */
bool sim_shared_lanes(sim_warp *w, uint32_t lanes, const uint64_t address[SIM_LANES],
                      unsigned bytes, bool write, uint8_t *ret_at[SIM_LANES]);
bool sim_shared_lanes_collective(sim_warp *w, uint32_t lanes, const uint64_t address[SIM_LANES],
                                 unsigned bytes, uint8_t *ret_at[SIM_LANES]);

/* What the products (wgmma) or the bulk stores of a warp read, through the asynchronous proxy, until
 * sim_shadow_finished; lane: who says so. */
const uint8_t *sim_shared_read_products(sim_warp *w, uint64_t address, unsigned bytes);
const uint8_t *sim_shared_read_stores(sim_warp *w, int lane, uint64_t address, unsigned bytes);
/* What ldmatrix reads, once more (SIM_BY_MATRICES). */
const uint8_t *sim_shared_read_matrices(sim_warp *w, int lane, uint64_t address, unsigned bytes);

/* The destination of a load that arrives at an mbarrier, in a phase that began in an epoch. */
uint8_t *sim_shared_load(sim_warp *w, int lane, uint64_t address, unsigned bytes, unsigned mbarrier,
                         uint32_t began);

/* The destination of a copy that starts here; its words stay pending until sim_shared_land. */
bool sim_shared_start(sim_warp *w, int lane, uint64_t address, unsigned bytes);
uint8_t *sim_shared_land(sim_warp *w, int lane, uint32_t address, unsigned bytes, int32_t op);

/* The same, but the copy arrives at an mbarrier. */
uint8_t *sim_shared_land_at(sim_warp *w, int lane, uint32_t address, unsigned bytes, int32_t op,
                            unsigned mbarrier, uint32_t began);

/* Global memory. constant: reads of it cannot race. */
uint8_t *sim_global_at(sim_warp *w, int lane, uint64_t address, unsigned bytes,
                       sim_way_of_access access, bool constant);

/* The same for lanes one after the other. false: the launch is stopped. */
bool sim_global_lanes(sim_warp *w, uint32_t lanes, const uint64_t address[SIM_LANES],
                      unsigned bytes, sim_way_of_access access, bool constant,
                      uint8_t *ret_at[SIM_LANES]);

/* The same for as many bytes as lie side by side, a tensor's row: 2 bytes of alignment. */
uint8_t *sim_global_row(sim_warp *w, int lane, uint64_t address, unsigned bytes,
                        sim_way_of_access access);

/* Generic addresses: what space one is in, and the address there. */
ptx_space sim_resolve(uint64_t *address);

#endif
