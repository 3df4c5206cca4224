/*
 * FA2_DUMP=DIR writes the kernels that are compiled to files that people can read.
 *
 * Each variant and SM has one name, "fwd_sm80,d=64,dtype=fp16,...,sm_86": the variant's text with commas for spaces.
 * NAME.cu is the source as the compiler reads it. NAME.cubin or NAME.ptx is the code. Thread-safe. Processes may share
 * the folder.
 */
#pragma once

#include "runtime/base/record.h"

/* Writes a kernel if FA2_DUMP is set, also if it does not compile. FA2_E_IO: the folder is missing, or the disk is
 * full. The caller logs that, and goes on. */
fa2_status fa2i_dump(const fa2i_kernel *kernel, const char *source);
