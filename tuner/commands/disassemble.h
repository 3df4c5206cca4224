/*
 * Machine code as text, by a program of the CUDA toolkit.
 *
 * Errors: FA2_E_IO says what is missing or what failed. Not thread-safe.
 */
#pragma once

#include <stdio.h>
#include "runtime/base/record.h"

/* Finds nvdisasm or cuobjdump, in PATH or in the folder of the CUDA toolkit. *ret_tool belongs to the caller
 * (fa2i_free). */
fa2_status fa2i_disassembler_find(char **ret_tool);

/* Writes the tool's output for a cubin. */
fa2_status fa2i_disassemble(const char *tool, const fa2i_blob *cubin, FILE *out);
