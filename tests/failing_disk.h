/*
 * A disk that fails on request: SQLite's files go through this layer, a VFS on top of the default one.
 *
 * disk_begin makes every later opened database use it. disk_reset ends all failures.
 * Not thread-safe.
 */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <stdlib.h>
#include "check.h"

typedef struct disk_state {
    long room;    /* bytes by which files may still grow; negative: unlimited */
    long calls;   /* reads, writes, truncations, synchronisations, openings and deletions so far */
    long fail_at; /* the number of the call that fails; if `stays`, all later calls fail, too; 0: none */
    bool stays;
    int code;      /* the error of failing calls */
    long sleeps;   /* how often SQLite slept while it waited for a lock */
    long slept_ms; /* the sum of these sleeps; no real time passes */
    sqlite3_vfs vfs, *below;
    sqlite3_io_methods methods;
} disk_state;

static disk_state disk;

typedef struct disk_file {
    sqlite3_file base;
    sqlite3_file *below;
} disk_file;

static inline sqlite3_file *disk_below(sqlite3_file *file)
{
    return ((disk_file *)file)->below;
}

static inline void disk_reset(void)
{
    disk.room = -1;
    disk.calls = disk.fail_at = disk.sleeps = disk.slept_ms = 0;
    disk.stays = false;
    disk.code = SQLITE_IOERR;
}

/* Counts a call. Returns true if it fails. */
static inline bool disk_fails(void)
{
    disk.calls++;
    return disk.fail_at > 0 && (disk.calls == disk.fail_at || (disk.stays && disk.calls > disk.fail_at));
}

static int disk_close(sqlite3_file *file)
{
    const int code = disk_below(file)->pMethods->xClose(disk_below(file));
    free(disk_below(file));
    return code;
}

static int disk_read(sqlite3_file *file, void *data, int bytes, sqlite3_int64 at)
{
    return disk_fails() ? disk.code : disk_below(file)->pMethods->xRead(disk_below(file), data, bytes, at);
}

static int disk_write(sqlite3_file *file, const void *data, int bytes, sqlite3_int64 at)
{
    sqlite3_int64 size = 0;
    if (disk_fails())
        return disk.code;
    const int code = disk_below(file)->pMethods->xFileSize(disk_below(file), &size);
    const long grows = at + bytes > size ? (long)(at + bytes - size) : 0;
    if (code != SQLITE_OK || (disk.room >= 0 && grows > disk.room))
        return code != SQLITE_OK ? code : SQLITE_FULL;
    if (disk.room >= 0)
        disk.room -= grows;
    return disk_below(file)->pMethods->xWrite(disk_below(file), data, bytes, at);
}

static int disk_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    return disk_fails() ? disk.code : disk_below(file)->pMethods->xTruncate(disk_below(file), size);
}

/* Takes no time, because no test needs to survive a power cut. */
static int disk_sync(sqlite3_file *file, int flags)
{
    (void)file, (void)flags;
    return disk_fails() ? disk.code : SQLITE_OK;
}

static int disk_size(sqlite3_file *file, sqlite3_int64 *size)
{
    return disk_below(file)->pMethods->xFileSize(disk_below(file), size);
}

static int disk_lock(sqlite3_file *file, int level)
{
    return disk_below(file)->pMethods->xLock(disk_below(file), level);
}

static int disk_unlock(sqlite3_file *file, int level)
{
    return disk_below(file)->pMethods->xUnlock(disk_below(file), level);
}

static int disk_check_lock(sqlite3_file *file, int *reserved)
{
    return disk_below(file)->pMethods->xCheckReservedLock(disk_below(file), reserved);
}

static int disk_control(sqlite3_file *file, int op, void *value)
{
    return disk_below(file)->pMethods->xFileControl(disk_below(file), op, value);
}

static int disk_sector(sqlite3_file *file)
{
    return disk_below(file)->pMethods->xSectorSize(disk_below(file));
}

static int disk_kind(sqlite3_file *file)
{
    return disk_below(file)->pMethods->xDeviceCharacteristics(disk_below(file));
}

static int disk_open(sqlite3_vfs *vfs, sqlite3_filename name, sqlite3_file *file, int flags, int *ret_flags)
{
    disk_file *opened = (disk_file *)file;
    (void)vfs;
    file->pMethods = NULL;
    if (disk_fails())
        return SQLITE_CANTOPEN;
    opened->below = calloc(1, (size_t)disk.below->szOsFile);
    CHECK(opened->below != NULL);
    const int code = disk.below->xOpen(disk.below, name, opened->below, flags, ret_flags);
    if (code == SQLITE_OK)
        file->pMethods = &disk.methods;
    else
        free(opened->below);
    return code;
}

static int disk_delete(sqlite3_vfs *vfs, const char *name, int sync)
{
    (void)vfs;
    return disk_fails() ? SQLITE_IOERR_DELETE : disk.below->xDelete(disk.below, name, sync);
}

static int disk_sleep(sqlite3_vfs *vfs, int us)
{
    (void)vfs;
    disk.sleeps++;
    disk.slept_ms += us / 1000;
    return us;
}

static inline void disk_begin(void)
{
    disk.below = sqlite3_vfs_find(NULL);
    disk.vfs = *disk.below;
    disk.vfs.zName = "failing disk";
    disk.vfs.szOsFile = (int)sizeof(disk_file);
    disk.vfs.xOpen = disk_open;
    disk.vfs.xDelete = disk_delete;
    disk.vfs.xSleep = disk_sleep;
    disk.methods = (sqlite3_io_methods){.iVersion = 1, /* no shared memory, therefore no write-ahead log */
                                        .xClose = disk_close,
                                        .xRead = disk_read,
                                        .xWrite = disk_write,
                                        .xTruncate = disk_truncate,
                                        .xSync = disk_sync,
                                        .xFileSize = disk_size,
                                        .xLock = disk_lock,
                                        .xUnlock = disk_unlock,
                                        .xCheckReservedLock = disk_check_lock,
                                        .xFileControl = disk_control,
                                        .xSectorSize = disk_sector,
                                        .xDeviceCharacteristics = disk_kind};
    disk_reset();
    CHECK_EQ(sqlite3_vfs_register(&disk.vfs, 1), SQLITE_OK);
}
