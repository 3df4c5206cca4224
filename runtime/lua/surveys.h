/*
 * Answers that one generator found, for all later ones of the process: each context has a generator of its own. The
 * scripts keep which candidates a class of problems has on a card. To find that takes them tenths of a second.
 *
 * An answer is a text. It is found by the scripts' hash and a question. New answers take the place of old ones.
 * Thread-safe. No thread waits for another one here: it finds or keeps nothing instead.
 */
#pragma once

#include "runtime/base/record.h"

/* NULL: nothing is known, or memory is short. *ret_bytes: without the NUL. The copy is the caller's (fa2i_free). */
char *fa2i_surveys_find(const fa2i_key *scripts, const char *question, size_t *ret_bytes);

/* Keeps copies, where memory allows it. */
void fa2i_surveys_keep(const fa2i_key *scripts, const char *question, const char *answer, size_t bytes);

/* Forgets all. For tests, and for the library's own end. */
void fa2i_surveys_forget(void);
