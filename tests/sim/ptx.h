/*
 * PTX text parsed into a module of functions, variables and instructions. Names are resolved to registers, labels and
 * variables; opcodes stay text. program.h declares the compact form.
 *
 * It understands the PTX that NVRTC emits for kernels, and inline assembly with its scopes. Everything else is an error
 * with its line; only debug sections and pragmas are skipped. Strings and arrays live in the module's arena. One module
 * must not be used by two threads at once.
 */
#pragma once

#include <stdbool.h>
#include "arena.h"

/* ---- tokens ---- */

typedef enum ptx_token_kind {
    PTX_END,
    PTX_WORD, /* names, directives, opcodes, %registers, $labels */
    PTX_NUMBER,
    PTX_STRING, /* without the quotes */
    PTX_PUNCT   /* one character */
} ptx_token_kind;

typedef struct ptx_token {
    ptx_token_kind kind;
    const char *at;
    size_t length;
    int line;
} ptx_token;

typedef struct ptx_lexer {
    const char *next;
    int line;
    ptx_token token; /* the current one */
} ptx_lexer;

void ptx_lexer_init(ptx_lexer *lexer, const char *text);
void ptx_advance(ptx_lexer *lexer);
bool ptx_is(const ptx_lexer *lexer, const char *text); /* is the current token this text? */
bool ptx_starts(const ptx_lexer *lexer, char first);   /* is it a word that starts with this character? */

/* Reads the bits of a number token: integers in two's complement, 0f and 0d forms unchanged. Returns false if it is no
 * number. */
bool ptx_number(const ptx_token *token, bool negative, uint64_t *ret_bits);

/* ---- the module ---- */

typedef enum ptx_space {
    PTX_SPACE_GENERIC,
    PTX_SPACE_PARAM,
    PTX_SPACE_SHARED,
    PTX_SPACE_GLOBAL,
    PTX_SPACE_CONST,
    PTX_SPACE_LOCAL
} ptx_space;

typedef enum ptx_class { PTX_PRED, PTX_B32, PTX_B64 } ptx_class; /* 16-bit registers are B32 */

typedef struct ptx_variable {
    const char *name;
    ptx_space space;
    size_t align, bytes; /* bytes is 0 for dynamic shared memory */
    uint64_t offset;     /* in its space; global and const: set when the module is loaded */
    uint8_t *initial;    /* NULL: zeros */
} ptx_variable;

typedef enum ptx_arg_kind {
    PTX_ARG_REGISTER,
    PTX_ARG_IMMEDIATE,
    PTX_ARG_SYMBOL, /* a label, a variable or a special register */
    PTX_ARG_VECTOR,
    PTX_ARG_ADDRESS,
    PTX_ARG_SINK /* _ */
} ptx_arg_kind;

typedef struct ptx_arg {
    ptx_arg_kind kind;
    int reg;               /* the register, or the base of an address; -1: none */
    int second;            /* the q of p|q; -1: none */
    bool negated;          /* !p */
    uint64_t bits;         /* the immediate */
    int64_t offset;        /* the address's offset */
    const char *name;      /* the symbol, also as an address's base */
    struct ptx_arg *items; /* elements of a vector, or coordinates of an address */
    int item_count;
} ptx_arg;

enum { PTX_ARGS_MAX = 8 };

typedef struct ptx_instruction {
    const char *opcode;
    const char *text; /* as written, for messages */
    ptx_arg args[PTX_ARGS_MAX];
    int arg_count;
    int guard; /* register; -1: none */
    bool guard_negated;
    int line;     /* in the PTX text */
    int location; /* index into the module's locations; -1: unknown */
} ptx_instruction;

/* Where an instruction comes from: the innermost place, then the places where that was inlined. */
typedef struct ptx_location {
    int file, line, column;
    int outer; /* index into the locations; -1: none */
} ptx_location;

/* A label. It is known inside the braces that contain it. */
typedef struct ptx_label {
    const char *name;
    int instruction; /* the one after it */
    int first, last; /* the instructions in the braces */
} ptx_label;

typedef struct ptx_function {
    const char *name;
    size_t param_bytes;
    unsigned max_threads; /* 0: not specified */
    unsigned min_blocks;  /* per SM; 0: not specified */
    ptx_class *registers;
    size_t register_count, register_capacity;
    ptx_instruction *instructions;
    size_t instruction_count, instruction_capacity;
    ptx_label *labels;
    size_t label_count, label_capacity;
    ptx_variable *variables; /* parameters, shared and local */
    size_t variable_count, variable_capacity;
} ptx_function;

typedef struct ptx_file {
    int number;
    const char *name;
} ptx_file;

typedef struct ptx_module {
    sim_arena arena;
    int target_sm;        /* 86 for sm_86 */
    bool target_specific; /* only for that SM: sm_90a */
    int version;          /* 90 for 9.0 */
    ptx_variable *variables;
    size_t variable_count, variable_capacity;
    ptx_function *functions;
    size_t function_count, function_capacity;
    ptx_location *locations;
    size_t location_count, location_capacity;
    ptx_file *files;
    size_t file_count, file_capacity;
    char message[512]; /* of the error */
} ptx_module;

/* Returns false on an error; module->message names it and its line. Call ptx_module_done in both cases. */
bool ptx_parse(const char *text, ptx_module *module);
void ptx_module_done(ptx_module *module);

const char *ptx_file_name(const ptx_module *module, int number); /* "?" if unknown */

/* ---- shared by the parser's files ---- */

typedef struct ptx_name {
    const char *text;
    int count; /* -1: the name itself; n: text0 ... text(n-1) */
    int first; /* number of its (first) register */
} ptx_name;

typedef struct ptx_parser {
    ptx_lexer lexer;
    ptx_module *module;
    ptx_function *function; /* the one being parsed; NULL outside */
    ptx_name *names;        /* registers in scope, innermost last */
    size_t name_count, name_capacity;
    ptx_arg *items; /* elements of the braces being read */
    size_t item_count, item_capacity;
    int location;
} ptx_parser;

/* Sets the message unless there is one. Always returns false. */
bool ptx_fail(ptx_parser *parser, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool ptx_expect(ptx_parser *parser, const char *text); /* checks the token and steps over it */
bool ptx_take_integer(ptx_parser *parser, int64_t *ret_value);
bool ptx_take_name(ptx_parser *parser, const char **ret_name);
bool ptx_parse_variable(ptx_parser *parser); /* at .shared, .global, .const, .local or .extern ... */
bool ptx_parse_body(ptx_parser *parser);     /* at { */
bool ptx_parse_location(ptx_parser *parser); /* at .loc */
bool ptx_type_of(const char *at, size_t length, ptx_class *ret_class, size_t *ret_bytes);
