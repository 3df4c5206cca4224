/*
 * If the database's data version is the same, so is its content.
 *
 * - The version is taken before the winners are read. So the next update notices a commit in between.
 * - SQLite may wait for another process, up to its busy timeout. So the second begins when it has answered or failed. A
 *   database that is always busy does not delay every plan.
 */
#include "runtime/plan/winners.h"

#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/clock.h"
#include "runtime/ops/op.h"

static fa2_status ask(fa2i_winners *winners, fa2i_cache *own, const fa2i_layers *below, int arch,
                      const fa2_problem *problem, bool *ret_read)
{
    fa2i_winners now = {.is_current = true};
    fa2_status st = own != NULL ? fa2i_cache_data_version(own, &now.version) : FA2_OK;
    if (st != FA2_OK || (winners->is_current && winners->version == now.version))
        return st;
    st = fa2i_layers_choices(own, below, arch, problem, fa2i_op_abi(problem), &now.choices, &now.count);
    if (st != FA2_OK)
        return st;
    fa2i_winners_done(winners);
    *winners = now;
    *ret_read = true;
    return FA2_OK;
}

fa2_status fa2i_winners_update(fa2i_winners *winners, fa2i_cache *own, const fa2i_layers *below, int arch,
                               const fa2_problem *problem, bool *ret_read)
{
    *ret_read = false;
    if (winners->asked_ns != 0 && fa2i_clock_ns() - winners->asked_ns < FA2I_SECOND_NS)
        return FA2_OK;
    fa2_status st = ask(winners, own, below, arch, problem, ret_read);
    winners->is_current = st == FA2_OK;
    winners->asked_ns = st == FA2_E_MEMORY ? 0 : fa2i_clock_ns();
    return st;
}

void fa2i_winners_drop(fa2i_winners *winners, const fa2i_key *kernel)
{
    size_t kept = 0;
    for (size_t i = 0; i < winners->count; i++)
        if (memcmp(&winners->choices[i].winner.kernel, kernel, sizeof(*kernel)) != 0)
            winners->choices[kept++] = winners->choices[i];
    winners->count = kept;
    winners->is_current = false;
}

void fa2i_winners_done(fa2i_winners *winners)
{
    fa2i_free(winners->choices);
    *winners = (fa2i_winners){0};
}
