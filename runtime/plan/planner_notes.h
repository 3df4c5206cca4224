/*
 * What a planner notes in the database for later processes (cache/notes.h): which kernels the cost model chose, so that
 * a problem that was answered once costs neither Lua nor the evidence, and on which day code was last used.
 *
 * Notes are written together: with the first answer, with each that compiled a kernel, else at most once a second,
 * and at the end. Writing waits for nobody. A note that is lost costs the next process time, and nothing else. Threads
 * as in planner.h.
 */
#ifndef FA2I_PLANNER_NOTES_H
#define FA2I_PLANNER_NOTES_H

#include "runtime/plan/planner_state.h"

/* A question to the cost model. */
typedef struct fa2i_question {
    fa2_problem asked;
    bool exact; /* about this very problem alone; else about all problems of its step */
    bool unmapped;
} fa2i_question;

/* Look for the answer of an earlier process on the same basis. On FA2_OK with answer->slot set its kernel can be
 * launched, and asked, unmapped, decision and tried are set; slot == NULL: the cost model must be asked. */
fa2_status fa2i_planner_find_note(fa2i_planner *planner, const fa2i_class *of, const fa2_problem *problem,
                               const fa2i_question *question, fa2i_class_answer *ret_answer);

/* Note an answer that the model gave with all that there is to know. */
void fa2i_planner_note_answer(fa2i_planner *planner, const fa2i_class *of, const fa2i_question *question,
                              const fa2i_class_answer *answer);

/* Note that stored code was loaded. */
void fa2i_planner_note_used(fa2i_planner *planner, const fa2i_kernel *kernel);

/* Write what was noted, where that is due. */
void fa2i_planner_write_notes(fa2i_planner *planner, bool at_end);

#endif
