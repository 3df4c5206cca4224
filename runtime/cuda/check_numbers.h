/*
 * Reading the numbers that a call has in device memory, to have them checked (ops/numbers.h).
 */
#ifndef FA2I_CUDA_CHECK_NUMBERS_H
#define FA2I_CUDA_CHECK_NUMBERS_H

#include "runtime/cuda/device.h"
#include "runtime/ops/op.h"

/* FA2_OK where the numbers are in range, or the problem has none. args: the operation's, checked; the device's context
 * is current. Waits for the stream. FA2_E_INVALID as ops/numbers.h says; FA2_E_CAPTURE where the stream is being
 * captured; FA2_E_CUDA where the memory cannot be read; FA2_E_MEMORY. Thread-safe. */
fa2_status fa2i_check_numbers(const fa2i_device *device, const fa2_problem *problem,
                              const void *args, CUstream stream);

#endif
