/*
 * The locks belong to the open file description (F_OFD_SETLK). A process would lose POSIX locks whenever it closed any
 * descriptor of the file, and its threads would share them with other caches.
 *
 * A process that holds a lock on the whole file removes it. A process that opened it just before then locks a file that
 * has no path any more. It notices this by the link count, after it got the lock.
 */
#define _GNU_SOURCE /* F_OFD_SETLK */
#include "cache/content/claims.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cache/database/trust.h"
#include "runtime/base/alloc.h"
#include "runtime/base/shown.h"

/* Locks one byte for each work or, if bytes is 0, the whole file. */
static bool lock_bytes(int file, short type, off_t start, off_t bytes)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = bytes};
    return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

static off_t place_of(const fa2i_key *work)
{
    uint64_t place = 0;
    memcpy(&place, work->bytes, sizeof place);
    return (off_t)(place >> 2); /* far from the end of off_t */
}

/* Returns PATH-claims, or NULL. The result belongs to the caller (fa2i_free). */
static char *path_of(fa2i_cache *cache)
{
    const char *database = sqlite3_db_filename(cache->db, "main");
    if (database == NULL || database[0] == '\0') /* no file: no other process works on it */
        return NULL;
    const size_t bytes = strlen(database) + sizeof FA2I_CLAIMS_SUFFIX;
    char *path = fa2i_alloc(bytes);
    if (path != NULL)
        snprintf(path, bytes, "%s" FA2I_CLAIMS_SUFFIX, database);
    return path;
}

static void say(const fa2i_cache *cache, const char *text)
{
    if (cache->log != NULL)
        cache->log(cache->log_user, text);
}

/* Another user who may lock the file could make every process wait. So this process does not use such a file, and tells
 * the log. */
static bool is_trusted(const fa2i_cache *cache, const char *path, int file)
{
    char text[FA2I_MESSAGE_BYTES + 64];
    struct stat info;
    if (fstat(file, &info) == 0 && fa2i_trust_file(cache->path, path, &info) == FA2_OK)
        return true;
    fa2i_shown_write(text, sizeof text, "work is not shared with other processes, remove %s: %s", path,
                     fa2_last_message());
    say(cache, text);
    return false;
}

static int open_file(fa2i_cache *cache)
{
    char *path = path_of(cache);
    int file = path == NULL ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (file >= 0 && !is_trusted(cache, path, file)) {
        close(file);
        file = -1;
    }
    fa2i_free(path);
    return file;
}

static bool is_removed(int file)
{
    struct stat status;
    return fstat(file, &status) != 0 || status.st_nlink == 0;
}

/* Call it under the mutex. */
static bool claim(fa2i_cache *cache, off_t place)
{
    enum { TRIES = 8 }; /* the file is removed only when a cache is closed */
    for (int i = 0; i < TRIES; i++) {
        if (cache->claims == 0) {
            const int file = open_file(cache);
            cache->claims = file < 0 ? -1 : file + 1;
        }
        if (cache->claims < 0)
            return true;
        const int file = cache->claims - 1;
        const bool taken = !lock_bytes(file, F_WRLCK, place, 1) && (errno == EAGAIN || errno == EACCES);
        if (!is_removed(file))
            return !taken;
        close(file);
        cache->claims = 0;
    }
    return true;
}

bool fa2i_cache_claim(fa2i_cache *cache, const fa2i_key *work)
{
    pthread_mutex_lock(&cache->claims_mutex);
    const bool mine = claim(cache, place_of(work));
    pthread_mutex_unlock(&cache->claims_mutex);
    return mine;
}

void fa2i_cache_unclaim(fa2i_cache *cache, const fa2i_key *work)
{
    pthread_mutex_lock(&cache->claims_mutex);
    if (cache->claims > 0)
        (void)lock_bytes(cache->claims - 1, F_UNLCK, place_of(work), 1);
    pthread_mutex_unlock(&cache->claims_mutex);
}

void fa2i_cache_say_waiting(fa2i_cache *cache, const char *what)
{
    char text[FA2I_MESSAGE_BYTES];
    pthread_mutex_lock(&cache->claims_mutex);
    if (!cache->claims_told) {
        snprintf(text, sizeof text, "waiting for another process, which is %s with this database: it has locked %s%s",
                 what, sqlite3_db_filename(cache->db, "main"), FA2I_CLAIMS_SUFFIX);
        say(cache, text);
    }
    cache->claims_told = true;
    pthread_mutex_unlock(&cache->claims_mutex);
}

void fa2i_claims_close(fa2i_cache *cache)
{
    if (cache->claims > 0) {
        char *path = lock_bytes(cache->claims - 1, F_WRLCK, 0, 0) ? path_of(cache) : NULL;
        if (path != NULL && !is_removed(cache->claims - 1))
            unlink(path);
        fa2i_free(path);
        close(cache->claims - 1);
    }
    cache->claims = 0;
}
