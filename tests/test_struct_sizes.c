/*
 * Structs of programs that were built with another version of fa2.h: older programs, newer ones, and wrong sizes.
 */
#include <stddef.h>
#include <stdlib.h>
#include "check.h"
#include "fake_call.h"
#include "fake_cuda.h"
#include "older_program.h"
#include "tuned_database.h"

static fa2_context *context;

/* Each function that reads the struct, with a struct at this address. */

static fa2_status with_config(const void *config)
{
    fa2_context *made = NULL;
    const fa2_status st = fa2_context_create(config, &made);
    CHECK((st == FA2_OK) == (made != NULL));
    fa2_context_destroy(made);
    return st;
}

static fa2_status with_problem(const void *problem)
{
    fa2_explanation e = {.struct_bytes = sizeof e};
    size_t bytes = 0;
    const fa2_status st = fa2_prepare(context, problem);
    CHECK_EQ(fa2_workspace_size(context, problem, &bytes), st);
    CHECK_EQ(fa2_explain(context, problem, &e), st);
    CHECK_EQ(fake_call(context, problem, 1024, NULL), st);
    return st;
}

static fa2_status with_mask_problem(const void *problem)
{
    static uint8_t mask[2 * 8 * 512 * 512];
    return fa2_dropout_mask(problem, &(fa2_dropout){.p = 0.5F}, mask);
}

static fa2_status with_forward_args(const void *args)
{
    const fa2_problem problem = tuned_problem(1, 512);
    return fa2_forward(context, &problem, args, NULL);
}

static fa2_status with_backward_args(const void *args)
{
    fa2_problem problem = tuned_problem(1, 512);
    problem.op = FA2_OP_BACKWARD;
    return fa2_backward(context, &problem, args, NULL);
}

static fa2_status with_merge_args(const void *args)
{
    fa2_problem problem = tuned_problem(1, 512);
    problem.op = FA2_OP_MERGE;
    problem.causal = 0;
    problem.heads_kv = problem.heads_q;
    return fa2_merge(context, &problem, args, NULL);
}

static fa2_status with_explanation(const void *explanation)
{
    const fa2_problem problem = tuned_problem(1, 512);
    return fa2_explain(context, &problem, (void *)(uintptr_t)explanation);
}

typedef struct struct_case {
    const char *name, *type;
    size_t least, bytes;
    fa2_status (*with)(const void *given);
    bool is_written;
} struct_case;

static const struct_case structs[] = {
    {"config", "fa2_config", offsetof(fa2_config, arch), sizeof(fa2_config), with_config, false},
    {"problem", "fa2_problem", offsetof(fa2_problem, softcap), sizeof(fa2_problem), with_problem, false},
    {"problem", "fa2_problem", offsetof(fa2_problem, softcap), sizeof(fa2_problem), with_mask_problem, false},
    {"args", "fa2_forward_args", offsetof(fa2_forward_args, softcap), sizeof(fa2_forward_args), with_forward_args,
     false},
    {"args", "fa2_backward_args", offsetof(fa2_backward_args, softcap), sizeof(fa2_backward_args), with_backward_args,
     false},
    {"args", "fa2_merge_args", offsetof(fa2_merge_args, workspace), sizeof(fa2_merge_args), with_merge_args, false},
    {"explanation", "fa2_explanation", offsetof(fa2_explanation, tuned_problem), sizeof(fa2_explanation),
     with_explanation, true},
};
enum { STRUCTS = sizeof structs / sizeof *structs };

/* Returns a struct of this size on the heap, so that ASan sees a read past its end. The caller frees it. */
static char *struct_of(const struct_case *s, size_t struct_bytes, size_t room)
{
    const fa2_problem problem = tuned_problem(1, 512);
    char *given = calloc(1, room);
    CHECK(given != NULL);
    if (strcmp(s->name, "problem") == 0)
        memcpy(given, &problem, room < sizeof problem ? room : sizeof problem);
    memcpy(given, &struct_bytes, sizeof struct_bytes);
    return given;
}

static void test_wrong_sizes(const struct_case *s)
{
    const size_t wrong[] = {0, 1, s->least - 1, s->bytes + 1025, 0xdeadbeef, SIZE_MAX};
    char expected[160];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *given = struct_of(s, wrong[i], sizeof(size_t));
        CHECK_EQ(s->with(given), FA2_E_INVALID);
        snprintf(expected, sizeof expected,
                 "%s.struct_bytes is %zu; it must be sizeof(%s), which is %zu in this version", s->name, wrong[i],
                 s->type, s->bytes);
        CHECK_STR(fa2_last_message(), expected);
        free(given);
    }
}

/* A program with more members than this library knows. Their values are not ignored. */
static void test_newer(const struct_case *s)
{
    const size_t bytes = s->bytes + 1024;
    char *given = struct_of(s, bytes, bytes), *whole = struct_of(s, s->bytes, s->bytes), expected[160];
    const fa2_status today = s->with(whole);
    CHECK(today == FA2_OK || strstr(fa2_last_message(), "struct_bytes") == NULL);
    CHECK_EQ(s->with(given), today);
    free(whole);
    if (!s->is_written) {
        given[bytes - 1] = 1;
        snprintf(expected, sizeof expected,
                 "%s has a member at byte %zu that is not 0 and that this version (0.2.0) does not know", s->name,
                 bytes - 1);
        CHECK_EQ(s->with(given), FA2_E_INVALID);
        CHECK_STR(fa2_last_message(), expected);
    }
    free(given);
}

/* The shortest valid struct: missing members are 0. */
static void test_shortest(const struct_case *s)
{
    char *given = struct_of(s, s->least, s->least), *whole = struct_of(s, s->bytes, s->bytes);
    CHECK_EQ(s->with(given), s->with(whole));
    free(given);
    free(whole);
}

/* Structs of different sizes describe the same problem: it is prepared once. */
static void test_same_problem(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    struct {
        fa2_problem problem;
        char newer[16];
    } longer = {.problem = problem};
    longer.problem.struct_bytes = sizeof longer;
    fa2_problem shorter = problem;
    shorter.struct_bytes = offsetof(fa2_problem, softcap);
    CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
    const long compiled = fake.compile_count;
    fake.trace[0] = '\0';
    CHECK_EQ(fa2_prepare(context, &longer.problem), FA2_OK);
    CHECK_EQ(fa2_prepare(context, &shorter), FA2_OK);
    CHECK_EQ(fake.compile_count, compiled);
    CHECK_STR(fake.trace, "");
}

static void test_older_program(void)
{
    older_sizes sizes = {0};
    CHECK_EQ(older_program(&sizes), 0);
    CHECK(sizes.config < sizeof(fa2_config));
    CHECK(sizes.forward_args < sizeof(fa2_forward_args));
    CHECK(sizes.backward_args < sizeof(fa2_backward_args));
    CHECK(sizes.explanation < sizeof(fa2_explanation));
}

int main(void)
{
    const fa2_config config = {.struct_bytes = sizeof config, .database = ""};
    fake_install();
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    for (size_t i = 0; i < STRUCTS; i++) {
        test_wrong_sizes(&structs[i]);
        test_newer(&structs[i]);
        test_shortest(&structs[i]);
    }
    test_same_problem();
    fa2_context_destroy(context);
    test_older_program();
    CHECK_EQ(fake_live(), 0);
    return check_done();
}
