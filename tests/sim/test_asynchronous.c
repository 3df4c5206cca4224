/*
 * mbarriers, bulk and tensor copies, the fences between the proxies: on small kernels, right, and with each
 * rule violated once; and what cuTensorMapEncodeTiled refuses.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/check.h"
#include "tests/sim/bench_device.h"

enum { IN_WORDS = 256, THREADS_MAX = 288 };

/* k(map, in, out). %r0: the thread; %r20: shared memory; %r21, %r22: two mbarriers in it; %r23: the thread's
 * word of it; %r24 ... %r27: in[200 ...]; %rd1: in; %rd2: the thread's word of out; %rd4: map; %p1: thread 0;
 * %p5: not in the first warp. %r10 goes to out. */
static const char head[] =
    ".version 8.0\n.target sm_90a\n.address_size 64\n"
    ".extern .shared .align 1024 .b8 smem[];\n"
    ".visible .entry k(.param .align 64 .b8 map[128], .param .u64 in, .param .u64 out)\n%s{\n"
    ".reg .pred %%p<16>;\n.reg .b32 %%r<64>;\n.reg .b64 %%rd<16>;\n"
    "ld.param.u64 %%rd1, [in];\nld.param.u64 %%rd2, [out];\nmov.u32 %%r0, %%tid.x;\n"
    "mul.wide.u32 %%rd3, %%r0, 4;\nadd.s64 %%rd2, %%rd2, %%rd3;\nmov.b64 %%rd4, map;\n"
    "cvta.param.u64 %%rd4, %%rd4;\nmov.u32 %%r20, smem;\nadd.s32 %%r21, %%r20, 4096;\n"
    "add.s32 %%r22, %%r20, 4104;\nshl.b32 %%r23, %%r0, 2;\nadd.s32 %%r23, %%r20, %%r23;\n"
    "ld.global.u32 %%r24, [%%rd1+800];\nld.global.u32 %%r25, [%%rd1+804];\n"
    "ld.global.u32 %%r26, [%%rd1+808];\nld.global.u32 %%r27, [%%rd1+812];\n"
    "setp.eq.u32 %%p1, %%r0, 0;\nsetp.gt.u32 %%p5, %%r0, 31;\nmov.u32 %%r10, 0;\n%s\n"
    "st.global.u32 [%%rd2], %%r10;\nret;\n}\n";

typedef struct device_run {
    const char *bounds; /* .maxntid ... */
    const char *body;
    unsigned threads;
    const CUtensorMap *map;
    const uint32_t *in;
    uint32_t *out;
} device_run;

static CUresult launch(const device_run *r, CUfunction function)
{
    CUtensorMap none = {{0}};
    CUdeviceptr in = 0, out = 0;
    void *params[] = {r->map != NULL ? (void *)(uintptr_t)r->map : &none, &in, &out};
    CUresult result = cuMemAlloc(&in, IN_WORDS * 4);
    if (result == CUDA_SUCCESS)
        result = cuMemAlloc(&out, THREADS_MAX * 4);
    if (result == CUDA_SUCCESS)
        result = cuMemcpyHtoD(in, r->in, IN_WORDS * 4);
    if (result == CUDA_SUCCESS)
        result = cuLaunchKernel(function, 1, 1, 1, r->threads, 1, 1, 4096 + 16, NULL, params, NULL);
    if (result == CUDA_SUCCESS)
        result = cuCtxSynchronize();
    if (result == CUDA_SUCCESS)
        result = cuMemcpyDtoH(r->out, out, r->threads * 4);
    return result;
}

/* On a device that was opened. */
static CUresult run(const device_run *r)
{
    static char text[8192];
    CUmodule module = NULL;
    CUfunction function = NULL;
    snprintf(text, sizeof text, head, r->bounds == NULL ? "" : r->bounds, r->body);
    CUresult result = cuModuleLoadDataEx(&module, text, 0, NULL, NULL);
    if (result == CUDA_SUCCESS)
        result = cuModuleGetFunction(&function, module, "k");
    return result != CUDA_SUCCESS ? result : launch(r, function);
}

static void fill(uint32_t in[IN_WORDS])
{
    for (uint32_t i = 0; i < IN_WORDS; i++)
        in[i] = 7 * i + 1;
}

/* ---- rules ---- */

#define MAKE_ONLY(count) "@%p1 mbarrier.init.shared::cta.b64 [%r21], " count ";"
#define MAKE(count)      MAKE_ONLY(count) "@%p1 fence.mbarrier_init.release.cluster; bar.sync 0;"
#define EXPECT(bytes)    "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], " bytes ";"
#define LOAD(bytes)                                                                                \
    "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r20], "              \
    "[%rd1], " bytes ", [%r21];"
#define ARRIVE      "mbarrier.arrive.shared::cta.b64 _, [%r21];"
#define WAIT(phase) "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r21], " phase ";"
#define READ        "ld.shared.b32 %r10, [%r23];"
#define WRITE       "st.shared.b32 [%r23], %r0;"
/* The word of the thread in the other warp. */
#define READ_OTHER   "xor.b32 %r30, %r23, 128; ld.shared.b32 %r10, [%r30];"
#define FENCE        "fence.proxy.async.shared::cta;"
#define COPY         "cp.async.ca.shared.global [%r23], [%rd1], 4;"
#define COPY_ARRIVES "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r21];"
#define GROUPS       ".maxntid 256\n.minnctapersm 1\n"

static const struct rule {
    const char *body, *bounds;
    unsigned threads;
    CUresult error;
    const char *said;
} rules[] = {
    {MAKE("1") EXPECT("256") LOAD("256") WAIT("0") READ, NULL, 64, CUDA_SUCCESS, ""},
    {MAKE("1") LOAD("256") EXPECT("256") WAIT("0") READ, NULL, 64, CUDA_SUCCESS, ""},
    {MAKE("1") EXPECT("256") LOAD("256") READ WAIT("0"), NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "early: shared memory at offset 0 is written without a wait for its mbarrier's phase"},
    {MAKE("1") EXPECT("256") LOAD("256") WRITE WAIT("0"), NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "early: shared memory at offset 0"},
    {MAKE("1") EXPECT("256") LOAD("256"), NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "early: the block ends, and nobody has waited"},
    {MAKE_ONLY("1") "bar.sync 0;" EXPECT("256") LOAD("256") WAIT("0"), NULL, 64,
     CUDA_ERROR_LAUNCH_FAILED, "proxy: no fence.mbarrier_init"},
    {MAKE_ONLY("64") ARRIVE, NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "race: it reads shared memory at offset 4096"},
    {ARRIVE, NULL, 32, CUDA_ERROR_LAUNCH_FAILED, "uninitialised"},
    {"@%p1 st.shared.b64 [%r21], %rd1; bar.sync 0;" ARRIVE, NULL, 32, CUDA_ERROR_LAUNCH_FAILED,
     "there is no mbarrier at offset 4096"},
    {MAKE("1") MAKE("1"), NULL, 32, CUDA_ERROR_LAUNCH_FAILED, "there is an mbarrier already"},
    {MAKE("0"), NULL, 32, CUDA_ERROR_LAUNCH_FAILED, "an mbarrier for 0 arrivals"},
    /* counts and phases */
    {MAKE("1") EXPECT("272") LOAD("256") WAIT("0"), NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "which is in phase 0 with 0 of 1 arrivals and 16 bytes missing"},
    {MAKE("1") LOAD("256") "@%p1 " ARRIVE WAIT("0"), NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "with 0 of 1 arrivals and -256 bytes missing"},
    {MAKE("2") EXPECT("256") LOAD("256") WAIT("0"), NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "with 1 of 2 arrivals and 0 bytes missing"},
    {MAKE("1") EXPECT("256") LOAD("256") WAIT("1") READ, NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "stuck: it waits for phase 1 (parity 1)"},
    {MAKE("1") WAIT("1") "bar.sync 0;" EXPECT("256") LOAD("256") WAIT("0") READ, NULL, 64,
     CUDA_SUCCESS, ""},
    {MAKE("31") ARRIVE, NULL, 32, CUDA_ERROR_LAUNCH_FAILED, "32 arrivals, and phase 0"},
    {MAKE("1") EXPECT("1048576"), NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "the mbarrier would wait for 1048576 bytes"},
    {MAKE("1") "and.b32 %r30, %r0, 1;" WAIT("%r30"), NULL, 32, CUDA_ERROR_LAUNCH_FAILED,
     "where another lane waits for 0"},
    /* what an arrival and a wait order */
    {MAKE("64") WRITE ARRIVE WAIT("0") READ_OTHER, NULL, 64, CUDA_SUCCESS, ""},
    {MAKE("64") WRITE ARRIVE READ_OTHER WAIT("0"), NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "uninitialised"},
    {MAKE("64") ARRIVE WRITE WAIT("0") READ_OTHER, NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "race: it reads shared memory"},
    /* lane 0 arrives for its warp: the other lanes' writes before a bar.warp.sync */
    {MAKE("2") WRITE
     "bar.warp.sync -1; and.b32 %r31, %r0, 31; setp.eq.u32 %p3, %r31, 0; @%p3 " ARRIVE WAIT("0")
         READ_OTHER,
     NULL, 64, CUDA_SUCCESS, ""},
    {MAKE("2") WRITE "and.b32 %r31, %r0, 31; setp.eq.u32 %p3, %r31, 0; @%p3 " ARRIVE WAIT("0")
         READ_OTHER,
     NULL, 64, CUDA_ERROR_LAUNCH_FAILED, "race: it reads shared memory"},
    /* bar.arrive: what comes before it is ordered, what those did who wait is not */
    {"@%p5 bra SECOND; bar.sync 1, 64;" READ_OTHER "bra DONE; SECOND: " WRITE
     "bar.arrive 1, 64; DONE:",
     NULL, 64, CUDA_SUCCESS, ""},
    {"@%p5 bra SECOND;" WRITE
     "bar.sync 1, 64; bra DONE; SECOND: bar.arrive 1, 64; bar.sync 2, 32;" READ_OTHER "DONE:",
     NULL, 64, CUDA_ERROR_LAUNCH_FAILED, "race: it reads shared memory"},
    {"@%p5 bra SECOND; bar.sync 1, 96; bra DONE; SECOND: bar.arrive 1, 64; DONE:", NULL, 64,
     CUDA_ERROR_LAUNCH_FAILED, "barrier divergence"},
    {"@%p5 bra SECOND; bar.sync 1, 64; bra DONE; SECOND: bar.arrive 1, 64; bar.arrive 1, 64; DONE:",
     NULL, 96, CUDA_ERROR_LAUNCH_FAILED, "barrier divergence"},
    /* between the proxies */
    {MAKE("1") WRITE FENCE "bar.sync 0;" EXPECT("256") LOAD("256") WAIT("0") READ, NULL, 64,
     CUDA_SUCCESS, ""},
    {MAKE("1") WRITE "bar.sync 0;" EXPECT("256") LOAD("256") WAIT("0") READ, NULL, 64,
     CUDA_ERROR_LAUNCH_FAILED, "proxy: it writes shared memory at offset 0"},
    {MAKE("1") WRITE "bar.sync 0;" READ "bar.sync 0;" FENCE EXPECT("256") LOAD("256") WAIT("0"),
     NULL, 64, CUDA_SUCCESS, ""},
    {MAKE("1") EXPECT("256") LOAD("256") WAIT("0") READ EXPECT("256") LOAD("256") WAIT("1"), NULL,
     64, CUDA_ERROR_LAUNCH_FAILED, "race: it writes shared memory at offset 0, read"},
    {MAKE("1") EXPECT("256") LOAD("256") WAIT("0") READ "bar.sync 0;" EXPECT("256") LOAD("256")
         WAIT("1") READ,
     NULL, 64, CUDA_SUCCESS, ""},
    /* copies that arrive: they are seen behind the wait, what was stored beside them is not */
    {MAKE("64") COPY COPY_ARRIVES WAIT("0") READ_OTHER, NULL, 64, CUDA_SUCCESS, ""},
    {MAKE("64") COPY COPY_ARRIVES READ WAIT("0"), NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "early: shared memory at offset 0"},
    {MAKE("64") WRITE COPY_ARRIVES WAIT("0") READ_OTHER, NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "race: it reads shared memory"},
    /* alignment */
    {MAKE("1") EXPECT("8") LOAD("8") WAIT("0"), NULL, 64, CUDA_ERROR_MISALIGNED_ADDRESS,
     "misaligned: the number of bytes is 0x8"},
    {MAKE("1") "add.s32 %r20, %r20, 8;" EXPECT("16") LOAD("16") WAIT("0"), NULL, 64,
     CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"},
    {MAKE("1") "add.s64 %rd1, %rd1, 8;" EXPECT("16") LOAD("16") WAIT("0"), NULL, 64,
     CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned: the source"},
    {MAKE("1") EXPECT("4096") LOAD("4096") WAIT("0"), NULL, 64, CUDA_ERROR_ILLEGAL_ADDRESS,
     "illegal address"},
    /* registers: a block of 256 threads has 255 each, as a multiple of 8 */
    {"setp.gt.u32 %p6, %r0, 127; @%p6 bra MORE; setmaxnreg.dec.sync.aligned.u32 200; bra DONE;"
     "MORE: setmaxnreg.inc.sync.aligned.u32 256; DONE:",
     GROUPS, 256, CUDA_SUCCESS, ""},
    {"setp.gt.u32 %p6, %r0, 127; @%p6 bra MORE; setmaxnreg.dec.sync.aligned.u32 248; bra DONE;"
     "MORE: setmaxnreg.inc.sync.aligned.u32 264; DONE:",
     GROUPS, 256, CUDA_ERROR_LAUNCH_FAILED, "264 registers a thread"},
    {"setmaxnreg.dec.sync.aligned.u32 100;", GROUPS, 256, CUDA_ERROR_LAUNCH_FAILED,
     "100 registers a thread"},
    {"setmaxnreg.inc.sync.aligned.u32 256;", GROUPS, 256, CUDA_ERROR_LAUNCH_FAILED,
     "stuck: it waits for"},
    {"setp.lt.u32 %p6, %r0, 8; @%p6 setmaxnreg.dec.sync.aligned.u32 24;", GROUPS, 256,
     CUDA_ERROR_LAUNCH_FAILED, "by lanes 0x000000ff"},
};

static void test_rules(void)
{
    uint32_t in[IN_WORDS], out[THREADS_MAX];
    fill(in);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const struct rule *r = &rules[i];
        const device_run one = {
            .bounds = r->bounds, .body = r->body, .threads = r->threads, .in = in, .out = out};
        bench_open("h200");
        const CUresult result = run(&one);
        CHECK_EQ(result, r->error);
        CHECK_CONTAINS(fa2_sim_message(), r->said);
        if (result != r->error || strstr(fa2_sim_message(), r->said) == NULL)
            fprintf(stderr, "rule %zu: %s\n    %s\n", i, r->body, fa2_sim_message());
    }
}

/* What is loaded is what is read, behind two phases. */
static void test_loads(void)
{
    static const char body[] = MAKE("1") EXPECT("256") LOAD("256") WAIT("0") READ
        "bar.sync 0; @%p1 add.s64 %rd1, %rd1, 256;" EXPECT("256") LOAD("256")
            WAIT("1") "ld.shared.b32 %r11, [%r23]; shl.b32 %r11, %r11, 16;"
                      "add.s32 %r10, %r10, %r11;";
    uint32_t in[IN_WORDS], out[THREADS_MAX];
    fill(in);
    bench_open("h200");
    CHECK_EQ(run(&(device_run){.body = body, .threads = 64, .in = in, .out = out}), CUDA_SUCCESS);
    for (uint32_t i = 0; i < 64; i++)
        CHECK_EQ(out[i], in[i] + (in[i + 64] << 16));
}

/* ---- tensors ---- */

/* Of 16-bit numbers. The box has 1024 bytes, a word for each of 256 threads. */
typedef struct tensor_case {
    CUtensorMapSwizzle swizzle;
    unsigned chunks;      /* that change places; 1: none */
    unsigned box_columns; /* rows: as many as there is room for */
    int32_t at[4];
} tensor_case;

static const tensor_case tensor_cases[] = {
    {CU_TENSOR_MAP_SWIZZLE_NONE, 1, 64, {0, 0, 0, 0}},
    {CU_TENSOR_MAP_SWIZZLE_128B, 8, 64, {0, 0, 0, 0}},
    {CU_TENSOR_MAP_SWIZZLE_64B, 4, 32, {0, 0, 1, 0}},
    {CU_TENSOR_MAP_SWIZZLE_32B, 2, 16, {0, 0, 0, 1}},
    {CU_TENSOR_MAP_SWIZZLE_128B, 8, 64, {32, 3, 1, 1}}, /* over the ends of rows and columns */
    {CU_TENSOR_MAP_SWIZZLE_128B, 8, 64, {-5, -2, 1, 0}},
    {CU_TENSOR_MAP_SWIZZLE_64B, 4, 32, {8, 2, 2, 0}}, /* all outside */
    {CU_TENSOR_MAP_SWIZZLE_128B, 8, 64, {0, 0, 0, -1}},
};
enum { COLUMNS = 40, ROWS = 6, HEADS = 2, BATCHES = 2, PITCH = 48, BOX_WORDS = 256 };
enum { ELEMENTS = BATCHES * HEADS * ROWS * PITCH };

static CUresult encode(const tensor_case *c, CUdeviceptr tensor, CUtensorMap *map)
{
    const cuuint64_t extents[] = {COLUMNS, ROWS, HEADS, BATCHES};
    const cuuint64_t strides[] = {PITCH * 2, ROWS * PITCH * 2, HEADS * ROWS * PITCH * 2};
    const cuuint32_t box[] = {c->box_columns, 2 * BOX_WORDS / c->box_columns, 1, 1};
    const cuuint32_t every[] = {1, 1, 1, 1};
    return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, (void *)(uintptr_t)tensor,
                                  extents, strides, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                  c->swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

/* Where an element of the box is in shared memory, in elements. */
static unsigned place_of(const tensor_case *c, unsigned row, unsigned column)
{
    const unsigned byte = (row * c->box_columns + column) * 2, line = byte / 128;
    return (byte ^ (line % c->chunks * 16)) / 2;
}

/* Its place in the tensor; -1: it is outside. */
static int element_of(const tensor_case *c, unsigned row, unsigned column)
{
    const int x = c->at[0] + (int)column, y = c->at[1] + (int)row;
    const bool inside = x >= 0 && x < COLUMNS && y >= 0 && y < ROWS && c->at[2] >= 0 &&
                        c->at[2] < HEADS && c->at[3] >= 0 && c->at[3] < BATCHES;
    return inside ? ((c->at[3] * HEADS + c->at[2]) * ROWS + y) * PITCH + x : -1;
}

static CUresult run_tensor(const tensor_case *c, const char *body, uint16_t tensor[ELEMENTS],
                           uint32_t out[THREADS_MAX])
{
    uint32_t in[IN_WORDS];
    CUtensorMap map;
    CUdeviceptr memory = 0;
    fill(in);
    memcpy(in + 200, c->at, sizeof c->at);
    bench_open("h200");
    CUresult result = cuMemAlloc(&memory, ELEMENTS * 2);
    if (result == CUDA_SUCCESS)
        result = cuMemcpyHtoD(memory, tensor, ELEMENTS * 2);
    if (result == CUDA_SUCCESS)
        result = encode(c, memory, &map);
    if (result == CUDA_SUCCESS)
        result = run(
            &(device_run){.body = body, .threads = BOX_WORDS, .map = &map, .in = in, .out = out});
    if (result == CUDA_SUCCESS)
        result = cuMemcpyDtoH(tensor, memory, ELEMENTS * 2);
    return result;
}

#define LOAD_BOX                                                                                   \
    "@%p1 cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "       \
    "[%r20], [%rd4, {%r24, %r25, %r26, %r27}], [%r21];"
#define STORE_BOX                                                                                  \
    "@%p1 cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group "                             \
    "[%rd4, {%r24, %r25, %r26, %r27}], [%r20];"
#define COMMIT     "@%p1 cp.async.bulk.commit_group;"
#define WAIT_READ  "@%p1 cp.async.bulk.wait_group.read 0;"
#define FILLED_BOX WRITE FENCE "bar.sync 0;"

static void test_tensor_loads(void)
{
    for (size_t i = 0; i < sizeof tensor_cases / sizeof *tensor_cases; i++) {
        const tensor_case *c = &tensor_cases[i];
        uint16_t tensor[ELEMENTS], box[2 * BOX_WORDS];
        uint32_t out[THREADS_MAX];
        int wrong = 0;
        for (int e = 0; e < ELEMENTS; e++)
            tensor[e] = (uint16_t)(e + 1);
        CHECK_EQ(run_tensor(c, MAKE("1") EXPECT("1024") LOAD_BOX WAIT("0") READ, tensor, out),
                 CUDA_SUCCESS);
        memcpy(box, out, sizeof box);
        for (unsigned e = 0; e < 2 * BOX_WORDS; e++) {
            const unsigned row = e / c->box_columns, column = e % c->box_columns;
            const int from = element_of(c, row, column);
            wrong += box[place_of(c, row, column)] != (from < 0 ? 0 : tensor[from]);
        }
        CHECK_EQ(wrong, 0);
    }
}

static void test_tensor_stores(void)
{
    for (size_t i = 0; i < sizeof tensor_cases / sizeof *tensor_cases; i++) {
        const tensor_case *c = &tensor_cases[i];
        uint16_t tensor[ELEMENTS], wanted[ELEMENTS], box[2 * BOX_WORDS];
        uint32_t out[THREADS_MAX];
        memset(tensor, 0x5a, sizeof tensor);
        memcpy(wanted, tensor, sizeof tensor);
        for (uint32_t word = 0; word < BOX_WORDS; word++)
            memcpy(box + 2 * word, &word, 4);
        for (unsigned e = 0; e < 2 * BOX_WORDS; e++) {
            const unsigned row = e / c->box_columns, column = e % c->box_columns;
            const int to = element_of(c, row, column);
            if (to >= 0)
                wanted[to] = box[place_of(c, row, column)];
        }
        CHECK_EQ(run_tensor(c, FILLED_BOX STORE_BOX COMMIT WAIT_READ, tensor, out), CUDA_SUCCESS);
        CHECK(memcmp(tensor, wanted, sizeof tensor) == 0);
    }
}

static void test_tensor_rules(void)
{
    static const struct {
        const char *body;
        CUresult error;
        const char *said;
    } wrong[] = {
        {WRITE "bar.sync 0;" STORE_BOX COMMIT WAIT_READ, CUDA_ERROR_LAUNCH_FAILED,
         "proxy: it reads shared memory at offset 0"},
        {FILLED_BOX STORE_BOX COMMIT, CUDA_ERROR_LAUNCH_FAILED, "early: the thread ends"},
        {FILLED_BOX STORE_BOX WAIT_READ, CUDA_ERROR_LAUNCH_FAILED, "early: the thread ends"},
        {FILLED_BOX STORE_BOX COMMIT "@%p1 " WRITE WAIT_READ, CUDA_ERROR_LAUNCH_FAILED,
         "race: it writes shared memory at offset 0, read"},
        {FILLED_BOX STORE_BOX COMMIT WAIT_READ "bar.sync 0;" WRITE, CUDA_SUCCESS, ""},
        {STORE_BOX COMMIT WAIT_READ, CUDA_ERROR_LAUNCH_FAILED, "uninitialised"},
        {MAKE("1") "add.s32 %r20, %r20, 64;" EXPECT("1024") LOAD_BOX WAIT("0"),
         CUDA_ERROR_MISALIGNED_ADDRESS, "the destination"},
        {MAKE("1") "add.s64 %rd4, %rd4, 8;" EXPECT("1024") LOAD_BOX WAIT("0"),
         CUDA_ERROR_MISALIGNED_ADDRESS, "the address of the tensor map"},
        {MAKE("1") "mov.b64 %rd4, %rd1;" EXPECT("1024") LOAD_BOX WAIT("0"),
         CUDA_ERROR_NOT_SUPPORTED, "no parameter of the kernel"},
        {MAKE("1") "add.s64 %rd4, %rd4, 64;" EXPECT("1024") LOAD_BOX WAIT("0"),
         CUDA_ERROR_LAUNCH_FAILED, "there is no tensor map of rank 4"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint16_t tensor[ELEMENTS] = {0};
        uint32_t out[THREADS_MAX];
        CHECK_EQ(run_tensor(&tensor_cases[1], wrong[i].body, tensor, out), wrong[i].error);
        CHECK_CONTAINS(fa2_sim_message(), wrong[i].said);
    }
}

/* ---- maps ---- */

/* A map that is right, and one thing about it that is not. */
static void test_maps(void)
{
    enum {
        RIGHT,
        ADDRESS,
        RANK_0,
        RANK_6,
        EXTENT_0,
        EXTENT,
        STRIDE,
        STRIDE_LARGE,
        BOX_0,
        BOX_LARGE,
        BOX_ROW,
        BOX_SPAN,
        STEP_0,
        MAP,
        PACKED,
        STEP,
        INTERLEAVE,
        FILL,
        CASES
    };
    for (int wrong = RIGHT; wrong < CASES; wrong++) {
        _Alignas(64) unsigned char place[256];
        cuuint64_t extents[] = {40, (cuuint64_t)1 << 32}, strides[] = {96};
        cuuint32_t box[] = {64, 256}, steps[] = {1, 1};
        extents[0] = wrong == EXTENT_0 ? 0 : extents[0];
        extents[1] += wrong == EXTENT;
        strides[0] = wrong == STRIDE ? 104 : wrong == STRIDE_LARGE ? (cuuint64_t)1 << 40 : 96;
        box[0] = wrong == BOX_ROW ? 60 : wrong == BOX_SPAN ? 72 : 64;
        box[1] = wrong == BOX_0 ? 0 : wrong == BOX_LARGE ? 257 : 256;
        steps[1] = wrong == STEP_0 ? 0 : wrong == STEP ? 2 : 1;
        bench_open("h200");
        const CUresult result = cuTensorMapEncodeTiled(
            (CUtensorMap *)(void *)(place + (wrong == MAP ? 32 : 0)),
            wrong == PACKED ? CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B
                            : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            wrong == RANK_0   ? 0
            : wrong == RANK_6 ? 6
                              : 2,
            (void *)(uintptr_t)(wrong == ADDRESS ? 1032 : 1024), extents, strides, box, steps,
            wrong == INTERLEAVE ? CU_TENSOR_MAP_INTERLEAVE_16B : CU_TENSOR_MAP_INTERLEAVE_NONE,
            CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            wrong == FILL ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA
                          : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        CHECK_EQ(result, wrong == RIGHT   ? CUDA_SUCCESS
                         : wrong < PACKED ? CUDA_ERROR_INVALID_VALUE
                                          : CUDA_ERROR_NOT_SUPPORTED);
    }
    CUtensorMap map;
    bench_open("a100");
    CHECK_EQ(encode(&tensor_cases[0], 1024, &map), CUDA_ERROR_NOT_SUPPORTED);
}

int main(void)
{
    test_rules();
    test_loads();
    test_tensor_loads();
    test_tensor_stores();
    test_tensor_rules();
    test_maps();
    return check_done();
}
