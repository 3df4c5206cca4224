/*
 * Opening in folders that others can write. They put files beside the database, or replace it. Most attacks need no
 * second user, because the mode of the folder decides. The others need root; without it they are skipped with a
 * message.
 */
#define _GNU_SOURCE /* F_OFD_SETLK, syscall */
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include "cache/content/claims.h"
#include "cache/internal.h"
#include "cache_fixture.h"

enum { OWN = 13000, THEIRS = 66660, STRANGER = 12345, NOBODY = 65534 }; /* the first two: versions of NVRTC */

static const char *inside(const fixture *f, const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    return path;
}

static void copy_file(const char *from, const char *to)
{
    static char bytes[1 << 20];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    CHECK(in != NULL && out != NULL);
    const size_t count = fread(bytes, 1, sizeof bytes, in);
    CHECK(count > 0 && count < sizeof bytes && fwrite(bytes, 1, count, out) == count);
    CHECK(fclose(in) == 0 && fclose(out) == 0);
    CHECK_EQ(chmod(to, 0600), 0);
}

/* Creates a database with one kernel. */
static void make_database(const char *path)
{
    const fa2i_kernel kernel = sample_kernel(1);
    fa2i_cache *cache = fixture_open(path);
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
    fa2i_cache_close(cache);
}

/* Creates a database with the attacker's kernel, in a log if wanted. */
static sqlite3 *change_kernel(const char *path, bool log)
{
    sqlite3 *db = NULL;
    char sql[100];
    snprintf(sql, sizeof sql, "%s; UPDATE kernel SET nvrtc = %d", log ? "PRAGMA journal_mode = WAL" : "", THEIRS);
    CHECK_EQ(sqlite3_open(path, &db), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    return db;
}

/* Returns OWN or THEIRS. */
static int kernel_of(fa2i_cache *cache)
{
    fa2i_kernel found = {0};
    const fa2i_key key = sample_key(1);
    CHECK_EQ(fa2i_cache_get_kernel(cache, &key, ABI, true, &found), FA2_OK);
    const int nvrtc = found.nvrtc;
    fa2i_kernel_done(&found);
    return nvrtc;
}

static void put_number(unsigned char *to, unsigned number)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(number >> (24 - 8 * i));
}

/* Writes a hot journal in SQLite's documented format. It turns any database beside it into a copy of `theirs`. */
static void write_journal(const char *theirs, const char *path)
{
    enum { PAGE = 4096, SECTOR = 512 };
    static const unsigned char magic[] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
    static unsigned char bytes[1 << 20], head[SECTOR], number[4];
    FILE *in = fopen(theirs, "rb"), *out = fopen(path, "wb");
    CHECK(in != NULL && out != NULL);
    const unsigned pages = (unsigned)fread(bytes, 1, sizeof bytes, in) / PAGE;
    const unsigned fields[] = {pages, 0, pages, SECTOR, PAGE};
    memcpy(head, magic, sizeof magic);
    for (size_t i = 0; i < 5; i++)
        put_number(head + 8 + 4 * i, fields[i]);
    fwrite(head, 1, sizeof head, out);
    for (unsigned page = 0; page < pages; page++) {
        unsigned sum = 0;
        for (int i = PAGE - 200; i > 0; i -= 200)
            sum += bytes[page * PAGE + (unsigned)i];
        put_number(number, page + 1);
        fwrite(number, 1, 4, out);
        fwrite(bytes + (size_t)page * PAGE, 1, PAGE, out);
        put_number(number, sum);
        fwrite(number, 1, 4, out);
    }
    CHECK(pages > 5 && fclose(in) == 0 && fclose(out) == 0);
}

/* ---- folders ---- */

static const int open_to_others[] = {0770, 0702, 0722, 0777, 01777, 02775, 03777};

static void test_folder_modes(fixture *f)
{
    make_database(f->path);
    char fresh[200];
    snprintf(fresh, sizeof fresh, "%s", inside(f, "new.db"));
    for (size_t i = 0; i < sizeof open_to_others / sizeof *open_to_others; i++) {
        char mode[64];
        fa2i_cache *cache = NULL;
        snprintf(mode, sizeof mode, "mode %04o), and could put a journal", (unsigned)open_to_others[i]);
        CHECK_EQ(chmod(f->folder, (mode_t)open_to_others[i]), 0);
        check_refused(f->path, FA2I_CACHE_WRITE, FA2_E_DATABASE, mode);
        check_refused(f->path, FA2I_CACHE_REPAIR, FA2_E_DATABASE, f->folder);
        CHECK_EQ(strstr(fa2_last_message(), "chmod go-w '/tmp/") != NULL, (open_to_others[i] & 01000) == 0);
        check_refused(fresh, FA2I_CACHE_WRITE, FA2_E_DATABASE, "--db or FA2_DB, or only read this one");
        CHECK(access(fresh, F_OK) != 0);
        CHECK_EQ(fa2i_cache_check_writable(f->path), FA2_E_DATABASE);
        CHECK_EQ(fa2i_cache_check_writable(fresh), FA2_E_DATABASE);
        CHECK_EQ(fa2i_cache_open(f->path, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_OK);
        CHECK_EQ(kernel_of(cache), OWN);
        fa2i_cache_close(cache);
    }
    CHECK_EQ(chmod(f->folder, 0755), 0); /* others may only read */
    fa2i_cache_close(fixture_open(f->path));
    if (geteuid() == 0) {
        CHECK_EQ(chown(f->folder, STRANGER, (gid_t)-1), 0);
        check_refused(f->path, FA2I_CACHE_WRITE, FA2_E_DATABASE, "belongs to user 12345 (mode 0755), who could put");
        CHECK_EQ(chown(f->folder, 0, (gid_t)-1), 0);
    } else {
        fprintf(stderr, "skipped, needs root: a folder of another user\n");
    }
}

/* The folder is opened to others while a cache is open, and closed again. Between, nothing is read or written. */
static void test_opened_up(fixture *f)
{
    fa2i_cache *cache = fixture_open(f->path);
    const fa2i_kernel kernel = sample_kernel(77);
    fa2i_kernel found = {0};
    CHECK_EQ(chmod(f->folder, 01777), 0);
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_E_DATABASE);
    CHECK_CONTAINS(fa2_last_message(), "could put a journal beside the database");
    CHECK_EQ(fa2i_cache_get_kernel(cache, &kernel.key, 2, true, &found), FA2_E_DATABASE);
    CHECK_EQ(chmod(f->folder, 0700), 0);
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
    fa2i_cache_close(cache);
}

/* A user who can write a parent folder can replace this folder. */
static void test_folders_above(fixture *f)
{
    static const struct {
        int top, middle;
        bool refused;
    } modes[] = {{0755, 0777, true},  {0755, 0775, true},  {0755, 01777, false},
                 {0700, 0777, false}, {0755, 0755, false}, {02755, 02777, true}};
    char middle[100], last[200], path[300], missing[300];
    snprintf(middle, sizeof middle, "%s/middle", f->folder);
    snprintf(last, sizeof last, "%s/last", middle);
    snprintf(path, sizeof path, "%s/fa2.db", last);
    snprintf(missing, sizeof missing, "%s/new/fa2.db", middle);
    CHECK(mkdir(middle, 0755) == 0 && mkdir(last, 0700) == 0);
    CHECK_EQ(setenv("HOME", f->folder, 1), 0);
    make_database(path);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        CHECK(chmod(f->folder, (mode_t)modes[i].top) == 0 && chmod(middle, (mode_t)modes[i].middle) == 0);
        CHECK_EQ(fa2i_cache_check_writable(missing), modes[i].refused ? FA2_E_DATABASE : FA2_OK);
        if (modes[i].refused) {
            check_refused(path, FA2I_CACHE_WRITE, FA2_E_DATABASE, "put another folder in its place");
            CHECK_CONTAINS(fa2_last_message(), middle);
            check_refused(missing, FA2I_CACHE_WRITE, FA2_E_DATABASE, "put another folder in its place");
        } else {
            fa2i_cache_close(fixture_open(path));
        }
    }
    CHECK(remove(path) == 0 && rmdir(last) == 0 && rmdir(middle) == 0);
}

/* Runs act(f) in a child as this user. Returns false if this process is not root. */
static bool run_as(uid_t user, gid_t group, void (*act)(const fixture *f), const fixture *f)
{
    int status = 0;
    const pid_t child = geteuid() == 0 ? fork() : -1;
    if (child == 0) {
        if (setgroups(0, NULL) != 0 || setgid(group) != 0 || setuid(user) != 0)
            _exit(CHECK_SKIP);
        check_failures = 0;
        act(f);
        _exit(check_failures == 0 ? 0 : 1);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || (WIFEXITED(status) && WEXITSTATUS(status) == CHECK_SKIP))
        return false;
    CHECK_EQ(status, 0);
    return true;
}

static void check_opens(const fixture *f)
{
    fa2i_cache_close(fixture_open(f->path));
}

static void check_refuses(const fixture *f)
{
    check_refused(f->path, FA2I_CACHE_WRITE, FA2_E_DATABASE, "others can write ");
}

/* A group with the user's name and no other member does not count as others. */
static void test_private_group(fixture *f)
{
    const struct passwd *user = getpwnam("daemon");
    const struct group *group = user == NULL ? NULL : getgrgid(user->pw_gid);
    if (group == NULL || strcmp(group->gr_name, "daemon") != 0 || group->gr_mem[0] != NULL || geteuid() != 0) {
        fprintf(stderr, "skipped, needs root and a user with a group of its own: private groups\n");
        return;
    }
    const uid_t uid = user->pw_uid;
    const gid_t gid = user->pw_gid;
    CHECK(chown(f->folder, uid, gid) == 0 && chmod(f->folder, 02775) == 0);
    if (!run_as(uid, gid, check_opens, f)) {
        fprintf(stderr, "skipped, root cannot become another user here: private groups\n");
        return;
    }
    CHECK_EQ(chmod(f->folder, 0777), 0);
    CHECK(run_as(uid, gid, check_refuses, f));
    CHECK(chown(f->folder, uid, NOBODY) == 0 && chmod(f->folder, 0775) == 0);
    CHECK(run_as(uid, gid, check_refuses, f));
    CHECK_EQ(chown(f->folder, 0, 0), 0);
}

/* ---- files beside the database ---- */

static const char *made_file, *side_file; /* of the current attack */

static void put_side_file(const fixture *f)
{
    (void)f;
    copy_file(made_file, side_file);
}

/* SQLite itself accepts the forged file as a copy of the database, so the attack is real. */
static void check_attack(fixture *f, const char *suffix, const char *made)
{
    char plain[200], plain_side[250];
    snprintf(plain, sizeof plain, "%s", inside(f, "plain.db"));
    snprintf(plain_side, sizeof plain_side, "%s%s", plain, suffix);
    copy_file(f->path, plain);
    copy_file(made, plain_side);
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    CHECK_EQ(sqlite3_open(plain, &db), SQLITE_OK);
    CHECK_EQ(sqlite3_prepare_v2(db, "SELECT nvrtc FROM kernel", -1, &stmt, NULL), SQLITE_OK);
    CHECK_EQ(sqlite3_step(stmt), SQLITE_ROW);
    CHECK_EQ(sqlite3_column_int(stmt, 0), THEIRS);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
}

/* A journal or log appears while the database is open, and exists when it is opened again. */
static void check_side_file(fixture *f, const char *suffix, const char *made)
{
    fa2i_cache *cache = NULL;
    char file[200];
    snprintf(file, sizeof file, "%s%s", f->path, suffix);
    check_attack(f, suffix, made);
    CHECK_EQ(chmod(f->folder, 01777), 0);
    check_refused(f->path, FA2I_CACHE_WRITE, FA2_E_DATABASE, "put a journal beside the database");
    CHECK_EQ(fa2i_cache_open(f->path, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_OK);
    copy_file(made, file);
    CHECK_EQ(kernel_of(cache), OWN);
    fa2i_cache_close(cache);
    check_refused(f->path, FA2I_CACHE_READ, FA2_E_DATABASE, "a writer was stopped half-way"); /* our own journal */
    CHECK_EQ(remove(file), 0);
    CHECK_EQ(fa2i_cache_open(f->path, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_OK);
    CHECK_EQ(chmod(made, 0644), 0);
    made_file = made;
    side_file = file;
    if (run_as(NOBODY, NOBODY, put_side_file, f)) {
        CHECK_EQ(kernel_of(cache), OWN);
        fa2i_cache_close(cache);
        CHECK_EQ(fa2i_cache_open(f->path, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_OK);
        CHECK_EQ(kernel_of(cache), OWN);
        CHECK_EQ(remove(file), 0);
    } else {
        fprintf(stderr, "skipped, needs root: a %s of another user\n", suffix);
    }
    fa2i_cache_close(cache);
    CHECK_EQ(chmod(f->folder, 0700), 0);
}

static void test_journal(fixture *f)
{
    char theirs[200], journal[200];
    snprintf(theirs, sizeof theirs, "%s", inside(f, "theirs.db"));
    snprintf(journal, sizeof journal, "%s", inside(f, "made"));
    make_database(f->path);
    copy_file(f->path, theirs);
    sqlite3_close(change_kernel(theirs, false));
    write_journal(theirs, journal);
    check_side_file(f, "-journal", journal);
}

/* SQLite reads a log beside any database, for readers too, and with any header. */
static void test_log(fixture *f)
{
    char theirs[200], log[200];
    snprintf(theirs, sizeof theirs, "%s", inside(f, "theirs.db"));
    snprintf(log, sizeof log, "%s", inside(f, "made"));
    make_database(f->path);
    copy_file(f->path, theirs);
    sqlite3 *db = change_kernel(theirs, true);
    char lies_in[220];
    snprintf(lies_in, sizeof lies_in, "%s-wal", theirs);
    copy_file(lies_in, log);
    sqlite3_close(db);
    check_side_file(f, "-wal", log);
}

/* Both journal modes, and an empty file, can be read in a folder of others. */
static void test_read_copies(fixture *f)
{
    fa2i_cache *cache = NULL;
    make_database(f->path);
    sqlite3 *db = NULL;
    CHECK_EQ(sqlite3_open(f->path, &db), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    CHECK_EQ(chmod(f->folder, 0777), 0);
    CHECK_EQ(fa2i_cache_open(f->path, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_OK);
    CHECK_EQ(kernel_of(cache), OWN);
    const fa2i_kernel kernel = sample_kernel(2);
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_E_DATABASE);
    int64_t version = 0;
    CHECK_EQ(fa2i_cache_data_version(cache, &version), FA2_OK);
    fa2i_cache_close(cache);
    CHECK(access(inside(f, "fa2.db-shm"), F_OK) != 0); /* no file was created there */
    CHECK_EQ(truncate(f->path, 0), 0);
    check_refused(f->path, FA2I_CACHE_READ, FA2_E_NOT_FOUND, "empty file");
    CHECK_EQ(truncate(f->path, 10), 0);
    check_refused(f->path, FA2I_CACHE_READ, FA2_E_NOT_FOUND, "empty file");
    CHECK_EQ(truncate(f->path, 5000), 0);
    check_refused(f->path, FA2I_CACHE_READ, FA2_E_DATABASE, "not a database");
}

/* ---- a replaced file ---- */

static void exchange_for_ever(const char *a, const char *b)
{
    enum { EXCHANGE = 2 };
    for (long i = 1; syscall(SYS_renameat2, -1, a, -1, b, EXCHANGE) == 0; i++) {
        const struct timespec pause = {0, i % 7 * 20000}; /* to hit every moment of an opening */
        nanosleep(&pause, NULL);
    }
    _exit(CHECK_SKIP);
}

/* A file that others can write replaces ours for a while. An opening refuses it, or reads ours. */
static void test_exchanged(fixture *f)
{
    enum { TRIES = 600 };
    char theirs[200];
    int own = 0, refused = 0, status = 0;
    snprintf(theirs, sizeof theirs, "%s", inside(f, "theirs.db"));
    make_database(f->path);
    copy_file(f->path, theirs);
    sqlite3_close(change_kernel(theirs, false));
    CHECK(chmod(theirs, 0666) == 0 && chmod(f->folder, 0777) == 0);
    const pid_t child = fork();
    if (child == 0)
        exchange_for_ever(f->path, theirs);
    for (int i = 0; i < TRIES; i++) {
        fa2i_cache *cache = NULL;
        const fa2_status st = fa2i_cache_open(f->path, FA2I_CACHE_READ, NULL, NULL, &cache);
        CHECK(st == FA2_OK || strstr(fa2_last_message(), "others can write ") != NULL);
        own += st == FA2_OK && kernel_of(cache) == OWN;
        refused += st != FA2_OK;
        fa2i_cache_close(cache);
    }
    kill(child, SIGKILL);
    CHECK_EQ(waitpid(child, &status, 0), child);
    fprintf(stderr, "exchanged: %d of %d opened, all ours; %d refused\n", own, TRIES, refused);
    if (WIFEXITED(status))
        fprintf(stderr, "skipped: this file system exchanges no files\n");
    CHECK_EQ(own + refused, TRIES);
}

/* ---- claims ---- */

static char told[600];

static void keep(void *user, const char *message)
{
    (void)user;
    strncat(told, message, sizeof told - strlen(told) - 1);
}

static void test_claims(fixture *f)
{
    const fa2i_key work = sample_key(1);
    char file[200];
    fa2i_cache *cache = NULL, *other = NULL;
    snprintf(file, sizeof file, "%s-claims", f->path);
    told[0] = '\0';
    fclose(fopen(file, "w"));
    CHECK_EQ(chmod(file, 0666), 0);
    CHECK_EQ(fa2i_cache_open(f->path, FA2I_CACHE_WRITE, keep, NULL, &cache), FA2_OK);
    const int locked = open(file, O_RDWR | O_CLOEXEC);
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CHECK_EQ(fcntl(locked, F_OFD_SETLK, &all), 0);
    CHECK(fa2i_cache_claim(cache, &work)); /* another user's lock never blocks */
    CHECK_CONTAINS(told, "work is not shared with other processes, remove ");
    CHECK_CONTAINS(told, "others can write ");
    close(locked);
    fa2i_cache_close(cache);
    CHECK_EQ(chmod(file, 0600), 0);

    told[0] = '\0';
    CHECK_EQ(fa2i_cache_open(f->path, FA2I_CACHE_WRITE, keep, NULL, &cache), FA2_OK);
    other = fixture_open(f->path);
    CHECK(fa2i_cache_claim(other, &work));
    CHECK(!fa2i_cache_claim(cache, &work));
    fa2i_cache_say_waiting(cache, "compiling");
    fa2i_cache_say_waiting(cache, "compiling");
    CHECK_CONTAINS(told, "waiting for another process, which is compiling with this database: it has locked ");
    CHECK(strstr(strstr(told, "waiting") + 1, "waiting") == NULL);
    fa2i_cache_close(other);
    fa2i_cache_close(cache);
}

int main(void)
{
    static void (*const tests[])(fixture *) = {test_folder_modes,  test_opened_up, test_folders_above,
                                               test_private_group, test_journal,   test_log,
                                               test_read_copies,   test_exchanged, test_claims};
    fixture_each(tests, sizeof tests / sizeof tests[0]);
    return check_done();
}
