#include "tests/sim/sweep_choice.h"
#include <string.h>
#include "tests/pairs.h"

enum { KINDS = 3 };

/* Returns a kind: forward, if blocks divide the keys; backward, if blocks divide the queries, and if separate blocks
 * compute dQ. */
static int kind_of(const sweep_candidate *c)
{
    const char *text = c->variant.text;
    if (c->variant.recipe.waves > 0)
        return 1;
    return strstr(text, " dq=separate") != NULL || strstr(text, " dq=block") != NULL ? 2 : 0;
}

/* ---- cards with their own instructions ---- */

static unsigned cards_with_own(const sweep *s)
{
    unsigned cards = 0;
    for (int i = 0; i < s->card_count; i++)
        cards |= (unsigned)sweep_has_own(s, i) << i;
    return cards;
}

void sweep_prefer_own(sweep *s)
{
    bool has_own[KINDS] = {false};
    size_t kept = 0;
    for (size_t i = 0; i < s->candidate_count; i++)
        has_own[kind_of(&s->candidates[i])] |= sweep_is_own(&s->candidates[i]);
    for (size_t i = 0; i < s->candidate_count; i++) {
        sweep_candidate *c = &s->candidates[i];
        if (has_own[kind_of(c)] && !sweep_is_own(c))
            c->cards &= ~cards_with_own(s);
        if (c->cards != 0)
            s->candidates[kept++] = *c;
    }
    s->candidate_count = kept;
}

/* ---- permissions ---- */

static bool uses_permission(const sweep_candidate *c)
{
    return strstr(c->variant.text, " pv=fp16") != NULL || strstr(c->variant.text, " qk=int8") != NULL;
}

void sweep_prefer_permitted(sweep *s)
{
    unsigned cards = 0;
    size_t kept = 0;
    for (size_t i = 0; i < s->candidate_count; i++)
        if (uses_permission(&s->candidates[i]))
            cards |= s->candidates[i].cards;
    for (size_t i = 0; i < s->candidate_count; i++) {
        sweep_candidate *c = &s->candidates[i];
        if (kind_of(c) == 0 && !sweep_is_own(c) && !uses_permission(c))
            c->cards &= ~cards;
        if (c->cards != 0)
            s->candidates[kept++] = *c;
    }
    s->candidate_count = kept;
}

/* ---- every n-th ---- */

void sweep_want_some(const sweep *s, size_t step, size_t turn, sweep_wanted wanted)
{
    for (int divided = 0; divided < 2; divided++) {
        size_t count = 0, seen = turn;
        for (size_t i = 0; i < s->candidate_count; i++)
            count += (s->candidates[i].variant.recipe.waves > 0) == divided;
        const size_t every = step > count ? count : step;
        for (size_t i = 0; i < s->candidate_count; i++)
            if ((s->candidates[i].variant.recipe.waves > 0) == divided && seen++ % every == 0)
                wanted[i] = s->candidates[i].cards;
    }
}

/* ---- each card ---- */

/* Returns how many of the cards have the candidate, 0 if it is of another kind. */
static int served_by(const sweep_candidate *c, int kind, unsigned cards)
{
    return kind_of(c) == kind ? pairs_ones(c->cards & cards) : 0;
}

/* Wants one candidate of a kind on each card that has any. Returns the cards that have none. */
static unsigned want_kind(const sweep *s, int kind, unsigned cards, size_t turn, sweep_wanted wanted)
{
    for (;;) {
        int most = 0;
        size_t count = 0, at = 0;
        for (size_t i = 0; i < s->candidate_count; i++)
            if (served_by(&s->candidates[i], kind, cards) > most)
                most = served_by(&s->candidates[i], kind, cards);
        if (most == 0)
            return cards;
        for (size_t i = 0; i < s->candidate_count; i++)
            count += served_by(&s->candidates[i], kind, cards) == most;
        for (size_t i = 0, left = turn * 37 % count; i < s->candidate_count; i++)
            if (served_by(&s->candidates[i], kind, cards) == most && left-- == 0)
                at = i;
        wanted[at] |= s->candidates[at].cards & cards;
        cards &= ~s->candidates[at].cards;
    }
}

static bool is_own(const sweep *s, int kind)
{
    bool own = false;
    for (size_t i = 0; i < s->candidate_count; i++)
        own |= kind_of(&s->candidates[i]) == kind && sweep_is_own(&s->candidates[i]);
    return own;
}

static void want_forward(const sweep *s, size_t turn, bool both, sweep_wanted wanted)
{
    const unsigned all = (1u << s->card_count) - 1;
    const int first = (int)(turn % 2), second = 1 - first;
    const unsigned left = want_kind(s, first, all, turn, wanted);
    const unsigned others = is_own(s, second) ? all : left | (both ? all & ~cards_with_own(s) : 0);
    want_kind(s, second, others, turn, wanted);
}

void sweep_want_each(const sweep *s, fa2_op op, size_t turn, bool both, sweep_wanted wanted)
{
    unsigned left = (1u << s->card_count) - 1;
    if (op == FA2_OP_FORWARD)
        want_forward(s, turn, both, wanted);
    else /* the first kind stays for several turns, because D changes each turn */
        for (size_t i = 0; i < KINDS; i++)
            left = want_kind(s, (int)((turn / PAIRS_TURNS + i) % KINDS), left, turn, wanted);
}

/* ---- axis values ---- */

typedef struct covering {
    const sweep *s;
    size_t at[SWEEP_CANDIDATES_MAX];
    bool run[SWEEP_CANDIDATES_MAX];
    size_t count;
} covering;

static const char *text_of(const void *user, size_t i)
{
    const covering *c = user;
    return c->s->candidates[c->at[i]].variant.text;
}

void sweep_want_axes(sweep *s, bool one_card, sweep_wanted wanted)
{
    static covering c;
    c.s = s;
    c.count = 0;
    for (size_t i = 0; i < s->candidate_count; i++) {
        const sweep_candidate *candidate = &s->candidates[i];
        if (!sweep_is_own(candidate) && (candidate->cards & ~cards_with_own(s)) == 0)
            continue;
        c.run[c.count] = wanted[i] != 0;
        c.at[c.count++] = i;
    }
    axes_cover(&s->axes, text_of, &c, c.count, c.run);
    for (size_t i = 0; i < c.count; i++) {
        const unsigned cards = s->candidates[c.at[i]].cards;
        if (c.run[i] && wanted[c.at[i]] == 0)
            wanted[c.at[i]] = one_card ? cards & (0u - cards) : cards;
    }
}
