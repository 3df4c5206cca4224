/*
 * - Scripts see base, table, string and math without what reads files, prints, depends on addresses
 *   or is random; load takes text only; require knows the host's files only.
 * - The stack is as high after a run as before it.
 */
#include "runtime/lua/lua_host.h"

#include <assert.h>
#include <lauxlib.h>
#include <lualib.h>
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"

/* Keys in the Lua registry. */
static const char modules_key[] = "fa2.modules"; /* name -> module; true while it is being loaded */
static const char init_key[] = "fa2.init";       /* the module gen/init.lua */

static void *allocate(void *user, void *block, size_t old_bytes, size_t bytes)
{
    fa2i_lua_host *host = user;
    (void)old_bytes;
    if (bytes == 0) {
        fa2i_free(block);
        return NULL;
    }
    void *grown = fa2i_realloc(block, bytes);
    host->out_of_memory = host->out_of_memory || grown == NULL;
    return grown;
}

/* load(text, chunk name, "t", environment): Lua's own, without binary chunks, which can crash it.
 */
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

/* require(name): the module gen/NAME.lua, a dot for each '/', loaded once. Upvalue 1: the host. */
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
    const char *path = lua_pushfstring(L, "gen/%s.lua", luaL_gsub(L, name, ".", "/"));
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

/* read(file): the text of templates/FILE, or nil. Upvalue 1: the host. */
static int host_read(lua_State *L)
{
    const fa2i_lua_host *host = lua_touserdata(L, lua_upvalueindex(1));
    const char *path = lua_pushfstring(L, "templates/%s", luaL_checkstring(L, 1));
    const fa2i_generator_file *file = fa2i_generator_files_find(&host->files, path);
    if (file == NULL)
        lua_pushnil(L);
    else
        lua_pushlstring(L, file->data, file->bytes);
    return 1;
}

static void remove_fields(lua_State *L, const char *const *names)
{
    for (; *names != NULL; names++) {
        lua_pushnil(L);
        lua_setfield(L, -2, *names);
    }
    lua_pop(L, 1);
}

/* Body: open the libraries and load gen/init.lua. */
static int body_setup(lua_State *L)
{
    static const luaL_Reg libraries[] = {{LUA_GNAME, luaopen_base},
                                         {LUA_TABLIBNAME, luaopen_table},
                                         {LUA_STRLIBNAME, luaopen_string},
                                         {LUA_MATHLIBNAME, luaopen_math}};
    static const char *const base[] = {"collectgarbage", "dofile", "loadfile",
                                       "print",          "warn",   NULL};
    static const char *const math[] = {"random", "randomseed", NULL};
    static const char *const string[] = {"dump", NULL};
    fa2i_lua_host *host = lua_touserdata(L, 1);
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++) {
        luaL_requiref(L, libraries[i].name, libraries[i].func, 1);
        lua_pop(L, 1);
    }
    lua_pushglobaltable(L);
    remove_fields(L, base);
    lua_getglobal(L, LUA_MATHLIBNAME);
    remove_fields(L, math);
    lua_getglobal(L, LUA_STRLIBNAME);
    remove_fields(L, string);
    lua_pushcfunction(L, host_load);
    lua_setglobal(L, "load");
    lua_newtable(L);
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
    luaL_traceback(L, L, luaL_tolstring(L, 1, NULL), 1);
    return 1;
}

fa2_status fa2i_lua_host_run(fa2i_lua_host *host, lua_CFunction body, void *argument)
{
    lua_State *L = host->lua;
    fa2_status st = FA2_OK;
    const int top = lua_gettop(L);
    const locale_t outer = uselocale(host->c_locale);
    host->out_of_memory = false;
    lua_pushcfunction(L, add_traceback);
    lua_pushcfunction(L, body);
    lua_pushlightuserdata(L, argument);
    if (lua_pcall(L, 1, 0, top + 1) != LUA_OK) {
        const char *message = lua_tostring(L, -1);
        st = fa2i_fail(FA2_E_GENERATOR, "%s", message == NULL ? "unknown error" : message);
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
    FA2_TRY(fa2i_generator_files_open(&ret_host->files));
    ret_host->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (ret_host->c_locale != (locale_t)0)
        ret_host->lua = lua_newstate(allocate, ret_host);
    if (ret_host->lua == NULL) {
        st = fa2i_fail(FA2_E_MEMORY, "out of memory for the generator");
        goto done;
    }
    st = fa2i_lua_host_run(ret_host, body_setup, ret_host);
    if (st != FA2_OK && ret_host->out_of_memory)
        st = fa2i_fail(FA2_E_MEMORY, "out of memory for the generator");
done:
    return st;
}

void fa2i_lua_host_done(fa2i_lua_host *host)
{
    if (host->lua != NULL)
        lua_close(host->lua);
    if (host->c_locale != (locale_t)0)
        freelocale(host->c_locale);
    fa2i_generator_files_done(&host->files);
    host->lua = NULL;
    host->c_locale = (locale_t)0;
}

void fa2i_lua_host_push_entry(lua_State *L, const char *name)
{
    lua_getfield(L, LUA_REGISTRYINDEX, init_key);
    lua_getfield(L, -1, name);
    lua_remove(L, -2);
}

void fa2i_lua_host_push_read(lua_State *L, fa2i_lua_host *host)
{
    lua_pushlightuserdata(L, host);
    lua_pushcclosure(L, host_read, 1);
}
