/*
 * An NVRTC that keeps its results. Tests load it in place of NVRTC ($FA2_NVRTC_LIBRARY), so that a program that one
 * test has compiled is not compiled again, in this run or a later one.
 *
 * - The key has everything that the code depends on: the compiler (its version, and the file's path, size and time),
 *   the options in their order, the program's name and its whole text. A change of any of them compiles anew.
 * - The compiler is the one that the library would find, or $FA2_TEST_NVRTC_LIBRARY. runtime/cuda/cuda_api.c finds it.
 *   It is compiled into this library with its own fa2i_environment().
 * - Only results without an error are kept: one file per program in the folder $FA2_KEPT_CODE, with its log, PTX and
 *   cubin. rename() puts complete files there; an incomplete file is ignored. Without a folder nothing is kept. A used
 *   file is touched, so that its age shows if it is still needed.
 * - Programs with their own headers are refused, because fa2 has none.
 * - $FA2_TEST_FAST_COMPILE: a value of the compiler's option --Ofast-compile, for programs that become PTX. A compiler
 *   that does not know the option compiles without it. Programs for one SM alone (compute_90a) are compiled without it,
 *   because then the compiler moves registers that belong to a wgmma.
 */
#undef fa2i_environment /* CMakeLists.txt makes it kept_environment, for cuda_api.c */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "runtime/base/environment.h"
#include "runtime/base/record.h"
#include "runtime/cuda/cuda_api.h"

const char *kept_environment(const char *name);

enum { PIECES = 3, OPTIONS_MAX = 16, PATH_BYTES = 4096, FAST_BYTES = 40 };
enum { LOG, PTX, CUBIN };

struct _nvrtcProgram {
    char *source, *name;
    fa2i_blob pieces[PIECES];
};

const char *kept_environment(const char *name)
{
    return fa2i_environment(strcmp(name, "FA2_NVRTC_LIBRARY") == 0 ? "FA2_TEST_NVRTC_LIBRARY" : name);
}

static const fa2i_nvrtc_table *compiler(void)
{
    const fa2i_nvrtc_table *table = NULL;
    if (fa2i_nvrtc_get(&table) == FA2_OK)
        return table;
    fprintf(stderr, "kept_nvrtc: %s\n", fa2_last_message());
    exit(1);
}

static void *must_have(void *memory)
{
    if (memory != NULL)
        return memory;
    fputs("kept_nvrtc: out of memory\n", stderr);
    exit(1);
}

static void forget(nvrtcProgram program)
{
    for (int i = 0; i < PIECES; i++) {
        free(program->pieces[i].data);
        program->pieces[i] = (fa2i_blob){0};
    }
}

/* ---- files: a magic number, then each piece with its length before it ---- */

static const uint64_t magic = 0x31706b3261660a0d;

/* Returns false if nothing is kept, or the path is too long. */
static bool path_of(const nvrtcProgram program, int count, const char *const *options, char path[PATH_BYTES])
{
    const char *folder = getenv("FA2_KEPT_CODE");
    fa2i_part parts[OPTIONS_MAX + 4];
    char which[PATH_BYTES + 64], hex[2 * FA2I_KEY_BYTES + 1];
    struct stat file = {0};
    fa2i_key key;
    size_t used = 0;
    int major = 0, minor = 0;
    if (folder == NULL || folder[0] == '\0' || count > OPTIONS_MAX)
        return false;
    compiler()->version(&major, &minor);
    if (stat(fa2i_nvrtc_path(), &file) != 0)
        return false;
    snprintf(which, sizeof which, "%d.%d %s %lld %lld", major, minor, fa2i_nvrtc_path(), (long long)file.st_size,
             (long long)file.st_mtime);
    parts[used++] = (fa2i_part){which, strlen(which)};
    parts[used++] = (fa2i_part){program->name, strlen(program->name)};
    parts[used++] = (fa2i_part){program->source, strlen(program->source)};
    for (int i = 0; i < count; i++)
        parts[used++] = (fa2i_part){options[i], strlen(options[i])};
    fa2i_key_of(parts, used, &key);
    fa2i_key_format(&key, hex);
    return snprintf(path, PATH_BYTES, "%s/%s", folder, hex) < PATH_BYTES;
}

static bool read_piece(FILE *file, fa2i_blob *piece)
{
    uint64_t bytes;
    if (fread(&bytes, sizeof bytes, 1, file) != 1 || bytes > SIZE_MAX / 2)
        return false;
    piece->bytes = (size_t)bytes;
    piece->data = must_have(malloc(piece->bytes + 1));
    return fread(piece->data, 1, piece->bytes, file) == piece->bytes;
}

static bool take_kept(nvrtcProgram program, const char *path)
{
    FILE *file = fopen(path, "rb");
    uint64_t first = 0;
    if (file == NULL)
        return false;
    bool whole = fread(&first, sizeof first, 1, file) == 1 && first == magic;
    for (int i = 0; whole && i < PIECES; i++)
        whole = read_piece(file, &program->pieces[i]);
    whole = whole && fgetc(file) == EOF;
    if (whole)
        (void)futimens(fileno(file), NULL);
    else
        forget(program);
    fclose(file);
    return whole;
}

/* Another process may store the same file at the same time. */
static void keep(const nvrtcProgram program, const char *path)
{
    char begun[PATH_BYTES + 32];
    snprintf(begun, sizeof begun, "%s.%ld.%p", path, (long)getpid(), (void *)program);
    FILE *file = fopen(begun, "wb");
    if (file == NULL)
        return;
    bool whole = fwrite(&magic, sizeof magic, 1, file) == 1;
    for (int i = 0; i < PIECES; i++) {
        const fa2i_blob *piece = &program->pieces[i];
        const uint64_t bytes = piece->bytes;
        whole = whole && fwrite(&bytes, sizeof bytes, 1, file) == 1 &&
                fwrite(piece->data, 1, piece->bytes, file) == piece->bytes;
    }
    whole = fclose(file) == 0 && whole;
    if (!whole || rename(begun, path) != 0)
        (void)unlink(begun);
}

/* ---- compiling ---- */

typedef nvrtcResult (*get_size)(nvrtcProgram, size_t *);
typedef nvrtcResult (*get_bytes)(nvrtcProgram, char *);

static nvrtcResult take(nvrtcProgram real, get_size size, get_bytes bytes, fa2i_blob *piece)
{
    nvrtcResult result = size(real, &piece->bytes);
    if (result != NVRTC_SUCCESS)
        return result;
    piece->data = must_have(malloc(piece->bytes + 1));
    return piece->bytes == 0 ? NVRTC_SUCCESS : bytes(real, piece->data);
}

static nvrtcResult compile(nvrtcProgram program, int count, const char *const *options)
{
    const fa2i_nvrtc_table *nvrtc = compiler();
    nvrtcProgram real = NULL;
    nvrtcResult result = nvrtc->create_program(&real, program->source, program->name, 0, NULL, NULL);
    if (result != NVRTC_SUCCESS)
        return result;
    result = nvrtc->compile_program(real, count, options);
    nvrtcResult other = take(real, nvrtc->get_program_log_size, nvrtc->get_program_log, &program->pieces[LOG]);
    if (result == NVRTC_SUCCESS && other == NVRTC_SUCCESS)
        other = take(real, nvrtc->get_ptx_size, nvrtc->get_ptx, &program->pieces[PTX]);
    if (result == NVRTC_SUCCESS && other == NVRTC_SUCCESS)
        other = take(real, nvrtc->get_cubin_size, nvrtc->get_cubin, &program->pieces[CUBIN]);
    (void)nvrtc->destroy_program(&real);
    return result == NVRTC_SUCCESS ? other : result;
}

/* Copies the options, and adds the one that the environment asks for. Returns how many there are. */
static int add_fast(int count, const char *const *options, const char **all, char fast[FAST_BYTES])
{
    static const char ptx[] = "--gpu-architecture=compute_";
    const char *value = getenv("FA2_TEST_FAST_COMPILE");
    bool is_ptx = false;
    for (int i = 0; i < count; i++) {
        all[i] = options[i];
        if (strncmp(options[i], ptx, sizeof ptx - 1) == 0)
            is_ptx = options[i][strlen(options[i]) - 1] != 'a';
    }
    if (value == NULL || value[0] == '\0' || !is_ptx)
        return count;
    snprintf(fast, FAST_BYTES, "--Ofast-compile=%s", value);
    all[count] = fast;
    return count + 1;
}

static nvrtcResult compile_or_take(nvrtcProgram program, int count, const char *const *options)
{
    char path[PATH_BYTES];
    const bool keeps = path_of(program, count, options, path);
    forget(program);
    if (keeps && take_kept(program, path))
        return NVRTC_SUCCESS;
    const nvrtcResult result = compile(program, count, options);
    if (keeps && result == NVRTC_SUCCESS)
        keep(program, path);
    return result;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char *const *options)
{
    const char *all[OPTIONS_MAX + 1];
    char fast[FAST_BYTES];
    if (count < 0 || count >= OPTIONS_MAX)
        return compile_or_take(program, count, options);
    const int with_fast = add_fast(count, options, all, fast);
    const nvrtcResult result = compile_or_take(program, with_fast, all);
    return result == NVRTC_ERROR_INVALID_OPTION && with_fast > count ? compile_or_take(program, count, options)
                                                                     : result;
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram *ret_program, const char *source, const char *name, int header_count,
                               const char *const *headers, const char *const *include_names)
{
    (void)headers;
    (void)include_names;
    if (header_count != 0)
        return NVRTC_ERROR_INVALID_INPUT;
    nvrtcProgram program = must_have(calloc(1, sizeof *program));
    program->source = must_have(strdup(source));
    program->name = must_have(strdup(name != NULL ? name : "default_program"));
    *ret_program = program;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program)
{
    forget(*program);
    free((*program)->source);
    free((*program)->name);
    free(*program);
    *program = NULL;
    return NVRTC_SUCCESS;
}

/* ---- its results ---- */

static nvrtcResult size_of(const nvrtcProgram program, int piece, size_t *ret_bytes)
{
    *ret_bytes = program->pieces[piece].bytes;
    return NVRTC_SUCCESS;
}

static nvrtcResult copy_of(const nvrtcProgram program, int piece, char *out)
{
    if (program->pieces[piece].bytes > 0)
        memcpy(out, program->pieces[piece].data, program->pieces[piece].bytes);
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *ret_bytes)
{
    return size_of(program, LOG, ret_bytes);
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *out)
{
    return copy_of(program, LOG, out);
}

nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t *ret_bytes)
{
    return size_of(program, PTX, ret_bytes);
}

nvrtcResult nvrtcGetPTX(nvrtcProgram program, char *out)
{
    return copy_of(program, PTX, out);
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *ret_bytes)
{
    return size_of(program, CUBIN, ret_bytes);
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *out)
{
    return copy_of(program, CUBIN, out);
}

/* ---- the compiler's own functions ---- */

nvrtcResult nvrtcVersion(int *major, int *minor)
{
    return compiler()->version(major, minor);
}

nvrtcResult nvrtcGetNumSupportedArchs(int *count)
{
    return compiler()->get_num_supported_archs(count);
}

nvrtcResult nvrtcGetSupportedArchs(int *archs)
{
    return compiler()->get_supported_archs(archs);
}

const char *nvrtcGetErrorString(nvrtcResult result)
{
    return compiler()->get_error_string(result);
}
