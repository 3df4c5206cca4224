/*
 * Runs a Lua script with what the generator's scripts have, and all of Lua's libraries: so that the
 * scripts here ask gen/ and the library's arithmetic, not copies of them.
 *
 * - require("x.y") is gen/x/y.lua under the current folder, require("host") the functions of
 *   runtime/lua/lua_host.h;
 * - fa2.problem(t): the table that the library would give gen/ for the fields in t;
 *   fa2.asked(t, sm_count): for those of fa2i_problem_asked;
 * - fa2.fields: the names of all problem fields.
 *
 * Usage: run_lua SCRIPT [ARGUMENT ...], from the top of the source tree.
 */
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include "runtime/lua/lua_host.h"
#include "runtime/lua/lua_values.h"
#include "runtime/ops/steps.h"

static fa2_problem check_problem(lua_State *L)
{
    fa2_problem problem;
    luaL_checktype(L, 1, LUA_TTABLE);
    fa2i_lua_get_problem(L, 1, &problem);
    luaL_argcheck(L, fa2i_problem_check(&problem) == FA2_OK, 1, fa2_last_message());
    return problem;
}

static int push_complete(lua_State *L)
{
    const fa2_problem problem = check_problem(L);
    fa2i_lua_push_problem(L, &problem);
    return 1;
}

static int push_asked(lua_State *L)
{
    const fa2_problem problem = check_problem(L), asked = fa2i_problem_asked(&problem, (int)luaL_checkinteger(L, 2));
    fa2i_lua_push_problem(L, &asked);
    return 1;
}

static void push_fields(lua_State *L)
{
    lua_newtable(L);
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        lua_pushstring(L, fa2i_fields[field].name);
        lua_seti(L, -2, field + 1);
    }
}

static int push_host(lua_State *L)
{
    fa2i_lua_host_push_functions(L, NULL);
    return 1;
}

static void open_state(lua_State *L, int argc, char **argv)
{
    static const luaL_Reg functions[] = {{"problem", push_complete}, {"asked", push_asked}, {NULL, NULL}};
    luaL_openlibs(L);
    luaL_newlib(L, functions);
    push_fields(L);
    lua_setfield(L, -2, "fields");
    lua_setglobal(L, "fa2");
    lua_getglobal(L, LUA_LOADLIBNAME);
    lua_pushliteral(L, "gen/?.lua");
    lua_setfield(L, -2, "path");
    lua_getfield(L, -1, "preload");
    lua_pushcfunction(L, push_host);
    lua_setfield(L, -2, "host");
    lua_settop(L, 0);
    lua_newtable(L);
    for (int i = 1; i < argc; i++) {
        lua_pushstring(L, argv[i]);
        lua_seti(L, -2, i - 1);
    }
    lua_setglobal(L, "arg");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: run_lua SCRIPT [ARGUMENT ...]\n");
        return 2;
    }
    lua_State *L = luaL_newstate();
    if (L == NULL)
        return 1;
    open_state(L, argc, argv);
    const int status = luaL_dofile(L, argv[1]);
    if (status != LUA_OK)
        fprintf(stderr, "%s\n", lua_tostring(L, -1));
    lua_close(L);
    return status == LUA_OK ? 0 : 1;
}
