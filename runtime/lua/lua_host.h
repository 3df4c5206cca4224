/*
 * The Lua state of a generator: which libraries and files scripts see, and how C calls them.
 *
 * C code that touches the state is a body: a lua_CFunction with one argument, a light userdata, that fa2i_lua_host_run
 * calls. Only a body may raise Lua errors. Lua may jump out of a body, so everything that it allocates outside Lua must
 * be reachable from its argument. The locale is C during a run, because Lua formats numbers. Scripts that run too long
 * or need too much memory are stopped. Two threads must not use one host at once.
 */
#ifndef FA2I_LUA_HOST_H
#define FA2I_LUA_HOST_H

#include <locale.h>
#include <lua.h>
#include <signal.h>
#include "runtime/lua/generator_files.h"
#include "runtime/lua/lua_pool.h"

/* Limits of a run. The longest run is a survey of backward's candidates. The limits are twice its instructions and ten
 * times its processor time, which does not grow on a loaded machine. */
enum {
    FA2I_LUA_TICK = 10000,
    FA2I_LUA_STEPS_MAX = 400000000,
    FA2I_LUA_SECONDS_MAX = 20,
    FA2I_LUA_BYTES_MAX = 1 << 28
};

/* Instructions between two checks of the limits, times the bytes that Lua holds. An instruction may read all these
 * bytes, so this takes about a second. */
#define FA2I_LUA_TICK_BYTES ((size_t)1 << 33)

/* The limit of one call of a library function, in steps. It takes seconds. */
#define FA2I_LUA_CALL_STEPS_MAX 4e9

typedef enum fa2i_lua_limit {
    FA2I_LUA_WITHIN,
    FA2I_LUA_STEPS,
    FA2I_LUA_SECONDS,
    FA2I_LUA_BYTES,
    FA2I_LUA_STOPPED
} fa2i_lua_limit;

typedef struct fa2i_lua_host {
    const volatile sig_atomic_t *stop; /* ends the scripts when it is nonzero; NULL: nothing stops them */
    lua_State *lua;
    fa2i_lua_pool pool;   /* of its memory */
    locale_t c_locale;
    fa2i_generator_files files;
    fa2i_key key;         /* of the files */
    char *answer;         /* that is being pushed; NULL otherwise */
    bool out_of_memory;   /* a request failed in the current run, whatever a script made of it */
    size_t bytes;         /* that Lua holds */
    double seconds_max;   /* of processor time: FA2I_LUA_SECONDS_MAX; less in tests */
    double deadline;      /* of the current run, on the thread's clock; HUGE_VAL: there is no run */
    bool counts;          /* instructions: the scripts are not the library's own */
    int tick;             /* instructions until the next look at the limits */
    long steps;           /* instructions, in the current run */
    unsigned requests;    /* of memory, where instructions are not counted */
    int calls;            /* of watched library functions, since the last look at the clock */
    fa2i_lua_limit limit; /* that the current run met */
} fa2i_lua_host;

/* Reads the files, opens the state, loads gen/init.lua. *ret_host must be zeroed, except for stop, and must not move
 * afterwards. The caller frees it (fa2i_lua_host_done), also after an error. FA2_E_GENERATOR with Lua's message and
 * traceback; FA2_E_IO; FA2_E_MEMORY. */
fa2_status fa2i_lua_host_open(fa2i_lua_host *ret_host);
void fa2i_lua_host_done(fa2i_lua_host *host); /* zeroed objects are fine */

/* Calls body(argument). FA2_E_GENERATOR: it raised a Lua error (with message and traceback), or it met a limit (which
 * the message names). */
fa2_status fa2i_lua_host_run(fa2i_lua_host *host, lua_CFunction body, void *argument);

/* For functions that scripts call: raises a Lua error if the call may take more than FA2I_LUA_CALL_STEPS_MAX steps, or
 * if the run's time is over. */
void fa2i_lua_host_expect(lua_State *L, double steps);

/* Starts or stops watching calls. Library functions that repeatedly call C functions need this, because no count of
 * instructions stops those. Raises a Lua error if the run's time is over. */
void fa2i_lua_host_watch_calls(lua_State *L, bool watched);

/* For bodies: push the table of functions that scripts get by require("host"). host: whose scripts' answers are kept
 * (surveys.h); NULL: none are. */
void fa2i_lua_host_push_functions(lua_State *L, fa2i_lua_host *host);

/* For bodies: pushes the function that gen/init.lua exports as `name`. */
void fa2i_lua_host_push_entry(lua_State *L, const char *name);

/* For bodies: pushes a function that returns the text of templates/FILE, or nil. */
void fa2i_lua_host_push_read(lua_State *L, fa2i_lua_host *host);

#endif
