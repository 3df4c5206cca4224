/*
 * The generator host: the only owner of a lua_State. Scripts and templates are embedded in the library. A file of the
 * same name in a folder of $FA2_GEN_PATH (colon-separated) takes precedence.
 *
 * Pure: problem and card in, text and numbers out. It uses no CUDA, no clock, and no files besides FA2_GEN_PATH.
 * Errors: FA2_E_GENERATOR with Lua's message and traceback; FA2_E_UNSUPPORTED, with the reason, if no family serves the
 * problem on that SM. Two threads must not use one generator at once.
 */
#pragma once

#include <signal.h>
#include "cache/content/evidence.h"

typedef struct fa2i_generator fa2i_generator;

enum { FA2I_OPS = FA2_OP_MERGE + 1 };

/* Creates a generator. The caller owns *ret_generator on FA2_OK. It takes some hundredths of a second, because it reads
 * all scripts. stop (borrowed): when it becomes nonzero, running scripts end with FA2_E_GENERATOR, also those that
 * create the generator. They end within a second, unless one call of Lua's own library takes longer. */
fa2_status fa2i_generator_create(fa2i_generator **ret_generator);
fa2_status fa2i_generator_create_stoppable(const volatile sig_atomic_t *stop, fa2i_generator **ret_generator);
void fa2i_generator_destroy(fa2i_generator *generator);

/* Returns a hash of all scripts and templates as this generator reads them: 16 hex digits. Borrowed. */
const char *fa2i_generator_id(const fa2i_generator *generator);

/* Lists the candidates for a problem on a card, cheapest first by the cost model; ties are in the order of their text.
 * There is at least one on FA2_OK. The caller owns *ret_variants (fa2i_free). */
fa2_status fa2i_generator_candidates(fa2i_generator *generator, const fa2_problem *problem, const fa2i_card *card,
                                     fa2i_variant **ret_variants, size_t *ret_count);

/* The basis of an estimate, best first. */
typedef enum fa2i_rests {
    FA2I_RESTS_MEASURED,  /* measured on this problem and this card */
    FA2I_RESTS_NEARBY,    /* transferred from problems near it, on this card */
    FA2I_RESTS_ELSEWHERE, /* the same, from another card of the SM, or ranked for such a card offline */
    FA2I_RESTS_MODEL      /* the cost model alone, or corrected by measurements of other problems */
} fa2i_rests;

/* A kernel that could serve a problem. */
typedef struct fa2i_option {
    char text[FA2I_VARIANT_CHARS];
    double us;       /* estimated time on the problem */
    double model_us; /* estimate of the cost model alone */
    fa2i_rests rests;
    bool compile;     /* its code does not exist yet and must be compiled */
    size_t kernel;    /* index in the evidence; FA2I_NONE: the evidence lacks it, and the generator made it for the
                       * problem's class */
    size_t set;       /* index of the nearest set of the evidence that us is based on; FA2I_NONE: the model */
    double distance;  /* distance of that set */
    size_t neighbour; /* index of the nearest set of another class that corrects the model; or FA2I_NONE */
} fa2i_option;

#define FA2I_NONE ((size_t)-1)

/* Teaches evidence: from now on, fa2i_generator_rank of that operation uses it, and no earlier evidence. card:
 * measurements on this card count as its own. The evidence is copied. */
fa2_status fa2i_generator_learn(fa2i_generator *generator, fa2_op op, const fa2i_evidence *evidence,
                                const fa2i_card *card);

/* The same, but earlier evidence still counts. Indexes of kernels and sets continue after the earlier ones. */
fa2_status fa2i_generator_learn_more(fa2i_generator *generator, fa2_op op, const fa2i_evidence *evidence,
                                     const fa2i_card *card);

/* The expected time of a kernel on a problem. */
typedef struct fa2i_judgement {
    double us;    /* 0: no SM can hold it */
    double doubt; /* standard deviation of ln us, without the errors that all kernels of a problem share */
    double known; /* the estimate is as good as this many measurements of exactly this problem */
} fa2i_judgement;

/* Judges kernels of the problem's class, given by their canonical texts, by what was learned. */
fa2_status fa2i_generator_judge(fa2i_generator *generator, const fa2_problem *problem, const fa2i_card *card,
                                const char *const *texts, size_t count, fa2i_judgement *ret_judgements);

/* Lists the kernels that could serve a problem on a card: kernels of the evidence and the model's candidates, each text
 * once, the best choice first. Kernels that must be compiled come after those that are about as fast and need no
 * compiling. If enough was measured nearby, candidates are left out. Takes milliseconds for the first problem of a
 * class, less for the others. The caller owns *ret_options (fa2i_free). Errors: see fa2i_generator_candidates. */
fa2_status fa2i_generator_rank(fa2i_generator *generator, const fa2_problem *problem, const fa2i_card *card,
                               fa2i_option **ret_options, size_t *ret_count);

/* Writes lines "variant: why it is no candidate", for people. The caller owns *ret_text (fa2i_free). */
fa2_status fa2i_generator_rejected(fa2i_generator *generator, const fa2_problem *problem, const fa2i_card *card,
                                   char **ret_text);

/* Makes the variant of a canonical text, with its recipe. Its cost_us is 0. FA2_E_NOT_FOUND: the scripts do not know
 * such a variant; the message says why. */
fa2_status fa2i_generator_variant(fa2i_generator *generator, const char *variant_text, fa2i_variant *ret_variant);

/* The same for a text that a person wrote. With a problem, the text may leave out the problem's fields, like tables do.
 * With a card, the variant's family must serve the card's SM. Each may be NULL. */
fa2_status fa2i_generator_named_variant(fa2i_generator *generator, const char *text, const fa2_problem *problem,
                                        const fa2i_card *card, fa2i_variant *ret_variant);

/* Checks that the generator made a variant for the problem's class. Scripts that ignore what they do not know must not
 * pass off kernels of another class: FA2_E_UNSUPPORTED. */
fa2_status fa2i_generator_check_class(const fa2_problem *problem, const fa2i_variant *variant);

/* Generates the CUDA text of a variant (fa2i_variant.text). The caller owns *ret_source (fa2i_free). */
fa2_status fa2i_generator_source(fa2i_generator *generator, const char *variant_text, char **ret_source);

/* Computes the cost model's time for the register count that the compiler reported. registers == 0: for the model's own
 * estimate of it. */
fa2_status fa2i_generator_cost(fa2i_generator *generator, const char *variant_text, const fa2_problem *problem,
                               const fa2i_card *card, int registers, double *ret_us);

/* Returns the card that stands for an SM if there is no GPU (75 ... 121). FA2_E_INVALID lists the known SMs. */
fa2_status fa2i_generator_card(fa2i_generator *generator, int arch, fa2i_card *ret_card);
