/*
 * Reads the numbers that a call has in device memory, so that they can be checked (ops/numbers.h).
 */
#pragma once

#include "runtime/cuda/device.h"
#include "runtime/ops/op.h"

/* Checks a call's numbers. args: the operation's arguments, already checked. The device's context is current. Waits for
 * the stream. FA2_OK: the numbers are in range, or the problem has none. FA2_E_INVALID: see ops/numbers.h.
 * FA2_E_CAPTURE: the stream is being captured. FA2_E_CUDA: the memory cannot be read. FA2_E_MEMORY. Thread-safe. */
fa2_status fa2i_check_numbers(const fa2i_device *device, const fa2_problem *problem, const void *args, CUstream stream);
