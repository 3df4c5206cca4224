/*
 * Rejections are many and similar. The text counts them by reason, with an example of each. Reasons that differ only in
 * their numbers are one reason.
 */
#include "tuner/report/rejections.h"
#include "runtime/base/shown.h"

#include <ctype.h>
#include <string.h>

enum { REASONS_MAX = 32 };

bool fa2i_rejection_next(const char **text, fa2i_rejection *ret_rejection)
{
    const size_t bytes = strcspn(*text, "\n");
    if (bytes == 0)
        return false;
    const char *colon = memchr(*text, ':', bytes);
    const char *end = *text + bytes;
    *ret_rejection = (fa2i_rejection){.variant = *text, .variant_bytes = bytes, .why = end};
    if (colon != NULL) {
        ret_rejection->variant_bytes = (size_t)(colon - *text);
        ret_rejection->why = colon + 1 + (colon + 1 < end && colon[1] == ' ');
        ret_rejection->why_bytes = (size_t)(end - ret_rejection->why);
    }
    *text = end + (*end == '\n');
    return true;
}

/* Compares two reasons, ignoring their numbers. */
static bool same_reason(const fa2i_rejection *a, const fa2i_rejection *b)
{
    size_t i = 0, j = 0;
    while (i < a->why_bytes && j < b->why_bytes) {
        const bool digit = isdigit((unsigned char)a->why[i]) && isdigit((unsigned char)b->why[j]);
        if (!digit && a->why[i] != b->why[j])
            return false;
        i++;
        j++;
        while (digit && i < a->why_bytes && isdigit((unsigned char)a->why[i]))
            i++;
        while (digit && j < b->why_bytes && isdigit((unsigned char)b->why[j]))
            j++;
    }
    return i == a->why_bytes && j == b->why_bytes;
}

void fa2i_rejections_print(const char *text, FILE *out)
{
    fa2i_rejection examples[REASONS_MAX], next;
    size_t counts[REASONS_MAX] = {0};
    size_t reasons = 0, total = 0;
    for (; fa2i_rejection_next(&text, &next); total++) {
        size_t i = 0;
        while (i < reasons && !same_reason(&examples[i], &next))
            i++;
        if (i == REASONS_MAX)
            continue; /* counted in the total only */
        if (i == reasons)
            examples[reasons++] = next;
        counts[i]++;
    }
    fprintf(out, "\nrejected (%zu)%s\n", total, total == 0 ? "" : ", by reason, with an example each");
    for (size_t i = 0; i < reasons; i++)
        fa2i_shown_print(out, "%6zu  %.*s\n        %.*s\n", counts[i], (int)examples[i].why_bytes, examples[i].why,
                         (int)examples[i].variant_bytes, examples[i].variant);
}
