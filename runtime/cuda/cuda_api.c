/*
 * Finds, opens and fills the two tables.
 *
 * - A table is published (release store to *_ready) only when it is complete; the driver's also only after cuInit
 *   succeeded. Later calls read one atomic and take no lock.
 * - A failure publishes nothing. The next call tries again and sets its own thread's message.
 * - The symbols come from the X-lists of the tables: name, offset in the table, required or not.
 * - Libraries are never closed, because the driver keeps threads and state of its own.
 */
#define _GNU_SOURCE /* dlinfo */
#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/environment.h"
#include "runtime/base/text.h"
#include "runtime/cuda/cuda_api.h"

enum { PATH_BYTES = 4096, SYMBOL_R = 1, SYMBOL_O = 0 };

typedef struct symbol {
    const char *name;
    size_t offset; /* offset of the pointer in the table */
    bool required;
} symbol;

static const symbol cuda_symbols[] = {
#define FA2I_FN(kind, field, name, args) {name, offsetof(fa2i_cuda_table, field), SYMBOL_##kind},
#include "runtime/cuda/cuda_functions.inc"
#undef FA2I_FN
};

static const symbol nvrtc_symbols[] = {
#define FA2I_FN(kind, field, name, args) {name, offsetof(fa2i_nvrtc_table, field), SYMBOL_##kind},
#include "runtime/cuda/nvrtc_functions.inc"
#undef FA2I_FN
    {"nvrtcGetErrorString", offsetof(fa2i_nvrtc_table, get_error_string), true},
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Protected by lock: the tables that were loaded, and those that tests installed. */
static fa2i_cuda_table cuda_loaded;
static fa2i_nvrtc_table nvrtc_loaded;
static const fa2i_cuda_table *cuda_installed;
static const fa2i_nvrtc_table *nvrtc_installed;

/* Written under lock before the table is published. */
static char cuda_path[PATH_BYTES];
static char nvrtc_path[PATH_BYTES];

static _Atomic(const fa2i_cuda_table *) cuda_ready;
static _Atomic(const fa2i_nvrtc_table *) nvrtc_ready;

/* A search for one library: its handle, and every name that failed, with the loader's reason. */
typedef struct search {
    void *handle;
    fa2i_text tried;
} search;

static void note_failure(search *s, const char *name, const char *reason)
{
    /* The loader's reason usually begins with the name, but not if a dependency is missing. */
    const size_t length = strlen(name);
    if (strncmp(reason, name, length) == 0 && strncmp(reason + length, ": ", 2) == 0)
        reason += length + 2;
    fa2i_text_add(&s->tried, "%s%s (%s)", s->tried.length > 0 ? "; " : "", name, reason);
}

/* Returns true if the search is over. */
static bool try_name(search *s, const char *name)
{
    if (s->handle != NULL)
        return true;
    s->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (s->handle != NULL)
        return true;
    const char *reason = dlerror();
    note_failure(s, name, reason != NULL ? reason : "no reason given");
    return false;
}

/* Tries every file that matches <root><pattern>, in the order of their names. */
static void try_pattern(search *s, const char *root, const char *pattern)
{
    char path[PATH_BYTES];
    glob_t found = {0};
    if (s->handle != NULL)
        return;
    snprintf(path, sizeof path, "%s%s", root, pattern);
    if (glob(path, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++)
            try_name(s, found.gl_pathv[i]);
    } else {
        note_failure(s, path, "no such file");
    }
    globfree(&found);
}

static void try_nvrtc_folder(search *s, const char *root, const char *folder)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "%s%s/%s", root, folder, names[i]);
        try_name(s, path);
    }
}

static void find_cuda(search *s)
{
    const char *only = fa2i_environment("FA2_CUDA_LIBRARY");
    if (only != NULL) {
        try_name(s, only);
        return;
    }
    try_name(s, "libcuda.so.1");
    try_name(s, "/usr/lib/wsl/lib/libcuda.so.1");
}

static void find_nvrtc(search *s)
{
    static const char *const homes[] = {"CUDA_HOME", "CUDA_PATH"};
    const char *only = fa2i_environment("FA2_NVRTC_LIBRARY");
    if (only != NULL) {
        try_name(s, only);
        return;
    }
#ifdef FA2_NVRTC_HINT
    try_nvrtc_folder(s, FA2_NVRTC_HINT, "");
#endif
    try_name(s, "libnvrtc.so.13");
    try_name(s, "libnvrtc.so.12");
    for (size_t i = 0; i < sizeof homes / sizeof *homes; i++) {
        const char *home = fa2i_environment(homes[i]);
        if (home != NULL)
            try_nvrtc_folder(s, home, "/lib64");
    }
    try_nvrtc_folder(s, "/usr/local/cuda", "/lib64");
    const char *venv = fa2i_environment("VIRTUAL_ENV");
    if (venv != NULL) {
        try_pattern(s, venv, "/lib/python3.*/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
        try_pattern(s, venv, "/lib/python3.*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
    }
}

/* Ends a search. Fails with every name that was tried, and a cure, if there is no handle. */
static fa2_status search_end(search *s, fa2_status failure, const char *what, const char *variable, const char *cure)
{
    fa2_status st = FA2_OK;
    if (s->handle == NULL)
        st = fa2i_fail(failure, "no %s found (%s can name one); tried %s; %s", what, variable,
                       s->tried.data != NULL ? s->tried.data : "nothing: out of memory", cure);
    fa2i_text_done(&s->tried);
    return st;
}

/* Finds the file that the loader opened, or "". */
static void path_of(void *handle, char path[PATH_BYTES])
{
    struct link_map *map = NULL;
    const bool told = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0;
    snprintf(path, PATH_BYTES, "%s", told ? map->l_name : "");
}

/* Fills a table from a library, and stores the library's path. variable: the environment variable that can name
 * another. */
static fa2_status fill(void *handle, const symbol *symbols, size_t count, void *table, fa2_status failure,
                       const char *variable, char path[PATH_BYTES])
{
    const char *missing = NULL;
    path_of(handle, path);
    for (size_t i = 0; i < count; i++) {
        void *address = dlsym(handle, symbols[i].name);
        if (address == NULL && symbols[i].required && missing == NULL)
            missing = symbols[i].name;
        /* ISO C cannot convert void * to a function pointer; POSIX gives them the same representation. */
        memcpy((char *)table + symbols[i].offset, &address, sizeof address);
    }
    if (missing == NULL)
        return FA2_OK;
    fa2i_fail(failure, "%s has no function %s: too old, or not the right library; %s can name another",
              path[0] != '\0' ? path : "the library found", missing, variable);
    path[0] = '\0';
    return failure;
}

static fa2_status load_cuda(fa2i_cuda_table *table)
{
    fa2_status st = FA2_OK;
    search s = {0};
    find_cuda(&s);
    FA2_TRY(search_end(&s, FA2_E_NO_DRIVER, "CUDA driver library", "FA2_CUDA_LIBRARY",
                       "install NVIDIA's driver, 525 or newer; a container needs --gpus all"));
    FA2_TRY(fill(s.handle, cuda_symbols, sizeof cuda_symbols / sizeof *cuda_symbols, table, FA2_E_NO_DRIVER,
                 "FA2_CUDA_LIBRARY", cuda_path));
done:
    return st;
}

/* While compiling, NVRTC opens its builtins by their bare name. That fails if NVRTC lies outside the loader's folders,
 * as in Python packages. So this function opens the builtins beside NVRTC first, and the loader then finds the name
 * already loaded. A failure here is no error, because NVRTC may still find its own. */
static void open_builtins(const fa2i_nvrtc_table *table)
{
    int major = 0, minor = 0;
    const char *slash = strrchr(nvrtc_path, '/');
    if (slash == NULL || table->version(&major, &minor) != NVRTC_SUCCESS)
        return;
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(slash - nvrtc_path), nvrtc_path, major, minor);
    if (dlopen(path, RTLD_NOW | RTLD_LOCAL) == NULL)
        (void)dlerror(); /* discard the error */
}

static fa2_status load_nvrtc(fa2i_nvrtc_table *table)
{
    fa2_status st = FA2_OK;
    search s = {0};
    find_nvrtc(&s);
    FA2_TRY(search_end(&s, FA2_E_NO_NVRTC, "NVRTC library", "FA2_NVRTC_LIBRARY",
                       "it comes with the CUDA toolkit, or with `pip install nvidia-cuda-nvrtc`"));
    FA2_TRY(fill(s.handle, nvrtc_symbols, sizeof nvrtc_symbols / sizeof *nvrtc_symbols, table, FA2_E_NO_NVRTC,
                 "FA2_NVRTC_LIBRARY", nvrtc_path));
    open_builtins(table);
done:
    return st;
}

static fa2_status start_cuda(const fa2i_cuda_table *cuda)
{
    const CUresult result = cuda->init(0);
    if (result == CUDA_SUCCESS)
        return FA2_OK;
    (void)fa2i_cuda_check(cuda, result, "cuInit");
    return fa2i_fail_prefix(result == CUDA_ERROR_NO_DEVICE ? FA2_E_NO_DEVICE : FA2_E_NO_DRIVER,
                            "the CUDA driver%s%s does not start", cuda_path[0] != '\0' ? " " : "", cuda_path);
}

fa2_status fa2i_cuda_get(const fa2i_cuda_table **ret_table)
{
    const fa2i_cuda_table *table = atomic_load_explicit(&cuda_ready, memory_order_acquire);
    fa2_status st = FA2_OK;
    if (table != NULL) {
        *ret_table = table;
        return FA2_OK;
    }
    pthread_mutex_lock(&lock);
    table = cuda_installed;
    if (table == NULL) {
        FA2_TRY(load_cuda(&cuda_loaded));
        table = &cuda_loaded;
    }
    FA2_TRY(start_cuda(table));
    atomic_store_explicit(&cuda_ready, table, memory_order_release);
    *ret_table = table;
done:
    pthread_mutex_unlock(&lock);
    return st;
}

fa2_status fa2i_nvrtc_get(const fa2i_nvrtc_table **ret_table)
{
    const fa2i_nvrtc_table *table = atomic_load_explicit(&nvrtc_ready, memory_order_acquire);
    fa2_status st = FA2_OK;
    if (table != NULL) {
        *ret_table = table;
        return FA2_OK;
    }
    pthread_mutex_lock(&lock);
    table = nvrtc_installed;
    if (table == NULL) {
        FA2_TRY(load_nvrtc(&nvrtc_loaded));
        table = &nvrtc_loaded;
    }
    atomic_store_explicit(&nvrtc_ready, table, memory_order_release);
    *ret_table = table;
done:
    pthread_mutex_unlock(&lock);
    return st;
}

void fa2i_cuda_install(const fa2i_cuda_table *table)
{
    pthread_mutex_lock(&lock);
    cuda_installed = table;
    cuda_path[0] = '\0';
    atomic_store_explicit(&cuda_ready, NULL, memory_order_release);
    pthread_mutex_unlock(&lock);
}

void fa2i_nvrtc_install(const fa2i_nvrtc_table *table)
{
    pthread_mutex_lock(&lock);
    nvrtc_installed = table;
    nvrtc_path[0] = '\0';
    atomic_store_explicit(&nvrtc_ready, NULL, memory_order_release);
    pthread_mutex_unlock(&lock);
}

const char *fa2i_cuda_path(void)
{
    return atomic_load_explicit(&cuda_ready, memory_order_acquire) != NULL ? cuda_path : "";
}

const char *fa2i_nvrtc_path(void)
{
    return atomic_load_explicit(&nvrtc_ready, memory_order_acquire) != NULL ? nvrtc_path : "";
}

fa2_status fa2i_cuda_check(const fa2i_cuda_table *cuda, CUresult result, const char *what)
{
    const char *name = NULL, *text = NULL;
    if (result == CUDA_SUCCESS)
        return FA2_OK;
    if (cuda->get_error_name(result, &name) != CUDA_SUCCESS || name == NULL)
        return fa2i_fail(FA2_E_CUDA, "%s: CUDA error %d", what, (int)result);
    if (cuda->get_error_string(result, &text) != CUDA_SUCCESS || text == NULL)
        text = "no description";
    return fa2i_fail(FA2_E_CUDA, "%s: %s (%s)", what, name, text);
}

fa2_status fa2i_cuda_is_software(const fa2i_cuda_table *cuda, bool *ret_software)
{
    int version = 0;
    const fa2_status st =
        cuda->sim_version == NULL ? FA2_OK : fa2i_cuda_check(cuda, cuda->sim_version(&version), "fa2_sim_version");
    if (st == FA2_OK)
        *ret_software = version > 0;
    return st;
}
