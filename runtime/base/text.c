/*
 * The buffer grows by doubling, and formatting writes directly into its spare room.
 *
 * - capacity counts the NUL: length < capacity whenever data is not NULL.
 * - A failed growth leaves data unchanged and sets failed. fa2i_text_take reports it.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/text.h"

/* Makes room for `more` bytes and the NUL. Returns false if that failed, now or before. */
static bool reserve(fa2i_text *text, size_t more)
{
    if (text->failed)
        return false;
    if (more < text->capacity - text->length)
        return true;
    size_t capacity = text->capacity < 64 ? 64 : text->capacity;
    while (more >= capacity - text->length) {
        if (capacity > SIZE_MAX / 2) {
            text->failed = 1;
            return false;
        }
        capacity *= 2;
    }
    char *data = fa2i_realloc(text->data, capacity);
    if (data == NULL) {
        text->failed = 1;
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    text->data[text->length] = '\0';
    return true;
}

static void add(fa2i_text *text, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    const int needed = vsnprintf(NULL, 0, format, args);
    if (needed < 0)
        text->failed = 1;
    else if (reserve(text, (size_t)needed)) {
        vsnprintf(text->data + text->length, (size_t)needed + 1, format, again);
        text->length += (size_t)needed;
    }
    va_end(again);
}

void fa2i_text_add(fa2i_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add(text, format, args);
    va_end(args);
}

fa2_status fa2i_text_make(char **ret_string, const char *format, ...)
{
    fa2i_text text = {0};
    va_list args;
    va_start(args, format);
    add(&text, format, args);
    va_end(args);
    return fa2i_text_take(&text, ret_string);
}

void fa2i_text_add_bytes(fa2i_text *text, const char *bytes, size_t count)
{
    if (!reserve(text, count))
        return;
    if (count > 0)
        memcpy(text->data + text->length, bytes, count);
    text->length += count;
    text->data[text->length] = '\0';
}

fa2_status fa2i_text_take(fa2i_text *text, char **ret_string)
{
    if (!reserve(text, 0)) { /* an empty text becomes an empty string, not NULL */
        fa2i_text_done(text);
        return fa2i_fail(FA2_E_MEMORY, "out of memory while building a text");
    }
    *ret_string = text->data;
    *text = (fa2i_text){0};
    return FA2_OK;
}

void fa2i_text_done(fa2i_text *text)
{
    fa2i_free(text->data);
    *text = (fa2i_text){0};
}
