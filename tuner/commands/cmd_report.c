/*
 * fa2-tune report: a database as one page for people, or as markdown. Files are checked while no database is open
 * (place.h).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/shown.h"
#include "tuner/commands/commands.h"
#include "tuner/commands/database.h"
#include "tuner/commands/filter_options.h"
#include "tuner/commands/place.h"
#include "tuner/report/benchmark_file.h"
#include "tuner/report/page.h"

typedef struct session {
    fa2i_options options;
    fa2i_generator *generator;
    fa2i_cache *cache;
    fa2i_gathered tuned, other;
    char *text; /* of the page that is being written */
    size_t bytes;
} session;

static void session_done(session *s)
{
    fa2i_free(s->text);
    fa2i_gathered_done(&s->tuned);
    fa2i_gathered_done(&s->other);
    fa2i_cache_close(s->cache);
    fa2i_generator_destroy(s->generator);
    fa2i_options_done(&s->options);
}

/* A page to write. path NULL: this format is not wanted. */
typedef struct output {
    const char *path;
    fa2i_page_format format;
    fa2i_destination place;
} output;

static fa2_status look(output *o)
{
    const fa2i_place_kind kind = {.name = "a report", .start = fa2i_page_start(o->format)};
    return o->path == NULL ? FA2_OK : fa2i_place_look(o->path, &kind, &o->place);
}

static fa2_status read_other(session *s)
{
    fa2i_cache *cache = NULL;
    if (s->options.against == NULL)
        return FA2_OK;
    fa2_status st = fa2i_database_open(s->options.against, FA2I_CACHE_READ, &cache);
    if (st == FA2_OK)
        st = fa2i_gather(cache, &s->options.filter, &s->other);
    fa2i_cache_close(cache);
    return st == FA2_OK ? st : fa2i_fail_prefix(st, "--against");
}

static fa2_status write_text(void *user, FILE *out)
{
    const session *s = user;
    if (fwrite(s->text, 1, s->bytes, out) == s->bytes && fflush(out) == 0)
        return FA2_OK;
    return fa2i_fail(FA2_E_IO, "the report cannot be written: %s", strerror(errno));
}

static fa2_status write_page(session *s, const output *o)
{
    const fa2i_page page = {.format = o->format,
                            .tuned = &s->tuned,
                            .other = s->options.against == NULL ? NULL : &s->other,
                            .cache = s->cache};
    if (o->path == NULL)
        return FA2_OK;
    fa2_status st = fa2i_page_make(s->generator, &page, &s->text, &s->bytes);
    if (st == FA2_OK)
        st = fa2i_place_write(&o->place, write_text, s);
    if (st == FA2_OK && !o->place.stream)
        fa2i_shown_print(stderr, "wrote %s: %zu bytes%s\n", o->path, s->bytes,
                         o->place.replaces ? ", in the place of the report that was there" : "");
    fa2i_free(s->text);
    s->text = NULL;
    return st;
}

/* Refuses a filter that no row passes. It is usually a mistake, and the empty page would replace a good one. But when
 * two databases are compared, it is a valid answer that they have nothing in common. */
static fa2_status check_filter(const session *s)
{
    if (!fa2i_filter_is_given(&s->options.filter) || s->options.against != NULL ||
        fa2i_rows_count(&s->tuned.winners) > 0 || fa2i_rows_count(&s->tuned.measurements) > 0)
        return FA2_OK;
    return fa2i_fail(FA2_E_NOT_FOUND,
                     "nothing in %s passes --shape, --op and --device, so no report was written; fa2-tune list "
                     "shows what is there",
                     fa2i_cache_path(s->cache));
}

int fa2i_cmd_report(int argc, char **argv)
{
    session s = {0};
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_options_parse(argc, argv, FA2I_OPT_FILTER | FA2I_OPT_REPORT | FA2I_OPT_DB, &s.options));
    output html = {s.options.html, FA2I_PAGE_HTML, {0}};
    output markdown = {s.options.markdown, FA2I_PAGE_MARKDOWN, {0}};
    if (html.path == NULL && markdown.path == NULL)
        markdown.path = "-";
    if (html.path != NULL && markdown.path != NULL && strcmp(html.path, markdown.path) == 0)
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "--html and --markdown both say %s, which holds one of them; name two",
                          html.path));
    FA2_TRY(look(&html));
    FA2_TRY(look(&markdown));
    FA2_TRY(fa2i_filter_find_device(&s.options));
    FA2_TRY(fa2i_generator_create(&s.generator));
    FA2_TRY(read_other(&s));
    FA2_TRY(fa2i_database_open(s.options.db, FA2I_CACHE_READ, &s.cache));
    FA2_TRY(fa2i_gather(s.cache, &s.options.filter, &s.tuned));
    FA2_TRY(check_filter(&s));
    if (s.options.bench != NULL)
        FA2_TRY(fa2i_benchmark_file_read(s.options.bench, &s.tuned));
    FA2_TRY(write_page(&s, &html));
    FA2_TRY(write_page(&s, &markdown));
done:
    session_done(&s);
    return st == FA2_OK ? FA2I_EXIT_OK : fa2i_report_failure(st);
}
