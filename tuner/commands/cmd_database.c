/*
 * fa2-tune check and gc work on a whole database, forget on a part of it.
 *
 * Opening for writing would create a database, which these commands must not do. So the database must be readable
 * before it is opened for writing.
 */
#include <stdio.h>
#include <string.h>
#include "cache/content/report.h"
#include "runtime/base/shown.h"
#include "tuner/commands/commands.h"
#include "tuner/commands/database.h"
#include "tuner/commands/filter_options.h"
#include "tuner/commands/interrupt.h"
#include "tuner/report/progress.h"
#include "tuner/search/recompile.h"

/* Opens an existing database for writing. stop: to mend it, until *stop becomes nonzero; NULL: not to mend it. */
static fa2_status open_existing(const char *path, const volatile sig_atomic_t *stop, fa2i_cache **ret_cache)
{
    fa2i_cache *readable = NULL;
    const fa2_status st = fa2i_database_open(path, FA2I_CACHE_READ, &readable);
    fa2i_cache_close(readable);
    if (st == FA2_E_NOT_FOUND)
        return st;
    /* Another failure may be an older version, which opening for writing upgrades. */
    return stop != NULL ? fa2i_database_open_to_mend(path, stop, ret_cache)
                        : fa2i_database_open(path, FA2I_CACHE_WRITE, ret_cache);
}

/* ---- check ---- */

/* Prints "BEFORE: finding". If the database was named (db), the command in the finding that mends it names it, too. */
static void print_finding(FILE *out, const char *before, const char *finding, const char *db)
{
    static const char command[] = "fa2-tune gc", with_name[] = " --db";
    const char *at = strstr(finding, command);
    const char *rest = at == NULL ? NULL : at + strlen(command);
    if (db == NULL || at == NULL || strncmp(rest, with_name, strlen(with_name)) == 0)
        fa2i_shown_print(out, "%s: %s\n", before, finding);
    else
        fa2i_shown_print(out, "%s: %.*s%s '%s'%s\n", before, (int)(rest - finding), finding, with_name, db, rest);
}

static void print_health(const char *path, const fa2i_cache_health *health)
{
    fa2i_shown_print(stdout, "database      %s\n", path);
    printf("kernels       %zu, %zu with code\n", health->kernels, health->images);
    printf("measurements  %zu\nwinners       %zu\n", health->measurements, health->winners);
    printf("damage        code %zu, rows with impossible values %zu, rows of another class %zu, "
           "rows that refer to nothing %zu, winners without code %zu, refuted %zu, failed %zu, "
           "of another version %zu, schema %s, file %s\n",
           health->damaged_images, health->faults, health->misfits, health->dangling, health->without_code,
           health->refuted, health->failed, health->other_version, health->schema ? "complete" : "not complete",
           health->intact ? "intact" : "not intact");
    if (!fa2i_cache_is_healthy(health))
        fa2i_shown_print(stdout, "first damage  %s\n", health->first_problem);
}

static void print_health_json(const char *path, const fa2i_cache_health *health)
{
    fa2i_json_write(stdout,
                    "{'database':%s,'kernels':%zu,'with_code':%zu,'measurements':%zu,'winners':%zu,'damaged_code':%zu,"
                    "'faults':%zu,'misfits':%zu,'dangling':%zu,'without_code':%zu,'refuted':%zu,'failed':%zu,"
                    "'other_version':%zu,'schema':%i,'intact':%i,'first_damage':%s}\n",
                    path, health->kernels, health->images, health->measurements, health->winners,
                    health->damaged_images, health->faults, health->misfits, health->dangling, health->without_code,
                    health->refuted, health->failed, health->other_version, health->schema, health->intact,
                    fa2i_cache_is_healthy(health) ? fa2i_json_null : health->first_problem);
}

int fa2i_cmd_check(int argc, char **argv)
{
    fa2i_options options = {0};
    fa2i_cache *cache = NULL;
    fa2i_cache_health health = {0};
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_options_parse(argc, argv, FA2I_OPT_DB | FA2I_OPT_JSON, &options));
    /* An intact database can be checked even if it cannot be written. */
    st = fa2i_database_open(options.db, FA2I_CACHE_READ, &cache);
    if (st == FA2_E_DATABASE)
        st = open_existing(options.db, NULL, &cache);
    FA2_TRY(st);
    FA2_TRY(fa2i_cache_check(cache, &health));
    if (options.json)
        print_health_json(fa2i_cache_path(cache), &health);
    else
        print_health(fa2i_cache_path(cache), &health);
    if (!fa2i_cache_is_healthy(&health)) {
        fa2i_shown_print(stderr, "fa2-tune: ");
        print_finding(stderr, fa2i_cache_path(cache), health.first_problem, options.db);
    }
done:
    fa2i_cache_close(cache);
    fa2i_options_done(&options);
    if (st != FA2_OK)
        return fa2i_report_failure(st);
    return fa2i_cache_is_healthy(&health) ? FA2I_EXIT_OK : FA2I_EXIT_FAILED;
}

/* ---- gc ---- */

static void print_cleanup(const fa2i_cache *cache, const fa2i_cache_cleanup *cleanup)
{
    if (cleanup->remade != NULL)
        fa2i_shown_print(stdout, "the file was damaged, and was made anew from what could be read: %s\n",
                         cleanup->remade);
    if (cleanup->mended > 0)
        printf("mended %zu value%s\n", cleanup->mended, fa2i_plural(cleanup->mended));
    printf("dropped the code of %zu kernel%s, %zu winner%s that could not serve and %zu other damaged row%s",
           cleanup->images, fa2i_plural(cleanup->images), cleanup->winners, fa2i_plural(cleanup->winners),
           cleanup->rows, fa2i_plural(cleanup->rows));
    if (cleanup->bytes_freed > 0)
        fa2i_shown_print(stdout, "; %s is %lld bytes smaller", fa2i_cache_path(cache), (long long)cleanup->bytes_freed);
    putchar('\n');
}

/* Compiles code for winners that lost it or never had any. Their measurements stay. Winners whose code cannot be made
 * count as unknown. */
static fa2_status give_code(fa2i_cache *cache, const fa2i_options *options, const volatile sig_atomic_t *stop,
                            fa2i_recompiled *ret_recompiled)
{
    fa2i_recompiled of = {0};
    fa2i_generator *generator = NULL;
    fa2_status st = fa2i_generator_create_stoppable(stop, &generator);
    if (st == FA2_OK)
        st = fa2i_recompile(cache, generator, options->jobs, stop, &of);
    fa2i_generator_destroy(generator);
    if (st == FA2_E_NO_NVRTC) {
        fprintf(stderr,
                "fa2-tune: %zu kernel%s of winners without code: the next call, or fa2-tune gc, "
                "compiles where NVRTC is; here: %s\n",
                of.wanted, fa2i_plural(of.wanted), fa2_last_message());
        ret_recompiled->unknown = of.wanted;
        return FA2_OK;
    }
    if (st == FA2_OK && of.wanted > 0)
        printf("compiled %zu of %zu kernel%s of winners without code\n", of.compiled, of.wanted,
               fa2i_plural(of.wanted));
    if (st == FA2_OK && of.unknown > 0)
        fprintf(stderr,
                "fa2-tune: for %zu kernel%s no code can be made here: tune the problems again that %s won, or "
                "fa2-tune forget --variant TEXT drops what is known of %s\n",
                of.unknown, fa2i_plural(of.unknown), of.unknown == 1 ? "it" : "they", of.unknown == 1 ? "it" : "them");
    *ret_recompiled = of;
    return st;
}

/* Says whether the file is still damaged. */
static fa2_status say_damage(fa2i_cache *cache, bool *ret_damaged)
{
    fa2i_cache_health health = {0};
    const fa2_status st = fa2i_cache_check(cache, &health);
    *ret_damaged = st == FA2_OK && fa2i_cache_is_damaged(&health);
    if (*ret_damaged)
        fa2i_shown_print(stderr, "fa2-tune: %s: is still damaged: %s\n", fa2i_cache_path(cache), health.first_problem);
    return st;
}

int fa2i_cmd_gc(int argc, char **argv)
{
    const volatile sig_atomic_t *stop = fa2i_interrupt_watch();
    fa2i_options options = {0};
    fa2i_cache *cache = NULL;
    fa2i_cache_cleanup cleanup = {0};
    fa2i_recompiled recompiled = {0};
    bool damaged = false;
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_options_parse(argc, argv, FA2I_OPT_DB | FA2I_OPT_JOBS | FA2I_OPT_MAX_SIZE, &options));
    FA2_TRY(open_existing(options.db, stop, &cache));
    if (options.max_bytes > 0) {
        FA2_TRY(fa2i_cache_set_limit(cache, options.max_bytes));
        printf("the file keeps code up to %lld bytes from now on\n", (long long)options.max_bytes);
    }
    FA2_TRY(fa2i_cache_gc(cache, -1, &cleanup));
    print_cleanup(cache, &cleanup);
    FA2_TRY(give_code(cache, &options, stop, &recompiled));
    if (recompiled.failed > 0) { /* they cannot serve */
        FA2_TRY(fa2i_cache_gc(cache, -1, &cleanup));
        print_cleanup(cache, &cleanup);
    }
    FA2_TRY(say_damage(cache, &damaged));
done:
    fa2i_cache_close(cache);
    fa2i_options_done(&options);
    if (st == FA2_OK && *stop != 0)
        return FA2I_EXIT_INTERRUPTED;
    if (st != FA2_OK)
        return fa2i_report_failure(st);
    return recompiled.unknown > 0 || damaged ? FA2I_EXIT_FAILED : FA2I_EXIT_OK;
}

/* ---- forget ---- */

/* Prints what was forgotten, or would be. */
static fa2_status print_forgotten(fa2i_cache *cache, const fa2i_options *options, const fa2i_forgotten *gone)
{
    printf("%s %zu measurement%s, %zu winner%s, %zu verification%s and %zu kernel%s\n",
           options->dry_run ? "to forget:" : "forgot", gone->measurements, fa2i_plural(gone->measurements),
           gone->winners, fa2i_plural(gone->winners), gone->verifications, fa2i_plural(gone->verifications),
           gone->kernels, fa2i_plural(gone->kernels));
    if (gone->measurements + gone->winners + gone->verifications + gone->kernels > 0)
        return FA2_OK;
    fa2i_shown_print(stderr, "fa2-tune: nothing in %s passes that\n", fa2i_cache_path(cache));
    return fa2i_database_say_devices(cache, &options->filter);
}

int fa2i_cmd_forget(int argc, char **argv)
{
    fa2i_options options = {0};
    fa2i_cache *cache = NULL;
    fa2i_forgotten gone = {0};
    fa2_status st = FA2_OK;
    FA2_TRY(
        fa2i_options_parse(argc, argv, FA2I_OPT_FILTER | FA2I_OPT_FORGET | FA2I_OPT_DB | FA2I_OPT_DRY_RUN, &options));
    if (!fa2i_filter_is_given(&options.filter))
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "forget needs --shape, --op, --device, --variant or --failures; everything "
                                         "is --device all"));
    FA2_TRY(fa2i_filter_find_device(&options));
    if (options.dry_run) {
        FA2_TRY(fa2i_database_open(options.db, FA2I_CACHE_READ, &cache));
        FA2_TRY(fa2i_database_check_device(&cache, 1, &options));
        FA2_TRY(fa2i_cache_would_forget(cache, &options.filter, &gone));
    } else {
        FA2_TRY(open_existing(options.db, NULL, &cache));
        FA2_TRY(fa2i_database_check_device(&cache, 1, &options));
        FA2_TRY(fa2i_cache_forget(cache, &options.filter, &gone));
    }
    FA2_TRY(print_forgotten(cache, &options, &gone));
    if (options.dry_run)
        st = fa2i_database_check_writable(options.db); /* otherwise the run would fail */
done:
    fa2i_cache_close(cache);
    fa2i_options_done(&options);
    return st == FA2_OK ? FA2I_EXIT_OK : fa2i_report_failure(st);
}
