/*
 * The rows of a shipped file (shipped.h) as evidence. Pure; thread-safe.
 */
#ifndef FA2I_CACHE_SHIPPED_LINES_H
#define FA2I_CACHE_SHIPPED_LINES_H

#include "cache/evidence.h"

/* Add what the lines from text to end say; each of them ends in a newline. Errors as in shipped.h, and the evidence
 * is then as before. */
fa2_status fa2i_shipped_take(const char *text, const char *end, const fa2i_card *card, fa2_op op,
                             int abi, fa2i_evidence *evidence);

#endif
