/*
 * FA2_CAPTURE=FILE: which problems a program calls, and how often, for tuning them later
 * (`fa2-tune -- PROGRAM` does both). The file is a shape file with one more column, calls; several
 * processes may share it.
 *
 * A launch counts in a table, under a lock that is held only for that. A thread writes the counts every two seconds,
 * and so does the end of the context or of the process. A write adds the counts since the last one to the file, under
 * a lock of the file, and replaces the file at once. So the file is whole whenever a process ends, and only the counts
 * since the last write are missing.
 * The table has room for FA2I_CALL_TABLE_MOST problems. A full table is written at once. New problems are not counted
 * until then.
 *
 * Calls that a CUDA graph repeats are counted once, when they are captured. A process that was
 * forked counts for itself, in the contexts that it makes; what the one before it had counted is
 * left to that one.
 *
 * Errors: FA2_E_IO with the file and the cause, FA2_E_MEMORY. A file that cannot be written later
 * (a full disk) is told by fa2i_capture_trouble, the counts are kept, and the next write tries
 * again. Threads: any, but for fa2i_capture_close.
 */
#ifndef FA2I_CAPTURE_H
#define FA2I_CAPTURE_H

#include "fa2.h"

typedef struct fa2i_capture fa2i_capture;

/* *ret_capture is NULL where FA2_CAPTURE is not set, else the caller's. The file is created, and
 * what is no capture of this fa2 is refused. */
fa2_status fa2i_capture_open(fa2i_capture **ret_capture);

/* Write for the last time, and stop. FA2_E_IO: what was counted since the last write is lost. NULL
 * is fine. */
fa2_status fa2i_capture_close(fa2i_capture *capture);

/* A call of a problem. */
void fa2i_capture_add(fa2i_capture *capture, const fa2_problem *problem);

/* FA2_E_IO, once, when writing fails that did not fail before; else FA2_OK. */
fa2_status fa2i_capture_trouble(fa2i_capture *capture);

#endif
