/*
 * One process per device: this program again, with the device's number instead of `all`, and its share of the threads.
 * Each has two pipes; a line is passed on when it is complete.
 *
 * Shapes that can be read only once (from standard input or from a program) are put into a file without a name. Each
 * tuner gets it as its standard input, opened separately, so that each reads it from the beginning.
 */
#define _GNU_SOURCE /* for memfd_create */
#include "tuner/commands/all_devices.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "runtime/base/alloc.h"
#include "runtime/base/shown.h"
#include "runtime/base/text.h"
#include "runtime/cuda/cuda_api.h"
#include "tuner/search/compile_all.h"

extern char **environ;

enum { POLL_MS = 200, DEVICES_MAX = 64, NUMBER_CHARS = 16, FILE_CHARS = 40 };

/* The input of all tuners. */
typedef struct work {
    int argc;
    char **argv;
    int threads;  /* per tuner */
    FILE *shapes; /* NULL: argv names them */
} work;

typedef struct stream {
    int from;       /* -1: it has ended */
    fa2i_text text; /* not passed on yet */
} stream;

typedef struct tuner {
    int device;
    pid_t pid;
    stream out, err;
    int status; /* as waitpid gives it */
} tuner;

/* ---- starting ---- */

static bool make_pipe(int ends[2])
{
    if (pipe(ends) != 0)
        return false;
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    return true;
}

/* shapes: its standard input; NULL: this process's. */
static fa2_status spawn(char **argv, FILE *shapes, tuner *t)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    int error = make_pipe(out) && make_pipe(err) ? 0 : errno;
    char file[FILE_CHARS];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (shapes != NULL) {
        snprintf(file, sizeof file, "/proc/self/fd/%d", fileno(shapes));
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, file, O_RDONLY, 0);
    }
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
    if (error == 0)
        error = posix_spawn(&t->pid, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    close(err[1]);
    if (error != 0) {
        close(out[0]);
        close(err[0]);
        out[0] = err[0] = -1;
    }
    t->out.from = out[0];
    t->err.from = err[0];
    return error == 0 ? FA2_OK
                      : fa2i_fail(FA2_E_IO, "cannot start a tuner for device %d: %s", t->device, strerror(error));
}

/* Returns how many arguments this option takes, value included, if it is one of names; else 0. */
static int words_of(const char *arg, const char *const *names)
{
    for (; *names != NULL; names++) {
        const size_t bytes = strlen(*names);
        if (strncmp(arg, *names, bytes) == 0 && (arg[bytes] == '\0' || arg[bytes] == '='))
            return arg[bytes] == '\0' ? 2 : 1;
    }
    return 0;
}

/* Returns how many arguments an option takes, value included, if it must be replaced for each tuner; else 0. */
static int replaced(const char *arg, bool shapes)
{
    static const char *const always[] = {"--device", "--jobs", NULL};
    static const char *const of_shapes[] = {"--preset", "--shapes", "--shape", "--op", NULL};
    const int words = words_of(arg, always);
    return words > 0 || !shapes ? words : words_of(arg, of_shapes);
}

/* Starts the tuner for one device. A program has run already. */
static fa2_status start(const work *w, tuner *t)
{
    char name[] = "fa2-tune", command[] = "tune", jobs[] = "--jobs", shapes[] = "--shapes=-";
    char device[NUMBER_CHARS], count[NUMBER_CHARS];
    char **own = fa2i_alloc_array((size_t)w->argc + 6, sizeof *own);
    int used = 0, words = 0;
    if (own == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for arguments");
    snprintf(device, sizeof device, "--device=%d", t->device);
    snprintf(count, sizeof count, "%d", w->threads);
    own[used++] = name;
    own[used++] = command;
    own[used++] = device;
    own[used++] = jobs;
    own[used++] = count;
    if (w->shapes != NULL)
        own[used++] = shapes;
    for (int i = 1; i < w->argc && strcmp(w->argv[i], "--") != 0; i += words > 0 ? words : 1) {
        words = replaced(w->argv[i], w->shapes != NULL);
        if (words == 0)
            own[used++] = w->argv[i];
    }
    const fa2_status st = spawn(own, w->shapes, t);
    fa2i_free(own);
    return st;
}

/* Writes the shapes into the file that is their standard input. */
static fa2_status write_shapes(const fa2i_shapes *shapes, FILE **ret_file)
{
    const int descriptor = memfd_create("fa2-shapes", MFD_CLOEXEC);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "w");
    if (file != NULL)
        fa2i_shapes_write(shapes, file);
    if (file == NULL || fflush(file) != 0 || ferror(file)) {
        const fa2_status st = fa2i_fail(FA2_E_IO, "no file for the shapes of the devices' tuners: %s", strerror(errno));
        if (file != NULL)
            fclose(file);
        else if (descriptor >= 0)
            close(descriptor);
        return st;
    }
    *ret_file = file;
    return FA2_OK;
}

/* ---- passing on ---- */

/* A line that begins with its device needs no prefix. */
static void print_line(const tuner *t, const char *line, size_t length, FILE *to)
{
    char name[NUMBER_CHARS + 10];
    const size_t bytes = (size_t)snprintf(name, sizeof name, "device %d: ", t->device);
    const bool says = length >= bytes && strncmp(line, name, bytes) == 0;
    fa2i_shown_print(to, "%s%.*s\n", says ? "" : name, (int)length, line);
}

static void pass_on(const tuner *t, stream *s, FILE *to)
{
    char *line = s->text.data;
    for (char *end; line != NULL && (end = strchr(line, '\n')) != NULL; line = end + 1)
        print_line(t, line, (size_t)(end - line), to);
    if (line == NULL || line == s->text.data)
        return;
    fa2i_text rest = {0};
    fa2i_text_add(&rest, "%s", line);
    fa2i_text_done(&s->text);
    s->text = rest;
    fflush(to);
}

/* Passes on the last line if it has no end. */
static void pass_on_rest(const tuner *t, stream *s, FILE *to)
{
    if (s->text.length > 0) {
        print_line(t, s->text.data, s->text.length, to);
        fflush(to);
    }
    fa2i_text_done(&s->text);
}

/* keep: keeps everything until the end. */
static void read_some(const tuner *t, stream *s, FILE *to, bool keep)
{
    char bytes[4096];
    const ssize_t count = read(s->from, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR)
        return;
    if (count > 0)
        fa2i_text_add_bytes(&s->text, bytes, (size_t)count);
    if (!keep)
        pass_on(t, s, to);
    if (count > 0)
        return;
    if (!keep)
        pass_on_rest(t, s, to);
    close(s->from);
    s->from = -1;
}

static void pass_on_all(tuner *tuners, size_t count, bool json, const volatile sig_atomic_t *stop)
{
    struct pollfd files[2 * DEVICES_MAX];
    bool told = false;
    for (;;) {
        size_t open = 0;
        for (size_t i = 0; i < count; i++) {
            files[2 * i] = (struct pollfd){.fd = tuners[i].out.from, .events = POLLIN};
            files[2 * i + 1] = (struct pollfd){.fd = tuners[i].err.from, .events = POLLIN};
            open += (size_t)(tuners[i].out.from >= 0) + (size_t)(tuners[i].err.from >= 0);
        }
        if (open == 0)
            return;
        for (size_t i = 0; *stop != 0 && !told && i < count; i++)
            kill(tuners[i].pid, SIGTERM);
        told = *stop != 0;
        if (poll(files, (nfds_t)(2 * count), POLL_MS) <= 0)
            continue;
        for (size_t i = 0; i < count; i++) {
            if (files[2 * i].revents != 0)
                read_some(&tuners[i], &tuners[i].out, stdout, json);
            if (files[2 * i + 1].revents != 0)
                read_some(&tuners[i], &tuners[i].err, stderr, false);
        }
    }
}

/* ---- the end ---- */

static int status_of(const tuner *t)
{
    return WIFEXITED(t->status) ? WEXITSTATUS(t->status) : FA2I_EXIT_FAILED;
}

/* Interrupted is worst, then failed, then any other status than 0. */
static int worst(const tuner *tuners, size_t count)
{
    int status = FA2I_EXIT_OK;
    for (size_t i = 0; i < count; i++) {
        const int one = status_of(&tuners[i]);
        if (one == FA2I_EXIT_INTERRUPTED || status == FA2I_EXIT_OK ||
            (one == FA2I_EXIT_FAILED && status != FA2I_EXIT_INTERRUPTED))
            status = one != FA2I_EXIT_OK ? one : status;
    }
    return status;
}

static void print_json(const tuner *tuners, size_t count)
{
    const char *separator = "";
    fputs("{\"devices\":[", stdout);
    for (size_t i = 0; i < count; i++) {
        if (tuners[i].out.text.length == 0)
            continue;
        printf("%s\n%s", separator, tuners[i].out.text.data);
        separator = ",";
    }
    fputs("]}\n", stdout);
}

static fa2_status count_devices(int *ret_count)
{
    const fa2i_cuda_table *cuda = NULL;
    fa2_status st = fa2i_cuda_get(&cuda);
    if (st == FA2_OK)
        st = fa2i_cuda_check(cuda, cuda->device_get_count(ret_count), "cuDeviceGetCount");
    if (st == FA2_OK && *ret_count == 0)
        st = fa2i_fail(FA2_E_NO_DEVICE, "the CUDA driver sees no device");
    if (*ret_count > DEVICES_MAX)
        *ret_count = DEVICES_MAX;
    return st;
}

static int threads_each(const fa2i_options *options, int devices)
{
    const int all = (int)fa2i_compile_threads(options->jobs, SIZE_MAX);
    return devices > 0 && all > devices ? all / devices : 1;
}

/* Starts the tuners, waits for their ends, and prints their results. *ret_status: the worst of their statuses. */
static fa2_status run_tuners(const work *w, int devices, bool json, const volatile sig_atomic_t *stop, int *ret_status)
{
    tuner tuners[DEVICES_MAX] = {{0}};
    size_t started = 0;
    fa2_status st = FA2_OK;
    for (; st == FA2_OK && started < (size_t)devices; started += st == FA2_OK) {
        tuners[started].device = (int)started;
        st = start(w, &tuners[started]);
    }
    if (st != FA2_OK && started > 0)
        fprintf(stderr, "fa2-tune: %s\n", fa2_last_message());
    pass_on_all(tuners, started, json, stop);
    for (size_t i = 0; i < started; i++)
        while (waitpid(tuners[i].pid, &tuners[i].status, 0) < 0 && errno == EINTR)
            continue;
    if (json && started > 0)
        print_json(tuners, started);
    *ret_status = worst(tuners, started);
    for (size_t i = 0; i < started; i++) {
        fa2i_text_done(&tuners[i].out.text);
        fa2i_text_done(&tuners[i].err.text);
    }
    return st;
}

fa2_status fa2i_all_devices_tune(int argc, char **argv, const fa2i_options *options, const volatile sig_atomic_t *stop,
                                 int *ret_status)
{
    work w = {.argc = argc, .argv = argv};
    int devices = 0;
    fa2_status st = FA2_OK;
    FA2_TRY(count_devices(&devices));
    w.threads = threads_each(options, devices);
    if (options->program != NULL || options->reads_stdin)
        FA2_TRY(write_shapes(&options->shapes, &w.shapes));
    if (options->dry_run && devices > 1)
        fputs("fa2-tune: devices that are equal share the work; each line says all of it, not a device's share\n",
              stderr);
    st = run_tuners(&w, devices, options->json, stop, ret_status);
done:
    if (w.shapes != NULL)
        fclose(w.shapes);
    return st;
}
