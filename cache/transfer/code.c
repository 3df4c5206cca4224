/*
 * - The lines of a kernel's code follow each other, each with the place of its first byte.
 * - The seal covers key, variant, class, recipe, target and code. So code is stored only with the record that it was
 *   exported with. Where the record here is another one, it does not match, and the file is refused.
 */
#include "cache/transfer/code.h"

#include <string.h>
#include "cache/content/size_limit.h"
#include "runtime/base/alloc.h"

enum { PIECE_BYTES = 7000, CODE_BYTES_MAX = 64 << 20 };

/* ---- writing ---- */

static const char code_sql[] =
    "SELECT k.key, i.seal, c.data FROM kernel k JOIN temp.sound_kernel USING (id) JOIN image i ON i.kernel = k.id "
    "JOIN code c ON c.id = i.code WHERE k.id IN (SELECT kernel FROM winner UNION SELECT kernel FROM answer) "
    "AND c.hash = fa2_hash(c.data) AND i.seal = fa2_seal(k.key, k.variant, k.class, k.recipe, k.target, c.data) "
    "ORDER BY k.id";

static void add_hex(fa2i_text *text, const uint8_t *bytes, size_t count)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < count; i++) {
        const char two[] = {digits[bytes[i] >> 4], digits[bytes[i] & 15]};
        fa2i_text_add_bytes(text, two, 2);
    }
}

/* Writes one line with the bytes from `at` on. */
static fa2_status write_piece(const uint8_t *key, const uint8_t *seal, const uint8_t *code, size_t bytes, size_t at,
                              fa2i_line_fn line, void *user)
{
    fa2i_text text = {0};
    char *json = NULL;
    fa2i_text_add(&text, "{\"type\":\"code\",\"kernel\":\"");
    add_hex(&text, key, FA2I_KEY_BYTES);
    fa2i_text_add(&text, "\",\"at\":%zu,\"bytes\":%zu,\"seal\":\"", at, bytes);
    add_hex(&text, seal, FA2I_KEY_BYTES);
    fa2i_text_add(&text, "\",\"hex\":\"");
    add_hex(&text, code + at, bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES);
    fa2i_text_add(&text, "\"}");
    fa2_status st = fa2i_text_take(&text, &json);
    if (st == FA2_OK)
        st = line(user, json);
    fa2i_free(json);
    return st;
}

fa2_status fa2i_code_export(fa2i_cache *cache, fa2i_line_fn line, void *user, size_t *ret_lines, size_t *ret_kernels)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;

    *ret_lines = *ret_kernels = 0;
    FA2_TRY(fa2i_sql_prepare(cache, code_sql, NULL, 0, &stmt));
    while (fa2i_sql_next(cache, stmt, &st)) {
        const uint8_t *key = sqlite3_column_blob(stmt, 0), *seal = sqlite3_column_blob(stmt, 1);
        const uint8_t *code = sqlite3_column_blob(stmt, 2);
        const size_t bytes = (size_t)sqlite3_column_bytes(stmt, 2);
        if (bytes > CODE_BYTES_MAX)
            continue;
        for (size_t at = 0; at < bytes; at += PIECE_BYTES, *ret_lines += 1)
            FA2_TRY(write_piece(key, seal, code, bytes, at, line, user));
        *ret_kernels += 1;
    }
done:
    sqlite3_finalize(stmt);
    return st;
}

/* ---- reading ---- */

static fa2_status begin_code(fa2i_import *in, const fa2i_key *kernel, size_t bytes)
{
    fa2i_code *code = &in->code;
    fa2i_free(code->data);
    *code = (fa2i_code){.kernel = *kernel, .bytes = bytes, .data = fa2i_alloc(bytes)};
    return code->data != NULL ? FA2_OK : fa2i_fail(FA2_E_MEMORY, "no memory for %zu bytes of code", bytes);
}

/* Finds out whether a kernel here has code that matches its seal. */
static fa2_status find_code(fa2i_import *in, int64_t kernel, bool *ret_has)
{
    const fa2i_sql_value values[] = {fa2i_sql_int(kernel)};
    int64_t count = 0;
    const fa2_status st = fa2i_sql_number(
        in->cache,
        "SELECT count(*) FROM image WHERE kernel = ?1 AND kernel NOT IN (" FA2I_DAMAGED_IMAGES " AND k.id = ?1)",
        FA2I_SQL_VALUES(values), &count);
    *ret_has = count > 0;
    return st;
}

static fa2_status check_seal(fa2i_import *in, int64_t kernel, const fa2i_key *seal)
{
    const fa2i_sql_value values[] = {fa2i_sql_int(kernel), fa2i_sql_blob(in->code.data, in->code.bytes),
                                     fa2i_sql_key(seal)};
    int64_t same = 0;
    const fa2_status st = fa2i_sql_number(
        in->cache, "SELECT fa2_seal(key, variant, class, recipe, target, ?2) = ?3 FROM kernel WHERE id = ?1",
        FA2I_SQL_VALUES(values), &same);
    if (st == FA2_OK && same == 0)
        return fa2i_fail(FA2_E_INVALID, "the code does not match its seal: it is not the code of this kernel's record");
    return st;
}

static fa2_status store(fa2i_import *in, const fa2i_key *seal)
{
    fa2_status st = FA2_OK;
    int64_t kernel = 0;
    bool has = false;
    FA2_TRY(fa2i_import_kernel_id(in, &kernel));
    if (in->is_unknown) /* the kernel was passed over */
        return FA2_OK;
    FA2_TRY(check_seal(in, kernel, seal));
    FA2_TRY(find_code(in, kernel, &has));
    if (has)
        return FA2_OK;
    FA2_TRY(fa2i_size_limit_make_room(in->cache, in->code.bytes));
    const fa2i_blob image = {.data = in->code.data, .bytes = in->code.bytes};
    FA2_TRY(fa2i_row_put_sealed(in->cache, kernel, &image, seal));
    in->counts.code_taken++;
done:
    return st;
}

/* Reads the members of a line, and adds its bytes. *ret_complete: it was the last line of this code. */
static fa2_status add_piece(fa2i_import *in, const fa2i_key *kernel, bool *ret_complete)
{
    fa2_status st = FA2_OK;
    fa2i_code *code = &in->code;
    int64_t at = 0, bytes = 0;
    size_t count = 0;
    uint8_t piece[PIECE_BYTES];

    *ret_complete = false;
    FA2_TRY(fa2i_members_number(&in->members, "at", 0, CODE_BYTES_MAX, &at));
    FA2_TRY(fa2i_members_number(&in->members, "bytes", 1, CODE_BYTES_MAX, &bytes));
    FA2_TRY(fa2i_members_bytes(&in->members, "hex", piece, sizeof piece, &count));
    if (at == 0) {
        FA2_TRY(fa2i_import_code_end(in));
        FA2_TRY(begin_code(in, kernel, (size_t)bytes));
    }
    if (code->data == NULL || memcmp(&code->kernel, kernel, sizeof *kernel) != 0 || code->bytes != (size_t)bytes ||
        code->known != (size_t)at || count == 0 || count > code->bytes - code->known)
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "the code does not continue that of the line above"));
    memcpy(code->data + code->known, piece, count);
    code->known += count;
    *ret_complete = code->known == code->bytes;
done:
    return st;
}

fa2_status fa2i_import_code(fa2i_import *in)
{
    fa2_status st = FA2_OK;
    fa2i_key kernel, seal;
    bool complete = false;
    FA2_TRY(fa2i_members_key(&in->members, "kernel", &kernel));
    FA2_TRY(fa2i_members_key(&in->members, "seal", &seal));
    if (memcmp(&in->code.kernel, &kernel, sizeof kernel) != 0)
        FA2_TRY(fa2i_import_code_end(in));
    FA2_TRY(add_piece(in, &kernel, &complete));
    if (!complete)
        return FA2_OK;
    if (in->trusts_code)
        st = store(in, &seal);
    else
        in->counts.code_left++;
done:
    return st;
}

fa2_status fa2i_import_code_end(const fa2i_import *in)
{
    if (in->code.known == in->code.bytes)
        return FA2_OK;
    return fa2i_fail(FA2_E_INVALID, "the code above ends after %zu of %zu bytes", in->code.known, in->code.bytes);
}
