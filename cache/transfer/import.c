/*
 * Reads files that export.c wrote: JSON lines that may come from strangers.
 *
 * How: in one write transaction. Each line is read into the record that it describes, every member by its rule
 * (rules.def), and stored by its type. A temporary table translates the file's ids. A line may refer only to lines
 * above it.
 *
 * Invariants:
 * - the last line has the number of the rows and the hash of the text above it;
 * - code comes in only if the caller trusts the file, this user or root owns it, and no other user can write it (code.c);
 *   without it an imported kernel has no image until it is compiled here;
 * - existing rows win: rows are inserted or left alone, never replaced;
 * - a verification is read and checked, but not kept: a kernel counts as right only where it was verified;
 * - a measurement comes in unsettled: a tuner here makes its own before it skips the kernel;
 * - the kernel of a result must be of its problem's class;
 * - a kernel of an unknown variant is passed over and counted, with the rows that refer to it.
 */
#include "cache/transfer/import.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "runtime/base/alloc.h"

enum { LINE_BYTES_MAX = 16384 };

static fa2_status read_header(fa2i_import *in)
{
    if (!fa2i_members_has(&in->members, "fa2_export"))
        return fa2i_fail(FA2_E_INVALID, "this is no export of fa2: 'fa2_export' is missing");
    int64_t version = 0;
    const fa2_status st = fa2i_members_number(&in->members, "fa2_export", 1, INT64_MAX, &version);
    if (st == FA2_OK && version != FA2I_EXPORT_VERSION)
        return fa2i_fail(FA2_E_INVALID, "the export has format version %lld, this fa2 reads version %d: %s",
                         (long long)version, (int)FA2I_EXPORT_VERSION,
                         version > FA2I_EXPORT_VERSION ? "use a newer fa2" : "export it again with this fa2");
    return st;
}

static const char export_again[] = "the file was cut or changed; export it again";

/* Reads the last line, and checks that the text above it is the exported one. */
static fa2_status read_end(fa2i_import *in)
{
    fa2_status st;
    int64_t rows = 0;
    fa2i_key theirs;
    fa2i_key ours;
    FA2_TRY(fa2i_import_code_end(in));
    FA2_TRY(fa2i_members_number(&in->members, "rows", 0, INT64_MAX, &rows));
    FA2_TRY(fa2i_members_key(&in->members, "sha256", &theirs));
    if (rows != (int64_t)in->counts.rows)
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "'rows' is %lld, and above there are %zu: %s", (long long)rows,
                          in->counts.rows, export_again));
    SHA256Final(ours.bytes, &in->sha);
    if (memcmp(ours.bytes, theirs.bytes, FA2I_KEY_BYTES) != 0)
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "'sha256' is not that of the text above: %s", export_again));
    in->ended = true;
done:
    return st;
}

static fa2_status import_row(fa2i_import *in)
{
    static const struct {
        const char *type;
        fa2_status (*store)(fa2i_import *in);
    } types[] = {
        {"device", fa2i_import_device},
        {"problem", fa2i_import_problem},
        {"session", fa2i_import_session},
        {"kernel", fa2i_import_kernel},
        {"winner", fa2i_import_winner},
        {"measurement", fa2i_import_measurement},
        {"verification", fa2i_import_verification},
        {"code", fa2i_import_code},
    };
    char type[32];
    fa2_status st = fa2i_members_word(&in->members, "type", type, sizeof type);
    if (st == FA2_OK && strcmp(type, "end") == 0)
        return read_end(in);
    for (size_t i = 0; st == FA2_OK && i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(types[i].type, type) != 0)
            continue;
        const int before = sqlite3_total_changes(in->cache->db);
        in->type = in->members.table = types[i].type;
        in->ours = 0;
        in->is_unknown = false;
        st = types[i].store(in);
        in->counts.rows++;
        if (types[i].store == fa2i_import_code)
            in->counts.code_rows++;
        else if (in->is_unknown)
            in->counts.passed_over++;
        else if (types[i].store == fa2i_import_verification)
            in->counts.verifications++;
        else if (sqlite3_total_changes(in->cache->db) > before)
            in->counts.fresh++;
        else
            in->counts.known++;
        return st == FA2_OK && in->ours != 0 ? fa2i_import_remember_id(in) : st;
    }
    return st != FA2_OK ? st : fa2i_fail(FA2_E_INVALID, "'type' is '%s', which this fa2 does not know", type);
}

/* Reads the next line, without its newline. *ret_more is false at the end of the file. */
static fa2_status next_line(FILE *in, char *line, bool *ret_more)
{
    *ret_more = fgets(line, LINE_BYTES_MAX, in) != NULL;
    if (!*ret_more)
        return ferror(in) ? fa2i_fail(FA2_E_IO, "cannot be read (%s)", strerror(errno)) : FA2_OK;
    const size_t length = strlen(line);
    if (length > 0 && line[length - 1] == '\n')
        line[length - 1] = '\0';
    else if (!feof(in)) /* the line is too long or has a NUL byte */
        return fa2i_fail(FA2_E_INVALID, "the line has a NUL byte or more than %d bytes, which no export has",
                         LINE_BYTES_MAX - 2);
    return FA2_OK;
}

/* Is this a line that a field report appends to its export (tuner/bench/field.h)? Such lines are not kept. */
static bool is_report(const char *line)
{
    static const char start[] = "{\"fa2_report\":";
    return strncmp(line, start, sizeof start - 1) == 0;
}

static fa2_status import_line(fa2i_import *in, size_t number, const char *line)
{
    if (in->ended && is_report(line))
        return FA2_OK;
    if (in->ended)
        return fa2i_fail(FA2_E_INVALID, "there is a line behind the last one: %s", export_again);
    fa2_status st = fa2i_members_set(&in->members, line);
    if (st == FA2_OK)
        st = number == 1 ? read_header(in) : import_row(in);
    SHA256Update(&in->sha, (const uint8_t *)line, strlen(line));
    SHA256Update(&in->sha, (const uint8_t *)"\n", 1);
    return st;
}

static fa2_status import_lines(fa2i_import *in, FILE *file, char *line, size_t *number)
{
    bool more = true;
    for (*number = 1;; (*number)++) {
        fa2_status st = next_line(file, line, &more);
        if (st == FA2_OK && more)
            st = import_line(in, *number, line);
        if (st != FA2_OK)
            return st;
        if (more)
            continue;
        if (*number == 1)
            return fa2i_fail(FA2_E_INVALID, "the file is empty");
        if (!in->ended)
            return fa2i_fail(FA2_E_INVALID, "the line of type end is missing: %s", export_again);
        return FA2_OK;
    }
}

static fa2_status import_file(fa2i_cache *cache, FILE *in, const char *name, bool trusts_code, fa2i_variant_fn variant,
                              void *user, fa2i_import_counts *ret_counts)
{
    fa2_status st;
    fa2i_import state = {.cache = cache, .trusts_code = trusts_code, .variant = variant, .user = user};
    size_t number = 0;
    char *line = fa2i_alloc(LINE_BYTES_MAX);
    SHA256Init(&state.sha);
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_WRITE));
    if (line == NULL)
        FA2_TRY(fa2i_fail(FA2_E_MEMORY, "out of memory"));
    FA2_TRY(fa2i_members_open(cache, &state.members));
    FA2_TRY(fa2i_import_begin(cache));
    st = import_lines(&state, in, line, &number);
    if (st == FA2_E_INVALID || st == FA2_E_IO)
        (void)fa2i_fail_prefix(st, "%s:%zu", name, number);
    fa2i_members_done(&state.members); /* an open statement would keep the table locked */
    if (st == FA2_OK)
        FA2_TRY(fa2i_import_end(cache));
done:
    fa2i_members_done(&state.members);
    st = fa2i_sql_end(cache, st);
    fa2i_free(line);
    fa2i_free(state.code.data);
    if (st == FA2_OK && ret_counts != NULL)
        *ret_counts = state.counts;
    return st;
}

fa2_status fa2i_cache_import(fa2i_cache *cache, FILE *in, const char *name, fa2i_variant_fn variant, void *user,
                             fa2i_import_counts *ret_counts)
{
    return import_file(cache, in, name, false, variant, user, ret_counts);
}

/* The file is looked at where it is open, so what its folder holds later does not matter. */
fa2_status fa2i_cache_import_trusted(fa2i_cache *cache, FILE *in, const char *name, fa2i_variant_fn variant, void *user,
                                     fa2i_import_counts *ret_counts)
{
    struct stat info;
    if (fstat(fileno(in), &info) != 0 || !S_ISREG(info.st_mode))
        return fa2i_fail(FA2_E_INVALID, "%s: is no file whose owner could be trusted; write the export into a file",
                         name);
    if (info.st_uid != geteuid() && info.st_uid != 0)
        return fa2i_fail(FA2_E_DATABASE,
                         "%s: user %lu owns it, and its code would run as yours; import it without --trust, or a copy "
                         "of your own if you trust it",
                         name, (unsigned long)info.st_uid);
    if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return fa2i_fail(FA2_E_DATABASE,
                         "%s: others can write it, and its code would run as yours; import it without --trust, or a "
                         "copy that only you can write if you trust it",
                         name);
    return import_file(cache, in, name, true, variant, user, ret_counts);
}
