/*
 * How C calls Lua: a public function fills a call and runs a body. The body pushes the arguments, calls the entry point
 * in gen/init.lua, and stores the results in the call. The public function frees what the body stored, even if Lua
 * jumped out of the body (lua_host.h).
 */
#include "runtime/lua/generator_call.h"

#include <math.h>
#include <string.h>
#include <lauxlib.h>
#include "runtime/base/alloc.h"
#include "runtime/base/text.h"
#include "runtime/lua/lua_values.h"

enum { LIST_MAX = 1 << 20 };

fa2_status fa2i_generator_run(fa2i_generator *generator, lua_CFunction body, void *argument, const fa2_status *status)
{
    fa2i_lua_host *host = &generator->host;
    fa2_status st = fa2i_lua_host_run(host, body, argument);
    if (st == FA2_OK)
        st = *status;
    /* Scripts may have caught the error and raised another one. */
    if (st != FA2_OK && host->limits.out_of_memory)
        st = fa2i_fail(FA2_E_MEMORY, "out of memory while the generator ran");
    return st;
}

fa2_status fa2i_generator_create(fa2i_generator **ret_generator)
{
    return fa2i_generator_create_stoppable(NULL, ret_generator);
}

fa2_status fa2i_generator_create_stoppable(const volatile sig_atomic_t *stop, fa2i_generator **ret_generator)
{
    fa2_status st = FA2_OK;
    char hex[2 * FA2I_KEY_BYTES + 1];
    fa2i_generator *generator = fa2i_alloc(sizeof *generator);
    if (generator == NULL)
        return fa2i_fail(FA2_E_MEMORY, "out of memory for the generator");
    generator->host.limits.stop = stop;
    FA2_TRY(fa2i_lua_host_open(&generator->host));
    fa2i_key_format(&generator->host.key, hex);
    memcpy(generator->id, hex, sizeof generator->id - 1);
    *ret_generator = generator;
    generator = NULL; /* ownership has moved to the caller */
done:
    fa2i_generator_destroy(generator);
    return st;
}

void fa2i_generator_destroy(fa2i_generator *generator)
{
    if (generator == NULL)
        return;
    fa2i_lua_host_done(&generator->host);
    fa2i_free(generator);
}

const char *fa2i_generator_id(const fa2i_generator *generator)
{
    return generator->id;
}

bool fa2i_generator_answers(lua_State *L, int arguments, fa2_status refusal, fa2_status *ret_status)
{
    lua_call(L, arguments, 2);
    if (lua_isnil(L, -2)) {
        *ret_status = fa2i_fail(refusal, "%s", luaL_tolstring(L, -1, NULL));
        return false;
    }
    lua_pop(L, 1);
    return true;
}

/* Pushes an argument of a call, by its letter. */
static void push_argument(lua_State *L, fa2i_generator_call *c, char kind)
{
    if (kind == 't')
        lua_pushstring(L, c->text);
    else if (kind == 'n')
        lua_pushinteger(L, c->number);
    else if (kind == 'r')
        fa2i_lua_host_push_read(L, &c->generator->host);
    else if (kind == 'x')
        c->how->push(L, c);
    else if (kind == 'p' && c->problem != NULL)
        fa2i_lua_push_problem(L, c->problem);
    else if (kind == 'c' && c->card != NULL)
        fa2i_lua_push_card(L, c->card);
    else
        lua_pushnil(L);
}

static int body(lua_State *L)
{
    fa2i_generator_call *c = lua_touserdata(L, 1);
    fa2i_lua_host_push_entry(L, c->how->entry);
    for (const char *kind = c->how->takes; *kind != '\0'; kind++)
        push_argument(L, c, *kind);
    if (fa2i_generator_answers(L, (int)strlen(c->how->takes), c->how->refusal, &c->status) && c->how->take != NULL)
        c->how->take(L, c);
    return 0;
}

fa2_status fa2i_generator_ask(fa2i_generator_call *c)
{
    const fa2_status st = c->problem == NULL ? FA2_OK : fa2i_problem_check(c->problem);
    return st == FA2_OK ? fa2i_generator_run(c->generator, body, c, &c->status) : st;
}

/* Reads the number on top of the stack as the cost of a variant. Raises a Lua error unless it is a time. */
static double check_cost(lua_State *L, const char *text)
{
    const double us = luaL_checknumber(L, -1);
    if (!isfinite(us) || us <= 0)
        luaL_error(L, "the cost of '%s' is %f us", text, us);
    return us;
}

/* ---- candidates ---- */

void fa2i_generator_get_candidate(lua_State *L, fa2i_variant *variant)
{
    fa2i_lua_get_variant(L, variant);
    lua_getfield(L, -1, "cost_us");
    variant->cost_us = check_cost(L, variant->text);
    lua_pop(L, 1);
}

void *fa2i_generator_new_list(lua_State *L, fa2i_generator_call *c, const char *what, size_t item_bytes)
{
    const lua_Integer length = luaL_len(L, -1);
    if (length < 1 || length > LIST_MAX)
        luaL_error(L, "there are %I %s; there must be from 1 to %d", length, what, LIST_MAX);
    c->items = fa2i_alloc_array((size_t)length, item_bytes);
    if (c->items == NULL)
        c->status = fa2i_fail(FA2_E_MEMORY, "out of memory for %lld %s", (long long)length, what);
    c->count = c->items == NULL ? 0 : (size_t)length;
    return c->items;
}

static void take_candidates(lua_State *L, fa2i_generator_call *c)
{
    fa2i_variant *variants = fa2i_generator_new_list(L, c, "candidates", sizeof *variants);
    for (size_t i = 0; i < c->count; i++) {
        lua_geti(L, -1, (lua_Integer)i + 1);
        fa2i_generator_get_candidate(L, &variants[i]);
        lua_pop(L, 1);
    }
}

fa2_status fa2i_generator_check_class(const fa2_problem *problem, const fa2i_variant *variant)
{
    char class_key[FA2I_CLASS_CHARS];
    fa2i_problem_class(problem, class_key);
    if (strcmp(variant->class_key, class_key) == 0)
        return FA2_OK;
    return fa2i_fail(FA2_E_UNSUPPORTED, "the generator does not know all of %s: it answers with %s, which is for %s",
                     class_key, variant->text, variant->class_key);
}

fa2_status fa2i_generator_candidates(fa2i_generator *generator, const fa2_problem *problem, const fa2i_card *card,
                                     fa2i_variant **ret_variants, size_t *ret_count)
{
    static const fa2i_entry how = {"candidates", "pc", FA2_E_UNSUPPORTED, take_candidates, NULL};
    fa2i_generator_call c = {.how = &how, .generator = generator, .problem = problem, .card = card};
    fa2_status st = fa2i_generator_ask(&c);
    for (size_t i = 0; i < c.count && st == FA2_OK; i++)
        st = fa2i_generator_check_class(problem, (const fa2i_variant *)c.items + i);
    if (st != FA2_OK) {
        fa2i_free(c.items);
        return st;
    }
    *ret_variants = c.items;
    *ret_count = c.count;
    return FA2_OK;
}

/* ---- texts ---- */

/* Stores the string on top of the stack. */
static void take_text(lua_State *L, fa2i_generator_call *c)
{
    size_t bytes = 0;
    const char *text = luaL_checklstring(L, -1, &bytes);
    fa2i_text_add_bytes(c->out, text, bytes);
}

static fa2_status ask_text(fa2i_generator_call *c, char **ret_text)
{
    fa2i_text out = {0};
    c->out = &out;
    fa2_status st = fa2i_generator_ask(c);
    if (st == FA2_OK)
        st = fa2i_text_take(&out, ret_text);
    fa2i_text_done(&out);
    return st;
}

fa2_status fa2i_generator_rejected(fa2i_generator *generator, const fa2_problem *problem, const fa2i_card *card,
                                   char **ret_text)
{
    static const fa2i_entry how = {"rejected", "pc", FA2_E_UNSUPPORTED, take_text, NULL};
    fa2i_generator_call c = {.how = &how, .generator = generator, .problem = problem, .card = card};
    return ask_text(&c, ret_text);
}

fa2_status fa2i_generator_source(fa2i_generator *generator, const char *variant_text, char **ret_source)
{
    static const fa2i_entry how = {"source", "tr", FA2_E_GENERATOR, take_text, NULL};
    fa2i_generator_call c = {.how = &how, .generator = generator, .text = variant_text};
    return ask_text(&c, ret_source);
}

/* ---- variants, costs, cards ---- */

static void take_variant(lua_State *L, fa2i_generator_call *c)
{
    fa2i_lua_get_variant(L, c->out);
}

fa2_status fa2i_generator_variant(fa2i_generator *generator, const char *variant_text, fa2i_variant *ret_variant)
{
    fa2i_variant variant;
    static const fa2i_entry how = {"variant", "t", FA2_E_NOT_FOUND, take_variant, NULL};
    fa2i_generator_call c = {.how = &how, .generator = generator, .text = variant_text, .out = &variant};
    const fa2_status st = fa2i_generator_ask(&c);
    if (st == FA2_OK)
        *ret_variant = variant;
    return st;
}

fa2_status fa2i_generator_named_variant(fa2i_generator *generator, const char *text, const fa2_problem *problem,
                                        const fa2i_card *card, fa2i_variant *ret_variant)
{
    fa2i_variant variant;
    static const fa2i_entry how = {"named_variant", "tpc", FA2_E_NOT_FOUND, take_variant, NULL};
    fa2i_generator_call c = {
        .how = &how, .generator = generator, .text = text, .problem = problem, .card = card, .out = &variant};
    const fa2_status st = fa2i_generator_ask(&c);
    if (st == FA2_OK)
        *ret_variant = variant;
    return st;
}

static void take_cost(lua_State *L, fa2i_generator_call *c)
{
    *(double *)c->out = check_cost(L, c->text);
}

fa2_status fa2i_generator_cost(fa2i_generator *generator, const char *variant_text, const fa2_problem *problem,
                               const fa2i_card *card, int registers, double *ret_us)
{
    static const fa2i_entry how = {"cost", "tpcn", FA2_E_GENERATOR, take_cost, NULL};
    fa2i_generator_call c = {.how = &how,
                             .generator = generator,
                             .text = variant_text,
                             .problem = problem,
                             .card = card,
                             .number = registers,
                             .out = ret_us};
    return fa2i_generator_ask(&c);
}

static void take_card(lua_State *L, fa2i_generator_call *c)
{
    fa2i_lua_get_card(L, c->out);
}

fa2_status fa2i_generator_card(fa2i_generator *generator, int arch, fa2i_card *ret_card)
{
    fa2i_card card;
    static const fa2i_entry how = {"card", "n", FA2_E_INVALID, take_card, NULL};
    fa2i_generator_call c = {.how = &how, .generator = generator, .number = arch, .out = &card};
    const fa2_status st = fa2i_generator_ask(&c);
    if (st == FA2_OK)
        *ret_card = card;
    return st;
}
