/*
 * Files that are embedded in the library: scripts, templates, the database schema and the presets. gen/embed.cmake
 * generates them from the source tree. They never change, so any thread may read them.
 */
#pragma once

#include <stddef.h>

typedef struct fa2i_asset {
    const char *name; /* path from the top of the source tree: "gen/init.lua" */
    const char *data; /* followed by a NUL that bytes does not count */
    size_t bytes;
} fa2i_asset;

/* Sorted by name (strcmp). */
extern const fa2i_asset fa2i_assets[];
extern const size_t fa2i_assets_count;

/* A hash of the names and contents of scripts and templates, without those that only write reports. The build computes
 * it. */
extern const char fa2i_assets_hash[];

/* Returns the asset of that name, or NULL. */
const fa2i_asset *fa2i_asset_find(const char *name);
