/*
 * - The lock is on the file itself. Another process may replace the file between opening and locking; then it is opened
 *   again.
 * - PATH.new belongs to the process that holds the lock. A killed process may leave it there; the next one overwrites
 *   it.
 * - Counts are merged by sorting, because there are few problems and many calls. Texts from the file stay where they
 *   were read, so a large file takes little more memory than its own size.
 */
#include "runtime/plan/capture_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "runtime/base/alloc.h"
#include "runtime/base/problem.h"
#include "runtime/base/text.h"

enum { LOCK_TRIES = 100, LOCK_NAP_MS = 20, CHUNK_BYTES = 1 << 16 };

static const char calls_header[] = "calls"
#define FA2I_FIELD(name, ...) "," #name
#include "runtime/base/problem.def"
    ;
static const char counters_header[] = "value,counter";

/* ---- counts ---- */

static void free_text(const fa2i_call_counts *counts, char *text)
{
    if (!counts->borrows)
        fa2i_free(text);
}

void fa2i_call_counts_done(fa2i_call_counts *counts)
{
    for (size_t i = 0; i < counts->count; i++)
        free_text(counts, counts->items[i].text);
    fa2i_free(counts->items);
    *counts = (fa2i_call_counts){0};
}

static int by_text(const void *left, const void *right)
{
    const fa2i_call_count *a = left, *b = right;
    return strcmp(a->text, b->text);
}

static int by_calls(const void *left, const void *right)
{
    const fa2i_call_count *a = left, *b = right;
    if (a->calls != b->calls)
        return a->calls > b->calls ? -1 : 1;
    return strcmp(a->text, b->text);
}

/* Sorts, and adds up the counts of equal texts. */
static void merge(fa2i_call_counts *counts)
{
    size_t kept = 0;
    if (counts->count == 0)
        return;
    qsort(counts->items, counts->count, sizeof *counts->items, by_text);
    for (size_t i = 1; i < counts->count; i++) {
        fa2i_call_count *last = &counts->items[kept], *item = &counts->items[i];
        if (strcmp(last->text, item->text) == 0) {
            last->calls = item->calls > UINT64_MAX - last->calls ? UINT64_MAX : last->calls + item->calls;
            free_text(counts, item->text);
        } else {
            counts->items[++kept] = *item;
        }
    }
    counts->count = kept + 1;
}

/* Makes room for one more count. */
static fa2_status make_room(fa2i_call_counts *counts)
{
    const bool full = counts->count == counts->capacity;
    if (full)
        merge(counts);
    if (full && counts->count >= counts->capacity / 2) /* otherwise merging made room for a while */
        return FA2I_GROW(counts->items, counts->capacity + 1, counts->capacity);
    return FA2_OK;
}

/* Takes ownership of the text, even on failure. */
static fa2_status add_text(fa2i_call_counts *counts, char *text, uint64_t calls)
{
    const fa2_status st = make_room(counts);
    if (st != FA2_OK) {
        free_text(counts, text);
        return st;
    }
    counts->items[counts->count++] = (fa2i_call_count){text, calls};
    return FA2_OK;
}

fa2_status fa2i_call_counts_add(fa2i_call_counts *counts, const fa2_problem *problem, uint64_t calls)
{
    fa2i_text text = {0};
    char *row = NULL;
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        char value[FA2I_VALUE_CHARS];
        fa2i_text_add(&text, "%s%s", field == 0 ? "" : ",", fa2i_field_text(problem, field, value));
    }
    const fa2_status st = fa2i_text_take(&text, &row);
    return st == FA2_OK ? add_text(counts, row, calls) : st;
}

/* ---- reading the file ---- */

static fa2_status io_failed(const char *path, const char *what)
{
    return fa2i_fail(FA2_E_IO, "FA2_CAPTURE=%s: %s (%s)", path, what, strerror(errno));
}

static fa2_status not_a_capture(const char *path)
{
    return fa2i_fail(FA2_E_IO,
                     "FA2_CAPTURE=%s: a file of that name exists and is no capture of this fa2; "
                     "name another, or remove it",
                     path);
}

static fa2_status not_a_row(const char *path, size_t line)
{
    return fa2i_fail(FA2_E_IO,
                     "FA2_CAPTURE=%s: line %zu is no row of a capture: the file was cut off or changed there; "
                     "remove the line, or name another file",
                     path, line);
}

/* Reads the lines of the file. Each line end becomes 0, because the counts borrow their texts from the content. */
static fa2_status read_lines(const char *path, const char *header, const fa2i_text *content, fa2i_call_counts *counts)
{
    char *line = content->data;
    const size_t length = strlen(header);
    size_t number = 2;
    if (content->length == 0)
        return FA2_OK;
    if (strncmp(line, header, length) != 0 || line[length] != '\n')
        return not_a_capture(path);
    for (line += length + 1; line < content->data + content->length; number++) {
        char *after = NULL;
        const size_t bytes = strcspn(line, "\n");
        errno = 0;
        const uint64_t calls = strtoull(line, &after, 10);
        if (line[0] < '0' || line[0] > '9' || errno == ERANGE || *after != ',' || line[bytes] != '\n')
            return not_a_row(path, number);
        line[bytes] = '\0';
        const fa2_status st = add_text(counts, after + 1, calls);
        if (st != FA2_OK)
            return st;
        line += bytes + 1;
    }
    return FA2_OK;
}

static fa2_status read_file(const char *path, const char *header, int file, fa2i_text *content,
                            fa2i_call_counts *counts)
{
    char chunk[CHUNK_BYTES];
    fa2_status st = FA2_OK;
    ssize_t bytes = 0;
    while ((bytes = read(file, chunk, sizeof chunk)) > 0 && content->length <= FA2I_CAPTURE_BYTES_MAX)
        fa2i_text_add_bytes(content, chunk, (size_t)bytes);
    if (bytes < 0)
        st = io_failed(path, "it cannot be read");
    else if (content->failed)
        st = fa2i_fail(FA2_E_MEMORY, "no memory to read %s", path);
    else if (content->length > FA2I_CAPTURE_BYTES_MAX)
        st = not_a_capture(path);
    else
        st = read_lines(path, header, content, counts);
    return st;
}

/* ---- the lock ---- */

static bool is_at(const char *path, const struct stat *status)
{
    struct stat now;
    return stat(path, &now) == 0 && now.st_dev == status->st_dev && now.st_ino == status->st_ino;
}

/* Waits for other processes, but not forever: they write within milliseconds. */
static bool lock_file(int file)
{
    const struct timespec nap = {0, LOCK_NAP_MS * 1000000L};
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(file, LOCK_EX | LOCK_NB) == 0)
            return true;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return false;
        nanosleep(&nap, NULL);
    }
    return false;
}

/* Opens and locks the file at this path. On FA2_OK the caller closes *ret_file. */
static fa2_status open_locked(const char *path, int *ret_file, struct stat *ret_status)
{
    for (;;) {
        const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
        if (file < 0)
            return io_failed(path, "it cannot be written");
        fa2_status st = FA2_OK;
        if (fstat(file, ret_status) != 0)
            st = io_failed(path, "it cannot be read");
        else if (!S_ISREG(ret_status->st_mode))
            st = not_a_capture(path);
        else if (!lock_file(file))
            st = io_failed(path, "another process has it locked, or it cannot be locked");
        *ret_file = file;
        if (st == FA2_OK && is_at(path, ret_status))
            return FA2_OK;
        close(file); /* another process replaced it, or an error */
        if (st != FA2_OK)
            return st;
    }
}

/* ---- replacing the file ---- */

static void write_counts(FILE *out, const char *header, fa2i_call_counts *counts)
{
    size_t bytes = strlen(header) + 1;
    if (counts->count > 0)
        qsort(counts->items, counts->count, sizeof *counts->items, by_calls);
    fprintf(out, "%s\n", header);
    for (size_t i = 0; i < counts->count; i++) {
        bytes += strlen(counts->items[i].text) + 24;
        if (bytes > FA2I_CAPTURE_BYTES_MAX)
            break;
        fprintf(out, "%" PRIu64 ",%s\n", counts->items[i].calls, counts->items[i].text);
    }
}

static fa2_status replace(const char *path, const char *header, const char *fresh, mode_t mode,
                          fa2i_call_counts *counts)
{
    fa2_status st = FA2_OK;
    unlink(fresh);
    const int file = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    FILE *out = file < 0 ? NULL : fdopen(file, "w");
    if (out == NULL) {
        st = io_failed(path, "its folder cannot be written");
        if (file >= 0)
            close(file);
        return st;
    }
    (void)fchmod(file, mode);
    write_counts(out, header, counts);
    const bool written = fflush(out) == 0 && ferror(out) == 0;
    if (!written)
        st = io_failed(path, "it cannot be written");
    if (fclose(out) != 0 && st == FA2_OK)
        st = io_failed(path, "it cannot be written");
    if (st == FA2_OK && rename(fresh, path) != 0)
        st = io_failed(path, "it cannot be replaced");
    if (st != FA2_OK)
        unlink(fresh);
    return st;
}

static fa2_status borrow_counts(const fa2i_call_counts *from, fa2i_call_counts *to)
{
    fa2_status st = FA2_OK;
    for (size_t i = 0; st == FA2_OK && i < from->count; i++)
        st = add_text(to, from->items[i].text, from->items[i].calls);
    return st;
}

static fa2_status add_to_file(const char *path, const char *header, const fa2i_call_counts *counts)
{
    fa2_status st = FA2_OK;
    fa2i_call_counts all = {.borrows = true};
    fa2i_text fresh = {0}, content = {0};
    struct stat status;
    int file = -1;
    fa2i_text_add(&fresh, "%s.new", path);
    if (fresh.failed)
        FA2_TRY(fa2i_fail(FA2_E_MEMORY, "no memory for a path"));
    FA2_TRY(open_locked(path, &file, &status));
    FA2_TRY(read_file(path, header, file, &content, &all));
    FA2_TRY(borrow_counts(counts, &all));
    merge(&all);
    FA2_TRY(replace(path, header, fresh.data, status.st_mode & 0777, &all));
done:
    if (file >= 0)
        close(file); /* also releases the lock */
    fa2i_call_counts_done(&all);
    fa2i_text_done(&content);
    fa2i_text_done(&fresh);
    return st;
}

fa2_status fa2i_capture_file_add(const char *path, const fa2i_call_counts *counts)
{
    return add_to_file(path, calls_header, counts);
}

fa2_status fa2i_capture_file_add_counters(const char *path, const uint64_t values[FA2I_COUNTERS])
{
    fa2_status st = FA2_OK;
    fa2i_text file = {0};
    fa2i_call_counts counts = {0};
    fa2i_text_add(&file, "%s.counters", path);
    if (file.failed)
        FA2_TRY(fa2i_fail(FA2_E_MEMORY, "no memory for a path"));
    for (int i = 0; i < FA2I_COUNTERS; i++) {
        char *name = values[i] == 0 ? NULL : fa2i_strdup(fa2i_counter_names[i]);
        if (name == NULL && values[i] != 0)
            FA2_TRY(fa2i_fail(FA2_E_MEMORY, "no memory for a counter"));
        if (name != NULL)
            FA2_TRY(add_text(&counts, name, values[i]));
    }
    st = add_to_file(file.data, counters_header, &counts);
done:
    fa2i_call_counts_done(&counts);
    fa2i_text_done(&file);
    return st;
}
