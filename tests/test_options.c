/*
 * The option parser: forms, accumulation, the options of each command, and messages about wrong ones.
 */
#include "check.h"
#include "runtime/base/status.h"
#include "tuner/commands/commands.h"
#include "tuner/commands/filter_options.h"

enum { ALL = 255, WORDS_MAX = 32 };

/* Parses a command line given as one text, split at spaces. "build" is the command. */
static fa2_status parse(const char *line, int accepted, fa2i_options *ret_options)
{
    static char copy[512];
    char *argv[WORDS_MAX] = {0};
    int argc = 0;
    snprintf(copy, sizeof copy, "build %s", line);
    for (char *word = copy; word != NULL && *word != '\0' && argc < WORDS_MAX;) {
        char *space = strchr(word, ' ');
        argv[argc++] = word;
        if (space != NULL)
            *space++ = '\0';
        word = space;
    }
    return fa2i_options_parse(argc, argv, accepted, ret_options);
}

static void test_values(void)
{
    fa2i_options o = {0};
    CHECK_EQ(parse("--arch sm_86,sm_80 --db=a.db --jobs 3 --budget=2.5 --json --device 1 "
                   "--shape Hq=1,Sq=8,D=8 --arch sm_100 --arch sm_86 file.jsonl",
                   ALL, &o),
             FA2_OK);
    CHECK_EQ(o.arch_count, 3);
    CHECK_EQ(o.archs[0], 86);
    CHECK_EQ(o.archs[1], 80);
    CHECK_EQ(o.archs[2], 100);
    CHECK_STR(o.db, "a.db");
    CHECK_STR(o.positional, "file.jsonl");
    CHECK_EQ(o.jobs, 3);
    CHECK_EQ(o.device, 1);
    CHECK(o.budget_s > 2.49 && o.budget_s < 2.51);
    CHECK(o.json);
    CHECK_EQ(o.shapes.count, 1);
    fa2i_options_done(&o);
}

static void test_defaults(void)
{
    fa2i_options o = {.device = 7};
    CHECK_EQ(parse("", FA2I_OPT_DB | FA2I_OPT_SHAPES, &o), FA2_OK);
    CHECK_EQ(o.device, -1);
    CHECK(o.db == NULL && o.positional == NULL && !o.json);
    CHECK_EQ(o.shapes.count, 0);
    fa2i_options_done(&o);
    /* Commands that process problems get the seeds by default. */
    CHECK_EQ(parse("", FA2I_OPT_JOBS | FA2I_OPT_SHAPES, &o), FA2_OK);
    CHECK(o.shapes.count >= 15);
    fa2i_options_done(&o);
    CHECK_EQ(parse("-", FA2I_OPT_FILE, &o), FA2_OK);
    CHECK_STR(o.positional, "-");
    fa2i_options_done(&o);
}

static void test_shapes_accumulate(void)
{
    fa2i_options o = {0};
    CHECK_EQ(parse("--shape Hq=3,Sq=40,D=8 --preset quick --shape Hq=3,Sq=41,D=8 "
                   "--shape Hq=3,Sq=40,D=8",
                   ALL & ~FA2I_OPT_FILE, &o),
             FA2_OK);
    CHECK_EQ(o.shapes.count, 13); /* the preset's rows forward and backward, decoding forward */
    CHECK_EQ(o.shapes.items[0].seq_q, 40);
    CHECK_EQ(o.shapes.items[12].seq_q, 41);
    fa2i_options_done(&o);
}

/* Shapes apply to the operations of --op, in their order. */
static void test_ops(void)
{
    const int accepted = ALL & ~FA2I_OPT_FILE;
    fa2i_options o = {0};
    CHECK_EQ(parse("--shape Hq=3,Sq=40,D=8 --shape op=backward,Hq=3,Sq=40,D=8", accepted, &o), FA2_OK);
    CHECK(o.shapes.count == 2 && o.shapes.items[0].op == FA2_OP_FORWARD && o.shapes.items[1].op == FA2_OP_BACKWARD);
    fa2i_options_done(&o);
    CHECK_EQ(parse("--op backward --shape Hq=3,Sq=40,D=8", accepted, &o), FA2_OK);
    CHECK(o.shapes.count == 1 && o.shapes.items[0].op == FA2_OP_BACKWARD);
    fa2i_options_done(&o);
    CHECK_EQ(parse("--shape Hq=3,Sq=40,D=8 --op all --shape op=backward,Hq=3,Sq=41,D=8", accepted, &o), FA2_OK);
    CHECK_EQ(o.shapes.count, 4);
    for (size_t i = 0; i < o.shapes.count; i++)
        CHECK(o.shapes.items[i].op == (fa2_op)(i % 2) && o.shapes.items[i].seq_q == 40 + (int)i / 2);
    fa2i_options_done(&o);
    /* Without shapes: the preset, for both operations unless --op names one. */
    CHECK_EQ(parse("", accepted, &o), FA2_OK);
    CHECK(o.shapes.count > 2 && o.shapes.items[1].op == FA2_OP_BACKWARD);
    fa2i_options_done(&o);
    CHECK_EQ(parse("--op forward --preset quick", accepted, &o), FA2_OK);
    CHECK_EQ(o.shapes.count, 6);
    for (size_t i = 0; i < o.shapes.count; i++)
        CHECK_EQ(o.shapes.items[i].op, FA2_OP_FORWARD);
    fa2i_options_done(&o);
}

static void check_refused(const char *line, int accepted, const char *message)
{
    fa2i_options o = {.jobs = 77};
    CHECK_EQ(parse(line, accepted, &o), FA2_E_INVALID);
    CHECK_STR(fa2_last_message(), message);
    CHECK_EQ(o.jobs, 77); /* untouched */
}

/* --op and the op= of a shape follow one rule for tuning, for filters, and for show, which has both. */
static void test_contradictions(void)
{
    static const char message[] = "--op forward contradicts --shape, which says op=backward; leave out one of them";
    static const int accepted[] = {FA2I_OPT_SHAPES, FA2I_OPT_FILTER, FA2I_OPT_SHAPES | FA2I_OPT_FILTER_SHOWN};
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        fa2i_options o = {0};
        check_refused("--op forward --shape op=backward,Hq=1,Sq=8,D=8", accepted[i], message);
        check_refused("--shape op=backward,Hq=1,Sq=8,D=8 --op forward", accepted[i], message);
        CHECK_EQ(parse("--op backward --shape op=backward,Hq=1,Sq=8,D=8", accepted[i], &o), FA2_OK);
        fa2i_options_done(&o);
        CHECK_EQ(parse("--op all --shape op=backward,Hq=1,Sq=8,D=8", accepted[i], &o), FA2_OK);
        fa2i_options_done(&o);
    }
    check_refused("--op forward --shape op=backward,D=8", FA2I_OPT_SHAPES | FA2I_OPT_FILTER_SHOWN, message);
}

/* --op and the column op: rows with another operation are left out, wherever --op stands. Rows without one get --op's.
 * */
static void test_ops_of_files(void)
{
    static const char named[] = "op_named.csv", unnamed[] = "op_unnamed.csv";
    static const char *const rows[] = {"op,batch,heads_q,heads_kv,seq_q,seq_k,head_dim,dtype,causal\n"
                                       "forward,1,2,2,48,48,16,fp16,0\nbackward,1,2,2,48,48,16,fp16,0\n"
                                       "forward,1,2,2,49,49,16,fp16,0\n,1,2,2,50,50,16,fp16,0\n",
                                       "batch,heads_q,heads_kv,seq_q,seq_k,head_dim,dtype,causal\n"
                                       "1,2,2,48,48,16,fp16,0\n"};
    fa2i_options o = {0};
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(i == 0 ? named : unnamed, "w");
        CHECK(file != NULL && fputs(rows[i], file) >= 0 && fclose(file) == 0);
    }
    CHECK_EQ(parse("--shapes op_named.csv --op backward", FA2I_OPT_SHAPES, &o), FA2_OK);
    CHECK(o.shapes.count == 2 && o.shapes.left_out == 2);
    CHECK(o.shapes.items[0].op == FA2_OP_BACKWARD && o.shapes.items[0].seq_q == 48);
    CHECK(o.shapes.items[1].op == FA2_OP_BACKWARD && o.shapes.items[1].seq_q == 50);
    fa2i_options_done(&o);
    CHECK_EQ(parse("--op=all --shapes op_named.csv", FA2I_OPT_SHAPES, &o), FA2_OK);
    CHECK(o.shapes.count == 5 && o.shapes.left_out == 0);
    fa2i_options_done(&o);
    CHECK_EQ(parse("--shapes op_named.csv", FA2I_OPT_SHAPES, &o), FA2_OK);
    CHECK(o.shapes.count == 4 && o.shapes.items[3].op == FA2_OP_FORWARD);
    fa2i_options_done(&o);
    CHECK_EQ(parse("--op backward --shapes op_unnamed.csv", FA2I_OPT_SHAPES, &o), FA2_OK);
    CHECK(o.shapes.count == 1 && o.shapes.items[0].op == FA2_OP_BACKWARD);
    fa2i_options_done(&o);
    FILE *file = fopen(named, "w"); /* all rows have another operation: no preset replaces them */
    CHECK(file != NULL &&
          fputs("batch,heads_q,heads_kv,seq_q,seq_k,head_dim,dtype,causal,op\n"
                "1,2,2,48,48,16,fp16,0,forward\n",
                file) >= 0 &&
          fclose(file) == 0);
    check_refused("--op backward --shapes op_named.csv", FA2I_OPT_SHAPES | FA2I_OPT_JOBS,
                  "--op backward leaves nothing: the column op of the shapes names another operation in all of 1 row; "
                  "leave --op out, or name that one");
    CHECK_EQ(remove(named) + remove(unnamed), 0);
}

/* Options for reading a database: filters, and the problems of show. */
static void test_filters(void)
{
    const int shown = FA2I_OPT_SHAPES | FA2I_OPT_FILTER_SHOWN;
    fa2i_options o = {0};
    CHECK_EQ(parse("--op backward --shape D=8", shown, &o), FA2_OK);
    CHECK(o.shapes.count == 0 && o.filter.given[FA2I_FIELD_op] && o.filter.problem.op == FA2_OP_BACKWARD &&
          o.filter.given[FA2I_FIELD_head_dim]);
    fa2i_options_done(&o);
    CHECK_EQ(parse("--op backward", shown, &o), FA2_OK);
    CHECK(o.filter.given[FA2I_FIELD_op]);
    CHECK_EQ(parse("--op backward --shape Hq=1,Sq=8,D=8", shown, &o), FA2_OK);
    CHECK(o.shapes.count == 1 && o.shapes.items[0].op == FA2_OP_BACKWARD && !fa2i_filter_names_problem(&o.filter));
    fa2i_options_done(&o);
    CHECK_EQ(parse("--op all --device all", FA2I_OPT_FILTER, &o), FA2_OK);
    CHECK(!fa2i_filter_names_problem(&o.filter) && fa2i_filter_is_given(&o.filter));
    CHECK_STR(o.filter.device, "");
    CHECK_EQ(parse("--device 3060", FA2I_OPT_FILTER, &o), FA2_OK);
    CHECK_EQ(fa2i_filter_find_device(&o), FA2_OK); /* no device has such a number */
    CHECK_STR(o.filter.device, "3060");
    check_refused("--shape=", FA2I_OPT_FILTER, "--shape \"\": expected KEY=VALUE,..., for example D=64,causal=1");
    check_refused("--device=", FA2I_OPT_FILTER,
                  "--device \"\": expected a device number, a part of a device's name, or all");
    check_refused("--shape D=8 --shape causal=1", shown,
                  "--shape \"causal=1\" leaves out Hq, Sq or D, so it is a filter, and there is one "
                  "already; put all fields into one");
}

static void test_wrong(void)
{
    const int build = FA2I_OPT_ARCH | FA2I_OPT_DB | FA2I_OPT_JOBS;
    check_refused("--fast", build, "build has no option \"--fast\"; it takes --help, --arch, --db, --jobs");
    check_refused("--device 0", build, "build has no option \"--device\"; it takes --help, --arch, --db, --jobs");
    check_refused("--arhc sm_86", build, "build has no option \"--arhc\", did you mean --arch?");
    check_refused("--archs=sm_86", build, "build has no option \"--archs=sm_86\", did you mean --arch?");
    check_refused("-x", build, "build has no option \"-x\"; it takes --help, --arch, --db, --jobs");
    check_refused("--jobs", build, "--jobs needs a value: a number of threads, 0 (all processors) to 1024");
    check_refused("--db --jobs 2", build, "--db needs a value: the path of a database file");
    check_refused("--db=", build, "--db \"\": expected the path of a database file");
    check_refused("--json=1", FA2I_OPT_JSON, "--json takes no value");
    check_refused("stray", build, "build takes options only, not \"stray\"");
    check_refused("", FA2I_OPT_FILE, "build needs a file (\"-\" is the standard stream)");
    check_refused("a b", FA2I_OPT_FILE, "build takes one file; \"b\" is a second one");
    check_refused("--preset nope", FA2I_OPT_SHAPES,
                  "there is no preset \"nope\"; known: seeds, paper, quick, llm, vision, diffusion");
    check_refused("--op sideways", FA2I_OPT_SHAPES, "--op \"sideways\": expected forward, backward, merge or all");
    check_refused("--op all --shape Hq=1,Sq=8,D=8,op=backward,deterministic=1", FA2I_OPT_SHAPES,
                  "op=backward B=1 Hq=1 Hkv=1 Sq=8 Sk=8 D=8 dtype=fp16 causal=0 deterministic=1: "
                  "deterministic is 1; the operation forward has no deterministic");
    check_refused("--shapes /nonexistent/x", FA2I_OPT_SHAPES, "--shapes: /nonexistent/x: No such file or directory");
}

static void test_wrong_numbers(void)
{
    static const char threads[] = "expected a number of threads, 0 (all processors) to 1024";
    static const char archs[] = "expected architectures such as sm_86, native or all, with commas between: sm_80,sm_86";
    static const char *const wrong_archs[] = {"86",     "sm_",     "sm_8",  "sm_86,",     ",sm_86",
                                              "sm_86a", "sm_1234", "SM_86", "sm_86;sm_89"};
    static const char *const wrong_jobs[] = {"-1", "2x", "1025", "99999999999999999999", "1.5"};
    static const char *const wrong_budgets[] = {"0", "-1", "nan", "inf", "1h", "1e999"};
    static const char *const wrong_sizes[] = {"100", "M", "0M", "-1G", "1T", "2000000M", "123456789012345678M"};
    char line[64], message[256];
    for (size_t i = 0; i < sizeof wrong_archs / sizeof *wrong_archs; i++) {
        snprintf(line, sizeof line, "--arch %s", wrong_archs[i]);
        snprintf(message, sizeof message, "--arch \"%s\": %s", wrong_archs[i], archs);
        check_refused(line, FA2I_OPT_ARCH, message);
    }
    for (size_t i = 0; i < sizeof wrong_jobs / sizeof *wrong_jobs; i++) {
        snprintf(line, sizeof line, "--jobs %s", wrong_jobs[i]);
        snprintf(message, sizeof message, "--jobs \"%s\": %s", wrong_jobs[i], threads);
        check_refused(line, FA2I_OPT_JOBS, message);
    }
    for (size_t i = 0; i < sizeof wrong_budgets / sizeof *wrong_budgets; i++) {
        snprintf(line, sizeof line, "--budget %s", wrong_budgets[i]);
        snprintf(message, sizeof message, "--budget \"%s\": expected seconds, more than 0", wrong_budgets[i]);
        check_refused(line, FA2I_OPT_BUDGET, message);
    }
    for (size_t i = 0; i < sizeof wrong_sizes / sizeof *wrong_sizes; i++) {
        snprintf(line, sizeof line, "--max-size %s", wrong_sizes[i]);
        snprintf(message, sizeof message, "--max-size \"%s\": expected a size such as 256M or 2G", wrong_sizes[i]);
        check_refused(line, FA2I_OPT_MAX_SIZE, message);
    }
    check_refused("--device 0 --device=1", FA2I_OPT_DEVICE, "--device is given twice; it takes one value");
    check_refused("--db a.db --db b.db", FA2I_OPT_DB, "--db is given twice; it takes one value");
    check_refused("--device -1", FA2I_OPT_DEVICE,
                  "--device \"-1\": expected a device number, 0 to 1023, as fa2-tune devices lists them; "
                  "tune also takes all");
}

/* Names of SMs, "native" and "all", in one list or in several. */
static void test_archs(void)
{
    fa2i_options o = {0};
    CHECK_EQ(parse("--arch sm_86,native --arch sm_80", FA2I_OPT_ARCH, &o), FA2_OK);
    CHECK(o.arch_count == 2 && o.arch_native && !o.arch_all);
    CHECK_EQ(parse("--arch all", FA2I_OPT_ARCH, &o), FA2_OK);
    CHECK(o.arch_count == 0 && !o.arch_native && o.arch_all);
    check_refused("--arch all,any", FA2I_OPT_ARCH,
                  "--arch \"all,any\": expected architectures such as sm_86, native or all, with commas between: "
                  "sm_80,sm_86");
}

static void test_too_many_archs(void)
{
    char line[512] = "--arch sm_10";
    for (int arch = 11; arch <= 42; arch++) {
        const size_t used = strlen(line);
        snprintf(line + used, sizeof line - used, ",sm_%d", arch);
    }
    check_refused(line, FA2I_OPT_ARCH, "--arch: more than 32 architectures");
}

static void test_exit_statuses(void)
{
    static const struct {
        fa2_status status;
        int exit_status;
    } cases[] = {{FA2_E_INVALID, 2},  {FA2_E_UNSUPPORTED, 2}, {FA2_E_NO_DRIVER, 3}, {FA2_E_NO_DEVICE, 3},
                 {FA2_E_NO_NVRTC, 1}, {FA2_E_COMPILE, 1},     {FA2_E_CUDA, 1},      {FA2_E_DATABASE, 1},
                 {FA2_E_MEMORY, 1},   {FA2_E_GENERATOR, 1},   {FA2_E_IO, 1},        {FA2_E_NOT_FOUND, 2},
                 {FA2_E_FORBIDDEN, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_EQ(fa2i_report_failure(fa2i_fail(cases[i].status, "expected in this test")), cases[i].exit_status);
}

int main(void)
{
    test_values();
    test_defaults();
    test_shapes_accumulate();
    test_ops();
    test_contradictions();
    test_ops_of_files();
    test_filters();
    test_wrong();
    test_wrong_numbers();
    test_archs();
    test_too_many_archs();
    test_exit_statuses();
    return check_done();
}
