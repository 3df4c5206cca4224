/*
 * The commands of fa2-tune. Each takes its own arguments (argv[0] is the command's name) and returns the exit status: 0
 * done; 1 something failed while working; 2 the caller's input is wrong; 3 no usable device. Results go to stdout,
 * everything else to stderr.
 */
#pragma once

#include "runtime/base/status.h"
#include "cache/content/filter.h"
#include "runtime/lua/generator.h"
#include "tuner/input/shapes.h"

enum {
    FA2I_EXIT_OK = 0,
    FA2I_EXIT_FAILED = 1,
    FA2I_EXIT_USAGE = 2,
    FA2I_EXIT_NO_DEVICE = 3,
    FA2I_EXIT_INTERRUPTED = 130 /* Ctrl-C or SIGTERM; finished work is kept (interrupt.h) */
};

enum { FA2I_ARCHS_MAX = 32, FA2I_DEVICE_ALL = -2 };

/* Returns whether arg is an option of any command whose value is the next argument. */
bool fa2i_options_takes_next(const char *arg);

/* Every option that a command can take; each command accepts a subset (fa2i_options_parse). */
typedef struct fa2i_options {
    fa2i_shapes shapes;        /* --preset, --shapes, --shape, in order; --op is shapes.ops */
    bool reads_stdin;          /* one of the --shapes is - */
    int device;                /* --device; -1: not given; FA2I_DEVICE_ALL */
    int archs[FA2I_ARCHS_MAX]; /* --arch sm_86,sm_89: 86, 89 */
    size_t arch_count;
    bool arch_all, arch_native;  /* --arch all, --arch native: fa2i_archs_find */
    fa2i_filter filter;          /* list, show, forget: --shape, --device, --op, --variant, --failures */
    bool filters_shape;          /* a --shape of show was a filter */
    char filter_device[128];     /* the name that filter.device points to if a number was given */
    bool force;                  /* --force */
    bool all;                    /* --all */
    bool share;                  /* --share */
    bool dry_run;                /* --dry-run */
    const char *db;              /* --db; NULL: the default path */
    int jobs;                    /* --jobs; 0: the number of processors */
    int64_t max_bytes;           /* --max-size; 0: not given */
    double budget_s;             /* --budget; 0: no budget */
    bool json;                   /* --json, --format json */
    bool csv;                    /* --format csv */
    int runs;                    /* --runs; 0: not given */
    bool cold;                   /* --cold */
    bool precisions;             /* --precisions */
    int rest_ms;                 /* --rest; 0: no rest */
    unsigned scales;             /* --scale, bits 1 << fa2i_scale */
    bool check;                  /* --check */
    bool with_code, trust;       /* --with-code of export, --trust of import */
    bool never_compile;          /* --never-compile */
    char **program;              /* the arguments after "--", ending with NULL; NULL: none */
    const char *positional;      /* the FILE of export, import and field-report; the VARIANT of source */
    bool ptx, sass, lines;       /* --ptx, --sass, --lines */
    const char *html, *markdown; /* files that report writes; NULL: not asked for */
    const char *against;         /* --against: a second database, or of bench an earlier result; NULL: none */
    double fail_above;           /* --fail-above: a share, 0.05 for 5%; 0: not given */
    const char *bench;           /* --bench: what bench or field-report wrote; NULL: none */
} fa2i_options;

/* The sets of options that a command takes. */
enum {
    FA2I_OPT_SHAPES = 1,
    FA2I_OPT_DEVICE = 2,
    FA2I_OPT_ARCH = 4,
    FA2I_OPT_DB = 8,
    FA2I_OPT_JOBS = 16,
    FA2I_OPT_BUDGET = 32,
    FA2I_OPT_JSON = 64,
    FA2I_OPT_FILE = 128,
    FA2I_OPT_PROGRAM = 256,
    FA2I_OPT_FILTER = 512,        /* --shape, --op, --device as filters */
    FA2I_OPT_FILTER_SHOWN = 1024, /* a --shape with all required fields is a problem, else a filter */
    FA2I_OPT_FORGET = 2048,
    FA2I_OPT_TUNE = 4096,         /* --all, --force, --share */
    FA2I_OPT_BENCH = 8192,        /* --runs, --rest, --cold, --scale, --format, --against, --fail-above */
    FA2I_OPT_REPORT = 16384,      /* --html, --markdown, --against, --bench */
    FA2I_OPT_CHECK = 32768,       /* --check */
    FA2I_OPT_DRY_RUN = 65536,     /* --dry-run */
    FA2I_OPT_EXPLAIN = 131072,    /* --never-compile */
    FA2I_OPT_MAX_SIZE = 262144,   /* --max-size */
    FA2I_OPT_SOURCE = 524288,     /* VARIANT, --ptx, --sass, --lines */
    FA2I_OPT_WITH_CODE = 1048576, /* --with-code */
    FA2I_OPT_TRUST = 2097152      /* --trust */
};

/* Parses a command line. FA2_E_INVALID names the option, the value and what is accepted. Strings are borrowed from
 * argv. Commands that work through problems (FA2I_OPT_SHAPES and FA2I_OPT_JOBS) get the preset "seeds" if neither shape
 * nor program is given. */
fa2_status fa2i_options_parse(int argc, char **argv, int accepted, fa2i_options *ret_options);
void fa2i_options_done(fa2i_options *options);

/* Parses the value of --arch, a list of "sm_86", "native" and "all". The generator checks later whether such an SM
 * exists. */
fa2_status fa2i_archs_parse(const char *value, fa2i_options *options);

/* Appends the SMs of --arch all and --arch native to those that were named. all: those that this NVRTC compiles for and
 * that a card stands for. native: the SMs of the devices here. Returns FA2_E_NO_NVRTC, FA2_E_NO_DRIVER or
 * FA2_E_NO_DEVICE. */
fa2_status fa2i_archs_find(fa2i_generator *generator, fa2i_options *options);

/* Returns the card of --device, or the one that stands for SM number n of --arch. */
fa2_status fa2i_archs_card(fa2i_generator *generator, const fa2i_options *options, size_t n, fa2i_card *ret_card);

/* Replaces a card by the proxy for the one SM of --arch, which must be older than the card's. Does nothing without
 * --arch. */
fa2_status fa2i_archs_play(fa2i_generator *generator, const fa2i_options *options, fa2i_card *card);

/* Prints "fa2-tune: message" with this thread's last message, and returns the exit status for it. After an interruption
 * that is FA2I_EXIT_INTERRUPTED, whatever failed because of it. */
int fa2i_report_failure(fa2_status status);

int fa2i_cmd_tune(int argc, char **argv);
int fa2i_cmd_bench(int argc, char **argv);
int fa2i_cmd_build(int argc, char **argv);
int fa2i_cmd_warm(int argc, char **argv);
int fa2i_cmd_devices(int argc, char **argv);
int fa2i_cmd_doctor(int argc, char **argv);
int fa2i_cmd_list(int argc, char **argv);
int fa2i_cmd_show(int argc, char **argv);
int fa2i_cmd_explain(int argc, char **argv);
int fa2i_cmd_source(int argc, char **argv);
int fa2i_cmd_field_report(int argc, char **argv);
int fa2i_cmd_report(int argc, char **argv);
int fa2i_cmd_export(int argc, char **argv);
int fa2i_cmd_import(int argc, char **argv);
int fa2i_cmd_check(int argc, char **argv);
int fa2i_cmd_gc(int argc, char **argv);
int fa2i_cmd_forget(int argc, char **argv);
int fa2i_cmd_worker(int argc, char **argv); /* not for people: the process that uses the GPU */
