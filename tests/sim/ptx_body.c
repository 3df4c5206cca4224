/*
 * Parses the body of a function: register declarations with their scopes, labels, source locations, and instructions
 * with their arguments.
 */
#include "ptx.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- registers ---- */

static int add_registers(ptx_parser *parser, ptx_class class, int count)
{
    ptx_function *function = parser->function;
    const int first = (int)function->register_count;
    for (int i = 0; i < count; i++) {
        function->registers = sim_arena_grow(&parser->module->arena, function->registers, function->register_count,
                                             &function->register_capacity, sizeof *function->registers);
        function->registers[function->register_count++] = class;
    }
    return first;
}

/* .reg .type name [<count>] {, name ...}; */
static bool parse_registers(ptx_parser *parser)
{
    ptx_class class = PTX_B32;
    size_t bytes = 0;
    ptx_advance(&parser->lexer);
    if (!ptx_type_of(parser->lexer.token.at, parser->lexer.token.length, &class, &bytes))
        return ptx_fail(parser, "registers of type '%.*s'", (int)parser->lexer.token.length, parser->lexer.token.at);
    do {
        ptx_name name = {.count = -1};
        int64_t count = 1;
        ptx_advance(&parser->lexer);
        if (!ptx_take_name(parser, &name.text))
            return false;
        if (ptx_is(&parser->lexer, "<")) {
            ptx_advance(&parser->lexer);
            if (!ptx_take_integer(parser, &count) || !ptx_expect(parser, ">"))
                return false;
            if (count < 0 || count > 1 << 20)
                return ptx_fail(parser, "%lld registers", (long long)count);
            name.count = (int)count;
        }
        name.first = add_registers(parser, class, (int)count);
        parser->names = sim_arena_grow(&parser->module->arena, parser->names, parser->name_count,
                                       &parser->name_capacity, sizeof *parser->names);
        parser->names[parser->name_count++] = name;
    } while (ptx_is(&parser->lexer, ","));
    return ptx_expect(parser, ";");
}

/* Returns the register of a token, -1 if it is none. */
static int find_register(const ptx_parser *parser, const ptx_token *token)
{
    for (size_t i = parser->name_count; i-- > 0;) {
        const ptx_name *name = &parser->names[i];
        const size_t length = strlen(name->text);
        if (token->length < length || memcmp(token->at, name->text, length) != 0)
            continue;
        if (name->count < 0 && token->length == length)
            return name->first;
        if (name->count < 0 || token->length == length)
            continue;
        char *end = NULL;
        const long number = strtol(token->at + length, &end, 10);
        if (isdigit((unsigned char)token->at[length]) && end == token->at + token->length && number < name->count)
            return name->first + (int)number;
    }
    return -1;
}

/* ---- arguments ---- */

static bool parse_arg(ptx_parser *parser, ptx_arg *arg);

/* {a, b, ...}: the items of arg. */
static bool parse_items(ptx_parser *parser, ptx_arg *arg)
{
    sim_arena *arena = &parser->module->arena;
    const size_t first = parser->item_count;
    do {
        ptx_arg item;
        ptx_advance(&parser->lexer);
        if (!parse_arg(parser, &item))
            return false;
        parser->items =
            sim_arena_grow(arena, parser->items, parser->item_count, &parser->item_capacity, sizeof *parser->items);
        parser->items[parser->item_count++] = item;
    } while (ptx_is(&parser->lexer, ","));
    const size_t count = parser->item_count - first;
    arg->items = sim_arena_get(arena, count, sizeof *arg->items);
    memcpy(arg->items, parser->items + first, count * sizeof *arg->items);
    arg->item_count = (int)count;
    parser->item_count = first;
    return ptx_expect(parser, "}");
}

/* [base], [base+offset], [number]; each may be followed by coordinates: [base, {x, y}] */
static bool parse_address(ptx_parser *parser, ptx_arg *arg)
{
    arg->kind = PTX_ARG_ADDRESS;
    ptx_advance(&parser->lexer);
    if (parser->lexer.token.kind == PTX_WORD) {
        arg->reg = find_register(parser, &parser->lexer.token);
        if (arg->reg < 0)
            arg->name = sim_arena_text(&parser->module->arena, parser->lexer.token.at, parser->lexer.token.length);
        ptx_advance(&parser->lexer);
        if (ptx_is(&parser->lexer, "+"))
            ptx_advance(&parser->lexer);
    }
    if (!ptx_is(&parser->lexer, "]") && !ptx_is(&parser->lexer, ",") && !ptx_take_integer(parser, &arg->offset))
        return false;
    if (ptx_is(&parser->lexer, ",")) {
        ptx_advance(&parser->lexer);
        if (!ptx_is(&parser->lexer, "{"))
            return ptx_fail(parser, "coordinates are expected in an address, behind ','");
        if (!parse_items(parser, arg))
            return false;
    }
    return ptx_expect(parser, "]");
}

static bool parse_word(ptx_parser *parser, ptx_arg *arg)
{
    const ptx_token token = parser->lexer.token;
    arg->reg = find_register(parser, &token);
    ptx_advance(&parser->lexer);
    if (token.length == 1 && token.at[0] == '_') {
        arg->kind = PTX_ARG_SINK;
    } else if (arg->reg < 0) {
        arg->kind = PTX_ARG_SYMBOL;
        arg->name = sim_arena_text(&parser->module->arena, token.at, token.length);
        return true;
    }
    if (ptx_is(&parser->lexer, "|")) {
        ptx_advance(&parser->lexer);
        arg->second = find_register(parser, &parser->lexer.token);
        if (arg->second < 0 && !ptx_is(&parser->lexer, "_"))
            return ptx_fail(parser, "a register is expected behind '|'");
        ptx_advance(&parser->lexer);
    }
    return true;
}

static bool parse_arg(ptx_parser *parser, ptx_arg *arg)
{
    *arg = (ptx_arg){.kind = PTX_ARG_REGISTER, .reg = -1, .second = -1};
    if (ptx_is(&parser->lexer, "{")) {
        arg->kind = PTX_ARG_VECTOR;
        return parse_items(parser, arg);
    }
    if (ptx_is(&parser->lexer, "["))
        return parse_address(parser, arg);
    if (ptx_is(&parser->lexer, "!")) {
        arg->negated = true;
        ptx_advance(&parser->lexer);
    }
    if (parser->lexer.token.kind == PTX_WORD)
        return parse_word(parser, arg);
    int64_t value = 0;
    arg->kind = PTX_ARG_IMMEDIATE;
    if (!ptx_take_integer(parser, &value))
        return false;
    arg->bits = (uint64_t)value;
    return true;
}

/* ---- locations ---- */

static int find_location(const ptx_module *module, const ptx_location *wanted)
{
    for (size_t i = module->location_count; i-- > 0;) {
        const ptx_location *l = &module->locations[i];
        if (l->file == wanted->file && l->line == wanted->line && l->column == wanted->column)
            return (int)i;
    }
    return -1;
}

static bool take_place(ptx_parser *parser, ptx_location *ret_place)
{
    int64_t file = 0, line = 0, column = 0;
    ptx_advance(&parser->lexer);
    if (!ptx_take_integer(parser, &file) || !ptx_take_integer(parser, &line) || !ptx_take_integer(parser, &column))
        return false;
    *ret_place = (ptx_location){(int)file, (int)line, (int)column, -1};
    return true;
}

static int add_location(ptx_module *module, const ptx_location *place)
{
    module->locations = sim_arena_grow(&module->arena, module->locations, module->location_count,
                                       &module->location_capacity, sizeof *module->locations);
    module->locations[module->location_count] = *place;
    return (int)module->location_count++;
}

/* .loc file line column [, function_name label [, inlined_at file line column]] */
bool ptx_parse_location(ptx_parser *parser)
{
    ptx_location place, outer;
    if (!take_place(parser, &place))
        return false;
    while (ptx_is(&parser->lexer, ",")) {
        ptx_advance(&parser->lexer);
        if (ptx_is(&parser->lexer, "function_name")) {
            ptx_advance(&parser->lexer);
            ptx_advance(&parser->lexer);
            if (ptx_is(&parser->lexer, "+")) { /* an offset into the names */
                int64_t offset = 0;
                ptx_advance(&parser->lexer);
                if (!ptx_take_integer(parser, &offset))
                    return false;
            }
        } else if (ptx_is(&parser->lexer, "inlined_at")) {
            if (!take_place(parser, &outer))
                return false;
            place.outer = find_location(parser->module, &outer);
            if (place.outer < 0)
                place.outer = add_location(parser->module, &outer);
        } else {
            return ptx_fail(parser, "'%.*s' in .loc", (int)parser->lexer.token.length, parser->lexer.token.at);
        }
    }
    parser->location = add_location(parser->module, &place);
    return true;
}

/* ---- statements ---- */

static bool parse_guard(ptx_parser *parser, ptx_instruction *instruction)
{
    ptx_advance(&parser->lexer);
    if (ptx_is(&parser->lexer, "!")) {
        instruction->guard_negated = true;
        ptx_advance(&parser->lexer);
    }
    instruction->guard = find_register(parser, &parser->lexer.token);
    if (instruction->guard < 0)
        return ptx_fail(parser, "'%.*s' is no predicate", (int)parser->lexer.token.length, parser->lexer.token.at);
    ptx_advance(&parser->lexer);
    return true;
}

static bool parse_instruction(ptx_parser *parser)
{
    ptx_function *function = parser->function;
    sim_arena *arena = &parser->module->arena;
    ptx_instruction instruction = {.guard = -1, .line = parser->lexer.token.line, .location = parser->location};
    const char *begin = parser->lexer.token.at;

    if (ptx_is(&parser->lexer, "@") && !parse_guard(parser, &instruction))
        return false;
    if (!ptx_take_name(parser, &instruction.opcode))
        return false;
    while (!ptx_is(&parser->lexer, ";")) {
        if (instruction.arg_count == PTX_ARGS_MAX)
            return ptx_fail(parser, "%s with more than %d arguments", instruction.opcode, PTX_ARGS_MAX);
        if (instruction.arg_count > 0 && !ptx_expect(parser, ","))
            return false;
        if (!parse_arg(parser, &instruction.args[instruction.arg_count++]))
            return false;
    }
    instruction.text = sim_arena_text(arena, begin, (size_t)(parser->lexer.token.at - begin));
    function->instructions = sim_arena_grow(arena, function->instructions, function->instruction_count,
                                            &function->instruction_capacity, sizeof *function->instructions);
    function->instructions[function->instruction_count++] = instruction;
    return ptx_expect(parser, ";");
}

static void add_label(ptx_parser *parser, const char *name)
{
    ptx_function *function = parser->function;
    function->labels = sim_arena_grow(&parser->module->arena, function->labels, function->label_count,
                                      &function->label_capacity, sizeof *function->labels);
    const int at = (int)function->instruction_count;
    function->labels[function->label_count++] = (ptx_label){name, at, 0, 0};
}

/* A label and an instruction both begin with a word. The next token tells which it is. */
static bool at_label(const ptx_parser *parser)
{
    ptx_lexer ahead = parser->lexer;
    if (ahead.token.kind != PTX_WORD || ahead.token.at[0] == '.')
        return false;
    ptx_advance(&ahead);
    return ptx_is(&ahead, ":");
}

static bool parse_statement(ptx_parser *parser)
{
    ptx_lexer *lexer = &parser->lexer;
    if (at_label(parser)) {
        const char *name = NULL;
        if (!ptx_take_name(parser, &name))
            return false;
        add_label(parser, name);
        return ptx_expect(parser, ":");
    }
    if (ptx_is(lexer, ".reg"))
        return parse_registers(parser);
    if (ptx_is(lexer, ".loc"))
        return ptx_parse_location(parser);
    if (ptx_is(lexer, ".pragma")) {
        ptx_advance(lexer);
        ptx_advance(lexer);
        return ptx_expect(parser, ";");
    }
    if (ptx_starts(lexer, '.'))
        return ptx_parse_variable(parser);
    return parse_instruction(parser);
}

static bool parse_block(ptx_parser *parser)
{
    const ptx_function *function = parser->function;
    const size_t names = parser->name_count, labels = function->label_count;
    const int first = (int)function->instruction_count;
    if (!ptx_expect(parser, "{"))
        return false;
    while (!ptx_is(&parser->lexer, "}")) {
        if (parser->lexer.token.kind == PTX_END)
            return ptx_fail(parser, "'}' is missing");
        if (ptx_is(&parser->lexer, "{") ? !parse_block(parser) : !parse_statement(parser))
            return false;
    }
    /* Inline assembly: its registers and labels end with its braces. */
    parser->name_count = names;
    for (size_t i = labels; i < function->label_count; i++)
        if (function->labels[i].last == 0) { /* not a label of inner braces */
            function->labels[i].first = first;
            function->labels[i].last = (int)function->instruction_count;
        }
    return ptx_expect(parser, "}");
}

bool ptx_parse_body(ptx_parser *parser)
{
    return parse_block(parser);
}
