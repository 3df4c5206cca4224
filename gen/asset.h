/*
 * Files embedded in the library: scripts, templates, the database schema, the presets. Generated from
 * the source tree by gen/embed.cmake; immutable, so safe from any thread.
 */
#ifndef FA2I_ASSET_H
#define FA2I_ASSET_H

#include <stddef.h>

typedef struct fa2i_asset {
    const char *name; /* path from the top of the source tree: "gen/space.lua" */
    const char *data; /* followed by a NUL that bytes does not count */
    size_t bytes;
} fa2i_asset;

/* Sorted by name (strcmp). */
extern const fa2i_asset fa2i_assets[];
extern const size_t fa2i_assets_count;

/* A hash of all names and contents, made by the build. */
extern const char fa2i_assets_hash[];

/* NULL when there is none of that name. */
const fa2i_asset *fa2i_asset_find(const char *name);

#endif
