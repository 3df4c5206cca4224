/*
 * Shared by the generator's files: the state, and the way to call Lua (lua_host.h). A body stores failures that are
 * not Lua errors in a status of its caller, which is FA2_OK before.
 */
#pragma once

#include "runtime/lua/generator.h"
#include "runtime/lua/lua_host.h"

struct fa2i_generator {
    fa2i_lua_host host;
    char id[17];
    size_t kernel_count[FA2I_OPS], set_count[FA2I_OPS]; /* number of kernels and sets learned last */
};

/* Runs body(argument). Then returns *status, which the body may have set. */
fa2_status fa2i_generator_run(fa2i_generator *generator, lua_CFunction body, void *argument, const fa2_status *status);

/* For bodies: calls the entry point below its arguments. Returns true if its result is on top of the stack. Returns
 * false if it returned nil and a message. That message becomes the failure *ret_status. */
bool fa2i_generator_answers(lua_State *L, int arguments, fa2_status refusal, fa2_status *ret_status);

/* For bodies: reads the candidate in the table on top of the stack. The table stays there. */
void fa2i_generator_get_candidate(lua_State *L, fa2i_variant *ret_variant);
