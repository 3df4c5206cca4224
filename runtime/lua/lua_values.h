/*
 * Records as Lua tables. All but pushing raises Lua errors, so it is for bodies only (lua_host.h).
 */
#ifndef FA2I_LUA_VALUES_H
#define FA2I_LUA_VALUES_H

#include <lua.h>
#include "runtime/base/record.h"

/* Every field of problem.def by its name, enumerations as words; class: fa2i_problem_class; asked: the
 * list of the names of the features that the problem asks for, which are the KIND fields that are not
 * 0, and that texts do not always show. A family that does not know one of these must refuse. products:
 * the list of fa2i_problem_products. The problem is valid. */
void fa2i_lua_push_problem(lua_State *L, const fa2_problem *problem);

/* The fields of the table at an index, unchecked; those that are missing are 0. */
void fa2i_lua_get_problem(lua_State *L, int index, fa2_problem *ret_problem);

void fa2i_lua_push_card(lua_State *L, const fa2i_card *card);

/* Those of the table on top of the stack, which stays there. A variant is {text, recipe, kind}: the
 * recipe is checked, its class made of kind; its cost_us is 0. */
void fa2i_lua_get_card(lua_State *L, fa2i_card *ret_card);
void fa2i_lua_get_variant(lua_State *L, fa2i_variant *ret_variant);

#endif
