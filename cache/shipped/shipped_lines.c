/*
 * How: read devices, problems, sessions and kernels into lists, and times into another one, which is then sorted into
 * sets.
 *
 * - The same rows count as in evidence.c, and in the same order.
 * - A line refers only to lines above it, so kernels are sorted by key once, when the first time comes.
 * - A kernel that spilled is evidence without a time. A database that lacks it need not compile it to find that out.
 * - An unknown id or key belongs to a line that was passed over, or is for another SM or operation.
 */
#include "cache/shipped/shipped_lines.h"

#include <stdlib.h>
#include <string.h>
#include "cache/shipped/flat.h"
#include "cache/database/rules.h"
#include "runtime/base/alloc.h"

enum { HEX_CHARS = 2 * FA2I_KEY_BYTES };

typedef struct device {
    int64_t id;
    fa2i_card card;
    bool real;
} device;

typedef struct problem {
    int64_t id;
    fa2_problem problem;
    char class_key[FA2I_CLASS_CHARS];
} problem;

typedef struct session {
    int64_t id;
    bool modelled;
} session;

typedef struct kernel {
    char hex[HEX_CHARS + 1];
    fa2i_known_kernel known;
    bool failed;
    size_t place; /* index in the evidence, + 1; 0: none yet */
} kernel;

typedef struct timing {
    size_t device, problem, kernel; /* indexes */
    bool modelled, of_winner;
    double us;
} timing;

/* A list that grows by doubling. */
typedef struct list {
    void *items;
    size_t count, room;
} list;

typedef struct reading {
    const fa2i_card *card;
    fa2_op op;
    int abi;
    list devices, problems, sessions, kernels, timings;
    bool sorted; /* kernels, by key */
    fa2i_flat line;
} reading;

/* Adds a zeroed item. Returns NULL if out of memory. */
static void *add(list *l, size_t item_bytes)
{
    void *grown = fa2i_room_for(l->items, l->count + 1, &l->room, item_bytes);
    if (grown == NULL)
        return NULL;
    l->items = grown;
    void *item = (char *)l->items + item_bytes * l->count++;
    memset(item, 0, item_bytes);
    return item;
}

static fa2_status no_memory(void)
{
    return fa2i_fail(FA2_E_MEMORY, "no memory for the times that come with fa2");
}

/* ---- rows that times refer to ---- */

static fa2_status add_device(reading *r)
{
    device d = {0};
    int real = 0;
    const fa2i_flat *o = &r->line;
    if (!fa2i_flat_integer(o, "id", &d.id) ||
        !fa2i_flat_text(o, "name", d.card.name, sizeof d.card.name) ||
        !fa2i_flat_int(o, "arch", &d.card.arch) || d.card.arch != r->card->arch ||
        !fa2i_flat_int(o, "sm_count", &d.card.sm_count) ||
        !fa2i_flat_int(o, "smem_block_bytes", &d.card.smem_block_bytes) ||
        !fa2i_flat_int(o, "smem_sm_bytes", &d.card.smem_sm_bytes) ||
        !fa2i_flat_integer(o, "l2_bytes", &d.card.l2_bytes) ||
        !fa2i_flat_int(o, "clock_khz", &d.card.clock_khz) ||
        !fa2i_flat_integer(o, "bandwidth_bytes", &d.card.bandwidth_bytes) ||
        !fa2i_flat_int(o, "real", &real) || !fa2i_card_is_sound(&d.card))
        return FA2_OK;
    d.real = real == 1;
    device *added = add(&r->devices, sizeof d);
    if (added == NULL)
        return no_memory();
    *added = d;
    return FA2_OK;
}

/* Reads a problem. Returns false if a member is no field that this fa2 knows, because it may be all that tells the
 * problem from another one. */
static bool read_problem(const fa2i_flat *o, fa2_problem *ret_problem)
{
    size_t known = 2; /* the members type and id */
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        const fa2i_field *f = &fa2i_fields[field];
        char word[32];
        int32_t value = 0;
        if (!fa2i_flat_has(o, f->name))
            continue;
        known++;
        if (f->type == FA2I_TYPE_INT ? !fa2i_flat_int(o, f->name, &value)
                                     : !fa2i_flat_text(o, f->name, word, sizeof word) ||
                                           !fa2i_field_parse_word(field, word, &value))
            return false;
        fa2i_field_set(ret_problem, field, value);
    }
    return known == o->count && fa2i_problem_check(ret_problem) == FA2_OK;
}

static fa2_status add_problem(reading *r)
{
    problem p = {.problem = {.struct_bytes = sizeof(fa2_problem)}};
    if (!fa2i_flat_integer(&r->line, "id", &p.id) || !read_problem(&r->line, &p.problem) ||
        p.problem.op != r->op)
        return FA2_OK;
    fa2i_problem_class(&p.problem, p.class_key);
    problem *added = add(&r->problems, sizeof p);
    if (added == NULL)
        return no_memory();
    *added = p;
    return FA2_OK;
}

static fa2_status add_session(reading *r)
{
    session s = {0};
    int modelled = 0;
    if (!fa2i_flat_integer(&r->line, "id", &s.id) ||
        !fa2i_flat_int(&r->line, "modelled", &modelled))
        return FA2_OK;
    s.modelled = modelled != 0;
    session *added = add(&r->sessions, sizeof s);
    if (added == NULL)
        return no_memory();
    *added = s;
    return FA2_OK;
}

static bool read_outcome(const fa2i_flat *o, fa2i_outcome *ret_outcome)
{
    char word[32];
    return fa2i_flat_text(o, "outcome", word, sizeof word) && fa2i_outcome_parse(word, ret_outcome);
}

static fa2_status add_kernel(reading *r)
{
    kernel k = {.known = {.shipped = true}};
    char recipe_text[FA2I_RECIPE_CHARS];
    fa2i_recipe recipe;
    fa2i_outcome outcome;
    const fa2i_flat *o = &r->line;
    if (!fa2i_flat_text(o, "key", k.hex, sizeof k.hex) || strlen(k.hex) != HEX_CHARS ||
        !fa2i_flat_text(o, "variant", k.known.text, sizeof k.known.text) ||
        !fa2i_flat_text(o, "class", k.known.class_key, sizeof k.known.class_key) ||
        !fa2i_flat_text(o, "recipe", recipe_text, sizeof recipe_text) ||
        fa2i_recipe_parse(recipe_text, &recipe) != FA2_OK || recipe.op != r->op ||
        recipe.abi != r->abi + fa2i_recipe_revision(k.known.class_key) ||
        fa2i_recipe_most_smem(&recipe) > r->card->smem_block_bytes ||
        !fa2i_flat_int(o, "registers", &k.known.registers) || k.known.registers < 0 ||
        !read_outcome(o, &outcome) ||
        (outcome != FA2I_OUTCOME_OK && outcome != FA2I_OUTCOME_SPILLED))
        return FA2_OK;
    k.known.spilled = outcome == FA2I_OUTCOME_SPILLED;
    kernel *added = add(&r->kernels, sizeof k);
    if (added == NULL)
        return no_memory();
    *added = k;
    return FA2_OK;
}

/* ---- times ---- */

static int by_key(const void *a, const void *b)
{
    return strcmp(((const kernel *)a)->hex, ((const kernel *)b)->hex);
}

static kernel *find_kernel(reading *r)
{
    kernel wanted;
    if (!r->sorted && r->kernels.count > 0)
        qsort(r->kernels.items, r->kernels.count, sizeof wanted, by_key);
    r->sorted = true;
    if (r->kernels.count == 0 || !fa2i_flat_text(&r->line, "kernel", wanted.hex, sizeof wanted.hex))
        return NULL;
    return bsearch(&wanted, r->kernels.items, r->kernels.count, sizeof wanted, by_key);
}

/* Finds the index of an id. Every item begins with its id. */
static bool find_id(const list *l, size_t item_bytes, const fa2i_flat *o, const char *name,
                    size_t *ret_index)
{
    int64_t id = 0, one;
    if (!fa2i_flat_integer(o, name, &id))
        return false;
    for (size_t i = 0; i < l->count; i++) {
        memcpy(&one, (const char *)l->items + i * item_bytes, sizeof one);
        if (one == id) {
            *ret_index = i;
            return true;
        }
    }
    return false;
}

static bool is_failure(fa2i_outcome outcome)
{
    return outcome == FA2I_OUTCOME_WRONG || outcome == FA2I_OUTCOME_FAULT ||
           outcome == FA2I_OUTCOME_HANG || outcome == FA2I_OUTCOME_LAUNCH_ERROR;
}

static fa2_status note_verification(reading *r)
{
    fa2i_outcome outcome;
    kernel *k = find_kernel(r);
    if (k != NULL && (!read_outcome(&r->line, &outcome) || outcome != FA2I_OUTCOME_OK))
        k->failed = true;
    return FA2_OK;
}

static fa2_status add_timing(reading *r, bool of_winner)
{
    const fa2i_flat *o = &r->line;
    timing t = {.of_winner = of_winner};
    size_t of = 0;
    int n = 0, measured = 0;
    fa2i_outcome outcome = FA2I_OUTCOME_OK;
    kernel *k = find_kernel(r);
    if (k == NULL || (!of_winner && !read_outcome(o, &outcome)))
        return FA2_OK;
    k->failed = k->failed || is_failure(outcome);
    if (outcome != FA2I_OUTCOME_OK ||
        !(of_winner ? fa2i_flat_int(o, "measured", &measured)
                    : fa2i_flat_int(o, "n", &n) && n > 0) ||
        !fa2i_flat_real(o, of_winner && !measured ? "model_us" : "median_us", &t.us) ||
        !(t.us > 0 && t.us <= FA2I_US_MAX) ||
        !find_id(&r->devices, sizeof(device), o, "device", &t.device) ||
        !find_id(&r->problems, sizeof(problem), o, "problem", &t.problem) ||
        !find_id(&r->sessions, sizeof(session), o, "session", &of))
        return FA2_OK;
    t.kernel = (size_t)(k - (kernel *)r->kernels.items);
    t.modelled = of_winner ? !measured : ((session *)r->sessions.items)[of].modelled;
    if (strcmp(k->known.class_key, ((problem *)r->problems.items)[t.problem].class_key) != 0)
        return FA2_OK;
    timing *added = add(&r->timings, sizeof t);
    if (added == NULL)
        return no_memory();
    *added = t;
    return FA2_OK;
}

static fa2_status add_measurement(reading *r)
{
    return add_timing(r, false);
}

static fa2_status add_winner(reading *r)
{
    return add_timing(r, true);
}

/* ---- lines ---- */

static const struct {
    const char *type;
    fa2_status (*take)(reading *r);
} types[] = {
    {"device", add_device}, {"problem", add_problem},         {"session", add_session},
    {"kernel", add_kernel}, {"measurement", add_measurement}, {"verification", note_verification},
    {"winner", add_winner}};

static fa2_status take_line(reading *r, const char *text, size_t bytes)
{
    char type[16];
    if (!fa2i_flat_read(text, bytes, &r->line) ||
        !fa2i_flat_text(&r->line, "type", type, sizeof type))
        return fa2i_fail(FA2_E_INVALID, "a line is no object with a type");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].type, type) == 0)
            return types[i].take(r);
    return FA2_OK;
}

/* Has a device of this SM come, or may one still come? Devices stand before all rows that refer to them. */
static bool is_about_sm(const reading *r, const char *line)
{
    static const char device_line[] = "{\"type\":\"device\"";
    return r->devices.count > 0 || strncmp(line, device_line, sizeof device_line - 1) == 0;
}

/* text, end: the lines from the second to the last but one. */
static fa2_status take_lines(reading *r, const char *text, const char *end)
{
    while (text < end && is_about_sm(r, text)) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const fa2_status st = take_line(r, text, (size_t)(newline - text));
        if (st != FA2_OK)
            return st;
        text = newline + 1;
    }
    return FA2_OK;
}

/* ---- sets ---- */

static int compare(size_t a, size_t b)
{
    return (a > b) - (a < b);
}

/* Sorts by device, problem, measured before modelled, and kernel; a winner's time comes after its measurement's. */
static int by_set(const void *a, const void *b)
{
    const timing *x = a, *y = b;
    int order = compare(x->device, y->device);
    order = order != 0 ? order : compare(x->problem, y->problem);
    order = order != 0 ? order : compare(x->modelled, y->modelled);
    order = order != 0 ? order : compare(x->kernel, y->kernel);
    return order != 0 ? order : compare(x->of_winner, y->of_winner);
}

static bool is_same_set(const timing *a, const timing *b)
{
    return a->device == b->device && a->problem == b->problem && a->modelled == b->modelled;
}

/* Returns the kernel's index in the evidence. Adds the kernel when its first time comes. */
static size_t place_of(kernel *k, fa2i_evidence *evidence)
{
    if (k->place == 0) {
        evidence->kernels[evidence->kernel_count++] = k->known;
        k->place = evidence->kernel_count;
    }
    return k->place - 1;
}

static void add_sets(reading *r, fa2i_evidence *evidence)
{
    const timing *timings = r->timings.items, *last = NULL;
    fa2i_known_set *set = NULL;
    for (size_t i = 0; i < r->timings.count; i++) {
        const timing *t = &timings[i];
        kernel *k = (kernel *)r->kernels.items + t->kernel;
        if (k->failed || (last != NULL && is_same_set(last, t) && last->kernel == t->kernel))
            continue;
        if (last == NULL || !is_same_set(last, t)) {
            const device *of = (device *)r->devices.items + t->device;
            set = &evidence->sets[evidence->set_count++];
            *set = (fa2i_known_set){.problem = ((problem *)r->problems.items)[t->problem].problem,
                                    .card = of->card,
                                    .real = of->real,
                                    .measured = !t->modelled,
                                    .shipped = true,
                                    .first = evidence->time_count};
        }
        evidence->times[evidence->time_count++] =
            (fa2i_known_time){.kernel = place_of(k, evidence), .us = t->us};
        set->count++;
        last = t;
    }
}

static void add_spilled(reading *r, fa2i_evidence *evidence)
{
    kernel *kernels = r->kernels.items;
    for (size_t i = 0; i < r->kernels.count; i++)
        if (kernels[i].known.spilled && !kernels[i].failed)
            (void)place_of(&kernels[i], evidence);
}

fa2_status fa2i_shipped_take(const char *text, const char *end, const fa2i_card *card, fa2_op op,
                             int abi, fa2i_evidence *evidence)
{
    fa2_status st = FA2_OK;
    reading r = {.card = card, .op = op, .abi = abi};

    FA2_TRY(take_lines(&r, text, end));
    if (r.timings.count > 0)
        qsort(r.timings.items, r.timings.count, sizeof(timing), by_set);
    FA2_TRY(fa2i_evidence_reserve(evidence, r.kernels.count, r.timings.count, r.timings.count));
    add_sets(&r, evidence);
    add_spilled(&r, evidence);
done:
    fa2i_free(r.devices.items);
    fa2i_free(r.problems.items);
    fa2i_free(r.sessions.items);
    fa2i_free(r.kernels.items);
    fa2i_free(r.timings.items);
    return st;
}
