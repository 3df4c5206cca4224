/*
 * - A stored answer is found by its question: a hash of the problem, of the card, and of how it was asked. Its basis is
 *   a hash of its grounds outside the database: this version of fa2, scripts and templates, shipped times.
 * - Problems with shipped times are asked about alone (planner.c). So an answer to a whole step is stored only
 *   if shipped times know no other problem of the step. A process that finds it need not read shipped times.
 * - An answer is noted with the version of the database for which it holds. It is void if another process committed
 *   after the evidence was read.
 */
#include "runtime/plan/notes.h"

#include <stdio.h>
#include <string.h>
#include "runtime/base/clock.h"
#include "runtime/lua/generator_files.h"
#include "runtime/ops/op.h"
#include "runtime/ops/steps.h"
#include "runtime/plan/share.h"

#define INTERVAL_NS FA2I_SECOND_NS

static bool is_for_notes(const fa2i_planner *planner)
{
    return planner->cache != NULL && planner->arch == 0;
}

static bool is_written(const fa2i_planner *planner)
{
    return is_for_notes(planner) && !planner->read_only && !planner->predicts;
}

/* ---- the key of an answer ---- */

static fa2_status find_basis(fa2i_planner *planner)
{
    const int version = FA2_VERSION;
    fa2i_key scripts, shipped;
    fa2_status st = FA2_OK;
    if (planner->knows_basis)
        return FA2_OK;
    FA2_TRY(fa2i_generator_files_find_hash(&scripts));
    FA2_TRY(fa2i_share_key(planner->share, &shipped));
    const fa2i_part parts[] = {{&version, sizeof version},
                               {&scripts, sizeof scripts},
                               {&shipped, sizeof shipped},
                               {&planner->layers.key, sizeof planner->layers.key}};
    fa2i_key_of(parts, sizeof parts / sizeof *parts, &planner->basis);
    planner->knows_basis = true;
done:
    return st;
}

/* Hashes the problem and a text. The text has the flags and everything that the model knows about the card. */
static void find_key(const fa2i_planner *planner, const fa2i_question *question, fa2i_key *ret_key)
{
    const fa2i_card *card = &planner->device->card;
    char how[sizeof card->name + 256];
    snprintf(how, sizeof how,
             "exact=%d unmapped=%d %s sm=%d count=%d smem=%d,%d l2=%lld khz=%d bytes/s=%lld generic=%d",
             question->exact, question->unmapped, card->name, card->arch, card->sm_count, card->smem_block_bytes,
             card->smem_sm_bytes, (long long)card->l2_bytes, card->clock_khz, (long long)card->bandwidth_bytes,
             card->generic);
    const fa2i_part parts[] = {{&question->asked, sizeof question->asked}, {how, strlen(how)}};
    fa2i_key_of(parts, sizeof parts / sizeof *parts, ret_key);
}

/* ---- recalling ---- */

fa2_status fa2i_planner_find_note(fa2i_planner *planner, const fa2i_class *of, const fa2i_question *question,
                                  fa2i_class_answer *ret_answer, fa2i_key *ret_kernel, bool *ret_found)
{
    fa2_status st = FA2_OK;
    fa2i_stored_answer stored;
    fa2i_key key;
    *ret_found = false;
    if (!is_for_notes(planner))
        return FA2_OK;
    FA2_TRY(find_basis(planner));
    find_key(planner, question, &key);
    FA2_TRY(fa2i_cache_get_answer(planner->cache, &key, &planner->basis, &stored));
    if (strcmp(stored.class_key, of->key) != 0)
        return FA2_OK;
    ret_answer->asked = question->asked;
    ret_answer->unmapped = question->unmapped;
    ret_answer->for_step = !question->exact;
    ret_answer->tried = (size_t)stored.tried;
    ret_answer->decision = stored.decision;
    *ret_kernel = stored.kernel;
    *ret_found = true;
done: /* other failures come again when the model is asked, and are reported there */
    return st == FA2_E_MEMORY ? st : FA2_OK;
}

/* ---- noting ---- */

/* Returns whether this card's shipped times know another problem of the step. */
static bool has_shipped_in_step(const fa2i_planner *planner, const fa2_problem *asked)
{
    const fa2i_card *card = &planner->device->card;
    const fa2i_evidence *evidence = &planner->calibrations[asked->op].evidence;
    for (size_t i = 0; i < evidence->set_count; i++) {
        const fa2i_known_set *set = &evidence->sets[i];
        if (!set->shipped || !fa2i_card_is_same(&set->card, card))
            continue;
        const fa2_problem of_set = fa2i_problem_asked(&set->problem, card->sm_count);
        if (memcmp(&of_set, asked, sizeof of_set) == 0 && memcmp(&set->problem, asked, sizeof of_set) != 0)
            return true;
    }
    return false;
}

void fa2i_planner_note_answer(fa2i_planner *planner, const fa2i_class *of, const fa2i_question *question,
                              const fa2i_class_answer *answer)
{
    fa2i_notes *notes = &planner->notes;
    if (!is_written(planner) || notes->answer_count == FA2I_NOTES_ANSWERS || notes->noted == FA2I_NOTES_MOST ||
        planner->calibrations[question->asked.op].is_partial ||
        (!question->exact && has_shipped_in_step(planner, &question->asked)) || find_basis(planner) != FA2_OK)
        return;
    fa2i_stored_answer stored = {.basis = planner->basis,
                                 .kernel = answer->slot->key,
                                 .tried = (int)answer->tried,
                                 .decision = answer->decision};
    memcpy(stored.class_key, of->key, sizeof stored.class_key);
    find_key(planner, question, &stored.question);
    /* The evidence is of that version. Since then this process wrote only the chosen kernel. */
    stored.version = fa2i_cache_own_version(planner->cache, planner->calibrations[question->asked.op].version);
    notes->answers[notes->answer_count++] = stored;
    notes->noted++;
}

void fa2i_planner_note_used(fa2i_planner *planner, const fa2i_kernel *kernel)
{
    fa2i_notes *notes = &planner->notes;
    if (!is_written(planner) || kernel->used_day >= fa2i_cache_today() || notes->used_count == FA2I_NOTES_USED)
        return;
    if (notes->used_count == 0)
        notes->used_ns = fa2i_clock_ns();
    notes->used[notes->used_count++] = kernel->key;
}

/* ---- writing ---- */

static bool is_due(const fa2i_notes *notes, int64_t now)
{
    return notes->has_compiled ||
           (notes->answer_count > 0 && (notes->written_ns == 0 || now - notes->written_ns >= INTERVAL_NS)) ||
           (notes->used_count > 0 && now - notes->used_ns >= INTERVAL_NS);
}

void fa2i_planner_write_notes(fa2i_planner *planner, bool at_end)
{
    fa2i_notes *notes = &planner->notes;
    const int64_t now = fa2i_clock_ns();
    if (!is_written(planner) || notes->answer_count + notes->used_count == 0 || (!at_end && !is_due(notes, now)))
        return;
    notes->written_ns = notes->used_ns = now;
    notes->has_compiled = false;
    if (fa2i_cache_put_notes(planner->cache, notes->answers, notes->answer_count, notes->used, notes->used_count) ==
        FA2_OK)
        notes->answer_count = notes->used_count = 0; /* otherwise they wait for the next time */
}
