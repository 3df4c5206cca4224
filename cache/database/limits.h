/*
 * Limits for statements, because the file may make them endless: the length of values and texts, the depth of
 * triggers, and the processor time of a transaction, which does not grow on a loaded machine. When the time is up, or
 * the caller stops the work, the statement ends with SQLITE_INTERRUPT.
 */
#pragma once

#include "cache/internal.h"

/* The limit of the library's transactions, in seconds. Opening has FA2I_CACHE_LONG_S, because it may bring a file
 * forward. */
#define FA2I_LIMITS_CALL_S 10.0

/* Set the limits of a connection that was just made. */
void fa2i_limits_register(fa2i_cache *cache);

/* Did the caller stop the work? (fa2i_cache_open_to_mend) */
bool fa2i_limits_stopped(const fa2i_cache *cache);

/* Returns FA2_E_DATABASE, and says that the work was stopped. */
fa2_status fa2i_limits_fail_stopped(const fa2i_cache *cache);

/* Call these under the mutex, around a transaction. */
void fa2i_limits_begin(fa2i_cache *cache);
void fa2i_limits_end(fa2i_cache *cache);
