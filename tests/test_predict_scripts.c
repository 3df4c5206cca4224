/*
 * The scripts differ from those that wrote the database's kernels. The prediction about a call still equals what the
 * call does.
 */
#include "predict_fixture.h"
#include "scripts_fixture.h"

/* A valid kernel of the other scripts that was never timed is not used: the present scripts' kernel is compiled. */
static void test_untimed(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    fa2i_predicted f = {0};
    begin();
    fill();
    tuned_sql(&database, "DELETE FROM winner; DELETE FROM measurement");
    predict(&problem, true, &f);
    const fa2i_fate *fate = fate_of(&f, variants[0].text);
    CHECK(fate != NULL && fate->usable && !fate->code && !fate->damaged);
    compare(&problem, &f, &(damage_case){.rule = FA2_RULE_DEFAULT, .said = "first choice"});
    fa2i_predicted_done(&f);
    end(NULL);
}

/* A winner without code that the present scripts have already written, and whose code exists. */
static void test_written_before(bool nvrtc)
{
    const fa2_problem problem = tuned_problem(1, 512);
    fa2i_predicted f = {0};
    begin();
    fa2_context *context = create();
    CHECK_STR(explain(context, problem).variant, variants[0].text);
    fa2_context_destroy(context);
    fill();
    tuned_sql(&database, winners_code);
    if (!nvrtc)
        remove_nvrtc();
    log_of = (tuned_log){.count = 0};
    predict(&problem, true, &f);
    CHECK(f.compiled && !f.lost);
    compare(&problem, &f, &(damage_case){.rule = FA2_RULE_EXACT, .said = "the fastest for"});
    CHECK(strstr(log_of.text, "compiled again") == NULL);
    CHECK_CONTAINS(log_of.text, nvrtc ? "is lost, and is replaced by other code of this kernel"
                                      : "is lost, and its code for sm_86 is taken");
    CHECK(strstr(log_of.text, "passed over") == NULL);
    CHECK_EQ(f.decision.passed_count, 0);
    fa2i_predicted_done(&f);
    end(NULL);
    unsetenv("FA2_NVRTC_LIBRARY");
}

/* A lost winner's replacement is also chosen for another problem, which lost nothing. One of the winner's launches
 * failed before, so the winner is no kernel that the database offers to other problems. */
static void test_made_again(void)
{
    const fa2_problem both[] = {tuned_problem(1, 512), tuned_problem(1, 511)};
    fa2i_predicted f = {0}, of_both[2] = {{0}};
    begin();
    fill();
    tuned_sql(&database, "DELETE FROM measurement WHERE kernel NOT IN (SELECT kernel FROM winner); "
                         "UPDATE measurement SET outcome = 'launch_error'");
    tuned_sql(&database, winners_code);
    predict_all(both, 2, true, of_both);
    CHECK(!of_both[0].compiled && of_both[0].lost);
    predict(&both[1], true, &f);
    CHECK_STR(of_both[1].variant.text, variants[0].text);
    CHECK_STR(of_both[1].variant.text, f.variant.text);
    CHECK(!f.compiled && !f.lost);
    CHECK(!of_both[1].compiled && !of_both[1].lost);
    for (size_t i = 0; i < 2; i++)
        fa2i_predicted_done(&of_both[i]);
    fa2i_predicted_done(&f);
    end(NULL);
}

int main(void)
{
    fake_install();
    find_variants();
    fake_uninstall();
    scripts_begin();
    write_commented("other");
    test_untimed();
    test_written_before(true);
    test_written_before(false);
    test_made_again();
    scripts_end();
    return check_done();
}
