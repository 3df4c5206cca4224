/*
 * Lines with a kernel's code. Code is taken only if the caller trusts the file: it is run as the user's own.
 *
 * - The lines of a kernel's code follow each other, each with the place of its first byte.
 * - The seal covers key, variant, class, recipe, target and code. So code is stored only with the record that it was
 *   exported with. Where the record here is another one, it does not match, and the file is refused.
 */
#include "cache/transfer/import.h"

#include <string.h>
#include "cache/content/size_limit.h"
#include "runtime/base/alloc.h"

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
    uint8_t piece[FA2I_PIECE_BYTES];
    *ret_complete = false;
    FA2_TRY(fa2i_members_number(&in->members, "at", 0, FA2I_CODE_BYTES_MAX, &at));
    FA2_TRY(fa2i_members_number(&in->members, "bytes", 1, FA2I_CODE_BYTES_MAX, &bytes));
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
