/*
 * The module level of PTX: version and target, files, variables, functions and their parameters.
 */
#include "ptx.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool ptx_fail(ptx_parser *parser, const char *format, ...)
{
    ptx_module *module = parser->module;
    if (module->message[0] != '\0')
        return false;
    const int used = snprintf(module->message, sizeof module->message, "PTX line %d: ", parser->lexer.token.line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(module->message + used, sizeof module->message - (size_t)used, format, arguments);
    va_end(arguments);
    return false;
}

bool ptx_expect(ptx_parser *parser, const char *text)
{
    if (!ptx_is(&parser->lexer, text))
        return ptx_fail(parser, "'%s' expected, not '%.*s'", text, (int)parser->lexer.token.length,
                        parser->lexer.token.at);
    ptx_advance(&parser->lexer);
    return true;
}

bool ptx_take_integer(ptx_parser *parser, int64_t *ret_value)
{
    uint64_t bits = 0;
    const bool negative = ptx_is(&parser->lexer, "-");
    if (negative)
        ptx_advance(&parser->lexer);
    if (!ptx_number(&parser->lexer.token, negative, &bits))
        return ptx_fail(parser, "a number is expected, not '%.*s'", (int)parser->lexer.token.length,
                        parser->lexer.token.at);
    *ret_value = (int64_t)bits;
    ptx_advance(&parser->lexer);
    return true;
}

bool ptx_take_name(ptx_parser *parser, const char **ret_name)
{
    const ptx_token *token = &parser->lexer.token;
    if (token->kind != PTX_WORD || token->at[0] == '.')
        return ptx_fail(parser, "a name is expected, not '%.*s'", (int)token->length, token->at);
    *ret_name = sim_arena_text(&parser->module->arena, token->at, token->length);
    ptx_advance(&parser->lexer);
    return true;
}

bool ptx_type_of(const char *at, size_t length, ptx_class *ret_class, size_t *ret_bytes)
{
    static const struct {
        const char *name;
        ptx_class class;
        size_t bytes;
    } types[] = {
        {".pred", PTX_PRED, 1}, {".b8", PTX_B32, 1},   {".u8", PTX_B32, 1},  {".s8", PTX_B32, 1},
        {".b16", PTX_B32, 2},   {".u16", PTX_B32, 2},  {".s16", PTX_B32, 2}, {".f16", PTX_B32, 2},
        {".b32", PTX_B32, 4},   {".u32", PTX_B32, 4},  {".s32", PTX_B32, 4}, {".f32", PTX_B32, 4},
        {".f16x2", PTX_B32, 4}, {".bf16", PTX_B32, 2}, {".b64", PTX_B64, 8}, {".u64", PTX_B64, 8},
        {".s64", PTX_B64, 8},   {".f64", PTX_B64, 8},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i].name) == length && memcmp(types[i].name, at, length) == 0) {
            *ret_class = types[i].class;
            *ret_bytes = types[i].bytes;
            return true;
        }
    return false;
}

static bool take_type(ptx_parser *parser, size_t *ret_bytes)
{
    ptx_class class = PTX_B32;
    const ptx_token *token = &parser->lexer.token;
    if (!ptx_type_of(token->at, token->length, &class, ret_bytes))
        return ptx_fail(parser, "unknown type '%.*s'", (int)token->length, token->at);
    ptx_advance(&parser->lexer);
    return true;
}

/* Parses [.align n] .type name {[n]}, the common form of parameters and variables. */
static bool parse_declarator(ptx_parser *parser, ptx_variable *variable, size_t *ret_elem_bytes)
{
    int64_t number = 0;
    size_t bytes = 0;
    if (ptx_is(&parser->lexer, ".align")) {
        ptx_advance(&parser->lexer);
        if (!ptx_take_integer(parser, &number))
            return false;
        variable->align = (size_t)number;
    }
    if (!take_type(parser, &bytes) || !ptx_take_name(parser, &variable->name))
        return false;
    *ret_elem_bytes = bytes;
    if (variable->align < bytes)
        variable->align = bytes;
    variable->bytes = bytes;
    while (ptx_is(&parser->lexer, "[")) {
        ptx_advance(&parser->lexer);
        number = 0;
        if (!ptx_is(&parser->lexer, "]") && !ptx_take_integer(parser, &number))
            return false;
        if (number < 0 || number > 1 << 30)
            return ptx_fail(parser, "an array of %lld elements", (long long)number);
        variable->bytes *= (size_t)number;
        if (!ptx_expect(parser, "]"))
            return false;
    }
    return true;
}

static bool parse_initial(ptx_parser *parser, ptx_variable *variable, size_t elem_bytes)
{
    const bool braces = ptx_is(&parser->lexer, "{");
    if (braces)
        ptx_advance(&parser->lexer);
    variable->initial = sim_arena_get(&parser->module->arena, variable->bytes, 1);
    for (size_t at = 0;; at += elem_bytes) {
        int64_t value = 0;
        if (!ptx_take_integer(parser, &value))
            return false;
        if (at + elem_bytes > variable->bytes)
            return ptx_fail(parser, "more values than %s has elements", variable->name);
        memcpy(variable->initial + at, &value, elem_bytes); /* little-endian, like the device */
        if (!braces)
            return true;
        if (ptx_is(&parser->lexer, "}")) {
            ptx_advance(&parser->lexer);
            return true;
        }
        if (!ptx_expect(parser, ","))
            return false;
    }
}

static bool take_space(ptx_parser *parser, ptx_space *ret_space)
{
    static const struct {
        const char *name;
        ptx_space space;
    } spaces[] = {{".shared", PTX_SPACE_SHARED},
                  {".global", PTX_SPACE_GLOBAL},
                  {".const", PTX_SPACE_CONST},
                  {".local", PTX_SPACE_LOCAL}};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        if (ptx_is(&parser->lexer, spaces[i].name)) {
            *ret_space = spaces[i].space;
            ptx_advance(&parser->lexer);
            return true;
        }
    return ptx_fail(parser, "'%.*s' is not understood", (int)parser->lexer.token.length, parser->lexer.token.at);
}

static void add_variable(ptx_parser *parser, const ptx_variable *variable)
{
    ptx_module *module = parser->module;
    ptx_function *function = parser->function;
    ptx_variable **list = function != NULL ? &function->variables : &module->variables;
    size_t *count = function != NULL ? &function->variable_count : &module->variable_count;
    size_t *capacity = function != NULL ? &function->variable_capacity : &module->variable_capacity;
    *list = sim_arena_grow(&module->arena, *list, *count, capacity, sizeof **list);
    (*list)[(*count)++] = *variable;
}

bool ptx_parse_variable(ptx_parser *parser)
{
    ptx_variable variable = {0};
    size_t elem_bytes = 0;
    if (!take_space(parser, &variable.space) || !parse_declarator(parser, &variable, &elem_bytes))
        return false;
    if (ptx_is(&parser->lexer, "=")) {
        ptx_advance(&parser->lexer);
        if (!parse_initial(parser, &variable, elem_bytes))
            return false;
    }
    add_variable(parser, &variable);
    return ptx_expect(parser, ";");
}

static bool parse_parameters(ptx_parser *parser)
{
    ptx_function *function = parser->function;
    if (!ptx_expect(parser, "("))
        return false;
    while (!ptx_is(&parser->lexer, ")")) {
        ptx_variable variable = {.space = PTX_SPACE_PARAM};
        size_t elem_bytes = 0;
        if (!ptx_expect(parser, ".param") || !parse_declarator(parser, &variable, &elem_bytes))
            return false;
        const size_t align = variable.align == 0 ? 1 : variable.align;
        variable.offset = (function->param_bytes + align - 1) / align * align;
        function->param_bytes = variable.offset + variable.bytes;
        add_variable(parser, &variable);
        if (ptx_is(&parser->lexer, ","))
            ptx_advance(&parser->lexer);
    }
    return ptx_expect(parser, ")");
}

/* Parses .maxntid x[, y[, z]] and similar directives. */
static bool parse_bounds(ptx_parser *parser)
{
    while (!ptx_is(&parser->lexer, "{")) {
        const bool threads = ptx_is(&parser->lexer, ".maxntid") || ptx_is(&parser->lexer, ".reqntid");
        const bool blocks = ptx_is(&parser->lexer, ".minnctapersm");
        if (!threads && !blocks && !ptx_is(&parser->lexer, ".maxnreg"))
            return ptx_fail(parser, "'%.*s' is not understood", (int)parser->lexer.token.length,
                            parser->lexer.token.at);
        int64_t product = 1;
        do {
            int64_t value = 0;
            ptx_advance(&parser->lexer);
            if (!ptx_take_integer(parser, &value))
                return false;
            product *= value;
        } while (ptx_is(&parser->lexer, ","));
        if (threads)
            parser->function->max_threads = (unsigned)product;
        if (blocks)
            parser->function->min_blocks = (unsigned)product;
    }
    return true;
}

static bool parse_entry(ptx_parser *parser)
{
    ptx_module *module = parser->module;
    module->functions = sim_arena_grow(&module->arena, module->functions, module->function_count,
                                       &module->function_capacity, sizeof *module->functions);
    ptx_function *function = &module->functions[module->function_count++];
    *function = (ptx_function){0};
    parser->function = function;
    parser->location = -1;
    const bool ok = ptx_take_name(parser, &function->name) && parse_parameters(parser) && parse_bounds(parser) &&
                    ptx_parse_body(parser);
    parser->function = NULL;
    return ok;
}

static bool parse_file(ptx_parser *parser)
{
    ptx_module *module = parser->module;
    int64_t number = 0;
    ptx_advance(&parser->lexer);
    const int line = parser->lexer.token.line;
    if (!ptx_take_integer(parser, &number))
        return false;
    if (parser->lexer.token.kind != PTX_STRING)
        return ptx_fail(parser, "the name of a file is expected");
    module->files = sim_arena_grow(&module->arena, module->files, module->file_count, &module->file_capacity,
                                   sizeof *module->files);
    module->files[module->file_count++] =
        (ptx_file){(int)number, sim_arena_text(&module->arena, parser->lexer.token.at, parser->lexer.token.length)};
    while (parser->lexer.token.kind != PTX_END && parser->lexer.token.line == line)
        ptx_advance(&parser->lexer); /* size and time stamp */
    return true;
}

/* Skips debug information after the code: bytes between braces. */
static bool skip_section(ptx_parser *parser)
{
    while (parser->lexer.token.kind != PTX_END && !ptx_is(&parser->lexer, "}"))
        ptx_advance(&parser->lexer);
    return ptx_expect(parser, "}");
}

static bool parse_version(ptx_parser *parser)
{
    int major = 0, minor = 0;
    ptx_advance(&parser->lexer);
    if (sscanf(parser->lexer.token.at, "%d.%d", &major, &minor) != 2)
        return ptx_fail(parser, "a version is expected");
    parser->module->version = 10 * major + minor;
    ptx_advance(&parser->lexer);
    return true;
}

static bool parse_target(ptx_parser *parser)
{
    const int line = parser->lexer.token.line;
    ptx_advance(&parser->lexer);
    if (sscanf(parser->lexer.token.at, "sm_%d", &parser->module->target_sm) != 1)
        return ptx_fail(parser, "a target sm_NN is expected");
    parser->module->target_specific = memchr(parser->lexer.token.at, 'a', parser->lexer.token.length) != NULL;
    while (parser->lexer.token.line == line && parser->lexer.token.kind != PTX_END)
        ptx_advance(&parser->lexer);
    return true;
}

static bool parse_directive(ptx_parser *parser)
{
    ptx_lexer *lexer = &parser->lexer;
    if (ptx_is(lexer, ".version"))
        return parse_version(parser);
    if (ptx_is(lexer, ".target"))
        return parse_target(parser);
    if (ptx_is(lexer, ".file"))
        return parse_file(parser);
    if (ptx_is(lexer, ".loc"))
        return ptx_parse_location(parser);
    if (ptx_is(lexer, ".section"))
        return skip_section(parser);
    if (ptx_is(lexer, ".address_size")) {
        int64_t bits = 0;
        ptx_advance(lexer);
        return ptx_take_integer(parser, &bits) && (bits == 64 || ptx_fail(parser, "addresses of %d bits", (int)bits));
    }
    if (ptx_is(lexer, ".visible") || ptx_is(lexer, ".extern") || ptx_is(lexer, ".weak")) {
        ptx_advance(lexer);
        return true; /* linkage has no effect, because there is only one module */
    }
    if (ptx_is(lexer, ".entry")) {
        ptx_advance(lexer);
        return parse_entry(parser);
    }
    return ptx_parse_variable(parser);
}

bool ptx_parse(const char *text, ptx_module *module)
{
    *module = (ptx_module){0};
    ptx_parser parser = {.module = module, .location = -1};
    ptx_lexer_init(&parser.lexer, text);
    if (!ptx_is(&parser.lexer, ".version"))
        return ptx_fail(&parser, "PTX begins with .version");
    while (parser.lexer.token.kind != PTX_END)
        if (!parse_directive(&parser))
            return false;
    return module->target_sm > 0 || ptx_fail(&parser, "there is no .target");
}

void ptx_module_done(ptx_module *module)
{
    sim_arena_done(&module->arena);
    *module = (ptx_module){0};
}

const char *ptx_file_name(const ptx_module *module, int number)
{
    for (size_t i = 0; i < module->file_count; i++)
        if (module->files[i].number == number)
            return module->files[i].name;
    return "?";
}
