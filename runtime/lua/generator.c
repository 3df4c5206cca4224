/*
 * How C calls Lua: a public function fills a `call` and runs a body. The body pushes the arguments, calls the entry
 * point in gen/init.lua, and stores the results in the call. The public function frees what the body stored, even if
 * Lua jumped out of the body (lua_host.h).
 */
#include "runtime/lua/generator_call.h"

#include <math.h>
#include <string.h>
#include <lauxlib.h>
#include "runtime/base/alloc.h"
#include "runtime/base/text.h"
#include "runtime/lua/lua_values.h"

enum { CANDIDATES_MAX = 1 << 20 };

typedef struct call {
    fa2i_generator *generator;
    fa2_status status; /* set by the body, with the message, for failures that are not Lua errors */
    const fa2_problem *problem;
    const fa2i_card *card;
    const char *text; /* of the variant */
    int registers, arch;
    fa2i_variant *variants; /* results; the public function owns them */
    size_t count;
    fa2i_variant variant;
    fa2i_text out;
    double us;
    fa2i_card ret_card;
} call;

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

static fa2_status run(call *c, lua_CFunction body)
{
    c->status = FA2_OK;
    return fa2i_generator_run(c->generator, body, c, &c->status);
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

static bool answers(lua_State *L, call *c, int arguments, fa2_status refusal)
{
    return fa2i_generator_answers(L, arguments, refusal, &c->status);
}

/* Reads the number on top of the stack as the cost of a variant. Raises a Lua error unless it is a time. */
static double check_cost(lua_State *L, const char *text)
{
    const double us = luaL_checknumber(L, -1);
    if (!isfinite(us) || us <= 0)
        luaL_error(L, "the cost of '%s' is %f us", text, us);
    return us;
}

/* ---- entry points ---- */

void fa2i_generator_get_candidate(lua_State *L, fa2i_variant *variant)
{
    fa2i_lua_get_variant(L, variant);
    lua_getfield(L, -1, "cost_us");
    variant->cost_us = check_cost(L, variant->text);
    lua_pop(L, 1);
}

static int body_candidates(lua_State *L)
{
    call *c = lua_touserdata(L, 1);
    fa2i_lua_host_push_entry(L, "candidates");
    fa2i_lua_push_problem(L, c->problem);
    fa2i_lua_push_card(L, c->card);
    if (!answers(L, c, 2, FA2_E_UNSUPPORTED))
        return 0;
    const lua_Integer length = luaL_len(L, -1);
    if (length < 1 || length > CANDIDATES_MAX)
        return luaL_error(L, "there are %I candidates; there must be from 1 to %d", length, CANDIDATES_MAX);
    const size_t count = (size_t)length;
    c->variants = fa2i_alloc_array(count, sizeof *c->variants);
    if (c->variants == NULL) {
        c->status = fa2i_fail(FA2_E_MEMORY, "out of memory for %zu variants", count);
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        lua_geti(L, -1, (lua_Integer)i + 1);
        fa2i_generator_get_candidate(L, &c->variants[i]);
        lua_pop(L, 1);
    }
    c->count = count;
    return 0;
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

static fa2_status check_classes(const call *c)
{
    fa2_status st = FA2_OK;
    for (size_t i = 0; i < c->count && st == FA2_OK; i++)
        st = fa2i_generator_check_class(c->problem, &c->variants[i]);
    return st;
}

fa2_status fa2i_generator_candidates(fa2i_generator *generator, const fa2_problem *problem, const fa2i_card *card,
                                     fa2i_variant **ret_variants, size_t *ret_count)
{
    fa2_status st = FA2_OK;
    call c = {.generator = generator, .problem = problem, .card = card};
    FA2_TRY(fa2i_problem_check(problem));
    FA2_TRY(run(&c, body_candidates));
    FA2_TRY(check_classes(&c));
    *ret_variants = c.variants;
    *ret_count = c.count;
    c.variants = NULL; /* ownership has moved to the caller */
done:
    fa2i_free(c.variants);
    return st;
}

/* Stores the string on top of the stack as the call's text. */
static void keep_text(lua_State *L, call *c)
{
    size_t bytes = 0;
    const char *text = luaL_checklstring(L, -1, &bytes);
    fa2i_text_add_bytes(&c->out, text, bytes);
}

static fa2_status run_for_text(call *c, lua_CFunction body, char **ret_text)
{
    fa2_status st = run(c, body);
    if (st == FA2_OK)
        st = fa2i_text_take(&c->out, ret_text);
    fa2i_text_done(&c->out);
    return st;
}

static int body_rejected(lua_State *L)
{
    call *c = lua_touserdata(L, 1);
    fa2i_lua_host_push_entry(L, "rejected");
    fa2i_lua_push_problem(L, c->problem);
    fa2i_lua_push_card(L, c->card);
    if (!answers(L, c, 2, FA2_E_UNSUPPORTED))
        return 0;
    keep_text(L, c);
    return 0;
}

fa2_status fa2i_generator_rejected(fa2i_generator *generator, const fa2_problem *problem, const fa2i_card *card,
                                   char **ret_text)
{
    call c = {.generator = generator, .problem = problem, .card = card};
    const fa2_status st = fa2i_problem_check(problem);
    return st == FA2_OK ? run_for_text(&c, body_rejected, ret_text) : st;
}

static int body_variant(lua_State *L)
{
    call *c = lua_touserdata(L, 1);
    fa2i_lua_host_push_entry(L, "variant");
    lua_pushstring(L, c->text);
    if (!answers(L, c, 1, FA2_E_NOT_FOUND))
        return 0;
    fa2i_lua_get_variant(L, &c->variant);
    return 0;
}

static int body_named_variant(lua_State *L)
{
    call *c = lua_touserdata(L, 1);
    fa2i_lua_host_push_entry(L, "named_variant");
    lua_pushstring(L, c->text);
    if (c->problem != NULL)
        fa2i_lua_push_problem(L, c->problem);
    else
        lua_pushnil(L);
    if (c->card != NULL)
        fa2i_lua_push_card(L, c->card);
    else
        lua_pushnil(L);
    if (!answers(L, c, 3, FA2_E_NOT_FOUND))
        return 0;
    fa2i_lua_get_variant(L, &c->variant);
    return 0;
}

fa2_status fa2i_generator_variant(fa2i_generator *generator, const char *variant_text, fa2i_variant *ret_variant)
{
    fa2_status st = FA2_OK;
    call c = {.generator = generator, .text = variant_text};
    FA2_TRY(run(&c, body_variant));
    *ret_variant = c.variant;
done:
    return st;
}

fa2_status fa2i_generator_named_variant(fa2i_generator *generator, const char *text, const fa2_problem *problem,
                                        const fa2i_card *card, fa2i_variant *ret_variant)
{
    fa2_status st = FA2_OK;
    call c = {.generator = generator, .text = text, .problem = problem, .card = card};
    if (problem != NULL)
        FA2_TRY(fa2i_problem_check(problem));
    FA2_TRY(run(&c, body_named_variant));
    *ret_variant = c.variant;
done:
    return st;
}

static int body_source(lua_State *L)
{
    call *c = lua_touserdata(L, 1);
    fa2i_lua_host_push_entry(L, "source");
    lua_pushstring(L, c->text);
    fa2i_lua_host_push_read(L, &c->generator->host);
    if (!answers(L, c, 2, FA2_E_GENERATOR))
        return 0;
    keep_text(L, c);
    return 0;
}

fa2_status fa2i_generator_source(fa2i_generator *generator, const char *variant_text, char **ret_source)
{
    call c = {.generator = generator, .text = variant_text};
    return run_for_text(&c, body_source, ret_source);
}

static int body_cost(lua_State *L)
{
    call *c = lua_touserdata(L, 1);
    fa2i_lua_host_push_entry(L, "cost");
    lua_pushstring(L, c->text);
    fa2i_lua_push_problem(L, c->problem);
    fa2i_lua_push_card(L, c->card);
    lua_pushinteger(L, c->registers);
    if (!answers(L, c, 4, FA2_E_GENERATOR))
        return 0;
    c->us = check_cost(L, c->text);
    return 0;
}

fa2_status fa2i_generator_cost(fa2i_generator *generator, const char *variant_text, const fa2_problem *problem,
                               const fa2i_card *card, int registers, double *ret_us)
{
    fa2_status st = FA2_OK;
    call c = {.generator = generator, .text = variant_text, .problem = problem, .card = card, .registers = registers};
    FA2_TRY(fa2i_problem_check(problem));
    FA2_TRY(run(&c, body_cost));
    *ret_us = c.us;
done:
    return st;
}

static int body_card(lua_State *L)
{
    call *c = lua_touserdata(L, 1);
    fa2i_lua_host_push_entry(L, "card");
    lua_pushinteger(L, c->arch);
    if (!answers(L, c, 1, FA2_E_INVALID))
        return 0;
    fa2i_lua_get_card(L, &c->ret_card);
    return 0;
}

fa2_status fa2i_generator_card(fa2i_generator *generator, int arch, fa2i_card *ret_card)
{
    fa2_status st = FA2_OK;
    call c = {.generator = generator, .arch = arch};
    FA2_TRY(run(&c, body_card));
    *ret_card = c.ret_card;
done:
    return st;
}
