/*
 * Reading what export.c wrote: JSON lines that may come from strangers.
 *
 * How: one write transaction. Each line is read into the record that it describes, every member by its
 * rule (rules.def), and stored by its type. Ids of the file are translated by a temporary table; a line may
 * refer only to lines above it.
 *
 * Invariants:
 * - from format 2 on the last line counts the rows and has the hash of the text above it;
 * - no code comes in: an imported kernel has no image until it is compiled here;
 * - what is here already wins: rows are inserted or left alone, never replaced;
 * - a verification is read, checked, and not kept: a kernel is right only where it was verified;
 * - a measurement comes in unsettled: a tuner here makes its own before it skips the kernel;
 * - a result ties a kernel only to a problem of its class.
 */
#include "cache/report.h"

#include <errno.h>
#include <sha2.h>
#include <string.h>
#include "cache/members.h"
#include "cache/rules.h"
#include "cache/sound.h"
#include "cache/version_1.h"
#include "runtime/base/alloc.h"

enum { LINE_BYTES_MAX = 16384, END_LINE_SINCE = 2 };

typedef struct import {
    fa2i_cache *cache;
    fa2i_members members;
    int64_t version;  /* of the file's format */
    const char *type; /* of the current line: a table */
    int64_t ours;     /* the row id here of what the current line describes; 0: it has none */
    SHA2_CTX sha;     /* of the lines above the current one */
    bool ended;
    fa2i_variant_fn variant; /* may be NULL */
    void *user;
    fa2i_import_counts counts;
} import;

/* What the result lines refer to. */
typedef struct references {
    int64_t device, problem, session, kernel;
} references;

/* ---- ids ---- */

static const char id_table[] =
    "CREATE TEMP TABLE import_id (type TEXT NOT NULL, theirs INTEGER NOT NULL, "
    "ours INTEGER NOT NULL, PRIMARY KEY (type, theirs)) STRICT, WITHOUT ROWID";

static fa2_status remember_id(import *in)
{
    int64_t theirs = 0;
    fa2_status st = fa2i_members_number(&in->members, "id", 0, INT64_MAX, &theirs);
    if (st != FA2_OK)
        return st;
    const fa2i_sql_value values[] = {fa2i_sql_text(in->type), fa2i_sql_int(theirs),
                                     fa2i_sql_int(in->ours)};
    st = fa2i_sql_run(in->cache, "INSERT OR IGNORE INTO temp.import_id VALUES (?,?,?)",
                      FA2I_SQL_VALUES(values));
    if (st == FA2_OK && sqlite3_changes(in->cache->db) == 0)
        return fa2i_fail(FA2_E_INVALID, "'id' %lld is given to two lines of type %s",
                         (long long)theirs, in->type);
    return st;
}

/* The row here that a member of the current line refers to. */
static fa2_status look_up_id(import *in, const char *type, int64_t *ret_ours)
{
    int64_t theirs = 0;
    fa2_status st = fa2i_members_number(&in->members, type, 0, INT64_MAX, &theirs);
    if (st != FA2_OK)
        return st;
    const fa2i_sql_value values[] = {fa2i_sql_text(type), fa2i_sql_int(theirs)};
    st = fa2i_sql_number(in->cache, "SELECT ours FROM temp.import_id WHERE type = ? AND theirs = ?",
                         FA2I_SQL_VALUES(values), ret_ours);
    if (st == FA2_E_NOT_FOUND)
        return fa2i_fail(FA2_E_INVALID, "there is no %s with the id %lld above", type,
                         (long long)theirs);
    return st;
}

static fa2_status look_up_kernel(import *in, int64_t *ret_ours)
{
    fa2i_key key;
    fa2_status st = fa2i_members_key(&in->members, "kernel", &key);
    if (st == FA2_OK)
        st = fa2i_row_kernel_id(in->cache, &key, ret_ours);
    if (st == FA2_E_NOT_FOUND)
        return fa2i_fail(FA2_E_INVALID, "'kernel' is the key of no kernel above");
    return st;
}

/* ---- lines ---- */

static fa2_status import_device(import *in)
{
    fa2_status st;
    fa2i_card card = {0};
    bool is_real = false;

    FA2_TRY(fa2i_members_text(&in->members, "name", card.name, sizeof card.name));
    FA2_TRY(fa2i_members_int(&in->members, "arch", &card.arch));
    FA2_TRY(fa2i_members_int(&in->members, "sm_count", &card.sm_count));
    FA2_TRY(fa2i_members_int(&in->members, "smem_block_bytes", &card.smem_block_bytes));
    FA2_TRY(fa2i_members_int(&in->members, "smem_sm_bytes", &card.smem_sm_bytes));
    FA2_TRY(fa2i_members_int64(&in->members, "l2_bytes", &card.l2_bytes));
    FA2_TRY(fa2i_members_int(&in->members, "clock_khz", &card.clock_khz));
    FA2_TRY(fa2i_members_int64(&in->members, "bandwidth_bytes", &card.bandwidth_bytes));
    FA2_TRY(fa2i_members_bool(&in->members, "real", &is_real));
    FA2_TRY(fa2i_row_device(in->cache, &card, is_real, &in->ours));
done:
    return st;
}

/* What a problem's line may have: a member that this fa2 does not know may be all that tells the
 * problem from another. */
static const char unknown_member_sql[] = "SELECT key FROM json_each(?) WHERE key NOT IN "
                                         "('type', 'id'"
#define FA2I_FIELD(name, ...) ", '" #name "'"
#include "runtime/base/problem.def"
#undef FA2I_FIELD
                                         ")";

static fa2_status refuse_unknown_members(import *in)
{
    const fa2i_sql_value values[] = {fa2i_sql_text(in->members.line)};
    sqlite3_stmt *stmt = NULL;
    fa2_status st = fa2i_sql_row(in->cache, unknown_member_sql, FA2I_SQL_VALUES(values), &stmt);
    if (st == FA2_OK)
        st = fa2i_fail(FA2_E_INVALID,
                       "the problem has the member '%.60s', which this fa2 does not "
                       "know: use the newer fa2 that wrote the file",
                       (const char *)sqlite3_column_text(stmt, 0));
    else if (st == FA2_E_NOT_FOUND)
        st = FA2_OK;
    sqlite3_finalize(stmt);
    return st;
}

/* A field that texts leave out where it is 0 came later than some files: it may be missing. */
static bool may_be_missing(int field)
{
    const fa2i_field *f = &fa2i_fields[field];
    return f->needs >= 0 || !f->shown_always;
}

/* A member that is no column of its own. */
static fa2_status read_int(import *in, const char *name, int min, int max, int *ret)
{
    int64_t value = 0;
    const fa2_status st = fa2i_members_number(&in->members, name, min, max, &value);
    if (st == FA2_OK)
        *ret = (int)value;
    return st;
}

static fa2_status read_field(import *in, fa2_problem *problem, int field)
{
    const fa2i_field *f = &fa2i_fields[field];
    char word[32];
    int32_t value = 0;
    fa2_status st;
    if (may_be_missing(field) && !fa2i_members_has(&in->members, f->name))
        return FA2_OK;
    if (f->type == FA2I_TYPE_INT) {
        st = read_int(in, f->name, INT32_MIN, INT32_MAX, &value);
    } else {
        st = fa2i_members_word(&in->members, f->name, word, sizeof word);
        if (st == FA2_OK && !fa2i_field_parse_word(field, word, &value))
            st = fa2i_fail(FA2_E_INVALID, "'%s' is '%s', which this fa2 does not know", f->name,
                           word);
    }
    if (st == FA2_OK)
        fa2i_field_set(problem, field, value);
    return st;
}

static fa2_status import_problem(import *in)
{
    fa2_problem problem = {.op = FA2_OP_FORWARD};
    fa2_status st = refuse_unknown_members(in);
    for (int field = 0; st == FA2_OK && field < FA2I_FIELD_COUNT; field++)
        st = read_field(in, &problem, field);
    return st == FA2_OK ? fa2i_row_problem(in->cache, &problem, &in->ours) : st;
}

static fa2_status import_session(import *in)
{
    fa2_status st;
    int64_t device = 0;
    int driver = 0;
    int nvrtc = 0;
    char generator[17];
    char started_at[32];
    bool modelled = false; /* format 1 says it of each winner only */

    FA2_TRY(look_up_id(in, "device", &device));
    FA2_TRY(fa2i_members_int(&in->members, "driver", &driver));
    FA2_TRY(fa2i_members_int(&in->members, "nvrtc", &nvrtc));
    FA2_TRY(fa2i_members_text(&in->members, "generator", generator, sizeof generator));
    FA2_TRY(fa2i_members_text(&in->members, "started_at", started_at, sizeof started_at));
    if (in->version > 1)
        FA2_TRY(fa2i_members_bool(&in->members, "modelled", &modelled));
    const fa2i_sql_value values[] = {fa2i_sql_int(device),      fa2i_sql_int(driver),
                                     fa2i_sql_int(nvrtc),       fa2i_sql_text(generator),
                                     fa2i_sql_text(started_at), fa2i_sql_int(modelled)};
    /* a file that is imported again, or comes back to where it was written, adds nothing */
    st = fa2i_sql_number(in->cache,
                         "SELECT id FROM session WHERE device = ? AND driver = ? AND nvrtc = ? "
                         "AND generator = ? AND started_at = ? AND modelled = ?",
                         FA2I_SQL_VALUES(values), &in->ours);
    if (st == FA2_E_NOT_FOUND)
        st = fa2i_sql_number(in->cache,
                             "INSERT INTO session (device, driver, nvrtc, generator, started_at, "
                             "modelled, origin) VALUES (?,?,?,?,?,?,'import') RETURNING id",
                             FA2I_SQL_VALUES(values), &in->ours);
done:
    return st;
}

/* Class and recipe; format 1 had them in the variant's words and in numbers. */
static fa2_status read_launch(import *in, fa2i_variant *variant)
{
    fa2_status st;
    char recipe[FA2I_RECIPE_CHARS];
    fa2i_launch_1 launch = {0};

    if (in->version > 1) {
        FA2_TRY(fa2i_members_text(&in->members, "class", variant->class_key,
                                  sizeof variant->class_key));
        FA2_TRY(fa2i_members_text(&in->members, "recipe", recipe, sizeof recipe));
        FA2_TRY(fa2i_recipe_parse(recipe, &variant->recipe));
        goto done;
    }
    FA2_TRY(fa2i_class_1(variant->text, variant->class_key));
    FA2_TRY(read_int(in, "launch_abi", 1, 1000000, &launch.abi));
    FA2_TRY(read_int(in, "threads", 32, 1024, &launch.threads));
    FA2_TRY(read_int(in, "block_rows", 1, 65536, &launch.block_rows));
    FA2_TRY(read_int(in, "smem_bytes", 0, 1 << 20, &launch.smem_bytes));
    FA2_TRY(read_int(in, "key_step", 1, 65536, &launch.key_step));
    FA2_TRY(read_int(in, "waves", 0, 64, &launch.waves));
    FA2_TRY(fa2i_recipe_1(variant->text, &launch, &variant->recipe));
done:
    return st;
}

static fa2_status read_kernel(import *in, fa2i_kernel *kernel)
{
    fa2_status st;
    fa2i_variant *variant = &kernel->variant;

    FA2_TRY(fa2i_members_key(&in->members, "key", &kernel->key));
    FA2_TRY(fa2i_members_text(&in->members, "variant", variant->text, sizeof variant->text));
    FA2_TRY(read_launch(in, variant));
    FA2_TRY(fa2i_members_text(&in->members, "target", kernel->target, sizeof kernel->target));
    FA2_TRY(fa2i_members_int(&in->members, "nvrtc", &kernel->nvrtc));
    FA2_TRY(
        fa2i_members_text(&in->members, "generator", kernel->generator, sizeof kernel->generator));
    FA2_TRY(fa2i_members_outcome(&in->members, "outcome", &kernel->outcome));
    FA2_TRY(fa2i_members_int(&in->members, "registers", &kernel->registers));
    FA2_TRY(fa2i_members_int(&in->members, "spill_bytes", &kernel->spill_bytes));
    FA2_TRY(fa2i_members_real(&in->members, "compile_ms", &kernel->compile_ms));
done:
    return st;
}

static fa2_status import_kernel(import *in)
{
    fa2i_kernel kernel = {0};
    int64_t id = 0;
    fa2_status st = read_kernel(in, &kernel);
    if (st == FA2_OK && in->variant != NULL)
        st = in->variant(in->user, kernel.variant.text);
    if (st != FA2_OK)
        return st;
    st = fa2i_row_kernel_id(in->cache, &kernel.key, &id);
    return st == FA2_E_NOT_FOUND ? fa2i_row_put_kernel(in->cache, &kernel, &id) : st;
}

static fa2_status import_verification(import *in)
{
    fa2_status st;
    fa2i_verification verification;
    int64_t id = 0;
    char verified_at[32];

    FA2_TRY(look_up_id(in, "device", &id));
    FA2_TRY(look_up_kernel(in, &id));
    FA2_TRY(fa2i_members_outcome(&in->members, "outcome", &verification.outcome));
    FA2_TRY(fa2i_members_real(&in->members, "max_error", &verification.max_error));
    FA2_TRY(fa2i_members_remark(&in->members, "detail", verification.detail,
                                sizeof verification.detail));
    FA2_TRY(fa2i_members_text(&in->members, "verified_at", verified_at, sizeof verified_at));
done:
    return st;
}

static const char fits_sql[] = "SELECT k.class = p.class AND s.device = d.id AND " FA2I_TARGET_FITS
                               " FROM kernel k, problem p, session s, device d "
                               "WHERE k.id = ?1 AND p.id = ?2 AND s.id = ?3 AND d.id = ?4";

/* The device, problem, session and kernel of a result, which must fit together. */
static fa2_status read_references(import *in, references *ret)
{
    fa2_status st;
    references refs = {0};
    int64_t fits = 0;

    FA2_TRY(look_up_id(in, "device", &refs.device));
    FA2_TRY(look_up_id(in, "problem", &refs.problem));
    FA2_TRY(look_up_id(in, "session", &refs.session));
    FA2_TRY(look_up_kernel(in, &refs.kernel));
    const fa2i_sql_value values[] = {fa2i_sql_int(refs.kernel), fa2i_sql_int(refs.problem),
                                     fa2i_sql_int(refs.session), fa2i_sql_int(refs.device)};
    FA2_TRY(fa2i_sql_number(in->cache, fits_sql, FA2I_SQL_VALUES(values), &fits));
    if (fits == 0) {
        st = fa2i_fail(FA2_E_INVALID,
                       "the kernel is of another class than the problem or for another SM than the "
                       "device's, or the session is of another device");
        goto done;
    }
    *ret = refs;
done:
    return st;
}

static fa2_status refuse_fault(const char *fault)
{
    return fault == NULL ? FA2_OK : fa2i_fail(FA2_E_INVALID, "%s", fault);
}

static fa2_status import_measurement(import *in)
{
    fa2_status st;
    references refs = {0};
    fa2i_measurement m = {0};
    char measured_at[32];

    FA2_TRY(read_references(in, &refs));
    FA2_TRY(fa2i_members_outcome(&in->members, "outcome", &m.outcome));
    FA2_TRY(fa2i_members_bool(&in->members, "settled", &m.settled)); /* checked, and not kept */
    FA2_TRY(fa2i_members_int(&in->members, "n", &m.n));
    FA2_TRY(fa2i_members_real(&in->members, "min_us", &m.min_us));
    FA2_TRY(fa2i_members_real(&in->members, "q1_us", &m.q1_us));
    FA2_TRY(fa2i_members_real(&in->members, "median_us", &m.median_us));
    FA2_TRY(fa2i_members_real(&in->members, "q3_us", &m.q3_us));
    FA2_TRY(fa2i_members_real(&in->members, "max_error", &m.max_error));
    FA2_TRY(fa2i_members_remark(&in->members, "detail", m.detail, sizeof m.detail));
    FA2_TRY(fa2i_members_text(&in->members, "measured_at", measured_at, sizeof measured_at));
    FA2_TRY(refuse_fault(fa2i_measurement_fault(&m)));
    const fa2i_sql_value values[] = {fa2i_sql_int(refs.device),
                                     fa2i_sql_int(refs.problem),
                                     fa2i_sql_int(refs.kernel),
                                     fa2i_sql_int(refs.session),
                                     fa2i_sql_text(fa2i_outcome_string(m.outcome)),
                                     fa2i_sql_int(false),
                                     fa2i_sql_int(m.n),
                                     fa2i_sql_real(m.min_us),
                                     fa2i_sql_real(m.q1_us),
                                     fa2i_sql_real(m.median_us),
                                     fa2i_sql_real(m.q3_us),
                                     fa2i_sql_real(m.max_error),
                                     fa2i_sql_text(m.detail),
                                     fa2i_sql_text(measured_at)};
    FA2_TRY(
        fa2i_sql_run(in->cache,
                     "INSERT INTO measurement (device, problem, kernel, session, outcome, settled, "
                     "n, min_us, q1_us, median_us, q3_us, max_error, detail, measured_at) "
                     "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING",
                     FA2I_SQL_VALUES(values)));
done:
    return st;
}

static fa2_status import_winner(import *in)
{
    fa2_status st;
    references refs = {0};
    fa2i_winner w = {0};
    char tuned_at[32];

    FA2_TRY(read_references(in, &refs));
    FA2_TRY(fa2i_members_bool(&in->members, "measured", &w.measured));
    FA2_TRY(fa2i_members_real(&in->members, "median_us", &w.median_us));
    FA2_TRY(fa2i_members_real(&in->members, "default_us", &w.default_us));
    FA2_TRY(fa2i_members_real(&in->members, "model_us", &w.model_us));
    FA2_TRY(fa2i_members_text(&in->members, "tuned_at", tuned_at, sizeof tuned_at));
    FA2_TRY(refuse_fault(fa2i_winner_fault(&w)));
    const fa2i_sql_value values[] = {
        fa2i_sql_int(refs.device),   fa2i_sql_int(refs.problem), fa2i_sql_int(refs.kernel),
        fa2i_sql_int(refs.session),  fa2i_sql_int(w.measured),   fa2i_sql_real(w.median_us),
        fa2i_sql_real(w.default_us), fa2i_sql_real(w.model_us),  fa2i_sql_text(tuned_at)};
    FA2_TRY(
        fa2i_sql_run(in->cache,
                     "INSERT INTO winner (device, problem, kernel, session, measured, median_us, "
                     "default_us, model_us, tuned_at) VALUES (?,?,?,?,?,?,?,?,?) "
                     "ON CONFLICT DO NOTHING",
                     FA2I_SQL_VALUES(values)));
done:
    return st;
}

/* ---- the file ---- */

static fa2_status import_header(import *in)
{
    if (!fa2i_members_has(&in->members, "fa2_export"))
        return fa2i_fail(FA2_E_INVALID, "this is no export of fa2: 'fa2_export' is missing");
    fa2_status st = fa2i_members_number(&in->members, "fa2_export", 1, INT64_MAX, &in->version);
    if (st == FA2_OK && in->version > FA2I_EXPORT_VERSION)
        return fa2i_fail(
            FA2_E_INVALID,
            "the export has format version %lld, this fa2 reads up to %d: use a newer fa2",
            (long long)in->version, (int)FA2I_EXPORT_VERSION);
    return st;
}

static const char export_again[] = "the file was cut or changed; export it again";

/* The last line: is what is above it what was exported? */
static fa2_status import_end(import *in)
{
    fa2_status st;
    int64_t rows = 0;
    fa2i_key theirs;
    fa2i_key ours;

    FA2_TRY(fa2i_members_number(&in->members, "rows", 0, INT64_MAX, &rows));
    FA2_TRY(fa2i_members_key(&in->members, "sha256", &theirs));
    if (rows != (int64_t)in->counts.rows) {
        st = fa2i_fail(FA2_E_INVALID, "'rows' is %lld, and above there are %zu: %s",
                       (long long)rows, in->counts.rows, export_again);
        goto done;
    }
    SHA256Final(ours.bytes, &in->sha);
    if (memcmp(ours.bytes, theirs.bytes, FA2I_KEY_BYTES) != 0) {
        st = fa2i_fail(FA2_E_INVALID, "'sha256' is not that of the text above: %s", export_again);
        goto done;
    }
    in->ended = true;
done:
    return st;
}

static fa2_status import_row(import *in)
{
    static const struct {
        const char *type;
        fa2_status (*store)(import *in);
    } types[] = {
        {"device", import_device},
        {"problem", import_problem},
        {"session", import_session},
        {"kernel", import_kernel},
        {"winner", import_winner},
        {"measurement", import_measurement},
        {"verification", import_verification},
    };
    char type[32];
    fa2_status st = fa2i_members_word(&in->members, "type", type, sizeof type);
    if (st == FA2_OK && in->version >= END_LINE_SINCE && strcmp(type, "end") == 0)
        return import_end(in);
    for (size_t i = 0; st == FA2_OK && i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(types[i].type, type) != 0)
            continue;
        const int before = sqlite3_total_changes(in->cache->db);
        in->type = in->members.table = types[i].type;
        in->ours = 0;
        st = types[i].store(in);
        in->counts.rows++;
        if (types[i].store == import_verification)
            in->counts.verifications++;
        else if (sqlite3_total_changes(in->cache->db) > before)
            in->counts.fresh++;
        else
            in->counts.known++;
        return st == FA2_OK && in->ours != 0 ? remember_id(in) : st;
    }
    return st != FA2_OK
               ? st
               : fa2i_fail(FA2_E_INVALID, "'type' is '%s', which this fa2 does not know", type);
}

/* The next line without its newline; *ret_more is false at the end of the file. */
static fa2_status next_line(FILE *in, char *line, bool *ret_more)
{
    *ret_more = fgets(line, LINE_BYTES_MAX, in) != NULL;
    if (!*ret_more)
        return ferror(in) ? fa2i_fail(FA2_E_IO, "cannot be read (%s)", strerror(errno)) : FA2_OK;
    const size_t length = strlen(line);
    if (length > 0 && line[length - 1] == '\n')
        line[length - 1] = '\0';
    else if (!feof(in)) /* too long, or a NUL byte in it */
        return fa2i_fail(FA2_E_INVALID, "the line has a NUL byte or more than %d bytes",
                         LINE_BYTES_MAX - 2);
    return FA2_OK;
}

/* What a field report says behind its export (tuner/bench/field.h) is not kept. */
static bool is_report(const char *line)
{
    static const char start[] = "{\"fa2_report\":";
    return strncmp(line, start, sizeof start - 1) == 0;
}

static fa2_status import_line(import *in, size_t number, const char *line)
{
    if (in->ended && is_report(line))
        return FA2_OK;
    if (in->ended)
        return fa2i_fail(FA2_E_INVALID, "there is a line behind the last one: %s", export_again);
    fa2_status st = fa2i_members_set(&in->members, line);
    if (st == FA2_OK)
        st = number == 1 ? import_header(in) : import_row(in);
    SHA256Update(&in->sha, (const uint8_t *)line, strlen(line));
    SHA256Update(&in->sha, (const uint8_t *)"\n", 1);
    return st;
}

static fa2_status import_lines(import *in, FILE *file, char *line, size_t *number)
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
        if (in->version >= END_LINE_SINCE && !in->ended)
            return fa2i_fail(FA2_E_INVALID, "the line of type end is missing: %s", export_again);
        return FA2_OK;
    }
}

fa2_status fa2i_cache_import(fa2i_cache *cache, FILE *in, const char *name, fa2i_variant_fn variant,
                             void *user, fa2i_import_counts *ret_counts)
{
    fa2_status st;
import state = {.cache = cache, .variant = variant, .user = user };
    size_t number = 0;
    char *line = fa2i_alloc(LINE_BYTES_MAX);

    SHA256Init(&state.sha);
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_WRITE));
    if (line == NULL) {
        st = fa2i_fail(FA2_E_MEMORY, "out of memory");
        goto done;
    }
    FA2_TRY(fa2i_members_open(cache, &state.members));
    FA2_TRY(fa2i_sql_script(cache, id_table));
    st = import_lines(&state, in, line, &number);
    if (st == FA2_E_INVALID || st == FA2_E_IO)
        (void)fa2i_fail_prefix(st, "%s:%zu", name, number);
    fa2i_members_done(&state.members); /* an open statement would keep the table locked */
    if (st == FA2_OK)
        FA2_TRY(fa2i_sql_script(cache, "DROP TABLE temp.import_id"));
done:
    fa2i_members_done(&state.members);
    st = fa2i_sql_end(cache, st);
    fa2i_free(line);
    if (st == FA2_OK && ret_counts != NULL)
        *ret_counts = state.counts;
    return st;
}
