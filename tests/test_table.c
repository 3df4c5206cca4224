/*
 * Text tables, JSON texts and the brief form of a variant, to the byte.
 */
#include <stdlib.h>
#include "check.h"
#include "runtime/base/alloc.h"
#include "runtime/base/record.h"
#include "tuner/report/table.h"

typedef struct capture {
    FILE *out;
    char *text;
    size_t bytes;
} capture;

static void begin(capture *c)
{
    c->out = open_memstream(&c->text, &c->bytes);
    CHECK(c->out != NULL);
}

static void check_end(capture *c, const char *expected)
{
    CHECK_EQ(fclose(c->out), 0);
    CHECK_STR(c->text, expected);
    free(c->text);
}

static void test_table(void)
{
    static const char *const titles[] = {"name", "µs", "note"};
    static const char *const rows[][3] = {{"a", "1.25", "first"}, {"größer", "123.00", NULL}};
    fa2i_table table;
    capture c;
    fa2i_table_init(&table, "lrl", titles);
    CHECK_EQ(fa2i_table_rows(&table), 0);
    fa2i_table_add(&table, rows[0]);
    fa2i_table_style(&table, FA2I_STYLE_BAD);
    fa2i_table_add(&table, rows[1]); /* a row without a style of its own is plain */
    CHECK_EQ(fa2i_table_rows(&table), 2);
    CHECK_EQ(table.styles[1], FA2I_STYLE_BAD);
    CHECK_EQ(table.styles[2], FA2I_STYLE_PLAIN);
    begin(&c);
    CHECK_EQ(fa2i_table_print(&table, c.out), FA2_OK);
    check_end(&c, "name        µs  note\n"
                  "---------------------\n"
                  "a         1.25  first\n"
                  "größer  123.00  -\n");
    fa2i_table_done(&table);
}

/* Each allocation fails in turn: nothing is printed, and the error is reported once. */
static void test_out_of_memory(void)
{
    static const char *const row[] = {"x", "y"};
    fa2_status st = FA2_E_MEMORY;
    for (long nth = 1; st != FA2_OK && nth < 200; nth++) {
        fa2i_table table;
        capture c;
        fa2i_alloc_fail_at(nth);
        fa2i_table_init(&table, "ll", row);
        for (int i = 0; i < 20; i++)
            fa2i_table_add(&table, row);
        fa2i_alloc_fail_at(0);
        begin(&c);
        st = fa2i_table_print(&table, c.out);
        fflush(c.out);
        CHECK(st == FA2_OK ? c.bytes > 0 : st == FA2_E_MEMORY && c.bytes == 0);
        fclose(c.out);
        free(c.text);
        fa2i_table_done(&table);
    }
    CHECK_EQ(st, FA2_OK);
}

static void check_json(const char *text, const char *expected)
{
    capture c;
    begin(&c);
    fa2i_json_write(c.out, "%s", text);
    check_end(&c, expected);
}

static void test_json(void)
{
    check_json(NULL, "null");
    check_json("", "\"\"");
    check_json("a \"b\" \\ \n\t\x01", "\"a \\\"b\\\" \\\\ \\u000a\\u0009\\u0001\"");
    check_json("µ€😀", "\"µ€😀\"");
    check_json("\xff\xc3(", "\"\\ufffd\\ufffd(\"");
    check_json("cut \xe2\x82", "\"cut \\ufffd\\ufffd\"");
    check_json("\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"");
    check_json("\x7f\xc2\x85\u202e", "\"\\u007f\\u0085\\u202e\"");
    capture c;
    begin(&c);
    fa2i_json_write(c.out, "{'n':%zu,'x':%.2f,'part':%.*s,'unknown':%.1f,'inf':%g,'is':[%i,%i],%s:%d,'null':%s}",
                    (size_t)3, 0.5, 2, "abc", fa2i_json_known(0), (double)INFINITY, true, false, "k", -1,
                    fa2i_json_null);
    check_end(&c, "{\"n\":3,\"x\":0.50,\"part\":\"ab\",\"unknown\":null,\"inf\":null,\"is\":[true,false],"
                  "\"k\":-1,\"null\":null}");
}

static void test_variant_brief(void)
{
    CHECK_STR(fa2i_variant_brief("fwd_sm80 d=64 dtype=fp16 causal=0 br=128 warps=4 q=reg").text,
              "fwd_sm80 br=128 warps=4 q=reg");
    CHECK_STR(fa2i_variant_brief("fwd_sm80 d=64 dtype=bf16 causal=1 softcap=1 window=1 br=64").text, "fwd_sm80 br=64");
    CHECK_STR(fa2i_variant_brief("").text, "");
}

int main(void)
{
    test_table();
    test_out_of_memory();
    test_json();
    test_variant_brief();
    return check_done();
}
