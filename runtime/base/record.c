/*
 * Names and hashes of the plain records.
 *
 * A key hashes the length of each part as 8 little-endian bytes, and then the part. So keys agree between machines, and
 * ("ab", "c") differs from ("a", "bc").
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sha2.h>
#include "runtime/base/alloc.h"
#include "runtime/base/record.h"

_Static_assert(SHA256_DIGEST_LENGTH == FA2I_KEY_BYTES, "a key is a SHA-256");

static const char *const outcome_texts[] = {
#define OUTCOME_TEXT(name, value, text) [value] = text,
    FA2I_OUTCOME_LIST(OUTCOME_TEXT)
#undef OUTCOME_TEXT
};

enum { OUTCOME_COUNT = sizeof outcome_texts / sizeof *outcome_texts };

/* Returns the index of text in texts, or -1. */
static int find_text(const char *const *texts, int count, const char *text)
{
    for (int i = 0; i < count; i++)
        if (strcmp(texts[i], text) == 0)
            return i;
    return -1;
}

const char *fa2i_outcome_string(fa2i_outcome outcome)
{
    assert((int)outcome >= 0 && (int)outcome < OUTCOME_COUNT);
    return outcome_texts[outcome];
}

bool fa2i_outcome_parse(const char *text, fa2i_outcome *ret_outcome)
{
    const int found = find_text(outcome_texts, OUTCOME_COUNT, text);
    if (found < 0)
        return false;
    *ret_outcome = (fa2i_outcome)found;
    return true;
}

bool fa2i_card_is_same(const fa2i_card *a, const fa2i_card *b)
{
    return strcmp(a->name, b->name) == 0 && a->arch == b->arch && a->sm_count == b->sm_count &&
           a->smem_block_bytes == b->smem_block_bytes && a->l2_bytes == b->l2_bytes;
}

bool fa2i_card_is_proxy(const fa2i_card *card)
{
    return strncmp(card->name, FA2I_PROXY_NAME, strlen(FA2I_PROXY_NAME)) == 0;
}

fa2i_card fa2i_card_proxy(const fa2i_card *card, const fa2i_card *of_sm)
{
    fa2i_card proxy = *card;
    proxy.arch = of_sm->arch;
    proxy.generic = true;
    if (proxy.smem_block_bytes > of_sm->smem_block_bytes)
        proxy.smem_block_bytes = of_sm->smem_block_bytes;
    if (proxy.smem_sm_bytes > of_sm->smem_sm_bytes)
        proxy.smem_sm_bytes = of_sm->smem_sm_bytes;
    const int written = snprintf(proxy.name, sizeof proxy.name, FA2I_PROXY_NAME "%d on ", of_sm->arch);
    snprintf(proxy.name + written, sizeof proxy.name - (size_t)written, "%.*s",
             (int)(sizeof proxy.name - (size_t)written - 1), card->name);
    return proxy;
}

fa2_status fa2i_variant_check_class(const fa2i_variant *record, const char *class_key)
{
    if (strcmp(record->class_key, class_key) == 0)
        return FA2_OK;
    return fa2i_fail(FA2_E_INVALID, "%s is for problems with %s, and its record says %s", record->text, class_key,
                     record->class_key);
}

void fa2i_blob_done(fa2i_blob *blob)
{
    fa2i_free(blob->data);
    *blob = (fa2i_blob){0};
}

void fa2i_kernel_done(fa2i_kernel *kernel)
{
    fa2i_free(kernel->log);
    kernel->log = NULL;
    fa2i_blob_done(&kernel->image);
}

void fa2i_key_of(const fa2i_part *parts, size_t count, fa2i_key *ret_key)
{
    SHA2_CTX sha;
    SHA256Init(&sha);
    for (size_t i = 0; i < count; i++) {
        uint8_t length[8];
        for (size_t b = 0; b < sizeof length; b++)
            length[b] = (uint8_t)((uint64_t)parts[i].bytes >> (8 * b));
        SHA256Update(&sha, length, sizeof length);
        if (parts[i].bytes > 0) /* data of an empty part may be NULL */
            SHA256Update(&sha, parts[i].data, parts[i].bytes);
    }
    SHA256Final(ret_key->bytes, &sha);
}

void fa2i_key_format(const fa2i_key *key, char out[2 * FA2I_KEY_BYTES + 1])
{
    for (size_t i = 0; i < FA2I_KEY_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", key->bytes[i]);
}

/* Returns the value of a hex digit; -1 for any other character. */
static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *found = c != '\0' ? strchr(digits, c) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

bool fa2i_hex_parse(const char *text, uint8_t *out, size_t most, size_t *ret_count)
{
    const size_t digits = strlen(text);
    bool good = digits % 2 == 0 && digits / 2 <= most;
    for (size_t i = 0; good && i < digits; i += 2) {
        const int high = hex_digit(text[i]), low = hex_digit(text[i + 1]);
        good = high >= 0 && low >= 0;
        if (good)
            out[i / 2] = (uint8_t)(16 * high + low);
    }
    *ret_count = digits / 2;
    return good;
}

/* Says whether a word of a variant repeats the problem: its key is the key of a KIND field, in lower case. */
static bool says_the_problem(const char *word)
{
    const size_t length = strcspn(word, "= ");
    for (int field = 0; word[length] == '=' && field < FA2I_FIELD_COUNT; field++) {
        const fa2i_field *f = &fa2i_fields[field];
        if (f->role == FA2I_ROLE_KIND && strlen(f->key) == length && strncasecmp(word, f->key, length) == 0)
            return true;
    }
    return false;
}

/* Words are separated by single spaces. */
fa2i_brief fa2i_variant_brief(const char *variant_text)
{
    fa2i_brief brief = {.text = ""};
    size_t used = 0;
    for (const char *word = variant_text; *word != '\0';) {
        const size_t bytes = strcspn(word, " ");
        if (!says_the_problem(word) && used < sizeof brief.text)
            used += (size_t)snprintf(brief.text + used, sizeof brief.text - used, "%s%.*s", used == 0 ? "" : " ",
                                     (int)bytes, word);
        word += bytes;
        word += strspn(word, " ");
    }
    return brief;
}
