/*
 * Guards library functions of which one call could exceed the scripts' time limit. Scripts get the same functions, but
 * with an error if a call may take more than some seconds.
 *
 * Patterns are bounded by the length of the subject and the repetitions in the pattern. A text that is read line by
 * line meets no limit. Ranges of tables are bounded by their length, whatever the table holds.
 */
#pragma once

#include <lua.h>

/* For bodies: replaces Lua's own functions in the libraries that are open. */
void fa2i_lua_guard_libraries(lua_State *L);
