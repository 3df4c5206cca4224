/*
 * The tool reads the cubin from a temporary file and writes into a pipe, so that this process notices every byte that
 * it cannot write to its output. The file's name is removed before the tool starts, so that no file stays behind,
 * however this process ends.
 */
#define _XOPEN_SOURCE 700 /* for mkstemp, fdopen */
#include "tuner/commands/disassemble.h"

#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "runtime/base/alloc.h"
#include "runtime/base/environment.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"

extern char **environ;

/* ---- finding the tool ---- */

/* Looks for a tool in a colon-separated list of folders. *ret_tool stays NULL if there is none. */
static fa2_status look_in(const char *folders, const char *below, const char *name, char **ret_tool)
{
    while (folders != NULL && *folders != '\0' && *ret_tool == NULL) {
        const size_t bytes = strcspn(folders, ":");
        const fa2_status st =
            fa2i_text_make(ret_tool, "%.*s%s/%s", (int)bytes, bytes == 0 ? "." : folders, below, name);
        if (st != FA2_OK)
            return st;
        if (access(*ret_tool, X_OK) != 0) {
            fa2i_free(*ret_tool);
            *ret_tool = NULL;
        }
        folders += bytes + (folders[bytes] == ':');
    }
    return FA2_OK;
}

fa2_status fa2i_disassembler_find(char **ret_tool)
{
    static const char *const names[] = {"nvdisasm", "cuobjdump"};
    const char *const places[][2] = {{fa2i_environment("PATH"), ""},
                                     {fa2i_environment("CUDA_HOME"), "/bin"},
                                     {fa2i_environment("CUDA_PATH"), "/bin"},
                                     {"/usr/local/cuda", "/bin"}};
    char *tool = NULL;
    for (size_t place = 0; place < sizeof places / sizeof *places; place++) {
        for (size_t i = 0; i < sizeof names / sizeof *names && tool == NULL; i++) {
            const fa2_status st = look_in(places[place][0], places[place][1], names[i], &tool);
            if (st != FA2_OK)
                return st;
        }
    }
    if (tool == NULL)
        return fa2i_fail(FA2_E_IO, "--sass needs nvdisasm or cuobjdump of the CUDA toolkit, and neither is in PATH, "
                                   "$CUDA_HOME/bin, $CUDA_PATH/bin or /usr/local/cuda/bin");
    *ret_tool = tool;
    return FA2_OK;
}

/* ---- running the tool ---- */

/* Writes the bytes into a file without a name. Returns its descriptor, or -1 with errno. */
static int keep(const fa2i_blob *bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/fa2-cubin-XXXXXX", fa2i_environment_folder());
    const int descriptor = mkstemp(path);
    if (descriptor < 0)
        return -1;
    unlink(path);
    if (!fa2i_file_write_all(descriptor, bytes->data, bytes->bytes)) {
        const int cause = errno;
        close(descriptor);
        errno = cause;
        return -1;
    }
    return descriptor;
}

/* Starts the tool on the file. *ret_output: its output. Returns 0 or an error number. */
static int start(const char *tool, int cubin, pid_t *ret_pid, FILE **ret_output)
{
    const size_t length = strlen(tool);
    const bool is_cuobjdump = length >= 9 && strcmp(tool + length - 9, "cuobjdump") == 0;
    char name[32], *program = fa2i_strdup(tool);
    char *arguments[] = {program, is_cuobjdump ? "-sass" : "-c", name, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2];
    snprintf(name, sizeof name, "/dev/fd/%d", cubin);
    if (program == NULL || pipe(ends) != 0) {
        fa2i_free(program);
        return program == NULL ? ENOMEM : errno;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    const int error = posix_spawn(ret_pid, tool, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    fa2i_free(program);
    close(ends[1]);
    *ret_output = error == 0 ? fdopen(ends[0], "r") : NULL;
    if (*ret_output == NULL)
        close(ends[0]);
    return error;
}

fa2_status fa2i_disassemble(const char *tool, const fa2i_blob *cubin, FILE *out)
{
    char chunk[65536];
    pid_t pid = 0;
    int status = 0;
    FILE *said = NULL;
    const int file = keep(cubin);
    if (file < 0)
        return fa2i_fail(FA2_E_IO, "no temporary file for %s: %s; TMPDIR can name a folder", tool, strerror(errno));
    const int error = start(tool, file, &pid, &said);
    close(file);
    if (error != 0)
        return fa2i_fail(FA2_E_IO, "%s cannot be run: %s", tool, strerror(error));
    for (size_t bytes; said != NULL && (bytes = fread(chunk, 1, sizeof chunk, said)) > 0;)
        fwrite(chunk, 1, bytes, out);
    if (said != NULL)
        fclose(said);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (said == NULL || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return fa2i_fail(FA2_E_IO, "%s failed on the machine code", tool);
    return FA2_OK;
}
