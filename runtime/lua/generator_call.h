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

typedef struct fa2i_generator_call fa2i_generator_call;

/* How an entry point of gen/init.lua is called. */
typedef struct fa2i_entry {
    const char *entry;
    const char *takes;  /* a letter for each argument: t text, p problem or nil, c card or nil, n number, r the function
                         * that reads templates, x what push pushes */
    fa2_status refusal; /* the failure if it answers nil and a message */
    void (*take)(lua_State *L,
                 fa2i_generator_call *call); /* reads the answer on top of the stack; NULL: nothing does */
    void (*push)(lua_State *L, fa2i_generator_call *call); /* NULL: there is no x */
} fa2i_entry;

struct fa2i_generator_call {
    const fa2i_entry *how;
    fa2i_generator *generator;
    const char *text;
    const fa2_problem *problem; /* checked before the call; NULL: none */
    const fa2i_card *card;
    int number;
    const void *in; /* for push */
    void *out;      /* for take */
    void *items;    /* fa2i_generator_new_list; the caller owns them, also after a failure */
    size_t count;
    fa2_status status; /* set with the message for failures that are not Lua errors */
};

/* Checks the problem, if there is one, and calls the entry point. The caller frees call->items (fa2i_free), also after a
 * failure. */
fa2_status fa2i_generator_ask(fa2i_generator_call *call);

/* For take: makes call->items for the list on top of the stack, and counts them. NULL: call->status says why. */
void *fa2i_generator_new_list(lua_State *L, fa2i_generator_call *call, const char *what, size_t item_bytes);
