/*
 * How large the file of a database becomes. Before code is stored, other code leaves until there is room: code that was
 * used longest ago first, that of winners never. Measurements stay.
 *
 * A file's size is that of the pages in use: what leaves makes room for what comes, and only gc makes the file
 * smaller. The limit is a number of the file's own (table `setting`), so all processes keep the same one.
 */
#ifndef FA2I_CACHE_SIZE_LIMIT_H
#define FA2I_CACHE_SIZE_LIMIT_H

#include "cache/internal.h"

/* Inside a transaction for writing: make room for so many bytes of code of a kernel. */
fa2_status fa2i_size_limit_make_room(fa2i_cache *cache, size_t bytes);

/* Inside a transaction for writing: drop code until the pages in use are at most so many bytes, or only winners have
 * code. Adds to *ret_images. */
fa2_status fa2i_size_limit_drop(fa2i_cache *cache, int64_t most_bytes, size_t *ret_images);

/* Inside a transaction: the file's limit in bytes. */
fa2_status fa2i_size_limit_get(fa2i_cache *cache, int64_t *ret_bytes);

#endif
