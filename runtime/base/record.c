/*
 * Checks, names and hashes of the plain records.
 *
 * - Limits are written once, in fa2i_problem_check; everything behind it may rely on them.
 * - A key hashes each part behind its length as 8 little-endian bytes, so that keys agree between
 *   machines and ("ab", "c") differs from ("a", "bc").
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sha2.h>
#include "runtime/base/alloc.h"
#include "runtime/base/record.h"
#include "runtime/base/status.h"

/* Kernels count rows and keys in int: sums of seq_q, seq_k and a tile or two must fit, and so must
 * the rows of all query heads that share a key head. */
enum {
    HEAD_DIM_STEP = 8,
    HEAD_DIM_MAX = 256,
    HEADS_MAX = 1 << 16,
    SEQ_MAX = 1 << 29,
    GROUP_ROWS_MAX = 1 << 30
};

_Static_assert(SHA256_DIGEST_LENGTH == FA2I_KEY_BYTES, "a key is a SHA-256");
_Static_assert(sizeof(fa2_problem) == 64, "fa2_problem is part of the ABI");

static const char *const outcome_texts[] = {
#define OUTCOME_TEXT(name, value, text) [value] = text,
    FA2I_OUTCOME_LIST(OUTCOME_TEXT)
#undef OUTCOME_TEXT
};

static const char *const dtype_texts[] = {[FA2_FP16] = "fp16", [FA2_BF16] = "bf16"};

enum {
    OUTCOME_COUNT = sizeof outcome_texts / sizeof *outcome_texts,
    DTYPE_COUNT = sizeof dtype_texts / sizeof *dtype_texts
};

/* Index of text in texts, or -1. */
static int find_text(const char *const *texts, int count, const char *text)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(texts[i], text) == 0)
            return i;
    }
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

const char *fa2i_dtype_string(fa2_dtype dtype)
{
    assert((int)dtype >= 0 && (int)dtype < DTYPE_COUNT);
    return dtype_texts[dtype];
}

bool fa2i_dtype_parse(const char *text, fa2_dtype *ret_dtype)
{
    const int found = find_text(dtype_texts, DTYPE_COUNT, text);
    if (found < 0)
        return false;
    *ret_dtype = (fa2_dtype)found;
    return true;
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

static fa2_status check_sizes(const fa2_problem *problem)
{
    const struct {
        const char *name;
        int32_t value, limit;
    } sizes[] = {{"batch", problem->batch, INT32_MAX},
                 {"heads_q", problem->heads_q, HEADS_MAX},
                 {"heads_kv", problem->heads_kv, HEADS_MAX},
                 {"seq_q", problem->seq_q, SEQ_MAX},
                 {"seq_k", problem->seq_k, SEQ_MAX}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i].value < 1)
            return fa2i_fail(FA2_E_INVALID, "%s is %d; it must be at least 1", sizes[i].name,
                             (int)sizes[i].value);
        if (sizes[i].value > sizes[i].limit)
            return fa2i_fail(FA2_E_INVALID, "%s is %d; it must be at most %d", sizes[i].name,
                             (int)sizes[i].value, (int)sizes[i].limit);
    }
    if (problem->heads_q % problem->heads_kv != 0)
        return fa2i_fail(FA2_E_INVALID, "heads_q is %d; it must be a multiple of heads_kv (%d)",
                         (int)problem->heads_q, (int)problem->heads_kv);
    const int64_t group_rows = (int64_t)problem->seq_q * (problem->heads_q / problem->heads_kv);
    if (group_rows > GROUP_ROWS_MAX)
        return fa2i_fail(FA2_E_INVALID,
                         "seq_q times heads_q / heads_kv is %lld; it must be at most %d",
                         (long long)group_rows, (int)GROUP_ROWS_MAX);
    if (problem->head_dim < HEAD_DIM_STEP || problem->head_dim > HEAD_DIM_MAX ||
        problem->head_dim % HEAD_DIM_STEP != 0)
        return fa2i_fail(FA2_E_INVALID, "head_dim is %d; it must be a multiple of %d from %d to %d",
                         (int)problem->head_dim, HEAD_DIM_STEP, HEAD_DIM_STEP, HEAD_DIM_MAX);
    return FA2_OK;
}

fa2_status fa2i_problem_check(const fa2_problem *problem)
{
    if (problem == NULL)
        return fa2i_fail(FA2_E_INVALID, "problem is NULL");
    if (problem->op != FA2_OP_FORWARD)
        return fa2i_fail(FA2_E_INVALID, "op is %d; it must be FA2_OP_FORWARD (%d)",
                         (int)problem->op, (int)FA2_OP_FORWARD);
    if ((int)problem->dtype < 0 || (int)problem->dtype >= DTYPE_COUNT)
        return fa2i_fail(FA2_E_INVALID, "dtype is %d; it must be FA2_FP16 (%d) or FA2_BF16 (%d)",
                         (int)problem->dtype, (int)FA2_FP16, (int)FA2_BF16);
    const fa2_status st = check_sizes(problem);
    if (st != FA2_OK)
        return st;
    if (problem->causal != 0 && problem->causal != 1)
        return fa2i_fail(FA2_E_INVALID, "causal is %d; it must be 0 or 1", (int)problem->causal);
    for (size_t i = 0; i < sizeof problem->reserved / sizeof *problem->reserved; i++) {
        if (problem->reserved[i] != 0)
            return fa2i_fail(FA2_E_INVALID,
                             "reserved[%zu] is %d; it must be 0: zero-initialise "
                             "fa2_problem",
                             i, (int)problem->reserved[i]);
    }
    return FA2_OK;
}

void fa2i_problem_format(const fa2_problem *problem, char *out, size_t out_bytes)
{
    snprintf(out, out_bytes, "B=%d Hq=%d Hkv=%d Sq=%d Sk=%d D=%d dtype=%s causal=%d",
             (int)problem->batch, (int)problem->heads_q, (int)problem->heads_kv,
             (int)problem->seq_q, (int)problem->seq_k, (int)problem->head_dim,
             fa2i_dtype_string(problem->dtype), (int)problem->causal);
}

double fa2i_problem_flop(const fa2_problem *problem)
{
    const double products = 4.0 * problem->batch * problem->heads_q * problem->seq_q *
                            problem->seq_k * problem->head_dim;
    return problem->causal ? products / 2 : products;
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
