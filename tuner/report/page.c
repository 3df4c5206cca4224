/*
 * The rows become Lua tables of texts. Facts that Lua cannot know come from functions: a problem's operations and
 * bytes, and the runtime's choice. A second generator predicts that choice, because the first one is running the
 * script.
 */
#include "tuner/report/page.h"

#include <lauxlib.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "runtime/base/shown.h"
#include "runtime/lua/generator_call.h"
#include "runtime/lua/lua_values.h"
#include "runtime/ops/op.h"
#include "tuner/report/predict.h"

/* State while a page is made. */
typedef struct making {
    const fa2i_page *page;
    fa2i_generator *generator, *chooser;
    fa2i_predictor predictor; /* for the card of the last question; zeroed: none */
    fa2i_predicted predicted; /* here and not on the stack, because Lua may longjmp */
    fa2i_text out;
    fa2_status status;
} making;

static const char *const format_names[] = {[FA2I_PAGE_HTML] = "html", [FA2I_PAGE_MARKDOWN] = "markdown"};

const char *fa2i_page_start(fa2i_page_format format)
{
    static const char *const starts[] = {[FA2I_PAGE_HTML] = "<!DOCTYPE html>\n<!-- fa2-tune report -->\n",
                                         [FA2I_PAGE_MARKDOWN] = "<!-- fa2-tune report -->\n"};
    return starts[format];
}

/* Sets a text from a file, made printable. Text that does not fit then is cut off. */
static void set_shown(lua_State *L, const char *field, const char *text)
{
    char shown[4096] = "";
    const bool plain = fa2i_shown_is_plain(text, strlen(text));
    if (!plain)
        fa2i_shown_append(shown, sizeof shown, text, false);
    fa2i_lua_set_text(L, field, plain ? text : shown);
}

static void push_rows(lua_State *L, const fa2i_rows *rows)
{
    const size_t count = fa2i_rows_count(rows);
    lua_createtable(L, (int)count, 0);
    for (size_t row = 0; row < count; row++) {
        lua_createtable(L, 0, (int)rows->columns);
        for (size_t column = 0; column < rows->columns; column++) {
            const char *value = fa2i_rows_cell(rows, row, column);
            if (value != NULL)
                set_shown(L, fa2i_rows_name(rows, column), value);
        }
        lua_seti(L, -2, (lua_Integer)row + 1);
    }
}

static void push_gathered(lua_State *L, const fa2i_gathered *gathered)
{
    const struct {
        const char *name;
        const fa2i_rows *rows;
    } lists[] = {{"devices", &gathered->devices},   {"sessions", &gathered->sessions},
                 {"winners", &gathered->winners},   {"measurements", &gathered->measurements},
                 {"ceilings", &gathered->ceilings}, {"naive", &gathered->naive}};
    lua_createtable(L, 0, 7);
    set_shown(L, "path", gathered->path);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        push_rows(L, lists[i].rows);
        lua_setfield(L, -2, lists[i].name);
    }
}

/* Reads the problem from the fields of argument 1. If it is not valid, returns false, with nil and a message on the
 * stack. */
static bool read_problem(lua_State *L, fa2_problem *ret_problem)
{
    fa2i_lua_get_problem(L, 1, ret_problem);
    if (fa2i_problem_check(ret_problem) == FA2_OK)
        return true;
    lua_pushnil(L);
    lua_pushstring(L, fa2_last_message());
    return false;
}

/* shape(row): returns the problem's text, or nil and a message. */
static int host_shape(lua_State *L)
{
    fa2_problem problem;
    if (!read_problem(L, &problem))
        return 2;
    lua_pushstring(L, fa2i_problem_shape(&problem).text);
    return 1;
}

/* describe(row): returns a problem as in gen/init.lua, with its flop and bytes, or nil and a message. */
static int host_describe(lua_State *L)
{
    fa2_problem problem;
    if (!read_problem(L, &problem))
        return 2;
    fa2i_lua_push_problem(L, &problem);
    fa2i_lua_set_number(L, "flop", fa2i_problem_flop(&problem));
    fa2i_lua_set_number(L, "bytes", fa2i_op_of(&problem)->bytes(&problem));
    return 1;
}

static void push_choice(lua_State *L, const fa2i_predicted *predicted)
{
    const fa2i_decision *d = &predicted->decision;
    lua_createtable(L, 0, 6);
    fa2i_lua_set_text(L, "rule", fa2_rule_string(d->rule));
    fa2i_lua_set_text(L, "variant", predicted->variant.text);
    fa2i_lua_set_text(L, "from", d->rule == FA2_RULE_DEFAULT ? "" : fa2i_problem_shape(&d->problem).text);
    fa2i_lua_set_number(L, "us", d->estimate_us);
    fa2i_lua_set_number(L, "distance", d->distance);
    fa2i_lua_set_bool(L, "compiled", predicted->compiled);
}

/* predict(row, card): returns the runtime's choice, or nil and a message. */
static int host_predict(lua_State *L)
{
    making *m = lua_touserdata(L, lua_upvalueindex(1));
    fa2_status st = FA2_OK;
    fa2_problem problem;
    fa2i_card card;
    if (!read_problem(L, &problem))
        return 2;
    lua_settop(L, 2);
    fa2i_lua_get_card(L, &card);
    if (m->predictor.generator == NULL || !fa2i_card_is_same(&m->predictor.device.card, &card)) {
        fa2i_predictor_done(&m->predictor);
        st = fa2i_predictor_init(&m->predictor, m->chooser, m->page->cache, NULL, &card);
        if (st == FA2_OK)
            st = fa2i_predictor_find_share(&m->predictor);
        if (st != FA2_OK)
            fa2i_predictor_done(&m->predictor); /* a half-made one would be used for the card's next row */
    }
    fa2i_predicted_done(&m->predicted);
    if (st == FA2_OK)
        st = fa2i_predict(&m->predictor, &problem, &m->predicted);
    if (st != FA2_OK || m->predicted.status != FA2_OK) {
        lua_pushnil(L);
        lua_pushstring(L, st != FA2_OK ? fa2_last_message() : m->predicted.message);
        return 2;
    }
    push_choice(L, &m->predicted);
    return 1;
}

static void set_moment(lua_State *L)
{
    char text[32] = "";
    const time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) != NULL)
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    fa2i_lua_set_text(L, "made_at", text);
}

/* {{name, key}, ...}: the problem's fields, in the order of its text. */
static void push_fields(lua_State *L)
{
    lua_createtable(L, FA2I_FIELD_COUNT, 0);
    for (int i = 0; i < FA2I_FIELD_COUNT; i++) {
        lua_createtable(L, 0, 2);
        fa2i_lua_set_text(L, "name", fa2i_fields[i].name);
        fa2i_lua_set_text(L, "key", fa2i_fields[i].key);
        lua_seti(L, -2, i + 1);
    }
}

static void push_host(lua_State *L, making *m)
{
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", FA2_VERSION_MAJOR, FA2_VERSION_MINOR, FA2_VERSION_PATCH);
    lua_createtable(L, 0, 7);
    fa2i_lua_set_text(L, "version", version);
    fa2i_lua_set_text(L, "start", fa2i_page_start(m->page->format));
    set_moment(L);
    push_fields(L);
    lua_setfield(L, -2, "fields");
    lua_pushcfunction(L, host_shape);
    lua_setfield(L, -2, "shape");
    lua_pushcfunction(L, host_describe);
    lua_setfield(L, -2, "describe");
    lua_pushlightuserdata(L, m);
    lua_pushcclosure(L, host_predict, 1);
    lua_setfield(L, -2, "predict");
    fa2i_lua_host_push_read(L, &m->generator->host);
    lua_setfield(L, -2, "read");
}

static int body_page(lua_State *L)
{
    making *m = lua_touserdata(L, 1);
    size_t bytes = 0;
    fa2i_lua_host_push_function(L, "tuner.report.lua.page", "write");
    lua_pushstring(L, format_names[m->page->format]);
    push_host(L, m);
    push_gathered(L, m->page->tuned);
    if (m->page->other != NULL)
        push_gathered(L, m->page->other);
    else
        lua_pushnil(L);
    if (!fa2i_generator_answers(L, 4, FA2_E_GENERATOR, &m->status))
        return 0;
    const char *text = lua_tolstring(L, -1, &bytes);
    fa2i_text_add_bytes(&m->out, text, bytes);
    return 0;
}

fa2_status fa2i_page_make(fa2i_generator *generator, const fa2i_page *page, char **ret_text, size_t *ret_bytes)
{
    making m = {.page = page, .generator = generator};
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_generator_create(&m.chooser));
    FA2_TRY(fa2i_generator_run(generator, body_page, &m, &m.status));
    *ret_bytes = m.out.length;
    FA2_TRY(fa2i_text_take(&m.out, ret_text));
done:
    fa2i_predicted_done(&m.predicted);
    fa2i_predictor_done(&m.predictor);
    fa2i_generator_destroy(m.chooser);
    fa2i_text_done(&m.out);
    return st;
}
