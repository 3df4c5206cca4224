/*
 * - Folders are read with their subfolders, in the order of $FA2_GEN_PATH, assets last. A name that is already in the
 *   list is passed over, so the first folder wins.
 * - The list is sorted once, at the end. Until then it is searched linearly (some dozen names).
 */
#include "runtime/lua/generator_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "gen/asset.h"
#include "runtime/base/alloc.h"
#include "runtime/base/environment.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"

/* The folder of scripts and templates that only write reports. They do not change kernels. */
#define REPORT "tuner/report"

/* The folders of the source tree that the generator reads, and the suffixes of the files that it reads there. A .def
 * file is a list that both C and templates include. */
static const struct {
    const char *folder, *suffix;
} kinds[] = {{"gen", ".lua"},
             {"templates", ".cu.in"},
             {"templates", ".cuh"},
             {"templates", ".def"},
             {REPORT "/lua", ".lua"},
             {REPORT "/templates", ".html.in"},
             {REPORT "/templates", ".svg.in"},
             {REPORT "/templates", ".md.in"},
             {REPORT "/templates", ".css"},
             {REPORT "/templates", ".js"}};
enum {
    KINDS = sizeof kinds / sizeof kinds[0],
    DEPTH_MAX = 8,      /* of subfolders, because a link may lead in a circle */
    FILE_MAX = 1 << 20, /* bytes; the files that come with fa2 have less than 32 KiB */
};

static bool ends_with(const char *name, const char *suffix)
{
    const size_t length = strlen(name), tail = strlen(suffix);
    return length > tail && strcmp(name + length - tail, suffix) == 0;
}

/* Returns whether a name, from the top of the source tree, belongs to the generator. */
static bool is_of_kind(const char *name, size_t kind)
{
    const size_t length = strlen(kinds[kind].folder);
    return strncmp(name, kinds[kind].folder, length) == 0 && name[length] == '/' && ends_with(name, kinds[kind].suffix);
}

static bool has(const fa2i_generator_files *files, const char *name)
{
    for (size_t i = 0; i < files->count; i++)
        if (strcmp(files->items[i].name, name) == 0)
            return true;
    return false;
}

/* Copies name. Borrows data permanently. owned: taken on FA2_OK; NULL if data belongs to an asset. */
static fa2_status add(fa2i_generator_files *files, const char *name, const char *data, char *owned, size_t bytes)
{
    const fa2_status st = FA2I_GROW(files->items, files->count + 1, files->capacity);
    if (st != FA2_OK)
        return st;
    char *copy = fa2i_strdup(name);
    if (copy == NULL)
        return fa2i_fail(FA2_E_MEMORY, "out of memory for the generator's files");
    files->items[files->count++] = (fa2i_generator_file){.name = copy, .data = data, .owned = owned, .bytes = bytes};
    return FA2_OK;
}

/* Reads a whole file. The caller owns *ret_data. */
static fa2_status read_file(const char *path, char **ret_data, size_t *ret_bytes)
{
    fa2_status st = FA2_OK;
    fa2i_text text = {0};
    char buffer[4096];
    size_t got = 0;
    const char *why = NULL;
    FILE *file = fa2i_file_open(path, &why);
    if (file == NULL)
        return fa2i_fail(FA2_E_IO, "%s: %s", path, why);
    while ((got = fread(buffer, 1, sizeof buffer, file)) > 0)
        fa2i_text_add_bytes(&text, buffer, got);
    if (ferror(file))
        FA2_TRY(fa2i_fail(FA2_E_IO, "%s: %s", path, strerror(errno)));
    const size_t bytes = text.length;
    FA2_TRY(fa2i_text_take(&text, ret_data));
    *ret_bytes = bytes;
done:
    fclose(file);
    fa2i_text_done(&text);
    return st;
}

static fa2_status add_file(fa2i_generator_files *files, const char *root, const char *name)
{
    fa2_status st = FA2_OK;
    char *path = NULL, *data = NULL;
    size_t bytes = 0;
    FA2_TRY(fa2i_text_make(&path, "%s/%s", root, name));
    FA2_TRY(read_file(path, &data, &bytes));
    FA2_TRY(add(files, name, data, data, bytes));
    data = NULL; /* ownership has moved to the list */
done:
    fa2i_free(data);
    fa2i_free(path);
    return st;
}

static fa2_status add_folder(fa2i_generator_files *files, const char *root, const char *folder, const char *suffix,
                             int depth, bool *found);

/* name: a file or a folder, relative to root. */
static fa2_status add_entry(fa2i_generator_files *files, const char *root, const char *name, const char *suffix,
                            int depth)
{
    fa2_status st = FA2_OK;
    char *path = NULL;
    struct stat info;
    bool found = false;
    FA2_TRY(fa2i_text_make(&path, "%s/%s", root, name));
    if (stat(path, &info) != 0)
        FA2_TRY(fa2i_fail(FA2_E_IO, "%s: %s", path, strerror(errno)));
    if (S_ISDIR(info.st_mode) && !ends_with(name, suffix)) {
        if (depth == DEPTH_MAX)
            st = fa2i_fail(FA2_E_GENERATOR, "FA2_GEN_PATH: %s lies deeper than %d folders", path, DEPTH_MAX);
        else
            st = add_folder(files, root, name, suffix, depth + 1, &found);
    } else if (ends_with(name, suffix) && !has(files, name)) {
        if (!S_ISREG(info.st_mode))
            st = fa2i_fail(FA2_E_GENERATOR, "FA2_GEN_PATH: %s is no regular file", path);
        else if (info.st_size > FILE_MAX)
            st = fa2i_fail(FA2_E_GENERATOR, "FA2_GEN_PATH: %s has %lld bytes; at most %d are read", path,
                           (long long)info.st_size, FILE_MAX);
        else
            st = add_file(files, root, name);
    }
done:
    fa2i_free(path);
    return st;
}

/* Adds the files of one kind in a folder of root and its subfolders. Sets *found to true if the folder exists. */
static fa2_status add_folder(fa2i_generator_files *files, const char *root, const char *folder, const char *suffix,
                             int depth, bool *found)
{
    fa2_status st = FA2_OK;
    fa2i_text text = {0};
    char *path = NULL, *name = NULL;
    DIR *opened = NULL;
    fa2i_text_add(&text, "%s/%s", root, folder);
    FA2_TRY(fa2i_text_take(&text, &path));
    opened = opendir(path);
    if (opened == NULL)
        goto done;
    *found = true;
    for (struct dirent *entry = readdir(opened); entry != NULL; entry = readdir(opened)) {
        if (entry->d_name[0] == '.')
            continue;
        fa2i_text_add(&text, "%s/%s", folder, entry->d_name);
        FA2_TRY(fa2i_text_take(&text, &name));
        FA2_TRY(add_entry(files, root, name, suffix, depth));
        fa2i_free(name);
        name = NULL;
    }
done:
    if (opened != NULL)
        closedir(opened);
    fa2i_free(name);
    fa2i_free(path);
    return st;
}

/* path: colon-separated; empty elements are ignored. */
static fa2_status add_path(fa2i_generator_files *files, const char *path)
{
    fa2_status st = FA2_OK;
    char *roots = fa2i_strdup(path);
    if (roots == NULL)
        return fa2i_fail(FA2_E_MEMORY, "out of memory for the generator's files");
    char *rest = NULL;
    for (char *root = strtok_r(roots, ":", &rest); root != NULL; root = strtok_r(NULL, ":", &rest)) {
        bool found = false;
        for (size_t kind = 0; kind < KINDS; kind++)
            FA2_TRY(add_folder(files, root, kinds[kind].folder, kinds[kind].suffix, 0, &found));
        if (!found)
            FA2_TRY(fa2i_fail(FA2_E_GENERATOR, "FA2_GEN_PATH: %s has neither gen/ nor templates/", root));
    }
done:
    fa2i_free(roots);
    return st;
}

static fa2_status add_assets(fa2i_generator_files *files)
{
    for (size_t i = 0; i < fa2i_assets_count; i++) {
        const fa2i_asset *asset = &fa2i_assets[i];
        bool wanted = false;
        for (size_t kind = 0; kind < KINDS; kind++)
            wanted = wanted || is_of_kind(asset->name, kind);
        if (!wanted || has(files, asset->name))
            continue;
        fa2_status st = add(files, asset->name, asset->data, NULL, asset->bytes);
        if (st != FA2_OK)
            return st;
    }
    return FA2_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const fa2i_generator_file *)a)->name, ((const fa2i_generator_file *)b)->name);
}

fa2_status fa2i_generator_files_open(fa2i_generator_files *ret_files)
{
    fa2_status st = FA2_OK;
    const char *path = fa2i_environment("FA2_GEN_PATH");
    if (path != NULL)
        FA2_TRY(add_path(ret_files, path));
    FA2_TRY(add_assets(ret_files));
    qsort(ret_files->items, ret_files->count, sizeof *ret_files->items, compare_names);
done:
    return st;
}

void fa2i_generator_files_done(fa2i_generator_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        fa2i_free(files->items[i].name);
        fa2i_free(files->items[i].owned);
    }
    fa2i_free(files->items);
    *files = (fa2i_generator_files){0};
}

static int compare_to_name(const void *name, const void *file)
{
    return strcmp(name, ((const fa2i_generator_file *)file)->name);
}

bool fa2i_generator_files_are_own(const fa2i_generator_files *files)
{
    for (size_t i = 0; i < files->count; i++)
        if (files->items[i].owned != NULL)
            return false;
    return true;
}

const fa2i_generator_file *fa2i_generator_files_find(const fa2i_generator_files *files, const char *name)
{
    return bsearch(name, files->items, files->count, sizeof *files->items, compare_to_name);
}

static bool is_of_report(const char *name)
{
    return strncmp(name, REPORT "/", sizeof REPORT) == 0;
}

static fa2_status find_key(const fa2i_generator_files *files, fa2i_key *ret_key)
{
    fa2i_part *parts = fa2i_alloc_array(2 * files->count, sizeof *parts);
    if (parts == NULL)
        return fa2i_fail(FA2_E_MEMORY, "out of memory for the generator's files");
    size_t count = 0;
    for (size_t i = 0; i < files->count; i++) {
        const fa2i_generator_file *file = &files->items[i];
        if (is_of_report(file->name))
            continue;
        parts[count++] = (fa2i_part){file->name, strlen(file->name)};
        parts[count++] = (fa2i_part){file->data, file->bytes};
    }
    fa2i_key_of(parts, count, ret_key);
    fa2i_free(parts);
    return FA2_OK;
}

/* The build hashed the embedded files. To hash them again would take a third of the time to make a generator. */
static fa2_status find_own_key(fa2i_key *ret_key)
{
    const fa2i_part embedded = {fa2i_assets_hash, strlen(fa2i_assets_hash)};
    fa2i_key_of(&embedded, 1, ret_key);
    return FA2_OK;
}

fa2_status fa2i_generator_files_key(const fa2i_generator_files *files, fa2i_key *ret_key)
{
    return fa2i_generator_files_are_own(files) ? find_own_key(ret_key) : find_key(files, ret_key);
}

fa2_status fa2i_generator_files_find_hash(fa2i_key *ret_key)
{
    fa2i_generator_files files = {0};
    if (fa2i_environment("FA2_GEN_PATH") == NULL)
        return find_own_key(ret_key);
    fa2_status st = fa2i_generator_files_open(&files);
    if (st == FA2_OK)
        st = fa2i_generator_files_key(&files, ret_key);
    fa2i_generator_files_done(&files);
    return st;
}
