/* Scripts that are wrong: endless loops, slow steps, invalid answers and files. All of them are stopped. */
#include <lauxlib.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include "generator_fixture.h"
#include "runtime/base/alloc.h"
#include "runtime/base/clock.h"
#include "runtime/lua/lua_host.h"

static char root[] = "/tmp/fa2_test_generator_XXXXXX";

static const char *inside(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(inside(name), "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* Makes this text the folder's gen/init.lua. */
static void write_init(const char *text)
{
    write_file("gen/init.lua", text);
}

/* Creating a generator, or asking it for candidates, must fail with this message. */
static void check_stopped(const char *script, const char *said)
{
    fa2i_generator *generator = NULL;
    fa2i_variant *list = NULL;
    size_t count = 0;
    const fa2_problem problem = problem_of(64, FA2_FP16, 0, 64);
    const fa2i_card card = {.name = "card", .arch = 80};
    write_init(script);
    fa2_status st = fa2i_generator_create(&generator);
    if (st == FA2_OK)
        st = fa2i_generator_candidates(generator, &problem, &card, &list, &count);
    CHECK_EQ(st, FA2_E_GENERATOR);
    CHECK_CONTAINS(fa2_last_message(), said);
    CHECK(list == NULL);
    fa2i_free(list);
    fa2i_generator_destroy(generator);
}

static void test_without_end(void)
{
    static const char steps[] = "run without end", bytes[] = "need too much memory";
    check_stopped("while true do end", steps);
    check_stopped("return {candidates = function() for i = 1, 9e15 do end end}", steps);
    check_stopped("local function loop() while true do end end\n"
                  "while true do pcall(loop) end",
                  steps);
    check_stopped("local t = {} for i = 1, 1e9 do t[i] = i end", bytes);
    check_stopped("local s = string.rep('x', 1e9)", bytes);
    check_stopped("while true do pcall(string.rep, 'x', 1e9) end", bytes);
    check_stopped("setmetatable({}, {__gc = function() while true do end end}) return {}", "there is no __gc here");
    check_stopped("return setmetatable({}, {__index = function(t, k) return t[k] end})", "C stack overflow");
}

/* Long calls of library functions. They work as in any Lua. */
static void test_long_calls(void)
{
    static const char script[] = "local text = ('the quick  brown fox\\n'):rep(2000)\n"
                                 "assert(select(2, text:gsub('%s+', ' ')) == 8000)\n"
                                 "local lines = 0 for line in text:gmatch('([^\\n]*)\\n') do lines = lines + 1 end\n"
                                 "assert(lines == 2000 and text:find('fox', 1, true) == 18)\n"
                                 "assert(('key = value'):match('^%s*(%w+)%s*=%s*(.-)%s*$') == 'key')\n"
                                 "assert(('%d[]-x'):find('[%]%d]', 2) and ('f(a(b))'):match('%b()') == '(a(b))')\n"
                                 "local list = {} for i = 1, 100000 do list[i] = -i end\n"
                                 "table.sort(list) table.insert(list, 1, 0) table.remove(list, 2)\n"
                                 "assert(list[1] == 0 and list[100000] == -1 and #table.concat(list, ',', 1, 2) == 8)\n"
                                 "assert(#table.move(list, 1, 100000, 2) == 100001 and #('ab'):rep(1 << 20, '-') > "
                                 "3000000)\n"
                                 "return {}";
    fa2i_generator *generator = NULL;
    write_init(script);
    const fa2_status st = fa2i_generator_create(&generator);
    if (st != FA2_OK)
        fprintf(stderr, "%s\n", fa2_last_message());
    CHECK_EQ(st, FA2_OK);
    fa2i_generator_destroy(generator);
}

static int run_script(lua_State *L)
{
    const char *script = lua_touserdata(L, 1);
    if (luaL_loadstring(L, script) != LUA_OK)
        return lua_error(L);
    lua_call(L, 0, 0);
    return 0;
}

/* Few instructions that take long. The limit of processor time ends them. A script that catches errors does not go
 * on. */
static void test_slow_steps(void)
{
    static const char *const scripts[] = {
        "local s = '' while true do s = s .. 'eighteen more bytes' end",
        "local a, b = ('x'):rep(1 << 25) .. 'a', ('x'):rep(1 << 25) .. 'b' while a < b do end",
        "local t = {} for i = 1, 100 do t[i] = ('x'):rep(1 << 20) .. i % 3 end "
        "while true do table.sort(t) end",
        "local t = {} for i = 1, 1 << 20 do t[i] = i end for i = 1, 1 << 20 do t[i] = nil end "
        "while true do next(t) end",
    };
    fa2i_lua_host host = {.limits.lua = NULL};
    write_init("return {}");
    CHECK_EQ(fa2i_lua_host_open(&host), FA2_OK);
    host.limits.seconds_max = 0.3;
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        char script[200];
        snprintf(script, sizeof script, "%s", scripts[i]);
        const double start = fa2i_clock_thread_s();
        CHECK_EQ(fa2i_lua_host_run(&host, run_script, script), FA2_E_GENERATOR);
        CHECK_CONTAINS(fa2_last_message(), "stopped after 0.3 s of processor time");
        CHECK(fa2i_clock_thread_s() - start < 5); /* one second; more under sanitizers */
    }
    char good_script[] = "local s = '' for i = 1, 1000 do s = s .. 'eighteen more bytes' end";
    CHECK_EQ(fa2i_lua_host_run(&host, run_script, good_script), FA2_OK);
    fa2i_lua_host_done(&host);
}

static volatile sig_atomic_t stop;

static void on_alarm(int number)
{
    (void)number;
    stop = 1;
}

/* The stop flag ends scripts in any state, and scripts that begin later. */
static void test_stop(void)
{
    static const char *const scripts[] = {
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local a, b = ('x'):rep(5e7) .. 'a', ('x'):rep(5e7) .. 'b' while a < b do end",
        "local s = 'x' while true do s = ('x'):rep(1000000) end",
    };
    const struct itimerval soon = {.it_value.tv_usec = 100000};
    const struct sigaction watched = {.sa_handler = on_alarm, .sa_flags = (int)SA_RESTART};
    struct sigaction before_it;
    fa2i_lua_host host = {.limits.stop = &stop};
    fa2i_generator *generator = NULL;
    write_init("return {}");
    CHECK_EQ(fa2i_lua_host_open(&host), FA2_OK);
    CHECK_EQ(sigaction(SIGALRM, &watched, &before_it), 0);
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        char script[200];
        struct timespec before, after;
        snprintf(script, sizeof script, "%s", scripts[i]);
        stop = 0;
        CHECK_EQ(setitimer(ITIMER_REAL, &soon, NULL), 0);
        CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before), 0);
        CHECK_EQ(fa2i_lua_host_run(&host, run_script, script), FA2_E_GENERATOR);
        CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after), 0);
        CHECK(after.tv_sec - before.tv_sec < 10); /* one second; more under sanitizers */
        CHECK_STR(fa2_last_message(), "interrupted while the scripts ran");
    }
    fa2i_lua_host_done(&host);
    write_init("while true do end");
    CHECK_EQ(fa2i_generator_create_stoppable(&stop, &generator), FA2_E_GENERATOR);
    CHECK_STR(fa2_last_message(), "interrupted while the scripts ran");
    CHECK_EQ(sigaction(SIGALRM, &before_it, NULL), 0);
}

/* The real scripts use only a small part of the limits. */
static void test_margins(void)
{
    fa2i_card card;
    fa2i_variant *list = NULL;
    size_t count = 0;
    struct timespec before, after;
    const fa2_problem problem = problem_of(128, FA2_FP16, 1, 4096);
    fa2i_generator *generator = open_generator();
    CHECK_EQ(fa2i_generator_card(generator, 90, &card), FA2_OK);
    CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before), 0);
    CHECK_EQ(fa2i_generator_candidates(generator, &problem, &card, &list, &count), FA2_OK);
    CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after), 0);
    const double seconds = (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
    fprintf(stderr, "candidates: %g s of %d s\n", seconds, FA2I_LUA_SECONDS_MAX);
    CHECK(seconds < 0.3 * FA2I_LUA_SECONDS_MAX); /* under sanitizers, too */
    fa2i_free(list);
    fa2i_generator_destroy(generator);
}

static void test_messages(void)
{
    check_stopped("error({})", "an error that is not a text but a table");
    check_stopped("return {candidates = function() error() end}", "not a text but a nil");
    write_file("gen/families.lua", "return {}");
    CHECK_EQ(remove(inside("gen/init.lua")), 0);
    fa2i_generator *generator = open_generator();
    fa2i_variant *list = NULL;
    size_t count = 0;
    fa2i_card card;
    const fa2_problem problem = problem_of(64, FA2_FP16, 0, 64);
    CHECK_EQ(fa2i_generator_card(generator, 80, &card), FA2_OK);
    CHECK_EQ(fa2i_generator_candidates(generator, &problem, &card, &list, &count), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "there are no families");
    fa2i_generator_destroy(generator);
    CHECK_EQ(remove(inside("gen/families.lua")), 0);
}

/* Checks the answer about a normal variant that `change` modifies. */
static void check_answer(const char *change, const char *said)
{
    char script[1024];
    snprintf(script, sizeof script,
             "local v = {text = 'fwd_x d=64', kind = {dtype = 'fp16', head_dim = 64}, cost_us = 1,\n"
             "           recipe = 'op=forward abi=2 rows=64 keys=32; fwd_x role=main threads=128 '\n"
             "                    .. 'smem=0 blocks=row_tiles'}\n"
             "local list = {v}\n"
             "%s\n"
             "return {candidates = function() return list end}\n",
             change);
    if (said != NULL) {
        check_stopped(script, said);
        return;
    }
    write_init(script);
    const fa2_problem problem = problem_of(64, FA2_FP16, 0, 64);
    const fa2i_card card = {.name = "card", .arch = 80};
    fa2i_generator *generator = open_generator();
    fa2i_variant *list = NULL;
    size_t count = 0;
    CHECK_EQ(fa2i_generator_candidates(generator, &problem, &card, &list, &count), FA2_OK);
    CHECK_EQ(count, 1);
    fa2i_free(list);
    fa2i_generator_destroy(generator);
}

static void test_answers(void)
{
    check_answer("", NULL);
    check_answer("v.recipe = v.recipe:gsub('rows=64', 'rows=0')", "rows is 0; it must be from 1");
    check_answer("v.recipe = v.recipe:gsub('keys=32', 'keys=0')", "keys is 0; it must be from 1");
    check_answer("v.recipe = v.recipe:gsub('=128', '=2048')", "threads is 2048; it must be");
    check_answer("v.recipe = nil", "field 'recipe' is no string");
    check_answer("v.kind.head_dim = (1 << 32) + 64", "'head_dim' is 4294967360; it must be");
    check_answer("v.cost_us = 0 / 0", "the cost of 'fwd_x d=64' is");
    check_answer("v.cost_us = math.huge", "the cost of 'fwd_x d=64' is");
    check_answer("v.cost_us = -9.9e9", "the cost of 'fwd_x d=64' is");
    check_answer("v.text = '../fwd d=64'", "does not begin with the name of a family");
    check_answer("list[1] = nil", "there are 0 candidates");
    check_answer("list = setmetatable({}, {__len = function() return 1 << 60 end})",
                 "there are 1152921504606846976 candidates");
}

/* A path that is no regular file is not read, because it may never end, or never begin. */
static void test_no_files(void)
{
    fa2i_generator *generator = NULL;
    CHECK_EQ(mkfifo(inside("gen/pipe.lua"), 0600), 0);
    CHECK_EQ(fa2i_generator_create(&generator), FA2_E_GENERATOR);
    CHECK_CONTAINS(fa2_last_message(), "gen/pipe.lua is no regular file");
    CHECK_EQ(remove(inside("gen/pipe.lua")), 0);
    CHECK_EQ(symlink("/dev/zero", inside("gen/zero.lua")), 0);
    CHECK_EQ(fa2i_generator_create(&generator), FA2_E_GENERATOR);
    CHECK_CONTAINS(fa2_last_message(), "gen/zero.lua is no regular file");
    CHECK_EQ(remove(inside("gen/zero.lua")), 0);
    FILE *file = fopen(inside("gen/long.lua"), "w");
    CHECK(file != NULL && ftruncate(fileno(file), (1 << 20) + 1) == 0 && fclose(file) == 0);
    CHECK_EQ(fa2i_generator_create(&generator), FA2_E_GENERATOR);
    CHECK_CONTAINS(fa2_last_message(), "gen/long.lua has 1048577 bytes; at most 1048576 are read");
    CHECK_EQ(remove(inside("gen/long.lua")), 0);
    CHECK(generator == NULL);
}

int main(void)
{
    generator_path(NULL);
    CHECK(mkdtemp(root) != NULL);
    CHECK_EQ(mkdir(inside("gen"), 0700), 0);
    setenv("FA2_GEN_PATH", root, 1);
    test_without_end();
    test_long_calls();
    test_slow_steps();
    test_stop();
    test_answers();
    test_no_files();
    test_messages();
    generator_path(NULL);
    test_margins();
    CHECK_EQ(rmdir(inside("gen")), 0);
    CHECK_EQ(rmdir(root), 0);
    return check_done();
}
