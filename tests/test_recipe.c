/* runtime/base/recipe: parsing and formatting are inverse, and refusals name the error. */
#include "check.h"
#include "runtime/base/recipe.h"

static const char plain[] =
    "op=forward abi=2 rows=128 keys=64; fwd_sm80 role=main threads=256 smem=49152 blocks=row_tiles";
static const char split[] = "op=forward abi=2 rows=16 keys=64 pack=1 waves=2 splits=256 workspace=partials suffix=a; "
                            "fwd_splitkv_sm80 role=main threads=128 smem=0 cluster=2 blocks=row_tiles; "
                            "fwd_splitkv_sm80_combine role=combine threads=128 smem=0 early=1 blocks=rows/4";

static const char mapped[] = "op=forward abi=2 rows=128 keys=176 suffix=a maps=q/64,k/176,v/176; "
                             "fwd_sm90 role=main threads=384 smem=212992 blocks=row_tiles";

static const char keyed[] = "op=forward abi=3 rows=128 keys=96 workspace=column_keys suffix=a; "
                            "f_prepare role=prepare threads=128 smem=0 blocks=keys/256; "
                            "f role=main threads=384 smem=212992 blocks=row_tiles";

static const char rounded[] = "op=forward abi=2 rows=128 keys=64 workspace=int8_keys; "
                              "f_quantise role=quantise threads=256 smem=0 blocks=head_tiles/4; "
                              "f role=main threads=128 smem=0 blocks=row_tiles";

static const char backward[] = "op=backward abi=1 rows=64 keys=32 columns=64 workspace=rows_and_dq; "
                               "bwd_sm80_prepare role=prepare threads=256 smem=0 blocks=padded_rows/32; "
                               "bwd_sm80 role=main threads=128 smem=49152 blocks=key_tiles; "
                               "bwd_sm80_convert role=convert threads=128 smem=0 blocks=padded_rows/16";
static const char mapped_backward[] = "op=backward abi=1 rows=64 keys=128 columns=128 workspace=rows_and_dq suffix=a "
                                      "maps=q/64,k/128,v/128,do/64; "
                                      "bwd_sm90_prepare role=prepare threads=256 smem=0 blocks=padded_rows/16; "
                                      "bwd_sm90 role=main threads=384 smem=164944 blocks=key_tiles; "
                                      "bwd_sm90_convert role=convert threads=256 smem=0 blocks=padded_rows/32";
static const char heads[] = "op=backward abi=1 rows=64 keys=128 heads=2 columns=128 workspace=rows_and_dq suffix=a; "
                            "bwd_sm90_prepare role=prepare threads=256 smem=0 blocks=padded_rows/16; "
                            "bwd_sm90 role=main threads=384 smem=0 blocks=key_tiles; "
                            "bwd_sm90_combine role=combine threads=256 smem=0 blocks=key_tile_sums; "
                            "bwd_sm90_convert role=convert threads=128 smem=0 blocks=padded_rows/16";
static const char apart[] = "op=backward abi=1 rows=64 keys=32 workspace=rows; "
                            "bwd_sm80_prepare role=prepare threads=256 smem=0 blocks=padded_rows/32; "
                            "bwd_sm80 role=main threads=128 smem=49152 blocks=key_and_query_tiles/64";
static const char whole[] = "op=backward abi=1 rows=64 keys=128 columns=64 workspace=dq_of_tiles; "
                            "bwd_sm80 role=main threads=128 smem=49152 blocks=key_heads; "
                            "bwd_sm80_convert role=convert threads=128 smem=0 blocks=padded_rows/16";

static void test_plain(void)
{
    fa2i_recipe r;
    CHECK_EQ(fa2i_recipe_parse(plain, &r), FA2_OK);
    CHECK_STR(r.text, plain);
    CHECK(r.op == FA2_OP_FORWARD && r.abi == 2 && r.rows == 128 && r.keys == 64);
    CHECK(r.pack == 0 && r.waves == 0 && r.max_splits == 1 && r.step_count == 1);
    CHECK_EQ(r.workspace, FA2I_WORKSPACE_NONE);
    CHECK_STR(r.suffix, "");
    const fa2i_step *step = fa2i_recipe_main(&r);
    CHECK_STR(step->entry, "fwd_sm80");
    CHECK(step->threads == 256 && step->smem_bytes == 49152 && step->cluster == 1);
    CHECK(step->blocks == FA2I_BLOCKS_ROW_TILES && step->block_rows == 1);
    CHECK(fa2i_recipe_step(&r, FA2I_STEP_COMBINE) == NULL);
}

static void test_split(void)
{
    fa2i_recipe r;
    CHECK_EQ(fa2i_recipe_parse(split, &r), FA2_OK);
    CHECK_STR(r.text, split);
    CHECK(r.pack == 1 && r.waves == 2 && r.max_splits == 256 && r.step_count == 2);
    CHECK_EQ(r.workspace, FA2I_WORKSPACE_PARTIALS);
    CHECK_STR(r.suffix, "a");
    CHECK_EQ(r.steps[0].cluster, 2);
    CHECK(r.steps[0].early == 0 && r.steps[1].early == 1);
    const fa2i_step *step = fa2i_recipe_step(&r, FA2I_STEP_COMBINE);
    CHECK(step == &r.steps[1]);
    CHECK_STR(step->entry, "fwd_splitkv_sm80_combine");
    CHECK(step->blocks == FA2I_BLOCKS_ROWS && step->block_rows == 4);
}

static void test_rounded(void)
{
    fa2i_recipe r;
    CHECK_EQ(fa2i_recipe_parse(rounded, &r), FA2_OK);
    CHECK_EQ(r.workspace, FA2I_WORKSPACE_INT8_KEYS);
    CHECK_EQ(r.steps[0].role, FA2I_STEP_QUANTISE);
    CHECK(r.steps[0].blocks == FA2I_BLOCKS_HEAD_TILES && r.steps[0].block_rows == 4);
    CHECK_STR(fa2i_recipe_main(&r)->entry, "f");
}

static void test_maps(void)
{
    fa2i_recipe r;
    CHECK_EQ(fa2i_recipe_parse(mapped, &r), FA2_OK);
    CHECK_STR(r.text, mapped);
    CHECK_EQ(r.map_count, 3);
    CHECK(r.maps[0].operand == FA2I_MAPPED_Q && r.maps[0].rows == 64);
    CHECK(r.maps[1].operand == FA2I_MAPPED_K && r.maps[1].rows == 176);
    CHECK(r.maps[2].operand == FA2I_MAPPED_V && r.maps[2].rows == 176);
    CHECK_STR(fa2i_mapped_word(r.maps[1].operand), "k");
    CHECK_EQ(fa2i_recipe_parse(mapped_backward, &r), FA2_OK);
    CHECK_STR(r.text, mapped_backward);
    CHECK_EQ(r.map_count, 4);
    CHECK(r.maps[3].operand == FA2I_MAPPED_DO && r.maps[3].rows == 64);
    CHECK_EQ(fa2i_recipe_parse(plain, &r), FA2_OK);
    CHECK_EQ(r.map_count, 0);
}

static void test_backward(void)
{
    fa2i_recipe r;
    CHECK_EQ(fa2i_recipe_parse(backward, &r), FA2_OK);
    CHECK_STR(r.text, backward);
    CHECK(r.op == FA2_OP_BACKWARD && r.columns == 64 && r.step_count == 3);
    CHECK_EQ(r.workspace, FA2I_WORKSPACE_ROWS_AND_DQ);
    CHECK(r.steps[0].role == FA2I_STEP_PREPARE && r.steps[2].role == FA2I_STEP_CONVERT);
    CHECK(r.steps[2].blocks == FA2I_BLOCKS_PADDED_ROWS && r.steps[2].block_rows == 16);
    CHECK_EQ(fa2i_recipe_main(&r)->blocks, FA2I_BLOCKS_KEY_TILES);
    CHECK_EQ(fa2i_recipe_parse(heads, &r), FA2_OK);
    CHECK_STR(r.text, heads);
    CHECK(r.heads == 2 && r.waves == 0 && r.max_splits == 1);
    CHECK_EQ(fa2i_recipe_parse(apart, &r), FA2_OK);
    CHECK_STR(r.text, apart);
    CHECK(r.workspace == FA2I_WORKSPACE_ROWS && r.columns == 0);
    CHECK_EQ(fa2i_recipe_main(&r)->blocks, FA2I_BLOCKS_KEY_AND_QUERY_TILES);
}

/* `from` in a good text is replaced by `to`. The refusal names the error. */
typedef struct fault {
    const char *text, *from, *to, *named;
} fault;

static const fault faults[] = {
    {plain, "op=forward ", "", "'op=' is expected"},
    {plain, "forward", "backwards", "op=backwards is not known"},
    {plain, "abi=2", "abi=0", "abi is 0; it must be from 1 to 1000000"},
    {plain, " abi=2", "", "'abi=' is expected"},
    {plain, "rows=128", "rows=0", "rows is 0; it must be from 1 to 65536"},
    {plain, "rows=128", "rows=-1", "rows is -1"},
    {plain, "rows=128", "rows=128x", "rows is -1"},
    {plain, "rows=128", "rows=99999999999", "rows is -1"},
    {plain, "rows=128", "rows=0128", "it is written 'op=forward abi=2 rows=128 "},
    {plain, "rows=128 keys=64", "keys=64 rows=128", "'rows=' is expected"},
    {plain, "keys=64", "keys=65537", "keys is 65537"},
    {plain, "keys=64", "keys=64 pack=0", "it is written"},
    {plain, "keys=64", "keys=64 pack=2", "pack is 2"},
    {plain, "keys=64", "keys=64 waves=65", "waves is 65"},
    {plain, "keys=64", "keys=64 speed=9", "' speed=9; "},
    {plain, "keys=64", "keys=64  ", "'  ; fwd_sm80"},
    {plain, "keys=64;", "keys=64 ;", "' ; fwd_sm80"},
    {plain, "; fwd", ";fwd", "it is written"},
    {plain, "; fwd", ";  fwd", "step 1: an entry point is expected"},
    {plain, "fwd_sm80 ", "", "step 1: 'role=' is expected"},
    {plain, "fwd_sm80", "fwd-sm80", "its entry point is 'fwd-sm80'"},
    {plain, "fwd_sm80", "f123456789f123456789f123456789f123456789f123456789f123456789f123",
     "an entry point is expected"},
    {plain, "role=main", "role=leader", "role=leader is not known"},
    {plain, "role=main", "role=combine", "no step has role=main"},
    {plain, "threads=256", "threads=0", "step 1: threads is 0"},
    {plain, "threads=256", "threads=250", "a multiple of 32 from 32 to 1024"},
    {plain, "threads=256", "threads=1056", "threads is 1056"},
    {plain, "smem=49152", "smem=-16", "smem is -1"},
    {plain, "smem=49152", "smem=1048577", "smem is 1048577"},
    {plain, " smem=49152", "", "'smem=' is expected"},
    {plain, "smem=49152", "smem=49152 cluster=17", "cluster is 17"},
    {plain, "smem=49152", "smem=49152 early=2", "early is 2"},
    {plain, "blocks=row_tiles", "blocks=tiles", "blocks=tiles is not known"},
    {plain, " blocks=row_tiles", "", "'blocks=' is expected"},
    {plain, "row_tiles", "row_tiles/0", "rows of a block is 0"},
    {plain, "row_tiles", "row_tiles/", "rows of a block is -1"},
    {plain, "row_tiles", "row_tiles/1", "it is written"},
    {plain, "row_tiles", "resident_row_tiles/1", "it is written"},
    {backward, "blocks=key_tiles", "blocks=resident_row_tiles/2", "is not for op=backward"},
    {plain, "row_tiles", "row_tiles;", "step 2: an entry point is expected"},
    {plain, "row_tiles", "row_tiles ", "' ' is not known"},
    {plain, "row_tiles", "row_tiles fast=1", "' fast=1' is not known"},
    {plain, "row_tiles", "key_tiles", "step 1: blocks=key_tiles is not for op=forward"},
    {plain, "keys=64", "keys=64 workspace=rows", "workspace=rows is not for op=forward"},
    {backward, "blocks=key_tiles", "blocks=row_tiles", "blocks=row_tiles is not for op=backward"},
    {backward, "rows_and_dq", "partials", "workspace=partials is not for op=backward"},
    {backward, "columns=64 ", "", "columns is 0; it must be more than 0 with workspace=rows_and_dq"},
    {backward, "columns=64", "columns=65537", "columns is 65537"},
    {backward, "role=prepare", "role=convert", "workspace=rows_and_dq, but no step prepares it"},
    {backward, "role=convert", "role=prepare", "no step converts what is in it"},
    {whole, "role=convert", "role=prepare", "no step converts what is in it"},
    {whole, "columns=64 ", "", "columns is 0; it must be more than 0 with"},
    {whole, "role=convert", "role=head_sums", "workspace=dq_of_tiles, but a step role=head_sums reads rows"},
    {apart, "workspace=rows", "columns=8 workspace=rows", "columns is 8"},
    {apart, "role=prepare", "role=convert", "workspace=rows, but no step prepares it"},
    {split, "waves=2 ", "", "waves is 0 and splits 256"},
    {split, "splits=256 ", "", "waves is 2 and splits 1"},
    {split, "splits=256", "splits=65537", "splits is 65537"},
    {split, "workspace=partials ", "", "needs workspace=partials"},
    {split, "workspace=partials", "workspace=some", "workspace=some is not known"},
    {split, "suffix=a", "suffix=ab", "it is written"},
    {split, "suffix=a", "suffix=A", "suffix is 'A'"},
    {mapped, "k/176,", "u/176,", "maps: an operand is expected, not 'u'"},
    {mapped, "k/176,", "k,", "rows of a map is -1; it must be from 1 to 256"},
    {mapped, "k/176,", "k/257,", "rows of a map is 257; it must be from 1 to 256"},
    {mapped, "k/176,", "q/64,", "maps: a map of q is there twice"},
    {mapped, "v/176;", "v/176,do/1;", "maps: a map of do is not for this operation"},
    {mapped, "v/176;", "v/176,o/1,bias/1,q/1;", "maps: there are more than 5"},
    {mapped, "v/176;", "v/176,o/1,bias/1,;", "maps: there are more than 5"},
    {mapped, "v/176;", "v/176,;", "maps: an operand is expected, not ''"},
    {mapped, " suffix", " workspace=counter suffix", "workspace=counter, but no step prepares it"},
    {mapped, " suffix", " workspace=column_keys suffix", "column_keys, but no step prepares it"},
    {keyed, "keys/256", "one", "workspace=column_keys, but its step has no blocks=keys"},
    {rounded, "head_tiles/4", "one", "need each other"},
    {rounded, "role=quantise", "role=prepare", "workspace=int8_keys; a step role=quantise blocks=head_tiles"},
    {rounded, " workspace=int8_keys", "", "workspace=none; a step role=quantise blocks=head_tiles"},
    {backward, "blocks=key_tiles", "blocks=head_tiles", "blocks=head_tiles is not for op=backward"},
    {mapped, ",v/176;", ",;", "maps: an operand is expected, not ''"},
    {mapped, " maps=q/64,k/176,v/176", " maps=", "out of order"},
    {mapped, "suffix=a maps=q/64,k/176,v/176", "maps=q/64,k/176,v/176 suffix=a", "out of order"},
    {backward, "workspace=rows_and_dq", "workspace=rows_and_dq maps=q/64,do/64,do/64",
     "maps: a map of do is there twice"},
    {split, "role=combine", "role=convert", "no step combines"},
    {heads, "role=combine", "role=convert", "no step combines"},
    {heads, "heads=2", "heads=65537", "heads is 65537"},
    {heads, "heads=2", "waves=1 splits=16 heads=2", "heads is 2; it is for backward without waves"},
    {heads, "workspace=rows_and_dq ", "", "heads is 2, which needs workspace=rows_and_dq"},
    {plain, "keys=64", "keys=64 heads=1", "heads is 1; it is for backward without waves"},
    {split, "role=combine", "role=combine role=main", "step 2: 'threads=' is expected"},
};

static void test_faults(void)
{
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const fault *f = &faults[i];
        const char *at = strstr(f->text, f->from);
        char text[2 * FA2I_RECIPE_CHARS];
        fa2i_recipe r = {.rows = 7};
        CHECK(at != NULL);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - f->text), f->text, f->to, at + strlen(f->from));
        CHECK_EQ(fa2i_recipe_parse(text, &r), FA2_E_INVALID);
        CHECK_CONTAINS(fa2_last_message(), f->named);
        CHECK_CONTAINS(fa2_last_message(), "recipe '");
        CHECK_EQ(r.rows, 7);
        if (check_failures > 0)
            fprintf(stderr, "fault %zu: %s\n  %s\n", i, text, fa2_last_message());
    }
    fa2i_recipe r;
    CHECK_EQ(fa2i_recipe_parse("", &r), FA2_E_INVALID);
    CHECK_EQ(fa2i_recipe_parse("op=forward abi=2 rows=1 keys=1", &r), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "there are 0 steps; there must be 1 to 6");
}

/* At most six steps. Long names may exceed the room of a text. */
static void test_many_steps(void)
{
    char text[2 * FA2I_RECIPE_CHARS] = "op=forward abi=2 rows=1 keys=1";
    fa2i_recipe r;
    for (int i = 0; i < FA2I_RECIPE_STEPS; i++)
        strcat(text, "; a role=main threads=32 smem=0 blocks=rows");
    CHECK_EQ(fa2i_recipe_parse(text, &r), FA2_OK);
    CHECK_EQ(r.step_count, FA2I_RECIPE_STEPS);
    strcat(text, "; a role=main threads=32 smem=0 blocks=rows");
    CHECK_EQ(fa2i_recipe_parse(text, &r), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "more than 6 steps");
    for (int i = 0; i < FA2I_RECIPE_STEPS; i++)
        memset(r.steps[i].entry, 'a', FA2I_ENTRY_CHARS - 1);
    CHECK_EQ(fa2i_recipe_format(&r), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "it must be at most 639");
}

/* A recipe built from numbers is checked, too, and keeps its text if that fails. */
static void test_format(void)
{
    fa2i_recipe r, again;
    CHECK_EQ(fa2i_recipe_parse(split, &r), FA2_OK);
    r.waves = 4;
    CHECK_EQ(fa2i_recipe_format(&r), FA2_OK);
    CHECK_CONTAINS(r.text, " waves=4 ");
    CHECK_EQ(fa2i_recipe_parse(r.text, &again), FA2_OK);
    CHECK_EQ(again.waves, 4);
    r.steps[1].threads = 100;
    CHECK_EQ(fa2i_recipe_format(&r), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "step 2: threads is 100");
    CHECK_STR(r.text, again.text);
}

int main(void)
{
    test_plain();
    test_split();
    test_rounded();
    test_maps();
    test_backward();
    test_faults();
    test_many_steps();
    test_format();
    return check_done();
}
