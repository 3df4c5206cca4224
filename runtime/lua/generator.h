/*
 * The generator host: the one place that owns a lua_State. Scripts and templates are embedded in
 * the library; a file of the same name in a folder of $FA2_GEN_PATH (colon-separated) takes
 * precedence.
 *
 * Pure: problem and card in, text and numbers out; no CUDA, no clock, no files besides
 * FA2_GEN_PATH. Errors: FA2_E_GENERATOR with Lua's message and traceback; FA2_E_UNSUPPORTED when no
 * family serves the problem on that SM (with the reason). One generator must not be used by two
 * threads at once.
 */
#ifndef FA2I_GENERATOR_H
#define FA2I_GENERATOR_H

#include "runtime/base/record.h"

typedef struct fa2i_generator fa2i_generator;

/* On FA2_OK *ret_generator belongs to the caller. Takes about a millisecond. */
fa2_status fa2i_generator_create(fa2i_generator **ret_generator);
void fa2i_generator_destroy(fa2i_generator *generator);

/* Hash of all scripts and templates as this generator reads them: 16 hex digits. Borrowed. */
const char *fa2i_generator_id(const fa2i_generator *generator);

/* The candidates for a problem on a card, cheapest first by the cost model; ties in the order of
 * their text. At least one on FA2_OK. *ret_variants belongs to the caller (fa2i_free). */
fa2_status fa2i_generator_candidates(fa2i_generator *generator, const fa2_problem *problem,
                                     const fa2i_card *card, fa2i_variant **ret_variants,
                                     size_t *ret_count);

/* Lines "variant: why it is no candidate", for people. *ret_text belongs to the caller
 * (fa2i_free). */
fa2_status fa2i_generator_rejected(fa2i_generator *generator, const fa2_problem *problem,
                                   const fa2i_card *card, char **ret_text);

/* The variant of a canonical text with its launch numbers; its cost_us is 0. */
fa2_status fa2i_generator_variant(fa2i_generator *generator, const char *variant_text,
                                  fa2i_variant *ret_variant);

/* The CUDA text of a variant (fa2i_variant.text). *ret_source belongs to the caller (fa2i_free). */
fa2_status fa2i_generator_source(fa2i_generator *generator, const char *variant_text,
                                 char **ret_source);

/* The cost model's time with the register count that the compiler reported; registers == 0: with
 * the model's own estimate. */
fa2_status fa2i_generator_cost(fa2i_generator *generator, const char *variant_text,
                               const fa2_problem *problem, const fa2i_card *card, int registers,
                               double *ret_us);

/* The card that stands for an SM when there is no GPU (75 ... 121). FA2_E_INVALID lists the known
 * SMs. */
fa2_status fa2i_generator_card(fa2i_generator *generator, int arch, fa2i_card *ret_card);

#endif
