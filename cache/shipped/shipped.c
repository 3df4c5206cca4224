/*
 * How: copy the file into memory and open the copy, so that neither locks nor journals beside the file count. It is
 * read as any database is (evidence.c).
 */
#include "cache/shipped/shipped.h"

#include <errno.h>
#include <string.h>
#include "cache/internal.h"
#include "runtime/base/alloc.h"
#include "runtime/base/file.h"

enum { FILE_BYTES_MAX = 64 << 20 };

static fa2_status no_memory(void)
{
    return fa2i_fail(FA2_E_MEMORY, "no memory for the times that come with fa2");
}

/* ---- one file ---- */

/* Reads the whole file. The caller owns *ret_data (sqlite3_free). */
static fa2_status read_file(const char *path, unsigned char **ret_data, size_t *ret_bytes)
{
    fa2_status st = FA2_OK;
    unsigned char *data = NULL;
    long bytes = 0;
    const char *why = NULL;
    FILE *in = fa2i_file_open(path, &why);
    if (in == NULL)
        FA2_TRY(fa2i_fail(FA2_E_IO, "%s: cannot be read (%s)", path, why));
    if (fseek(in, 0, SEEK_END) != 0 || (bytes = ftell(in)) < 0)
        FA2_TRY(fa2i_fail(FA2_E_IO, "%s: cannot be read (%s)", path, strerror(errno)));
    if (bytes > FILE_BYTES_MAX)
        FA2_TRY(fa2i_fail(FA2_E_DATABASE, "%s: has %ld bytes; at most %d are read", path, bytes, (int)FILE_BYTES_MAX));
    data = sqlite3_malloc64((sqlite3_uint64)bytes + 1);
    if (data == NULL)
        FA2_TRY(no_memory());
    rewind(in);
    if (fread(data, 1, (size_t)bytes, in) != (size_t)bytes)
        FA2_TRY(fa2i_fail(FA2_E_IO, "%s: cannot be read (%s)", path, strerror(errno)));
    *ret_data = data;
    *ret_bytes = (size_t)bytes;
    data = NULL; /* it belongs to the caller now */
done:
    sqlite3_free(data);
    if (in != NULL)
        fclose(in);
    return st;
}

/* Appends what was found in a file. */
static fa2_status append(const fa2i_evidence *found, fa2i_evidence *evidence)
{
    const fa2_status st = fa2i_evidence_reserve(evidence, found->kernel_count, found->set_count, found->time_count);
    if (st != FA2_OK)
        return st;
    for (size_t i = 0; i < found->time_count; i++) {
        fa2i_known_time time = found->times[i];
        time.kernel += evidence->kernel_count;
        evidence->times[evidence->time_count + i] = time;
    }
    for (size_t i = 0; i < found->set_count; i++) {
        fa2i_known_set set = found->sets[i];
        set.first += evidence->time_count;
        set.shipped = true;
        evidence->sets[evidence->set_count++] = set;
    }
    for (size_t i = 0; i < found->kernel_count; i++) {
        const fa2i_known_kernel *kernel = &found->kernels[i];
        fa2i_known_kernel *added = &evidence->kernels[evidence->kernel_count++];
        *added = (fa2i_known_kernel){.registers = kernel->registers, .spilled = kernel->spilled, .shipped = true};
        memcpy(added->text, kernel->text, sizeof added->text);
        memcpy(added->class_key, kernel->class_key, sizeof added->class_key);
    }
    evidence->time_count += found->time_count;
    return FA2_OK;
}

fa2_status fa2i_shipped_read(const char *path, const fa2i_card *card, fa2_op op, int abi, fa2i_evidence *evidence)
{
    fa2_status st;
    unsigned char *data = NULL;
    size_t bytes = 0;
    fa2i_cache *cache = NULL;
    fa2i_evidence found = {0};
    FA2_TRY(read_file(path, &data, &bytes));
    FA2_TRY(fa2i_cache_open_bytes(path, FA2I_CACHE_READ, data, bytes, &cache));
    FA2_TRY(fa2i_cache_evidence(cache, card, op, abi, &found));
    FA2_TRY(append(&found, evidence));
done:
    fa2i_evidence_done(&found);
    fa2i_cache_close(cache);
    return st;
}

/* ---- merging into a database's evidence ---- */

static bool is_here(const fa2i_known_set *set, const fa2i_card *card)
{
    return set->real && fa2i_card_is_same(&set->card, card);
}

/* Is there a set of this problem and card among the first `count` sets? */
static bool has_problem(const fa2i_evidence *evidence, size_t count, const fa2i_card *card, const fa2_problem *problem)
{
    for (size_t i = 0; i < count; i++)
        if (is_here(&evidence->sets[i], card) && memcmp(&evidence->sets[i].problem, problem, sizeof *problem) == 0)
            return true;
    return false;
}

/* Finds the kernel's index in the evidence by its text, a kernel with code first. Adds the kernel if it is missing. */
static size_t merge_kernel(const fa2i_known_kernel *kernel, fa2i_evidence *evidence)
{
    size_t found = evidence->kernel_count;
    for (size_t i = 0; i < evidence->kernel_count; i++) {
        const fa2i_known_kernel *one = &evidence->kernels[i];
        if (strcmp(one->text, kernel->text) == 0 && strcmp(one->class_key, kernel->class_key) == 0 &&
            (found == evidence->kernel_count || one->has_code))
            found = i;
    }
    if (found == evidence->kernel_count)
        evidence->kernels[evidence->kernel_count++] = *kernel;
    return found;
}

fa2_status fa2i_shipped_merge(const fa2i_evidence *shipped, const fa2i_card *card, fa2i_evidence *evidence)
{
    const size_t own = evidence->set_count;
    size_t *places = NULL;
    fa2_status st = fa2i_evidence_reserve(evidence, shipped->kernel_count, shipped->set_count, shipped->time_count);
    if (st != FA2_OK || shipped->kernel_count == 0)
        return st;
    places = fa2i_alloc_array(shipped->kernel_count, sizeof *places); /* index + 1; 0: none yet */
    if (places == NULL)
        return no_memory();
    for (size_t i = 0; i < shipped->set_count; i++) {
        fa2i_known_set set = shipped->sets[i];
        if (has_problem(evidence, own, card, &set.problem))
            continue;
        for (size_t t = 0; t < set.count; t++) {
            fa2i_known_time time = shipped->times[set.first + t];
            if (places[time.kernel] == 0)
                places[time.kernel] = merge_kernel(&shipped->kernels[time.kernel], evidence) + 1;
            time.kernel = places[time.kernel] - 1;
            evidence->times[evidence->time_count + t] = time;
        }
        set.first = evidence->time_count;
        evidence->time_count += set.count;
        evidence->sets[evidence->set_count++] = set;
    }
    for (size_t i = 0; i < shipped->kernel_count; i++)
        if (shipped->kernels[i].spilled && places[i] == 0)
            (void)merge_kernel(&shipped->kernels[i], evidence);
    fa2i_free(places);
    return FA2_OK;
}

bool fa2i_shipped_knows(const fa2i_evidence *evidence, const fa2i_card *card, const fa2_problem *problem)
{
    for (size_t i = 0; i < evidence->set_count; i++) {
        const fa2i_known_set *set = &evidence->sets[i];
        if (set->shipped && is_here(set, card) && memcmp(&set->problem, problem, sizeof *problem) == 0)
            return true;
    }
    return false;
}
