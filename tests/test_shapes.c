/*
 * Problems as users write them: presets, shape files, --shape, and the messages about wrong ones.
 */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "check.h"
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"
#include "tuner/input/shapes.h"

#define COMMAS ",,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,"
#define HEADER "batch,heads_q,heads_kv,seq_q,seq_k,head_dim,dtype,causal\n"

static char path[] = "/tmp/fa2_test_shapes_XXXXXX";

static fa2_status add_csv_bytes(fa2i_shapes *shapes, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    if (file == NULL)
        return FA2_E_IO;
    CHECK_EQ(fwrite(text, 1, bytes, file), bytes);
    CHECK_EQ(fclose(file), 0);
    return fa2i_shapes_add_file(shapes, path);
}

/* Checks that a CSV is refused with this message after "FILE". */
static void check_refused(const char *text, const char *message)
{
    fa2i_shapes shapes = {0};
    char expected[1024];
    CHECK_EQ(add_csv_bytes(&shapes, text, strlen(text)), FA2_E_INVALID);
    snprintf(expected, sizeof expected, "%s:%s", path, message);
    CHECK_STR(fa2_last_message(), expected);
    fa2i_shapes_done(&shapes);
}

static void check_shape(const fa2i_shapes *shapes, size_t index, const char *expected)
{
    CHECK(index < shapes->count);
    if (index < shapes->count)
        CHECK_STR(fa2i_problem_shape(&shapes->items[index]).text, expected);
}

static void check_csv(const char *text, size_t bytes)
{
    fa2i_shapes shapes = {0};
    CHECK_EQ(add_csv_bytes(&shapes, text, bytes), FA2_OK);
    CHECK_EQ(shapes.count, 2);
    check_shape(&shapes, 0, "B=1 Hq=8 Hkv=2 Sq=512 Sk=640 D=64 dtype=fp16 causal=0");
    check_shape(&shapes, 1, "B=2 Hq=4 Hkv=4 Sq=1 Sk=33 D=128 dtype=bf16 causal=1");
    fa2i_shapes_done(&shapes);
}

static void test_forms_of_csv(void)
{
    static const char plain[] = HEADER "1,8,2,512,640,64,fp16,0\n2,4,4,1,33,128,bf16,1\n";
    static const char windows[] = "\xEF\xBB\xBF"
                                  "batch,heads_q,heads_kv,seq_q,seq_k,head_dim,dtype,causal\r\n"
                                  "1,8,2,512,640,64,fp16,0\r\n2,4,4,1,33,128,bf16,1";
    static const char ordered[] = "# a comment, and an empty line\n\n"
                                  "origin, causal,dtype,head_dim,seq_k,seq_q,heads_kv,heads_q,batch\n"
                                  "here,0,fp16,64,640,512,2,8,1\n# another\n \n"
                                  "there, 1 ,bf16, 128,33,1,4,4,2\n"
                                  "again,1,bf16,128,33,1,4,4,2\n";
    static const char quoted[] = "\"batch\",\"heads_q\",heads_kv,seq_q,seq_k,head_dim,dtype,causal,origin\n"
                                 "\"1\", \"8\" ,2,512,640,64,\"fp16\",\" 0 \",\"here, there\"\n"
                                 "2,4,4,1,33,128,\"bf16\",1,\"\"\n";
    check_csv(quoted, sizeof quoted - 1);
    check_csv(plain, sizeof plain - 1);
    check_csv(plain, sizeof plain - 2); /* no final newline */
    check_csv(windows, sizeof windows - 1);
    check_csv(ordered, sizeof ordered - 1);

    static const char shortest[] = "head_dim,heads_q,seq_q\n64,8,512\n"; /* the rest has the defaults of --shape */
    fa2i_shapes shapes = {0};
    CHECK_EQ(add_csv_bytes(&shapes, shortest, sizeof shortest - 1), FA2_OK);
    CHECK_EQ(shapes.count, 1);
    check_shape(&shapes, 0, "B=1 Hq=8 Hkv=8 Sq=512 Sk=512 D=64 dtype=fp16 causal=0");
    fa2i_shapes_done(&shapes);
}

static void test_wrong_headers(void)
{
    check_refused("", "1:1: there is no header; it must name heads_q,seq_q,head_dim");
    check_refused("\n# nothing\n", "3:1: there is no header; it must name heads_q,seq_q,head_dim");
    check_refused("batch,heads_q,heads_kv,seq_k,head_dim,dtype,causal\n",
                  "1:8: there is no column seq_q; the header must name heads_q,seq_q,head_dim");
    check_refused("batch,heads_q,heads_kv,seq_q,batch,seq_k,head_dim,dtype,causal\n",
                  "1:5: column batch is there already (column 1)");
    check_refused(HEADER, "2:1: there is no row after the header; add one, such as "
                          "1,8,8,512,512,64,fp16,1, or leave the file out");
    check_refused("causal,calls,dtype,head_dim,seq_k,seq_q,heads_kv,heads_q,batch,op\n# none\n",
                  "3:1: there is no row after the header; add one, such as 1,,fp16,64,512,512,8,8,1,, or leave "
                  "the file out");
}

/* An unknown column may be a misspelt feature, so it must not be ignored. */
static void test_unknown_columns(void)
{
    static const char *const meant[][2] = {
        {"sofcap", "softcap"}, {"Calls", "calls"},          {"DTYPE", "dtype"},     {"Wl", "window_left"},
        {"widnow", "window"},  {"headdim_v", "head_dim_v"}, {"dropuot", "dropout"}, {"Origin", "origin"},
    };
    char text[256], message[256];
    for (size_t i = 0; i < sizeof meant / sizeof *meant; i++) {
        snprintf(text, sizeof text, "batch,%s,heads_q,heads_kv,seq_q,seq_k,head_dim,dtype,causal\n", meant[i][0]);
        snprintf(message, sizeof message, "1:2: unknown column \"%s\", did you mean %s?", meant[i][0], meant[i][1]);
        check_refused(text, message);
    }
    check_refused("batch;heads_q;heads_kv\n",
                  "1:1: unknown column \"batch;heads_q;heads_kv\"; separate columns by commas alone");
    check_refused("batch,ca\xffusal\n", "1:2: unknown column \"ca\\xffusal\", did you mean causal?");
    check_refused("batch\theads_q\n", "1:1: unknown column \"batch\\theads_q\"; separate columns by commas alone");
    fa2i_shapes shapes = {0};
    static const char junk[] = "batch,pre\001set\n";
    CHECK_EQ(add_csv_bytes(&shapes, junk, sizeof junk - 1), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), ":1:2: unknown column \"pre\\x01set\"; the columns are op,batch,");
    CHECK_CONTAINS(fa2_last_message(), ",rotary_dim,sums,scores,pv,kv,partial,kv_scales,carry,calls,origin");
    CHECK_EQ(add_csv_bytes(&shapes, "batch,k\xc3\xa4usal\n", 15), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), ":1:2: unknown column \"k\xc3\xa4usal\"; the columns are");
    CHECK_EQ(add_csv_bytes(&shapes, "preset,batch\n", 13), FA2_E_INVALID); /* a column of presets.csv only */
    CHECK_CONTAINS(fa2_last_message(), ":1:1: unknown column \"preset\"");
    fa2i_shapes_done(&shapes);
}

/* If a file ends within a line, the message says where, and what to do. Only the last newline may be missing. */
static void test_cut_off(void)
{
    check_refused(HEADER "1,8,8,512,512,64,fp16,0\n2,4,4,1,33",
                  "3:6: the row has 5 columns, the header has 8; line 3 has no end, so the file may be cut off "
                  "there: take a whole copy, or remove the line");
    check_refused("batch,heads_q,heads_kv,se",
                  "1:4: unknown column \"se\"; the columns are op,batch,heads_q,heads_kv,seq_q,seq_k,head_dim,"
                  "head_dim_v,v_in_k,dtype,causal,softcap,window,window_left,window_right,deterministic,alibi,sinks,"
                  "bias,dropout,seqused,varlen,total_q,total_k,paged,page,leftpad,cache_rows,append,rotary,"
                  "rotary_dim,sums,scores,pv,kv,partial,kv_scales,carry,calls,origin; line 1 has no end, so the file "
                  "may be cut off "
                  "there: take a whole "
                  "copy, or remove the line");
    check_refused(HEADER "2,4,4,1,33,64,fp16,", "2:8: causal is \"\"; it must be 0 or 1; line 2 has no "
                                                "end, so the file may be cut off there: take a whole copy, or remove "
                                                "the line");
    /* If nothing is missing, the message does not say "cut off". */
    static const char *const whole[] = {
        HEADER "1,8,8,512,512,64,fp8,0", HEADER "1,8,8,512,512,64,fp16,0,9", HEADER "0,8,8,512,512,64,fp16,0",
        "batc,heads_q,heads_kv,seq_q,seq_k,head_dim,dtype,causal",
        /* Too many commas, after a row whose last cell is empty. */
        ("batch,heads_q,heads_kv,seq_q,seq_k,head_dim,dtype,causal,calls\n1,8,8,512,512,64,fp16,0,\n" COMMAS)};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        fa2i_shapes shapes = {0};
        CHECK_EQ(add_csv_bytes(&shapes, whole[i], strlen(whole[i])), FA2_E_INVALID);
        CHECK(strstr(fa2_last_message(), "cut off") == NULL);
        fa2i_shapes_done(&shapes);
    }
}

static void test_wrong_quotes(void)
{
    check_refused("\"batch,heads_q\n", "1:1: a quote opens and does not close on this line");
    check_refused(HEADER "1,\"8\"x,2,512,640,64,fp16,0\n", "2:2: \"x\" follows the closing quote; put a comma between");
    check_refused(HEADER "1,\"8\"\"\",2,512,640,64,fp16,0\n",
                  "2:2: \"\"\"\" follows the closing quote; put a comma between");
}

static void test_wrong_rows(void)
{
    check_refused(HEADER "1,8,8,512,512,64,fp16\n", "2:8: the row has 7 columns, the header has 8");
    check_refused(HEADER "1,8,8,512,512,64,fp16,0,9\n", "2:9: the row has 9 columns, the header has 8");
    check_refused(HEADER "\n1,8,8,x,512,64,fp16,0\n", "3:4: seq_q is \"x\"; it must be a whole number");
    check_refused(HEADER "1,8,8,512,,64,fp16,0\n", "2:5: seq_k is \"\"; it must be a whole number");
    check_refused(HEADER "1,8,8,512,1.5,64,fp16,0\n", "2:5: seq_k is \"1.5\"; it must be a whole number");
    check_refused(HEADER "1,8,8,512,512,64,fp16,0\n0,8,8,512,512,64,fp16,0\n",
                  "3:1: batch is 0; it must be at least 1");
    check_refused(HEADER "1,8,0,512,512,64,fp16,0\n", "2:3: heads_kv is 0; it must be at least 1");
    check_refused(HEADER "1,-8,8,512,512,64,fp16,0\n", "2:2: heads_q is -8; it must be at least 1");
    check_refused(HEADER "1,8,3,512,512,64,fp16,0\n", "2:2: heads_q is 8; it must be a multiple of heads_kv (3)");
    check_refused(HEADER "1,8,8,512,512,60,fp16,0\n", "2:6: head_dim is 60; it must be a multiple of 8 from 8 to 576");
    check_refused(HEADER "1,8,8,512,512,64,fp8,0\n", "2:7: dtype is \"fp8\"; it must be fp16, bf16 or fp32");
    check_refused(HEADER "1,8,8,512,512,64,fp16,2\n", "2:8: causal is 2; it must be 0 or 1");
    check_refused(HEADER "4294967297,8,8,512,512,64,fp16,0\n", "2:1: batch is 4294967297; its limit is 2147483647");
    check_refused(HEADER "99999999999999999999999999,8,8,512,512,64,fp16,0\n",
                  "2:1: batch is 99999999999999999999999999; its limit is 2147483647");
    check_refused(HEADER "000000000000000000000000000000000000000000000000000001,8,8,5,5,64,fp16,0\n",
                  "2:1: batch is a text of 54 characters; at most 47 are read");
}

static void test_wrong_files(void)
{
    static const char nul[] = HEADER "1,8,8,512,5\0002,64,fp16,0\n";
    fa2i_shapes shapes = {0};
    CHECK_EQ(add_csv_bytes(&shapes, nul, sizeof nul - 1), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "2:5: seq_k is \"5?2\"; it must be a whole number");
    CHECK_EQ(fa2i_shapes_add_file(&shapes, "/nonexistent/shapes.csv"), FA2_E_IO);
    CHECK_CONTAINS(fa2_last_message(), "/nonexistent/shapes.csv: ");
    CHECK_EQ(fa2i_shapes_add_file(&shapes, "/"), FA2_E_INVALID);
    fa2i_shapes_done(&shapes);
}

static void test_text(void)
{
    fa2i_shapes shapes = {0};
    CHECK_EQ(fa2i_shapes_add_text(&shapes, "Hq=8,Sq=512,D=64"), FA2_OK);
    CHECK_EQ(fa2i_shapes_add_text(&shapes, "B=2,Hq=8,Hkv=2,Sq=1,Sk=9,D=128,dtype=bf16,causal=1"), FA2_OK);
    check_shape(&shapes, 0, "B=1 Hq=8 Hkv=8 Sq=512 Sk=512 D=64 dtype=fp16 causal=0");
    check_shape(&shapes, 1, "B=2 Hq=8 Hkv=2 Sq=1 Sk=9 D=128 dtype=bf16 causal=1");
    /* fa2 accepts the text that it prints, as the same problem. */
    CHECK_EQ(fa2i_shapes_add_text(&shapes, "B=2 Hq=8 Hkv=2 Sq=1 Sk=9 D=128 dtype=bf16 causal=1"), FA2_OK);
    CHECK_EQ(shapes.count, 2);
    fa2i_shapes_done(&shapes);
}

static void check_text_refused(const char *text, const char *message)
{
    fa2i_shapes shapes = {0};
    char expected[512];
    CHECK_EQ(fa2i_shapes_add_text(&shapes, text), FA2_E_INVALID);
    snprintf(expected, sizeof expected, "shape \"%s\": %s", text, message);
    CHECK_STR(fa2_last_message(), expected);
    CHECK_EQ(shapes.count, 0);
    fa2i_shapes_done(&shapes);
}

static void test_wrong_text(void)
{
    static const char keys[] =
        "the keys are op, B, Hq, Hkv, Sq, Sk, D, Dv, v_in_k, dtype, causal, softcap, window, Wl, "
        "Wr, deterministic, alibi, sinks, bias, dropout, seqused, varlen, Tq, Tk, paged, page, "
        "leftpad, cache_rows, append, rotary, rotary_dim, sums, scores, pv, kv, partial, kv_scales, carry";
    char expected[300];
    snprintf(expected, sizeof expected, "unknown key \"H\"; %s", keys);
    check_text_refused("H=8,Sq=512,D=64", expected);
    check_text_refused("hq=1,Sq=512,D=64", "unknown key \"hq\", did you mean Hq?");
    check_text_refused("Hq=1,SQ=512,D=64", "unknown key \"SQ\", did you mean Sq?");
    check_text_refused("Hq=1,seq_q=512,D=64", "unknown key \"seq_q\", did you mean Sq?");
    check_text_refused("Hq=1,Sq=512,D=64,sofcap=1", "unknown key \"sofcap\", did you mean softcap?");
    snprintf(expected, sizeof expected, "\"zz\" is not KEY=VALUE; %s", keys);
    check_text_refused("zz,Sq=512,D=64", expected);
    check_text_refused("Hq,Sq=512,D=64", "\"Hq\" is not KEY=VALUE, did you mean Hq=VALUE?");
    check_text_refused("Sq=512,D=64", "Hq is missing; Hq, Sq and D must be given");
    check_text_refused("", "Hq is missing; Hq, Sq and D must be given");
    check_text_refused("Hq=8,Hq=8,Sq=512,D=64", "Hq is given twice");
    check_text_refused("Hq=8,Sq=,D=64", "Sq is \"\"; it must be a whole number");
    check_text_refused("Hq=8,Sq=512,D=584", "D is 584; it must be a multiple of 8 from 8 to 576");
    check_text_refused("Hq=8,Hkv=16,Sq=512,D=64", "Hq is 8; it must be a multiple of Hkv (16)");
}

/* Messages name keys if the user wrote keys, and repeat the user's text. */
static void test_words_of_keys(void)
{
    check_text_refused("Hq=8,Sq=512,D=64,Dv=64", "Dv is 64, which is D; it must be 0 then");
    check_text_refused("Hq=8,Sq=512,D=64,window=chunk,Wl=0", "Wl is 0; it must be at least 1 where window is chunk");
    check_text_refused("Hq=8,Sq=512,D=64,window=chunk,Wl=4,Wr=3", "Wr is 3; it must be -1 where window is chunk");
    check_text_refused("Hq=8,Sq=512,D=64,window=prefix", "window is prefix; causal must be 1 with it");
    check_text_refused("Hq=8,Sq=512,D=64,rotary=halves,append=0",
                       "rotary is halves; it must be none where append is 0");
    check_text_refused("Hq=8,Sq=seq_q,D=64", "Sq is \"seq_q\"; it must be a whole number");
    check_text_refused("Hq=8,Sq=512,D=64,B=65536,varlen=1,Sk=16384",
                       "Tk is 0, which means B times Sk: 1073741824; it must be at most 536870912");
    check_text_refused("Hq=8,Sq=512,D=64,dropout=0.1",
                       "dropout is \"0.1\"; it must be 0 or 1: the probability is given with the call");
    check_text_refused("Hq=8,Sq=512,D=64,bias=3",
                       "bias is \"3\"; it must be none, fp16, bf16, fp32, bool, fp16_gradient, bf16_gradient or "
                       "fp32_gradient");
    check_text_refused("Hq=8,Sq=512,D=64,sums=fp16", "sums is \"fp16\"; it must be fp32 or fast");
    check_text_refused("Hq=8,Sq=512,D=64,window=wide",
                       "window is \"wide\"; it must be one of 0 (none), 1 (sliding), 2 (prefix), 3 (chunk): Wl and Wr "
                       "say how far it reaches");
    fa2i_shapes shapes = {.ops = 1u << FA2_OP_BACKWARD};
    CHECK_EQ(fa2i_shapes_add_text(&shapes, "Hq=8,Sq=512,D=264"), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), ": D is 264; backward takes up to 256");
    fa2i_shapes_done(&shapes);
    fa2i_problem_text fields;
    CHECK_EQ(fa2i_shape_fields("Dv=7", &fields), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "Dv is 7; it must be a multiple of 8");
}

/* A window is given by name or number, and printed as the number. */
static void test_window_names(void)
{
    fa2i_shapes shapes = {0};
    CHECK_EQ(fa2i_shapes_add_text(&shapes, "Hq=8,Sq=512,D=64,window=sliding,Wl=9"), FA2_OK);
    CHECK_EQ(fa2i_shapes_add_text(&shapes, "Hq=8,Sq=512,D=64,window=1,Wl=9"), FA2_OK);
    CHECK_EQ(fa2i_shapes_add_text(&shapes, "Hq=8,Sq=512,D=64,window=prefix,Wl=9,causal=1"), FA2_OK);
    CHECK_EQ(fa2i_shapes_add_text(&shapes, "Hq=8,Sq=512,D=64,window=chunk,Wl=9"), FA2_OK);
    CHECK_EQ(fa2i_shapes_add_text(&shapes, "Hq=8,Sq=512,D=64,window=none"), FA2_OK);
    check_shape(&shapes, 0, "B=1 Hq=8 Hkv=8 Sq=512 Sk=512 D=64 dtype=fp16 causal=0 window=1 Wl=9 Wr=-1");
    check_shape(&shapes, 1, "B=1 Hq=8 Hkv=8 Sq=512 Sk=512 D=64 dtype=fp16 causal=1 window=2 Wl=9 Wr=-1");
    check_shape(&shapes, 2, "B=1 Hq=8 Hkv=8 Sq=512 Sk=512 D=64 dtype=fp16 causal=0 window=3 Wl=9 Wr=-1");
    check_shape(&shapes, 3, "B=1 Hq=8 Hkv=8 Sq=512 Sk=512 D=64 dtype=fp16 causal=0");
    static const char text[] = "batch,heads_q,heads_kv,seq_q,seq_k,head_dim,dtype,causal,window,window_left\n"
                               "1,8,8,512,512,64,fp16,0,chunk,9\n";
    CHECK_EQ(add_csv_bytes(&shapes, text, sizeof text - 1), FA2_OK);
    CHECK_EQ(shapes.count, 4);
    fa2i_shapes_done(&shapes);
}

/* A key that needs another one sets it, unless that would be a guess. With the other at 0, defaults may be written. */
static void test_needed(void)
{
    static const struct {
        const char *text, *class_end;
    } accepted[] = {
        {"Wl=20", " window=1 Wl=20 Wr=-1"},
        {"Wr=0", " window=1 Wl=-1 Wr=0"},
        {"Tk=100", " varlen=1 Tq=0 Tk=100"},
        {"page=16", " paged=1 page=16"},
        {"rotary=halves", " append=1 rotary=halves rotary_dim=64"},
        {"rotary=none", ""},
        {"kv_scales=fp32", ""},
        {"window=none,Wl=-1,Wr=-1", ""},
        {"varlen=0,Tq=0,Tk=0", ""},
        {"paged=0,page=16", ""},
        {"append=0,rotary=none,rotary_dim=64", ""},
        {"kv=dtype,kv_scales=fp32", ""},
    };
    fa2i_shapes shapes = {0};
    char text[128];
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        snprintf(text, sizeof text, "Hq=8,Sq=512,D=64,%s", accepted[i].text);
        CHECK_EQ(fa2i_shapes_add_text(&shapes, text), FA2_OK);
        CHECK_EQ(shapes.count, 1);
        snprintf(text, sizeof text, "B=1 Hq=8 Hkv=8 Sq=512 Sk=512 D=64 dtype=fp16 causal=0%s", accepted[i].class_end);
        check_shape(&shapes, 0, text);
        fa2i_shapes_done(&shapes);
        shapes = (fa2i_shapes){0};
    }
    check_text_refused("Hq=8,Sq=512,D=64,window=none,Wl=3", "Wl is 3; it must be 0 where window is none");
    check_text_refused("Hq=8,Sq=512,D=64,paged=0,page=32", "page is 32; it must be 0 where paged is 0");
    check_text_refused("Hq=8,Sq=512,D=64,rotary_dim=32",
                       "rotary_dim is 32, and rotary is not given; give rotary, too: halves or interleaved");
    check_text_refused("Hq=8,Sq=512,D=64,kv_scales=fp16",
                       "kv_scales is fp16, and kv is not given; give kv, too: int8 or fp8");
    check_refused("heads_q,seq_q,head_dim,rotary_dim\n8,512,64,32\n",
                  "2:4: rotary_dim is 32, and rotary is not given; give rotary, too: halves or interleaved");
    CHECK_EQ(add_csv_bytes(&shapes, "heads_q,seq_q,head_dim,window,window_left\n8,512,64,0,-1\n", 56), FA2_OK);
    check_shape(&shapes, 0, "B=1 Hq=8 Hkv=8 Sq=512 Sk=512 D=64 dtype=fp16 causal=0");
    fa2i_shapes_done(&shapes);
}

/* The default of rotary_dim: all columns, in multiples of 16, at most 256. Words of precision. */
static void test_last_keys(void)
{
    fa2i_shapes shapes = {0};
    CHECK_EQ(fa2i_shapes_add_text(&shapes, "Hq=8,Sq=1,Sk=512,D=128,rotary=halves"), FA2_OK);
    CHECK_EQ(fa2i_shapes_add_text(&shapes, "Hq=8,Sq=1,Sk=512,D=512,rotary=halves"), FA2_OK);
    CHECK_EQ(fa2i_shapes_add_text(&shapes, "Hq=8,Sq=1,Sk=512,D=72,rotary=halves"), FA2_OK);
    check_shape(&shapes, 0,
                "B=1 Hq=8 Hkv=8 Sq=1 Sk=512 D=128 dtype=fp16 causal=0 append=1 rotary=halves "
                "rotary_dim=128");
    check_shape(&shapes, 1,
                "B=1 Hq=8 Hkv=8 Sq=1 Sk=512 D=512 dtype=fp16 causal=0 append=1 rotary=halves "
                "rotary_dim=256");
    check_shape(&shapes, 2,
                "B=1 Hq=8 Hkv=8 Sq=1 Sk=512 D=72 dtype=fp16 causal=0 append=1 rotary=halves "
                "rotary_dim=64");
    CHECK_EQ(fa2i_shapes_add_text(&shapes, "Hq=8,Sq=1,Sk=512,D=64,sums=fast,scores=int8"), FA2_OK);
    check_shape(&shapes, 3, "B=1 Hq=8 Hkv=8 Sq=1 Sk=512 D=64 dtype=fp16 causal=0 sums=fast scores=int8");
    check_text_refused("Hq=8,Sq=512,D=8,rotary=halves", "rotary_dim is 16; it must be at most D (8)");
    fa2i_shapes_done(&shapes);
}

/* More rows than a launch can have. test_sizes.c checks the limits. */
static void test_too_many_rows(void)
{
    check_text_refused("B=65536,Hq=65536,Sq=1,D=64",
                       "B times Hq times Sq, rounded up to a multiple of 16, is 68719476736; a launch takes at most "
                       "8589934591 rows");
    check_refused(
        HEADER "1,8,8,512,512,64,fp16,0\n65536,65536,65536,1,512,64,fp16,0\n",
        "3:1: batch times heads_q times seq_q, rounded up to a multiple of 16, is 68719476736; a launch takes "
        "at most 8589934591 rows");
    fa2i_shapes shapes = {0};
    CHECK_EQ(fa2i_shapes_add_text(&shapes, "B=511,Hq=65536,Sq=256,D=64"), FA2_OK);
    CHECK_EQ(fa2i_shapes_add_text(&shapes, "B=8191,Hq=65536,Hkv=8,Sq=1,D=64"), FA2_OK);
    fa2i_shapes_done(&shapes);
}

/* Each of many rows is stored once and in order. The time is linear in the file's size. */
static void test_many_rows(void)
{
    enum { ROWS = 60000 };
    fa2i_shapes shapes = {0};
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    if (file == NULL)
        return;
    fprintf(file, HEADER);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < ROWS; i++)
            fprintf(file, "1,8,8,%d,%d,64,fp16,0\n", 1 + i % 300, 1 + i / 300);
    CHECK_EQ(fclose(file), 0);
    const clock_t begin = clock();
    CHECK_EQ(fa2i_shapes_add_file(&shapes, path), FA2_OK);
    CHECK((double)(clock() - begin) / CLOCKS_PER_SEC < 1.5); /* 0.1 s; comparing all pairs took 10 s */
    CHECK_EQ(shapes.count, ROWS);
    for (int i = 0; i < ROWS; i++)
        CHECK(shapes.items[i].seq_q == 1 + i % 300 && shapes.items[i].seq_k == 1 + i / 300);
    fa2i_shapes_done(&shapes);
}

static void test_presets(void)
{
    fa2i_shapes seeds = {0}, others = {0}, llm = {0};
    size_t decoding = 0;
    CHECK_EQ(fa2i_shapes_add_preset(&seeds, "seeds"), FA2_OK);
    check_shape(&seeds, 0, "B=1 Hq=1 Hkv=1 Sq=512 Sk=512 D=64 dtype=fp16 causal=0");
    check_shape(&seeds, 1, "op=backward B=1 Hq=1 Hkv=1 Sq=512 Sk=512 D=64 dtype=fp16 causal=0");
    CHECK(seeds.count >= 30);
    CHECK_EQ(fa2i_shapes_add_preset(&others, "paper"), FA2_OK);
    CHECK_EQ(others.count, 48); /* forward and backward */
    for (size_t i = 0; i < others.count; i++) {
        CHECK_EQ(others.items[i].batch * others.items[i].seq_q, 16384);
        CHECK_EQ(others.items[i].heads_q * others.items[i].head_dim, 2048);
    }
    CHECK_EQ(fa2i_shapes_add_preset(&others, "quick"), FA2_OK);
    CHECK_EQ(others.count, 59); /* decoding: forward only */
    CHECK_EQ(fa2i_shapes_add_preset(&others, "quick"), FA2_OK);
    CHECK_EQ(others.count, 59); /* each problem is stored once */
    CHECK_EQ(fa2i_shapes_add_preset(&llm, "llm"), FA2_OK);
    CHECK(llm.count <= 80);
    for (size_t i = 0; i < llm.count; i++) { /* they fit the smallest cards */
        const fa2_problem *p = &llm.items[i];
        CHECK(2.0 * p->batch * p->heads_kv * p->seq_k * p->head_dim * 2 <= 0x1p31);
        decoding += p->seq_q == 1;
        CHECK(p->op == FA2_OP_FORWARD || (p->seq_q > 1 && p->seq_q == p->seq_k));
    }
    CHECK(decoding >= 24 && decoding < llm.count);
    CHECK_EQ(fa2i_shapes_add_preset(&others, "vision"), FA2_OK);
    CHECK_EQ(fa2i_shapes_add_preset(&others, "diffusion"), FA2_OK);
    CHECK_EQ(others.count, 103);
    CHECK_EQ(fa2i_shapes_add_preset(&others, "see"), FA2_E_INVALID);
    CHECK_STR(fa2_last_message(), "there is no preset \"see\"; known: seeds, paper, quick, llm, vision, diffusion");
    fa2i_shapes_done(&seeds);
    fa2i_shapes_done(&others);
    fa2i_shapes_done(&llm);
}

/* Each allocation fails once. Nothing leaks (ASan), and the status says why. */
static void test_out_of_memory(void)
{
    static const char text[] = HEADER "1,8,8,512,512,64,fp16,0\n";
    fa2_status st = FA2_E_MEMORY;
    for (long nth = 1; st != FA2_OK && nth < 100; nth++) {
        fa2i_shapes shapes = {0};
        fa2i_alloc_fail_at(nth);
        st = add_csv_bytes(&shapes, text, sizeof text - 1);
        fa2i_alloc_fail_at(0);
        CHECK(st == FA2_OK || st == FA2_E_MEMORY);
        fa2i_shapes_done(&shapes);
    }
    CHECK_EQ(st, FA2_OK);
}

/* The number of calls of each problem: read, summed, and passed to problems that represent others. */
static void test_calls(void)
{
    static const char text[] = "calls,batch,heads_q,heads_kv,seq_q,seq_k,head_dim,dtype,causal\n"
                               "30,1,8,8,1,1000,64,fp16,0\n"
                               "2,1,8,8,1,1001,64,fp16,0\n"
                               ",1,8,8,1,1002,64,fp16,0\n"
                               "1,1,8,8,1,1003,64,fp16,0\n"
                               "40,1,8,8,1,1024,64,fp16,0\n"
                               "5,1,8,8,1,2000,64,fp16,0\n"
                               "5,1,8,8,1,2001,64,fp16,0\n"
                               "10,1,8,8,1,1000,64,fp16,0\n";
    fa2i_shapes shapes = {0};
    size_t dropped = 77;
    CHECK_EQ(add_csv_bytes(&shapes, text, sizeof text - 1), FA2_OK);
    CHECK_EQ(shapes.count, 7);
    CHECK(shapes.calls[0] == 40 && shapes.calls[2] == 0);
    CHECK_EQ(fa2i_shapes_condense(&shapes, &dropped), FA2_OK);
    CHECK_EQ(dropped, 2);
    CHECK_EQ(shapes.count, 5);
    static const int lengths[] = {1000, 1002, 1024, 2000, 2001}, calls[] = {40, 0, 43, 5, 5};
    for (size_t i = 0; i < 5 && shapes.count == 5; i++) {
        CHECK_EQ(shapes.items[i].seq_k, lengths[i]);
        CHECK_EQ(shapes.calls[i], calls[i]);
    }
    fa2i_shapes_done(&shapes);
    for (long nth = 1; nth < 20; nth++) {
        CHECK_EQ(add_csv_bytes(&shapes, text, sizeof text - 1), FA2_OK);
        fa2i_alloc_fail_at(nth);
        const fa2_status st = fa2i_shapes_condense(&shapes, &dropped);
        fa2i_alloc_fail_at(0);
        CHECK(st == FA2_OK ? shapes.count == 5 : st == FA2_E_MEMORY && shapes.count == 7);
        fa2i_shapes_done(&shapes);
    }
    check_refused("calls,batch,heads_q,heads_kv,seq_q,seq_k,head_dim,dtype,causal\n"
                  "-3,1,8,8,1,1000,64,fp16,0\n",
                  "2:1: calls is \"-3\"; it must be a whole number below 2^64, or empty");
    check_refused("calls,batch,heads_q,heads_kv,seq_q,seq_k,head_dim,dtype,causal\n"
                  "99999999999999999999,1,8,8,1,1000,64,fp16,0\n",
                  "2:1: calls is \"99999999999999999999\"; it must be a whole number below 2^64, or empty");
}

int main(void)
{
    const int file = mkstemp(path);
    CHECK(file >= 0);
    close(file);
    test_forms_of_csv();
    test_wrong_headers();
    test_unknown_columns();
    test_cut_off();
    test_wrong_quotes();
    test_wrong_rows();
    test_wrong_files();
    test_text();
    test_wrong_text();
    test_words_of_keys();
    test_window_names();
    test_needed();
    test_last_keys();
    test_too_many_rows();
    test_many_rows();
    test_calls();
    test_presets();
    test_out_of_memory();
    unlink(path);
    return check_done();
}
