#include "gen/asset.h"

#include <string.h>

/* Binary search: the generated table is sorted by name. */
const fa2i_asset *fa2i_asset_find(const char *name)
{
    size_t low = 0, high = fa2i_assets_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, fa2i_assets[middle].name);
        if (order == 0)
            return &fa2i_assets[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
