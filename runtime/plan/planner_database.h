/*
 * The planner's database file: opening it, following it while it is deleted, replaced or mended, and storing kernels.
 * Threads as in planner.h.
 */
#ifndef FA2I_PLANNER_DATABASE_H
#define FA2I_PLANNER_DATABASE_H

#include "runtime/plan/planner_state.h"

/* Open the database of fa2_config.database. A missing one is no error, and one that cannot be written is used
 * read-only. FA2_E_DATABASE: the caller named it, and it cannot be used. At the default path only the log says so. */
fa2_status fa2i_planner_open(fa2i_planner *planner, const char *database);

/* At most once a second, compare the file at the path with the open one, and open it if it is new. The planner forgets
 * what it learnt from a file that is gone; plans stay. The only error is FA2_E_MEMORY. */
fa2_status fa2i_planner_follow_file(fa2i_planner *planner);

/* Load an artifact, of the database or compiled, into its slot, which is not ready yet: fa2i_kernels_load. A planner
 * that foresees takes it for loaded; else the database gets what it lacks: what was compiled, and what the driver makes
 * of PTX. */
fa2_status fa2i_planner_load(fa2i_planner *planner, fa2i_slot *slot, fa2i_kernel *kernel, bool compiled);

#endif
