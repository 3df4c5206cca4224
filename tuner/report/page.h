/*
 * Makes a report as text from the rows of one database, or of two that are compared. It uses lua/page.lua and
 * templates/.
 *
 * The contents of a database are not trusted: texts are escaped, and numbers are parsed as numbers. Not thread-safe.
 */
#pragma once

#include "runtime/lua/generator.h"
#include "tuner/report/gather.h"

typedef enum fa2i_page_format { FA2I_PAGE_HTML, FA2I_PAGE_MARKDOWN } fa2i_page_format;

/* Returns the text that every page of a format begins with. */
const char *fa2i_page_start(fa2i_page_format format);

typedef struct fa2i_page {
    fa2i_page_format format;
    const fa2i_gathered *tuned;
    const fa2i_gathered *other; /* to compare with; NULL: there is no other */
    fa2i_cache *cache;          /* the database of `tuned`; predictions of the runtime's choice use it */
} fa2i_page;

/* On FA2_OK the caller owns *ret_text (fa2i_free). FA2_E_GENERATOR: the scripts failed. */
fa2_status fa2i_page_make(fa2i_generator *generator, const fa2i_page *page, char **ret_text, size_t *ret_bytes);
