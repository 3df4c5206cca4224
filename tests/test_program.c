/*
 * A program that fa2-tune runs: the environment that it gets, and what is left of it afterwards, if any allocation
 * fails.
 */
#include <stdlib.h>
#include <unistd.h>
#include "check.h"
#include "runtime/base/alloc.h"
#include "tuner/commands/interrupt.h"
#include "tuner/commands/program.h"

static char capture[] = "/tmp/fa2_test_program_XXXXXX";

static fa2_status run_shell(const char *command)
{
    char shell[] = "sh", option[] = "-c", text[128];
    char *argv[] = {shell, option, text, NULL};
    fa2i_shapes shapes = {0};
    bool failed = false;
    snprintf(text, sizeof text, "%s", command);
    const fa2_status st = fa2i_program_run(argv, "tuned.db", true, fa2i_interrupt_watch(), &shapes, &failed);
    CHECK(!failed); /* if it ran at all, it ended without error */
    fa2i_shapes_done(&shapes);
    return st;
}

static void check_environment(void)
{
    CHECK_STR(getenv("FA2_CAPTURE"), capture);
    CHECK_STR(getenv("FA2_DB"), "mine.db");
}

int main(void)
{
    const int file = mkstemp(capture);
    CHECK(file >= 0);
    close(file);
    setenv("FA2_CAPTURE", capture, 1);
    setenv("FA2_DB", "mine.db", 1);
    fa2_status st = FA2_E_MEMORY;
    for (long nth = 1; st == FA2_E_MEMORY && nth < 100; nth++) {
        (void)fa2i_alloc_fail_at(nth);
        st = run_shell("test \"${FA2_DB##*/}\" = tuned.db");
        check_environment();
    }
    (void)fa2i_alloc_fail_at(0);
    CHECK_EQ(st, FA2_E_NOT_FOUND); /* it never called fa2 */
    unlink(capture);
    return check_done();
}
