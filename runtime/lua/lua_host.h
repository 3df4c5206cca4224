/*
 * The Lua state of a generator: which libraries and files scripts see, and how C calls them.
 *
 * C code that touches the state is a body: a lua_CFunction with one argument, a light userdata, that fa2i_lua_host_run
 * calls. Only a body may raise Lua errors. Lua may jump out of a body, so everything that it allocates outside Lua must
 * be reachable from its argument. The locale is C during a run, because Lua formats numbers. Scripts that run too long
 * or need too much memory are stopped. Two threads must not use one host at once.
 */
#pragma once

#include <locale.h>
#include <lua.h>
#include "runtime/lua/generator_files.h"
#include "runtime/lua/lua_limits.h"

typedef struct fa2i_lua_host {
    fa2i_lua_limits limits;
    locale_t c_locale;
    fa2i_generator_files files;
    fa2i_key key; /* of the files */
    char *answer; /* that is being pushed; NULL otherwise */
} fa2i_lua_host;

/* Reads the files, opens the state, loads gen/init.lua. *ret_host must be zeroed, except for limits.stop, and must
 * not move afterwards. The caller frees it (fa2i_lua_host_done), also after an error. FA2_E_GENERATOR with Lua's
 * message and traceback; FA2_E_IO; FA2_E_MEMORY. */
fa2_status fa2i_lua_host_open(fa2i_lua_host *ret_host);
void fa2i_lua_host_done(fa2i_lua_host *host); /* zeroed objects are fine */

/* Calls body(argument). FA2_E_GENERATOR: it raised a Lua error (with message and traceback), or it met a limit (which
 * the message names). */
fa2_status fa2i_lua_host_run(fa2i_lua_host *host, lua_CFunction body, void *argument);

/* For bodies: push the table of functions that scripts get by require("host"). host: whose scripts' answers are kept
 * (surveys.h); NULL: none are. */
void fa2i_lua_host_push_functions(lua_State *L, fa2i_lua_host *host);

/* For bodies: pushes the function that gen/init.lua exports as `name`. */
void fa2i_lua_host_push_entry(lua_State *L, const char *name);

/* For bodies: the same for any module, which is loaded now if it was not. */
void fa2i_lua_host_push_function(lua_State *L, const char *module, const char *name);

/* For bodies: pushes a function that returns the text of templates/FILE, or nil. A FILE that begins with "tuner/" is
 * at the top of the tree. */
void fa2i_lua_host_push_read(lua_State *L, fa2i_lua_host *host);
