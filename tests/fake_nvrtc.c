/*
 * The fake NVRTC. A program becomes an image (fake_modules.c) whose entry is the program's name up
 * to the first dot, and a log as ptxas writes it.
 *
 * - A program is an object of the registry: text is its source, block its image, log its log.
 * - Options are not checked, except that there must be one --gpu-architecture. fake.options has them.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fake_objects.h"
#include "runtime/base/alloc.h"

enum { LOG_BYTES = 4096 };

static long calls, fail_at;
static nvrtcResult fail_error;

/* Like fake_begin: locks and counts. Returns the error with which the call must fail. */
static nvrtcResult begin(void)
{
    fake_lock();
    calls++;
    return calls == fail_at ? fail_error : NVRTC_SUCCESS;
}

static nvrtcResult end(nvrtcResult result)
{
    fake_unlock();
    return result;
}

long fake_fail_nvrtc(long nth, nvrtcResult error)
{
    fake_lock();
    const long made = calls;
    calls = 0;
    fail_at = nth;
    fail_error = error;
    fake_unlock();
    return made;
}

const char *fake_nvrtc_get_error_string(nvrtcResult result)
{
    static const char *const names[] = {
        "NVRTC_SUCCESS",
        "NVRTC_ERROR_OUT_OF_MEMORY",
        "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
        "NVRTC_ERROR_INVALID_INPUT",
        "NVRTC_ERROR_INVALID_PROGRAM",
        "NVRTC_ERROR_INVALID_OPTION",
        "NVRTC_ERROR_COMPILATION",
        "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
    };
    return (size_t)result < sizeof names / sizeof *names ? names[result] : "NVRTC_ERROR_INTERNAL";
}

nvrtcResult fake_nvrtc_version(int *ret_major, int *ret_minor)
{
    const nvrtcResult result = begin();
    if (result == NVRTC_SUCCESS) {
        *ret_major = fake.nvrtc_version / 1000;
        *ret_minor = fake.nvrtc_version % 1000 / 10;
    }
    return end(result);
}

static int arch_count(void)
{
    int count = 0;
    while (count < (int)(sizeof fake.archs / sizeof *fake.archs) && fake.archs[count] != 0)
        count++;
    return count;
}

nvrtcResult fake_nvrtc_get_num_supported_archs(int *ret_count)
{
    const nvrtcResult result = begin();
    if (result == NVRTC_SUCCESS)
        *ret_count = arch_count();
    return end(result);
}

nvrtcResult fake_nvrtc_get_supported_archs(int *ret_archs)
{
    const nvrtcResult result = begin();
    if (result == NVRTC_SUCCESS)
        memcpy(ret_archs, fake.archs, (size_t)arch_count() * sizeof *ret_archs);
    return end(result);
}

static char *copy_of(const char *text)
{
    char *copy = malloc(strlen(text) + 1);
    assert(copy != NULL);
    return strcpy(copy, text);
}

nvrtcResult fake_nvrtc_create_program(nvrtcProgram *ret_program, const char *source, const char *name, int header_count,
                                      const char *const *headers, const char *const *names)
{
    (void)headers;
    (void)names;
    nvrtcResult result = begin();
    if (result == NVRTC_SUCCESS && header_count != 0)
        result = NVRTC_ERROR_INVALID_INPUT;
    if (result != NVRTC_SUCCESS)
        return end(result);
    fake_object *program = fake_new(FAKE_PROGRAM);
    program->text = copy_of(source);
    snprintf(program->entry, sizeof program->entry, "%.*s", (int)strcspn(name, "."), name);
    *ret_program = (nvrtcProgram)program;
    return end(NVRTC_SUCCESS);
}

nvrtcResult fake_nvrtc_destroy_program(nvrtcProgram *program_handle)
{
    const nvrtcResult result = begin();
    fake_object *program = fake_find(*program_handle, FAKE_PROGRAM);
    if (program == NULL)
        return end(NVRTC_ERROR_INVALID_PROGRAM);
    fake_drop(program);
    *program_handle = NULL;
    return end(result);
}

/* Joins the options in fake.options, and stores the target. Returns false if there is none. */
static bool read_options(int count, const char *const *options, char target[16])
{
    static const char prefix[] = "--gpu-architecture=";
    size_t used = 0;
    target[0] = '\0';
    fake.options[0] = '\0';
    for (int i = 0; i < count && used < sizeof fake.options; i++) {
        used += (size_t)snprintf(fake.options + used, sizeof fake.options - used, "%s%s", i > 0 ? " " : "", options[i]);
        if (strncmp(options[i], prefix, sizeof prefix - 1) == 0)
            snprintf(target, 16, "%s", options[i] + sizeof prefix - 1);
    }
    return target[0] != '\0';
}

/* Writes the log of a program that compiles, as ptxas words it. PTX has no such log. */
static void write_log(const fake_object *program, const fake_compilation *c, const char *target)
{
    program->log[0] = '\0';
    if (c->log != NULL)
        snprintf(program->log, LOG_BYTES, "%s", c->log);
    else if (strncmp(target, "sm_", 3) == 0)
        snprintf(program->log, LOG_BYTES,
                 "ptxas info    : 0 bytes gmem\n"
                 "ptxas info    : Compiling entry function '%s' for '%s'\n"
                 "ptxas info    : Function properties for %s\n"
                 "    %d bytes stack frame, %d bytes spill stores, %d bytes spill loads\n"
                 "ptxas info    : Used %d registers, used 1 barriers, 520 bytes cmem[0]\n",
                 program->entry, target, program->entry, c->spill_stores, c->spill_stores, c->spill_loads,
                 c->registers);
}

nvrtcResult fake_nvrtc_compile_program(nvrtcProgram handle, int count, const char *const *options)
{
    char target[16];
    const nvrtcResult result = begin();
    fake_object *program = fake_find(handle, FAKE_PROGRAM);
    if (result != NVRTC_SUCCESS)
        return end(result);
    if (program == NULL)
        return end(NVRTC_ERROR_INVALID_PROGRAM);
    if (!read_options(count, options, target))
        return end(NVRTC_ERROR_INVALID_OPTION);
    fake.compile_count++;

    fake_compilation c = {.source = program->text,
                          .options = fake.options,
                          .registers = fake.registers,
                          .spill_stores = fake.spill_stores,
                          .spill_loads = fake.spill_loads};
    if (fake.rejected != NULL && strstr(program->text, fake.rejected) != NULL) {
        c.result = NVRTC_ERROR_COMPILATION;
        c.log = "fake.cu(1): error: the fake compiler was told to reject this\n";
    }
    if (fake.on_compile != NULL)
        fake.on_compile(&c, fake.on_compile_user);
    program->log = calloc(1, LOG_BYTES);
    assert(program->log != NULL);
    write_log(program, &c, target);
    if (c.result == NVRTC_SUCCESS)
        program->block = fake_image_write(program->entry, target, program->text, c.registers, c.spill_stores);
    return end(c.result);
}

/* The program's image (log: its log) and size with the NUL; shared by the four getters below. */
static nvrtcResult text_of(nvrtcProgram handle, bool log, size_t *ret_bytes, char *out)
{
    nvrtcResult result = begin();
    const fake_object *program = fake_find(handle, FAKE_PROGRAM);
    if (result == NVRTC_SUCCESS && program == NULL)
        result = NVRTC_ERROR_INVALID_PROGRAM;
    if (result != NVRTC_SUCCESS)
        return end(result);
    const char *text = log ? program->log : program->block;
    if (text == NULL)
        return end(NVRTC_ERROR_INVALID_PROGRAM);
    if (ret_bytes != NULL)
        *ret_bytes = strlen(text) + 1;
    if (out != NULL)
        strcpy(out, text);
    return end(NVRTC_SUCCESS);
}

nvrtcResult fake_nvrtc_get_cubin_size(nvrtcProgram program, size_t *ret_bytes)
{
    return text_of(program, false, ret_bytes, NULL);
}

nvrtcResult fake_nvrtc_get_cubin(nvrtcProgram program, char *out)
{
    return text_of(program, false, NULL, out);
}

nvrtcResult fake_nvrtc_get_ptx_size(nvrtcProgram program, size_t *ret_bytes)
{
    return text_of(program, false, ret_bytes, NULL);
}

nvrtcResult fake_nvrtc_get_ptx(nvrtcProgram program, char *out)
{
    return text_of(program, false, NULL, out);
}

nvrtcResult fake_nvrtc_get_program_log_size(nvrtcProgram program, size_t *ret_bytes)
{
    return text_of(program, true, ret_bytes, NULL);
}

nvrtcResult fake_nvrtc_get_program_log(nvrtcProgram program, char *out)
{
    return text_of(program, true, NULL, out);
}

void fake_image(const char *entry, const char *target, const char *source, fa2i_blob *ret_image)
{
    char *image = fake_image_write(entry, target, source, fake.registers, fake.spill_stores);
    ret_image->bytes = strlen(image) + 1;
    ret_image->data = fa2i_alloc(ret_image->bytes);
    assert(ret_image->data != NULL);
    memcpy(ret_image->data, image, ret_image->bytes);
    free(image);
}
