/*
 * A table of what is wanted and how often each kind had its occasion. The shared file holds one
 * 8-byte count per kind, under a record lock.
 */
#include "faults.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[SIM_FAULTS] = {"alloc", "load", "fault", "hang",
                                              "wrong", "lost", "memory"};
static int64_t wanted[SIM_FAULTS];
static int64_t counts[SIM_FAULTS];
static const char *shared_path;

static bool read_part(const char *part, size_t length)
{
    const char *equals = memchr(part, '=', length);
    if (equals == NULL)
        return false;
    for (int kind = 0; kind < SIM_FAULTS; kind++) {
        const size_t name_length = strlen(names[kind]);
        if ((size_t)(equals - part) != name_length || memcmp(part, names[kind], name_length) != 0)
            continue;
        char *end = NULL;
        wanted[kind] = strtoll(equals + 1, &end, 10);
        return end == part + length && wanted[kind] > 0;
    }
    return false;
}

bool sim_faults_read(const char **ret_part)
{
    const char *at = getenv("FA2_SIM_FAULT");
    shared_path = getenv("FA2_SIM_FAULT_COUNTS");
    memset(wanted, 0, sizeof wanted);
    memset(counts, 0, sizeof counts);
    while (at != NULL && *at != '\0') {
        const size_t length = strcspn(at, ",");
        if (!read_part(at, length)) {
            *ret_part = at;
            return false;
        }
        at += length + (at[length] == ',');
    }
    return true;
}

/* The count of a kind over all processes; this occasion is in it. */
static int64_t shared_count(sim_fault kind)
{
    const off_t at = (off_t)(kind * sizeof(int64_t));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 8};
    int64_t count = 0;
    const int file = open(shared_path, O_RDWR | O_CREAT, 0600);
    if (file < 0)
        return 0;
    if (fcntl(file, F_SETLKW, &lock) == 0) {
        if (pread(file, &count, sizeof count, at) != (ssize_t)sizeof count)
            count = 0;
        count++;
        if (pwrite(file, &count, sizeof count, at) != (ssize_t)sizeof count)
            count = 0;
    }
    close(file); /* and with it the lock */
    return count;
}

bool sim_fault_due(sim_fault kind)
{
    if (wanted[kind] == 0)
        return false;
    const int64_t count = shared_path != NULL ? shared_count(kind) : ++counts[kind];
    return count == wanted[kind];
}

int64_t sim_fault_number(sim_fault kind)
{
    return wanted[kind];
}
