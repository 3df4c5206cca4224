/*
 * Records as Lua tables. Except for pushing, these functions raise Lua errors, so only bodies may use them
 * (lua_host.h).
 */
#pragma once

#include <lua.h>
#include "runtime/base/record.h"

/* Set a field of the table on top of the stack. */
void fa2i_lua_set_integer(lua_State *L, const char *field, int64_t value);
void fa2i_lua_set_number(lua_State *L, const char *field, double value);
void fa2i_lua_set_bool(lua_State *L, const char *field, bool value);
void fa2i_lua_set_text(lua_State *L, const char *field, const char *value);

/* Pushes a valid problem as a table with these fields:
 * - every field of problem.def by its name, enumerations as words
 * - class: fa2i_problem_class
 * - asked: the names of the features that the problem asks for. These are the KIND fields that are not 0 and that texts
 *   show only then. A family that does not know one of them must refuse.
 * - products: the list of fa2i_problem_products */
void fa2i_lua_push_problem(lua_State *L, const fa2_problem *problem);

/* Reads the fields of the table at an index, unchecked. Missing fields are 0. */
void fa2i_lua_get_problem(lua_State *L, int index, fa2_problem *ret_problem);

void fa2i_lua_push_card(lua_State *L, const fa2i_card *card);

/* Read from the table on top of the stack, which stays there. A variant is {text, recipe, kind}. The recipe is checked,
 * the class is made from kind, and cost_us is 0. */
void fa2i_lua_get_card(lua_State *L, fa2i_card *ret_card);
void fa2i_lua_get_variant(lua_State *L, fa2i_variant *ret_variant);
