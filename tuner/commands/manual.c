/*
 * The help texts are read line by line (manual.h). The name of a value says which words it can have.
 */
#include "tuner/commands/manual.h"

#include <string.h>
#include "fa2.h"

/* ---- options of a help text ---- */

static void append(char *text, size_t bytes, const char *from, size_t length)
{
    const size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%s%.*s", used == 0 ? "" : " ", (int)length, from);
}

/* An option of a help text. */
typedef struct option_help {
    char name[24];  /* "--db" */
    char value[16]; /* "FILE"; "": it takes no value */
    char text[480]; /* on one line */
} option_help;

/* Appends the words of a line to text. */
static const char *take_line(const char *line, char *text, size_t bytes)
{
    const size_t length = strcspn(line, "\n");
    const size_t indent = strspn(line, " ");
    append(text, bytes, line + indent, length - indent);
    return line + length + (line[length] == '\n');
}

/* Reads the next option of a help text and moves *help past it. Returns false if there is none. */
static bool next_option(const char **help, option_help *ret_option)
{
    option_help option = {.name = ""};
    const char *at = strncmp(*help, "  --", 4) == 0 ? *help : strstr(*help, "\n  --");
    if (at == NULL)
        return false;
    at += *at == '\n' ? 3 : 2;
    const size_t name = strcspn(at, " ");
    append(option.name, sizeof option.name, at, name);
    at += name;
    if (at[0] == ' ' && at[1] != ' ') {
        const size_t value = strcspn(at + 1, " ");
        append(option.value, sizeof option.value, at + 1, value);
        at += 1 + value;
    }
    at = take_line(at, option.text, sizeof option.text);
    while (strncmp(at, "          ", 10) == 0)
        at = take_line(at, option.text, sizeof option.text);
    *help = at - 1; /* the end of the line before, where the next search begins */
    *ret_option = option;
    return true;
}

/* ---- the manual ---- */

/* Prints text for man(7). Escapes lines that would be requests, and hyphens, so that one can search for them. */
static void print_roff(const char *text, size_t length, FILE *out)
{
    bool begins = true;
    for (size_t i = 0; i < length; i++) {
        if (begins && (text[i] == '.' || text[i] == '\''))
            fputs("\\&", out);
        if (text[i] == '\\')
            fputs("\\e", out);
        else if (text[i] == '-')
            fputs("\\-", out);
        else
            fputc(text[i], out);
        begins = text[i] == '\n';
    }
}

static void print_command(const fa2i_command *command, FILE *out)
{
    option_help option;
    const char *end = strstr(command->help, "\n\n");
    const char *rest = command->help;
    fprintf(out, ".SS %s\n.B fa2\\-tune %s\n", command->name, command->name);
    print_roff(command->synopsis, strlen(command->synopsis), out);
    fprintf(out, "%s.PP\n", command->synopsis[0] == '\0' ? "" : "\n");
    print_roff(command->help, end == NULL ? strlen(command->help) - 1 : (size_t)(end - command->help), out);
    fputc('\n', out);
    while (next_option(&rest, &option)) {
        fputs(".TP\n.B ", out);
        print_roff(option.name, strlen(option.name), out);
        fprintf(out, "%s%s\n", option.value[0] == '\0' ? "" : " ", option.value);
        print_roff(option.text, strlen(option.text), out);
        fputc('\n', out);
    }
}

/* runtime/README.md also describes the library's. */
const fa2i_variable fa2i_variables[] = {
    {"FA2_DB", "the database, unless --db is given"},
    {"FA2_SYSTEM_DB", "databases below the user's, with ':' between them, which are only read; default: the files *.db "
                      "in the folder of files that come with fa2, in the order of their names"},
    {"FA2_CAPTURE", "a file in which any program that uses fa2 records its calls"},
    {"FA2_DUMP", "a folder into which any program that uses fa2, and fa2-tune, writes what it compiles: NAME.cu, and "
                 "NAME.cubin or NAME.ptx"},
    {"FA2_SHARE",
     "the folder of files that come with fa2: shipped.db (times), system databases (*.db); empty: none are read"},
    {"FA2_GEN_PATH", "a source tree: gen/ and templates/ are read from it, in place of the embedded copies"},
    {"FA2_CUDA_LIBRARY, FA2_NVRTC_LIBRARY", "the driver's and NVRTC's libraries"},
    {"FA2_NVML_LIBRARY, FA2_NVTX_LIBRARY",
     "the libraries of NVML (clocks, temperature, energy; bench, field-report) and of NVTX (ranges), where found"},
    {"CUDA_HOME, CUDA_PATH", "the CUDA toolkit, in which NVRTC and a disassembler are looked for"},
    {"VIRTUAL_ENV", "a Python environment, in which NVIDIA's package of NVRTC is looked for"},
    {"PATH", "folders in which a program after -- and a disassembler are looked for"},
    {"XDG_CACHE_HOME, HOME", "where the default database lies: $XDG_CACHE_HOME/fa2 or ~/.cache/fa2"},
    {"TMPDIR", "the folder of temporary files"},
    {"NO_COLOR, TERM", "how the terminal is written to"},
    {NULL, NULL},
};

static void print_environment(FILE *out)
{
    for (const fa2i_variable *v = fa2i_variables; v->names != NULL; v++) {
        fprintf(out, ".TP\n.B %s\n", v->names);
        print_roff(v->meaning, strlen(v->meaning), out);
        fputc('\n', out);
    }
}

void fa2i_print_manual(const fa2i_command *commands, size_t count, FILE *out)
{
    fprintf(out,
            ".TH FA2\\-TUNE 1 \"\" \"fa2 %d.%d.%d\" \"User Commands\"\n"
            ".SH NAME\nfa2\\-tune \\- generate and tune FlashAttention\\-2 kernels for the GPU at "
            "hand\n"
            ".SH SYNOPSIS\n.B fa2\\-tune\n.RI [ command ]\n.RI [ options ]\n"
            ".SH DESCRIPTION\n"
            "Writes attention kernels for the GPU that it finds, verifies and times them, and keeps "
            "the\n"
            "winners in one SQLite file, from which the library takes the best kernel for each call.\n"
            "Without a command, options are those of\n.BR tune .\n"
            ".SH COMMANDS\n",
            FA2_VERSION_MAJOR, FA2_VERSION_MINOR, FA2_VERSION_PATCH);
    for (size_t i = 0; i < count; i++)
        print_command(&commands[i], out);
    fputs(".SH EXIT STATUS\n"
          "0 done; 1 something failed while working; 2 what was given is wrong; 3 no usable device;\n"
          "130 interrupted, what was found out is kept.\n"
          ".SH ENVIRONMENT\n",
          out);
    print_environment(out);
    fputs(".SH FILES\n.TP\n.I ~/.cache/fa2/fa2.db\nthe default database. Where it cannot be used, programs work\n"
          "without it;\n.B fa2\\-tune\nreports an error.\n",
          out);
}

/* ---- completion ---- */

/* Returns the possible words of a value, by its name in the help; NULL if there are none. *ret_file: it is a file.
 * archs: as in fa2i_print_completion. */
static const char *words_of(const char *value, const char *archs, bool *ret_file)
{
    const char *const words[][2] = {
        {"NAME", "seeds paper quick llm vision diffusion"},
        {"OPS", "forward backward all"},
        {"AXIS", "S B D"},
        {"F", "text csv json"},
        {"LIST", archs},
        {"SHELL", "bash zsh fish"},
    };
    *ret_file = strcmp(value, "FILE") == 0 || strcmp(value, "OTHER") == 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i][0], value) == 0)
            return words[i][1];
    return NULL;
}

/* Says whether the option takes several values, separated by commas. */
static bool is_list(const option_help *option)
{
    return strcmp(option->value, "LIST") == 0;
}

/* Every command takes it, and no help text lists it. */
static const option_help help_option = {.name = "--help", .text = "say what the command does and takes"};

/* Prints a text for a shell's single quotes. Cuts it at the first of these characters, and replaces some others. */
static void print_quoted(const char *text, const char *cut, FILE *out)
{
    for (const char *at = text; *at != '\0' && strchr(cut, *at) == NULL; at++)
        fputc(*at == '\'' ? '`' : *at == '[' ? '(' : *at == ']' ? ')' : *at, out);
}

static void print_bash(const fa2i_command *commands, size_t count, const char *archs, FILE *out)
{
    option_help option;
    bool file = false;
    fputs("# bash completion for fa2-tune; made by: fa2-tune completion bash\n"
          "_fa2_tune() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    local command=tune words=''\n"
          "    local list=${cur%\"${cur##*,}\"} # the items of a list before the one that is typed\n"
          "    case ${COMP_WORDS[1]} in",
          out);
    for (size_t i = 0; i < count; i++)
        fprintf(out, "%s%s", i == 0 ? " " : "|", commands[i].name);
    fputs(") command=${COMP_WORDS[1]} ;; esac\n    case $command:$prev in\n", out);
    for (size_t i = 0; i < count; i++) {
        for (const char *help = commands[i].help; next_option(&help, &option);) {
            const char *words = words_of(option.value, archs, &file);
            if (file)
                fprintf(out,
                        "        %s:%s) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); "
                        "return ;;\n",
                        commands[i].name, option.name);
            else if (words != NULL)
                fprintf(out, "        %s:%s) mapfile -t COMPREPLY < <(compgen %s-W '%s' -- \"%s\"); return ;;\n",
                        commands[i].name, option.name, is_list(&option) ? "-P \"$list\" " : "", words,
                        is_list(&option) ? "${cur##*,}" : "$cur");
            else if (option.value[0] != '\0')
                fprintf(out, "        %s:%s) COMPREPLY=(); return ;;\n", commands[i].name, option.name);
        }
    }
    fputs("    esac\n    case $command in\n", out);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "        %s) words='%s", commands[i].name, help_option.name);
        for (const char *help = commands[i].help; next_option(&help, &option);)
            fprintf(out, " %s", option.name);
        fputs("' ;;\n", out);
    }
    fputs("    esac\n    local commands='", out);
    for (size_t i = 0; i < count; i++)
        fprintf(out, "%s%s", i == 0 ? "" : " ", commands[i].name);
    fputs("'\n    case $COMP_CWORD:${COMP_WORDS[1]} in\n"
          "        1:*) words=\"$words --version $commands\" ;;\n"
          "        *:help) words=$commands ;;\n"
          "        *:completion) words='bash zsh fish' ;;\n"
          "    esac\n    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n}\n"
          "complete -o default -F _fa2_tune fa2-tune\n",
          out);
}

static void print_zsh_option(const option_help *option, const char *archs, FILE *out)
{
    bool file = false;
    const char *words = words_of(option->value, archs, &file);
    fprintf(out, " \\\n            '*%s%s[", option->name, option->value[0] == '\0' ? "" : "=");
    print_quoted(option->text, ";:", out);
    fputc(']', out);
    if (option->value[0] != '\0')
        fprintf(out, ":%s:%s%s%s", option->value,
                file            ? "_files"
                : words != NULL ? "("
                                : "",
                words != NULL ? words : "", words != NULL ? ")" : "");
    fputc('\'', out);
}

static void print_zsh(const fa2i_command *commands, size_t count, const char *archs, FILE *out)
{
    option_help option;
    bool file = false;
    fputs("#compdef fa2-tune\n# made by: fa2-tune completion zsh\n"
          "_fa2_tune() {\n    local command=tune\n    local -a commands=(\n",
          out);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "        '%s:", commands[i].name);
        print_quoted(commands[i].summary, "", out);
        fputs("'\n", out);
    }
    fputs("    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n        "
          "compadd -- "
          "--version\n    fi\n"
          "    if [[ $words[2] != -* ]]; then\n        command=$words[2]\n        (( CURRENT > 2 "
          ")) || return\n"
          "    fi\n    case $command in\n",
          out);
    for (size_t i = 0; i < count; i++) {
        const char *words = words_of(commands[i].synopsis, archs, &file);
        fprintf(out, "        %s) _arguments", commands[i].name);
        print_zsh_option(&help_option, archs, out);
        for (const char *help = commands[i].help; next_option(&help, &option);)
            print_zsh_option(&option, archs, out);
        if (strcmp(commands[i].synopsis, "[COMMAND]") == 0)
            fputs(" \\\n            '2:command:{_describe command commands}' ;;\n", out);
        else if (words != NULL)
            fprintf(out, " \\\n            '2:%s:(%s)' ;;\n", commands[i].synopsis, words);
        else if (strncmp(commands[i].synopsis, "FILE", 4) == 0 || strstr(commands[i].synopsis, "PROGRAM") != NULL)
            fputs(" \\\n            '*:file:_files' ;;\n", out);
        else
            fputs(" ;;\n", out);
    }
    fputs("    esac\n}\n_fa2_tune \"$@\"\n", out);
}

static void print_fish_option(const option_help *option, const char *condition, const char *archs, FILE *out)
{
    bool file = false;
    const char *words = words_of(option->value, archs, &file);
    fprintf(out, "complete -c fa2-tune -n '%s' -l %s%s", condition, option->name + 2,
            option->value[0] == '\0' ? ""
            : file                   ? " -r -F"
                                     : " -x");
    if (words != NULL)
        fprintf(out, " -a '%s'", words);
    fputs(" -d '", out);
    print_quoted(option->text, ";", out);
    fputs("'\n", out);
}

/* Prints the options of a command, valid under this condition of fish. */
static void print_fish_options(const fa2i_command *command, const char *condition, const char *archs, FILE *out)
{
    option_help option;
    print_fish_option(&help_option, condition, archs, out);
    for (const char *help = command->help; next_option(&help, &option);)
        print_fish_option(&option, condition, archs, out);
}

static void print_fish(const fa2i_command *commands, size_t count, const char *archs, FILE *out)
{
    bool file = false;
    fputs("# fish completion for fa2-tune; made by: fa2-tune completion fish\n"
          "function __fa2_tune_no_command\n    set -l words (commandline -opc)\n"
          "    test (count $words) -lt 2; or string match -q -- '-*' $words[2]\nend\n",
          out);
    print_fish_options(&commands[0], "__fa2_tune_no_command", archs, out);
    fputs("complete -c fa2-tune -n __fish_use_subcommand -l version -d 'print the version'\n", out);
    for (size_t i = 0; i < count; i++) {
        char condition[64];
        snprintf(condition, sizeof condition, "__fish_seen_subcommand_from %s", commands[i].name);
        fprintf(out, "complete -c fa2-tune -n __fish_use_subcommand -f -a %s -d '", commands[i].name);
        print_quoted(commands[i].summary, "", out);
        fputs("'\n", out);
        print_fish_options(&commands[i], condition, archs, out);
        const char *words = words_of(commands[i].synopsis, archs, &file);
        if (words != NULL)
            fprintf(out, "complete -c fa2-tune -n '%s' -f -a '%s'\n", condition, words);
        if (strcmp(commands[i].synopsis, "[COMMAND]") != 0)
            continue;
        for (size_t j = 0; j < count; j++)
            fprintf(out, "complete -c fa2-tune -n '%s' -f -a %s\n", condition, commands[j].name);
    }
}

bool fa2i_print_completion(const char *shell, const fa2i_command *commands, size_t count, const char *archs, FILE *out)
{
    if (strcmp(shell, "bash") == 0)
        print_bash(commands, count, archs, out);
    else if (strcmp(shell, "zsh") == 0)
        print_zsh(commands, count, archs, out);
    else if (strcmp(shell, "fish") == 0)
        print_fish(commands, count, archs, out);
    else
        return false;
    return true;
}
