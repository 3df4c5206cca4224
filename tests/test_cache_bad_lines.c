/* Importing a file that fa2 did not export, or that was cut or changed later: nothing is stored. */
#include "cache_fixture.h"

static void check_bad(fa2i_cache *cache, const char *text, size_t bytes, const char *line, const char *part)
{
    fa2i_import_counts counts = {.rows = 99};
    char where[64];
    CHECK_EQ(import_text(cache, text, bytes, &counts), FA2_E_INVALID);
    CHECK_EQ(counts.rows, 99);
    snprintf(where, sizeof where, "shared.jsonl:%s: ", line);
    CHECK_CONTAINS(fa2_last_message(), where);
    CHECK_CONTAINS(fa2_last_message(), part);
    CHECK_EQ(fixture_number(cache, "SELECT (SELECT count(*) FROM device) + (SELECT count(*) FROM kernel) + "
                                   "(SELECT count(*) FROM problem) + (SELECT count(*) FROM session)"),
             0); /* all or nothing */
}

/* One change to a good export each: the old text, the new text, and the line and a word of the message. */
static const struct bad {
    const char *part, *by, *line, *word;
} bad_lines[] = {
    {"{\"fa2_export\":2", "{\"fa2_export\":3", "1", "newer"},
    {"{\"fa2_export\":2", "{\"fa2_export\":1", "1", "export it again"},
    {"{\"fa2_export\":2", "{\"other\":1", "1", "no export of fa2"},
    {"{\"fa2_export\":2", "\"fa2_export\":2", "1", "not a JSON object"},
    {"{\"type\":\"device\"", "[\"device\"]\n{\"type\":\"device\"", "2", "not a JSON object"},
    {"{\"type\":\"device\"", "\n{\"type\":\"device\"", "2", "not a JSON object"},
    {"\"type\":\"device\"", "\"type\":\"image\"", "2", "'type' is 'image'"},
    {"\"type\":\"device\"", "\"tipe\":\"device\"", "2", "'type'"},
    {"\"name\":\"Sample RTX\"", "\"name\":\"\"", "2", "'name'"},
    {"\"name\":\"Sample RTX\"", "\"name\":\"\\u001b[2J\"", "2", "'name'"},
    {"\"name\":\"Sample RTX\"", "\"name\":\"\\u009b2J\"", "2", "'name'"},
    {"\"name\":\"Sample RTX\"", "\"name\":\"Sample\\u0000RTX\"", "2", "NUL byte"},
    {"\"name\":\"Sample RTX\"", "\"name\":\"Sample\\\\\\u0000\"", "2", "NUL byte"},
    {"\"name\":\"Sample RTX\"", "\"name\":7", "2", "'name'"},
    {"\"arch\":86", "\"arch\":8.6", "2", "'arch'"},
    {"\"arch\":86", "\"arch\":\"86\"", "2", "'arch'"},
    {"\"arch\":86", "\"arch\":-86", "2", "'arch'"},
    {"\"arch\":86", "\"arch\":99999999999999999999", "2", "'arch'"},
    {"\"sm_count\":28", "\"sm_count\":0", "2", "'sm_count'"},
    {"\"real\":1", "\"real\":true", "2", "'real'"},
    {"\"type\":\"problem\",\"id\":2", "\"type\":\"problem\",\"id\":1", "4", "two lines"},
    {"\"dtype\":\"fp16\"", "\"dtype\":\"fp17\"", "3", "fp17"},
    {"\"op\":\"forward\"", "\"op\":\"sideward\"", "3", "sideward"},
    {"\"heads_q\":8", "\"heads_q\":9", "3", "multiple"},
    {"\"head_dim\":64", "\"head_dim\":63", "3", "head_dim"},
    {"\"batch\":2", "\"batch\":2147483648", "3", "'batch'"},
    {"\"softcap\":0", "\"softcap\":2", "3", "softcap is 2"},
    {"\"softcap\":0", "\"softcup\":0", "3", "the member 'softcup'"},
    {"\"window_left\":0", "\"window_left\":7", "3", "must be 0 where window is none"},
    {",\"heads_q\":8", "", "3", "'heads_q'"},
    {"\"type\":\"session\",\"id\":1,\"device\":1", "\"type\":\"session\",\"id\":1,\"device\":9", "5",
     "no device with the id 9"},
    {"\"generator\":\"0123456789abcdef\"", "\"generator\":\"0123456789abcdeg\"", "5", "'generator'"},
    {"\"modelled\":0", "\"modelled\":2", "5", "'modelled'"},
    {"\"started_at\":\"2", "\"started_at\":\"x", "5", "'started_at'"},
    {"\"key\":\"", "\"key\":\"0", "7", "64 hex digits"},
    {"\"variant\":\"fwd_sm80", "\"variant\":\"fwd_sm80;", "7", "'variant'"},
    {"\"variant\":\"fwd_sm80", "\"variant\":\"FWD", "7", "'variant'"},
    {"\"target\":\"sm_86\"", "\"target\":\"sm_8x\"", "7", "'target'"},
    {"\"target\":\"sm_86\"", "\"target\":\"/bin/sh\"", "7", "'target'"},
    {"threads=128", "threads=1056", "7", "threads is 1056"},
    {"rows=64", "rows=0", "7", "rows is 0"},
    {"smem=49152", "smem=-1", "7", "smem"},
    {"\"recipe\":\"op", "\"recipe\":\"\\u001bop", "7", "'recipe'"},
    {"\"recipe\":\"op=forward", "\"recipe\":\"op=sideward", "7", "op=sideward is not known"},
    {"\"class\":\"D=64", "\"clas\":\"D=64", "7", "'class'"},
    {"\"outcome\":\"ok\"", "\"outcome\":\"fine\"", "7", "fine"},
    {"\"compile_ms\":812.5", "\"compile_ms\":1e999", "7", "'compile_ms'"},
    {"\"compile_ms\":812.5", "\"compile_ms\":NaN", "7", "not a JSON object"},
    {"\"type\":\"verification\",\"device\":1", "\"type\":\"verification\",\"device\":2", "10", "no device"},
    {"\"max_error\":0.5", "\"max_error\":-0.5", "10", "'max_error'"},
    {"\"problem\":1,\"session\":1", "\"problem\":7,\"session\":1", "13", "no problem with the id 7"},
    {"\"problem\":1,\"session\":1", "\"problem\":1,\"session\":7", "13", "no session with the id 7"},
    {"\"settled\":1", "\"settled\":2", "13", "'settled'"},
    {"\"median_us\":100.0", "\"median_us\":null", "13", "'median_us'"},
    {"\"n\":20", "\"n\":-1", "13", "'n'"},
    {"\"measured\":1", "\"measured\":[]", "16", "'measured'"},
    {"\"model_us\":25.0", "\"model_us\":\"25\"", "16", "'model_us'"},
    {"\"class\":\"D=64 dtype=fp16 causal=1", "\"class\":\"D=128 dtype=fp16 causal=1", "13", "of another class"},
    {"\"class\":\"D=64 dtype=fp16 causal=1", "\"class\":\"D=64 dtype=fp16 causal=0", "13", "of another class"},
    {"\"head_dim\":64", "\"head_dim\":128", "13", "of another class"},
};

static void test_bad_lines(const char *from, const char *to)
{
    fa2i_cache *source = fixture_open(from);
    fa2i_cache *target = fixture_open(to);
    fixture_fill(source);
    char *text = exported(source, NULL);
    for (size_t i = 0; i < sizeof bad_lines / sizeof bad_lines[0]; i++) {
        const struct bad *bad = &bad_lines[i];
        char *changed = replaced(text, bad->part, bad->by);
        check_bad(target, changed, strlen(changed), bad->line, bad->word);
        free(changed);
    }
    check_bad(target, "", 0, "1", "empty");
    check_bad(target, text, 0, "1", "empty");
    char *nul = replaced(text, "Sample", "Sam#le");
    *strchr(nul, '#') = '\0';
    check_bad(target, nul, strlen(text), "2", "NUL byte");
    free(nul);
    char *wide = malloc(40000);
    CHECK(wide != NULL);
    snprintf(wide, 40000, "%39999s", "{}");
    check_bad(target, wide, 39999, "1", "more than");
    free(wide);

    free(text);
    fa2i_cache_close(source);
    fa2i_cache_close(target);
}

/* The file is cut anywhere, a byte is changed anywhere, or a line is added or removed: nothing is stored. */
static void test_damaged_file(const char *from, const char *to)
{
    fa2i_cache *source = fixture_open(from);
    fa2i_cache *target = fixture_open(to);
    fixture_fill(source);
    char *text = exported(source, NULL);
    const size_t bytes = strlen(text);
    for (size_t cut = 0; cut + 1 < bytes; cut += cut % 97 == 0 ? 1 : 96)
        CHECK_EQ(import_text(target, text, cut, NULL), FA2_E_INVALID);
    for (const char *line = strchr(text, '\n') + 1; *line != '\0'; line = strchr(line, '\n') + 1) {
        char where[16];
        snprintf(where, sizeof where, "%d", number_of_lines(text, (size_t)(line - text)) + 1);
        check_bad(target, text, (size_t)(line - text), where, "was cut or changed; export it again");
    }
    for (size_t at = 0; at < bytes - 1; at += 89) {
        const char kept = text[at];
        text[at] = kept == '1' ? '2' : '1';
        CHECK_EQ(import_text(target, text, bytes, NULL), FA2_E_INVALID);
        text[at] = kept;
    }
    char *changed = replaced(text, "\"median_us\":100.0", "\"median_us\":200.0");
    check_bad(target, changed, bytes, "18", "'sha256' is not that of the text above");
    free(changed);
    changed = replaced(text, "{\"type\":\"measurement\"",
                       "{\"type\":\"device\",\"id\":7,\"name\":\"X\",\"arch\":80,\"sm_count\":1,"
                       "\"smem_block_bytes\":0,\"smem_sm_bytes\":0,\"l2_bytes\":0,"
                       "\"clock_khz\":0,\"bandwidth_bytes\":0,\"real\":1}\n"
                       "{\"type\":\"measurement\"");
    check_bad(target, changed, strlen(changed), "19", "'rows' is 16, and above there are 17");
    free(changed);
    char *behind = malloc(2 * bytes);
    CHECK(behind != NULL);
    snprintf(behind, 2 * bytes, "%s\n", text);
    check_bad(target, behind, bytes + 1, "19", "a line behind the last one");
    free(behind);
    CHECK_EQ(import_text(target, text, bytes, NULL), FA2_OK);
    free(text);
    fa2i_cache_close(source);
    fa2i_cache_close(target);
}

int main(void)
{
    static void (*const tests[])(const char *, const char *) = {test_bad_lines, test_damaged_file};
    fixture_each_pair(tests, sizeof tests / sizeof tests[0]);
    return check_done();
}
