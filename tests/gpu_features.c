/*
 * All features on a GPU, through the public API: every two settings of a problem that may occur together
 * (tests/pairs.h), forward and backward, on the tuner's verification cases, compared with the fp64 reference.
 * tests/gpu_grid.h describes the options. --small: every fifth case, and none for kernels that divide keys. --every:
 * every nth set of settings.
 *
 * Each problem gets the kernel that the runtime chooses without a database.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"
#include "tests/check.h"
#include "tests/gpu_grid.h"
#include "tests/pairs.h"
#include "tuner/judge/verify.h"
#include "tuner/worker/bench_internal.h"

enum { SMALL_STEP = 5 };

/* Poisons the outputs, launches once, and copies the outputs into `output`. bench: the tensors. */
static fa2_status launch(const gpu_launcher *own, fa2i_bench *bench, const fa2i_case *c, void *output,
                         uint32_t *ret_overwritten)
{
    size_t bytes = 0;
    fa2_status st = FA2_OK;
    uint32_t *guard = gpu_host(FA2I_GUARD_BYTES, 1);
    FA2_TRY(fa2i_bench_case(bench, c));
    FA2_TRY(fa2_workspace_size(own->context, &c->problem, &bytes));
    if (bytes > 0)
        FA2_TRY(fa2i_bench_give_workspace(bench, bytes));
    FA2_TRY(fa2i_bench_poison(bench));
    const fa2i_arguments arguments = fa2i_bench_arguments(bench, bytes);
    FA2_TRY(c->problem.op == FA2_OP_FORWARD
                ? fa2_forward(own->context, &c->problem, &arguments.forward, bench->stream)
                : fa2_backward(own->context, &c->problem, &arguments.backward, bench->stream));
    FA2_TRY(fa2i_bench_check(bench, bench->device.cuda->stream_synchronize(bench->stream), "the launch"));
    FA2_TRY(fa2i_bench_count_overwritten(bench, bytes, guard, ret_overwritten));
    FA2_TRY(fa2i_bench_output(bench, NULL, 0, output));
done:
    fa2i_free(guard);
    return st;
}

static void run_case(const gpu_launcher *own, fa2i_bench *bench, const fa2i_verify_case *vc)
{
    fa2i_expected expected = {0};
    fa2i_verification verdict = {.outcome = FA2I_OUTCOME_FAULT};
    uint32_t overwritten = 0;
    gpu_must_fa2(fa2i_expected_all(&vc->c, 1, &expected), vc->name);
    void *output = gpu_host(expected.output_bytes, 1);
    if (launch(own, bench, &vc->c, output, &overwritten) == FA2_OK)
        fa2i_expected_judge(&expected, vc->name, output, overwritten, &verdict);
    else
        snprintf(verdict.detail, sizeof verdict.detail, "%.500s", fa2_last_message());
    const bool right = verdict.outcome == FA2I_OUTCOME_OK;
    gpu_grid_note(own->grid, &vc->c.problem, vc->name, right ? "" : verdict.detail, right ? verdict.max_error : 0,
                  "an output");
    fa2i_free(output);
    fa2i_expected_done(&expected);
}

static void run_part(const gpu_launcher *own, const gpu_part *part)
{
    fa2i_bench bench = {0};
    fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX];
    gpu_must_fa2(fa2i_bench_open(&bench, 0), "the device");
    const size_t count = fa2i_judge_of(part->class.op)->cases(&part->class, bench.device.card.sm_count, cases);
    for (size_t i = 0; i < count; i++)
        if (!own->grid->options.small || (i % SMALL_STEP == SMALL_STEP - 1 && !cases[i].divided))
            run_case(own, &bench, &cases[i]);
    fa2i_bench_done(&bench);
}

/* Lists all classes, except those for instructions that this SM lacks. */
static void list_classes(gpu_grid *grid, fa2_dtype dtype, int arch)
{
    const gpu_grid_options *o = &grid->options;
    size_t found = 0;
    for (int list = 0; list < PAIRS_LISTS; list++) {
        uint64_t sets[PAIRS_SETS_MAX];
        const bool own = list != PAIRS_FORWARD && list != PAIRS_BACKWARD;
        const size_t count = own && arch != 90 ? 0 : pairs_sets((pairs_list)list, sets);
        for (size_t i = 0; i < count; i++) {
            const gpu_part part = {.class = pairs_problem((pairs_list)list, dtype, sets[i], i + (size_t)dtype)};
            if ((o->dim == 0 || o->dim == part.class.head_dim) && found++ % (size_t)o->every == 0)
                gpu_grid_add(grid, &part);
        }
    }
}

int main(int argc, char **argv)
{
    static const gpu_grid_test test = {"gpu_features", run_part, .list_classes = list_classes};
    return gpu_grid_main(argc, argv, &test);
}
