/*
 * fa2-tune export: writes the database as a file that import reads. Files are checked while no database is open
 * (place.h). A new file with code can be read and written by its owner alone.
 */
#include <stdio.h>
#include <sys/stat.h>
#include "cache/content/report.h"
#include "runtime/base/shown.h"
#include "tuner/commands/commands.h"
#include "tuner/commands/database.h"
#include "tuner/commands/place.h"
#include "tuner/report/progress.h"

typedef struct exporting {
    fa2i_cache *cache;
    bool with_code;
    fa2i_export_counts counts;
} exporting;

static fa2_status write_export(void *user, FILE *out)
{
    exporting *e = user;
    return e->with_code ? fa2i_cache_export_with_code(e->cache, out, &e->counts)
                        : fa2i_cache_export(e->cache, out, &e->counts);
}

int fa2i_cmd_export(int argc, char **argv)
{
    fa2i_options options = {0};
    exporting e = {0};
    fa2i_destination to = {0};
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_options_parse(argc, argv, FA2I_OPT_DB | FA2I_OPT_FILE | FA2I_OPT_WITH_CODE, &options));
    FA2_TRY(fa2i_place_look(options.positional, &fa2i_place_export, &to));
    FA2_TRY(fa2i_database_open(options.db, FA2I_CACHE_READ, &e.cache));
    e.with_code = options.with_code;
    if (e.with_code)
        (void)umask(S_IRWXG | S_IRWXO);
    FA2_TRY(fa2i_place_write(&to, write_export, &e));
    fa2i_shown_print(stderr, "exported %zu row%s of %s%s%s%s\n", e.counts.rows, fa2i_plural(e.counts.rows),
                     fa2i_cache_path(e.cache), to.stream ? "" : " to ", to.stream ? "" : to.path,
                     to.replaces ? ", in the place of the export that was there" : "");
    if (e.with_code)
        fprintf(stderr, "with the code of %zu kernel%s: fa2-tune import --trust takes it on your other machines\n",
                e.counts.with_code, fa2i_plural(e.counts.with_code));
    if (e.counts.left_out > 0)
        fprintf(stderr,
                "left out: %zu damaged row%s; fa2-tune check says what is wrong, fa2-tune gc mends or drops "
                "what is\n",
                e.counts.left_out, fa2i_plural(e.counts.left_out));
done:
    fa2i_cache_close(e.cache);
    fa2i_options_done(&options);
    return st == FA2_OK ? FA2I_EXIT_OK : fa2i_report_failure(st);
}
