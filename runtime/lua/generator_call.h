/*
 * What the files of the generator share: the state, and the way into Lua and back (lua_host.h). A body
 * keeps its failures that are no Lua errors in a status of its caller, set before it with FA2_OK.
 */
#ifndef FA2I_GENERATOR_CALL_H
#define FA2I_GENERATOR_CALL_H

#include "runtime/lua/generator.h"
#include "runtime/lua/lua_host.h"

struct fa2i_generator {
    fa2i_lua_host host;
    char id[17];
    size_t kernel_count[FA2I_OPS], set_count[FA2I_OPS]; /* of what was learned last */
};

/* Run body(argument); then *status, which the body may set, counts. */
fa2_status fa2i_generator_run(fa2i_generator *generator, lua_CFunction body, void *argument,
                              const fa2_status *status);

/* For bodies: call the entry point below its arguments. true: its result is on top of the stack; false:
 * it returned nil and a message, which becomes the failure *ret_status. */
bool fa2i_generator_answers(lua_State *L, int arguments, fa2_status refusal,
                            fa2_status *ret_status);

/* For bodies: the candidate in the table on top of the stack, which stays there. */
void fa2i_generator_get_candidate(lua_State *L, fa2i_variant *ret_variant);

#endif
