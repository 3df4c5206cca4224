/*
 * Tokens of PTX. A word includes dots, $, %, _ and "::" (as in L2::128B), so that opcodes, directives and registers are
 * one token each. The colon of a label is a separate token.
 */
#include "ptx.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool starts_word(char c)
{
    return isalpha((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

static bool continues_word(const char *at)
{
    return starts_word(*at) || isdigit((unsigned char)*at);
}

static void skip_blanks(ptx_lexer *lexer)
{
    for (;;) {
        const char *at = lexer->next;
        if (at[0] == '/' && at[1] == '/') {
            lexer->next += strcspn(at, "\n");
        } else if (at[0] == '/' && at[1] == '*') {
            const char *end = strstr(at + 2, "*/");
            const char *stop = end == NULL ? at + strlen(at) : end + 2;
            for (; lexer->next < stop; lexer->next++)
                lexer->line += *lexer->next == '\n';
        } else if (isspace((unsigned char)*at)) {
            lexer->line += *at == '\n';
            lexer->next++;
        } else {
            return;
        }
    }
}

static size_t word_length(const char *at)
{
    const char *end = at;
    for (;;) {
        if (continues_word(end))
            end++;
        else if (end[0] == ':' && end[1] == ':' && isalnum((unsigned char)end[2]))
            end += 2;
        else
            return (size_t)(end - at);
    }
}

void ptx_advance(ptx_lexer *lexer)
{
    skip_blanks(lexer);
    ptx_token *token = &lexer->token;
    const char *at = lexer->next;
    *token = (ptx_token){PTX_PUNCT, at, 1, lexer->line};
    if (*at == '\0') {
        token->kind = PTX_END;
        token->length = 0;
    } else if (isdigit((unsigned char)*at)) {
        token->kind = PTX_NUMBER;
        while (isalnum((unsigned char)at[token->length]) || at[token->length] == '.')
            token->length++;
    } else if (starts_word(*at)) {
        token->kind = PTX_WORD;
        token->length = word_length(at);
    } else if (*at == '"') {
        token->kind = PTX_STRING;
        token->at = at + 1;
        token->length = strcspn(at + 1, "\"\n");
        lexer->next = at + 1 + token->length + (at[1 + token->length] == '"');
        return;
    }
    lexer->next = at + token->length;
}

void ptx_lexer_init(ptx_lexer *lexer, const char *text)
{
    *lexer = (ptx_lexer){.next = text, .line = 1};
    ptx_advance(lexer);
}

bool ptx_is(const ptx_lexer *lexer, const char *text)
{
    const ptx_token *token = &lexer->token;
    return (token->kind == PTX_WORD || token->kind == PTX_PUNCT) && token->length == strlen(text) &&
           memcmp(token->at, text, token->length) == 0;
}

bool ptx_starts(const ptx_lexer *lexer, char first)
{
    return lexer->token.kind == PTX_WORD && lexer->token.at[0] == first;
}

/* 0f3F800000 and 0d3FF0000000000000 */
static bool hexadecimal_float(const char *text, size_t length, uint64_t *ret_bits)
{
    const char kind = (char)tolower((unsigned char)text[1]);
    if (text[0] != '0' || (kind != 'f' && kind != 'd') || length != (kind == 'f' ? 10u : 18u))
        return false;
    char *end = NULL;
    *ret_bits = strtoull(text + 2, &end, 16);
    return end == text + length;
}

bool ptx_number(const ptx_token *token, bool negative, uint64_t *ret_bits)
{
    char text[32];
    if (token->kind != PTX_NUMBER || token->length >= sizeof text)
        return false;
    memcpy(text, token->at, token->length);
    text[token->length] = '\0';
    if (!negative && hexadecimal_float(text, token->length, ret_bits))
        return true;
    char *end = NULL;
    const uint64_t value = strtoull(text, &end, 0);
    if (*end == 'U')
        end++;
    *ret_bits = negative ? 0 - value : value;
    return *end == '\0';
}
