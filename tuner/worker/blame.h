/*
 * Rules that say what caused a failure. For the files of the worker.
 */
#pragma once

#include "tuner/worker/protocol.h"
#include "tuner/worker/worker.h"

void fa2i_failure_set(fa2i_failure *failure, fa2i_outcome outcome, fa2i_blame blame, const char *detail);

/* Returns the cause of an answer that is not OK. takes_images: the driver has accepted an image before. */
fa2i_blame fa2i_blame_for(bool takes_images, const fa2i_message *answer);

/* Returns FA2_OK if the kernel is or may be to blame, else the status of the failure. */
fa2_status fa2i_failure_status(const fa2i_failure *failure);
