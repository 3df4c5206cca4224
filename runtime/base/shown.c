/*
 * A sink takes whole characters or whole escapes. After one did not fit, it takes nothing more. Formats are processed
 * one conversion at a time. snprintf writes the numbers, with width and precision as arguments.
 */
#include "runtime/base/shown.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* ---- characters ---- */

/* Returns the number of bytes of the character, or 0 if no valid UTF-8 begins here. */
static size_t decode(const unsigned char *text, size_t left, uint32_t *ret_code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* smallest code of each length; longer forms of it
                                                                   * are invalid */
    const size_t bytes = text[0] < 0x80 ? 1 : text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    uint32_t code = bytes == 1 ? text[0] : text[0] & (0x7fu >> bytes);
    if (bytes > left || (bytes > 1 && text[0] < 0xc0) || text[0] >= 0xf8)
        return 0;
    for (size_t i = 1; i < bytes; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (text[i] & 0x3f);
    }
    if (code < least[bytes] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return 0;
    *ret_code = code;
    return bytes;
}

static bool is_plain(uint32_t code)
{
    const bool control = code < 0x20 || (code >= 0x7f && code <= 0x9f);
    const bool mark = code == 0x61c || code == 0x200e || code == 0x200f;
    return !control && !mark && !(code >= 0x2028 && code <= 0x202e) && !(code >= 0x2066 && code <= 0x2069);
}

size_t fa2i_shown_character(const char *text, size_t left, bool *ret_plain)
{
    uint32_t code = 0;
    const size_t bytes = decode((const unsigned char *)text, left, &code);
    *ret_plain = bytes > 0 && is_plain(code);
    return bytes > 0 ? bytes : 1;
}

bool fa2i_shown_is_plain(const char *text, size_t bytes)
{
    bool plain = true;
    for (size_t at = 0; plain && at < bytes;)
        at += fa2i_shown_character(text + at, bytes - at, &plain);
    return plain;
}

/* ---- escapes ---- */

enum { ESCAPE_BYTES = 12 };

/* Writes the escape of a character that is not plain. */
static void escape(const char *text, size_t left, bool json, char out[ESCAPE_BYTES])
{
    uint32_t code = 0xfffd;
    const bool valid = decode((const unsigned char *)text, left, &code) > 0;
    if (!json && valid && (code == '\n' || code == '\t'))
        snprintf(out, ESCAPE_BYTES, "\\%c", code == '\n' ? 'n' : 't');
    else if (json || (valid && code >= 0x80))
        snprintf(out, ESCAPE_BYTES, "\\u%04x", (unsigned)code); /* all characters that are not plain are at most
                                                                 * U+FFFF */
    else
        snprintf(out, ESCAPE_BYTES, "\\x%02x", (unsigned)(unsigned char)text[0]);
}

/* ---- where shown text goes ---- */

/* A file, a growing text, a buffer that is always NUL-terminated, or nothing. */
typedef struct sink {
    FILE *file;
    fa2i_text *text;
    char *out;
    size_t bytes, used;
    size_t width; /* all characters, also those that did not fit */
    bool full;
    bool json; /* arguments are JSON values */
} sink;

static void put(sink *to, const char *bytes, size_t count)
{
    if (to->file != NULL)
        fwrite(bytes, 1, count, to->file);
    if (to->text != NULL)
        fa2i_text_add_bytes(to->text, bytes, count);
    to->full = to->full || (to->out != NULL && count >= to->bytes - to->used);
    if (to->out == NULL || to->full)
        return;
    memcpy(to->out + to->used, bytes, count);
    to->used += count;
    to->out[to->used] = '\0';
}

static void put_blanks(sink *to, size_t count)
{
    for (; count > 0; count--)
        put(to, " ", 1);
}

/* How a text is written. */
typedef enum manner {
    ESCAPED,
    LINES,   /* escaped, but newlines and tabs stay */
    AS_IT_IS /* whole characters */
} manner;

static void put_text(sink *to, const char *text, size_t bytes, manner how)
{
    for (size_t at = 0; at < bytes;) {
        bool plain = false;
        char escaped[ESCAPE_BYTES];
        const size_t count = fa2i_shown_character(text + at, bytes - at, &plain);
        const bool stays = plain || how == AS_IT_IS || (how == LINES && (text[at] == '\n' || text[at] == '\t'));
        if (!stays)
            escape(text + at, bytes - at, false, escaped);
        put(to, stays ? text + at : escaped, stays ? count : strlen(escaped));
        to->width += stays ? 1 : strlen(escaped);
        at += count;
    }
}

/* ---- formats ---- */

/* One conversion: %[flags][width][.precision][size]kind. */
typedef struct conversion {
    char flags[4];
    int width, precision; /* -1: no precision */
    char size;            /* 0, l, L (ll), z, t or j */
    char kind;
} conversion;

/* Reads a number, or takes the next argument for '*'. */
static int parse_number(const char **at, va_list *args)
{
    int number = 0;
    if (**at == '*') {
        (*at)++;
        return va_arg(*args, int);
    }
    for (; **at >= '0' && **at <= '9'; (*at)++)
        number = 10 * number + (**at - '0');
    return number;
}

/* Returns what follows the conversion. Its '%' lies before at. */
static const char *parse(const char *at, conversion *ret, va_list *args)
{
    conversion c = {.precision = -1};
    for (size_t i = 0; *at != '\0' && strchr("-+ #0", *at) != NULL && i < sizeof c.flags - 1; i++)
        c.flags[i] = *at++;
    c.width = parse_number(&at, args);
    if (*at == '.') {
        at++;
        c.precision = parse_number(&at, args);
    }
    for (; *at != '\0' && strchr("lzjt", *at) != NULL; at++)
        c.size = c.size == 'l' ? 'L' : *at;
    c.kind = *at;
    *ret = c;
    return at + (*at != '\0');
}

static void put_string(sink *to, const conversion *c, const char *text, const char *as_it_is)
{
    const size_t most = c->precision < 0 ? SIZE_MAX : (size_t)c->precision;
    const char *shown = text == NULL ? "(null)" : text;
    const size_t bytes = strnlen(shown, most);
    const manner how = text != NULL && text == as_it_is ? AS_IT_IS : ESCAPED;
    const size_t wide = (size_t)(c->width < 0 ? -c->width : c->width);
    sink counting = {.file = NULL};
    put_text(&counting, shown, bytes, how);
    const size_t blanks = wide > counting.width ? wide - counting.width : 0;
    const bool left = c->width < 0 || strchr(c->flags, '-') != NULL;
    put_blanks(to, left ? 0 : blanks);
    put_text(to, shown, bytes, how);
    put_blanks(to, left ? blanks : 0);
}

/* Puts text as JSON with only plain characters; others are escaped. string: text is the inside of a string, and its
 * quotes and backslashes are not escaped yet. */
static void put_json(sink *to, const char *text, size_t bytes, bool string)
{
    for (size_t at = 0; at < bytes;) {
        bool plain = false;
        char escaped[ESCAPE_BYTES];
        const size_t count = fa2i_shown_character(text + at, bytes - at, &plain);
        if (string && (text[at] == '"' || text[at] == '\\'))
            put(to, "\\", 1);
        if (!plain)
            escape(text + at, bytes - at, true, escaped);
        put(to, plain ? text + at : escaped, plain ? count : strlen(escaped));
        at += count;
    }
}

const char fa2i_json_null[] = "null"; /* compilers warn of a NULL that they see at a %s */

static void put_json_string(sink *to, const conversion *c, const char *text)
{
    const bool is_null = text == NULL || text == fa2i_json_null;
    const char *shown = is_null ? fa2i_json_null : text;
    put(to, "\"", !is_null);
    put_json(to, shown, is_null || c->precision < 0 ? strlen(shown) : strnlen(shown, (size_t)c->precision), true);
    put(to, "\"", !is_null);
}

static void put_whole(sink *to, const conversion *c, va_list *args)
{
    char format[16], number[64];
    const bool is_signed = c->kind == 'd' || c->kind == 'i';
    intmax_t value = 0;
    if (c->size == 0)
        value = is_signed ? va_arg(*args, int) : (intmax_t)va_arg(*args, unsigned);
    else if (c->size == 'L')
        value = is_signed ? va_arg(*args, long long) : (intmax_t)va_arg(*args, unsigned long long);
    else if (c->size == 'j')
        value = va_arg(*args, intmax_t);
    else /* long, size_t and ptrdiff_t have the same size on all systems of fa2 */
        value = is_signed ? va_arg(*args, long) : (intmax_t)va_arg(*args, unsigned long);
    snprintf(format, sizeof format, "%%%s*.*j%c", c->flags, c->kind);
    snprintf(number, sizeof number, format, c->width, c->precision, value);
    put(to, number, strlen(number));
}

static void put_real(sink *to, const conversion *c, va_list *args)
{
    char format[16], number[400]; /* %f of the largest double has 309 digits */
    snprintf(format, sizeof format, "%%%s*.*%c", c->flags, c->kind);
    const double value = va_arg(*args, double);
    snprintf(number, sizeof number, format, c->width, c->precision, value);
    if (to->json && !isfinite(value))
        snprintf(number, sizeof number, "null");
    put(to, number, strlen(number));
}

static void put_argument(sink *to, const conversion *c, va_list *args, const char *as_it_is)
{
    switch (c->kind) {
    case '%':
        put(to, "%", 1);
        break;
    case 's':
        if (to->json)
            put_json_string(to, c, va_arg(*args, const char *));
        else
            put_string(to, c, va_arg(*args, const char *), as_it_is);
        break;
    case 'c': {
        const char character = (char)va_arg(*args, int);
        put_text(to, &character, 1, ESCAPED);
        break;
    }
    case 'p': {
        char address[32];
        snprintf(address, sizeof address, "%p", va_arg(*args, void *));
        put(to, address, strlen(address));
        break;
    }
    case 'i':
        if (to->json) {
            const char *truth = va_arg(*args, int) != 0 ? "true" : "false";
            put(to, truth, strlen(truth));
            break;
        }
        put_whole(to, c, args);
        break;
    case 'd':
    case 'u':
    case 'x':
        put_whole(to, c, args);
        break;
    default:
        assert(c->kind != '\0' && strchr("eEfgG", c->kind) != NULL && "a conversion that is not known here");
        put_real(to, c, args);
    }
}

static void put_format(sink *to, const char *as_it_is, const char *format, va_list args)
{
    va_list rest; /* a parameter may be an array, whose address has another type */
    va_copy(rest, args);
    while (*format != '\0') {
        const size_t literal = strcspn(format, to->json ? "%'" : "%");
        put_text(to, format, literal, AS_IT_IS);
        format += literal;
        if (*format == '\'') {
            put(to, "\"", 1);
            format++;
        } else if (*format == '%') {
            conversion c;
            format = parse(format + 1, &c, &rest);
            put_argument(to, &c, &rest, as_it_is);
        }
    }
    va_end(rest);
}

void fa2i_shown_format(char *out, size_t out_bytes, const char *as_it_is, const char *format, va_list args)
{
    sink to = {.out = out, .bytes = out_bytes};
    out[0] = '\0';
    put_format(&to, as_it_is, format, args);
}

void fa2i_shown_write(char *out, size_t out_bytes, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fa2i_shown_format(out, out_bytes, NULL, format, args);
    va_end(args);
}

void fa2i_shown_vprint(FILE *out, const char *format, va_list args)
{
    sink to = {.file = out};
    put_format(&to, NULL, format, args);
}

void fa2i_shown_print(FILE *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fa2i_shown_vprint(out, format, args);
    va_end(args);
}

void fa2i_shown_append(char *out, size_t out_bytes, const char *text, bool lines)
{
    sink to = {.out = out, .bytes = out_bytes, .used = strlen(out)};
    put_text(&to, text, strlen(text), lines ? LINES : ESCAPED);
}

void fa2i_shown_add(fa2i_text *out, const char *text)
{
    sink to = {.text = out};
    put_text(&to, text, strlen(text), ESCAPED);
}

/* ---- JSON ---- */

void fa2i_json_write(FILE *out, const char *format, ...)
{
    sink to = {.file = out, .json = true};
    va_list args;
    va_start(args, format);
    put_format(&to, NULL, format, args);
    va_end(args);
}

void fa2i_json_add(fa2i_text *out, const char *json)
{
    sink to = {.text = out};
    put_json(&to, json, strlen(json), false);
}

void fa2i_json_print(FILE *out, const char *json)
{
    sink to = {.file = out};
    put_json(&to, json, strlen(json), false);
}
