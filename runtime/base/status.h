/*
 * Failing with a sentence. The lowest layer: everything may include it, it includes only fa2.h.
 *
 * The message lives in thread-local storage, like errno: several threads may use one context, and
 * fa2_context_create must be able to fail before there is a context. A message is set once, where
 * the fault is detected, and travels up beside the status that the callers pass on.
 */
#ifndef FA2I_BASE_STATUS_H
#define FA2I_BASE_STATUS_H

#include "fa2.h"

#define FA2I_MESSAGE_BYTES 2048

#if defined(__GNUC__)
#define FA2I_PRINTF(format_index, first_arg)                                                       \
    __attribute__((format(printf, format_index, first_arg)))
#else
#define FA2I_PRINTF(format_index, first_arg)
#endif

/* Set this thread's message and return status. status must not be FA2_OK. Every %s argument is escaped (shown.h); the
 * message itself may be one. */
fa2_status fa2i_fail(fa2_status status, const char *format, ...) FA2I_PRINTF(2, 3);

/* Of failures that another way makes good: keep the message before them, and put it back behind them. */
void fa2i_message_keep(char ret_kept[FA2I_MESSAGE_BYTES]);
void fa2i_message_put_back(const char kept[FA2I_MESSAGE_BYTES]);

/* Put text (printf-style) and ": " before the message that is set, and return status. */
fa2_status fa2i_fail_prefix(fa2_status status, const char *format, ...) FA2I_PRINTF(2, 3);

/* The same with a log behind it, whose lines stay lines. */
fa2_status fa2i_fail_log(fa2_status status, const char *log, const char *format, ...) FA2I_PRINTF(3, 4);

/* Run expr; on failure keep its status in `st` and go to the clean-up label `done`. */
#define FA2_TRY(expr)                                                                              \
    do {                                                                                           \
        st = (expr);                                                                               \
        if (st != FA2_OK)                                                                          \
            goto done;                                                                             \
    } while (0)

#endif
