/*
 * fa2-tune import: reads an export, then compiles the winners' kernels if that is possible here.
 *
 * Code in an export is taken only with --trust. A variant that this generator does not know is skipped, with its
 * results. A variant that does not compile here stays without code, and the runtime treats it as not tuned.
 */
#include <stdio.h>
#include "cache/content/report.h"
#include "runtime/base/shown.h"
#include "tuner/commands/commands.h"
#include "tuner/commands/database.h"
#include "tuner/commands/interrupt.h"
#include "tuner/commands/place.h"
#include "tuner/report/progress.h"
#include "tuner/search/recompile.h"

/* An fa2i_variant_fn. */
static fa2_status know_variant(void *user, const fa2i_variant *theirs)
{
    fa2i_variant ours;
    const fa2_status st = fa2i_generator_variant(user, theirs->text, &ours);
    return st == FA2_OK ? fa2i_variant_check_class(theirs, ours.class_key) : st;
}

/* Prints how many of the file's rows are new. */
static void print_counts(const fa2i_import_counts *counts, const char *path)
{
    const size_t rows = counts->rows - counts->code_rows; /* as export counts them */
    fa2i_shown_print(stdout, "imported %zu new row%s into %s; of the %zu row%s of the file, %zu %s here already\n",
                     counts->fresh, fa2i_plural(counts->fresh), path, rows, fa2i_plural(rows), counts->known,
                     counts->known == 1 ? "was" : "were");
    if (counts->verifications > 0)
        printf("left out: %zu verification%s; a kernel is verified where it runs\n", counts->verifications,
               fa2i_plural(counts->verifications));
    if (counts->code_taken > 0)
        printf("took the code of %zu kernel%s\n", counts->code_taken, fa2i_plural(counts->code_taken));
    if (counts->code_left > 0)
        printf("left out: the code of %zu kernel%s; --trust takes it, from a file of your own machines\n",
               counts->code_left, fa2i_plural(counts->code_left));
    if (counts->unknown > 0)
        fa2i_shown_print(stdout,
                         "passed over: %zu row%s about %zu kernel%s that this fa2 does not know; the first: %s\n",
                         counts->passed_over, fa2i_plural(counts->passed_over), counts->unknown,
                         fa2i_plural(counts->unknown), counts->first_unknown);
}

/* Without NVRTC the rows stay, and a later import can compile them. Until then the imported winners are not used. */
static fa2_status compile_where_possible(fa2i_cache *cache, fa2i_generator *generator, int threads,
                                         const volatile sig_atomic_t *stop, bool *ret_failed)
{
    fa2i_recompiled of = {0};
    const fa2_status st = fa2i_recompile(cache, generator, threads, stop, &of);
    if (st == FA2_E_NO_NVRTC) {
        fprintf(stderr,
                "fa2-tune: the imported kernels are not compiled, so they are not used yet: %s\n"
                "Run the same import where NVRTC is.\n",
                fa2_last_message());
        *ret_failed = true;
        return FA2_OK;
    }
    if (st == FA2_OK && of.wanted > 0)
        printf("compiled %zu of %zu kernel%s without code here\n"
               "fa2-tune tune verifies what was compiled, on a device of this machine.\n",
               of.compiled, of.wanted, fa2i_plural(of.wanted));
    *ret_failed = of.failed + of.unknown > 0;
    return st;
}

int fa2i_cmd_import(int argc, char **argv)
{
    const volatile sig_atomic_t *stop = fa2i_interrupt_watch();
    fa2i_options options = {0};
    fa2i_cache *cache = NULL;
    fa2i_generator *generator = NULL;
    FILE *in = NULL;
    bool failed = false;
    fa2i_import_counts counts = {0};
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_options_parse(argc, argv, FA2I_OPT_DB | FA2I_OPT_JOBS | FA2I_OPT_FILE | FA2I_OPT_TRUST, &options));
    FA2_TRY(fa2i_place_open_export(options.positional, &in)); /* fails before anything is created */
    FA2_TRY(fa2i_generator_create_stoppable(stop, &generator));
    FA2_TRY(fa2i_database_open(options.db, FA2I_CACHE_WRITE, &cache));
    FA2_TRY((options.trust ? fa2i_cache_import_trusted : fa2i_cache_import)(
        cache, in, in == stdin ? "standard input" : options.positional, know_variant, generator, &counts));
    print_counts(&counts, fa2i_cache_path(cache));
    FA2_TRY(compile_where_possible(cache, generator, options.jobs, stop, &failed));
done:
    fa2i_generator_destroy(generator);
    if (in != NULL && in != stdin)
        fclose(in);
    const int status = st == FA2_OK ? FA2I_EXIT_OK : fa2i_report_failure(st);
    fa2i_cache_abandon(cache); /* removes a database that was just created, but not one with rows that came in before
                                * compiling failed */
    fa2i_options_done(&options);
    if (st != FA2_OK)
        return status;
    if (*stop != 0)
        return FA2I_EXIT_INTERRUPTED;
    return failed ? FA2I_EXIT_FAILED : FA2I_EXIT_OK;
}
