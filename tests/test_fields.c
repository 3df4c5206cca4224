/*
 * Every field of problem.def through every layer: check and class, texts, shape files, the database, exports, the
 * generator, the planner. It is built twice: with problem.def, and with a copy that has one more compile-time field,
 * `extra`. Nothing else knows this field, so the generator must refuse it.
 */
#include "cache/content/report.h"
#include "cache_fixture.h"
#include "fake_cuda.h"
#include "runtime/base/alloc.h"
#include "runtime/lua/generator.h"
#include "tuner/commands/commands.h"
#include "tuner/input/shapes.h"

static const fa2_problem base_problem = {.struct_bytes = sizeof(fa2_problem),
                                         .batch = 2,
                                         .heads_q = 4,
                                         .heads_kv = 2,
                                         .seq_q = 64,
                                         .seq_k = 128,
                                         .head_dim = 64};

/* Sets all fields that this one needs, but not the field itself. */
static void ask_for(fa2_problem *problem, int field)
{
    for (int needs = fa2i_fields[field].needs; needs >= 0; needs = fa2i_fields[needs].needs)
        fa2i_field_set(problem, needs, 1);
}

/* Gives fields their smallest values if they may not be 0 now. */
static void put_least(fa2_problem *problem)
{
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        const fa2i_field *f = &fa2i_fields[field];
        if (f->needs >= 0 && fa2i_field_get(problem, f->needs) != 0 && f->least > 0 &&
            fa2i_field_get(problem, field) == 0)
            fa2i_field_set(problem, field, f->least);
    }
}

/* Returns the problem to compare with: the base problem of the field's first operation, with the fields that it needs.
 * */
static fa2_problem counterpart(int field)
{
    const fa2i_field *f = &fa2i_fields[field];
    fa2_problem problem = base_problem;
    while ((f->ops >> (int)problem.op & 1u) == 0)
        problem.op = (fa2_op)(problem.op + 1);
    ask_for(&problem, field);
    put_least(&problem);
    return problem;
}

/* Makes the same problem with another value of the field. Returns false if the field has only one value. */
static bool differ_in(int field, fa2_problem *ret_problem)
{
    const fa2i_field *f = &fa2i_fields[field];
    fa2_problem problem = counterpart(field);
    const int32_t value = fa2i_field_get(&problem, field);
    fa2i_field_set(&problem, field, value + f->step);
    put_least(&problem);
    if (fa2i_problem_check(&problem) != FA2_OK)
        fa2i_field_set(&problem, field, 2 * value); /* because heads must be multiples of each other */
    *ret_problem = problem;
    return fa2i_problem_check(&problem) == FA2_OK && fa2i_field_get(&problem, field) != value;
}

static bool is_kind(int field)
{
    return fa2i_fields[field].role == FA2I_ROLE_KIND;
}

static bool is_same(const fa2_problem *a, const fa2_problem *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static void check_class(int field, const fa2_problem *a, const fa2_problem *b)
{
    char of_a[FA2I_CLASS_CHARS], of_b[FA2I_CLASS_CHARS];
    fa2i_problem_class(a, of_a);
    fa2i_problem_class(b, of_b);
    CHECK_EQ(strcmp(of_a, of_b) != 0, is_kind(field));
}

/* Values below the smallest and above the largest are refused. */
static void check_limits(int field, const fa2_problem *problem)
{
    const fa2i_field *f = &fa2i_fields[field];
    fa2_problem bad = *problem;
    fa2i_field_set(&bad, field, f->least - 1);
    CHECK_EQ(fa2i_problem_check(&bad), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), f->name);
    if (f->most == INT32_MAX)
        return;
    fa2i_field_set(&bad, field, f->most + 1);
    CHECK_EQ(fa2i_problem_check(&bad), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), f->name);
}

/* ---- texts ---- */

/* The text for --shape. */
static void check_text(const fa2_problem *problem)
{
    fa2i_shapes shapes = {0};
    CHECK_EQ(fa2i_shapes_add_text(&shapes, fa2i_problem_argument(problem).text), FA2_OK);
    CHECK(shapes.count == 1 && is_same(&shapes.items[0], problem));
    fa2i_shapes_done(&shapes);
}

static void write_value(FILE *file, const fa2_problem *problem, int field)
{
    const int32_t value = fa2i_field_get(problem, field);
    const char *word = fa2i_field_word(field, value);
    if (word != NULL)
        fprintf(file, "%s", word);
    else
        fprintf(file, "%d", (int)value);
}

/* A shape file with a column for each shown field of the problem. */
static void check_file(const fa2_problem *problem)
{
    fixture f;
    fa2i_shapes shapes = {0};
    fixture_begin(&f);
    for (int line = 0; line < 2; line++) {
        FILE *file = fopen(f.path, line == 0 ? "w" : "a");
        const char *comma = "";
        CHECK(file != NULL);
        for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
            if (!fa2i_field_is_shown(problem, field))
                continue;
            fputs(comma, file);
            comma = ",";
            if (line == 0)
                fputs(fa2i_fields[field].name, file);
            else
                write_value(file, problem, field);
        }
        fputs("\n", file);
        fclose(file);
    }
    CHECK_EQ(fa2i_shapes_add_file(&shapes, f.path), FA2_OK);
    CHECK(shapes.count == 1 && is_same(&shapes.items[0], problem));
    fa2i_shapes_done(&shapes);
    fixture_end(&f);
}

/* ---- the database ---- */

/* Returns how many choices there are for a problem. */
static size_t count_choices(fa2i_cache *cache, const fa2_problem *problem)
{
    fa2i_choice *choices = NULL;
    size_t count = 0;
    CHECK_EQ(fa2i_cache_choices(cache, 86, problem, ABI, &choices, &count), FA2_OK);
    for (size_t i = 0; i < count; i++) {
        char wanted[FA2I_CLASS_CHARS], found[FA2I_CLASS_CHARS];
        fa2i_problem_class(problem, wanted);
        fa2i_problem_class(&choices[i].problem, found);
        CHECK_STR(found, wanted);
    }
    fa2i_free(choices);
    return count;
}

static void put_winner(fa2i_cache *cache, const fa2_problem *problem, int64_t *ret_problem)
{
    const fa2i_card card = sample_card();
    fa2i_session session = {.driver = 13000, .generator = "0123456789abcdef", .origin = "tune"};
    fa2i_kernel kernel = sample_kernel(1);
    int64_t session_id = 0;
    fa2i_problem_class(problem, kernel.variant.class_key);
    const fa2i_winner winner = {.kernel = kernel.key, .measured = true, .median_us = 10};
    CHECK_EQ(fa2i_cache_device(cache, &card, true, &session.device), FA2_OK);
    CHECK_EQ(fa2i_cache_session_begin(cache, &session, &session_id), FA2_OK);
    CHECK_EQ(fa2i_cache_problem(cache, problem, ret_problem), FA2_OK);
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
    CHECK_EQ(fa2i_cache_put_winner(cache, session_id, session.device, *ret_problem, &winner), FA2_OK);
}

/* A winner of problem a is not b's if their classes differ. The problems' rows differ in any case. */
static void check_rows(int field, const fa2_problem *a, const fa2_problem *b)
{
    fixture f;
    int64_t id = 0, other = 0;
    fixture_begin(&f);
    fa2i_cache *cache = fixture_open(f.path);
    put_winner(cache, a, &id);
    CHECK_EQ(fa2i_cache_problem(cache, b, &other), FA2_OK);
    CHECK(id != other);
    CHECK_EQ(count_choices(cache, a), 1);
    CHECK_EQ(count_choices(cache, b), is_kind(field) ? 0 : 1);
    fa2i_cache_close(cache);
    fixture_end(&f);
}

static int note_value(void *user, int columns, const char *const *names, const char *const *values)
{
    const fa2_problem *problem = user;
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        const int32_t value = fa2i_field_get(problem, field);
        const char *word = fa2i_field_word(field, value);
        char number[16];
        int column = 0;
        snprintf(number, sizeof number, "%d", (int)value);
        while (column < columns && strcmp(names[column], fa2i_fields[field].name) != 0)
            column++;
        CHECK(column < columns);
        if (column < columns)
            CHECK_STR(values[column], word != NULL ? word : number);
    }
    return 0;
}

/* The view of winners has all fields, and an export carries them to another database. */
static void check_export(const fa2_problem *problem)
{
    fixture from, to;
    int64_t id = 0, there = 0;
    fa2_problem copy = *problem;
    FILE *file = tmpfile();
    fixture_begin(&from);
    fixture_begin(&to);
    fa2i_cache *source = fixture_open(from.path), *target = fixture_open(to.path);
    put_winner(source, problem, &id);
    CHECK_EQ(fa2i_cache_list_winners(source, NULL, note_value, &copy), FA2_OK);
    CHECK_EQ(fa2i_cache_export(source, file, NULL), FA2_OK);
    rewind(file);
    CHECK_EQ(fa2i_cache_import(target, file, "export", NULL, NULL, NULL), FA2_OK);
    CHECK_EQ(fa2i_cache_list_winners(target, NULL, note_value, &copy), FA2_OK);
    CHECK_EQ(fa2i_cache_problem(target, problem, &there), FA2_OK);
    CHECK_EQ(there, 1); /* the winner arrived */
    fclose(file);
    fa2i_cache_close(source);
    fa2i_cache_close(target);
    fixture_end(&from);
    fixture_end(&to);
}

/* fa2-tune list has a column for the field. */
static void check_list(int field, const fa2_problem *problem)
{
    static char text[20000];
    char path[128];
    int64_t id = 0;
    fixture f;
    fixture_begin(&f);
    fa2i_cache *cache = fixture_open(f.path);
    put_winner(cache, problem, &id);
    fa2i_cache_close(cache);
    snprintf(path, sizeof path, "%s/list.txt", f.folder);
    char *argv[] = {"list", "--db", f.path, NULL};
    fflush(stdout);
    const int saved = dup(STDOUT_FILENO);
    CHECK(freopen(path, "w", stdout) != NULL);
    CHECK_EQ(fa2i_cmd_list(3, argv), FA2I_EXIT_OK);
    fflush(stdout);
    CHECK(dup2(saved, STDOUT_FILENO) >= 0);
    close(saved);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    CHECK_CONTAINS(text, fa2i_fields[field].key);
    fixture_end(&f);
}

/* ---- the generator and the planner ---- */

/* Different classes share no variant. The generator refuses an unknown class by name. Returns true if it knows it. */
static bool check_variants(int field, const fa2_problem *a, const fa2_problem *b)
{
    const fa2i_card card = sample_card();
    fa2i_generator *generator = NULL;
    fa2i_variant *of_a = NULL, *of_b = NULL;
    size_t count_a = 0, count_b = 0;
    char class_key[FA2I_CLASS_CHARS];
    fa2i_problem_class(b, class_key);
    CHECK_EQ(fa2i_generator_create(&generator), FA2_OK);
    CHECK_EQ(fa2i_generator_candidates(generator, a, &card, &of_a, &count_a), FA2_OK);
    const fa2_status st = fa2i_generator_candidates(generator, b, &card, &of_b, &count_b);
    CHECK(st == FA2_OK || st == FA2_E_UNSUPPORTED);
    if (st != FA2_OK)
        CHECK_CONTAINS(fa2_last_message(), fa2i_fields[field].name);
    for (size_t i = 0; i < count_b; i++) {
        CHECK_STR(of_b[i].class_key, class_key);
        for (size_t j = 0; j < count_a; j++)
            CHECK(strcmp(of_b[i].text, of_a[j].text) != 0);
    }
    fa2i_free(of_a);
    fa2i_free(of_b);
    fa2i_generator_destroy(generator);
    return st == FA2_OK;
}

/* The planner gives b a kernel of its own class, or none, although a has a winner. */
static void check_plan(int field, const fa2_problem *a, const fa2_problem *b, bool is_known)
{
    fixture f;
    int64_t id = 0;
    fa2_context *context = NULL;
    fa2_explanation e = {.struct_bytes = sizeof e, .rule = (fa2_rule)99};
    fixture_begin(&f);
    fa2i_cache *cache = fixture_open(f.path);
    put_winner(cache, a, &id);
    fa2i_cache_close(cache);
    fake_install();
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = f.path, .read_only = 1};
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    if (is_known) {
        CHECK_EQ(fa2_explain(context, b, &e), FA2_OK);
        CHECK_EQ(e.rule, FA2_RULE_DEFAULT);
    } else {
        CHECK_EQ(fa2_prepare(context, b), FA2_E_UNSUPPORTED);
        CHECK_CONTAINS(fa2_last_message(), fa2i_fields[field].name);
        CHECK_EQ(fake.compile_count, 0);
    }
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
    fake_uninstall();
    fixture_end(&f);
}

static void check_field(int field)
{
    fa2_problem other;
    const fa2_problem one = counterpart(field);
    if (!differ_in(field, &other))
        return;
    check_class(field, &one, &other);
    check_limits(field, &other);
    check_text(&other);
    check_file(&other);
    check_rows(field, &one, &other);
    check_export(&other);
    check_list(field, &other);
    if (is_kind(field)) {
        const bool is_known = check_variants(field, &one, &other);
        CHECK(!is_known || strcmp(fa2i_fields[field].name, "extra") != 0);
        check_plan(field, &one, &other, is_known);
    }
}

int main(void)
{
    fa2_problem ignored;
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        if (!differ_in(field, &ignored)) /* the only operation */
            CHECK_EQ(fa2i_fields[field].least, fa2i_fields[field].most);
        check_field(field);
    }
    return check_done();
}
