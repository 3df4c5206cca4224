/*
 * Classes are a short list, because a program uses few. The most recently used class is the first, so a growing decode
 * finds it at once.
 */
#include "runtime/plan/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/shown.h"

static bool is_heard(const fa2i_planner *planner, fa2_log_level level)
{
    const int most = planner->log_level != 0 ? planner->log_level : FA2_LOG_INFO;
    return (planner->log != NULL || planner->log_at != NULL) && (int)level <= most;
}

static void send(const fa2i_planner *planner, fa2_log_level level, const char *message)
{
    if (planner->log_at != NULL)
        planner->log_at(planner->log_user, level, message);
    else
        planner->log(planner->log_user, message);
}

void fa2i_planner_hear(void *user, const char *message)
{
    const fa2i_planner *planner = user;
    if (is_heard(planner, FA2_LOG_WARNING))
        send(planner, FA2_LOG_WARNING, message);
}

void fa2i_planner_log(const fa2i_planner *planner, fa2_log_level level, const char *format, ...)
{
    if (!is_heard(planner, level))
        return;
    char message[FA2I_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    fa2i_shown_format(message, sizeof message, fa2_last_message(), format, args);
    va_end(args);
    send(planner, level, message);
}

void fa2i_attempt_take(fa2i_attempt *attempt, fa2i_slot *slot)
{
    attempt->slot = slot;
    attempt->origin = slot->compiled ? FA2I_ORIGIN_COMPILED : FA2I_ORIGIN_STORED;
    attempt->refusal = FA2_OK; /* of an earlier attempt */
    attempt->text[0] = attempt->why[0] = '\0';
}

void fa2i_attempt_refuse(fa2i_attempt *attempt, fa2_status refusal, const char *text)
{
    const char *why = fa2_last_message();
    const size_t named = strlen(text);
    if (strncmp(why, text, named) == 0)
        why += named + strspn(why + named, " :");
    attempt->slot = NULL;
    attempt->refusal = refusal;
    snprintf(attempt->text, sizeof(attempt->text), "%s", text);
    snprintf(attempt->why, sizeof(attempt->why), "%s", why);
    attempt->why[strcspn(attempt->why, "\n")] = '\0'; /* the first line of a compiler's log */
}

bool fa2i_planner_is_ready(const fa2i_planner *planner, const fa2i_slot *slot)
{
    return slot->state == FA2I_SLOT_LOADED || (planner->predicts && slot->state == FA2I_SLOT_PREDICTED);
}

void fa2i_planner_pass_over(const fa2i_planner *planner, fa2i_slot *slot, const char *what)
{
    if (planner->predicts)
        return;
    if (!slot->told)
        fa2i_planner_log(planner, FA2_LOG_WARNING, "%s is passed over: %s", what, fa2_last_message());
    slot->told = true;
}

void fa2i_planner_unreadable(const fa2i_planner *planner, fa2i_class *of)
{
    if (!of->told_unreadable)
        fa2i_planner_log(planner, FA2_LOG_WARNING, "the database is passed over: %s", fa2_last_message());
    of->told_unreadable = true;
}

/* Takes the class of this key out of the list. Returns NULL if it is not there. */
static fa2i_class *take(fa2i_planner *planner, const char *key)
{
    for (fa2i_class **at = &planner->classes; *at != NULL; at = &(*at)->next) {
        fa2i_class *found = *at;
        if (strcmp(found->key, key) == 0) {
            *at = found->next;
            return found;
        }
    }
    return NULL;
}

fa2i_class *fa2i_planner_class(fa2i_planner *planner, const fa2_problem *problem)
{
    char key[FA2I_CLASS_CHARS];
    fa2i_problem_class(problem, key);
    fa2i_class *of = take(planner, key);
    if (of == NULL) {
        of = fa2i_alloc(sizeof(*of));
        if (of == NULL) {
            (void)fa2i_fail(FA2_E_MEMORY, "no memory for a class of problems");
            return NULL;
        }
        memcpy(of->key, key, sizeof(key));
    }
    of->next = planner->classes;
    planner->classes = of;
    return of;
}

void fa2i_planner_do_without(fa2i_planner *planner, const fa2_problem *problem)
{
    fa2i_class *of = fa2i_planner_class(planner, problem);
    if (of == NULL || of->told_without)
        return;
    of->told_without = true;
    fa2i_planner_log(planner, FA2_LOG_WARNING,
                     "a bias without aligned neighbours is read number by number, because no other kernel can be "
                     "used (not repeated for other shapes with %s): %s",
                     of->key, fa2_last_message());
}
