/*
 * The planner's database file: opening it, following it when it is deleted, replaced or repaired, and storing kernels.
 * Threads: see planner.h.
 */
#pragma once

#include "runtime/plan/state.h"

/* Opens the database of fa2_config.database. A missing file is no error. A file that cannot be written is used
 * read-only. FA2_E_DATABASE: the caller named the file, and it cannot be used. At the default path that is only
 * logged. */
fa2_status fa2i_planner_open(fa2i_planner *planner, const char *database);

/* Finds the folder of the files that come with fa2, and opens the system's databases. */
fa2_status fa2i_planner_find_files(fa2i_planner *planner);

/* At most once a second, compares the file at the path with the open one, and opens it if it is new. The planner
 * forgets what it learnt from a file that is gone. Plans stay. The only error is FA2_E_MEMORY. */
fa2_status fa2i_planner_follow_file(fa2i_planner *planner);

/* Loads an artifact, stored or compiled, into its slot, which is not ready yet (fa2i_kernels_load). Then stores what
 * the database lacks: compiled code, and what the driver reported about PTX. A planner that predicts only treats the
 * artifact as loaded. */
fa2_status fa2i_planner_load(fa2i_planner *planner, fa2i_slot *slot, fa2i_kernel *kernel, bool compiled);
