/*
 * This file never names fields of problems. They come from problem.def.
 */
#include "runtime/lua/lua_values.h"

#include <lauxlib.h>
#include <string.h>

void fa2i_lua_set_integer(lua_State *L, const char *field, int64_t value)
{
    lua_pushinteger(L, value);
    lua_setfield(L, -2, field);
}

void fa2i_lua_set_number(lua_State *L, const char *field, double value)
{
    lua_pushnumber(L, value);
    lua_setfield(L, -2, field);
}

void fa2i_lua_set_bool(lua_State *L, const char *field, bool value)
{
    lua_pushboolean(L, value);
    lua_setfield(L, -2, field);
}

void fa2i_lua_set_text(lua_State *L, const char *field, const char *value)
{
    lua_pushstring(L, value);
    lua_setfield(L, -2, field);
}

/* Returns whether a problem asks for a feature: a KIND field that is not 0 and that texts show only then. A family that
 * does not know it must refuse. */
static bool is_asked(const fa2_problem *problem, int field)
{
    const fa2i_field *f = &fa2i_fields[field];
    return f->role == FA2I_ROLE_KIND && field != FA2I_FIELD_op && !f->shown_always &&
           fa2i_field_get(problem, field) != 0;
}

/* Pushes the list of the features that a problem asks for, by name. */
static void push_asked(lua_State *L, const fa2_problem *problem)
{
    lua_Integer count = 0;
    lua_newtable(L);
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        if (is_asked(problem, field)) {
            lua_pushstring(L, fa2i_fields[field].name);
            lua_seti(L, -2, ++count);
        }
    }
}

static void push_products(lua_State *L, const fa2_problem *problem)
{
    double products[FA2I_PRODUCTS];
    fa2i_problem_products(problem, products);
    lua_createtable(L, FA2I_PRODUCTS, 0);
    for (int i = 0; i < FA2I_PRODUCTS; i++) {
        lua_pushnumber(L, products[i]);
        lua_seti(L, -2, i + 1);
    }
}

void fa2i_lua_push_problem(lua_State *L, const fa2_problem *problem)
{
    char class_key[FA2I_CLASS_CHARS];
    lua_createtable(L, 0, FA2I_FIELD_COUNT + 3);
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        const int32_t value = fa2i_field_get(problem, field);
        const char *word = fa2i_field_word(field, value);
        if (word != NULL)
            fa2i_lua_set_text(L, fa2i_fields[field].name, word);
        else
            fa2i_lua_set_integer(L, fa2i_fields[field].name, value);
    }
    fa2i_problem_class(problem, class_key);
    fa2i_lua_set_text(L, "class", class_key);
    push_asked(L, problem);
    lua_setfield(L, -2, "asked");
    push_products(L, problem);
    lua_setfield(L, -2, "products");
}

void fa2i_lua_push_card(lua_State *L, const fa2i_card *card)
{
    lua_createtable(L, 0, 9);
    fa2i_lua_set_text(L, "name", card->name);
    fa2i_lua_set_integer(L, "arch", card->arch);
    fa2i_lua_set_integer(L, "sm_count", card->sm_count);
    fa2i_lua_set_integer(L, "smem_block_bytes", card->smem_block_bytes);
    fa2i_lua_set_integer(L, "smem_sm_bytes", card->smem_sm_bytes);
    fa2i_lua_set_integer(L, "l2_bytes", card->l2_bytes);
    fa2i_lua_set_integer(L, "clock_khz", card->clock_khz);
    fa2i_lua_set_integer(L, "bandwidth_bytes", card->bandwidth_bytes);
    fa2i_lua_set_bool(L, "generic", card->generic);
}

/* Reads a field of the table on top of the stack. Raises a Lua error unless it is an integer. */
static int64_t get_integer(lua_State *L, const char *field)
{
    int is_integer = 0;
    lua_getfield(L, -1, field);
    const lua_Integer value = lua_tointegerx(L, -1, &is_integer);
    if (!is_integer)
        luaL_error(L, "field '%s' is no integer", field);
    lua_pop(L, 1);
    return value;
}

static int to_int(lua_State *L, const char *field, lua_Integer value, int least, int most)
{
    if (value < least || value > most)
        luaL_error(L, "field '%s' is %I; it must be from %d to %d", field, (LUAI_UACINT)value, least, most);
    return (int)value;
}

/* The same, and checks bounds. */
static int get_number(lua_State *L, const char *field, int least, int most)
{
    return to_int(L, field, get_integer(L, field), least, most);
}

/* The same for a string, which is copied. Raises a Lua error if it does not fit. */
static void get_string(lua_State *L, const char *field, char *out, size_t out_bytes)
{
    size_t length = 0;
    lua_getfield(L, -1, field);
    const char *value = lua_tolstring(L, -1, &length);
    if (value == NULL || length >= out_bytes)
        luaL_error(L, "field '%s' is no string of at most %d bytes", field, (int)out_bytes - 1);
    memcpy(out, value, length + 1);
    lua_pop(L, 1);
}

void fa2i_lua_get_card(lua_State *L, fa2i_card *card)
{
    get_string(L, "name", card->name, sizeof card->name);
    card->arch = get_number(L, "arch", 1, INT32_MAX);
    card->sm_count = get_number(L, "sm_count", 1, INT32_MAX);
    card->smem_block_bytes = get_number(L, "smem_block_bytes", 1, INT32_MAX);
    card->smem_sm_bytes = get_number(L, "smem_sm_bytes", 1, INT32_MAX);
    card->l2_bytes = get_integer(L, "l2_bytes");
    card->clock_khz = get_number(L, "clock_khz", 1, INT32_MAX);
    card->bandwidth_bytes = get_integer(L, "bandwidth_bytes");
    card->generic = false;
}

/* Sets a field to the value on top of the stack: a number, or a word if the field has words. */
static void set_field(lua_State *L, fa2_problem *problem, int field)
{
    const char *name = fa2i_fields[field].name;
    int32_t value = 0;
    if (fa2i_fields[field].type == FA2I_TYPE_INT) {
        int is_integer = 0;
        const lua_Integer number = lua_tointegerx(L, -1, &is_integer);
        if (!is_integer)
            luaL_error(L, "field '%s' is no integer", name);
        value = to_int(L, name, number, INT32_MIN, INT32_MAX);
    } else if (!fa2i_field_parse_word(field, luaL_checkstring(L, -1), &value)) {
        luaL_error(L, "'%s' is no %s", lua_tostring(L, -1), name);
    }
    fa2i_field_set(problem, field, value);
}

void fa2i_lua_get_problem(lua_State *L, int index, fa2_problem *ret_problem)
{
    const int table = lua_absindex(L, index);
    *ret_problem = (fa2_problem){.struct_bytes = sizeof *ret_problem};
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        if (lua_getfield(L, table, fa2i_fields[field].name) != LUA_TNIL)
            set_field(L, ret_problem, field);
        lua_pop(L, 1);
    }
}

/* Sets the KIND field of that name to the value on top of the stack. */
static void set_kind(lua_State *L, fa2_problem *kind, const char *name)
{
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        if (strcmp(fa2i_fields[field].name, name) != 0 || fa2i_fields[field].role != FA2I_ROLE_KIND)
            continue;
        set_field(L, kind, field);
        return;
    }
    luaL_error(L, "'%s' is no field that is compiled into a kernel", name);
}

/* Checks that every KIND field is within its limits, or 0 if it has no meaning. */
static void check_kind(lua_State *L, const fa2_problem *kind)
{
    for (int field = 0; field < FA2I_FIELD_COUNT; field++)
        if (fa2i_fields[field].role == FA2I_ROLE_KIND && fa2i_field_check_of(kind, field) != FA2_OK)
            luaL_error(L, "%s", fa2_last_message());
}

/* Makes the class of the table `kind`, a field of the table on top of the stack. Missing names are 0. */
static void get_class(lua_State *L, char out[FA2I_CLASS_CHARS])
{
    fa2_problem kind = {.struct_bytes = sizeof kind};
    if (lua_getfield(L, -1, "kind") != LUA_TTABLE)
        luaL_error(L, "field 'kind' is no table");
    for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            luaL_error(L, "field 'kind' has a key that is no string");
        set_kind(L, &kind, lua_tostring(L, -2));
    }
    lua_pop(L, 1);
    check_kind(L, &kind);
    fa2i_problem_class(&kind, out);
}

/* Checks the first word. It names the family, an entry point of the code and a file. */
static void check_family(lua_State *L, const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    const size_t length = strspn(text, letters);
    if (length == 0 || (text[length] != ' ' && text[length] != '\0'))
        luaL_error(L, "the variant '%s' does not begin with the name of a family", text);
}

void fa2i_lua_get_variant(lua_State *L, fa2i_variant *variant)
{
    char recipe[FA2I_RECIPE_CHARS];
    variant->cost_us = 0;
    get_string(L, "text", variant->text, sizeof variant->text);
    check_family(L, variant->text);
    get_string(L, "recipe", recipe, sizeof recipe);
    if (fa2i_recipe_parse(recipe, &variant->recipe) != FA2_OK)
        luaL_error(L, "%s: %s", variant->text, fa2_last_message());
    get_class(L, variant->class_key);
}
