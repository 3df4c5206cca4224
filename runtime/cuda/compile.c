/*
 * Compiles CUDA text to an artifact.
 *
 * - The options depend only on the target, the NVRTC version and the recipe's suffix. These and the source determine
 *   the bytes of the image. Together with the whole recipe they determine the key.
 * - Every path destroys the program object. Every path after compilation fetches the log.
 * - Registers and spills come from ptxas, whose output (-v) NVRTC puts into the log. PTX has not passed through ptxas,
 *   so it has neither.
 */
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "runtime/base/alloc.h"
#include "runtime/cuda/compile.h"
#include "runtime/cuda/cuda_api.h"
#include "runtime/cuda/image.h"

enum {
    ARCH_MAX = 999,
    ARCHS_MAX = 64,
    OPTIONS_MAX = 8,
    NO_CACHE_SINCE = 12090,
    SUFFIX_SINCE = 12000,
    FP8_SINCE = 12040
};

static fa2_status check(const fa2i_nvrtc_table *nvrtc, nvrtcResult result, const char *what)
{
    if (result == NVRTC_SUCCESS)
        return FA2_OK;
    return fa2i_fail(result == NVRTC_ERROR_OUT_OF_MEMORY ? FA2_E_MEMORY : FA2_E_COMPILE, "%s: %s", what,
                     nvrtc->get_error_string(result));
}

/* ---- target and key ---- */

static fa2_status read_archs(const fa2i_nvrtc_table *nvrtc, int archs[ARCHS_MAX], int *ret_count)
{
    int count = 0;
    const fa2_status st = check(nvrtc, nvrtc->get_num_supported_archs(&count), "nvrtcGetNumSupportedArchs");
    if (st != FA2_OK)
        return st;
    if (count < 1 || count > ARCHS_MAX)
        return fa2i_fail(FA2_E_COMPILE, "NVRTC says that it knows %d architectures", count);
    *ret_count = count;
    return check(nvrtc, nvrtc->get_supported_archs(archs), "nvrtcGetSupportedArchs");
}

static fa2_status read_version(const fa2i_nvrtc_table *nvrtc, int *ret_version)
{
    int major = 0, minor = 0;
    const fa2_status st = check(nvrtc, nvrtc->version(&major, &minor), "nvrtcVersion");
    *ret_version = 1000 * major + 10 * minor;
    return st;
}

bool fa2i_target_is_ptx(const char *name)
{
    static const char ptx[] = "compute_";
    return strncmp(name, ptx, sizeof ptx - 1) == 0;
}

void fa2i_target_of(const char *name, int nvrtc, fa2i_target *ret_target)
{
    *ret_target = (fa2i_target){.ptx = fa2i_target_is_ptx(name), .nvrtc = nvrtc};
    snprintf(ret_target->name, sizeof ret_target->name, "%s", name);
}

fa2_status fa2i_target_for(int arch, bool as_ptx, fa2i_target *ret_target)
{
    const fa2i_nvrtc_table *nvrtc = NULL;
    fa2_status st = FA2_OK;
    int archs[ARCHS_MAX], count = 0, newest = 0, oldest = 0;
    if (arch < 1 || arch > ARCH_MAX)
        return fa2i_fail(FA2_E_INVALID, "sm_%d is no SM; it must be from 1 to %d", arch, ARCH_MAX);
    FA2_TRY(fa2i_nvrtc_get(&nvrtc));
    FA2_TRY(read_archs(nvrtc, archs, &count));
    oldest = archs[0];
    for (int i = 0; i < count; i++) {
        if (archs[i] <= arch && archs[i] > newest)
            newest = archs[i];
        if (archs[i] < oldest)
            oldest = archs[i];
    }
    if (newest == 0)
        FA2_TRY(fa2i_fail(FA2_E_UNSUPPORTED, "this NVRTC makes no code for sm_%d: the oldest it knows is sm_%d", arch,
                          oldest));
    fa2i_target target = {.ptx = as_ptx || newest != arch};
    snprintf(target.name, sizeof target.name, "%s_%d", target.ptx ? "compute" : "sm", newest);
    FA2_TRY(read_version(nvrtc, &target.nvrtc));
    *ret_target = target;
done:
    return st;
}

typedef struct options {
    char architecture[48];
    const char *list[OPTIONS_MAX];
    int count;
} options;

static void make_options(const fa2i_variant *variant, const fa2i_target *target, int version, options *o)
{
    snprintf(o->architecture, sizeof o->architecture, "--gpu-architecture=%s%s", target->name, variant->recipe.suffix);
    o->count = 0;
    o->list[o->count++] = o->architecture;
    o->list[o->count++] = "--std=c++17";
    o->list[o->count++] = "-default-device";
    if (!target->ptx)
        o->list[o->count++] = "--ptxas-options=-v";
    if (version >= NO_CACHE_SINCE) /* a cached result lacks the output of ptxas */
        o->list[o->count++] = "--no-cache";
}

static void make_key(const fa2i_variant *variant, const char *source, const fa2i_target *target, int version,
                     const options *o, fa2i_key *ret_key)
{
    const char *recipe = variant->recipe.text, *class_key = variant->class_key;
    char compiler[32];
    fa2i_part parts[OPTIONS_MAX + 5];
    size_t count = 0;
    snprintf(compiler, sizeof compiler, "nvrtc %d", version);
    /* Two classes may have the same source, and a stored kernel serves only one of them. */
    parts[count++] = (fa2i_part){class_key, strlen(class_key)};
    parts[count++] = (fa2i_part){recipe, strlen(recipe)};
    parts[count++] = (fa2i_part){source, strlen(source)};
    parts[count++] = (fa2i_part){target->name, strlen(target->name)};
    parts[count++] = (fa2i_part){compiler, strlen(compiler)};
    for (int i = 0; i < o->count; i++)
        parts[count++] = (fa2i_part){o->list[i], strlen(o->list[i])};
    fa2i_key_of(parts, count, ret_key);
}

void fa2i_compile_key_of(const fa2i_variant *variant, const char *source, const fa2i_target *target, int version,
                         fa2i_key *ret_key)
{
    options o;
    make_options(variant, target, version, &o);
    make_key(variant, source, target, version, &o, ret_key);
}

fa2_status fa2i_compile_key(const fa2i_variant *variant, const char *source, const fa2i_target *target,
                            fa2i_key *ret_key)
{
    const fa2i_nvrtc_table *nvrtc = NULL;
    fa2_status st = FA2_OK;
    int version = 0;
    FA2_TRY(fa2i_nvrtc_get(&nvrtc));
    FA2_TRY(read_version(nvrtc, &version));
    fa2i_compile_key_of(variant, source, target, version, ret_key);
done:
    return st;
}

/* Older compilers reject the option "sm_90a", or products of e4m3 numbers by mma.sync, and say nothing more helpful. */
static fa2_status check_version(const fa2i_variant *variant, const fa2i_target *target, int version)
{
    const bool fp8 = variant->recipe.workspace == FA2I_WORKSPACE_INT8_KEYS_AND_COLUMNS;
    const int since = variant->recipe.suffix[0] != '\0' ? SUFFIX_SINCE : fp8 ? FP8_SINCE : 0;
    if (version >= since)
        return FA2_OK;
    return fa2i_fail(FA2_E_UNSUPPORTED, "NVRTC %d.%d compiles %s for %s%s; it must be %d.%d or newer", version / 1000,
                     version % 1000 / 10, fp8 ? "no products of e4m3 numbers" : "nothing", target->name,
                     variant->recipe.suffix, since / 1000, since % 1000 / 10);
}

fa2_status fa2i_compile_check(const fa2i_variant *variant, const fa2i_target *target)
{
    const fa2i_nvrtc_table *nvrtc = NULL;
    fa2_status st = FA2_OK;
    int version = 0;
    FA2_TRY(fa2i_nvrtc_get(&nvrtc));
    FA2_TRY(read_version(nvrtc, &version));
    FA2_TRY(check_version(variant, target, version));
done:
    return st;
}

/* ---- compiling ---- */

/* Older NVRTCs read "2.22e-16" as 2 under a locale with a decimal comma, and changed the locale. */
static fa2_status compile_in_c_locale(const fa2i_nvrtc_table *nvrtc, nvrtcProgram program, const options *o,
                                      nvrtcResult *ret_result, double *ret_ms)
{
    struct timespec start, end;
    const locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c_locale == (locale_t)0)
        return fa2i_fail(FA2_E_MEMORY, "out of memory: no C locale to compile in");
    const locale_t callers = uselocale(c_locale);
    clock_gettime(CLOCK_MONOTONIC, &start);
    *ret_result = nvrtc->compile_program(program, o->count, o->list);
    clock_gettime(CLOCK_MONOTONIC, &end);
    uselocale(callers);
    freelocale(c_locale);
    *ret_ms = 1e3 * (double)(end.tv_sec - start.tv_sec) + 1e-6 * (double)(end.tv_nsec - start.tv_nsec);
    return FA2_OK;
}

/* *ret_log stays NULL if the compiler printed nothing. */
static fa2_status take_log(const fa2i_nvrtc_table *nvrtc, nvrtcProgram program, char **ret_log)
{
    fa2_status st = FA2_OK;
    char *log = NULL;
    size_t bytes = 0;
    FA2_TRY(check(nvrtc, nvrtc->get_program_log_size(program, &bytes), "nvrtcGetProgramLogSize"));
    if (bytes <= 1)
        goto done;
    log = fa2i_alloc(bytes + 1); /* the size includes the NUL; one more in case it does not */
    if (log == NULL)
        FA2_TRY(fa2i_fail(FA2_E_MEMORY, "out of memory for a compiler log of %zu bytes", bytes));
    FA2_TRY(check(nvrtc, nvrtc->get_program_log(program, log), "nvrtcGetProgramLog"));
    *ret_log = log;
    log = NULL;
done:
    fa2i_free(log);
    return st;
}

static fa2_status take_image(const fa2i_nvrtc_table *nvrtc, nvrtcProgram program, bool ptx, fa2i_blob *ret_image)
{
    fa2_status st = FA2_OK;
    fa2i_blob image = {0};
    FA2_TRY(check(nvrtc,
                  ptx ? nvrtc->get_ptx_size(program, &image.bytes) : nvrtc->get_cubin_size(program, &image.bytes),
                  "the size of the compiled code"));
    image.data = fa2i_alloc(image.bytes);
    if (image.data == NULL)
        FA2_TRY(fa2i_fail(FA2_E_MEMORY, "out of memory for %zu bytes of compiled code", image.bytes));
    FA2_TRY(check(nvrtc, ptx ? nvrtc->get_ptx(program, image.data) : nvrtc->get_cubin(program, image.data),
                  "the compiled code"));
    *ret_image = image;
    image = (fa2i_blob){0};
done:
    fa2i_blob_done(&image);
    return st;
}

/* Returns what follows the words in a line of the log, or NULL if it does not have them. */
static const char *find_words(const char *line, size_t length, const char *words)
{
    const char *found = strstr(line, words);
    return found == NULL || found >= line + length ? NULL : found + strlen(words);
}

/* Returns whether a name is the entry point of a step other than the main one. */
static bool is_helper(const fa2i_recipe *recipe, const char *name, size_t length)
{
    for (int i = 0; i < recipe->step_count; i++) {
        const fa2i_step *step = &recipe->steps[i];
        if (step->role != FA2I_STEP_MAIN && strlen(step->entry) == length && memcmp(step->entry, name, length) == 0)
            return true;
    }
    return false;
}

/* Returns whether ptxas reports a slowdown that is as bad as a spill (C7508 ... C7520):
 * - wgmma is serialised, for want of registers or because of how it is written
 * - setmaxnreg is ignored
 * - waits are inserted between products */
static bool is_slowed(const char *log)
{
    return strstr(log, "Potential Performance Loss") != NULL || strstr(log, "is injected in around line") != NULL;
}

/* Reads registers and spills from the log: the registers of the function that has most, and the spills of all. A stack
 * frame counts as a spill. Only the main step counts. Registers of the other steps do not matter, and a few bytes that
 * they spill are no reason to drop a variant. ptxas writes
 *     ptxas info    : Compiling entry function 'fwd_sm80' for 'sm_86'
 *     0 bytes stack frame, 8 bytes spill stores, 16 bytes spill loads
 *     ptxas info    : Used 128 registers, ... */
static void read_usage(fa2i_kernel *kernel)
{
    bool counts = true, framed = false;
    for (const char *line = kernel->log; line != NULL && *line != '\0';) {
        const size_t length = strcspn(line, "\n");
        const char *entry = find_words(line, length, "Compiling entry function '");
        const char *frame = find_words(line, length, "bytes stack frame, ");
        const char *used = find_words(line, length, "Used ");
        int stores = 0, loads = 0, registers = 0;
        if (entry != NULL)
            counts = !is_helper(&kernel->variant.recipe, entry, strcspn(entry, "'"));
        if (counts && frame != NULL &&
            sscanf(frame, "%d bytes spill stores, %d bytes spill loads", &stores, &loads) == 2) {
            kernel->spill_bytes += stores + loads;
            framed |= find_words(line, length, " 0 bytes stack frame, ") == NULL;
        }
        if (counts && used != NULL && sscanf(used, "%d registers", &registers) == 1 && registers > kernel->registers)
            kernel->registers = registers;
        line += length + (line[length] == '\n');
    }
    if (kernel->spill_bytes > 0 || framed || (kernel->log != NULL && is_slowed(kernel->log)))
        kernel->outcome = FA2I_OUTCOME_SPILLED;
}

static fa2_status put_before_log(const char *sentence, char **log)
{
    const char *said = *log != NULL ? *log : "no log";
    const size_t bytes = strlen(sentence) + strlen(said) + sizeof ": ";
    char *both = fa2i_alloc(bytes);
    if (both == NULL)
        return fa2i_fail(FA2_E_MEMORY, "out of memory for a compiler log of %zu bytes", bytes);
    snprintf(both, bytes, "%s: %s", sentence, said);
    fa2i_free(*log);
    *log = both;
    return FA2_OK;
}

/* Rejects code that lacks an entry point of the recipe. A template without a kernel compiles without error. */
static fa2_status check_entries(fa2i_kernel *kernel)
{
    const fa2i_recipe *recipe = &kernel->variant.recipe;
    for (int i = 0; i < recipe->step_count; i++) {
        char sentence[FA2I_ENTRY_CHARS + 64];
        if (fa2i_image_has_entry(&kernel->image, recipe->steps[i].entry))
            continue;
        snprintf(sentence, sizeof sentence, "the code has no entry point %s", recipe->steps[i].entry);
        fa2i_blob_done(&kernel->image);
        kernel->outcome = FA2I_OUTCOME_COMPILE_ERROR;
        return put_before_log(sentence, &kernel->log);
    }
    return FA2_OK;
}

/* Compiles a program, and stores the result in kernel. */
static fa2_status run(const fa2i_nvrtc_table *nvrtc, nvrtcProgram program, const options *o, bool ptx,
                      fa2i_kernel *kernel)
{
    fa2_status st = FA2_OK;
    nvrtcResult result = NVRTC_SUCCESS;
    FA2_TRY(compile_in_c_locale(nvrtc, program, o, &result, &kernel->compile_ms));
    FA2_TRY(take_log(nvrtc, program, &kernel->log));
    const char *log = kernel->log != NULL ? kernel->log : "no log";
    if (result == NVRTC_ERROR_BUILTIN_OPERATION_FAILURE) {
        st = fa2i_fail_log(FA2_E_NO_NVRTC, log, "NVRTC (%s) does not find its builtins library: ", fa2i_nvrtc_path());
    } else if (result == NVRTC_ERROR_OUT_OF_MEMORY || result == NVRTC_ERROR_INVALID_OPTION) {
        (void)check(nvrtc, result, "nvrtcCompileProgram");
        st = fa2i_fail_log(result == NVRTC_ERROR_OUT_OF_MEMORY ? FA2_E_MEMORY : FA2_E_COMPILE, log,
                           "%s: ", fa2_last_message());
    } else if (result != NVRTC_SUCCESS) {
        /* Errors inside the compiler, too, because the same source causes them again. */
        kernel->outcome = FA2I_OUTCOME_COMPILE_ERROR;
        if (result != NVRTC_ERROR_COMPILATION)
            FA2_TRY(put_before_log(nvrtc->get_error_string(result), &kernel->log));
    } else {
        FA2_TRY(take_image(nvrtc, program, ptx, &kernel->image));
        read_usage(kernel);
        FA2_TRY(check_entries(kernel));
    }
done:
    return st;
}

fa2_status fa2i_compile(const fa2i_variant *variant, const char *source, const fa2i_target *target,
                        const char *generator, fa2i_kernel *ret_kernel)
{
    const fa2i_nvrtc_table *nvrtc = NULL;
    fa2_status st = FA2_OK;
    nvrtcProgram program = NULL;
    fa2i_kernel kernel = {.variant = *variant};
    options o;
    char name[FA2I_VARIANT_CHARS + 4]; /* for example "fwd_sm80.cu" */
    FA2_TRY(fa2i_nvrtc_get(&nvrtc));
    FA2_TRY(read_version(nvrtc, &kernel.nvrtc));
    make_options(variant, target, kernel.nvrtc, &o);
    make_key(variant, source, target, kernel.nvrtc, &o, &kernel.key);
    memcpy(kernel.target, target->name, sizeof kernel.target);
    snprintf(kernel.generator, sizeof kernel.generator, "%s", generator);
    snprintf(name, sizeof name, "%.*s.cu", (int)strcspn(variant->text, " "), variant->text);

    if (check_version(variant, target, kernel.nvrtc) != FA2_OK) {
        kernel.outcome = FA2I_OUTCOME_COMPILE_ERROR;
        FA2_TRY(put_before_log(fa2_last_message(), &kernel.log));
    } else {
        FA2_TRY(check(nvrtc, nvrtc->create_program(&program, source, name, 0, NULL, NULL), "nvrtcCreateProgram"));
        FA2_TRY(run(nvrtc, program, &o, target->ptx, &kernel));
    }
    *ret_kernel = kernel;
    kernel = (fa2i_kernel){0};
done:
    if (st != FA2_OK)
        fa2i_fail_prefix(st, "compiling %s for %s", variant->text, target->name);
    if (program != NULL)
        (void)nvrtc->destroy_program(&program);
    fa2i_kernel_done(&kernel);
    return st;
}
