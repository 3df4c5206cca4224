/*
 * How a call gets to Lua and back: a public function fills a `call` and has a body run, which
 * pushes the arguments, calls the entry point in gen/init.lua and stores the results in the call.
 * The public function frees what the body left there, also when Lua jumped out of it (lua_host.h).
 */
#include "runtime/lua/generator.h"

#include <math.h>
#include <string.h>
#include <lauxlib.h>
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"
#include "runtime/base/text.h"
#include "runtime/lua/lua_host.h"

enum { CANDIDATES_MAX = 1 << 20 };

struct fa2i_generator {
    fa2i_lua_host host;
    char id[17];
};

typedef struct call {
    fa2i_generator *generator;
    fa2_status status; /* set by the body, with the message, for failures that are no Lua errors */
    const fa2_problem *problem;
    const fa2i_card *card;
    const char *text; /* of the variant */
    int registers, arch;
    fa2i_variant *variants; /* results; owned by the public function */
    size_t count;
    fa2i_variant variant;
    fa2i_text out;
    double us;
    fa2i_card ret_card;
} call;

static fa2_status run(call *c, lua_CFunction body)
{
    fa2i_lua_host *host = &c->generator->host;
    c->status = FA2_OK;
    fa2_status st = fa2i_lua_host_run(host, body, c);
    if (st == FA2_OK)
        st = c->status;
    /* Scripts may have caught the error, and made another one of it. */
    if (st != FA2_OK && host->out_of_memory)
        st = fa2i_fail(FA2_E_MEMORY, "out of memory while the generator ran");
    return st;
}

fa2_status fa2i_generator_create(fa2i_generator **ret_generator)
{
    fa2_status st = FA2_OK;
    fa2i_key key;
    char hex[2 * FA2I_KEY_BYTES + 1];
    fa2i_generator *generator = fa2i_alloc(sizeof *generator);
    if (generator == NULL)
        return fa2i_fail(FA2_E_MEMORY, "out of memory for the generator");
    FA2_TRY(fa2i_lua_host_open(&generator->host));
    FA2_TRY(fa2i_generator_files_key(&generator->host.files, &key));
    fa2i_key_format(&key, hex);
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

/* ---- values, in and out ---- */

static void set_integer(lua_State *L, const char *field, int64_t value)
{
    lua_pushinteger(L, value);
    lua_setfield(L, -2, field);
}

static void set_string(lua_State *L, const char *field, const char *value)
{
    lua_pushstring(L, value);
    lua_setfield(L, -2, field);
}

/* Whether a problem asks for a feature: a KIND field that is not 0, and that texts do not always
 * show. A family that does not know it must refuse. */
static bool is_asked(const fa2_problem *problem, int field)
{
    const fa2i_field *f = &fa2i_fields[field];
    return f->role == FA2I_ROLE_KIND && field != FA2I_FIELD_op && !f->shown_always &&
           fa2i_field_get(problem, field) != 0;
}

/* The list of the fields that a problem asks for, by name. */
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

static void push_problem(lua_State *L, const fa2_problem *problem)
{
    char class_key[FA2I_CLASS_CHARS];
    lua_createtable(L, 0, FA2I_FIELD_COUNT + 2);
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        const int32_t value = fa2i_field_get(problem, field);
        const char *word = fa2i_field_word(field, value);
        if (word != NULL)
            set_string(L, fa2i_fields[field].name, word);
        else
            set_integer(L, fa2i_fields[field].name, value);
    }
    fa2i_problem_class(problem, class_key);
    set_string(L, "class", class_key);
    push_asked(L, problem);
    lua_setfield(L, -2, "asked");
}

static void push_card(lua_State *L, const fa2i_card *card)
{
    lua_createtable(L, 0, 8);
    set_string(L, "name", card->name);
    set_integer(L, "arch", card->arch);
    set_integer(L, "sm_count", card->sm_count);
    set_integer(L, "smem_block_bytes", card->smem_block_bytes);
    set_integer(L, "smem_sm_bytes", card->smem_sm_bytes);
    set_integer(L, "l2_bytes", card->l2_bytes);
    set_integer(L, "clock_khz", card->clock_khz);
    set_integer(L, "bandwidth_bytes", card->bandwidth_bytes);
}

/* A field of the table on top of the stack; a Lua error unless it is an integer. */
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
        luaL_error(L, "field '%s' is %I; it must be from %d to %d", field, (LUAI_UACINT)value,
                   least, most);
    return (int)value;
}

/* The same within bounds. */
static int get_number(lua_State *L, const char *field, int least, int most)
{
    return to_int(L, field, get_integer(L, field), least, most);
}

/* The same for strings, copied; a Lua error if it does not fit. */
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

/* Whether an entry point returned nil and a message, which becomes the call's failure. */
static bool refused(lua_State *L, call *c, fa2_status status)
{
    if (!lua_isnil(L, -2))
        return false;
    c->status = fa2i_fail(status, "%s", luaL_tolstring(L, -1, NULL));
    return true;
}

/* ---- entry points ---- */

/* The value on top of the stack for a field of a kind, by name. */
static void set_kind(lua_State *L, fa2_problem *kind, const char *name)
{
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        if (strcmp(fa2i_fields[field].name, name) != 0 || fa2i_fields[field].role != FA2I_ROLE_KIND)
            continue;
        int32_t value = 0;
        if (fa2i_fields[field].type == FA2I_TYPE_INT)
            value = to_int(L, name, luaL_checkinteger(L, -1), INT32_MIN, INT32_MAX);
        else if (!fa2i_field_parse_word(field, luaL_checkstring(L, -1), &value))
            luaL_error(L, "'%s' is no %s", lua_tostring(L, -1), name);
        if (fa2i_field_check(field, value) != FA2_OK)
            luaL_error(L, "%s", fa2_last_message());
        fa2i_field_set(kind, field, value);
        return;
    }
    luaL_error(L, "'%s' is no field that is compiled into a kernel", name);
}

/* The class of the table `kind` in the table on top of the stack: names that it leaves out are 0. */
static void get_class(lua_State *L, char out[FA2I_CLASS_CHARS])
{
    fa2_problem kind = {0};
    if (lua_getfield(L, -1, "kind") != LUA_TTABLE)
        luaL_error(L, "field 'kind' is no table");
    for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            luaL_error(L, "field 'kind' has a key that is no string");
        set_kind(L, &kind, lua_tostring(L, -2));
    }
    lua_pop(L, 1);
    fa2i_problem_class(&kind, out);
}

/* The first word names the family, an entry point of the code and a file. */
static void check_family(lua_State *L, const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    const size_t length = strspn(text, letters);
    if (length == 0 || (text[length] != ' ' && text[length] != '\0'))
        luaL_error(L, "the variant '%s' does not begin with the name of a family", text);
}

static void get_variant(lua_State *L, fa2i_variant *variant)
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

static void get_candidate(lua_State *L, fa2i_variant *variant)
{
    get_variant(L, variant);
    lua_getfield(L, -1, "cost_us");
    variant->cost_us = luaL_checknumber(L, -1);
    if (!isfinite(variant->cost_us) || variant->cost_us <= 0)
        luaL_error(L, "the cost of '%s' is %f us", variant->text, variant->cost_us);
    lua_pop(L, 1);
}

static int body_candidates(lua_State *L)
{
    call *c = lua_touserdata(L, 1);
    fa2i_lua_host_push_entry(L, "candidates");
    push_problem(L, c->problem);
    push_card(L, c->card);
    lua_call(L, 2, 2);
    if (refused(L, c, FA2_E_UNSUPPORTED))
        return 0;
    lua_pop(L, 1);
    const lua_Integer length = luaL_len(L, -1);
    if (length < 1 || length > CANDIDATES_MAX)
        return luaL_error(L, "there are %I candidates; there must be from 1 to %d", length,
                          CANDIDATES_MAX);
    const size_t count = (size_t)length;
    c->variants = fa2i_alloc_array(count, sizeof *c->variants);
    if (c->variants == NULL) {
        c->status = fa2i_fail(FA2_E_MEMORY, "out of memory for %zu variants", count);
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        lua_geti(L, -1, (lua_Integer)i + 1);
        get_candidate(L, &c->variants[i]);
        lua_pop(L, 1);
    }
    c->count = count;
    return 0;
}

/* Scripts that pass over what they do not know must not give kernels of one class for another. */
static fa2_status check_classes(const call *c)
{
    char class_key[FA2I_CLASS_CHARS];
    fa2i_problem_class(c->problem, class_key);
    for (size_t i = 0; i < c->count; i++) {
        if (strcmp(c->variants[i].class_key, class_key) != 0)
            return fa2i_fail(FA2_E_UNSUPPORTED,
                             "the generator does not know all of %s: it answers with %s, which is "
                             "for %s",
                             class_key, c->variants[i].text, c->variants[i].class_key);
    }
    return FA2_OK;
}

fa2_status fa2i_generator_candidates(fa2i_generator *generator, const fa2_problem *problem,
                                     const fa2i_card *card, fa2i_variant **ret_variants,
                                     size_t *ret_count)
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

/* Store the string on top of the stack as the call's text. */
static void keep_text(lua_State *L, call *c)
{
    size_t bytes = 0;
    const char *text = luaL_checklstring(L, -1, &bytes);
    fa2i_text_add_bytes(&c->out, text, bytes);
}

static int body_rejected(lua_State *L)
{
    call *c = lua_touserdata(L, 1);
    fa2i_lua_host_push_entry(L, "rejected");
    push_problem(L, c->problem);
    push_card(L, c->card);
    lua_call(L, 2, 2);
    if (refused(L, c, FA2_E_UNSUPPORTED))
        return 0;
    lua_pop(L, 1);
    keep_text(L, c);
    return 0;
}

fa2_status fa2i_generator_rejected(fa2i_generator *generator, const fa2_problem *problem,
                                   const fa2i_card *card, char **ret_text)
{
    fa2_status st = FA2_OK;
    call c = {.generator = generator, .problem = problem, .card = card};
    FA2_TRY(fa2i_problem_check(problem));
    FA2_TRY(run(&c, body_rejected));
    FA2_TRY(fa2i_text_take(&c.out, ret_text));
done:
    fa2i_text_done(&c.out);
    return st;
}

static int body_variant(lua_State *L)
{
    call *c = lua_touserdata(L, 1);
    fa2i_lua_host_push_entry(L, "variant");
    lua_pushstring(L, c->text);
    lua_call(L, 1, 2);
    if (refused(L, c, FA2_E_GENERATOR))
        return 0;
    lua_pop(L, 1);
    get_variant(L, &c->variant);
    return 0;
}

fa2_status fa2i_generator_variant(fa2i_generator *generator, const char *variant_text,
                                  fa2i_variant *ret_variant)
{
    fa2_status st = FA2_OK;
    call c = {.generator = generator, .text = variant_text};
    FA2_TRY(run(&c, body_variant));
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
    lua_call(L, 2, 2);
    if (refused(L, c, FA2_E_GENERATOR))
        return 0;
    lua_pop(L, 1);
    keep_text(L, c);
    return 0;
}

fa2_status fa2i_generator_source(fa2i_generator *generator, const char *variant_text,
                                 char **ret_source)
{
    fa2_status st = FA2_OK;
    call c = {.generator = generator, .text = variant_text};
    FA2_TRY(run(&c, body_source));
    FA2_TRY(fa2i_text_take(&c.out, ret_source));
done:
    fa2i_text_done(&c.out);
    return st;
}

static int body_cost(lua_State *L)
{
    call *c = lua_touserdata(L, 1);
    fa2i_lua_host_push_entry(L, "cost");
    lua_pushstring(L, c->text);
    push_problem(L, c->problem);
    push_card(L, c->card);
    lua_pushinteger(L, c->registers);
    lua_call(L, 4, 2);
    if (refused(L, c, FA2_E_GENERATOR))
        return 0;
    lua_pop(L, 1);
    c->us = luaL_checknumber(L, -1);
    if (!isfinite(c->us) || c->us <= 0)
        return luaL_error(L, "the cost of '%s' is %f us", c->text, c->us);
    return 0;
}

fa2_status fa2i_generator_cost(fa2i_generator *generator, const char *variant_text,
                               const fa2_problem *problem, const fa2i_card *card, int registers,
                               double *ret_us)
{
    fa2_status st = FA2_OK;
    call c = {.generator = generator,
              .text = variant_text,
              .problem = problem,
              .card = card,
              .registers = registers};
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
    lua_call(L, 1, 2);
    if (refused(L, c, FA2_E_INVALID))
        return 0;
    lua_pop(L, 1);
    get_string(L, "name", c->ret_card.name, sizeof c->ret_card.name);
    c->ret_card.arch = get_number(L, "arch", 1, INT32_MAX);
    c->ret_card.sm_count = get_number(L, "sm_count", 1, INT32_MAX);
    c->ret_card.smem_block_bytes = get_number(L, "smem_block_bytes", 1, INT32_MAX);
    c->ret_card.smem_sm_bytes = get_number(L, "smem_sm_bytes", 1, INT32_MAX);
    c->ret_card.l2_bytes = get_integer(L, "l2_bytes");
    c->ret_card.clock_khz = get_number(L, "clock_khz", 1, INT32_MAX);
    c->ret_card.bandwidth_bytes = get_integer(L, "bandwidth_bytes");
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
