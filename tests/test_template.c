/* The template language: each rule, and each error with its line. Templates are written to a folder that FA2_GEN_PATH
 * names, and expanded as fwd_sm80's root template. */
#include <stdlib.h>
#include <sys/stat.h>
#include "check.h"
#include "runtime/base/alloc.h"
#include "runtime/lua/generator.h"

static const char variant[] = "fwd_sm80 d=40 dtype=fp16 causal=0 br=64 bc=32 warps=4 kstages=2 "
                              "vstages=2 layout=pad q=smem fill=whole";
static char folder[] = "/tmp/fa2-template-XXXXXX";

static void write_template(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/templates/%s", folder, name);
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fputs(text, file) >= 0);
    if (file != NULL)
        fclose(file);
}

/* Returns the expansion of a root template, NULL if it fails. The caller frees it. */
static char *expand(const char *text)
{
    fa2i_generator *generator = NULL;
    char *source = NULL;
    write_template("forward/fwd_sm80.cu.in", text);
    CHECK_EQ(fa2i_generator_create(&generator), FA2_OK);
    if (generator != NULL && fa2i_generator_source(generator, variant, &source) != FA2_OK)
        CHECK(source == NULL);
    fa2i_generator_destroy(generator);
    return source;
}

static void gives(const char *text, const char *expected)
{
    char *source = expand(text);
    CHECK_STR(source == NULL ? fa2_last_message() : source, expected);
    fa2i_free(source);
}

/* place: "FILE:LINE", the beginning of the message. message: the rest of it. */
static void fails(const char *text, const char *place, const char *message)
{
    char expected[256];
    snprintf(expected, sizeof expected, "templates/%s: %s", place, message);
    char *source = expand(text);
    CHECK(source == NULL);
    CHECK_STR(fa2_last_message(), expected);
    fa2i_free(source);
}

#define LINE(n) "#line " #n " \"templates/forward/fwd_sm80.cu.in\"\n"

static void test_values(void)
{
    gives("a $(d) $(br) b\n", LINE(1) "a 40 64 b\n");
    gives("$(dtype)$(layout)", LINE(1) "fp16pad\n");
    gives("$(br // warps) $((br + bc) * 2)\n", LINE(1) "16 192\n");
    gives("$(br / 128) $(br / 64)\n", LINE(1) "0.5 1\n");
    gives("$(q == \"reg\") $(q == \"smem\")\n", LINE(1) "false true\n");
    gives("$ (d) $d @ $(d)@\n", LINE(1) "$ (d) $d @ 40@\n");
    gives("\n\nx\n", LINE(1) "\n\nx\n");
}

static void test_blocks(void)
{
    gives("@ if d == 40 then\nyes\n@ end\nz\n", LINE(2) "yes\n" LINE(4) "z\n");
    gives("@if d == 8 then\nyes\n@else\nno\n@end\n", LINE(4) "no\n");
    gives("@ if d == 8 then\n1\n@ elseif d == 40 then\n2\n@ else\n3\n@ end\n", LINE(4) "2\n");
    gives("a\n@ if q == \"reg\" then\n$(nothing)\n@ end\nb\n", LINE(1) "a\n" LINE(5) "b\n");
    gives("  @ for i = 0, 1 do\n$(i)\n@ end\n", LINE(2) "0\n" LINE(2) "1\n");
    gives("@ for i = 4, 0, -2 do\n$(i)\n@ for j = i, i do\n$(j)\n@ end\n@ end\n",
          LINE(2) "4\n" LINE(4) "4\n" LINE(2) "2\n" LINE(4) "2\n" LINE(2) "0\n" LINE(4) "0\n");
    gives("@ for d = 1, 1 do\n$(d)\n@ end\n$(d)\n", LINE(2) "1\n" LINE(4) "40\n");
    gives("@ for i = 1, 0 do\nx\n@ end\n", "");
}

static void test_include(void)
{
    write_template("part.cu.in", "p $(i)\nq\n");
    gives("a\n@ for i = 1, 2 do\n@ include \"part.cu.in\"\n@ end\nb\n",
          LINE(1) "a\n"
                  "#line 1 \"templates/part.cu.in\"\np 1\nq\n"
                  "#line 1 \"templates/part.cu.in\"\np 2\nq\n" LINE(5) "b\n");
    write_template("list.def", "ITEM(a)\n"); /* a list that C can include, too */
    gives("@ include \"list.def\"\n", "#line 1 \"templates/list.def\"\nITEM(a)\n");
    write_template("bad.cu.in", "x\n$(typo)\n");
    fails("@ include \"bad.cu.in\"\n", "bad.cu.in:2", "undefined name 'typo'");
    write_template("self.cu.in", "\n@ include \"self.cu.in\"\n");
    fails("@ include \"self.cu.in\"\n", "self.cu.in:2", "'self.cu.in' includes itself");
    fails("x\n@ include \"gone.cu.in\"\n", "forward/fwd_sm80.cu.in:2", "there is no template 'gone.cu.in'");
    gives("@ include d == 40 and \"list.def\" or \"gone.cu.in\"\n", "#line 1 \"templates/list.def\"\nITEM(a)\n");
    fails("\n@ include part\n", "forward/fwd_sm80.cu.in:2", "undefined name 'part'");
    gives("@ include d == 1 and \"gone.cu.in\"\nx\n", "#line 2 \"templates/forward/fwd_sm80.cu.in\"\nx\n");
    fails("@ include d\n", "forward/fwd_sm80.cu.in:1", "'d' is no file's name");
    fails("@ include has.softcup and \"a\" or \"b\"\n", "forward/fwd_sm80.cu.in:1", "there is no feature 'softcup'");
}

/* Plain C++: no template language, and a header comes once. */
static void test_header(void)
{
    write_template("low.cuh", "#pragma once\nint low;\n");
    write_template("high.cuh", "#pragma once\n#include \"low.cuh\"\n\n// $(d)\n@ int high;\n#define LIST\n"
                               "#include \"list.def\"\n#include \"list.def\"\n");
    gives("@ include \"high.cuh\"\n@ include \"low.cuh\"\n@ include \"high.cuh\"\nend $(d)\n",
          "#line 2 \"templates/low.cuh\"\nint low;\n"
          "#line 3 \"templates/high.cuh\"\n\n// $(d)\n@ int high;\n#define LIST\n"
          "#line 1 \"templates/list.def\"\nITEM(a)\n"
          "#line 1 \"templates/list.def\"\nITEM(a)\n" LINE(4) "end 40\n");
    write_template("lost.cuh", "\n#include \"gone.cuh\"\n");
    fails("@ include \"lost.cuh\"\n", "lost.cuh:2", "there is no template 'gone.cuh'");
}

static void test_bad_values(void)
{
    fails("x\n$(typo)\n", "forward/fwd_sm80.cu.in:2", "undefined name 'typo'");
    fails("x\n@ if typo then\n@ end\n", "forward/fwd_sm80.cu.in:2", "undefined name 'typo'");
    fails("@ if d == 1 then\n@ elseif typo then\n@ end\n", "forward/fwd_sm80.cu.in:2", "undefined name 'typo'");
    fails("@ for i = 1, typo do\n@ end\n", "forward/fwd_sm80.cu.in:1", "undefined name 'typo'");
    fails("@ for i = 1, 1 do\n@ end\n$(i)\n", "forward/fwd_sm80.cu.in:3", "undefined name 'i'");
    fails("$(tostring(d))\n", "forward/fwd_sm80.cu.in:1", "undefined name 'tostring'");
    fails("\n$((function() d = 1 end)())\n", "forward/fwd_sm80.cu.in:2", "assignment to 'd'");
    fails("$(nil)\n", "forward/fwd_sm80.cu.in:1", "'nil' is nil");
    fails("$({})\n", "forward/fwd_sm80.cu.in:1", "'{}' is table");
    fails("$(1 / 0)\n", "forward/fwd_sm80.cu.in:1", "'1 / 0' is not finite");
    fails("@ if nil then\n@ end\n", "forward/fwd_sm80.cu.in:1", "'nil' is nil");
    fails("\n$(d < q)\n", "forward/fwd_sm80.cu.in:2", "attempt to compare number with string");
    fails("$(d d)\n", "forward/fwd_sm80.cu.in:1", "<eof> expected near 'd'");
}

/* A value of a kernel is a number, a boolean or a word: a template holds the text, and Lua none of it. */
static void test_plain_values(void)
{
    gives("$(\"_a9\") $(-3) $(true)\n", LINE(1) "_a9 -3 true\n");
    fails("\n$(\"a.b\")\n", "forward/fwd_sm80.cu.in:2", "'\"a.b\"' is no number, word or boolean: 'a.b'");
    fails("$(dtype .. \"(p)\")\n", "forward/fwd_sm80.cu.in:1",
          "'dtype .. \"(p)\"' is no number, word or boolean: 'fp16(p)'");
    fails("$(\"9a\")\n", "forward/fwd_sm80.cu.in:1", "'\"9a\"' is no number, word or boolean: '9a'");
    fails("$(\"\")\n", "forward/fwd_sm80.cu.in:1", "'\"\"' is no number, word or boolean: ''");
    fails("$(\"a b\")\n", "forward/fwd_sm80.cu.in:1", "'\"a b\"' is no number, word or boolean: 'a b'");
    /* a comment also takes a line of text, which ends with the line */
    gives("x  // $(\"a - b(c): d's.\")\n", LINE(1) "x  // a - b(c): d's.\n");
    fails("$(\"a b\")  // x\n", "forward/fwd_sm80.cu.in:1", "'\"a b\"' is no number, word or boolean: 'a b'");
    fails("// $(\"a\\\\\")\n", "forward/fwd_sm80.cu.in:1", "'\"a\\\\\"' is no number, word or boolean: 'a\\'");
    fails("// $(\"a\\nb\")\n", "forward/fwd_sm80.cu.in:1", "'\"a\\nb\"' is no number, word or boolean: 'a\\nb'");
}

static void test_bad_blocks(void)
{
    fails("x\n\n$(d\n", "forward/fwd_sm80.cu.in:3", "'$(' without its ')'");
    fails("x\n@ if d == 40 then\n", "forward/fwd_sm80.cu.in:2", "'if' without 'end'");
    fails("@ for i = 1, 2 do\nx\n", "forward/fwd_sm80.cu.in:1", "'for' without 'end'");
    fails("x\n@ end\n", "forward/fwd_sm80.cu.in:2", "'end' without 'if' or 'for'");
    fails("x\n@ else\n", "forward/fwd_sm80.cu.in:2", "'else' without 'if'");
    fails("@ for i = 1, 2 do\n@ elseif d then\n@ end\n", "forward/fwd_sm80.cu.in:2", "'elseif' without 'if'");
    fails("@ if d then\n@ else\n@ else\n@ end\n", "forward/fwd_sm80.cu.in:3", "'else' without 'if'");
    fails("@ if d then\n@ else\n@ elseif d then\n@ end\n", "forward/fwd_sm80.cu.in:3", "'elseif' without 'if'");
    fails("@ if d\n@ end\n", "forward/fwd_sm80.cu.in:1", "'if' without 'then'");
    fails("@ if d then\n@ elseif d\n@ end\n", "forward/fwd_sm80.cu.in:2", "'elseif' without 'then'");
    fails("@ if d then\n@ end if\n", "forward/fwd_sm80.cu.in:2", "text after 'end'");
    fails("@ if d then\n@ else if\n@ end\n", "forward/fwd_sm80.cu.in:2", "text after 'else'");
    fails("@ for k in x do\n@ end\n", "forward/fwd_sm80.cu.in:1", "'for' is not 'for NAME = FROM, TO [, STEP] do'");
    fails("@ for k = 1 do\n@ end\n", "forward/fwd_sm80.cu.in:1", "'1' is not two or three numbers, the step not 0");
    fails("@ for k = 1, 2, 0 do\n@ end\n", "forward/fwd_sm80.cu.in:1",
          "'1, 2, 0' is not two or three numbers, the step not 0");
    fails("\n@ local x = 1\n", "forward/fwd_sm80.cu.in:2",
          "'@' is followed by none of if, elseif, else, end, for, include");
}

static void clean(void)
{
    static const char *const names[] = {"templates/forward/fwd_sm80.cu.in",
                                        "templates/part.cu.in",
                                        "templates/list.def",
                                        "templates/bad.cu.in",
                                        "templates/self.cu.in",
                                        "templates/low.cuh",
                                        "templates/high.cuh",
                                        "templates/lost.cuh",
                                        "templates/forward",
                                        "templates",
                                        ""};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        remove(path);
    }
}

int main(void)
{
    char path[128];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/templates", folder);
    CHECK_EQ(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/templates/forward", folder);
    CHECK_EQ(mkdir(path, 0700), 0);
    CHECK_EQ(setenv("FA2_GEN_PATH", folder, 1), 0);
    test_values();
    test_blocks();
    test_include();
    test_header();
    test_bad_values();
    test_plain_values();
    test_bad_blocks();
    clean();
    return check_done();
}
