/*
 * Times that come with fa2, measured elsewhere: files in the format of export.c, which are read without SQLite, in
 * milliseconds, and written by nobody here.
 *
 * They bring no code: what they name is generated and compiled where it is used, and stands in nobody's database.
 * Times in us. Errors: FA2_E_MEMORY; FA2_E_IO and FA2_E_INVALID about one file, whose evidence is then as before.
 * Thread-safe.
 */
#ifndef FA2I_CACHE_SHIPPED_H
#define FA2I_CACHE_SHIPPED_H

#include "cache/evidence.h"

/* Add what a file knows of an operation on a card's SM, as fa2i_cache_evidence does; kernels and sets are marked
 * as shipped, and the kernels have no key. A file about other SMs is left after its first lines. FA2_E_INVALID: it
 * is no export, or about this SM and was cut or changed. A line that this fa2 does not understand (a field of a
 * problem that came later, a variant's words) is passed over. */
fa2_status fa2i_shipped_read(const char *path, const fa2i_card *card, fa2_op op, int abi,
                             fa2i_evidence *evidence);

/* Add to what a database knows what was shipped about those problems of which it has no time of this very card: two
 * sessions' times of one problem are not compared. A kernel that both have is one: the database's. Kernels that
 * spilled come along without times. */
fa2_status fa2i_shipped_merge(const fa2i_evidence *shipped, const fa2i_card *card,
                              fa2i_evidence *evidence);

/* Whether it has shipped times of this very problem on this very card. */
bool fa2i_shipped_knows(const fa2i_evidence *evidence, const fa2i_card *card,
                        const fa2_problem *problem);

#endif
