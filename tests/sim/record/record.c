/*
 * Runs single instructions on a CUDA device and prints their results: one line per case, with its name and the 128
 * words of its results in hexadecimal.
 *
 *     record LIBRARY              print; LIBRARY: libcuda.so.1 on a real GPU
 *     record LIBRARY RECORD       compare with a record made elsewhere
 *
 * A record made on a real GPU checks the software device (libfa2sim.so). Results must be equal to the bit, except where
 * the PTX ISA allows differences: approximations may differ by 2 units in the last place, and sums of mma by 2^-18
 * (they stay below 64). It needs only libc and libdl: cc -std=c11 record.c -ldl -lm
 *
 * Each case runs one warp. Inputs are the same on every machine: words of any bits (B), floats around 1 (F), pairs of
 * fp16 (H) or bf16 (G) around 1, floats from -140 to 140 (E).
 */
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 128, LANES = 32 };

typedef struct test_case {
    const char *name;
    char inputs;
    const char *body; /* computes %r10 ... %r13 from %r1 ... %r4 */
} test_case;

#define FLOATS  "mov.b32 %f1, %r1; mov.b32 %f2, %r2; mov.b32 %f3, %r3; "
#define RESULT  " mov.b32 %r10, %f10;"
#define RESULTS RESULT " mov.b32 %r11, %f11; mov.b32 %r12, %f12; mov.b32 %r13, %f13;"
#define FILL                                                                                                           \
    "mov.u32 %r20, smem; shl.b32 %r21, %r0, 2; add.s32 %r21, %r20, %r21;"                                              \
    "st.shared.b32 [%r21], %r1; st.shared.b32 [%r21+128], %r2; st.shared.b32 [%r21+256], %r3;"                         \
    "st.shared.b32 [%r21+384], %r4; bar.warp.sync -1; shl.b32 %r22, %r0, 4;"                                           \
    "add.s32 %r22, %r20, %r22;"
#define MMA(shape, type, a, b)                                                                                         \
    "mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0fBF800000; mov.f32 %f3, 0f00000000;"                                       \
    "mov.f32 %f4, 0f40400000; mma.sync.aligned." shape ".row.col.f32." type "." type ".f32 "                           \
    "{%f10, %f11, %f12, %f13}, " a ", " b ", {%f1, %f2, %f3, %f4};" RESULTS
#define UNARY_FLOAT(opcode)  FLOATS opcode " %f10, %f1;" RESULT
#define BINARY_FLOAT(opcode) FLOATS opcode " %f10, %f1, %f2;" RESULT

static const test_case cases[] = {
    {"add.s32", 'B', "add.s32 %r10, %r1, %r2;"},
    {"mul.hi.s32", 'B', "mul.hi.s32 %r10, %r1, %r2;"},
    {"mul.hi.u32", 'B', "mul.hi.u32 %r10, %r1, %r2;"},
    {"mad.lo.s32", 'B', "mad.lo.s32 %r10, %r1, %r2, %r3;"},
    {"div.s32", 'B', "and.b32 %r2, %r2, 0xf000ffff; or.b32 %r2, %r2, 1; div.s32 %r10, %r1, %r2;"},
    {"rem.s32", 'B', "and.b32 %r2, %r2, 0xf000ffff; or.b32 %r2, %r2, 1; rem.s32 %r10, %r1, %r2;"},
    {"shl.b32", 'B', "and.b32 %r2, %r2, 63; shl.b32 %r10, %r1, %r2;"},
    {"shr.s32", 'B', "and.b32 %r2, %r2, 63; shr.s32 %r10, %r1, %r2;"},
    {"bfi.b32", 'B', "and.b32 %r3, %r3, 31; and.b32 %r4, %r4, 31; bfi.b32 %r10, %r1, %r2, %r3, %r4;"},
    {"bfe.s32", 'B', "and.b32 %r3, %r3, 31; and.b32 %r4, %r4, 31; bfe.s32 %r10, %r1, %r3, %r4;"},
    {"prmt.b32", 'B', "prmt.b32 %r10, %r1, %r2, %r3;"},
    {"lop3.b32", 'B', "lop3.b32 %r10, %r1, %r2, %r3, 0xca;"},
    {"add.f32", 'F', BINARY_FLOAT("add.f32")},
    {"add.f32 bits", 'B', BINARY_FLOAT("add.f32")},
    {"mul.f32 bits", 'B', BINARY_FLOAT("mul.f32")},
    {"mul.ftz.f32 bits", 'B', BINARY_FLOAT("mul.ftz.f32")},
    {"fma.rn.f32 bits", 'B', FLOATS "fma.rn.f32 %f10, %f1, %f2, %f3;" RESULT},
    {"max.f32 bits", 'B', BINARY_FLOAT("max.f32")},
    {"min.f32 bits", 'B', BINARY_FLOAT("min.f32")},
    {"rcp.rn.f32", 'F', UNARY_FLOAT("rcp.rn.f32")},
    {"ex2.approx.ftz.f32", 'E', UNARY_FLOAT("ex2.approx.ftz.f32")},
    {"lg2.approx.f32", 'F', FLOATS "abs.f32 %f1, %f1; lg2.approx.f32 %f10, %f1;" RESULT},
    {"tanh.approx.f32", 'F', UNARY_FLOAT("tanh.approx.f32")},
    {"cvt.rn.f16x2.f32", 'F', FLOATS "cvt.rn.f16x2.f32 %r10, %f1, %f2;"},
    {"cvt.rn.f16x2.f32 bits", 'B', FLOATS "cvt.rn.f16x2.f32 %r10, %f1, %f2;"},
    {"cvt.rn.bf16x2.f32 bits", 'B', FLOATS "cvt.rn.bf16x2.f32 %r10, %f1, %f2;"},
    {"cvt.f32.f16 bits", 'B', "mov.b32 {%h1, %h2}, %r1; cvt.f32.f16 %f10, %h1;" RESULT},
    {"cvt.rzi.s32.f32 bits", 'B', FLOATS "cvt.rzi.s32.f32 %r10, %f1;"},
    {"shfl bfly", 'B', "shfl.sync.bfly.b32 %r10|%p1, %r1, 5, 31, -1; selp.b32 %r11, 1, 0, %p1;"},
    {"shfl up", 'B', "shfl.sync.up.b32 %r10|%p1, %r1, 3, 0, -1; selp.b32 %r11, 1, 0, %p1;"},
    {"shfl down", 'B', "shfl.sync.down.b32 %r10|%p1, %r1, 3, 31, -1; selp.b32 %r11, 1, 0, %p1;"},
    {"shfl idx", 'B', "shfl.sync.idx.b32 %r10|%p1, %r1, 5, 0x181f, -1; selp.b32 %r11, 1, 0, %p1;"},
    {"vote", 'B', "setp.lt.s32 %p1, %r1, 0; vote.sync.ballot.b32 %r10, %p1, -1;"},
    {"ldmatrix", 'B', FILL "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r22];"},
    {"ldmatrix.trans", 'B', FILL "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r10, %r11, %r12, %r13}, [%r22];"},
    {"mma.m16n8k8.f16", 'H', MMA("m16n8k8", "f16", "{%r1, %r2}", "{%r3}")},
    {"mma.m16n8k16.f16", 'H', MMA("m16n8k16", "f16", "{%r1, %r2, %r3, %r4}", "{%r2, %r4}")},
    {"mma.m16n8k8.bf16", 'G', MMA("m16n8k8", "bf16", "{%r1, %r2}", "{%r3}")},
    {"mma.m16n8k16.bf16", 'G', MMA("m16n8k16", "bf16", "{%r1, %r2, %r3, %r4}", "{%r2, %r4}")},
};

static const char head[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 smem[];\n"
    ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n.reg .pred %p<8>;\n.reg .b16 %h<8>;\n"
    ".reg .b32 %r<64>;\n.reg .f32 %f<64>;\n.reg .b64 %rd<8>;\nld.param.u64 %rd1, [in];\n"
    "ld.param.u64 %rd2, [out];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %rd3, %r0, 4;\n"
    "add.s64 %rd1, %rd1, %rd3;\nadd.s64 %rd2, %rd2, %rd3;\nld.global.u32 %r1, [%rd1];\n"
    "ld.global.u32 %r2, [%rd1+128];\nld.global.u32 %r3, [%rd1+256];\n"
    "ld.global.u32 %r4, [%rd1+384];\nmov.u32 %r10, 0;\nmov.u32 %r11, 0;\nmov.u32 %r12, 0;\n"
    "mov.u32 %r13, 0;\n";
static const char tail[] = "\nst.global.u32 [%rd2], %r10;\nst.global.u32 [%rd2+128], %r11;\n"
                           "st.global.u32 [%rd2+256], %r12;\nst.global.u32 [%rd2+384], %r13;\nret;\n}\n";

/* ---- inputs ---- */

static uint32_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Returns a number of magnitude 0.5 ... 2 with a sign, in a 16-bit format with this many bits of fraction. */
static uint32_t half_bits(uint32_t random, int fraction, uint32_t one)
{
    const uint32_t exponent = one - (random >> 20 & 1) * (1u << fraction);
    return (random >> 16 & 0x8000) | exponent | (random & ((1u << fraction) - 1));
}

static uint32_t input(char kind, uint64_t *state)
{
    const uint32_t random = next(state);
    const float unit = (float)(random & 0xffffff) / 16777216.0f;
    switch (kind) {
    case 'F':
        return float_bits((random >> 31 ? -1.0f : 1.0f) * (0.25f + 1.75f * unit));
    case 'E':
        return float_bits(280.0f * unit - 140.0f);
    case 'H':
        return half_bits(random, 10, 0x3c00) | half_bits(next(state), 10, 0x3c00) << 16;
    case 'G':
        return half_bits(random, 7, 0x3f80) | half_bits(next(state), 7, 0x3f80) << 16;
    default:
        return random;
    }
}

/* ---- the driver ---- */

typedef struct driver {
    int (*init)(unsigned);
    int (*retain)(void **, int);
    int (*push)(void *);
    int (*load_ex)(void **, const void *, unsigned, void *, void **);
    int (*get_function)(void **, void *, const char *);
    int (*alloc)(uint64_t *, size_t);
    int (*to_device)(uint64_t, const void *, size_t);
    int (*to_host)(void *, uint64_t, size_t);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                  void **);
    int (*synchronize)(void);
    int (*unload)(void *);
} driver;

static void *symbol(void *library, const char *name)
{
    void *address = dlsym(library, name);
    if (address == NULL) {
        fprintf(stderr, "no %s\n", name);
        exit(1);
    }
    return address;
}

static driver open_driver(const char *name)
{
    driver d;
    void *library = dlopen(name, RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    *(void **)&d.init = symbol(library, "cuInit");
    *(void **)&d.retain = symbol(library, "cuDevicePrimaryCtxRetain");
    *(void **)&d.push = symbol(library, "cuCtxPushCurrent_v2");
    *(void **)&d.load_ex = symbol(library, "cuModuleLoadDataEx");
    *(void **)&d.get_function = symbol(library, "cuModuleGetFunction");
    *(void **)&d.alloc = symbol(library, "cuMemAlloc_v2");
    *(void **)&d.to_device = symbol(library, "cuMemcpyHtoD_v2");
    *(void **)&d.to_host = symbol(library, "cuMemcpyDtoH_v2");
    *(void **)&d.launch = symbol(library, "cuLaunchKernel");
    *(void **)&d.synchronize = symbol(library, "cuCtxSynchronize");
    *(void **)&d.unload = symbol(library, "cuModuleUnload");
    return d;
}

static void must(int result, const char *what)
{
    if (result == 0)
        return;
    fprintf(stderr, "%s: error %d\n", what, result);
    exit(1);
}

static void run(const driver *d, const test_case *c, uint64_t in, uint64_t out, uint32_t words[WORDS])
{
    uint64_t state = 1;
    void *module = NULL, *function = NULL;
    void *params[] = {&in, &out};
    char ptx[4096];
    for (int i = 0; i < WORDS; i++)
        words[i] = input(c->inputs, &state);
    snprintf(ptx, sizeof ptx, "%s%s%s", head, c->body, tail);
    must(d->to_device(in, words, WORDS * 4), c->name);
    must(d->load_ex(&module, ptx, 0, NULL, NULL), c->name);
    must(d->get_function(&function, module, "k"), c->name);
    must(d->launch(function, 1, 1, 1, LANES, 1, 1, 512, NULL, params, NULL), c->name);
    must(d->synchronize(), c->name);
    must(d->to_host(words, out, WORDS * 4), c->name);
    must(d->unload(module), c->name);
}

static void print(const test_case *c, const uint32_t words[WORDS])
{
    printf("%s:", c->name);
    for (int i = 0; i < WORDS; i++)
        printf(" %08x", (unsigned)words[i]);
    printf("\n");
}

/* ---- comparison ---- */

/* Returns how far results may lie from x; 0: every bit counts. lg2.approx has an absolute error near 1, where its
 * result is near 0. tanh.approx has one of 2^-11 (PTX ISA). */
static float tolerance(const char *name, float x)
{
    if (strncmp(name, "mma", 3) == 0)
        return ldexpf(1.0f, -18);
    if (strncmp(name, "lg2", 3) == 0)
        return fmaxf(fabsf(x), 1.0f) * ldexpf(1.0f, -22);
    if (strncmp(name, "tanh", 4) == 0)
        return fabsf(x) * ldexpf(1.0f, -10); /* twice, because the record may have the same error */
    return strstr(name, "approx") != NULL ? fabsf(x) * ldexpf(1.0f, -22) : 0.0f;
}

static bool equal(const char *name, uint32_t a, uint32_t b)
{
    float x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    const float allowed = tolerance(name, x);
    return a == b || (allowed > 0 && fabsf(x - y) <= allowed);
}

/* Returns the number of words that differ from the record's line of this case; all if there is none. */
static int differences(FILE *record, const test_case *c, const uint32_t words[WORDS])
{
    static char line[WORDS * 16];
    const size_t length = strlen(c->name);
    int count = 0;
    rewind(record);
    while (fgets(line, sizeof line, record) != NULL) {
        if (strncmp(line, c->name, length) != 0 || line[length] != ':')
            continue;
        char *at = line + length + 1;
        for (int i = 0; i < WORDS; i++)
            count += !equal(c->name, (uint32_t)strtoul(at, &at, 16), words[i]);
        if (count > 0)
            fprintf(stderr, "%s: %d of %d words differ\n", c->name, count, WORDS);
        return count;
    }
    fprintf(stderr, "%s: is not in the record\n", c->name);
    return WORDS;
}

int main(int argc, char **argv)
{
    FILE *record = argc > 2 ? fopen(argv[2], "r") : NULL;
    if (argc < 2 || (argc > 2 && record == NULL)) {
        fprintf(stderr, "usage: record LIBRARY [RECORD]\n");
        return 2;
    }
    const driver d = open_driver(argv[1]);
    void *context = NULL;
    uint64_t in = 0, out = 0;
    int wrong = 0;
    must(d.init(0), "cuInit");
    must(d.retain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(d.push(context), "cuCtxPushCurrent");
    must(d.alloc(&in, WORDS * 4), "cuMemAlloc");
    must(d.alloc(&out, WORDS * 4), "cuMemAlloc");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t words[WORDS];
        run(&d, &cases[i], in, out, words);
        if (record == NULL)
            print(&cases[i], words);
        else
            wrong += differences(record, &cases[i], words);
    }
    if (record != NULL) {
        const int compared = (int)(sizeof cases / sizeof *cases);
        printf("%d instructions, %d vectors of %d lanes compared with the record: %d words differ\n", compared,
               compared * WORDS / LANES, LANES, wrong);
        fclose(record);
    }
    return wrong > 0;
}
