/*
 * A table of the wanted faults, with the number of occasions of each kind. The shared file holds an 8-byte count per
 * kind, under a record lock.
 */
#include "faults.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[SIM_FAULTS] = {"alloc", "load", "fault", "hang", "wrong", "lost", "memory"};
static int64_t wanted[SIM_FAULTS];
static int64_t counts[SIM_FAULTS];
static int shared_file = -1; /* -1: this process counts alone */

bool sim_number_read(const char *text, size_t length, int64_t *ret_number)
{
    char *end = NULL;
    if (text[0] < '0' || text[0] > '9') /* strtoll also takes blanks and signs */
        return false;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (end != text + length || errno != 0 || number <= 0)
        return false;
    *ret_number = number;
    return true;
}

/* Reads "kind=n". Returns false if it is invalid, or the kind was given before. */
static bool read_part(const char *part, size_t length)
{
    for (int kind = 0; kind < SIM_FAULTS; kind++) {
        const size_t name = strlen(names[kind]);
        if (length > name && memcmp(part, names[kind], name) == 0 && part[name] == '=')
            return wanted[kind] == 0 && sim_number_read(part + name + 1, length - name - 1, &wanted[kind]);
    }
    return false;
}

/* Writes what is wrong with this part of the list, and the form of a list. */
static void explain(const char *list, const char *part, size_t length, char *message, size_t bytes)
{
    static const char format[] = "FA2_SIM_FAULT=%s: '%.*s' is not understood; it is one or more, each once, of";
    int used = snprintf(message, bytes, format, list, (int)length, part);
    for (int kind = 0; kind < SIM_FAULTS && (size_t)used < bytes; kind++)
        used += snprintf(message + used, bytes - (size_t)used, "%s %s=N", kind > 0 ? "," : "", names[kind]);
}

static bool read_faults(const char *text, char *message, size_t bytes)
{
    for (const char *at = text;; at++) {
        const size_t length = strcspn(at, ",");
        if (!read_part(at, length)) {
            explain(text, at, length, message, bytes);
            return false;
        }
        at += length;
        if (*at == '\0')
            return true;
    }
}

static bool open_counts(const char *path, char *message, size_t bytes)
{
    shared_file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (shared_file < 0)
        snprintf(message, bytes, "FA2_SIM_FAULT_COUNTS=%s: %s", path, strerror(errno));
    return shared_file >= 0;
}

bool sim_faults_read(char *message, size_t bytes)
{
    const char *faults = getenv("FA2_SIM_FAULT");
    const char *path = getenv("FA2_SIM_FAULT_COUNTS");
    memset(wanted, 0, sizeof wanted);
    memset(counts, 0, sizeof counts);
    if (shared_file >= 0)
        close(shared_file);
    shared_file = -1;
    if (faults != NULL && faults[0] != '\0' && !read_faults(faults, message, bytes))
        return false;
    return path == NULL || path[0] == '\0' || open_counts(path, message, bytes);
}

/* Counts this occasion. Returns the count of its kind over all processes. */
static int64_t shared_count(sim_fault kind)
{
    const off_t at = (off_t)(kind * sizeof(int64_t));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 8};
    int64_t count = 0;
    if (fcntl(shared_file, F_SETLKW, &lock) != 0)
        return 0;
    if (pread(shared_file, &count, sizeof count, at) != (ssize_t)sizeof count)
        count = 0;
    count++;
    if (pwrite(shared_file, &count, sizeof count, at) != (ssize_t)sizeof count)
        count = 0;
    lock.l_type = F_UNLCK;
    (void)fcntl(shared_file, F_SETLK, &lock);
    return count;
}

bool sim_fault_due(sim_fault kind)
{
    if (wanted[kind] == 0)
        return false;
    const int64_t count = shared_file >= 0 ? shared_count(kind) : ++counts[kind];
    return count == wanted[kind];
}

int64_t sim_fault_number(sim_fault kind)
{
    return wanted[kind];
}
