/*
 * - Scripts see base, table, string and math without functions that read files, print, depend on addresses or are
 *   random. load accepts only text. require finds only the host's files.
 * - The stack is as high after a run as before it.
 */
#include "runtime/lua/lua_host.h"

#include <assert.h>
#include <lauxlib.h>
#include <lualib.h>
#include <math.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/lua/lua_values.h"
#include "runtime/lua/surveys.h"
#include "runtime/ops/op.h"
#include "runtime/ops/splits.h"

/* Keys in the Lua registry. */
static const char modules_key[] = "fa2.modules"; /* name -> module; true while it is loading */
static const char init_key[] = "fa2.init";       /* the module gen/init.lua */

/* setmetatable(table, metatable), without finalisers. Upvalue 1: Lua's own function. */
static int host_setmetatable(lua_State *L)
{
    if (lua_istable(L, 2)) {
        lua_pushliteral(L, "__gc");
        lua_rawget(L, 2);
        luaL_argcheck(L, lua_isnil(L, -1), 2, "there is no __gc here");
        lua_pop(L, 1);
    }
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, 1);
    return 1;
}

/* load(text, chunk name, "t", environment): Lua's own function without binary chunks, which can crash it. */
static int host_load(lua_State *L)
{
    size_t bytes = 0;
    const char *text = luaL_checklstring(L, 1, &bytes);
    const char *name = luaL_checkstring(L, 2);
    luaL_checktype(L, 4, LUA_TTABLE);
    if (luaL_loadbufferx(L, text, bytes, name, "t") != LUA_OK) {
        lua_pushnil(L);
        lua_insert(L, -2);
        return 2;
    }
    lua_pushvalue(L, 4);
    lua_setupvalue(L, -2, 1);
    return 1;
}

/* Returns the folder of a script or template, with its '/'. Files of reports are the tuner's, and are named in full. */
static const char *folder_of(const char *name, const char *folder)
{
    static const char tuner[] = "tuner";
    const size_t length = sizeof tuner - 1;
    return strncmp(name, tuner, length) == 0 && (name[length] == '.' || name[length] == '/') ? "" : folder;
}

/* require(name): loads the module gen/NAME.lua, or tuner/NAME.lua for "tuner.NAME", once. A dot in the name stands for
 * '/'. Upvalue 1: the host. */
static int host_require(lua_State *L)
{
    const fa2i_lua_host *host = lua_touserdata(L, lua_upvalueindex(1));
    const char *name = luaL_checkstring(L, 1);
    lua_settop(L, 1);
    lua_getfield(L, LUA_REGISTRYINDEX, modules_key);
    const int type = lua_getfield(L, 2, name);
    if (type == LUA_TBOOLEAN)
        return luaL_error(L, "module '%s' requires itself", name);
    if (type != LUA_TNIL)
        return 1;
    const char *path = lua_pushfstring(L, "%s%s.lua", folder_of(name, "gen/"), luaL_gsub(L, name, ".", "/"));
    const fa2i_generator_file *file = fa2i_generator_files_find(&host->files, path);
    if (file == NULL)
        return luaL_error(L, "there is no module '%s' (%s)", name, path);
    lua_pushfstring(L, "@%s", path);
    if (luaL_loadbufferx(L, file->data, file->bytes, lua_tostring(L, -1), "t") != LUA_OK)
        return lua_error(L);
    lua_pushboolean(L, 1);
    lua_setfield(L, 2, name);
    lua_call(L, 0, 1);
    luaL_argcheck(L, lua_istable(L, -1), 1, "the module returns no table");
    lua_pushvalue(L, -1);
    lua_setfield(L, 2, name);
    return 1;
}

/* read(file): returns the text of templates/FILE, or nil. Upvalue 1: the host. */
static int host_read(lua_State *L)
{
    const fa2i_lua_host *host = lua_touserdata(L, lua_upvalueindex(1));
    const char *name = luaL_checkstring(L, 1), *path = lua_pushfstring(L, "%s%s", folder_of(name, "templates/"), name);
    const fa2i_generator_file *file = fa2i_generator_files_find(&host->files, path);
    if (file == NULL)
        lua_pushnil(L);
    else
        lua_pushlstring(L, file->data, file->bytes);
    return 1;
}

/* Reads an integer argument that is at least 1. */
static int check_positive(lua_State *L, int argument)
{
    const lua_Integer value = luaL_checkinteger(L, argument);
    luaL_argcheck(L, value >= 1 && value <= INT32_MAX, argument, "it must be at least 1");
    return (int)value;
}

/* host.splits(problem, sm_count, rows, keys, waves, splits): returns among how many blocks the keys of a row tile are
 * divided, and how many keys its rows see. The last four arguments have the meaning that they have in recipes. */
static int host_splits(lua_State *L)
{
    fa2_problem problem;
    fa2i_lua_get_problem(L, 1, &problem);
    const fa2i_splitting splitting = {.rows = check_positive(L, 3),
                                      .keys = check_positive(L, 4),
                                      .waves = check_positive(L, 5),
                                      .max_splits = check_positive(L, 6)};
    if (fa2i_problem_check(&problem) != FA2_OK)
        return luaL_error(L, "%s", fa2_last_message());
    lua_pushinteger(L, fa2i_split_count(&problem, check_positive(L, 2), &splitting));
    lua_pushinteger(L, fa2i_row_tile_keys(&problem, splitting.rows));
    return 2;
}

/* host.abi(op, variant): returns the abi of the recipe of a variant, by its text. */
static int host_abi(lua_State *L)
{
    fa2_problem problem = {.struct_bytes = sizeof problem};
    int32_t op = 0;
    luaL_argcheck(L, fa2i_field_parse_word(FA2I_FIELD_op, luaL_checkstring(L, 1), &op), 1,
                  "there is no such operation");
    fa2i_field_set(&problem, FA2I_FIELD_op, op);
    lua_pushinteger(L, fa2i_op_of(&problem)->abi + fa2i_recipe_revision(luaL_checkstring(L, 2)));
    return 1;
}

/* host.recall(question): the text that any generator of this process with the same scripts kept, or nil. Upvalue 1: the
 * host, or NULL. */
static int host_recall(lua_State *L)
{
    fa2i_lua_host *host = lua_touserdata(L, lua_upvalueindex(1));
    const char *question = luaL_checkstring(L, 1);
    size_t bytes = 0;
    if (host != NULL)
        host->answer = fa2i_surveys_find(&host->key, question, &bytes);
    if (host == NULL || host->answer == NULL) {
        lua_pushnil(L);
        return 1;
    }
    lua_pushlstring(L, host->answer, bytes); /* an error leaves the answer to the end of the run */
    fa2i_free(host->answer);
    host->answer = NULL;
    return 1;
}

/* host.keep(question, text). Upvalue 1: the host, or NULL. */
static int host_keep(lua_State *L)
{
    const fa2i_lua_host *host = lua_touserdata(L, lua_upvalueindex(1));
    size_t bytes = 0;
    const char *question = luaL_checkstring(L, 1), *answer = luaL_checklstring(L, 2, &bytes);
    if (host != NULL)
        fa2i_surveys_keep(&host->key, question, answer, bytes);
    return 0;
}

void fa2i_lua_host_push_functions(lua_State *L, fa2i_lua_host *host)
{
    static const luaL_Reg functions[] = {
        {"splits", host_splits}, {"abi", host_abi}, {"recall", host_recall}, {"keep", host_keep}, {NULL, NULL}};
    luaL_newlibtable(L, functions);
    lua_pushlightuserdata(L, host);
    luaL_setfuncs(L, functions, 1);
    lua_pushinteger(L, FA2I_FP32_HEAD_DIM_MAX);
    lua_setfield(L, -2, "fp32_columns"); /* the most columns of Q, K and V in fp32 */
}

static void remove_fields(lua_State *L, const char *const *names)
{
    for (; *names != NULL; names++) {
        lua_pushnil(L);
        lua_setfield(L, -2, *names);
    }
    lua_pop(L, 1);
}

/* Body: opens the libraries and loads gen/init.lua. */
static int body_setup(lua_State *L)
{
    static const luaL_Reg libraries[] = {{LUA_GNAME, luaopen_base},
                                         {LUA_TABLIBNAME, luaopen_table},
                                         {LUA_STRLIBNAME, luaopen_string},
                                         {LUA_MATHLIBNAME, luaopen_math}};
    static const char *const base[] = {"collectgarbage", "dofile", "loadfile", "print", "warn", NULL};
    static const char *const math[] = {"random", "randomseed", NULL};
    static const char *const string[] = {"dump", "pack", "packsize", "unpack", NULL};
    fa2i_lua_host *host = lua_touserdata(L, 1);
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++) {
        luaL_requiref(L, libraries[i].name, libraries[i].func, 1);
        lua_pop(L, 1);
    }
    lua_getglobal(L, "setmetatable");
    lua_pushcclosure(L, host_setmetatable, 1);
    lua_setglobal(L, "setmetatable");
    lua_pushglobaltable(L);
    remove_fields(L, base);
    lua_getglobal(L, LUA_MATHLIBNAME);
    remove_fields(L, math);
    lua_getglobal(L, LUA_STRLIBNAME);
    remove_fields(L, string);
    lua_pushcfunction(L, host_load);
    lua_setglobal(L, "load");
    lua_newtable(L);
    fa2i_lua_host_push_functions(L, host);
    lua_setfield(L, -2, "host");
    lua_setfield(L, LUA_REGISTRYINDEX, modules_key);
    lua_pushlightuserdata(L, host);
    lua_pushcclosure(L, host_require, 1);
    lua_pushvalue(L, -1);
    lua_setglobal(L, "require");
    lua_pushliteral(L, "init");
    lua_call(L, 1, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, init_key);
    return 0;
}

static int add_traceback(lua_State *L)
{
    if (!lua_isstring(L, 1)) { /* otherwise the message would contain its address */
        lua_pushfstring(L, "an error that is not a text but a %s", luaL_typename(L, 1));
        lua_replace(L, 1);
    }
    luaL_traceback(L, L, lua_tostring(L, 1), 1);
    return 1;
}

fa2_status fa2i_lua_host_run(fa2i_lua_host *host, lua_CFunction body, void *argument)
{
    lua_State *L = host->limits.lua;
    fa2_status st = FA2_OK;
    const int top = lua_gettop(L);
    const locale_t outer = uselocale(host->c_locale);
    fa2i_lua_limits_begin(&host->limits);
    lua_pushcfunction(L, add_traceback);
    lua_pushcfunction(L, body);
    lua_pushlightuserdata(L, argument);
    const int result = lua_pcall(L, 1, 0, top + 1);
    fa2i_lua_limits_end(&host->limits);
    fa2i_free(host->answer);
    host->answer = NULL;
    if (result != LUA_OK && host->limits.met != FA2I_LUA_WITHIN) {
        st = fa2i_lua_limits_fail(&host->limits);
        lua_pop(L, 1);
    } else if (result != LUA_OK) {
        const char *message = lua_tostring(L, -1);
        st = fa2i_fail_log(FA2_E_GENERATOR, message == NULL ? "unknown error" : message, "%s", "");
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    assert(lua_gettop(L) == top);
    uselocale(outer);
    return st;
}

fa2_status fa2i_lua_host_open(fa2i_lua_host *ret_host)
{
    fa2_status st = FA2_OK;
    ret_host->limits.seconds_max = FA2I_LUA_SECONDS_MAX;
    ret_host->limits.deadline = HUGE_VAL;
    FA2_TRY(fa2i_generator_files_open(&ret_host->files));
    FA2_TRY(fa2i_generator_files_key(&ret_host->files, &ret_host->key));
    ret_host->limits.counts = !fa2i_generator_files_are_own(&ret_host->files);
    ret_host->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (ret_host->c_locale != (locale_t)0)
        ret_host->limits.lua = lua_newstate(fa2i_lua_allocate, &ret_host->limits);
    if (ret_host->limits.lua == NULL)
        FA2_TRY(fa2i_fail(FA2_E_MEMORY, "out of memory for the generator"));
    st = fa2i_lua_host_run(ret_host, body_setup, ret_host);
    if (st != FA2_OK && ret_host->limits.out_of_memory)
        st = fa2i_fail(FA2_E_MEMORY, "out of memory for the generator");
done:
    return st;
}

void fa2i_lua_host_done(fa2i_lua_host *host)
{
    if (host->limits.lua != NULL)
        lua_close(host->limits.lua);
    fa2i_lua_pool_done(&host->limits.pool);
    if (host->c_locale != (locale_t)0)
        freelocale(host->c_locale);
    fa2i_generator_files_done(&host->files);
    host->limits.lua = NULL;
    host->c_locale = (locale_t)0;
}

void fa2i_lua_host_push_entry(lua_State *L, const char *name)
{
    lua_getfield(L, LUA_REGISTRYINDEX, init_key);
    lua_getfield(L, -1, name);
    lua_remove(L, -2);
}

void fa2i_lua_host_push_function(lua_State *L, const char *module, const char *name)
{
    lua_getglobal(L, "require");
    lua_pushstring(L, module);
    lua_call(L, 1, 1);
    lua_getfield(L, -1, name);
    lua_remove(L, -2);
}

void fa2i_lua_host_push_read(lua_State *L, fa2i_lua_host *host)
{
    lua_pushlightuserdata(L, host);
    lua_pushcclosure(L, host_read, 1);
}
