/*
 * Reads environment variables. A program with more rights than its caller (set-user-ID, set-group-ID, file
 * capabilities) must not trust them. In such a program every variable counts as unset. The library and fa2-tune read
 * the environment only by these functions. Thread-safe like getenv.
 */
#pragma once

/* Returns the value, or NULL if it is unset or empty. */
const char *fa2i_environment(const char *name);

/* Returns the folder of temporary files: $TMPDIR, or /tmp. */
const char *fa2i_environment_folder(void);

/* Returns the value, which may be empty, or NULL if it is unset. */
const char *fa2i_environment_given(const char *name);
