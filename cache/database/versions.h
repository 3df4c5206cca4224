/*
 * Kernels of another version of fa2, which computes or launches their class differently. Their measurements stay, and
 * no call takes them. In SQL:
 *
 *     fa2_other_version(class, recipe)    1: it is of another version; 0: of this version, or the recipe is invalid
 *     fa2_key(text)                       the key for a text of the views; NULL: the text is no key
 */
#pragma once

#include <sqlite3.h>

/* Register the functions with a connection. Returns SQLite's result code. */
int fa2i_versions_register(sqlite3 *db);

/* For a row of a view with a column `key`; pass its full name, such as "winners.key". */
#define FA2I_OTHER_VERSION_OF(key)                                                                                     \
    "coalesce((SELECT fa2_other_version(x.class, x.recipe) FROM kernel x WHERE x.key = fa2_key(" key ")), 0)"
