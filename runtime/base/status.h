/*
 * Failing with a sentence. This is the lowest layer: everything may include it, and it includes only fa2.h.
 *
 * The message is thread-local, like errno, for two reasons: several threads may use one context, and fa2_context_create
 * must be able to fail before there is a context. The function that detects a fault sets the message once. Callers pass
 * on the status.
 */
#pragma once

#include "fa2.h"

#define FA2I_MESSAGE_BYTES 2048

#if defined(__GNUC__)
#define FA2I_PRINTF(format_index, first_arg) __attribute__((format(printf, format_index, first_arg)))
#else
#define FA2I_PRINTF(format_index, first_arg)
#endif

/* Sets this thread's message and returns status. status is not FA2_OK. Every %s argument is escaped (shown.h). An
 * argument may be the message itself. */
fa2_status fa2i_fail(fa2_status status, const char *format, ...) FA2I_PRINTF(2, 3);

/* For a failure that the caller overcomes: keep the message before it, and put it back after it. */
void fa2i_message_keep(char ret_kept[FA2I_MESSAGE_BYTES]);
void fa2i_message_put_back(const char kept[FA2I_MESSAGE_BYTES]);

/* Puts text (printf-style) and ": " before the current message, and returns status. */
fa2_status fa2i_fail_prefix(fa2_status status, const char *format, ...) FA2I_PRINTF(2, 3);

/* The same with a log after the message. The log keeps its lines. */
fa2_status fa2i_fail_log(fa2_status status, const char *log, const char *format, ...) FA2I_PRINTF(3, 4);

/* Returns the option that names a database, for messages that advise to name another one: "--db or FA2_DB". A function
 * that opens databases with another option sets its words first, and NULL afterwards. Thread-local, like the message. */
const char *fa2i_naming(void);
void fa2i_naming_set(const char *words);

/* Evaluates expr. On failure keeps its status in `st` and goes to the clean-up label `done`. */
#define FA2_TRY(expr)                                                                                                  \
    do {                                                                                                               \
        st = (expr);                                                                                                   \
        if (st != FA2_OK)                                                                                              \
            goto done;                                                                                                 \
    } while (0)
