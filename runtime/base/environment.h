/*
 * Reads environment variables. A program that has more rights than its caller (set-user-ID, set-group-ID, file
 * capabilities) must not trust them: there every variable counts as unset. All of the library and of fa2-tune reads the
 * environment by these functions. Threads: as getenv.
 */
#ifndef FA2I_ENVIRONMENT_H
#define FA2I_ENVIRONMENT_H

/* The value; NULL when it is unset or empty. */
const char *fa2i_environment(const char *name);

/* The value, which may be empty; NULL when it is unset. */
const char *fa2i_environment_given(const char *name);

#endif
