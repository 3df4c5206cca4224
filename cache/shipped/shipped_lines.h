/*
 * Turns the rows of a shipped file (shipped.h) into evidence. Pure; thread-safe.
 */
#ifndef FA2I_CACHE_SHIPPED_LINES_H
#define FA2I_CACHE_SHIPPED_LINES_H

#include "cache/content/evidence.h"

/* Add the content of the lines from text to end, each of which ends in a newline. Errors as in shipped.h; the evidence
 * is then as before. */
fa2_status fa2i_shipped_take(const char *text, const char *end, const fa2i_card *card, fa2_op op,
                             int abi, fa2i_evidence *evidence);

#endif
