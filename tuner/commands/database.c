#define _XOPEN_SOURCE 700 /* for mkdtemp */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cache/content/report.h"
#include "runtime/base/alloc.h"
#include "runtime/base/environment.h"
#include "runtime/base/shown.h"
#include "runtime/base/status.h"
#include "tuner/commands/database.h"

static void log_to_stderr(void *user, const char *message)
{
    (void)user;
    fa2i_shown_print(stderr, "fa2-tune: %s\n", message);
}

fa2_status fa2i_database_path(const char *given, char **ret_path)
{
    return given == NULL ? fa2i_cache_default_path(ret_path) : fa2i_text_make(ret_path, "%s", given);
}

/* stop: NULL for modes other than FA2I_CACHE_REPAIR. */
static fa2_status open_database(const char *path, fa2i_cache_mode mode, const volatile sig_atomic_t *stop,
                                fa2i_cache **ret_cache)
{
    char *name = NULL;
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_database_path(path, &name));
    FA2_TRY(stop != NULL ? fa2i_cache_open_to_mend(name, stop, log_to_stderr, NULL, ret_cache)
                         : fa2i_cache_open(name, mode, log_to_stderr, NULL, ret_cache));
    fa2i_cache_allow_seconds(*ret_cache, FA2I_CACHE_LONG_S);
done:
    fa2i_free(name);
    return st;
}

fa2_status fa2i_database_open(const char *path, fa2i_cache_mode mode, fa2i_cache **ret_cache)
{
    return open_database(path, mode, NULL, ret_cache);
}

fa2_status fa2i_database_open_to_mend(const char *path, const volatile sig_atomic_t *stop, fa2i_cache **ret_cache)
{
    return open_database(path, FA2I_CACHE_REPAIR, stop, ret_cache);
}

fa2_status fa2i_database_open_or_empty(const char *path, bool *ret_absent, fa2i_cache **ret_cache)
{
    char *name = NULL;
    fa2_status st = fa2i_database_open(path, FA2I_CACHE_READ, ret_cache);
    *ret_absent = st == FA2_E_NOT_FOUND;
    if (!*ret_absent)
        return st;
    FA2_TRY(fa2i_database_path(path, &name));
    FA2_TRY(fa2i_cache_open_empty(name, ret_cache));
done:
    fa2i_free(name);
    return st;
}

fa2_status fa2i_database_open_if_any(const char *path, const char *doing, char **ret_path, fa2i_cache **ret_cache)
{
    fa2_status st = fa2i_database_path(path, ret_path);
    if (st == FA2_E_MEMORY)
        return st;
    st = st == FA2_OK ? fa2i_database_open(*ret_path, FA2I_CACHE_READ, ret_cache) : FA2_E_NOT_FOUND;
    if (st != FA2_E_NOT_FOUND)
        return st;
    fprintf(stderr, "fa2-tune: %s; %s without a database of yours\n", fa2_last_message(), doing);
    return FA2_OK;
}

fa2_status fa2i_database_check_writable(const char *path)
{
    char *name = NULL;
    fa2_status st = fa2i_database_path(path, &name);
    if (st == FA2_OK)
        st = fa2i_cache_check_writable(name);
    fa2i_free(name);
    return st;
}

/* ---- copies ---- */

#define COPY_NAME "/fa2.db"

/* *ret_path: the path for the copy, in a new folder. The caller owns it. */
static fa2_status make_place(char **ret_path)
{
    char *path = NULL;
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_text_make(&path, "%s/fa2-dry-XXXXXX" COPY_NAME, fa2i_environment_folder()));
    char *name = path + strlen(path) - strlen(COPY_NAME);
    *name = '\0';
    if (mkdtemp(path) == NULL)
        FA2_TRY(fa2i_fail(FA2_E_IO, "%s: %s; TMPDIR can name a folder", path, strerror(errno)));
    *name = '/';
    *ret_path = path;
    path = NULL;
done:
    fa2i_free(path);
    return st;
}

fa2_status fa2i_database_copy(fa2i_cache *cache, char **ret_path)
{
    fa2_status st = FA2_OK;
    char *path = NULL;
    FA2_TRY(make_place(&path));
    FA2_TRY(fa2i_cache_copy(cache, path));
    if (chmod(path, S_IRUSR | S_IWUSR) != 0) /* regardless of the umask: databases of other users are refused */
        FA2_TRY(fa2i_fail(FA2_E_IO, "%s: %s", path, strerror(errno)));
    *ret_path = path;
    path = NULL;
done:
    fa2i_database_remove_copy(path);
    return st;
}

void fa2i_database_remove_copy(char *path)
{
    if (path == NULL)
        return;
    fa2i_cache_remove(path);
    path[strlen(path) - strlen(COPY_NAME)] = '\0';
    rmdir(path);
    fa2i_free(path);
}

/* ---- devices ---- */

/* Devices with the same name are listed once. */
typedef struct device_names {
    fa2i_text text;
    char last[128];
} device_names;

static int add_device(void *user, int columns, const char *const *names, const char *const *values)
{
    device_names *to = user;
    const char *name = fa2i_row_value(columns, names, values, "name");
    if (name != NULL && strcmp(name, to->last) != 0) {
        fa2i_text_add(&to->text, "%s%s", to->last[0] == '\0' ? "" : ", ", name);
        snprintf(to->last, sizeof to->last, "%s", name);
    }
    return to->text.failed;
}

/* Does the text contain the part, without regard to case? */
static bool has_part(const char *text, const char *part)
{
    const size_t length = strlen(part);
    for (; strlen(text) >= length; text++) {
        if (strncasecmp(text, part, length) == 0)
            return true;
    }
    return false;
}

/* Looks for the name of --device among the devices of a database. */
typedef struct device_search {
    const char *name;
    bool found;
    device_names names; /* of all devices */
} device_search;

static int look_at_device(void *user, int columns, const char *const *names, const char *const *values)
{
    device_search *s = user;
    const char *name = fa2i_row_value(columns, names, values, "name");
    s->found = name != NULL && has_part(name, s->name);
    return s->found || add_device(&s->names, columns, names, values);
}

fa2_status fa2i_database_check_device(fa2i_cache *const *caches, size_t count, const fa2i_options *options)
{
    device_search s = {.name = options->filter.device};
    char *list = NULL;
    fa2_status st = FA2_OK;
    if (s.name == NULL || s.name[0] == '\0' || s.name == options->filter_device)
        return FA2_OK;
    for (size_t i = 0; i < count && !s.found; i++)
        FA2_TRY(fa2i_cache_list_devices(caches[i], look_at_device, &s));
    if (s.found || count == 0)
        goto done;
    FA2_TRY(fa2i_text_take(&s.names.text, &list));
    st = fa2i_fail(FA2_E_INVALID, "--device \"%s\": there is no such device in %s%s; %s%s", s.name,
                   fa2i_cache_path(caches[0]), count > 1 ? " and the system's databases" : "",
                   list[0] == '\0' ? "there is no device in it" : "the devices in it: ", list);
done:
    fa2i_text_done(&s.names.text);
    fa2i_free(list);
    return st;
}

fa2_status fa2i_database_say_devices(fa2i_cache *cache, const fa2i_filter *filter)
{
    device_names devices = {.last = ""};
    char *list = NULL;
    fa2_status st = FA2_OK;
    if (filter->device == NULL || filter->device[0] == '\0')
        return FA2_OK;
    FA2_TRY(fa2i_cache_list_devices(cache, add_device, &devices));
    FA2_TRY(fa2i_text_take(&devices.text, &list));
    if (list[0] == '\0')
        fputs("fa2-tune: there is no device in it\n", stderr);
    else
        fa2i_shown_print(stderr, "fa2-tune: the devices in it: %s\n", list);
done:
    fa2i_text_done(&devices.text);
    fa2i_free(list);
    return st;
}

/* user: the name of --device, or NULL. */
static int say_one_uncompiled(void *user, int columns, const char *const *names, const char *const *values)
{
    const char *name = fa2i_row_value(columns, names, values, "name");
    const char *arch = fa2i_row_value(columns, names, values, "arch");
    const char *reason = fa2i_row_value(columns, names, values, "uncompiled");
    if (reason != NULL && (user == NULL || has_part(name, user)))
        fa2i_shown_print(stderr, "fa2-tune: %s (sm_%s) has no results: %s\n", name, arch, reason);
    return 0;
}

fa2_status fa2i_database_say_uncompiled(fa2i_cache *cache, const fa2i_filter *filter)
{
    return fa2i_cache_list_devices(cache, say_one_uncompiled, (void *)(uintptr_t)filter->device);
}
