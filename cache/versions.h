/*
 * Kernels of another version of fa2, which computes or launches their class otherwise: what was measured stays, and no
 * call takes them. In SQL:
 *
 *     fa2_other_version(class, recipe)    1: it is of another version; 0: of this one, or it says nothing of it
 *     fa2_key(text)                       a key from the text that the views show of it; NULL: it is none
 */
#ifndef FA2I_CACHE_VERSIONS_H
#define FA2I_CACHE_VERSIONS_H

#include <sqlite3.h>

/* Make the functions known to a connection; an SQLite code. */
int fa2i_versions_register(sqlite3 *db);

/* Of a row of a view whose column `key` this is, "winners.key". */
#define FA2I_OTHER_VERSION_OF(key)                                                                 \
    "coalesce((SELECT fa2_other_version(x.class, x.recipe) FROM kernel x WHERE x.key = fa2_key(" key ")), 0)"

#endif
