/*
 * - Each function is a closure over Lua's own function, and calls it with its arguments.
 * - The longest time of matching: let a pattern have r repetitions, and the subject n bytes. There are as many ways
 *   through the subject as there are places in it for r marks, (n + r over r). If the pattern is not anchored, its
 *   beginning is one more mark.
 */
#include "runtime/lua/lua_guard.h"

#include <lauxlib.h>
#include <lualib.h>
#include <string.h>
#include "runtime/lua/lua_limits.h"

/* ---- patterns ---- */

/* The properties that decide how long a pattern takes to match. */
typedef struct effort {
    int loops;      /* unlimited repetitions, and items that read an unlimited length */
    double options; /* number of ways through its optional parts */
    size_t widest;  /* bytes of the longest set */
} effort;

/* Returns the position after the set that begins at p, or end. */
static const char *skip_set(const char *p, const char *end)
{
    p += 1;
    if (p < end && *p == '^')
        p++;
    do { /* a ']' in the first place is an ordinary character */
        if (p < end && *p == '%')
            p++;
        p++;
    } while (p < end && *p != ']');
    return p < end ? p + 1 : end;
}

/* Returns the position after one item and its repetition. */
static const char *add_item(const char *p, const char *end, effort *e)
{
    const char *start = p;
    const char second = p + 1 < end ? p[1] : '\0';
    if (*p == '(' || *p == ')')
        return p + 1;
    if (*p == '%' && (second == 'b' || (second >= '0' && second <= '9'))) {
        e->loops++;
        return p + (second == 'b' ? 4 : 2);
    }
    if (*p == '%' && second == 'f')
        return p + 2; /* a set follows */
    p = *p == '[' ? skip_set(p, end) : p + (*p == '%' ? 2 : 1);
    if (*start == '[' && (size_t)(p - start) > e->widest)
        e->widest = (size_t)(p - start);
    if (p < end && strchr("*+-", *p) != NULL)
        e->loops++;
    else if (p < end && *p == '?')
        e->options *= 2;
    else
        return p;
    return p + 1;
}

static double match_steps(const char *pattern, size_t length, double subject, bool may_anchor)
{
    const char *p = pattern, *end = pattern + length;
    const bool anchored = may_anchor && length > 0 && *p == '^';
    effort e = {.loops = anchored ? 0 : 1, .options = 1, .widest = 1};
    double steps = 1;
    if (anchored)
        p++;
    while (p < end)
        p = add_item(p, end, &e);
    for (int i = 1; i <= e.loops && steps < FA2I_LUA_CALL_STEPS_MAX; i++)
        steps *= (subject + i) / i;
    return steps * e.options * (double)e.widest;
}

/* ---- calls ---- */

/* Calls the function in upvalue 1 with all arguments. */
static int call_own(lua_State *L)
{
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

/* Returns whether an argument is a C function, or a table whose metamethods may be C functions. */
static bool may_call_c(lua_State *L, int argument)
{
    if (!lua_istable(L, argument))
        return lua_iscfunction(L, argument);
    const bool has_metatable = lua_getmetatable(L, argument) != 0;
    if (has_metatable)
        lua_pop(L, 1);
    return has_metatable;
}

/* The same for a function that calls an argument, or its metamethods, for each element. If these may be C functions,
 * calls are watched, because C functions run no counted instructions. */
static int call_watched(lua_State *L)
{
    bool watched = false;
    for (int i = 1; !watched && i <= lua_gettop(L); i++)
        watched = may_call_c(L, i);
    if (!watched)
        return call_own(L);
    fa2i_lua_watch_calls(L, true);
    const int results = call_own(L);
    fa2i_lua_watch_calls(L, false);
    return results;
}

/* Guards gsub, gmatch, find and match. Upvalue 2: the pattern may be anchored. */
static int guarded_pattern(lua_State *L)
{
    size_t subject = 0, length = 0;
    (void)luaL_checklstring(L, 1, &subject);
    const char *pattern = luaL_checklstring(L, 2, &length);
    fa2i_lua_expect(L, match_steps(pattern, length, (double)subject, lua_toboolean(L, lua_upvalueindex(2))));
    return call_watched(L);
}

/* Guards find. If it is told to be plain, it compares the pattern at each place. */
static int guarded_find(lua_State *L)
{
    size_t subject = 0, length = 0;
    if (!lua_toboolean(L, 4))
        return guarded_pattern(L);
    (void)luaL_checklstring(L, 1, &subject);
    (void)luaL_checklstring(L, 2, &length);
    fa2i_lua_expect(L, (double)subject * (double)(length + 1));
    return call_own(L);
}

static int guarded_rep(lua_State *L)
{
    size_t length = 0, between = 0;
    (void)luaL_checklstring(L, 1, &length);
    (void)luaL_optlstring(L, 3, "", &between);
    fa2i_lua_expect(L, (double)luaL_checkinteger(L, 2) * (double)(length + between + 1));
    return call_own(L);
}

/* Guards move(from, first, last, ...). */
static int guarded_move(lua_State *L)
{
    fa2i_lua_expect(L, (double)luaL_checkinteger(L, 3) - (double)luaL_checkinteger(L, 2));
    return call_watched(L);
}

/* Guards concat(list, between, first, last) and unpack(list, first, last). Upvalue 2: the position of `first`. */
static int guarded_range(lua_State *L)
{
    const int place = (int)lua_tointeger(L, lua_upvalueindex(2));
    const lua_Integer first = luaL_optinteger(L, place, 1);
    const lua_Integer last = lua_isnoneornil(L, place + 1) ? luaL_len(L, 1) : luaL_checkinteger(L, place + 1);
    fa2i_lua_expect(L, (double)last - (double)first);
    return call_watched(L);
}

/* Guards insert(list, place, value) and remove(list, place): all elements after the place move. */
static int guarded_shift(lua_State *L)
{
    const int arguments = lua_gettop(L);
    if (arguments > (lua_toboolean(L, lua_upvalueindex(2)) ? 2 : 1))
        fa2i_lua_expect(L, (double)luaL_len(L, 1) - (double)luaL_checkinteger(L, 2));
    return call_watched(L);
}

/* Guards sort(list, less). Without `less` it passes upvalue 2, a Lua function that compares by <, so that its steps are
 * counted. */
static int guarded_sort(lua_State *L)
{
    fa2i_lua_expect(L, 32 * (double)luaL_len(L, 1));
    if (lua_isnoneornil(L, 2)) {
        lua_settop(L, 1);
        lua_pushvalue(L, lua_upvalueindex(2));
    }
    return call_watched(L);
}

/* Replaces a function of a library. The library's table is on top of the stack, and above it the second upvalue, which
 * is popped. */
static void guard(lua_State *L, const char *name, lua_CFunction function)
{
    lua_getfield(L, -2, name);
    lua_insert(L, -2);
    lua_pushcclosure(L, function, 2);
    lua_setfield(L, -2, name);
}

static void guard_flag(lua_State *L, const char *name, lua_CFunction function, bool flag)
{
    lua_pushboolean(L, flag);
    guard(L, name, function);
}

void fa2i_lua_guard_libraries(lua_State *L)
{
    lua_getglobal(L, LUA_STRLIBNAME);
    guard_flag(L, "find", guarded_find, true);
    guard_flag(L, "match", guarded_pattern, true);
    guard_flag(L, "gsub", guarded_pattern, true);
    guard_flag(L, "gmatch", guarded_pattern, false);
    guard_flag(L, "rep", guarded_rep, false);
    guard_flag(L, "format", call_watched, false);
    lua_pop(L, 1);
    lua_getglobal(L, LUA_TABLIBNAME);
    guard_flag(L, "move", guarded_move, false);
    lua_pushinteger(L, 3);
    guard(L, "concat", guarded_range);
    lua_pushinteger(L, 2);
    guard(L, "unpack", guarded_range);
    guard_flag(L, "insert", guarded_shift, true);
    guard_flag(L, "remove", guarded_shift, false);
    if (luaL_loadstring(L, "local a, b = ... return a < b") != LUA_OK)
        lua_error(L);
    guard(L, "sort", guarded_sort);
    lua_pop(L, 1);
}
