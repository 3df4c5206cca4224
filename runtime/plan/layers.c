#include "runtime/plan/layers.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cache/shipped/shipped.h"
#include "runtime/base/alloc.h"
#include "runtime/base/environment.h"
#include "runtime/base/shown.h"
#include "runtime/base/text.h"
#include "runtime/plan/share.h"

/* ---- opening ---- */

static void say_passed_over(fa2i_log_fn log, void *log_user)
{
    char text[FA2I_MESSAGE_BYTES + 64];
    fa2i_shown_write(text, sizeof text, "a system database is passed over: %s", fa2_last_message());
    if (log != NULL)
        log(log_user, text);
}

/* Returns whether a file is open already, under this path or another one. */
static bool is_open(const fa2i_layers *layers, const char *path)
{
    struct stat file, other;
    if (stat(path, &file) != 0)
        return false;
    for (size_t i = 0; i < layers->count; i++)
        if (stat(fa2i_cache_path(layers->caches[i]), &other) == 0 && other.st_dev == file.st_dev &&
            other.st_ino == file.st_ino)
            return true;
    return false;
}

static fa2_status add_file(const char *path, fa2i_log_fn log, void *log_user, fa2i_layers *layers)
{
    fa2i_cache *cache = NULL;
    fa2_status st = FA2_OK;
    if (is_open(layers, path))
        return FA2_OK;
    if (layers->count == FA2I_LAYERS_MAX)
        st = fa2i_fail(FA2_E_INVALID,
                       "%s: is one more than the %d that are read; FA2_SYSTEM_DB names those that you want", path,
                       FA2I_LAYERS_MAX);
    else
        st = fa2i_cache_open(path, FA2I_CACHE_READ, log, log_user, &cache);
    if (st == FA2_E_MEMORY)
        return st;
    if (st != FA2_OK) {
        say_passed_over(log, log_user);
        return FA2_OK;
    }
    layers->caches[layers->count++] = cache;
    fa2i_share_add_file(path, path, &layers->key);
    return FA2_OK;
}

/* paths: with ':' between them. */
static fa2_status add_named(const char *paths, fa2i_log_fn log, void *log_user, fa2i_layers *layers)
{
    char *rest = NULL, *copy = fa2i_strdup(paths);
    fa2_status st = copy != NULL ? FA2_OK : fa2i_fail(FA2_E_MEMORY, "no memory for paths of databases");
    for (char *path = copy != NULL ? strtok_r(copy, ":", &rest) : NULL; st == FA2_OK && path != NULL;
         path = strtok_r(NULL, ":", &rest))
        st = add_file(path, log, log_user, layers);
    fa2i_free(copy);
    return st;
}

static int is_database(const struct dirent *entry)
{
    const char *end = strrchr(entry->d_name, '.');
    return entry->d_name[0] != '.' && end != NULL && strcmp(end, ".db") == 0 &&
           strcmp(entry->d_name, FA2I_SHARE_TIMES) != 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); /* the same order in every locale */
}

/* A folder that cannot be read has no databases; share.c says so. */
static fa2_status add_folder(const char *folder, fa2i_log_fn log, void *log_user, fa2i_layers *layers)
{
    struct dirent **entries = NULL;
    fa2_status st = FA2_OK;
    const int count = scandir(folder, &entries, is_database, by_name);
    for (int i = 0; i < count; i++) {
        char *path = NULL;
        if (st == FA2_OK)
            st = fa2i_text_make(&path, "%s/%s", folder, entries[i]->d_name);
        if (st == FA2_OK)
            st = add_file(path, log, log_user, layers);
        fa2i_free(path);
        free(entries[i]);
    }
    free(entries);
    return st;
}

fa2_status fa2i_layers_open(const char *share, fa2i_log_fn log, void *log_user, fa2i_layers *ret_layers)
{
    fa2i_layers layers = {.count = 0};
    fa2_status st = FA2_OK;
    const char *given = fa2i_environment_given("FA2_SYSTEM_DB");
    fa2i_naming_set("FA2_SYSTEM_DB");
    if (given != NULL)
        st = add_named(given, log, log_user, &layers);
    else if (share != NULL)
        st = add_folder(share, log, log_user, &layers);
    fa2i_naming_set(NULL);
    if (st != FA2_OK)
        fa2i_layers_close(&layers);
    *ret_layers = layers;
    return st;
}

void fa2i_layers_close(fa2i_layers *layers)
{
    for (size_t i = 0; i < layers->count; i++)
        fa2i_cache_close(layers->caches[i]);
    *layers = (fa2i_layers){.count = 0};
}

/* ---- reading ---- */

/* *ret_from: the database that has it; unchanged after an error. */
static fa2_status get_kernel(fa2i_cache *own, const fa2i_layers *below, const fa2i_key *key, int abi, bool with_image,
                             fa2i_kernel *ret_kernel, fa2i_cache **ret_from)
{
    char why[FA2I_MESSAGE_BYTES] = "no database has the kernel";
    fa2_status st = FA2_E_NOT_FOUND;
    if (own != NULL)
        st = fa2i_cache_get_kernel(own, key, abi, with_image, ret_kernel);
    if (st == FA2_OK)
        *ret_from = own;
    if (st == FA2_OK || st == FA2_E_MEMORY)
        return st;
    if (own != NULL)
        snprintf(why, sizeof why, "%s", fa2_last_message());
    for (size_t i = 0; i < below->count; i++) {
        const fa2_status found = fa2i_cache_get_kernel(below->caches[i], key, abi, with_image, ret_kernel);
        if (found == FA2_OK)
            *ret_from = below->caches[i];
        if (found == FA2_OK || found == FA2_E_MEMORY)
            return found;
    }
    return fa2i_fail(st, "%s", why);
}

fa2_status fa2i_layers_get_kernel(fa2i_cache *own, const fa2i_layers *below, const fa2i_key *key, int abi,
                                  bool with_image, fa2i_kernel *ret_kernel)
{
    fa2i_cache *from = NULL;
    return get_kernel(own, below, key, abi, with_image, ret_kernel, &from);
}

fa2_status fa2i_layers_find_code(fa2i_cache *own, const fa2i_layers *below, const fa2i_key *key, int abi,
                                 char **ret_path)
{
    fa2i_cache *from = NULL;
    fa2i_kernel kernel = {0};
    fa2_status st = get_kernel(own, below, key, abi, true, &kernel, &from);
    if (st == FA2_OK && (*ret_path = fa2i_strdup(fa2i_cache_path(from))) == NULL)
        st = fa2i_fail(FA2_E_MEMORY, "no memory for the path of a database");
    fa2i_kernel_done(&kernel);
    return st;
}

fa2i_outcome fa2i_layers_refutation(fa2i_cache *own, const fa2i_layers *below, const fa2i_key *key)
{
    fa2i_outcome outcome = FA2I_OUTCOME_OK;
    if (own != NULL)
        (void)fa2i_cache_refutation(own, key, &outcome);
    for (size_t i = 0; outcome == FA2I_OUTCOME_OK && i < below->count; i++)
        (void)fa2i_cache_refutation(below->caches[i], key, &outcome);
    return outcome;
}

fa2i_outcome fa2i_layers_variant_refutation(fa2i_cache *own, const fa2i_layers *below, const char *variant)
{
    fa2i_outcome outcome = FA2I_OUTCOME_OK;
    if (own != NULL)
        (void)fa2i_cache_variant_refutation(own, variant, &outcome);
    for (size_t i = 0; outcome == FA2I_OUTCOME_OK && i < below->count; i++)
        (void)fa2i_cache_variant_refutation(below->caches[i], variant, &outcome);
    return outcome;
}

/* The own database may know that a winner below is wrong. */
static void refute(fa2i_cache *own, fa2i_choice *choices, size_t count)
{
    const fa2i_layers none = {.count = 0};
    for (size_t i = 0; i < count; i++)
        if (choices[i].fault == NULL &&
            fa2i_layers_refutation(own, &none, &choices[i].winner.kernel) != FA2I_OUTCOME_OK) {
            choices[i].fault = "it failed its verification";
            choices[i].refuted = true;
        }
}

/* A database below that cannot be read has no winners. */
static fa2_status append_choices(fa2i_cache *own, fa2i_cache *cache, int arch, const fa2_problem *problem, int abi,
                                 fa2i_choice **choices, size_t *count)
{
    fa2i_choice *more = NULL;
    size_t more_count = 0, capacity = *count;
    fa2_status st = fa2i_cache_choices(cache, arch, problem, abi, &more, &more_count);
    if (st != FA2_OK || more_count == 0)
        return st == FA2_E_MEMORY ? st : FA2_OK;
    st = FA2I_GROW(*choices, *count + more_count, capacity);
    if (st == FA2_OK) {
        refute(own, more, more_count);
        memcpy(*choices + *count, more, more_count * sizeof *more);
        *count += more_count;
    }
    fa2i_free(more);
    return st;
}

fa2_status fa2i_layers_choices(fa2i_cache *own, const fa2i_layers *below, int arch, const fa2_problem *problem, int abi,
                               fa2i_choice **ret_choices, size_t *ret_count)
{
    fa2i_choice *choices = NULL;
    size_t count = 0;
    fa2_status st = FA2_OK;
    if (own != NULL)
        FA2_TRY(fa2i_cache_choices(own, arch, problem, abi, &choices, &count));
    for (size_t i = 0; i < below->count; i++)
        FA2_TRY(append_choices(own, below->caches[i], arch, problem, abi, &choices, &count));
    *ret_choices = choices;
    *ret_count = count;
    choices = NULL; /* the caller owns them now */
done:
    fa2i_free(choices);
    return st;
}

/* Drops the times of kernels that the own database refuted, so that they are not merged. */
static void drop_refuted(fa2i_cache *own, fa2i_evidence *evidence)
{
    const fa2i_layers none = {.count = 0};
    for (size_t k = 0; k < evidence->kernel_count; k++) {
        if (fa2i_layers_refutation(own, &none, &evidence->kernels[k].key) == FA2I_OUTCOME_OK)
            continue;
        evidence->kernels[k].spilled = false; /* a kernel that spilled is merged without times */
        for (size_t i = 0; i < evidence->set_count; i++) {
            fa2i_known_set *set = &evidence->sets[i];
            size_t kept = 0;
            for (size_t t = 0; t < set->count; t++)
                if (evidence->times[set->first + t].kernel != k)
                    evidence->times[set->first + kept++] = evidence->times[set->first + t];
            set->count = kept;
        }
    }
}

fa2_status fa2i_layers_add_evidence(fa2i_cache *own, const fa2i_layers *below, const fa2i_card *card, fa2_op op,
                                    int abi, fa2i_evidence *evidence)
{
    fa2_status st = FA2_OK;
    for (size_t i = 0; st == FA2_OK && i < below->count; i++) {
        fa2i_evidence more = {0};
        st = fa2i_cache_evidence(below->caches[i], card, op, abi, &more);
        if (st == FA2_OK) {
            drop_refuted(own, &more);
            st = fa2i_shipped_merge(&more, card, evidence);
        } else if (st != FA2_E_MEMORY) {
            st = FA2_OK;
        }
        fa2i_evidence_done(&more);
    }
    return st;
}
