/*
 * wgmma compared with a second implementation of the PTX ISA's definitions. Matrices are laid out in shared memory
 * element by element, as a tensor map would do it, and register fragments by the ISA's formulas. Violations of the
 * ISA's rules must be found.
 */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include "tests/check.h"
#include "tests/sim/bench_device.h"

enum { THREADS = 128, ROWS = 64, DEPTH_BYTES = 32, COLUMNS_MAX = 256 };
enum { B_AT = 32768, SMEM_BYTES = 131072, SMEM_WORDS = SMEM_BYTES / 4 };
enum { A_WORDS = 4 * THREADS, IN_WORDS = SMEM_WORDS + A_WORDS };

/* The layout of an operand in shared memory. */
typedef struct layout {
    int swizzle; /* bytes: 0, 32, 64, 128 */
    bool transposed;
} layout;

typedef enum element_type { FP16, BF16, E4M3, S8 } element_type;

static const char *const element_names[] = {"f16", "bf16", "e4m3", "s8"};

typedef struct trial {
    int n;
    element_type element;
    bool a_in_registers;
    layout a, b;
    int scale_d, scale_a, scale_b;
    bool by_predicate; /* scale-d: %p3 */
} trial;

static char a_matrix[ROWS][DEPTH_BYTES], b_matrix[COLUMNS_MAX][DEPTH_BYTES];
static uint32_t in[IN_WORDS], out[COLUMNS_MAX / 2 * THREADS];

/* ---- laying out ---- */

static int size_of(const trial *t)
{
    return t->element >= E4M3 ? 1 : 2;
}

/* Returns the bytes from one group of 8 rows (of k, if transposed) to the next, and from one row's pattern to the next.
 * They are larger than necessary, so that a wrong stride shows. */
static int stride_bytes(const layout *l)
{
    return l->swizzle == 0 ? 384 : 16 * l->swizzle;
}

static int leading_bytes(const layout *l)
{
    return l->swizzle == 0 ? 128 : l->transposed ? 2 * stride_bytes(l) + 1024 : 16;
}

/* Returns the place of element (row, k) of `size` bytes. A pattern row has as many bytes as the swizzle. Its 16-byte chunks are
 * permuted in a way that changes every 128 bytes. */
static int place(const layout *l, int size, int row, int k)
{
    const int unit = 16 / size;
    const int outer = l->transposed ? k : row, inner = l->transposed ? row : k;
    if (l->swizzle == 0) { /* core matrices of 8 rows of 16 bytes */
        const int far = l->transposed ? inner / unit * stride_bytes(l) + outer / 8 * leading_bytes(l)
                                      : outer / 8 * stride_bytes(l) + inner / unit * leading_bytes(l);
        return far + outer % 8 * 16 + inner % unit * size;
    }
    const int elements = l->swizzle / size, chunks = l->swizzle / 16;
    const int line = outer % 8 * l->swizzle, chunk = inner % elements / unit;
    const int moved = chunk ^ line / 128 % chunks;
    return outer / 8 * stride_bytes(l) + inner / elements * leading_bytes(l) + line + moved * 16 + inner % unit * size;
}

/* K-major rows longer than 32 bytes hold several products' elements: use the second 32 of them. */
static int first_byte(const layout *l)
{
    return !l->transposed && l->swizzle > DEPTH_BYTES ? DEPTH_BYTES : 0;
}

static void put(int first, const layout *l, int size, int row, const char *bytes)
{
    for (int at = 0; at < DEPTH_BYTES; at += size)
        memcpy((char *)in + first + place(l, size, row, (first_byte(l) + at) / size), bytes + at, (size_t)size);
}

static void lay_out(const trial *t)
{
    for (int r = 0; r < ROWS; r++)
        put(0, &t->a, size_of(t), r, a_matrix[r]);
    for (int c = 0; c < t->n; c++)
        put(B_AT, &t->b, size_of(t), c, b_matrix[c]);
    for (int i = 0; i < A_WORDS; i++) { /* by thread, then register */
        const int thread = i / 4, reg = i % 4;
        const int row = thread / 32 * 16 + thread % 32 / 4 + reg % 2 * 8;
        memcpy(&in[SMEM_WORDS + i], &a_matrix[row][thread % 4 * 4 + reg / 2 * 16], 4);
    }
}

static unsigned long long descriptor(const layout *l, int at)
{
    const unsigned long long modes[] = {0, 3, 2, 0, 1};
    return modes[l->swizzle / 32] << 62 | (unsigned long long)stride_bytes(l) / 16 << 32 |
           (unsigned long long)leading_bytes(l) / 16 << 16 | (unsigned)(at + first_byte(l)) / 16;
}

/* ---- kernels ---- */

static char text[1 << 16];
static size_t used;

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    used += (size_t)vsnprintf(text + used, sizeof text - used, format, arguments);
    va_end(arguments);
    if (used >= sizeof text)
        exit(1);
}

/* The kernel fills shared memory. %rd10 and %rd11 are the descriptors, %a0 ... %a3 the thread's part of A, %d<i> is
 * the thread plus i. */
static void begin_kernel(const trial *t, const char *target)
{
    used = 0;
    say(".version 8.0\n.target %s\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n"
        ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n"
        ".reg .pred %%p<4>;\n.reg .b32 %%r<16>;\n.reg .b32 %%a<4>;\n.reg .f32 %%d<129>;\n"
        ".reg .b64 %%rd<16>;\nld.param.u64 %%rd1, [in];\nld.param.u64 %%rd2, [out];\n"
        "mov.u32 %%r0, %%tid.x;\nmov.u32 %%r1, smem;\nmov.u32 %%r2, %%r0;\n"
        "mul.wide.u32 %%rd3, %%r0, 4;\nadd.s64 %%rd2, %%rd2, %%rd3;\nmul.wide.u32 %%rd3, %%r0, "
        "16;\n"
        "add.s64 %%rd3, %%rd1, %%rd3;\nld.global.v4.b32 {%%a0, %%a1, %%a2, %%a3}, [%%rd3+%d];\n"
        "{\nagain:\nmul.wide.u32 %%rd4, %%r2, 4;\nadd.s64 %%rd4, %%rd1, %%rd4;\n"
        "ld.global.b32 %%r3, [%%rd4];\nshl.b32 %%r4, %%r2, 2;\nadd.s32 %%r4, %%r1, %%r4;\n"
        "st.shared.b32 [%%r4], %%r3;\nadd.s32 %%r2, %%r2, %d;\nsetp.lt.s32 %%p1, %%r2, %d;\n"
        "@%%p1 bra again;\n}\nfence.proxy.async.shared::cta;\nbar.sync 0;\n",
        target, SMEM_BYTES, THREADS, SMEM_WORDS);
    say("shr.u32 %%r5, %%r1, 4;\ncvt.u64.u32 %%rd5, %%r5;\nadd.s64 %%rd10, %%rd5, %lld;\n"
        "add.s64 %%rd11, %%rd5, %lld;\ncvt.rn.f32.u32 %%d128, %%r0;\n",
        (long long)descriptor(&t->a, 0), (long long)descriptor(&t->b, B_AT));
    for (int i = 0; i < t->n / 2; i++) {
        const float value = (float)i;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        say("add.f32 %%d%d, %%d128, 0f%08X;\n", i, bits);
    }
}

static void say_product(const trial *t, int first)
{
    const char *type = element_names[t->element];
    say("wgmma.mma_async.sync.aligned.m64n%dk%d.%s.%s.%s {", t->n, DEPTH_BYTES / size_of(t),
        t->element == S8 ? "s32" : "f32", type, type);
    for (int i = 0; i < t->n / 2; i++)
        say("%s%%d%d", i > 0 ? ", " : "", first + i);
    say("}, %s, %%rd11, %s", t->a_in_registers ? "{%a0, %a1, %a2, %a3}" : "%rd10",
        t->by_predicate ? "%p3"
        : t->scale_d    ? "1"
                        : "0");
    if (t->element != S8)
        say(", %d, %d", t->scale_a, t->scale_b);
    if (!t->a_in_registers && size_of(t) == 2)
        say(", %d", t->a.transposed);
    if (size_of(t) == 2)
        say(", %d", t->b.transposed);
    say(";\n");
}

static void end_kernel(const trial *t)
{
    for (int i = 0; i < t->n / 2; i++)
        say("st.global.f32 [%%rd2+%d], %%d%d;\n", i * THREADS * 4, i);
    say("ret;\n}\n");
}

static const char fence[] = "wgmma.fence.sync.aligned;\n";
static const char commit[] = "wgmma.commit_group.sync.aligned;\n";
static const char wait[] = "wgmma.wait_group.sync.aligned 0;\n";

/* After an error the card does no more work, so it is opened again. */
static CUresult run(const trial *t)
{
    bench_open("h200");
    lay_out(t);
    return bench_module_of(text, THREADS, SMEM_BYTES, in, IN_WORDS, out, (size_t)t->n / 2 * THREADS);
}

/* ---- numbers ---- */

/* Bytes of e4m3 are any: also zeros, subnormal numbers and NaN. */
static void fill(void *data, size_t bytes, element_type element, uint64_t *seed)
{
    uint32_t words[BENCH_IN_WORDS];
    for (size_t at = 0; at < bytes; at += sizeof words) {
        bench_halves(words, element == BF16, (*seed)++);
        for (int i = 0; element >= E4M3 && i < BENCH_IN_WORDS; i++)
            words[i] = (words[i] ^ words[i] >> 7) * 0x9e3779b1u;
        memcpy((char *)data + at, words, sizeof words);
    }
}

/* Leaves a row without NaN, or with one. */
static void remove_nan(char *row, bool one)
{
    for (int k = 0; k < DEPTH_BYTES; k++)
        if ((row[k] & 0x7f) == 0x7f)
            row[k] = (char)(row[k] & 0xf0);
    if (one)
        row[3] = (char)0xff;
}

static void make_matrices(element_type element, uint64_t seed)
{
    fill(in, sizeof in, element, &seed); /* including parts that must not be read */
    fill(a_matrix, sizeof a_matrix, element, &seed);
    fill(b_matrix, sizeof b_matrix, element, &seed);
    for (int r = 0; element == E4M3 && r < ROWS; r++)
        remove_nan(a_matrix[r], r == 5);
    for (int c = 0; element == E4M3 && c < COLUMNS_MAX; c++)
        remove_nan(b_matrix[c], c % 8 == 6);
}

/* Element k of a row. */
static double value_of(const char *row, int k, element_type element)
{
    uint16_t bits;
    if (element == S8)
        return (signed char)row[k];
    if (element != E4M3) {
        memcpy(&bits, row + 2 * k, sizeof bits);
        return bench_half_value(bits, element == BF16);
    }
    const int byte = row[k] & 0xff, exponent = byte >> 3 & 15, fraction = byte & 7;
    const double size = (byte & 0x7f) == 0x7f ? (double)NAN
                        : exponent == 0       ? fraction * 0x1p-9
                                              : ldexp(8 + fraction, exponent - 10);
    return byte >> 7 ? -size : size;
}

static float expected(const trial *t, int thread, int i)
{
    const int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
    const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
    float sum = t->scale_d != 0 ? (float)(thread + i) : 0;
    for (int k = 0; k < DEPTH_BYTES / size_of(t); k++)
        sum = (float)((double)sum + t->scale_a * value_of(a_matrix[row], k, t->element) * t->scale_b *
                                        value_of(b_matrix[column], k, t->element));
    return sum;
}

/* Returns the bits of a sum of integers. It begins with those of a float. */
static uint32_t expected_integer(const trial *t, int thread, int i)
{
    const int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
    const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
    const float before = (float)(thread + i);
    uint32_t sum = 0;
    if (t->scale_d != 0)
        memcpy(&sum, &before, sizeof sum);
    for (int k = 0; k < DEPTH_BYTES; k++)
        sum += (uint32_t)((signed char)a_matrix[row][k] * (signed char)b_matrix[column][k]);
    return sum;
}

static bool is_right(const trial *t, int thread, int i, uint32_t bits)
{
    if (t->element == S8)
        return bits == expected_integer(t, thread, i);
    const float value = expected(t, thread, i);
    return value != value ? bits == 0x7fffffff : memcmp(&value, &bits, sizeof value) == 0;
}

static void try(trial t)
{
    int wrong = 0;
    make_matrices(t.element, (uint64_t)t.n);
    begin_kernel(&t, "sm_90a");
    say("setp.eq.s32 %%p3, %d, 1;\n%s", t.scale_d, fence);
    say_product(&t, 0);
    say("%s%s", commit, wait);
    end_kernel(&t);
    const CUresult result = run(&t);
    for (int i = 0; result == CUDA_SUCCESS && i < t.n / 2 * THREADS; i++)
        wrong += !is_right(&t, i % THREADS, i / THREADS, out[i]);
    check_count++;
    if (result == CUDA_SUCCESS && wrong == 0)
        return;
    check_failures++;
    fprintf(stderr, "n %d, %s, A %s %d%s, B %d%s, scales %d %d %d: %d wrong; %s\n", t.n, element_names[t.element],
            t.a_in_registers ? "in registers" : "swizzled", t.a.swizzle, t.a.transposed ? " transposed" : "",
            t.b.swizzle, t.b.transposed ? " transposed" : "", t.scale_d, t.scale_a, t.scale_b, wrong,
            fa2_sim_message());
}

static const trial plain = {.n = 64, .a = {128, false}, .b = {128, false}, .scale_d = 1, .scale_a = 1, .scale_b = 1};

static void test_shapes(void)
{
    for (int n = 8; n <= COLUMNS_MAX; n += 8)
        for (int registers = 0; registers < 2; registers++) {
            trial t = plain;
            t.n = n;
            t.a_in_registers = registers != 0;
            t.element = n / 8 % 2 != 0 ? BF16 : FP16;
            t.b.transposed = n / 16 % 2 != 0;
            try(t);
            t.element = E4M3;
            t.b.transposed = false;
            try(t);
            t.element = S8;
            if (n <= 24 || n % 16 == 0) /* integers have no other numbers of columns */
                try(t);
        }
}

static void test_layouts(void)
{
    static const int swizzles[] = {0, 32, 64, 128};
    static const int columns[] = {24, 104, 128};
    for (int i = 0; i < 4 * 4 * 4; i++)
        for (int c = 0; c < 3; c++) {
            trial t = plain;
            t.n = columns[c];
            t.a = (layout){swizzles[i % 4], i / 16 % 2 != 0};
            t.b = (layout){swizzles[i / 4 % 4], i / 32 != 0};
            t.element = c == 1 ? BF16 : FP16;
            try(t);
            t.element = E4M3;
            if (!t.a.transposed && !t.b.transposed)
                try(t);
            t.element = S8;
            if (c != 1 && !t.a.transposed && !t.b.transposed)
                try(t);
        }
}

static void test_scales(void)
{
    for (int i = 0; i < 32; i++) {
        trial t = plain;
        t.scale_d = i & 1;
        t.scale_a = i & 2 ? -1 : 1;
        t.scale_b = i & 4 ? -1 : 1;
        t.a_in_registers = (i & 8) != 0;
        t.by_predicate = i >= 16;
        try(t);
        t.element = E4M3;
        try(t);
        t.element = S8;
        try(t);
    }
}

/* ---- broken rules ---- */

/* Two products in separate groups, with code before, between, after the second one, and last. The message must contain
 * `words`; NULL: the kernel must succeed. */
static void expect(const char *words, const char *before, const char *between, const char *behind, const char *last)
{
    trial t = plain;
    t.a_in_registers = true;
    begin_kernel(&t, "sm_90a");
    say("%s", before);
    say_product(&t, 0);
    say("%s%s", commit, between);
    say_product(&t, 64);
    say("%s%s%s", commit, behind, last);
    end_kernel(&t);
    const CUresult result = run(&t);
    CHECK_EQ(result, words == NULL ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED);
    if (words != NULL)
        CHECK_CONTAINS(fa2_sim_message(), words);
}

static void test_registers(void)
{
    static const char one[] = "wgmma.wait_group.sync.aligned 1;\n";
    make_matrices(FP16, 1);
    expect(NULL, fence, "", wait, "");
    expect("unfenced", "", "", wait, "");
    /* Touches registers of the first group, the second group, and A */
    expect(NULL, fence, "", one, "add.f32 %d0, %d0, %d0;\nwgmma.wait_group.sync.aligned 0;\n");
    expect("early", fence, "", one, "add.f32 %d64, %d64, %d64;\n");
    expect("early", fence, "", one, "mov.b32 %r9, %a0;\n");
    expect("early", fence, "", "", "mov.b32 %a0, 0;\n");
    expect("early", fence, "", "add.f32 %d3, %d3, %d3;\n", wait);
    expect("has not waited for its last 2 groups", fence, "", "ret;\n", "");
    expect("others of its warpgroup have executed",
           "wgmma.fence.sync.aligned;\nsetp.ge.u32 %p2, %r0, 96;\n@%p2 bra PAST;\n", "", wait, "PAST:\n");
    /* Touches registers after the fence */
    expect("unfenced", "wgmma.fence.sync.aligned;\nmov.b32 %a1, 0;\n", "", wait, "");
    expect("unfenced", fence, "mov.f32 %d70, 0f00000000;\n", wait, "");
    expect(NULL, fence, "mov.f32 %d70, 0f00000000;\nwgmma.fence.sync.aligned;\n", wait, "");
    expect("unfenced",
           "wgmma.fence.sync.aligned;\nmov.b32 %a1, 0;\nsetp.ne.s32 %p2, %r1, 0;\n"
           "@%p2 wgmma.fence.sync.aligned;\n",
           "", wait, "");
    /* Waits on one of two paths only */
    expect("early", fence, "", "setp.eq.s32 %p2, %r1, 0;\n@%p2 bra PAST;\nwgmma.wait_group.sync.aligned 0;\nPAST:\n",
           "");
    expect("early", fence, "", "setp.ne.s32 %p2, %r1, 0;\n@%p2 wgmma.wait_group.sync.aligned 0;\n", "");
}

/* Products of one shape may follow each other in an accumulator. Products of other shapes need a wait between. */
static void test_accumulator(void)
{
    static const int columns[] = {64, 32, 64};
    for (int i = 0; i < 6; i++) {
        const bool waits = i / 3 != 0;
        trial second = plain;
        second.n = columns[i % 3];
        second.element = i % 3 == 2 ? E4M3 : FP16; /* of another depth */
        begin_kernel(&plain, "sm_90a");
        say("%s", fence);
        say_product(&plain, 0);
        say("%s%s%s", commit, waits ? wait : "", waits ? fence : "");
        say_product(&second, 0);
        say("%s%s", commit, wait);
        end_kernel(&plain);
        const bool right = i % 3 == 0 || waits;
        CHECK_EQ(run(&plain), right ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED);
        CHECK_CONTAINS(fa2_sim_message(), right ? "" : "a product of another shape");
    }
}

#define WRITE                                                                                                          \
    "setp.eq.s32 %p1, %r0, 0;\n@%p1 ld.shared.b32 %r9, [%r1+32800];\n"                                                 \
    "@%p1 st.shared.b32 [%r1+32800], %r9;\n"

/* A thread writes to memory that products read. */
static void test_memory(void)
{
    static const char waited[] = "wgmma.wait_group.sync.aligned 0;\nbar.sync 0;\n";
    expect("race", fence, "", WRITE "wgmma.wait_group.sync.aligned 0;\n", "");
    expect("race", fence, "", "bar.sync 0;\n" WRITE "wgmma.wait_group.sync.aligned 0;\n", "");
    expect("race", fence, "", wait, WRITE);
    expect(NULL, fence, "", waited, WRITE);
    expect("race", WRITE "fence.proxy.async.shared::cta;\nwgmma.fence.sync.aligned;\n", "", wait, "");
    expect("fence.proxy.async", WRITE "bar.sync 0;\nwgmma.fence.sync.aligned;\n", "", wait, "");
    expect(NULL, WRITE "fence.proxy.async.shared::cta;\nbar.sync 0;\nwgmma.fence.sync.aligned;\n", "", wait, "");
}

/* A kernel with one product after `before`. The message must contain `words`. */
static void refuse(const trial *t, const char *before, const char *words, CUresult wanted)
{
    begin_kernel(t, "sm_90a");
    say("%s%s", fence, before);
    say_product(t, 0);
    say("%s%s", commit, wait);
    end_kernel(t);
    CHECK_EQ(run(t), wanted);
    CHECK_CONTAINS(fa2_sim_message(), words);
}

static void test_operands(void)
{
    trial scaled = plain;
    scaled.scale_a = 2;
    refuse(&scaled, "", "scales are 1 or -1", CUDA_ERROR_LAUNCH_FAILED);
    refuse(&plain, "cvt.u64.u32 %rd9, %r0;\nadd.s64 %rd11, %rd11, %rd9;\n", "that of lane 0", CUDA_ERROR_LAUNCH_FAILED);
    refuse(&plain, "or.b64 %rd11, %rd11, 0x8000;\n", "bits that mean nothing", CUDA_ERROR_LAUNCH_FAILED);
    refuse(&plain, "or.b64 %rd11, %rd11, 0x2000000000000;\n", "base offset", CUDA_ERROR_LAUNCH_FAILED);
    refuse(&plain, "or.b64 %rd11, %rd11, 0x3ff8;\n", "outside of shared memory", CUDA_ERROR_ILLEGAL_ADDRESS);
    trial divided = plain;
    divided.by_predicate = true;
    refuse(&divided, "setp.lt.u32 %p3, %r0, 100;\n", "scale-d is not the same in all lanes: 0x0000000f",
           CUDA_ERROR_LAUNCH_FAILED);
    refuse(&divided, "setp.lt.u32 %p3, %r0, 96;\n", "scale-d 0; of another one", CUDA_ERROR_LAUNCH_FAILED);
    refuse(&plain, "setp.lt.u32 %p1, %r0, 100;\n@%p1 ", "lanes are missing", CUDA_ERROR_LAUNCH_FAILED);
    refuse(&plain, "setp.lt.u32 %p1, %r0, 96;\n@%p1 bra PAST;\nwgmma.fence.sync.aligned;\nPAST:\n", "part",
           CUDA_ERROR_LAUNCH_FAILED);
    refuse(&plain, "shr.u32 %r9, %r0, 5;\ncvt.u64.u32 %rd9, %r9;\nadd.s64 %rd11, %rd11, %rd9;\n",
           "differ in its operands", CUDA_ERROR_LAUNCH_FAILED);
}

static void test_surroundings(void)
{
    begin_kernel(&plain, "sm_90");
    say("%s", fence);
    end_kernel(&plain);
    CHECK_EQ(run(&plain), CUDA_ERROR_INVALID_PTX);
    CHECK_CONTAINS(fa2_sim_message(), "it needs sm_90a");
    bench_open("h200");
    CHECK_EQ(bench_launch(&(bench_run){.threads = 96, .body = fence, .target = 90}), CUDA_ERROR_LAUNCH_FAILED);
    CHECK_CONTAINS(fa2_sim_message(), "no warpgroup");
    bench_open("l20");
    CHECK_EQ(bench_launch(&(bench_run){.body = "", .target = 90}), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

int main(void)
{
    test_shapes();
    test_layouts();
    test_scales();
    test_registers();
    test_accumulator();
    test_memory();
    test_operands();
    test_surroundings();
    return check_done();
}
