/*
 * A number must be well-formed. fa2 itself checks its value.
 */
#include "arguments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_number(const char *text, int32_t *ret_number)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (end == text || *end != '\0' || number < 0 || number > INT32_MAX)
        return -1;
    *ret_number = (int32_t)number;
    return 0;
}

/* Reads "LEFT,RIGHT". fa2 checks the numbers. */
static int read_window(const char *text, fa2_problem *problem)
{
    char *comma, *end;
    const long left = strtol(text, &comma, 10);
    if (comma == text || *comma != ',')
        return -1;
    const long right = strtol(comma + 1, &end, 10);
    if (end == comma + 1 || *end != '\0' || left < INT32_MIN || left > INT32_MAX || right < INT32_MIN ||
        right > INT32_MAX)
        return -1;
    problem->window = 1;
    problem->window_left = (int32_t)left;
    problem->window_right = (int32_t)right;
    return 0;
}

static int read_softcap(const char *text, fa2_problem *problem, float *ret_softcap)
{
    char *end;
    *ret_softcap = strtof(text, &end);
    problem->softcap = 1;
    return end == text || *end != '\0' ? -1 : 0;
}

/* value: the next argument, or NULL. */
static int read_option(const char *name, const char *value, arguments *ret)
{
    static const char *const names[] = {"--softcap", "--window", "--db"};
    int option = 0, status = 0;
    while (option < 3 && strcmp(name, names[option]) != 0)
        option++;
    if (option == 3) {
        fprintf(stderr, "attention: there is no option %s\n", name);
        return -1;
    }
    if (value == NULL) {
        fprintf(stderr, "attention: %s needs a value\n", name);
        return -1;
    }
    if (option == 0)
        status = read_softcap(value, &ret->problem, &ret->softcap);
    else if (option == 1)
        status = read_window(value, &ret->problem);
    else
        ret->database = value;
    if (status != 0)
        fprintf(stderr, "attention: %s cannot be \"%s\"\n", name, value);
    return status;
}

int read_arguments(int argc, char **argv, arguments *ret_arguments)
{
    int32_t numbers[5] = {2, 8, 1024, 64, 1}; /* B H S D causal */
    arguments all = {.problem = {.struct_bytes = sizeof(fa2_problem), .op = FA2_OP_FORWARD, .dtype = FA2_FP16}};
    fa2_problem *problem = &all.problem;
    int given = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--backward") == 0) {
            all.backward = 1;
        } else if (strcmp(argv[i], "--help") == 0) {
            ret_arguments->help = 1;
            return 0;
        } else if (strncmp(argv[i], "--", 2) == 0) {
            if (read_option(argv[i], argv[i + 1], &all) != 0) /* argv ends with NULL */
                return -1;
            i++;
        } else if (given == 5 || read_number(argv[i], &numbers[given++]) != 0) {
            return -1;
        }
    }
    if (given != 0 && given != 5)
        return -1;
    problem->batch = numbers[0];
    problem->heads_q = problem->heads_kv = numbers[1];
    problem->seq_q = problem->seq_k = numbers[2];
    problem->head_dim = numbers[3];
    problem->causal = numbers[4];
    *ret_arguments = all;
    return 0;
}
