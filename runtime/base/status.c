/*
 * One message buffer per thread.
 *
 * - message is always NUL-terminated. It holds the last failure of this thread, and keeps it through later successes,
 *   like errno.
 * - A text longer than the buffer is cut. Messages with long compiler logs lose their end, not their beginning, which
 *   says what failed.
 * - The message is printable (shown.h), whatever the arguments hold. Only a log has several lines.
 */
#include <assert.h>
#include <stdarg.h>
#include <string.h>
#include "runtime/base/shown.h"
#include "runtime/base/status.h"

static _Thread_local char message[FA2I_MESSAGE_BYTES];
static _Thread_local const char *naming; /* NULL: the usual words */

const char *fa2_status_string(fa2_status status)
{
    /* int, because the caller may pass a number that is no enumerator. */
    switch ((int)status) {
#define STATUS_CASE(name, value, text)                                                                                 \
    case value:                                                                                                        \
        return text;
        FA2_STATUS_LIST(STATUS_CASE)
#undef STATUS_CASE
    default:
        return "unknown status";
    }
}

const char *fa2_last_message(void)
{
    return message;
}

/* The functions below format into a local text first, because an argument may be the message itself. The message is
 * already escaped. */

fa2_status fa2i_fail(fa2_status status, const char *format, ...)
{
    assert(status != FA2_OK);
    char text[FA2I_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    fa2i_shown_format(text, sizeof text, message, format, args);
    va_end(args);
    memcpy(message, text, sizeof message);
    return status;
}

void fa2i_message_keep(char ret_kept[FA2I_MESSAGE_BYTES])
{
    memcpy(ret_kept, message, sizeof message);
}

void fa2i_message_put_back(const char kept[FA2I_MESSAGE_BYTES])
{
    memcpy(message, kept, sizeof message);
}

fa2_status fa2i_fail_prefix(fa2_status status, const char *format, ...)
{
    assert(status != FA2_OK);
    char text[FA2I_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    fa2i_shown_format(text, sizeof text, message, format, args);
    va_end(args);
    fa2i_shown_append(text, sizeof text, ": ", true);
    fa2i_shown_append(text, sizeof text, message, true);
    memcpy(message, text, sizeof message);
    return status;
}

fa2_status fa2i_fail_log(fa2_status status, const char *log, const char *format, ...)
{
    assert(status != FA2_OK);
    char text[FA2I_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    fa2i_shown_format(text, sizeof text, message, format, args);
    va_end(args);
    fa2i_shown_append(text, sizeof text, log, true);
    memcpy(message, text, sizeof message);
    return status;
}

const char *fa2i_naming(void)
{
    return naming != NULL ? naming : "--db or FA2_DB";
}

void fa2i_naming_set(const char *words)
{
    naming = words;
}
