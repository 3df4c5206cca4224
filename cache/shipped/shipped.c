/*
 * How: read the whole file. Look at the lines of its devices, and stop if none has this SM. Compare the file's hash
 * with the one in the last line before reading any other line.
 */
#include "cache/shipped/shipped.h"

#include <errno.h>
#include <sha2.h>
#include <stdio.h>
#include <string.h>
#include "cache/shipped/flat.h"
#include "cache/shipped/shipped_lines.h"
#include "runtime/base/alloc.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

enum { FILE_BYTES_MAX = 64 << 20 };

static fa2_status no_memory(void)
{
    return fa2i_fail(FA2_E_MEMORY, "no memory for the times that come with fa2");
}

/* ---- the file ---- */

static fa2_status read_file(const char *path, char **ret_text)
{
    fa2_status st = FA2_OK;
    char *text = NULL;
    long bytes = 0;
    const char *why = NULL;
    FILE *in = fa2i_file_open(path, &why);
    if (in == NULL)
        FA2_TRY(fa2i_fail(FA2_E_IO, "cannot be read (%s)", why));
    if (fseek(in, 0, SEEK_END) != 0 || (bytes = ftell(in)) < 0)
        FA2_TRY(fa2i_fail(FA2_E_IO, "cannot be read (%s)", strerror(errno)));
    if (bytes > FILE_BYTES_MAX)
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "has %ld bytes; at most %d are read", bytes,
                          (int)FILE_BYTES_MAX));
    text = fa2i_alloc((size_t)bytes + 1);
    if (text == NULL)
        FA2_TRY(no_memory());
    rewind(in);
    if (fread(text, 1, (size_t)bytes, in) != (size_t)bytes)
        FA2_TRY(fa2i_fail(FA2_E_IO, "cannot be read (%s)", strerror(errno)));
    *ret_text = text;
    text = NULL; /* it belongs to the caller now */
done:
    fa2i_free(text);
    if (in != NULL)
        fclose(in);
    return st;
}

/* Is one of the devices, which come first, of this SM? */
static bool is_about(const char *text, int arch)
{
    static const char device_line[] = "\n{\"type\":\"device\"";
    char member[32];
    snprintf(member, sizeof member, "\"arch\":%d,", arch);
    for (const char *line = strchr(text, '\n');
         line != NULL && strncmp(line, device_line, sizeof device_line - 1) == 0;
         line = strchr(line + 1, '\n')) {
        const char *found = strstr(line, member);
        if (found != NULL && found < line + 1 + strcspn(line + 1, "\n"))
            return true;
    }
    return false;
}

/* Finds the line of type end: *ret_end is where it begins. Lines after it belong to a field report. */
static fa2_status find_end(const char *text, const char **ret_end)
{
    static const char end_line[] = "\n{\"type\":\"end\",";
    fa2i_flat line;
    fa2i_key hash;
    char ours[2 * FA2I_KEY_BYTES + 1], theirs[2 * FA2I_KEY_BYTES + 1];
    SHA2_CTX sha;
    const char *end = strstr(text, end_line);
    if (end == NULL || !fa2i_flat_read(end + 1, strcspn(end + 1, "\n"), &line) ||
        !fa2i_flat_text(&line, "sha256", theirs, sizeof theirs))
        return fa2i_fail(FA2_E_INVALID, "was cut: its last line is missing");
    SHA256Init(&sha);
    SHA256Update(&sha, (const uint8_t *)text, (size_t)(end + 1 - text));
    SHA256Final(hash.bytes, &sha);
    fa2i_key_format(&hash, ours);
    if (strcmp(ours, theirs) != 0)
        return fa2i_fail(FA2_E_INVALID, "was changed: its hash is another");
    *ret_end = end + 1;
    return FA2_OK;
}

fa2_status fa2i_shipped_read(const char *path, const fa2i_card *card, fa2_op op, int abi,
                             fa2i_evidence *evidence)
{
    fa2_status st = FA2_OK;
    char *text = NULL;
    const char *end = NULL;

    FA2_TRY(read_file(path, &text));
    if (strncmp(text, "{\"fa2_export\":2,", 16) != 0)
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "is no export of format 2"));
    if (!is_about(text, card->arch))
        goto done;
    FA2_TRY(find_end(text, &end));
    FA2_TRY(fa2i_shipped_take(strchr(text, '\n') + 1, end, card, op, abi, evidence));
done:
    fa2i_free(text);
    return st == FA2_E_IO || st == FA2_E_INVALID ? fa2i_fail_prefix(st, "%s", path) : st;
}

/* ---- merging into a database's evidence ---- */

static bool is_here(const fa2i_known_set *set, const fa2i_card *card)
{
    return set->real && fa2i_card_is_same(&set->card, card);
}

/* Is there a set of this problem and card among the first `count` sets? */
static bool has_problem(const fa2i_evidence *evidence, size_t count, const fa2i_card *card,
                        const fa2_problem *problem)
{
    for (size_t i = 0; i < count; i++)
        if (is_here(&evidence->sets[i], card) &&
            memcmp(&evidence->sets[i].problem, problem, sizeof *problem) == 0)
            return true;
    return false;
}

/* Finds the kernel's index in the evidence by its text, a kernel with code first. Adds the kernel if it is missing. */
static size_t merge_kernel(const fa2i_known_kernel *kernel, fa2i_evidence *evidence)
{
    size_t found = evidence->kernel_count;
    for (size_t i = 0; i < evidence->kernel_count; i++) {
        const fa2i_known_kernel *one = &evidence->kernels[i];
        if (strcmp(one->text, kernel->text) == 0 &&
            strcmp(one->class_key, kernel->class_key) == 0 &&
            (found == evidence->kernel_count || one->has_code))
            found = i;
    }
    if (found == evidence->kernel_count)
        evidence->kernels[evidence->kernel_count++] = *kernel;
    return found;
}

fa2_status fa2i_shipped_merge(const fa2i_evidence *shipped, const fa2i_card *card,
                              fa2i_evidence *evidence)
{
    const size_t own = evidence->set_count;
    size_t *places = NULL;
    fa2_status st = fa2i_evidence_reserve(evidence, shipped->kernel_count, shipped->set_count,
                                          shipped->time_count);
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

bool fa2i_shipped_knows(const fa2i_evidence *evidence, const fa2i_card *card,
                        const fa2_problem *problem)
{
    for (size_t i = 0; i < evidence->set_count; i++) {
        const fa2i_known_set *set = &evidence->sets[i];
        if (set->shipped && is_here(set, card) &&
            memcmp(&set->problem, problem, sizeof *problem) == 0)
            return true;
    }
    return false;
}
