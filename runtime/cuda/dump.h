/*
 * FA2_DUMP=DIR: what is compiled, as files for people. Whoever compiles for calls or for tuning writes it.
 *
 * Each variant and SM has one name, "fwd_sm80,d=64,dtype=fp16,...,sm_86": the variant's text with commas for spaces.
 * NAME.cu is what the compiler read, and NAME.cubin or NAME.ptx what it made. Thread-safe; processes may share the
 * folder.
 */
#ifndef FA2I_DUMP_H
#define FA2I_DUMP_H

#include "runtime/base/record.h"

/* Write a compiled kernel, or one that does not compile, if FA2_DUMP is set. FA2_E_IO: the folder is missing, the disk
 * is full; that is no reason for a call to fail. */
fa2_status fa2i_dump(const fa2i_kernel *kernel, const char *source);

#endif
