/*
 * fa2-tune: the names of the commands and their help, nothing else. The manual page and the completions are made from
 * the help, too (manual.h describes its form).
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/nearest.h"
#include "runtime/base/alloc.h"
#include "runtime/base/shown.h"
#include "runtime/base/text.h"
#include "runtime/lua/generator.h"
#include "tuner/commands/commands.h"
#include "tuner/commands/manual.h"

#define SHAPE_HELP                                                                                                     \
    "  --preset NAME     seeds, paper, quick, llm, vision or diffusion (fa2-tune help\n"                               \
    "                    presets); repeatable, as are --shapes and --shape\n"                                          \
    "  --shapes FILE     CSV with a header that names the columns (below). Problems with many\n"                       \
    "                    calls come first. \"-\" is standard input\n"                                                  \
    "  --shape TEXT      KEY=VALUE,... (below), for example Hq=8,Sq=512,D=64,causal=1\n"                               \
    "  --op OPS          operation of the shapes: forward, backward or all; default: both for\n"                       \
    "                    presets, else forward. Rows of a file or a program that name another\n"                       \
    "                    operation are left out. A --shape with op=backward must agree with it\n"
#define DEVICE_HELP                                                                                                    \
    "  --device D        the number of a device of this machine (fa2-tune devices), a part of\n"                       \
    "                    any device's name, or all\n"
#define FILTER_HELP                                                                                                    \
    "  --shape FIELDS    problems with these fields: D=64,causal=1\n"                                                  \
    "  --op OPS          forward, backward, merge or all (the first two)\n" DEVICE_HELP
#define DB_HELP                                                                                                        \
    "  --db FILE         the database; default $FA2_DB, else $XDG_CACHE_HOME/fa2/fa2.db,\n"                            \
    "                    else ~/.cache/fa2/fa2.db\n"
#define WITH_SYSTEM_HELP                                                                                               \
    DB_HELP                                                                                                            \
    "                    As calls do, it also reads the system's databases: $FA2_SYSTEM_DB, else\n"                    \
    "                    the files *.db beside shipped.db\n"
#define WITHOUT_SYSTEM_HELP                                                                                            \
    DB_HELP                                                                                                            \
    "                    It reads none of the system's databases ($FA2_SYSTEM_DB); FILE may be one\n"
#define JOBS_HELP "  --jobs N          compile in N threads; 0, the default: all processors\n"
#define ARCH_HELP                                                                                                      \
    "  --arch LIST       with commas between: sm_75, sm_80, sm_86 ...; native: the devices here;\n"                    \
    "                    all: every SM that this NVRTC compiles for\n"
#define DRY_RUN_HELP                                                                                                   \
    "  --dry-run         say what there is to do, about how long it takes, and whether the\n"                          \
    "                    database can be written; writes nothing into it\n"
#define JSON_HELP "  --json            print the result as JSON\n"

static int run_help(int argc, char **argv);
static int run_completion(int argc, char **argv);
static int run_man(int argc, char **argv);

static const fa2i_command commands[] = {
    {"tune", fa2i_cmd_tune,
     "--device N [--arch SM] [SHAPES] [--db FILE] [--jobs N] [--budget SECONDS] [--json] [-- PROGRAM ARGS...]",
     "measure on a GPU and store the winners",
     "Generates and compiles the variants for each shape, verifies them, times them on the device\n"
     "and stores the winners with their kernels. A later run continues where this one stopped.\n"
     "Without shapes: --preset seeds. With a program: runs it, on the same database, and tunes what\n"
     "it called, most GPU time first. FA2_CAPTURE=FILE in the environment makes any program write\n"
     "such a shape file.\n\n"
     "  --device N        the CUDA device, 0 for the first; all: every one, equal cards together;\n"
     "                    a program runs once then\n"
     "  --arch SM         let the device play an older SM: sm_86. Its families are timed as PTX within\n"
     "                    its limits, and stored as the device \"proxy sm_86 on ...\", which no call uses\n" SHAPE_HELP
         DB_HELP JOBS_HELP "  --budget SECONDS  stop after this time; the best so far win, and a later run continues.\n"
     "                    A kernel that is being compiled or timed is finished first\n"
     "  --all             measure every candidate, also those that other measurements rule out\n"
     "  --force           measure tuned problems again. The old winners stay until there are new\n"
     "                    ones; if no variant can run, all old results stay\n"
     "  --share           take turns with another fa2-tune on the device; default: wait for its\n"
     "                    end\n" DRY_RUN_HELP JSON_HELP},
    {"build", fa2i_cmd_build, "--arch sm_86[,sm_89...] [SHAPES] [--db FILE] [--jobs N] [--dry-run] [--json]",
     "compile for SMs without a GPU; the cost model chooses",
     "Compiles the most promising variants of each shape and stores the best one by the cost "
     "model,\n"
     "marked `modelled`. Kernels that are in the database already are reused. Without shapes:\n"
     "--preset seeds.\n\n" ARCH_HELP SHAPE_HELP DB_HELP JOBS_HELP DRY_RUN_HELP JSON_HELP},
    {"warm", fa2i_cmd_warm, "--device N [SHAPES] [--db FILE] [--jobs N] [-- PROGRAM ARGS...]",
     "compile and store what calls will need, without timing",
     "Prepares each shape as a program's first call would: chooses its kernel, by the database or by the\n"
     "cost model, compiles it if it is not stored, and stores it with the choice. With a program: runs it,\n"
     "on the same database, and prepares what it called. Later calls load what is stored.\n"
     "Without shapes: --preset seeds. Exit status 1 when a shape has no kernel, or the program failed.\n\n"
     "  --device N        the CUDA device, 0 for the first\n" SHAPE_HELP WITH_SYSTEM_HELP JOBS_HELP},
    {"bench", fa2i_cmd_bench,
     "--device N [SHAPES] [--scale S|B|D] [--precisions] [--runs N] [--rest MS] [--cold] [--against FILE [--fail-above "
     "P%]] "
     "[--db FILE] [--format text|csv|json]",
     "time the runtime's kernels, by one protocol, beside the default",
     "Times the kernel that the runtime would use for each shape, and the one that it would use\n"
     "untuned, in interleaved rounds of CUDA graphs. First it checks them against the CPU reference.\n"
     "It does not write to the database. Without shapes: --preset seeds.\n\n"
     "  --device N        the CUDA device, 0 for the first\n" SHAPE_HELP
     "  --scale AXIS      S, B or D, repeatable: also time other values of it, and print a table\n"
     "  --runs N          timed runs of each kernel, at least 10; default 100\n"
     "  --rest MS         idle before each round, for cards at their power limit; default 0\n"
     "  --precisions      also time each forward shape with fp16 sums, 8-bit scores and values and 8-bit caches,\n"
     "                    and print a table of times and errors, for numbers that are easy and hard to round\n"
     "  --cold            one launch per run, after a flush of the L2 cache\n"
     "  --against FILE    compare with the times in FILE, which bench --json wrote on such a card\n"
     "  --fail-above P    exit status 1 when a shape takes P per cent longer than in FILE: 5 or 5%\n" WITH_SYSTEM_HELP
     "  --format F        text, csv (a row for each kernel and shape) or json\n" JSON_HELP},
    {"devices", fa2i_cmd_devices, "[--json]", "what is here, and what is missing",
     "Shows the driver, NVRTC and the devices. Exit status 0 when a usable device is here, else "
     "3.\n\n" JSON_HELP},
    {"doctor", fa2i_cmd_doctor, "[--device N] [--db FILE]", "what is wrong here? A page for a bug report",
     "Looks at the driver, NVRTC, the devices, the environment, the times that come with fa2 and the\n"
     "database, and makes one call of attention, whose result it checks. Then it lists what it found wrong,\n"
     "and what helps. It writes nothing. Exit status 1 when something is wrong, 3 when\n"
     "there is no usable device.\n\n"
     "  --device N        the device of the call; default 0\n" DB_HELP},
    {"list", fa2i_cmd_list, "[--shape FIELDS] [--op OPS] [--device D] [--db FILE] [--json]", "the winners",
     "Shows the winners in the database, by device: all, or those that pass the options.\n"
     "Without --db, the winners in the system's databases, too: $FA2_SYSTEM_DB, else the files *.db\n"
     "beside shipped.db, which calls read below yours.\n\n" FILTER_HELP DB_HELP JSON_HELP},
    {"show", fa2i_cmd_show, "[SHAPES] [--device D] [--db FILE] [--json]",
     "every variant tried for a problem, also losers and failures",
     "Shows the results of each variant, fastest first, then variants that were left out, then\n"
     "failures. Where nothing was measured, shows the winner that build chose by the cost model. Exit\n"
     "status 1 when a problem has neither. A --shape that lacks Hq, Sq or D is a filter: it shows all\n"
     "problems in the database that have these fields. So do --op and --device without a shape.\n\n" SHAPE_HELP
         DEVICE_HELP DB_HELP JSON_HELP},
    {"explain", fa2i_cmd_explain,
     "SHAPES (--device N | --arch sm_86[,sm_89...]) [--never-compile] [--db FILE] [--json]",
     "which kernel the runtime would use, and why",
     "Shows the kernel, the rule that chose it, the cost model's estimates of the candidates, and the\n"
     "rejected ones. Compiles nothing; --arch needs no GPU. If the call would fail, says so, with exit\n"
     "status 1. With several SMs, the status is 1 if the call fails on all. An estimate rests on times of\n"
     "this very problem (measured), of near ones on this card (nearby), of other cards (elsewhere), or on\n"
     "the cost model, perhaps corrected by times of other kinds of problems.\n\n"
     "  --device N        decide for this device\n"
     "  --arch LIST       decide for the cards that stand for these SMs: sm_86; sm_80,sm_90; native: the\n"
     "                    SMs of the devices here; all: every SM that this NVRTC compiles for\n"
     "  --never-compile   decide for a context whose config forbids compiling\n" SHAPE_HELP WITH_SYSTEM_HELP JSON_HELP},
    {"source", fa2i_cmd_source,
     "[VARIANT] [SHAPES] [--device N | --arch sm_86[,sm_89...]] [--ptx | --sass | --lines] [--db FILE]",
     "the whole text of a kernel, its PTX or its machine code",
     "Prints the CUDA C++ of a kernel, which needs no GPU, no driver and no NVRTC. VARIANT is a variant's\n"
     "text, as list and show print it, or its key, as list --json does. Tables leave out the fields of the\n"
     "shape; give these by --shape. Without VARIANT: the kernel that the runtime would use for each shape on\n"
     "the device or the SMs. The lines above the kernel name its variant, its launch, and the shape.\n"
     "Exit status 1 when a call would fail, or when NVRTC or the disassembler is missing.\n\n"
     "  --device N        choose, or compile, for this device\n"
     "  --arch LIST       the same for the cards that stand for these SMs: sm_86; sm_80,sm_90; native; all\n"
     "  --ptx             compile it, and print the PTX; needs NVRTC\n"
     "  --sass            compile it, and print the machine code; needs NVRTC, and nvdisasm or cuobjdump in\n"
     "                    PATH or in the CUDA toolkit\n"
     "  --lines           keep the #line directives, which name the places in templates/\n" SHAPE_HELP
         WITH_SYSTEM_HELP},
    {"report", fa2i_cmd_report,
     "[--html FILE] [--markdown FILE] [--against OTHER] [--bench FILE] [--shape FIELDS] [--op OPS] "
     "[--device D] [--db FILE]",
     "the database as one page, to look at and to pass on",
     "Writes the results of tuning as one self-contained page: cards, winners, every variant, the\n"
     "model against the measurements, failures, and how to repeat it. \"-\" is standard output;\n"
     "without a file the markdown goes there. It replaces a report of that name when the new one is\n"
     "complete, but no other file. Results are those of one database, and none of the system's\n"
     "($FA2_SYSTEM_DB); --db may name one of these.\n\n"
     "  --html FILE       write the page\n"
     "  --markdown FILE   write a shorter text\n"
     "  --against OTHER   compare with another database: another card, another "
     "version\n"
     "  --bench FILE      a file of bench --json or field-report about the card: adds its\n"
     "                    measured ceilings, and naive attention beside the winners\n" FILTER_HELP DB_HELP},
    {"export", fa2i_cmd_export, "FILE [--with-code] [--db FILE]", "write measurements and winners, without code",
     "Writes the database as JSON lines; \"-\" is standard output. Without --with-code there is\n"
     "no code in it: import compiles, and tuning verifies it there. It replaces an export of that name when the new "
     "one\n"
     "is complete, but no other file.\n\n"
     "  --with-code       also the code of the kernels that calls take, for your other machines; a new file\n"
     "                    is readable by you alone\n" WITHOUT_SYSTEM_HELP},
    {"import", fa2i_cmd_import, "FILE [--trust] [--db FILE] [--jobs N]", "read what export wrote",
     "Reads an export (\"-\" is standard input), all of it or nothing, and compiles the winners' "
     "kernels\n"
     "here. Rows that are here already are kept. Exit status 1 when a kernel was not compiled, for\n"
     "example without NVRTC. Then the rows stay, and the same import can continue.\n\n"
     "  --trust           take the code, too, which will run as yours. The file must be yours, and no other\n"
     "                    user may be able to write it; code that does not match its seal is refused\n" DB_HELP
         JOBS_HELP},
    {"check", fa2i_cmd_check, "[--db FILE] [--json]", "is the database intact?",
     "Checks the database and all kernels' code in it. Exit status 1 when something is damaged,\n"
     "or a winner cannot be used: it has no code, was refuted, failed while it was measured,\n"
     "or is of another version of fa2. The output says how to mend that.\n\n" WITHOUT_SYSTEM_HELP JSON_HELP},
    {"gc", fa2i_cmd_gc, "[--max-size SIZE] [--db FILE] [--jobs N]",
     "mend what is damaged; drop code beyond the file's size limit",
     "Mends values that check finds damaged where the rest of the file tells what they were, and drops rows\n"
     "that cannot be mended. If SQLite cannot read the file, gc makes it anew from what can be read, and looks\n"
     "for single wrong bits for up to 20 seconds. It says what it does. Ctrl-C leaves such a file as it was.\n"
     "If too little can be read: move the file away, and tune again or import an export. Makes tables, views and "
     "indexes anew that are not there; drops code beyond the size limit;\n"
     "compacts the file. Code that was used longest ago goes first, winners' code never. What was measured\n"
     "stays. Every process that stores code keeps the same limit.\n"
     "Winners whose code is lost or damaged stay, with what was measured, and are compiled again if NVRTC is\n"
     "found; those that no call takes (refuted, or of another version of fa2) are left as they are.\n"
     "Exit status 1 when the file is still damaged, or no code can be made here for a winner: there is no\n"
     "NVRTC, this fa2 does not know its variant or finds that it is of another class than its record says,\n"
     "or this NVRTC does not know its SM. Such a winner stays, and is named.\n\n"
     "  --max-size SIZE   from now on the file's size limit, as 256M or 2G; a new file has 256M\n" DB_HELP JOBS_HELP},
    {"field-report", fa2i_cmd_field_report, "FILE (--device N [--budget SECONDS] [--jobs N] | --check)",
     "one file about a card, for people who cannot use it",
     "Tunes a small preset and twenty random problems, and verifies every candidate. Measures the\n"
     "limits of the card, and how good the cost model and the choice of kernels are. Writes all of it\n"
     "as JSON lines; fa2-tune import reads the measurements. It takes minutes, and the same command\n"
     "continues where it was stopped. It says what is in the file: nothing personal. It replaces a\n"
     "field report of that name when the new one is complete, but no other file.\n\n"
     "  --device N        the CUDA device, 0 for the first\n"
     "  --budget SECONDS  time for tuning; default 480\n" JOBS_HELP
     "  --check           only check whether the measurements in FILE give the figures that it states\n"},
    {"forget", fa2i_cmd_forget,
     "[--shape FIELDS] [--op OPS] [--device D] [--variant TEXT] [--failures] "
     "[--dry-run] [--db FILE]",
     "drop results, so that they are measured again",
     "Drops the measurements that pass all options, and the winners that rest on them. --variant and\n"
     "--failures also drop the verifications of those variants, and, without --device, --shape and --op,\n"
     "their code. --device alone also drops the device's verifications. Verifications and code are for\n"
     "all shapes. The next tuning does all of it again.\n\n" FILTER_HELP
     "  --variant TEXT    variants with this in their text: \"br=128 bc=64\"\n"
     "  --failures        only what failed: did not compile, spilled, was wrong, hung\n"
     "  --dry-run         say what would be dropped, and whether the database can be written; drop\n"
     "                    nothing\n" DB_HELP},
    {"help", run_help, "[COMMAND]", "the commands, or one of them",
     "Lists the commands, or shows the same as fa2-tune COMMAND --help.\n"},
    {"completion", run_completion, "SHELL", "a script that completes command lines in a shell",
     "Prints the script for SHELL: bash, zsh or fish.\n"},
    {"man", run_man, "", "the manual page", "Prints the manual page, for man.\n"},
};

enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static void print_usage(FILE *out)
{
    fputs("fa2-tune: FlashAttention-2 kernels, generated and tuned for the GPU in front of them\n\n"
          "  fa2-tune [tune] --device N    fill the database for this GPU\n"
          "  fa2-tune COMMAND [OPTIONS]\n\n",
          out);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fputs("\nfa2-tune COMMAND --help tells more; --version or -V prints the version.\n"
          "Exit status: 0 done; 1 something failed; 2 wrong arguments; 3 no usable device;\n"
          "130 interrupted, what was found out is kept.\n",
          out);
}

static const fa2i_command *find_command(const char *name)
{
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static bool is_help(const char *arg)
{
    return strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0;
}

/* "Hkv (heads_kv) [as Hq]", "page [16 with paged]", "rotary_dim [as D, in steps of 16, up to 256, with rotary]" */
static int describe_field(int field, char *out, size_t bytes)
{
    const fa2i_field *f = &fa2i_fields[field];
    const bool named = strcmp(f->key, f->name) != 0;
    const bool same = f->missing == FA2I_MISSING_SAME_AS;
    const char *word = same ? fa2i_fields[f->missing_value].key : fa2i_field_word(field, f->missing_value);
    char number[16], step[32] = "", limit[24] = "";
    snprintf(number, sizeof number, "%d", (int)f->missing_value);
    if (same && f->step > fa2i_fields[f->missing_value].step)
        snprintf(step, sizeof step, ", in steps of %d", (int)f->step);
    if (same && f->most < fa2i_fields[f->missing_value].most)
        snprintf(limit, sizeof limit, ", up to %d", (int)f->most);
    const bool given = f->missing == FA2I_MISSING_REQUIRED, needs = f->needs >= 0;
    return snprintf(out, bytes, "%s%s%s%s%s%s%s%s%s%s%s%s", f->key, named ? " (" : "", named ? f->name : "",
                    named ? ")" : "", given ? "" : " [", same ? "as " : "",
                    given          ? ""
                    : word != NULL ? word
                                   : number,
                    step, limit,
                    !needs ? ""
                    : same ? ", with "
                           : " with ",
                    needs ? fa2i_fields[f->needs].key : "", given ? "" : "]");
}

/* required: the fields that must be given. */
static void print_fields(bool required)
{
    enum { WIDTH = 100 };
    int column = 0; /* nothing printed yet */
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        const fa2i_field *f = &fa2i_fields[field];
        char text[80];
        if ((f->missing == FA2I_MISSING_REQUIRED && f->needs < 0) != required)
            continue;
        const int length = describe_field(field, text, sizeof text);
        const bool breaks = column == 0 || column + length + 3 > WIDTH;
        printf("%s%s%s", column == 0 ? "" : ",", breaks ? "\n  " : " ", text);
        column = breaks ? 2 + length : column + length + 2;
    }
    printf("\n");
}

/* Prints "dtype: fp16 or bf16" for each field whose values are words. */
static void print_words(void)
{
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        const fa2i_field *f = &fa2i_fields[field];
        for (int32_t value = 0; value <= f->most && fa2i_field_word(field, value) != NULL; value++)
            printf("%s%s%s",
                   value == 0        ? f->key
                   : value < f->most ? ", "
                                     : " or ",
                   value == 0 ? ": " : "", fa2i_field_word(field, value));
        if (fa2i_field_word(field, 0) != NULL)
            printf(".\n");
    }
}

/* Says whether texts must name this field, because what depends on it would not say which of its values is meant. */
static bool is_chosen(int field)
{
    return fa2i_fields[field].type != FA2I_TYPE_INT;
}

/* Prints what keys that need another one mean without it. */
static void print_needs(void)
{
    const char *separator = "Given without the key after \"with\", a key sets it:\n  ";
    for (int needed = 0; needed < FA2I_FIELD_COUNT; needed++) {
        int keys = 0;
        for (int field = 0; field < FA2I_FIELD_COUNT && !is_chosen(needed); field++)
            if (fa2i_fields[field].needs == needed)
                printf("%s%s", keys++ == 0 ? separator : " or ", fa2i_fields[field].key);
        if (keys == 0)
            continue;
        const char *name = fa2i_field_name(needed, 1);
        printf(": %s=%s", fa2i_fields[needed].key, name == NULL ? "1" : name);
        separator = ", ";
    }
    separator = ".\nBut ";
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        const int needed = fa2i_fields[field].needs;
        if (needed < 0 || !is_chosen(needed))
            continue;
        printf("%s%s needs %s", separator, fa2i_fields[field].key, fa2i_fields[needed].key);
        separator = ", and ";
    }
    printf(" beside it.\n");
}

static void print_shape_keys(void)
{
    printf("Keys of --shape (columns of a CSV) that must be given:");
    print_fields(true);
    printf("Others [what is meant where they are not given]:");
    print_fields(false);
    print_needs();
    print_words();
    printf("window: 0 (none), 1 (sliding): from Wl keys before to Wr after (-1: all), 2 (prefix): also the first Wl\n"
           "keys, or 3 (chunk): chunks of Wl; by number or name.\n");
    printf("Names are written as they are here, capitals too. A CSV may have the columns calls (how often a\n"
           "program asks for the problem; 0 or empty: unknown) and origin (anything, for people), and no others.\n");
}

static void print_help(const fa2i_command *command)
{
    printf("fa2-tune %s %s\n\n%s", command->name, command->synopsis, command->help);
    if (strstr(command->synopsis, "SHAPES") == NULL)
        return;
    printf("\nSHAPES: any of --preset, --shapes, --shape.\n");
    print_shape_keys();
}

static int unknown_command(const char *name)
{
    fa2i_nearest meant = {0};
    for (int i = 0; i < COMMAND_COUNT; i++)
        fa2i_nearest_try(&meant, name, strlen(name), commands[i].name, commands[i].name);
    fa2i_shown_print(stderr, "fa2-tune: there is no command \"%s\"", name);
    if (meant.name != NULL) {
        fprintf(stderr, ", did you mean %s?\n", meant.name);
        return FA2I_EXIT_USAGE;
    }
    fputs("; known:", stderr);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(stderr, " %s", commands[i].name);
    fputc('\n', stderr);
    return FA2I_EXIT_USAGE;
}

/* argv[0] is the command's name. */
static int run_command(const fa2i_command *command, int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (is_help(argv[i])) {
            print_help(command);
            return FA2I_EXIT_OK;
        }
    }
    return command->run(argc, argv);
}

/* Checks arguments that must be words: no option, and at most `most` words. Prints what is wrong. */
static bool takes_words(int argc, char **argv, int most)
{
    for (int i = 1; i < argc; i++) {
        if (i <= most && argv[i][0] != '-')
            continue;
        if (argv[i][0] == '-')
            fa2i_shown_print(stderr, "fa2-tune: %s has no option \"%s\"; it takes --help\n", argv[0], argv[i]);
        else
            fa2i_shown_print(stderr, "fa2-tune: %s takes %s; \"%s\" is too much\n", argv[0],
                             most == 0 ? "nothing more" : "one word", argv[i]);
        return false;
    }
    return true;
}

/* Prints a line: the name of a preset, and how many problems of each operation it has. */
static fa2_status print_preset(const char *name)
{
    fa2i_shapes shapes = {0};
    const fa2_status st = fa2i_shapes_add_preset(&shapes, name);
    size_t of_op[FA2_OP_MERGE + 1] = {0};
    for (size_t i = 0; i < shapes.count; i++)
        of_op[shapes.items[i].op]++;
    if (st == FA2_OK)
        printf("%-12s %3zu forward, %3zu backward\n", name, of_op[FA2_OP_FORWARD], of_op[FA2_OP_BACKWARD]);
    fa2i_shapes_done(&shapes);
    return st;
}

/* `fa2-tune help presets` */
static int print_presets(void)
{
    char *names = NULL;
    fa2_status st = fa2i_shapes_list_presets(&names);
    for (char *at = names, *end; st == FA2_OK && at != NULL; at = end) {
        end = strstr(at, ", ");
        if (end != NULL) {
            *end = '\0';
            end += 2;
        }
        st = print_preset(at);
    }
    fa2i_free(names);
    return st == FA2_OK ? FA2I_EXIT_OK : fa2i_report_failure(st);
}

/* `fa2-tune help [COMMAND | presets]` */
static int run_help(int argc, char **argv)
{
    if (!takes_words(argc, argv, 1))
        return FA2I_EXIT_USAGE;
    if (argc > 1 && strcmp(argv[1], "presets") == 0)
        return print_presets();
    const fa2i_command *command = argc > 1 ? find_command(argv[1]) : NULL;
    if (argc > 1 && command == NULL)
        return unknown_command(argv[1]);
    if (command != NULL)
        print_help(command);
    else
        print_usage(stdout);
    return FA2I_EXIT_OK;
}

/* Lists the values of --arch: the SMs that a card stands for. The caller owns *ret_text. */
static fa2_status list_archs(char **ret_text)
{
    fa2i_text text = {0};
    fa2i_card card;
    fa2i_generator *generator = NULL;
    const fa2_status st = fa2i_generator_create(&generator);
    if (st != FA2_OK)
        return st;
    fa2i_text_add(&text, "native all");
    for (int arch = 75; arch < 130; arch++)
        if (fa2i_generator_card(generator, arch, &card) == FA2_OK)
            fa2i_text_add(&text, " sm_%d", arch);
    fa2i_generator_destroy(generator);
    return fa2i_text_take(&text, ret_text);
}

/* `fa2-tune completion SHELL` */
static int run_completion(int argc, char **argv)
{
    char *archs = NULL;
    if (!takes_words(argc, argv, 1))
        return FA2I_EXIT_USAGE;
    const fa2_status st = list_archs(&archs);
    const bool printed =
        st == FA2_OK && argc == 2 && fa2i_print_completion(argv[1], commands, COMMAND_COUNT, archs, stdout);
    fa2i_free(archs);
    if (st != FA2_OK)
        return fa2i_report_failure(st);
    if (printed)
        return FA2I_EXIT_OK;
    fputs("fa2-tune: completion needs the name of a shell: bash, zsh or fish\n", stderr);
    return FA2I_EXIT_USAGE;
}

/* `fa2-tune man` */
static int run_man(int argc, char **argv)
{
    if (!takes_words(argc, argv, 0))
        return FA2I_EXIT_USAGE;
    fa2i_print_manual(commands, COMMAND_COUNT, stdout);
    puts(".SH SHAPES\n.nf");
    print_shape_keys();
    puts(".fi");
    return FA2I_EXIT_OK;
}

/* Finds a command's name among the arguments of a call that begins with an option. Returns 0 if there is none, or if
 * it is the value of an option. */
static int late_command(int argc, char **argv)
{
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (find_command(argv[i]) != NULL && !fa2i_options_takes_next(argv[i - 1]))
            return i;
    return 0;
}

/* Prints the call with the command at its beginning. */
static int say_command_first(int argc, char **argv, int late)
{
    fprintf(stderr, "fa2-tune: the command comes first: fa2-tune %s", argv[late]);
    for (int i = 1; i < argc; i++) {
        const char *quote = strcspn(argv[i], " ()*?[]$&;|<>\"\\") == strlen(argv[i]) ? "" : "'";
        if (i != late)
            fa2i_shown_print(stderr, " %s%s%s", quote, argv[i], quote);
    }
    fputc('\n', stderr);
    return FA2I_EXIT_USAGE;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return FA2I_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        if (!takes_words(argc - 1, argv + 1, 0))
            return FA2I_EXIT_USAGE;
        printf("fa2-tune %d.%d.%d\n", FA2_VERSION_MAJOR, FA2_VERSION_MINOR, FA2_VERSION_PATCH);
        return FA2I_EXIT_OK;
    }
    if (is_help(argv[1]))
        return run_help(argc - 1, argv + 1);
    if (strcmp(argv[1], "worker") == 0) /* the tuner starts itself so for the work on the GPU */
        return fa2i_cmd_worker(argc - 1, argv + 1);
    if (argv[1][0] == '-') {
        static char tune[] = "tune";
        const int late = late_command(argc, argv);
        if (late > 0)
            return say_command_first(argc, argv, late);
        argv[0] = tune;
        return run_command(&commands[0], argc, argv);
    }
    const fa2i_command *command = find_command(argv[1]);
    return command == NULL ? unknown_command(argv[1]) : run_command(command, argc - 1, argv + 1);
}

/* Says whether everything reached standard output. Commands flush as they go. After a failed flush the next one has
 * nothing to write, so only the stream's error mark remembers it. */
static bool wrote_all(void)
{
    if (fflush(stdout) != 0) {
        perror("fa2-tune: standard output");
        return false;
    }
    if (ferror(stdout) != 0) {
        fputs("fa2-tune: standard output: not all of the result could be written\n", stderr);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    const int status = dispatch(argc, argv);
    /* A full disk must not look like success. */
    return !wrote_all() && status == FA2I_EXIT_OK ? FA2I_EXIT_FAILED : status;
}
