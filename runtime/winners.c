/*
 * The time of the last write to the file stands for its content.
 *
 * - The time is taken before the winners are read: a write in between shows at the next update.
 * - File times are coarse: two writes within a tick have one time. So a time is trusted only when
 *   it is SETTLED_NS old; until then each update reads.
 * - In SQLite's WAL mode, writes go to a file beside the database.
 */
#include "runtime/winners.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "runtime/base/alloc.h"
#include "runtime/launch.h" /* FA2I_LAUNCH_ABI */

#define SECOND_NS  INT64_C(1000000000)
#define SETTLED_NS SECOND_NS

enum { PATH_BYTES = 4096 + sizeof "-wal" };

static int64_t in_ns(struct timespec time)
{
    return time.tv_sec * SECOND_NS + time.tv_nsec;
}

/* 0 when it cannot be found out. */
static int64_t last_write_ns(const char *database)
{
    char log[PATH_BYTES];
    struct stat file, log_file;

    if (stat(database, &file) != 0)
        return 0;
    const int64_t file_ns = in_ns(file.st_mtim);
    snprintf(log, sizeof(log), "%s-wal", database);
    if (stat(log, &log_file) != 0)
        return file_ns;
    const int64_t log_ns = in_ns(log_file.st_mtim);
    return log_ns > file_ns ? log_ns : file_ns;
}

static bool is_settled(int64_t written_ns)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    return in_ns(now) - written_ns >= SETTLED_NS;
}

fa2_status fa2i_winners_update(fa2i_winners *winners, fa2i_cache *cache, int arch,
                               const fa2_problem *problem)
{
    const int64_t written_ns = last_write_ns(fa2i_cache_path(cache));
    if (written_ns != 0 && written_ns == winners->written_ns)
        return FA2_OK;
    fa2i_winners_done(winners);
    fa2_status st = fa2i_cache_choices(cache, arch, problem, FA2I_LAUNCH_ABI, &winners->choices,
                                       &winners->count);
    if (st == FA2_OK && is_settled(written_ns))
        winners->written_ns = written_ns;
    return st;
}

void fa2i_winners_drop(fa2i_winners *winners, const fa2i_key *kernel, bool for_now)
{
    size_t kept = 0;
    for (size_t i = 0; i < winners->count; i++)
        if (memcmp(&winners->choices[i].winner.kernel, kernel, sizeof(*kernel)) != 0)
            winners->choices[kept++] = winners->choices[i];
    winners->count = kept;
    if (for_now)
        winners->written_ns = 0;
}

void fa2i_winners_done(fa2i_winners *winners)
{
    fa2i_free(winners->choices);
    *winners = (fa2i_winners){0};
}
