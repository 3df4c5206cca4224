/*
 * Claims: they tell which process works on what, so that processes that share a database do not do the same work. A
 * claim is a lock of the operating system on one byte of the file beside the database, PATH-claims. The work's hash
 * gives the byte's position. A process loses its claims when it ends, however it ends. The file is empty. The last
 * process that uses it removes it.
 *
 * A claim is advice. If claims are impossible, every process gets each claim that it asks for, and work is done twice.
 * That is so if the file system has no locks, the folder cannot be written, or another user may lock the file.
 * Claims reach as far as the file system's locks do. Threads: any; the threads of one cache are one owner.
 */
#pragma once

#include "cache/cache.h"

#define FA2I_CLAIMS_SUFFIX "-claims"

/* Take the claim on this work, without waiting. false: another process has it. */
bool fa2i_cache_claim(fa2i_cache *cache, const fa2i_key *work);

/* Release the claim. Store the result of the work in the database before. */
void fa2i_cache_unclaim(fa2i_cache *cache, const fa2i_key *work);

/* Tell the log, once for each cache, that this process waits for another one's claim. Callers do so after a wait of
 * FA2I_CLAIMS_QUIET_S. what: the other process is "compiling", "measuring", ... */
#define FA2I_CLAIMS_QUIET_S 3.0
void fa2i_cache_say_waiting(fa2i_cache *cache, const char *what);
