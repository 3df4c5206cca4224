/*
 * fa2: FlashAttention-2 kernels that are generated, tuned and chosen for the GPU in front of them.
 *
 * How to use it:
 *
 *   1. Create a context for a device: fa2_context_create.
 *   2. Describe the attention in a fa2_problem.
 *   3. Ask how much workspace the call needs on the device: fa2_workspace_size.
 *   4. Call fa2_forward or fa2_backward with tensors, workspace and stream. Repeat steps 2 to 4 as often as you like.
 *   5. Wait for the stream, and release the context: fa2_context_destroy.
 *
 * FUNCTIONS
 *
 *     contexts     fa2_context_create    opens a context: a device, a database, a log.
 *                  fa2_context_destroy   releases it.
 *     calls        fa2_forward           computes attention.
 *                  fa2_backward          computes its gradients.
 *                  fa2_merge             merges partial results over different keys.
 *                  fa2_workspace_size    returns the bytes of device memory that a call needs besides its tensors.
 *                  fa2_prepare           chooses and loads the kernel before the first call, or before a capture.
 *     questions    fa2_explain           says which kernel a problem gets, by which rule, and why.
 *                  fa2_read_counters     returns what a context did: calls by rule, compilations, time lost.
 *                  fa2_read_rounding     returns how many numbers 8-bit scores rounded to 0.
 *                  fa2_dropout_mask      computes the mask of dropout on the CPU.
 *     words        fa2_last_message      returns why this thread's last function failed.
 *                  fa2_status_string     names a status.
 *                  fa2_rule_string       names a rule.
 *                  fa2_version           returns the version of the library.
 *
 * runtime/examples has complete programs. The library runs on Linux, on GPUs of compute capability 7.5 and newer.
 *
 * FORWARD
 *
 * For batch b and query head h, with kv = h / (heads_q / heads_kv):
 *
 *     S = softmax_scale * Q[b,:,h,:] K[b,:,kv,:]^T      (seq_q x seq_k)
 *     S = softcap * tanh(S / softcap)                   with softcap
 *     S[i,j] += -slope[b,h] * |i + seq_k - seq_q + distance_shift - j|   with ALiBi
 *     S[i,j] += bias[b,h,i,j]                           with a bias
 *     S = -infinity where a query does not see a key    causal, window, boolean mask
 *     O[b,:,h,:] = softmax(S) V[b,:,kv,:]               LSE[b,h,:] = ln(sum(exp(S)))
 *
 * Dropout sets each element of softmax(S) to 0 with probability p, and divides the others by 1 - p. LSE ignores
 * dropout. With sinks, the softmax of each row has one more column, of score sink[h] and without a value. The sink
 * counts in the sum of the softmax and in LSE. It adds nothing to O. A row that sees no key has LSE = sink[h].
 *
 * The algorithm is FlashAttention-2 (Dao, 2023): tiles, online softmax, S never in memory. Products take fp16,
 * bf16 or fp32 and sum in fp32, unless the problem permits less (fa2_sums, fa2_scores). P is rounded to the input type
 * before the second product. tanh is the hardware's, with a relative error of 2^-11 (PTX ISA, tanh.approx).
 *
 * BACKWARD
 *
 * Backward takes the inputs and outputs of forward, and dO, the gradient of a loss for O. It gives the gradients of Q,
 * K and V. dK and dV are summed over the query heads that share K and V. Sums are in fp32. P and dS are rounded to the
 * input type before they are multiplied.
 *
 *     P = exp(S - LSE)                 delta[i] = sum over d of dO[i,d] O[i,d]
 *     dV = P^T dO                      dS = P * (dO V^T - delta)
 *
 *     dbias[b,h,i,j] = dS[i,j]                          with a bias whose gradient is wanted
 *     dS = dS * (1 - (S / softcap)^2)                   with softcap; S is the capped score
 *
 *     dQ = softmax_scale * dS K        dK = softmax_scale * dS^T Q
 *
 * A bias that several b, h, i or j share gets the sum of their dS. With dropout, dV uses the dropped P, and dO V^T is
 * dropped and divided like P. With sinks, LSE includes the sink, and
 * dsink[h] = -sum over b and i of exp(sink[h] - LSE) * delta.
 *
 * SHAPES AND LAYOUT
 *
 *     Q, O, dO, dQ   [batch, seq_q, heads_q, head_dim]
 *     K, V, dK, dV   [batch, seq_k, heads_kv, head_dim]
 *     LSE            [batch, heads_q, seq_q], fp32, contiguous, natural logarithm
 *
 * V, O, dO and dV may have head_dim_v columns instead. The first three dimensions may lie in any order: each has its
 * own stride, in elements. The last dimension is contiguous. Rows are 16-byte aligned: the base pointer is a multiple
 * of 16 bytes, and so is every stride: 8 elements of 16 bits, 4 of fp32, or 16 of K and V in 8 bits.
 *
 * MASKS are aligned at the bottom right: the last query stands at the last key. Query i stands at key position
 * p = i + seq_k - seq_q. If each sequence has its own length, seq_q and seq_k mean the lengths of that sequence.
 *
 *     causal   The query sees keys j <= p.
 *     window   It sees keys p - window_left <= j <= p + window_right.
 *     Prefix and chunk: see fa2_window.
 *
 * A row that sees no key has O = 0 and dQ = 0. Its LSE is -infinity, or sink[h] with sinks. A key that no row sees has
 * dK = dV = 0.
 *
 * HIDDEN KEYS. K or V may hold NaN or infinity in keys that a row does not see. If such keys are "safe", results are
 * the same as with zeros there: the row's O, LSE and dQ, and dK and dV of the keys that the row sees.
 *
 *   - Keys hidden by seqused_k or leftpad, and keys of other packed sequences: safe in K and V, forward and backward.
 *   - Keys hidden by causal, window, prefix or chunk: safe in K in forward. Not safe in V, and not in backward.
 *   - Keys hidden by a boolean mask or a bias of -infinity: not safe.
 *   - With FA2_SCORES_INT8, K hidden by causal or any window is not safe either. A row may become NaN if a hidden NaN
 *     or infinity is less than 128 keys away from a key that the row sees.
 *
 * Where it is not safe, the row may become NaN, as in PyTorch. Write zeros into K and V there. A row that sees NaN is
 * NaN.
 *
 * ERRORS. Every function that can fail returns a fa2_status, and FA2_OK is 0. On an error the outputs are untouched,
 * nothing was launched, and fa2_last_message() says in one sentence what was wrong. There are two exceptions:
 *   - A call may launch several kernels. If a later one fails with FA2_E_CUDA, the earlier ones run, and write.
 *   - With fa2_config.rounding_every, a call whose rounding cannot be read fails after its launch.
 *
 * The library never prints, exits or aborts.
 *
 * THREADS. Several threads may use one fa2_context at once. fa2_context_destroy must be the last call on it. The last
 * message belongs to the thread.
 *
 * PROCESSES. CUDA does not survive fork(). In a child, every function refuses a context of the parent at once, with
 * FA2_E_INVALID. It never waits for a lock that another thread of the parent held. fa2_context_destroy does nothing
 * there. A child may create its own contexts if the parent did not use CUDA before the fork.
 *
 * MEMORY. A context remembers the kernels of the last 8192 problems that were prepared or called. Some strides and
 * biases need another kernel than the prepared one (fa2_prepare). Of those it remembers 8192, too. It also keeps 4096
 * answers of the cost model, each for rounded sizes (fa2_prepare). Together they take at most 64 MB of host memory. The
 * cost of a call does not grow with their number. A program that needs more than 4096 answers computes some again, in
 * milliseconds each.
 *
 * OWNERSHIP. The library owns no tensors. All tensors and the workspace belong to the caller. They must stay valid
 * until the launch has ended. A call copies its problem and arguments, so these structs may go when it returns.
 *
 * GRAPHS. A call may be captured into a CUDA graph. Call fa2_prepare before the capture, and see its exceptions. The
 * graph keeps the call's pointers and values. So tensors, workspace and context must stay valid until the last replay
 * has ended. Replays that overlap need a workspace each, as other launches do.
 *
 * STRUCTS THAT GROW. fa2_problem, the structs of arguments, fa2_config, fa2_explanation and fa2_counters begin with
 * struct_bytes. Set it to the sizeof of the struct and everything else that you do not use to 0:
 *
 *     fa2_problem problem = {.struct_bytes = sizeof problem, .batch = 1, ...};
 *
 * A later version may add members at the end. A program that was built before them works with that version: members
 * that its struct lacks count as 0. A program that was built after them works with an older library as long as the
 * members that the library does not know are 0. FA2_E_INVALID: struct_bytes is less than the struct's first version had
 * (so 0 is refused), or more than 1024 above the library's sizeof. Structs inside of others (fa2_tensor, ...) have no
 * size and never change.
 *
 * ENVIRONMENT. FA2_CAPTURE=FILE makes every context count its calls of each problem in a shape file for fa2-tune.
 * Several processes may share the file. Calls that fail because no kernel could be had (FA2_E_NO_NVRTC,
 * FA2_E_FORBIDDEN) count, too, unless a kernel could be had for other strides. If the file cannot be written,
 * fa2_context_create fails with FA2_E_IO.
 *
 * FA2_SYSTEM_DB names databases below the user's, with ':' between them. A context only reads them, and takes from them
 * what its own database lacks: kernels with their code, winners, times. If the variable is not set, they are the files
 * *.db in the folder of files that come with fa2, in the order of their names. A file that cannot be used is logged. A
 * context with database "" has none.
 *
 * FA2_DUMP=DIR makes every context write into that folder what it compiles. NAME.cu is the source; NAME.cubin or
 * NAME.ptx is the code. NAME is the kernel's variant and SM. If the folder cannot be written, the log says so once, and
 * calls go on.
 *
 * A program with more rights than its caller (set-user-ID, set-group-ID, file capabilities) reads no variable. HOME
 * counts as unset, too: name the database in fa2_config. NVIDIA's libraries read variables of their own.
 */
#ifndef FA2_H
#define FA2_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FA2_API __attribute__((visibility("default")))
#else
#define FA2_API
#endif

#define FA2_VERSION_MAJOR 0
#define FA2_VERSION_MINOR 2
#define FA2_VERSION_PATCH 0
#define FA2_VERSION       (FA2_VERSION_MAJOR * 10000 + FA2_VERSION_MINOR * 100 + FA2_VERSION_PATCH)

/* Returns the FA2_VERSION of the library that runs. It may differ from this header's. While the major version is 0, the
 * minor versions must agree. */
FA2_API int fa2_version(void);

/* X(name, value, text). The values are part of the ABI and never change. */
#define FA2_STATUS_LIST(X)                                                                                             \
    X(FA2_OK, 0, "success")                                                                                            \
    X(FA2_E_INVALID, 1, "invalid argument")                                                                            \
    X(FA2_E_UNSUPPORTED, 2, "not supported on this device or by this version")                                         \
    X(FA2_E_NO_DRIVER, 3, "no CUDA driver")                                                                            \
    X(FA2_E_NO_DEVICE, 4, "no such CUDA device")                                                                       \
    X(FA2_E_NO_NVRTC, 5, "a kernel must be compiled and there is no NVRTC")                                            \
    X(FA2_E_COMPILE, 6, "a kernel does not compile")                                                                   \
    X(FA2_E_CUDA, 7, "a CUDA call failed")                                                                             \
    X(FA2_E_DATABASE, 8, "the tuning database cannot be used")                                                         \
    X(FA2_E_MEMORY, 9, "out of host memory")                                                                           \
    X(FA2_E_CAPTURE, 10, "not while the stream is being captured")                                                     \
    X(FA2_E_GENERATOR, 11, "the kernel generator failed")                                                              \
    X(FA2_E_IO, 12, "a file cannot be read or written")                                                                \
    X(FA2_E_NOT_FOUND, 13, "no such record")                                                                           \
    X(FA2_E_FORBIDDEN, 14, "a kernel must be compiled and the context's config forbids compiling")

typedef enum fa2_status {
#define FA2_STATUS_ENUM(name, value, text) name = value,
    FA2_STATUS_LIST(FA2_STATUS_ENUM)
#undef FA2_STATUS_ENUM
} fa2_status;

/* Returns a fixed text for a status, or "unknown status". Never NULL. */
FA2_API const char *fa2_status_string(fa2_status status);

/* Returns what went wrong in this thread's last failing call: argument, limit, CUDA error, file. Never NULL. The text
 * is borrowed, and valid until this thread's next fa2 call. It is UTF-8 that a terminal can show. Control characters,
 * bidirectional controls and bytes that are not UTF-8 are escaped, as in \x1b and \u202e. Only the line breaks and tabs
 * of a compiler's log stay. The same holds for the texts of fa2_explain and of fa2_config.log. */
FA2_API const char *fa2_last_message(void);

/* ---- the problem ---- */

typedef enum fa2_op {
    FA2_OP_FORWARD = 0,
    FA2_OP_BACKWARD = 1,
    FA2_OP_MERGE = 2 /* several partial results become one (fa2_merge) */
} fa2_op;

/* The type of the elements of Q, K, V and O.
 *
 * FA2_FP32 is for forward and backward, with at most 256 columns. These give FA2_E_UNSUPPORTED: merge, softcap,
 * dropout, leftpad, cache_rows, append, v_in_k, carry, and kv in 8 bits. The permissions FA2_SUMS_FAST,
 * FA2_SCORES_INT8 and FA2_PV_FP8 are allowed and have no effect. The tuner times two kinds of kernels: with FMA
 * instructions, and from SM 8.0 on with three TF32 products in place of each fp32 product. With normal numbers, 2048
 * keys and head_dim 128, O and the gradients differ from exact ones by less than 2e-6 of their size (relative L1). That
 * grows with the square root of the number of keys. No kernel of fp32 divides the keys (backward: the queries) among
 * blocks, so decoding is slow. An element that is infinite, or within 2^-13 of the largest number, may give NaN where
 * FMA instructions would not. */
typedef enum fa2_dtype { FA2_FP16 = 0, FA2_BF16 = 1, FA2_FP32 = 2 } fa2_dtype;

/* The element type of a bias. BOOL is a mask of one byte per score, in which 0 hides the key. The last three are for
 * backward, and ask for the gradient of the bias, too. */
typedef enum fa2_bias {
    FA2_BIAS_NONE = 0,
    FA2_BIAS_FP16 = 1,
    FA2_BIAS_BF16 = 2,
    FA2_BIAS_FP32 = 3,
    FA2_BIAS_BOOL = 4,
    FA2_BIAS_FP16_GRADIENT = 5,
    FA2_BIAS_BF16_GRADIENT = 6,
    FA2_BIAS_FP32_GRADIENT = 7
} fa2_bias;

/* The keys that a query at position p sees. n is window_left. In a causal problem only PREFIX shows keys beyond p. */
typedef enum fa2_window {
    FA2_WINDOW_NONE = 0,    /* all keys */
    FA2_WINDOW_SLIDING = 1, /* keys p - window_left ... p + window_right */
    FA2_WINDOW_PREFIX = 2,  /* of a causal problem: keys up to p, and the first n keys */
    FA2_WINDOW_CHUNK = 3    /* keys of p's chunk: n * c ... n * c + n - 1, where c is p / n, rounded down */
} fa2_window;

/* Rotary embedding turns pairs of columns of Q and K by an angle that grows with the position. Which pairs: */
typedef enum fa2_rotary {
    FA2_ROTARY_NONE = 0,
    FA2_ROTARY_HALVES = 1,     /* columns t and t + rotary_dim / 2 */
    FA2_ROTARY_INTERLEAVED = 2 /* columns 2 t and 2 t + 1 */
} fa2_rotary;

/* The precision that the caller needs. The second value of each is a permission to be less exact where that is faster.
 * A kernel need not use it; none of dtype FP32 does. Without permission no kernel is less exact, whatever the tuner
 * measures.
 *
 * FA2_SUMS_FAST serves cards that multiply faster with fp16 sums: GeForce cards of SM 7.5, 8.6, 8.9 and 12.0. Q K^T and
 * the softmax are summed in fp32 as always. The mean error of O is at most about twice that of fp32 sums. The error of
 * a single element is at most three times the largest one of fp32 sums. With fp16, normal data, 2048 keys and head_dim
 * 128, the relative error is 5.3e-4 instead of 2.9e-4. With bf16 it does not grow, because P is then fp16, too.
 *   - No sum overflows while elements of V are at most 127 in magnitude: 128 keys * 4 (the largest P) * 127 < 65504.
 *     Larger elements may make O infinite or NaN in their column.
 *   - Elements of V beyond 65504, which only bf16 has, count as infinite. They make O infinite or NaN in their column.
 *   - Other columns are not affected. */
typedef enum fa2_sums {
    FA2_SUMS_FP32 = 0, /* P V is summed in fp32. */
    FA2_SUMS_FAST = 1  /* P V may be summed in fp16 within a tile of at most 128 keys; tiles are summed in fp32. */
} fa2_sums;
typedef enum fa2_scores {
    FA2_SCORES_EXACT = 0, /* Q K^T multiplies the elements as they are. */
    FA2_SCORES_INT8 = 1   /* Q K^T may multiply Q and K rounded to 8-bit integers. */
} fa2_scores;
typedef enum fa2_pv {
    FA2_PV_EXACT = 0, /* P V multiplies V as it is. */
    FA2_PV_FP8 = 1    /* P V may multiply P and V rounded to e4m3 numbers. */
} fa2_pv;

/* FA2_SCORES_INT8 in detail:
 * - A row of Q has one step, its largest absolute value / 127. A mean key is subtracted from K. Then each group of up
 *   to 32 keys has one step. Numbers are rounded to multiples of these steps.
 * - O differs from exact O by about 1 % of its size on normal numbers, and 3 % if one number in 1000 is ten times as
 *   large. LSE belongs to the rounded scores, and differs by less than 0.01 on normal numbers.
 * - Another kernel rounds K before each call. It writes K into the workspace, in half of K's bytes. All times that the
 *   tuner shows include it.
 * - A NaN or an infinity in a row of Q makes that row NaN. In a key it makes the keys of its group NaN.
 * - In backward, problem.scores is EXACT: backward multiplies 16-bit elements. Its LSE may come from a forward with or
 *   without rounded scores.
 *
 * FA2_PV_FP8 in detail:
 * - Kernels of SM 8.9, 9.0 and 12.x use it, if scores are INT8, too. On SM 9.0 head_dim is 64, 128, 192 or 256. The
 *   problem may be causal, and no other feature is set. They are chosen where seq_q is more than 64. On the others
 *   head_dim is a multiple of 16 up to 256, and these are not set: dropout, head_dim_v, v_in_k, append, kv, partial,
 *   carry. For other problems and cards the permission has no effect on results.
 * - The step before each call rounds V, too, and writes half of V's bytes. A tile of keys, at most 256, has one scale.
 *   Sums over a tile are added in fp32.
 * - P is the e4m3 number whose bits are the score's, in eighths of a power of two. It differs from the exact P by at
 *   most 9 %, and by 3 % in the mean. P below 2^-13 of a row's largest one may be 0.
 * - O differs from exact O by about 4 % of its size (relative L1), on normal numbers, with means and with outliers. It
 *   is up to 9 % in a row whose most weighty key has V near 0. Tiles of V whose largest element is below 2^-100 lose
 *   bits.
 * - LSE has the sum of these P. They change it by about 0.01 if many keys have weight, and by at most 0.09. What rounded
 *   scores change comes on top.
 * - An infinity or a NaN in V makes its column of O NaN in rows that see a key of the same tile. It may do so in other
 *   rows, if the call is causal, or if a window, a mask or a bias hides keys. */

/* The type of K and V in memory.
 *
 * In 8 bits, each row of a head, which is a token, has a scale, for K and for V: args.k_scale, args.v_scale. They are
 * fp32, or fp16 with problem.kv_scales. An element counts as its number times the scale of its row. Q, O and dtype stay
 * what they are, and no element of Q is rounded.
 *   - FA2_KV_INT8: integers from -128 to 127 (int8_t).
 *   - FA2_KV_FP8: e4m3 numbers, up to 448 in magnitude. The bytes 0x7f and 0xff, which mean NaN, count as 480 and -480.
 *     int8 is more exact at the same size if each row has its own scale, and takes fewer instructions.
 *   - head_dim and head_dim_v are multiples of 16, and head_dim is at most 256. There is no v_in_k.
 *   - Strides of K and V are multiples of 16 elements.
 *   - A scale that is 0 makes the row 0. An infinite or NaN scale of a row makes the queries NaN that see the row, and
 *     may make others NaN that see a key in the same 128 keys. A negative scale is a number like others.
 *   - With fp16, scales of V are at most 1000 in magnitude (int8), or 250 (fp8), and its elements at most 65504. Rows
 *     of V without an element above 2^-9 lose bits.
 *   - append rounds the new rows, which are of the dtype, and writes a scale for each: its largest absolute value /
 *     127, or / 448 with FP8, rounded to the scales' type. Elements become the nearest number. Keys are rotated first.
 *     A NaN or an infinity in a row makes its scale that, and a scale beyond fp16 is infinite.
 *   - sums, scores and pv have no effect beside it. */
typedef enum fa2_kv {
    FA2_KV_DTYPE = 0, /* dtype, as Q and O */
    FA2_KV_INT8 = 1,
    FA2_KV_FP8 = 2
} fa2_kv;
typedef enum fa2_scales { FA2_SCALES_FP32 = 0, FA2_SCALES_FP16 = 1 } fa2_scales;

/* Partial results: attention over a part of the keys, in fp32. Calls with MERGE become one result over all their keys.
 * So keys may lie on several devices, or come one part after the other.
 *
 * Forward. O (fp32) and LSE are over the keys of the call. WRITE stores them. MERGE merges them with O and LSE in
 * memory, so lse is not NULL.
 *   - LSE = -infinity begins an empty result: O counts as 0 there, whatever it holds.
 *   - Sinks count in each call that has them. Give them to one call.
 *   - Positions (causal, windows, ALiBi, bias) count the keys of the call alone. args.dropout_origin gives dropout the
 *     call's place in the whole; args.distance_shift gives it to ALiBi.
 *   - Masks of the whole: let the call's query 0 and key 0 be at positions a and b of the whole, and
 *     shift = a - b - (seq_k - seq_q). A window (left, right) of the whole is (left - shift, right + shift) here, where
 *     -1 stays -1, and causal is right = 0. The call's causal may be 1 only if right + shift is 0. If a bound became
 *     negative: leave out the last keys that no query sees, then the last queries that see no key.
 *     runtime/examples/parts.c shows it.
 *   - Each call adds a rounding of fp32. The bits depend on the order of the calls, but not on the launch. On SM 9.0,
 *     and where all calls have fwd_splitkv kernels, P is rounded as in one call over all keys; not with kv or scores in
 *     8 bits.
 *   - The last of several calls may write O in the dtype: problem.carry = 1. It merges with args.carried, which holds O
 *     of the calls before, and with LSE in memory. The numbers are as MERGE gives them, rounded once. Not with fp32.
 *
 * Backward. dQ, dK and dV are fp32. WRITE stores them, and MERGE adds to them. O, dO and LSE are over all keys. O and
 * dO are of the problem's dtype. dbias and dsinks are written as always. dsinks does not depend on the keys of a call,
 * so take it from one call.
 *
 * Strides count elements of fp32. */
typedef enum fa2_partial {
    FA2_PARTIAL_NONE = 0,  /* O, or dQ, dK and dV, are of the problem's dtype */
    FA2_PARTIAL_WRITE = 1, /* they are fp32 */
    FA2_PARTIAL_MERGE = 2  /* they are fp32, and merged with what is there */
} fa2_partial;

/* Everything that decides which kernel is the best one. A field that is 0 means "off".
 *
 * Each of these numbers of rows must be below 2^33, so that every kernel can be launched.
 * - forward: batch * heads_q * seq_q, with seq_q rounded up to a multiple of 16;
 * - backward: the same, rounded up to a multiple of 128. Also batch * heads_kv * seq_k, rounded in the same way;
 * - packed sequences, forward: heads_q * (total_q + 16 * batch);
 * - packed sequences, backward: heads_q * (total_q + 128 * batch). Also heads_kv * (total_k + 128 * batch). If the
 *   gradient of a bias is wanted: also the numbers of backward without packed sequences.
 *
 * Every function refuses a larger problem with FA2_E_INVALID, and the message names the numbers. */
typedef struct fa2_problem {
    size_t struct_bytes; /* sizeof(fa2_problem) */
    fa2_op op;
    fa2_dtype dtype;       /* bf16 needs compute capability 8.0 */
    int32_t batch;         /* >= 1 */
    int32_t heads_q;       /* 1 ... 2^16, a multiple of heads_kv */
    int32_t heads_kv;      /* >= 1 */
    int32_t seq_q;         /* 1 ... 2^29; seq_q * heads_q / heads_kv is at most 2^30 */
    int32_t seq_k;         /* 1 ... 2^29 */
    int32_t head_dim;      /* a multiple of 8; forward 8 ... 576, backward 8 ... 256 */
    int32_t causal;        /* 0 or 1 */
    int32_t softcap;       /* 1: cap the scores, by the value in the arguments. Else 0 */
    int32_t window;        /* a fa2_window. If it is NONE, the next two are 0 */
    int32_t window_left;   /* keys before the query's own position, 0 ... 2^29, or -1 for all of them.
                            * PREFIX: keys that all queries see, 0 ... 2^29. CHUNK: keys of a chunk, 1 ... 2^29 */
    int32_t window_right;  /* keys after it, likewise; a causal problem sees none of them. PREFIX, CHUNK: -1 */
    int32_t deterministic; /* backward. 1: every launch gives the same bits. 0: every launch gives the same bits of dK
                            * and dV, but dQ may be summed in any order */
    int32_t alibi;         /* 1: ALiBi, with the slopes in the arguments. Else 0 */
    int32_t sinks;         /* 1: sinks, with the values in the arguments. Else 0 */
    fa2_bias bias;         /* if not NONE, the arguments have a bias of this type */
    int32_t dropout;       /* 1: dropout, by the probability and seed in the arguments. Else 0 */
    int32_t seqused;       /* forward (backward has varlen). 1: device memory holds how many keys each sequence has.
                            * seq_k is then the largest possible number. Else 0 */
    int32_t varlen;        /* 1: packed sequences of different lengths, one after the other. Device memory holds where
                            * each begins; seq_q and seq_k are the longest. Q, O, dO and dQ are
                            * [total_q, heads_q, head_dim]. K, V, dK and dV are [total_k, heads_kv, head_dim]. LSE is
                            * [heads_q, total_q]. stride_batch is not read. Else 0; then the next two are 0, too */
    int32_t total_q;       /* 1 ... 2^29. 0: batch * seq_q, which must be at most 2^29 */
    int32_t total_k;       /* 1 ... 2^29. 0: batch * seq_k, which must be at most 2^29 */
    int32_t paged;         /* forward. 1: K and V lie in pages, [pages, page, heads_kv, head_dim]. A table in device
                            * memory names the pages of each sequence. stride_batch leads from a page to the next one.
                            * Else 0; then the next one is 0, too */
    int32_t page;          /* rows of a page: a power of two, 1 ... 2^20. 0: 16 */
    int32_t leftpad;       /* forward, without varlen. 1: the first keys of each sequence are padding. Device memory
                            * holds how many. Else 0 */
    int32_t cache_rows;    /* forward, without varlen and paged. 1: K and V are
                            * [cache_row_count, seq_k, heads_kv, head_dim]. Device memory holds which row belongs to
                            * each sequence. Else 0 */
    int32_t head_dim_v;    /* columns of V, O, dO and dV: a multiple of 8 below head_dim. 0: head_dim */
    int32_t append;        /* forward. 1: new keys and values, in the arguments, are first written into K and V after
                            * the keys that a sequence has. Attention sees them. Else 0; then the next two are 0, too */
    fa2_rotary rotary;     /* if not NONE, new keys and Q are rotated, by the tables in the arguments. If NONE, the
                            * next one is 0 */
    int32_t rotary_dim;    /* columns that are rotated, the first ones: a multiple of 16, 16 ... head_dim, at most
                            * 256 */
    int32_t v_in_k;        /* forward. 1: V is the first columns of K, or all of them, in the same memory, and is read
                            * once. args.v and args.append.v are not read. Else 0 */
    fa2_sums sums;         /* forward. FAST permits fp16 sums in P V. Else FP32 */
    fa2_scores scores;     /* forward. INT8 permits 8-bit integers in Q K^T. Else EXACT */
    fa2_kv kv;             /* forward. Not DTYPE: K and V are in 8 bits, with scales in the arguments. */
    int32_t partial;       /* a fa2_partial: whether O, or the gradients, are fp32, and whether they are merged */
    fa2_scales kv_scales;  /* the type of these scales; FP32 if kv is DTYPE */
    int32_t carry;         /* forward. 1: O, in the dtype, is merged with args.carried, which is fp32. Else 0 */
    fa2_pv pv;             /* forward. FP8 permits e4m3 numbers in P V, beside scores INT8. Else EXACT */
    int32_t reserved[10];  /* 0. Fields that come later take their places, so that the size stays the same */
} fa2_problem;

/* ---- operands ---- */

/* A tensor on the device. Strides count elements. They are multiples of 16 bytes (8 elements of 16 bits) and not
 * negative. The stride of a dimension of extent 1 may be anything. The rows of a sequence do not overlap. Batches and
 * heads of an input may share memory (stride 0). The last element lies below address 2^60. */
typedef struct fa2_tensor {
    void *data; /* device pointer, 16-byte aligned */
    int64_t stride_batch;
    int64_t stride_seq;
    int64_t stride_head;
} fa2_tensor;

/* The scales of the rows of K or of V in 8 bits, on the device, of the type problem.kv_scales. The scale of the row
 * that belongs to key j of head h in batch b is number b * stride_batch + j * stride_seq + h * stride_head. Scales
 * have the batches and rows of K: pages and their rows if K is paged, rows of the cache if the problem has cache_rows,
 * batch 0 for packed sequences. Strides count elements and are not negative. A stride of 0 shares scales: if
 * stride_batch and stride_seq are 0, a head has one scale for all rows. Fastest: stride_seq is 1.
 *
 * With append, fa2_forward also writes scales, although `data` is const. Then no two rows share a scale, and no other
 * argument shares the bytes of the scales. */
typedef struct fa2_kv_scales {
    const void *data; /* aligned to a scale's bytes; written with append */
    int64_t stride_batch;
    int64_t stride_seq;
    int64_t stride_head;
} fa2_kv_scales;

/* The slopes of ALiBi, fp32, on the device. slopes[b * stride_batch + h] belongs to head h of batch b. */
typedef struct fa2_alibi {
    const float *slopes;  /* 4-byte aligned */
    int64_t stride_batch; /* elements, not negative. 0: all batches share the slopes */
} fa2_alibi;

/* A bias or a mask, on the device. The element for query i and key j of head h in batch b is number
 * b * stride_batch + h * stride_head + i * stride_query + j * stride_key. Strides count elements and are not negative.
 * A stride of 0 shares the elements.
 *
 * With packed sequences, i and j count from the beginning of sequence b. With leftpad, j counts the padding, whose
 * elements are not read.
 *
 * Numbers must not be NaN or +infinity. These numbers hide a key:
 *   - -infinity, -1e9, and the lowest finite numbers of bf16 and fp32. They hide it if its score, scaled and with the
 *     bias, lies below about -2^19, which other scores do not reach. A row whose keys are all hidden has O = 0, and
 *     LSE = -infinity or the sink.
 *   - -65504, the lowest finite number of fp16. It hides a key only if the row also has keys with a higher bias. If all
 *     keys of a row have -65504, the row attends nearly as with a bias of 0. Its scores are then so large that they are
 *     rounded to 1/100.
 * With a bias of bf16 the softmax scale is rounded, by at most 2^-17 of it.
 *
 * Fastest: stride_key is 1, the other strides are multiples of 8, data is aligned to 8 elements or 16 bytes. Elements
 * of fp16 and bf16 come in aligned pairs if stride_key is 1, the other strides are even, and data is 4-byte aligned.
 * Strides of dimensions of extent 1 do not count. Without aligned pairs, another kernel than the prepared one may serve
 * the call (fa2_prepare). */
typedef struct fa2_bias_tensor {
    const void *data; /* aligned to an element */
    int64_t stride_batch;
    int64_t stride_head;
    int64_t stride_query;
    int64_t stride_key;
} fa2_bias_tensor;

/* The gradient of a bias, on the device, fp32. The element for query i and key j of head h in batch b is number
 * b * stride_batch + h * stride_head + i * stride_query + j * stride_key. Strides count elements and are not negative.
 * A stride is 0 where the bias is shared. Such an element gets the sum of dS over all that share it, in any order,
 * without the factor of the softcap. No other two elements share memory. Old contents are overwritten. */
typedef struct fa2_bias_gradient {
    float *data; /* 4-byte aligned */
    int64_t stride_batch;
    int64_t stride_head;
    int64_t stride_query;
    int64_t stride_key;
} fa2_bias_gradient;

/* Dropout. Seed, offset, batch, head, row and column alone decide whether an element is dropped. So fa2_backward drops
 * the same elements if it gets forward's p, seed and offset. Offsets that differ by less than 2^32 give independent
 * draws. With packed sequences the batch is the number of the sequence, and rows and columns count from its beginning.
 * With leftpad, columns count from the end of the padding. Kept elements are multiplied by 1 / (1 - p), in fp32. No two
 * decisions have a covariance above 4e-6 (runtime/ops/dropout.h). */
typedef struct fa2_dropout {
    float p; /* probability that an element is dropped, 0 <= p < 1; exact to 2^-16 */
    uint64_t seed, offset;
    /* Device pointers, 8-byte aligned, or NULL. *seed_at replaces seed. *offset_at is added to offset. Change
     * *offset_at between replays of a captured graph: then each replay draws anew. */
    const uint64_t *seed_at, *offset_at;
} fa2_dropout;

/* Where a call lies in the whole, if it has some rows, columns or heads of a larger attention. Then it drops what one
 * call on the whole drops with the same p, seed and offset. All 0: the call is the whole. A call has all batches of the
 * whole. With packed sequences, row and column are the same for each sequence, and count from its beginning in the
 * whole. */
typedef struct fa2_dropout_origin {
    int32_t row, column; /* of the whole: the call's first ones. Multiples of 64, at least 0 */
    int32_t head;        /* of the whole: the call's first query head, at least 0 */
    int32_t heads;       /* query heads of the whole, at least head + heads_q. 0: heads_q, and head is 0 */
} fa2_dropout_origin;

/* New keys and values, on the device. */
typedef struct fa2_append {
    fa2_tensor k, v; /* read, [batch, seq, heads_kv, head_dim]. v has head_dim_v columns if that is not 0, and is not
                      * read with v_in_k. With varlen they are packed like Q: [total_q, heads_kv, head_dim] */
    int32_t seq;     /* new keys of each sequence, 1 ... seq_k; seq_q of them are fastest. Not read with varlen.
                      * There each sequence has as many new keys as queries. */
} fa2_append;

/* Cosines and sines of the angles of each position, on the device: [rows, rotary_dim / 2], of the problem's dtype,
 * contiguous, 16-byte aligned. */
typedef struct fa2_rotary_tables {
    const void *cos, *sin;
    int32_t rows; /* at least seq_k */
} fa2_rotary_tables;

/* ---- arguments ---- */

/* The arguments of fa2_forward.
 *
 * Written memory (o, lse, gradients, workspace) shares no byte with any other argument. No two written rows share a
 * byte. Otherwise the call fails with FA2_E_INVALID. What lies between the rows of an argument is not part of it: Q, K,
 * V and O may be slices of one tensor. If strides are so irregular that the check would take long, it is left out, and
 * the caller is responsible. The caller is also responsible for a separate workspace for each launch that may run at
 * the same time, as on two streams. A launch keeps counters and sums in its workspace; old contents do not matter. */
typedef struct fa2_forward_args {
    size_t struct_bytes; /* sizeof(fa2_forward_args) */
    fa2_tensor q, k, v;  /* read. Elements of V are below 2^60 in magnitude, else O may be infinite or NaN */
    fa2_tensor o;        /* written; with FA2_PARTIAL_MERGE also read */
    float *lse;          /* written: [batch, heads_q, seq_q], or [heads_q, total_q] with varlen. FA2_PARTIAL_MERGE and
                          * carry also read it. Without them it may be NULL: not wanted. */
    float softmax_scale; /* > 0, at most 2e38. 0: 1 / sqrt(head_dim). Scores, scaled and with all that is added, should
                          * lie between -524288 and 524288: others are not told apart */
    void *workspace;     /* fa2_workspace_size bytes, 256-byte aligned. NULL if that is 0 */
    size_t workspace_bytes; /* FA2_E_INVALID: fewer than the call needs */

    /* The library reads the members below only if the problem asks for them. */
    /* problem.softcap: > 0, at most 2e38. */
    float softcap;
    /* problem.alibi. ALiBi and a bias need a softmax_scale of at least 1e-30. With softcap, this limit is on softcap
     * instead. */
    fa2_alibi alibi;
    /* problem.sinks: fp32 [heads_q], 4-byte aligned. Each is within +-2e38, or -infinity for no sink. */
    const float *sinks;
    fa2_bias_tensor bias; /* problem.bias */
    fa2_dropout dropout;  /* problem.dropout */

    /* problem.seqused: device, [batch]. The number of keys of each sequence, the first ones of its seq_k. Less than 0
     * counts as 0, more than seq_k as seq_k. The kernel reads it when it runs, so a graph may be launched again with
     * other numbers. K and V after those keys, and in padding, may hold anything, NaN too. */
    const int32_t *seqused_k;

    /* problem.varlen: device, [batch + 1], never falling. Sequence b has rows cu_seqlens[b] ... cu_seqlens[b + 1] - 1,
     * at most seq_q or seq_k of them. It is empty if the two are equal. Numbers outside the tensor count as its ends.
     *   - Rows before cu_seqlens_q[0] and from cu_seqlens_q[batch] on belong to no sequence. O is written as 0 there,
     *     and LSE as -infinity.
     *   - A sequence of more than seq_q rows ends after seq_q. Its other rows are left alone.
     *   - If bounds fall all the same, a sequence that would end before it begins is empty. Rows of no sequence are
     *     left alone or written as 0. A row of two sequences is written by either or both. With FA2_SCORES_INT8, rows
     *     of sequences that share keys, because cu_seqlens_k falls, may be anything.
     * Nothing outside of the tensors is read or written. With seqused, a sequence has its first seqused_k[b] keys. */
    const int32_t *cu_seqlens_q;
    const int32_t *cu_seqlens_k;

    /* problem.paged: device, [batch, seq_k / page, rounded up]. block_table_stride is the distance of its rows, in
     * elements. Key j of sequence b is row j % page of page block_table[b][j / page]. A number outside of
     * 0 ... page_count - 1 counts as the last page. Entries after a sequence's length are not read, and pages of
     * padding alone are not read, whatever their entries say. With varlen, only cu_seqlens_k says how many keys a
     * sequence has.
     *
     * Limits of K and of V: let u be the greatest common divisor of stride_batch and stride_seq. (If there is one page,
     * u is stride_seq. If a page is one row, u is stride_batch.) Then u is below 2^31 elements. The last row of the
     * last page begins less than 2^32 * u elements after the first row of the first page. If pages are whole rows
     * apart, u is stride_seq, and 2^32 rows are possible. */
    const int32_t *block_table;
    int64_t block_table_stride;
    int32_t page_count; /* at least 1 */

    /* problem.leftpad: device, [batch]. The keys of sequence b begin at key leftpad[b] of its seq_k. seqused_k counts
     * the padding, too. Less than 0 counts as 0, more than seq_k as seq_k. Queries end where keys end, as always.
     * Prefixes and chunks count from the end of the padding. Rotary positions include it. */
    const int32_t *leftpad;

    /* problem.cache_rows: device, [batch]. The row of K and V that belongs to each sequence. A number outside of
     * 0 ... cache_row_count - 1 counts as the last row. Sequences may share a row. */
    const int32_t *cache_rows;
    int32_t cache_row_count; /* at least 1 */

    /* problem.append. Row i of append.k and append.v becomes a key of sequence b, and attention sees it:
     *   - with seqused: key seqused_k[b] + i
     *   - without it: the last append.seq keys
     * Rows that find no room before seq_k are left out.
     * With varlen, sequence b appends rows cu_seqlens_q[b] + i, as many as it has queries:
     *   - with seqused: from key seqused_k[b] on
     *   - without it: its last keys; from key 0 on if it has fewer keys than queries
     * There, the room of sequence b is the number of keys that cu_seqlens_k gives.
     * Because the call writes into args.k and args.v, these share no byte with any other argument. Sequences that get
     * new keys share no row and no page. Nothing is written to a page or cache row that does not exist. */
    fa2_append append;

    /* problem.rotary. New key i has the position of the key that it becomes. If the problem is causal or has a window,
     * query i is rotated as new key i is. Else all queries are rotated as new key 0 is. Positions beyond the
     * tables count as their last row. Q in memory stays as it is. With v_in_k, V is made of the rotated keys. */
    fa2_rotary_tables rotary;

    /* problem.kv in 8 bits. Scales of rows that no sequence has may be anything. */
    fa2_kv_scales k_scale, v_scale;

    /* problem.carry: read, fp32, [batch, seq_q, heads_q, head_dim_v], or [total_q, heads_q, head_dim_v] with varlen. O
     * over other keys, as FA2_PARTIAL_WRITE stores it. Rows whose LSE is -infinity may hold anything. Rows that belong
     * to no sequence are written as without carry. */
    fa2_tensor carried;

    fa2_dropout_origin dropout_origin; /* problem.dropout */

    /* problem.alibi: added to each query's position i + seq_k - seq_q, from which ALiBi takes the distance to a key. 0
     * unless the call has a part of the rows and keys of a larger attention. If neighbouring rows of the call lie N
     * apart in the whole, multiply the slopes by N and divide the shift by N: it may be a fraction. So the shift is
     * (first query's place - first key's place) / N - (seq_k - seq_q). It is from -2^24 to 2^24, and not negative if the
     * problem is causal. */
    float distance_shift;
    float reserved; /* 0 */
} fa2_forward_args;

/* The arguments of fa2_backward. The rules of fa2_forward_args for shared memory hold here, too.
 *
 * A gradient whose data is NULL is not wanted. If no gradient at all is wanted, dbias and dsinks included, the call
 * fails with FA2_E_INVALID.
 *   - Without dq, neither its product nor its sums are computed.
 *   - Without dk and dv, kernels with separate blocks for dQ (dq=separate in the variant of fa2_explain) skip the
 *     blocks of dK and dV, unless the gradient of the bias is wanted. Other kernels skip the writes of dK and dV.
 *   - Without one of dk and dv, only its writes are saved. */
typedef struct fa2_backward_args {
    size_t struct_bytes;   /* sizeof(fa2_backward_args) */
    fa2_tensor q, k, v;    /* read, as in forward */
    fa2_tensor o;          /* read, what forward wrote */
    fa2_tensor d_o;        /* read: dO */
    fa2_tensor dq, dk, dv; /* written; with FA2_PARTIAL_MERGE also read */
    const float *lse;      /* read, what forward wrote, in forward's shape */
    float softmax_scale;   /* as in forward: > 0, at most 2e38. 0: 1 / sqrt(head_dim) */
    void *workspace;       /* fa2_workspace_size bytes, 256-byte aligned. NULL if that is 0 */
    size_t workspace_bytes;
    float softcap;        /* problem.softcap: as in forward */
    fa2_alibi alibi;      /* problem.alibi: as in forward. Slopes have no gradient */
    fa2_bias_tensor bias; /* problem.bias: as in forward */
    fa2_dropout dropout;  /* problem.dropout: as in forward */
    const float *sinks;   /* problem.sinks: as in forward */
    float *dsinks;        /* problem.sinks: written, fp32 [heads_q], 4-byte aligned. NULL: not wanted */

    /* problem.varlen: as in forward. Rows that belong to no sequence are written as 0 in every gradient, whatever the
     * inputs hold there. The same holds for queries of a sequence without keys, and for keys of one without queries.
     * With deterministic, a launch may never end if cu_seqlens_k falls: blocks wait for earlier ones.
     *
     * The size of the workspace depends on batch and totals, not on the bounds, so a graph may be launched again with
     * other lengths. It grows with the rows, however many sequences share them. */
    const int32_t *cu_seqlens_q;
    const int32_t *cu_seqlens_k;

    /* problem.bias with a gradient: written. With packed sequences, elements to which nothing is added become 0. With
     * deterministic, no stride is 0 whose extent is above 1. */
    fa2_bias_gradient dbias;

    fa2_dropout_origin dropout_origin; /* problem.dropout: as in forward */
    float distance_shift;              /* problem.alibi: as in forward */
    float reserved;                    /* 0 */
} fa2_backward_args;

/* The arguments of fa2_merge: problem.seq_k partial results of attention over different keys (FA2_PARTIAL_WRITE), which
 * become O and LSE over all these keys. Partial result i lies i * parts_stride elements after the first one, and its
 * LSE i * parts_lse_stride numbers after the first LSE. A row whose LSE is -infinity saw no key: its O does not count,
 * whatever it holds. If all are, O is 0 and LSE is -infinity. The rules of fa2_forward_args for shared memory hold, and
 * o and lse share no byte with what lies between partial results. */
typedef struct fa2_merge_args {
    size_t struct_bytes;      /* sizeof(fa2_merge_args) */
    fa2_tensor parts;         /* read, fp32: the first partial O, [batch, seq_q, heads_q, head_dim] */
    int64_t parts_stride;     /* elements, a multiple of 4, not negative. Not read if there is one */
    const float *parts_lse;   /* read: the first LSE, [batch, heads_q, seq_q] */
    int64_t parts_lse_stride; /* elements, not negative. Not read if there is one */
    fa2_tensor o;             /* written, of the problem's dtype, or fp32 with problem.partial = 1 */
    float *lse;               /* written, [batch, heads_q, seq_q]. NULL: not wanted */
    void *workspace;          /* fa2_workspace_size bytes, 256-byte aligned. NULL if that is 0 */
    size_t workspace_bytes;
} fa2_merge_args;

/* ---- contexts ---- */

/* How much a line of the log matters. No line is an error of a call. */
typedef enum fa2_log_level {
    FA2_LOG_ERROR = 1,   /* Something is broken: a database that cannot be used, code that cannot be stored. */
    FA2_LOG_WARNING = 2, /* Calls may be slower than necessary: nothing is tuned, or a record is passed over. */
    FA2_LOG_INFO = 3,    /* Other events: a database was replaced, a lost kernel was compiled again. */
    FA2_LOG_DEBUG = 4    /* Each problem that is prepared: its kernel, by which rule, after how many microseconds. */
} fa2_log_level;

/* The loss by rounding K to 8-bit integers (FA2_SCORES_INT8) in a key head, over all sequences. A group of up to 32
 * keys has one step, so a column that is much larger than the others takes their bits: they become 0. In normally
 * distributed K, 1 to 2 per cent become 0. Beyond a quarter, scores mean little: call without the permission. */
typedef struct fa2_rounding {
    uint64_t values; /* numbers of K that were rounded, less the mean key. */
    uint64_t zeros;  /* how many of them are not 0 and became 0. */
    float largest;   /* the largest magnitude among them; infinite or NaN if one is. */
    float reserved;
} fa2_rounding;

/* The settings of a context. Every zero is the default. */
typedef struct fa2_config {
    size_t struct_bytes; /* sizeof(fa2_config) */
    /* The database file; copied. NULL: $FA2_DB, else $XDG_CACHE_HOME/fa2/fa2.db, else ~/.cache/fa2/fa2.db. "": no
     * database.
     *
     * A named file, here or in FA2_DB, must be usable. Otherwise fa2_context_create fails with FA2_E_DATABASE. A named
     * file that does not exist and cannot be created is no error: the context works without it, and logs why.
     * At the default path nothing is an error: not a damaged file, a lock, a full disk or another owner. The context
     * logs it in one line, and works without a database.
     * No later call fails because of the database, named or not. Calls that prepare a problem look at the file once a
     * second:
     *   - If the file was deleted, the context goes on. It creates the file again to store a kernel.
     *   - If another file took its place, the context uses that from then on.
     *   - If the file could not be used, it tries again when the file changes, else once a minute.
     *
     * A file that others can write cannot be used. If others can write only its folder, fa2_context_create reads the
     * file, once. The context writes nothing into the file, and does not see later changes of it. */
    const char *database;
    /* 0: the CUDA context that is current in the calling thread, else the primary context of device 0. n > 0: the
     * primary context of device n - 1. */
    int device_plus_one;
    /* 0: generate for the device's own SM. 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121: generate for that
     * SM and load PTX, which the driver compiles. This is for testing one card's kernels on another. */
    int arch;
    /* 1: never write to the database. 0: store kernels that had to be compiled here. */
    int read_only;
    /* Called once for each event that is worth knowing but is no error of the call. Examples: a damaged record that was
     * skipped; a kernel that was compiled because nothing was tuned. May be NULL. Any thread that uses the context may
     * call it. It must not call into that context. log_level limits the lines. */
    void (*log)(void *user, const char *message);
    void *log_user;
    /* 1: never compile a kernel, and never open NVRTC. Only kernels that the database holds are used. The driver may
     * translate their PTX. A call that finds nothing fails with FA2_E_FORBIDDEN. Its message says "the context's config
     * forbids compiling". fa2_explain says the same where the best kernel was passed over for that reason. If arch is
     * set, too, fa2_context_create fails with FA2_E_INVALID. 0: compile a kernel if the database has none as good
     * (fa2_rule). */
    int never_compile;
    /* For debugging. 0: the host reads none of the numbers that a call has in device memory. 1: before each launch it
     * waits for the stream, and checks them: cu_seqlens_q, cu_seqlens_k, seqused_k, leftpad, cache_rows, block_table.
     * It leaves out entries of block_table that no kernel reads: after the last key, and for padding alone.
     *
     * A number out of range, which would count as another one, fails the call with FA2_E_INVALID, before anything is
     * launched. The message names operand, place, value and range:
     * "block_table[3][17] is 4711; it must be from 0 to 511 (page_count - 1)". The call also fails on:
     *   - a packed sequence longer than seq_q or seq_k
     *   - bounds that fall
     *   - more padding, or more used keys, than the sequence has keys
     *   - a page or cache row that is named twice where new keys are written to it
     * New keys without room are no mistake. During stream capture nothing can be read: FA2_E_CAPTURE. A replay of
     * a graph does not check its numbers. */
    int check_numbers;
    /* As log, with the level of the line. May be NULL. If both are set, only this one is called. */
    void (*log_at)(void *user, fa2_log_level level, const char *message);
    /* A fa2_log_level: lines that matter less are left out. 0: FA2_LOG_INFO. */
    int log_level;
    /* n > 0: the first call whose kernel rounds K, and every n-th such call after it, waits for the stream, reads what
     * was lost, and calls `rounding` with it: heads[0 ... problem->heads_kv - 1]. The rules of `log` hold. If the loss
     * cannot be read, the call fails, although its kernels were launched. Calls during stream capture are left out.
     * 0: never; fa2_read_rounding reads the same. n > 0 without `rounding`: FA2_E_INVALID. */
    int rounding_every;
    void (*rounding)(void *user, const fa2_problem *problem, const fa2_rounding *heads);
    void *rounding_user;
} fa2_config;

typedef struct fa2_context fa2_context;

/* Opens the device and the database. Loads neither NVRTC nor a kernel. config may be NULL. On FA2_OK *ret_context
 * belongs to the caller (fa2_context_destroy). A database that does not exist is no error. A named one that is not
 * usable is FA2_E_DATABASE (fa2_config.database). */
FA2_API fa2_status fa2_context_create(const fa2_config *config, fa2_context **ret_context);

/* Releases everything, kernels included. No launch of this context may be in flight. NULL is allowed. In a forked child
 * this does nothing to a context of the parent: its memory goes with the process. */
FA2_API void fa2_context_destroy(fa2_context *context);

/* Chooses and loads the kernel for a problem. It compiles one if the config allows that and the database has nothing as
 * good (see fa2_rule). Later calls on the same problem only launch. Not during stream capture. It takes
 *   - at most 10 microseconds on an ordinary machine, if an earlier problem rounds up to the same sizes (batch, seq_q,
 *     seq_k, totals), and has the same other fields
 *   - milliseconds, if this very problem was tuned, or an earlier process stored its choice
 *   - tenths of a second for the first problem of a kind for which kernels must be compared
 *   - a second or two if a kernel must be compiled.
 * The database keeps each choice beside its kernel. It drops the choice when measurements, verifications, kernels of
 * its kind or fa2 itself change, so that later measurements always count.
 *
 * Two exceptions: the prepared kernel may not suit a call's strides or bias.
 *   - A kernel that reads by tensor maps (SM 9.0) cannot read strides that no map can express.
 *   - With a bias of 16 bits without aligned pairs (fa2_bias_tensor) such a kernel would be slow.
 * The first such call chooses another kernel, and compiles it if necessary. Later ones only launch. Where no other
 * kernel exists, and while the stream is captured, nothing is chosen:
 *   - A call with such strides fails. FA2_E_CAPTURE says that the capture is the cause: make the call once before it.
 *   - A call with such a bias gets the slow kernel. If there is no other kernel, the log says so once.
 *
 * fa2_prepare, fa2_workspace_size, fa2_explain and calls all prepare a problem. It stays prepared until 8192 others
 * were prepared or called after it. Then the context may forget it, and prepare it again at its next call. It may then
 * choose another kernel, which may need more workspace. So ask fa2_workspace_size before each call, and do not keep its
 * answer. Asking costs a look-up. */
FA2_API fa2_status fa2_prepare(fa2_context *context, const fa2_problem *problem);

/* Stores how many bytes of device workspace a launch needs for this problem. It prepares the problem (fa2_prepare).
 * More bytes are always fine. A shorter seq_k can need more than a longer one, because its keys may be divided among
 * more blocks. For growing lengths, ask for each, or take the largest answer. The answer holds for all strides and
 * for every bias. */
FA2_API fa2_status fa2_workspace_size(fa2_context *context, const fa2_problem *problem, size_t *ret_bytes);

/* ---- calls ---- */

/* Launches attention on the caller's stream and returns without waiting. stream is a CUstream or cudaStream_t of the
 * context's device. NULL is the default stream. A problem that was not prepared is prepared first. During stream
 * capture the kernel must already be known and loaded, else the call fails with FA2_E_CAPTURE.
 *
 * A call may launch several kernels, one after the other. On SM 9.0 and newer, with a driver for CUDA 12.3, a kernel
 * that combines partial results starts early (programmatic dependent launch). Work that is enqueued after the call
 * waits for all of it, as always. In a captured graph, the edge between the two kernels is a programmatic one, and
 * cuGraphGetEdges fails with CUDA_ERROR_LOSSY_QUERY. Use cuGraphGetEdges_v2, which gives the data of edges.
 *
 * A new problem that rounds up to a known one costs microseconds, under a lock (fa2_prepare). It may also be captured,
 * because its kernel is loaded. New problems of one head_dim, dtype, causal and set of features ask the database for
 * changes at most once a second. If another process has locked it, the call waits, at most 10 s in all. If it waited in
 * vain, no call waits until the lock is gone or a minute has passed. */
FA2_API fa2_status fa2_forward(fa2_context *context, const fa2_problem *problem, const fa2_forward_args *args,
                               void *stream);

/* The same for the gradients. problem.op is FA2_OP_BACKWARD. */
FA2_API fa2_status fa2_backward(fa2_context *context, const fa2_problem *problem, const fa2_backward_args *args,
                                void *stream);

/* Merges partial results. problem.op is FA2_OP_MERGE. seq_k is their number, heads_kv is heads_q, head_dim is the
 * number of O's columns, dtype is O's, and partial may be 1: O is fp32. Other features are 0. Packed sequences are one
 * batch of seq_q = total_q rows. Results do not depend on the launch, but on the order of the partial results, by a
 * rounding of fp32. */
FA2_API fa2_status fa2_merge(fa2_context *context, const fa2_problem *problem, const fa2_merge_args *args,
                             void *stream);

/* Computes on the CPU, for tests, which elements a call with this dropout keeps (1) or drops (0). mask is host memory,
 * [batch, heads_q, seq_q, seq_k]. Needs no device. seed_at and offset_at are NULL. */
FA2_API fa2_status fa2_dropout_mask(const fa2_problem *problem, const fa2_dropout *dropout, uint8_t *mask);

/* ---- counters ---- */

/* Counts of a context since it was created. Calls that a CUDA graph repeats count once, when they are captured. */
typedef struct fa2_counters {
    size_t struct_bytes; /* sizeof(fa2_counters); the caller sets it, and it is not written */
    /* Calls that were launched, by the rule that chose their kernel (fa2_rule). The exact ones are tuned already. */
    uint64_t calls_exact, calls_nearest, calls_arch, calls_default, calls_shipped;
    uint64_t calls_failed; /* calls that returned an error. */
    uint64_t misses;       /* how often a problem had to be prepared: by calls, fa2_prepare and other functions. */
    uint64_t miss_ns;      /* nanoseconds that this took the callers, compiling and waiting for others included. */
    uint64_t loaded;       /* kernels whose code came from a database. */
    uint64_t compiled;     /* kernels that were compiled. */
    uint64_t compile_ns;   /* nanoseconds that compiling took, failures included. */
    uint64_t unstored;     /* compiled kernels that were not stored: no database, or it cannot be written. */
} fa2_counters;

/* Reads the counters of a context. Takes no lock: other threads may count meanwhile. With FA2_CAPTURE=FILE the counters
 * of all contexts are added up in FILE.counters, too. */
FA2_API fa2_status fa2_read_counters(fa2_context *context, fa2_counters *ret_counters);

/* Reads what the last fa2_forward with this problem and these arguments has lost by rounding K. Waits for the stream.
 * Its workspace must be as that call left it. ret_heads: [heads_kv]. FA2_E_UNSUPPORTED: the problem's kernel does not
 * round K. FA2_E_CAPTURE: the stream is being captured. */
FA2_API fa2_status fa2_read_rounding(fa2_context *context, const fa2_problem *problem, const fa2_forward_args *args,
                                     void *stream, fa2_rounding *ret_heads);

/* ---- explanations ---- */

/* The evidence for a choice. The best evidence is EXACT, then NEAREST, ARCH, SHIPPED and DEFAULT. fa2 compares the
 * kernels that the database holds for the problem's kind, and those that the cost model would try. The best estimate
 * wins. A kernel that must be compiled has to be faster than a stored one by a margin. The margin is 2 per cent if the
 * stored one was measured on this very problem, less if only on farther ones, and 0 if on none nearby. */
typedef enum fa2_rule {
    FA2_RULE_EXACT = 0,   /* Measured on this device for this very problem. */
    FA2_RULE_NEAREST = 1, /* Measured on this device for near problems. The cost model carries it over. */
    FA2_RULE_ARCH = 2,    /* The same, but from another card of this SM, or ranked offline for one. */
    FA2_RULE_DEFAULT = 3, /* Nothing near was measured. The cost model decides, corrected by measurements of the same
                           * family on other kinds of problems. */
    FA2_RULE_SHIPPED = 4  /* As exact, nearest or arch, by measurements that come with fa2. They count only where
                           * this device has none of its own. */
} fa2_rule;

/* Returns "exact", "nearest", "arch", "default" or "shipped". */
FA2_API const char *fa2_rule_string(fa2_rule rule);

typedef struct fa2_explanation {
    size_t struct_bytes; /* sizeof(fa2_explanation); the caller sets it, and it is not written */
    fa2_rule rule;
    int measured; /* 1: the estimate rests on measurements of the kernel. 0: on the model */
    /* The nearest problem on which the kernel was measured, or for which it was ranked. By the default rule: the
     * problem with batch, seq_q and seq_k rounded up, about which the model was asked. */
    fa2_problem tuned_problem;
    double median_us;    /* its time on tuned_problem. 0: not measured */
    char device[128];    /* the card of the measurement, or the model's card */
    char variant[256];   /* family and parameters, in the words of the database */
    char target[16];     /* "sm_86", or "compute_86" for PTX that the driver compiles */
    int registers;       /* per thread */
    int spill_bytes;     /* per thread. 0 is best */
    int smem_bytes;      /* dynamic shared memory per block */
    char reason[512];    /* one sentence */
    double estimate_us;  /* estimated time on the problem */
    double runner_up_us; /* estimated time of the second best kernel. 0: there is only one */
    char runner_up[256]; /* its variant. "": there is only one */
} fa2_explanation;

/* Says which kernel the problem gets and why. It prepares the problem (fa2_prepare). It does not describe the other
 * kernel that serves some strides or a bias. */
FA2_API fa2_status fa2_explain(fa2_context *context, const fa2_problem *problem, fa2_explanation *ret_explanation);

#ifdef __cplusplus
}
#endif

#endif
