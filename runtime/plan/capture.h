/*
 * FA2_CAPTURE=FILE records which problems a program calls, and how often, to tune them later (`fa2-tune -- PROGRAM`
 * does both). The file is a shape file with one more column, calls. Several processes may share it.
 *
 * Each launch is counted in a table, under a lock that is held only for that. A thread writes the counts every two
 * seconds; so does the end of the context or of the process. A write locks the file, adds the counts since the last
 * write, and replaces the file atomically. So the file is always complete, however a process ends, and lacks only the
 * counts since the last write. The table has room for FA2I_CALL_TABLE_MOST problems. A full table is written at once,
 * and until then new problems are not counted.
 *
 * Calls that a CUDA graph repeats are counted once, when they are captured. A forked process counts only calls of
 * contexts that it creates. The parent writes what it had counted before the fork.
 *
 * Errors: FA2_E_IO with the file and the cause, FA2_E_MEMORY. If the file cannot be written later (a full disk),
 * fa2i_capture_trouble reports it. The counts are kept, and the next write tries again. Thread-safe, except for
 * fa2i_capture_close.
 */
#pragma once

#include "runtime/plan/counters.h"

typedef struct fa2i_capture fa2i_capture;

/* Opens the file that FA2_CAPTURE names, and creates it if it is missing. Refuses a file that is not a capture of this
 * fa2. *ret_capture is NULL if FA2_CAPTURE is not set; else the caller owns it. counters is borrowed: what it counts is
 * added to FILE.counters at the same times. */
fa2_status fa2i_capture_open(const fa2i_counters *counters, fa2i_capture **ret_capture);

/* Writes for the last time, and stops. FA2_E_IO: the counts since the last write are lost. NULL is fine. */
fa2_status fa2i_capture_close(fa2i_capture *capture);

/* Counts a call of a problem. */
void fa2i_capture_add(fa2i_capture *capture, const fa2_problem *problem);

/* Returns FA2_E_IO once when writing begins to fail, else FA2_OK. */
fa2_status fa2i_capture_trouble(fa2i_capture *capture);
