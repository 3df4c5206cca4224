#include "tuner/report/terminal.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "runtime/base/environment.h"

enum { COLUMNS_DEFAULT = 80, COLUMNS_LEAST = 40 };

size_t fa2i_terminal_width(FILE *out)
{
    struct winsize size;
    const int descriptor = fileno(out);
    if (descriptor < 0 || isatty(descriptor) != 1)
        return 0;
    if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return COLUMNS_DEFAULT;
    return size.ws_col < COLUMNS_LEAST ? COLUMNS_LEAST : size.ws_col;
}

/* Returns true for a terminal, unless NO_COLOR is set and not empty (no-color.org), or TERM is dumb. */
static bool has_colours(FILE *out)
{
    const char *no_colour = fa2i_environment("NO_COLOR"), *term = fa2i_environment("TERM");
    return fa2i_terminal_width(out) > 0 && no_colour == NULL && (term == NULL || strcmp(term, "dumb") != 0);
}

void fa2i_terminal_begin(FILE *out, fa2i_style style)
{
    static const char *const codes[] = {
        [FA2I_STYLE_HEAD] = "\033[1m", [FA2I_STYLE_GOOD] = "\033[32m", [FA2I_STYLE_BAD] = "\033[31m"};
    if (style != FA2I_STYLE_PLAIN && has_colours(out))
        fputs(codes[style], out);
}

void fa2i_terminal_end(FILE *out, fa2i_style style)
{
    if (style != FA2I_STYLE_PLAIN && has_colours(out))
        fputs("\033[0m", out);
}

/* Returns how many bytes fit on a line of this width: up to the last blank that fits, or the first one if none does. */
static size_t fitting(const char *text, size_t bytes, size_t width)
{
    if (bytes <= width)
        return bytes;
    for (size_t cut = width; cut > 0; cut--)
        if (text[cut] == ' ')
            return cut;
    const char *blank = memchr(text, ' ', bytes);
    return blank == NULL ? bytes : (size_t)(blank - text);
}

void fa2i_terminal_fold(FILE *out, const char *text, size_t bytes, size_t width, size_t used, size_t indent)
{
    while (bytes > 0) {
        const size_t part = fitting(text, bytes, width - used);
        const size_t taken = part + (part < bytes);
        fprintf(out, "%.*s", (int)part, text);
        text += taken;
        bytes -= taken;
        if (bytes > 0)
            fprintf(out, "\n%*s", (int)indent, "");
        used = indent;
    }
}

static void print_line(FILE *out, const char *text, size_t bytes, size_t width, size_t indent)
{
    const bool labelled = bytes > indent && text[0] != ' ' && text[indent - 1] == ' ' && text[indent] != ' ';
    const size_t label = labelled ? indent : 0;
    if (labelled) {
        fa2i_terminal_begin(out, FA2I_STYLE_HEAD);
        fprintf(out, "%.*s", (int)indent, text);
        fa2i_terminal_end(out, FA2I_STYLE_HEAD);
    }
    fa2i_terminal_fold(out, text + label, bytes - label, width, label, indent);
    fputc('\n', out);
}

void fa2i_terminal_print_lines(FILE *out, const char *text, size_t indent)
{
    const size_t width = fa2i_terminal_width(out);
    if (width == 0) {
        fputs(text, out);
        return;
    }
    while (*text != '\0') {
        const size_t bytes = strcspn(text, "\n");
        print_line(out, text, bytes, width, indent);
        text += bytes + (text[bytes] == '\n');
    }
}
