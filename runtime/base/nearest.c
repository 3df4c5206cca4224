/*
 * Optimal string alignment: the Levenshtein distance with exchanges of neighbours, in three rows of its table.
 */
#include "runtime/base/nearest.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { LETTERS_MAX = 32, PREFIX_LETTERS = 3 };

/* A piece of a text. Not terminated. */
typedef struct piece {
    const char *data;
    size_t bytes;
} piece;

static bool is_same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Ignores case. Both have at most LETTERS_MAX letters. */
static size_t distance_between(piece a, piece b)
{
    size_t rows[3][LETTERS_MAX + 1];
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= b.bytes; j++)
        last[j] = before[j] = j;
    for (size_t i = 1; i <= a.bytes; i++) {
        now[0] = i;
        for (size_t j = 1; j <= b.bytes; j++) {
            now[j] = last[j - 1] + !is_same(a.data[i - 1], b.data[j - 1]);
            now[j] = least(now[j], 1 + least(last[j], now[j - 1]));
            if (i > 1 && j > 1 && is_same(a.data[i - 1], b.data[j - 2]) && is_same(a.data[i - 2], b.data[j - 1]))
                now[j] = least(now[j], before[j - 2] + 1);
        }
        size_t *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[b.bytes];
}

/* Does the known name begin with the text, which is long enough to tell? */
static bool is_start(piece text, piece known)
{
    size_t same = 0, dashes = 0;
    while (same < text.bytes && same < known.bytes && is_same(text.data[same], known.data[same])) {
        dashes += same == dashes && text.data[same] == '-';
        same++;
    }
    return same == text.bytes && text.bytes - dashes >= PREFIX_LETTERS;
}

void fa2i_nearest_try(fa2i_nearest *nearest, const char *unknown, size_t bytes, const char *spelling, const char *name)
{
    const piece text = {unknown, bytes}, known = {spelling, strlen(spelling)};
    if (text.bytes > LETTERS_MAX || known.bytes > LETTERS_MAX)
        return;
    const size_t distance = distance_between(text, known);
    if ((distance <= text.bytes / 3 || is_start(text, known)) &&
        (nearest->name == NULL || distance < nearest->distance))
        *nearest = (fa2i_nearest){name, distance};
}
