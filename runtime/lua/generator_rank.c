/*
 * Passes evidence to Lua, and reads options from it. gen/init.lua documents the tables.
 */
#include <lauxlib.h>
#include <math.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/lua/generator_call.h"
#include "runtime/lua/lua_values.h"

/* ---- evidence ---- */

static void push_kernel(lua_State *L, const fa2i_known_kernel *kernel)
{
    lua_createtable(L, 0, 5);
    fa2i_lua_set_text(L, "text", kernel->text);
    fa2i_lua_set_text(L, "class", kernel->class_key);
    fa2i_lua_set_integer(L, "registers", kernel->registers);
    fa2i_lua_set_bool(L, "spilled", kernel->spilled);
    fa2i_lua_set_bool(L, "code", kernel->has_code);
}

static void push_set(lua_State *L, const fa2i_evidence *evidence, const fa2i_known_set *set, const fa2i_card *card)
{
    lua_createtable(L, 0, 5);
    fa2i_lua_push_problem(L, &set->problem);
    lua_setfield(L, -2, "problem");
    fa2i_lua_push_card(L, &set->card);
    lua_setfield(L, -2, "card");
    fa2i_lua_set_bool(L, "here", set->real && fa2i_card_is_same(&set->card, card));
    fa2i_lua_set_bool(L, "shipped", set->shipped);
    lua_createtable(L, (int)set->count, 0);
    lua_createtable(L, (int)set->count, 0);
    for (size_t i = 0; i < set->count; i++) {
        const fa2i_known_time *time = &evidence->times[set->first + i];
        lua_pushinteger(L, (lua_Integer)time->kernel + 1);
        lua_seti(L, -3, (lua_Integer)i + 1);
        lua_pushnumber(L, time->us);
        lua_seti(L, -2, (lua_Integer)i + 1);
    }
    lua_setfield(L, -3, "us");
    lua_setfield(L, -2, "kernels");
}

static void push_evidence(lua_State *L, fa2i_generator_call *c)
{
    const fa2i_evidence *evidence = c->in;
    lua_createtable(L, 0, 2);
    lua_createtable(L, (int)evidence->kernel_count, 0);
    for (size_t i = 0; i < evidence->kernel_count; i++) {
        push_kernel(L, &evidence->kernels[i]);
        lua_seti(L, -2, (lua_Integer)i + 1);
    }
    lua_setfield(L, -2, "kernels");
    lua_createtable(L, (int)evidence->set_count, 0);
    for (size_t i = 0; i < evidence->set_count; i++) {
        push_set(L, evidence, &evidence->sets[i], c->card);
        lua_seti(L, -2, (lua_Integer)i + 1);
    }
    lua_setfield(L, -2, "sets");
}

static fa2_status learn(fa2i_generator *generator, const char *entry, fa2_op op, const fa2i_evidence *evidence,
                        const fa2i_card *card)
{
    const fa2i_entry how = {entry, "tx", FA2_E_GENERATOR, NULL, push_evidence};
    fa2i_generator_call c = {.how = &how,
                             .generator = generator,
                             .text = fa2i_field_word(FA2I_FIELD_op, (int32_t)op),
                             .card = card,
                             .in = evidence};
    return fa2i_generator_ask(&c);
}

fa2_status fa2i_generator_learn(fa2i_generator *generator, fa2_op op, const fa2i_evidence *evidence,
                                const fa2i_card *card)
{
    const fa2_status st = learn(generator, "learn", op, evidence, card);
    if (st == FA2_OK) {
        generator->kernel_count[op] = evidence->kernel_count;
        generator->set_count[op] = evidence->set_count;
    }
    return st;
}

fa2_status fa2i_generator_learn_more(fa2i_generator *generator, fa2_op op, const fa2i_evidence *evidence,
                                     const fa2i_card *card)
{
    const fa2_status st = learn(generator, "learn_more", op, evidence, card);
    if (st == FA2_OK) {
        generator->kernel_count[op] += evidence->kernel_count;
        generator->set_count[op] += evidence->set_count;
    }
    return st;
}

/* ---- options ---- */

/* Reads an index of Lua, from 1 to count. 0 becomes FA2I_NONE. */
static size_t get_index(lua_State *L, const char *field, size_t count)
{
    lua_getfield(L, -1, field);
    const lua_Integer index = luaL_checkinteger(L, -1);
    lua_pop(L, 1);
    if (index < 0)
        luaL_error(L, "field '%s' is negative", field);
    if ((lua_Unsigned)index > count)
        luaL_error(L, "field '%s' is %I; there are %I", field, index, (lua_Integer)count);
    return index == 0 ? FA2I_NONE : (size_t)index - 1;
}

/* Reads a number that is at least 0. */
static double get_number(lua_State *L, const char *field)
{
    lua_getfield(L, -1, field);
    const double number = luaL_checknumber(L, -1);
    lua_pop(L, 1);
    if (!isfinite(number) || number < 0)
        luaL_error(L, "field '%s' is %f", field, number);
    return number;
}

static fa2i_rests get_rests(lua_State *L)
{
    static const char *const words[] = {[FA2I_RESTS_MEASURED] = "measured",
                                        [FA2I_RESTS_NEARBY] = "nearby",
                                        [FA2I_RESTS_ELSEWHERE] = "elsewhere",
                                        [FA2I_RESTS_MODEL] = "model",
                                        NULL};
    lua_getfield(L, -1, "rests");
    const int rests = luaL_checkoption(L, -1, NULL, words);
    lua_pop(L, 1);
    return (fa2i_rests)rests;
}

/* Reads the option in the table on top of the stack. */
static void get_option(lua_State *L, fa2i_generator_call *c, fa2i_option *option)
{
    fa2i_variant candidate;
    const size_t kernels = c->generator->kernel_count[c->problem->op], sets = c->generator->set_count[c->problem->op];
    option->us = get_number(L, "us");
    option->model_us = get_number(L, "cost_us");
    option->rests = get_rests(L);
    option->compile = get_number(L, "compile") > 0;
    option->kernel = get_index(L, "kernel", kernels);
    option->set = get_index(L, "set", sets);
    option->distance = get_number(L, "distance");
    option->neighbour = get_index(L, "neighbour", sets);
    if (option->kernel == FA2I_NONE) {
        fa2i_generator_get_candidate(L, &candidate);
        if (c->status == FA2_OK)
            c->status = fa2i_generator_check_class(c->problem, &candidate);
    }
    lua_getfield(L, -1, "text");
    const char *text = luaL_checkstring(L, -1);
    if (strlen(text) >= sizeof option->text)
        luaL_error(L, "the variant '%s' is too long", text);
    memcpy(option->text, text, strlen(text) + 1);
    lua_pop(L, 1);
}

static void take_options(lua_State *L, fa2i_generator_call *c)
{
    fa2i_option *options = fa2i_generator_new_list(L, c, "options", sizeof *options);
    for (size_t i = 0; i < c->count; i++) {
        lua_geti(L, -1, (lua_Integer)i + 1);
        get_option(L, c, &options[i]);
        lua_pop(L, 1);
    }
}

fa2_status fa2i_generator_rank(fa2i_generator *generator, const fa2_problem *problem, const fa2i_card *card,
                               fa2i_option **ret_options, size_t *ret_count)
{
    static const fa2i_entry how = {"rank", "pc", FA2_E_UNSUPPORTED, take_options, NULL};
    fa2i_generator_call c = {.how = &how, .generator = generator, .problem = problem, .card = card};
    const fa2_status st = fa2i_generator_ask(&c);
    if (st != FA2_OK) {
        fa2i_free(c.items);
        return st;
    }
    *ret_options = c.items;
    *ret_count = c.count;
    return FA2_OK;
}

/* ---- judgements ---- */

static void push_texts(lua_State *L, fa2i_generator_call *c)
{
    const char *const *texts = c->in;
    lua_createtable(L, (int)c->count, 0);
    for (size_t i = 0; i < c->count; i++) {
        lua_pushstring(L, texts[i]);
        lua_seti(L, -2, (lua_Integer)i + 1);
    }
}

static void take_judgements(lua_State *L, fa2i_generator_call *c)
{
    fa2i_judgement *judgements = c->out;
    if (luaL_len(L, -1) != (lua_Integer)c->count)
        luaL_error(L, "there are %I judgements of %I kernels", luaL_len(L, -1), (lua_Integer)c->count);
    for (size_t i = 0; i < c->count; i++) {
        lua_geti(L, -1, (lua_Integer)i + 1);
        judgements[i] = (fa2i_judgement){
            .us = get_number(L, "us"), .doubt = get_number(L, "doubt"), .known = get_number(L, "known")};
        lua_pop(L, 1);
    }
}

fa2_status fa2i_generator_judge(fa2i_generator *generator, const fa2_problem *problem, const fa2i_card *card,
                                const char *const *texts, size_t count, fa2i_judgement *ret_judgements)
{
    static const fa2i_entry how = {"judge", "pcx", FA2_E_UNSUPPORTED, take_judgements, push_texts};
    fa2i_generator_call c = {.how = &how,
                             .generator = generator,
                             .problem = problem,
                             .card = card,
                             .in = texts,
                             .out = ret_judgements,
                             .count = count};
    return fa2i_generator_ask(&c);
}
