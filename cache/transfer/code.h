/*
 * Code in an export, for other machines of the same owner. A kernel's code takes several lines, because a line has a
 * limit:
 *
 *     {"type":"code","kernel":hex,"at":0,"bytes":N,"seal":hex,"hex":"7f454c46..."}
 *
 * Export writes the code of kernels that a call takes: of winners, and of the cost model's answers. Code whose bytes do
 * not match its seal is left out. Import takes code only if the caller trusts the file: code is run as the user's own.
 *
 * Errors: FA2_E_INVALID says what is wrong with the current line. Not thread-safe.
 */
#pragma once

#include <stdio.h>
#include "cache/transfer/import.h"

/* Writes a line of the export. */
typedef fa2_status (*fa2i_line_fn)(void *user, const char *json);

/* Calls line for each line of code. */
fa2_status fa2i_code_export(fa2i_cache *cache, fa2i_line_fn line, void *user, size_t *ret_lines, size_t *ret_kernels);

/* Reads a line of code. */
fa2_status fa2i_import_code(fa2i_import *in);

/* Fails if the last code is not complete. */
fa2_status fa2i_import_code_end(const fa2i_import *in);
