/*
 * On a terminal one line is rewritten, at most ten times a second. Elsewhere (a log file) a plain line comes every five
 * seconds.
 *
 * The time left. Items have different and unknown sizes. So the past only predicts the rest if the pace was even: the
 * pace before and after a point in its middle must agree. That point is the last power of two but one, so two marks are
 * enough.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "tuner/report/progress.h"
#include "runtime/base/shown.h"
#include "tuner/report/terminal.h"

#define TERMINAL_INTERVAL_S 0.1
#define PLAIN_INTERVAL_S    5.0
#define EVEN                1.5 /* paces may differ by this factor */
#define TELLING_S           1.0 /* a shorter time may be only the start of something else */

enum { LINE_BYTES = 512, TELLING_ITEMS = 8 };

void fa2i_nap(void)
{
    const struct timespec time = {.tv_nsec = 50000000};
    nanosleep(&time, NULL);
}

void fa2i_progress_begin(fa2i_progress *progress, const char *what, size_t total)
{
    const double now = fa2i_now_s();
    *progress = (fa2i_progress){
        .what = what, .total = total, .started_s = now, .printed_s = now, .terminal = fa2i_terminal_width(stderr) > 0};
}

void fa2i_progress_count(fa2i_progress *progress, double now)
{
    progress->done++;
    if (progress->total < progress->done)
        progress->total = progress->done;
    if ((progress->done & (progress->done - 1)) != 0)
        return;
    progress->middle = progress->mark;
    progress->middle_s = progress->mark_s;
    progress->mark = progress->done;
    progress->mark_s = now;
}

double fa2i_progress_left(const fa2i_progress *progress, double now)
{
    if (progress->done < TELLING_ITEMS || now - progress->started_s < TELLING_S)
        return -1;
    const double before = (progress->middle_s - progress->started_s) / (double)progress->middle;
    const double after = (now - progress->middle_s) / (double)(progress->done - progress->middle);
    if (before > EVEN * after || after > EVEN * before)
        return -1;
    return after * (double)(progress->total - progress->done);
}

void fa2i_progress_drop(fa2i_progress *progress, size_t items)
{
    progress->total -= items;
}

const char *fa2i_plural(size_t count)
{
    return count == 1 ? "" : "s";
}

static void close_line(fa2i_progress *progress)
{
    if (progress->line_open)
        fputs("\r\033[K", stderr);
    progress->line_open = false;
}

static void print_line(fa2i_progress *progress, const char *detail, double now)
{
    char line[LINE_BYTES];
    const double left = fa2i_progress_left(progress, now);
    int used = snprintf(line, sizeof line, "%s %zu/%zu, %.0f s", progress->what, progress->done, progress->total,
                        now - progress->started_s);
    if (left >= 0 && used > 0 && (size_t)used < sizeof line)
        used += snprintf(line + used, sizeof line - (size_t)used, ", about %.0f s left", left);
    if (detail != NULL && used > 0 && (size_t)used < sizeof line)
        snprintf(line + used, sizeof line - (size_t)used, "  %s", detail);
    close_line(progress);
    if (progress->terminal) {
        /* One column less than the terminal has: a full line would wrap and could not be rewritten. */
        fa2i_shown_print(stderr, "%.*s", (int)fa2i_terminal_width(stderr) - 1, line);
        progress->line_open = true;
    } else {
        fa2i_shown_print(stderr, "%s\n", line);
    }
    fflush(stderr);
    progress->printed_s = now;
}

void fa2i_progress_step(fa2i_progress *progress, const char *detail)
{
    const double now = fa2i_now_s();
    const double interval = progress->terminal ? TERMINAL_INTERVAL_S : PLAIN_INTERVAL_S;
    fa2i_progress_count(progress, now);
    if (now - progress->printed_s >= interval)
        print_line(progress, detail, now);
}

void fa2i_progress_end(fa2i_progress *progress)
{
    close_line(progress);
    fprintf(stderr, "%s %zu/%zu done in %.1f s\n", progress->what, progress->done, progress->total,
            fa2i_now_s() - progress->started_s);
}

void fa2i_note(fa2i_progress *progress, const char *format, ...)
{
    va_list args;
    close_line(progress);
    va_start(args, format);
    fa2i_shown_vprint(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}
