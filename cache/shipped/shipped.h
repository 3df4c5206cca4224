/*
 * Times that come with fa2 and were measured elsewhere: databases without code, which a build makes from exports
 * (runtime/share). They are read in milliseconds, and never written here. The kernels that they name are generated and
 * compiled where they are used.
 *
 * Times in us. Errors: FA2_E_MEMORY; FA2_E_IO, FA2_E_DATABASE and FA2_E_NOT_FOUND (it is empty) about one file, and the
 * evidence is then as before. Thread-safe.
 */
#pragma once

#include "cache/content/evidence.h"

/* Add what a file says about an operation on a card's SM, as fa2i_cache_evidence does. Kernels and sets are marked as
 * shipped, and the kernels have no key and no code. */
fa2_status fa2i_shipped_read(const char *path, const fa2i_card *card, fa2_op op, int abi, fa2i_evidence *evidence);

/* Add shipped sets to a database's evidence, but only for problems without a time on exactly this card in the database:
 * times of one problem from two sessions are not compared. If both have a kernel, the database's is used. Kernels that
 * spilled are added without times. */
fa2_status fa2i_shipped_merge(const fa2i_evidence *shipped, const fa2i_card *card, fa2i_evidence *evidence);

/* Does the evidence have shipped times of exactly this problem on exactly this card? */
bool fa2i_shipped_knows(const fa2i_evidence *evidence, const fa2i_card *card, const fa2_problem *problem);
