/*
 * Notes of a planner in the database for later processes (cache/content/notes.h): which kernels the cost model chose,
 * and on which day code was last used. A process that finds a choice needs neither Lua nor the evidence.
 *
 * Notes are written together: with the first answer, with each answer that compiled a kernel, else at most once a
 * second, and at the end. Writing does not wait for a lock. A lost note only costs the next process time. Threads: see
 * planner.h.
 */
#pragma once

#include "runtime/plan/state.h"

/* A question to the cost model. */
typedef struct fa2i_question {
    fa2_problem asked;
    bool exact; /* true: about exactly this problem; false: about all problems of its step */
    bool unmapped;
} fa2i_question;

/* Looks for the answer of an earlier process on the same basis. *ret_found: asked, unmapped, for_step, decision and
 * tried of the answer are set, and *ret_kernel is its kernel, which may not be usable. Otherwise ask the cost model.
 * The only error is FA2_E_MEMORY. */
fa2_status fa2i_planner_find_note(fa2i_planner *planner, const fa2i_class *of, const fa2i_question *question,
                                  fa2i_class_answer *ret_answer, fa2i_key *ret_kernel, bool *ret_found);

/* Notes an answer of the model, unless its evidence was incomplete. */
void fa2i_planner_note_answer(fa2i_planner *planner, const fa2i_class *of, const fa2i_question *question,
                              const fa2i_class_answer *answer);

/* Notes that stored code was loaded. */
void fa2i_planner_note_used(fa2i_planner *planner, const fa2i_kernel *kernel);

/* Writes the notes if they are due, or if at_end. */
void fa2i_planner_write_notes(fa2i_planner *planner, bool at_end);
