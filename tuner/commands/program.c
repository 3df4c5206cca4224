/*
 * This process checks on the program twenty times a second. A signal that it catches must not end the wait, and must
 * not be missed.
 */
#define _XOPEN_SOURCE 700 /* for mkstemp */
#include "tuner/commands/program.h"

#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "runtime/base/alloc.h"
#include "runtime/base/environment.h"
#include "runtime/base/file.h"
#include "runtime/base/shown.h"
#include "runtime/base/text.h"
#include "tuner/commands/interrupt.h"
#include "tuner/report/progress.h"

extern char **environ;

/* ---- the file ---- */

/* Makes the path absolute, because the program may work in another folder. */
static fa2_status find_whole_path(const char *path, char **ret_path)
{
    char folder[PATH_MAX];
    fa2i_text whole = {0};
    if (path[0] != '/' && getcwd(folder, sizeof folder) == NULL)
        return fa2i_fail(FA2_E_IO, "the current folder: %s", strerror(errno));
    if (path[0] != '/')
        fa2i_text_add(&whole, "%s/", folder);
    fa2i_text_add(&whole, "%s", path);
    return fa2i_text_take(&whole, ret_path);
}

typedef struct capture_file {
    char *path;
    bool own; /* ours: removed at the end, together with PATH.new, which a program leaves if it is killed while
               * writing */
} capture_file;

static fa2_status make_file(capture_file *file)
{
    const char *given = fa2i_environment("FA2_CAPTURE");
    file->own = given == NULL;
    if (!file->own)
        return find_whole_path(given, &file->path);
    const fa2_status st = fa2i_text_make(&file->path, "%s/fa2-capture-XXXXXX", fa2i_environment_folder());
    if (st != FA2_OK)
        return st;
    const int descriptor = mkstemp(file->path);
    if (descriptor < 0) {
        const fa2_status failed =
            fa2i_fail(FA2_E_IO, "%s: %s; TMPDIR can name a folder, FA2_CAPTURE a file", file->path, strerror(errno));
        file->own = false;
        return failed;
    }
    close(descriptor);
    return FA2_OK;
}

static void file_done(capture_file *file)
{
    static const char *const endings[] = {"", ".new", ".counters", ".counters.new"};
    for (size_t i = 0; file->own && file->path != NULL && i < sizeof endings / sizeof *endings; i++) {
        char *path = NULL;
        if (fa2i_text_make(&path, "%s%s", file->path, endings[i]) == FA2_OK)
            unlink(path);
        fa2i_free(path);
    }
    fa2i_free(file->path);
}

/* Returns 0, 1 or 2; more are not needed. */
static int count_lines(const char *path)
{
    int lines = 0, c = 0;
    const char *why = NULL;
    FILE *in = fa2i_file_open(path, &why);
    while (in != NULL && lines < 2 && (c = getc(in)) != EOF)
        lines += c == '\n';
    if (in != NULL)
        fclose(in);
    return lines;
}

/* Problems that were named beside the program count in any case. */
static fa2_status read_problems(const capture_file *file, const char *program, fa2i_shapes *shapes)
{
    const int lines = count_lines(file->path);
    if (lines > 1)
        return fa2i_shapes_add_file(shapes, file->path);
    const char *why =
        lines == 1 ? "opened fa2 and launched nothing" : "never used fa2, or one too old to report its calls";
    if (shapes->count == 0)
        return fa2i_fail(FA2_E_NOT_FOUND, "%s %s; it has no problems", program, why);
    fa2i_shown_print(stderr, "fa2-tune: %s %s; what was named beside it counts\n", program, why);
    return FA2_OK;
}

/* ---- the program ---- */

/* Restores the usual effect of signals that this process ignores or catches. SIGPIPE is one of them, because a launcher
 * such as Python leaves it ignored. */
static void usual_signals(posix_spawnattr_t *attributes)
{
    sigset_t usual;
    sigemptyset(&usual);
    sigaddset(&usual, SIGINT);
    sigaddset(&usual, SIGQUIT);
    sigaddset(&usual, SIGPIPE);
    posix_spawnattr_init(attributes);
    posix_spawnattr_setsigdefault(attributes, &usual);
    posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGDEF);
}

static fa2_status start(char **argv, bool to_stderr, pid_t *ret_pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    usual_signals(&attributes);
    if (to_stderr)
        posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    const int error = posix_spawnp(ret_pid, argv[0], &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error == 0 ? FA2_OK : fa2i_fail(FA2_E_INVALID, "cannot run %s: %s", argv[0], strerror(error));
}

static int wait_for(pid_t pid, const volatile sig_atomic_t *stop)
{
    bool told = false;
    int status = 0;
    for (;;) {
        const pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended == pid)
            return status;
        if (ended < 0 && errno != EINTR)
            return 0; /* other code has waited for it */
        if (*stop != 0 && !told)
            told = kill(pid, SIGTERM) == 0;
        fa2i_nap();
    }
}

static bool say_how_it_ended(const char *program, int status)
{
    if (WIFSIGNALED(status))
        fa2i_shown_print(stderr, "fa2-tune: %s was ended by signal %d (%s); what it asked for until then counts\n",
                         program, WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) != 0)
        fa2i_shown_print(stderr, "fa2-tune: %s ended with status %d; what it asked for until then counts\n", program,
                         WEXITSTATUS(status));
    return WIFSIGNALED(status) || WEXITSTATUS(status) != 0;
}

/* An environment variable that is set for the program and then restored. */
typedef struct variable {
    const char *name;
    bool changed;
    char *before; /* owned; NULL: it was not set */
} variable;

/* Sets the variable. value NULL: leaves it as it is. After an error it is unchanged. */
static fa2_status variable_set(variable *v, const char *value)
{
    const char *given = fa2i_environment_given(v->name);
    if (value == NULL)
        return FA2_OK;
    if (given != NULL && (v->before = fa2i_strdup(given)) == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory to set %s for the program", v->name);
    v->changed = setenv(v->name, value, 1) == 0;
    return v->changed ? FA2_OK : fa2i_fail(FA2_E_MEMORY, "cannot set %s for the program: %s", v->name, strerror(errno));
}

static void variable_set_back(variable *v)
{
    if (v->changed && v->before != NULL)
        setenv(v->name, v->before, 1);
    else if (v->changed)
        unsetenv(v->name);
    fa2i_free(v->before);
}

/* Starts the program and waits. Ctrl-C on a terminal goes to both, and only the program reacts. */
static fa2_status run_to_its_end(char **argv, const char *capture, const char *database, bool to_stderr,
                                 const volatile sig_atomic_t *stop, bool *ret_failed)
{
    pid_t pid = 0;
    char *whole = NULL;
    if (database == NULL)
        database = fa2i_environment("FA2_DB");
    if (database != NULL && database[0] == '\0')
        database = NULL;
    fa2_status st = database == NULL ? FA2_OK : find_whole_path(database, &whole);
    if (st != FA2_OK)
        return st;
    fa2i_interrupt_leave_to_program();
    signal(SIGQUIT, SIG_IGN);
    variable variables[] = {{.name = "FA2_CAPTURE"}, {.name = "FA2_DB"}};
    const char *const values[] = {capture, whole};
    for (size_t i = 0; st == FA2_OK && i < 2; i++)
        st = variable_set(&variables[i], values[i]);
    if (st == FA2_OK)
        st = start(argv, to_stderr, &pid);
    for (size_t i = 0; i < 2; i++)
        variable_set_back(&variables[i]);
    fa2i_free(whole);
    const int status = st == FA2_OK ? wait_for(pid, stop) : 0;
    if (st == FA2_OK && *stop == 0) /* otherwise it was told to end, and nothing counts */
        *ret_failed = say_how_it_ended(argv[0], status);
    signal(SIGQUIT, SIG_DFL);
    (void)fa2i_interrupt_watch();
    return st;
}

fa2_status fa2i_program_run(char **argv, const char *database, bool to_stderr, const volatile sig_atomic_t *stop,
                            fa2i_shapes *shapes, bool *ret_failed)
{
    fa2_status st = FA2_OK;
    capture_file file = {0};
    FA2_TRY(make_file(&file));
    FA2_TRY(run_to_its_end(argv, file.path, database, to_stderr, stop, ret_failed));
    if (*stop == 0)
        FA2_TRY(read_problems(&file, argv[0], shapes));
done:
    file_done(&file);
    return st;
}
