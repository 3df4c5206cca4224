/*
 * - A limit that was met stays met until the run ends: from then on every instruction fails, so that
 *   a script that catches errors cannot go on. Finalisers (__gc) run without hooks and are refused.
 * - Between two looks at the limits no Lua code runs for long: instructions are counted, and large requests of
 *   memory look, too. An instruction may take time in proportion to what Lua holds, so the more it holds the more
 *   often they are looked at. Only one call of a library function may take longer: a pattern, for instance. Scripts
 *   come from whoever runs the program, and fa2-tune ends such a call some seconds after Ctrl-C.
 * - Where Lua counts instructions, each takes a sixth longer. So it does not count in the library's own scripts.
 *   Their loops end, and everything in them that takes long requests memory. Every REQUESTS-th request looks at the
 *   limits.
 */
#include "runtime/lua/lua_limits.h"

#include <lauxlib.h>
#include <math.h>
#include "runtime/base/clock.h"

static void on_tick(lua_State *L, lua_Debug *event);

static void meet_limit(fa2i_lua_limits *limits, fa2i_lua_limit limit)
{
    limits->met = limit;
    lua_sethook(limits->lua, on_tick, LUA_MASKCOUNT | LUA_MASKCALL, 1);
}

enum { BYTES_LARGE = 1 << 16, REQUESTS = 1000 };

/* In a run: returns whether its time is over or it must stop. */
static bool is_late(fa2i_lua_limits *limits)
{
    if (limits->met == FA2I_LUA_WITHIN && isfinite(limits->deadline)) {
        if (limits->stop != NULL && *limits->stop != 0)
            meet_limit(limits, FA2I_LUA_STOPPED);
        else if (fa2i_clock_thread_s() > limits->deadline)
            meet_limit(limits, FA2I_LUA_SECONDS);
    }
    return limits->met == FA2I_LUA_SECONDS || limits->met == FA2I_LUA_STOPPED;
}

/* Returns the instructions between two looks at the clock. The more memory scripts hold, the longer an instruction may
 * take, and the more often the clock is looked at. */
static int fitting_tick(const fa2i_lua_limits *limits)
{
    const size_t within = FA2I_LUA_TICK_BYTES / (limits->bytes + 1);
    return within < 1 ? 1 : within < FA2I_LUA_TICK ? (int)within : FA2I_LUA_TICK;
}

/* In a run: shortens the current tick, because its end may be seconds away with the new amount of memory. */
static void look_more_often(fa2i_lua_limits *limits)
{
    const int tick = fitting_tick(limits);
    if (limits->counts && limits->met == FA2I_LUA_WITHIN && isfinite(limits->deadline) && tick < limits->tick)
        lua_sethook(limits->lua, on_tick, LUA_MASKCOUNT, limits->tick = tick);
}

void *fa2i_lua_allocate(void *user, void *block, size_t old_bytes, size_t bytes)
{
    fa2i_lua_limits *limits = user;
    const size_t held = block == NULL ? 0 : old_bytes; /* without a block, old_bytes is a type, not a size */
    if (bytes == 0) {
        fa2i_lua_pool_free(&limits->pool, block, held);
        limits->bytes -= held;
        return NULL;
    }
    if (bytes > held && bytes - held > FA2I_LUA_BYTES_MAX - limits->bytes) {
        meet_limit(limits, FA2I_LUA_BYTES);
        return NULL;
    }
    const bool looks = bytes >= BYTES_LARGE || (!limits->counts && ++limits->requests % REQUESTS == 0);
    if (bytes > held && looks && is_late(limits))
        return NULL;
    void *grown = fa2i_lua_pool_resize(&limits->pool, block, held, bytes);
    limits->out_of_memory = limits->out_of_memory || grown == NULL;
    if (grown != NULL)
        limits->bytes += bytes - held;
    if (grown != NULL && bytes > held && bytes >= BYTES_LARGE)
        look_more_often(limits);
    return grown;
}

static fa2i_lua_limits *limits_of(lua_State *L)
{
    void *user = NULL;
    (void)lua_getallocf(L, &user);
    return user;
}

/* Lua calls it after every limits->tick instructions. Once a limit was met, Lua calls it at each instruction and
 * call. */
static void on_tick(lua_State *L, lua_Debug *event)
{
    fa2i_lua_limits *limits = limits_of(L);
    (void)event;
    if (limits->met == FA2I_LUA_WITHIN) {
        const int tick = fitting_tick(limits);
        limits->steps += limits->tick;
        if (limits->steps >= FA2I_LUA_STEPS_MAX)
            meet_limit(limits, FA2I_LUA_STEPS);
        else if (!is_late(limits) && tick != limits->tick)
            lua_sethook(L, on_tick, LUA_MASKCOUNT, limits->tick = tick);
    }
    if (limits->met != FA2I_LUA_WITHIN)
        luaL_error(L, "the scripts met a limit");
}

void fa2i_lua_limits_begin(fa2i_lua_limits *limits)
{
    limits->out_of_memory = false;
    limits->met = FA2I_LUA_WITHIN;
    limits->steps = 0;
    limits->tick = FA2I_LUA_TICK;
    limits->deadline = fa2i_clock_thread_s() + limits->seconds_max;
    if (limits->counts)
        lua_sethook(limits->lua, on_tick, LUA_MASKCOUNT, FA2I_LUA_TICK);
}

void fa2i_lua_limits_end(fa2i_lua_limits *limits)
{
    lua_sethook(limits->lua, NULL, 0, 0);
    limits->deadline = HUGE_VAL;
}

fa2_status fa2i_lua_limits_fail(const fa2i_lua_limits *limits)
{
    if (limits->met == FA2I_LUA_STEPS)
        return fa2i_fail(FA2_E_GENERATOR, "the scripts run without end: stopped after %.0f million instructions",
                         1e-6 * FA2I_LUA_STEPS_MAX);
    if (limits->met == FA2I_LUA_STOPPED)
        return fa2i_fail(FA2_E_GENERATOR, "interrupted while the scripts ran");
    if (limits->met == FA2I_LUA_SECONDS)
        return fa2i_fail(FA2_E_GENERATOR, "the scripts run without end: stopped after %g s of processor time",
                         limits->seconds_max);
    return fa2i_fail(FA2_E_GENERATOR, "the scripts need too much memory: stopped at %d MiB", FA2I_LUA_BYTES_MAX >> 20);
}
