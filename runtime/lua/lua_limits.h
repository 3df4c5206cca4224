/*
 * Limits of a run of scripts: instructions, processor time, memory, and a stop from outside. The allocator and a hook
 * look at them. A limit that is met ends the run with a Lua error.
 *
 * Threads: as for the Lua state.
 */
#pragma once

#include <lua.h>
#include <signal.h>
#include <stdbool.h>
#include "runtime/base/status.h"
#include "runtime/lua/lua_pool.h"

/* Limits of a run. The longest run is a survey of backward's candidates. The limits are twice its instructions and ten
 * times its processor time, which does not grow on a loaded machine. */
enum { FA2I_LUA_TICK = 10000, FA2I_LUA_STEPS_MAX = 400000000, FA2I_LUA_SECONDS_MAX = 20, FA2I_LUA_BYTES_MAX = 1 << 28 };

/* Instructions between two checks of the limits, times the bytes that Lua holds. An instruction may read all these
 * bytes, so this takes about a second. */
#define FA2I_LUA_TICK_BYTES ((size_t)1 << 33)

typedef enum fa2i_lua_limit {
    FA2I_LUA_WITHIN,
    FA2I_LUA_STEPS,
    FA2I_LUA_SECONDS,
    FA2I_LUA_BYTES,
    FA2I_LUA_STOPPED
} fa2i_lua_limit;

typedef struct fa2i_lua_limits {
    const volatile sig_atomic_t *stop; /* ends the scripts when it is nonzero; NULL: nothing stops them */
    lua_State *lua;
    fa2i_lua_pool pool; /* of its memory */
    bool out_of_memory; /* a request failed in the current run, whatever a script made of it */
    size_t bytes;       /* that Lua holds */
    double seconds_max; /* of processor time: FA2I_LUA_SECONDS_MAX; less in tests */
    double deadline;    /* of the current run, on the thread's clock; HUGE_VAL: there is no run */
    bool counts;        /* instructions: the scripts are not the library's own */
    int tick;           /* instructions until the next look at the limits */
    long steps;         /* instructions, in the current run */
    unsigned requests;  /* of memory, where instructions are not counted */
    fa2i_lua_limit met; /* the limit that the current run met */
} fa2i_lua_limits;

/* The allocator of the state. user: its limits. They must not move while the state exists. */
void *fa2i_lua_allocate(void *user, void *block, size_t old_bytes, size_t bytes);

/* A run begins, and ends. */
void fa2i_lua_limits_begin(fa2i_lua_limits *limits);
void fa2i_lua_limits_end(fa2i_lua_limits *limits);

/* Fails with FA2_E_GENERATOR and a message that names the limit that was met. */
fa2_status fa2i_lua_limits_fail(const fa2i_lua_limits *limits);
