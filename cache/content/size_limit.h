/*
 * Keeps the file of a database below a size limit. Before code is stored, other code is dropped until there is room:
 * first the code that was used longest ago, never the code of winners. Measurements stay.
 *
 * The size of a file means its pages in use. New rows fill the pages of dropped ones, and only gc makes the file
 * smaller. The limit stands in the file itself (table `setting`), so all processes keep the same one.
 */
#pragma once

#include "cache/internal.h"

/* Inside a transaction for writing: make room for a kernel's code of this many bytes. */
fa2_status fa2i_size_limit_make_room(fa2i_cache *cache, size_t bytes);

/* Inside a transaction for writing: drop code until the pages in use are at most this many bytes, or only winners have
 * code. Adds to *ret_images. */
fa2_status fa2i_size_limit_drop(fa2i_cache *cache, int64_t most_bytes, size_t *ret_images);

/* Inside a transaction: the file's limit in bytes. */
fa2_status fa2i_size_limit_get(fa2i_cache *cache, int64_t *ret_bytes);
