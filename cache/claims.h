/*
 * Claims: which process is at work on what, so that several that share a database do not do the
 * same work. They are locks of the operating system on single bytes of the file beside the
 * database, PATH-claims, whose place is the work's hash: a process that ends, however it ends, has
 * none any more. The file is empty, and goes with the last process that uses it.
 *
 * A claim is advice. Where there can be none, every process gets each claim that it asks for, and work is done twice.
 * That is so where the file system has no locks, the folder cannot be written, or another user may lock the file.
 * Claims reach as far as the file system's locks do. Threads. Any; the threads of one cache are one owner.
 */
#ifndef FA2I_CACHE_CLAIMS_H
#define FA2I_CACHE_CLAIMS_H

#include "cache/cache.h"

#define FA2I_CLAIMS_SUFFIX "-claims"

/* Take the claim on this work, without waiting. false: another process has it. */
bool fa2i_cache_claim(fa2i_cache *cache, const fa2i_key *work);

/* Give it back. What was done is in the database by then. */
void fa2i_cache_unclaim(fa2i_cache *cache, const fa2i_key *work);

/* Tell the log, once for each cache, that this process waits for another one's claim. Callers do so after a wait of
 * FA2I_CLAIMS_QUIET_S. what: the other process is "compiling", "measuring", ... */
#define FA2I_CLAIMS_QUIET_S 3.0
void fa2i_cache_say_waiting(fa2i_cache *cache, const char *what);

#endif
