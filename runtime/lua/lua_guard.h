/*
 * Library functions of which one call could take longer than what is given to it, for scripts: the same
 * functions, and an error where a call may take more than some seconds.
 *
 * Patterns: a bound from the length of the subject and what repeats in the pattern; a text that is
 * taken line by line meets no limit. Ranges of tables: their length, whatever the table holds.
 */
#ifndef FA2I_LUA_GUARD_H
#define FA2I_LUA_GUARD_H

#include <lua.h>

/* For bodies: put them in the place of Lua's own, in the libraries that are open. */
void fa2i_lua_guard_libraries(lua_State *L);

#endif
