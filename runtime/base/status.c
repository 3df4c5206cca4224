/*
 * One message buffer per thread.
 *
 * - message is always NUL-terminated; it holds the last failure of this thread, and keeps it through
 *   later successes (like errno).
 * - A text longer than the buffer is cut; messages with long compiler logs lose their end, not
 *   their beginning, which says what failed.
 */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/status.h"

static _Thread_local char message[FA2I_MESSAGE_BYTES];

const char *fa2_status_string(fa2_status status)
{
    /* int: the caller may pass a number that is no enumerator. */
    switch ((int)status) {
#define STATUS_CASE(name, value, text)                                                             \
    case value:                                                                                    \
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

/* Keep what fits. */
static void set_message(const char *text)
{
    const size_t length = strnlen(text, sizeof message - 1);
    memcpy(message, text, length);
    message[length] = '\0';
}

/* Both functions below format into a text of their own first: an argument may be the message. */

fa2_status fa2i_fail(fa2_status status, const char *format, ...)
{
    assert(status != FA2_OK);
    char text[FA2I_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    set_message(text);
    return status;
}

void fa2i_message_keep(char ret_kept[FA2I_MESSAGE_BYTES])
{
    memcpy(ret_kept, message, sizeof message);
}

void fa2i_message_put_back(const char kept[FA2I_MESSAGE_BYTES])
{
    set_message(kept);
}

fa2_status fa2i_fail_prefix(fa2_status status, const char *format, ...)
{
    assert(status != FA2_OK);
    char text[2 * FA2I_MESSAGE_BYTES + 2]; /* prefix, ": ", message */
    va_list args;
    va_start(args, format);
    vsnprintf(text, FA2I_MESSAGE_BYTES, format, args);
    va_end(args);
    const size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, ": %s", message);
    set_message(text);
    return status;
}
