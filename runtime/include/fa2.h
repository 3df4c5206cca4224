/*
 * fa2: FlashAttention-2 kernels generated, tuned and chosen for the GPU in front of them.
 *
 * What it computes, per batch b and query head h (kv = h / (heads_q / heads_kv)):
 *
 *     S = softmax_scale * Q[b,:,h,:] K[b,:,kv,:]^T      (seq_q x seq_k)
 *     S = softcap * tanh(S / softcap)                   if scores are capped
 *     S[i,j] += -slope[b,h] * |i + seq_k - seq_q - j|   with ALiBi
 *     S[i,j] += bias[b,h,i,j]                           with a bias
 *     S = -infinity where a query does not see a key    (causal, window, boolean mask)
 *     O[b,:,h,:] = softmax(S) V[b,:,kv,:]               LSE[b,h,:] = ln(sum(exp(S)))
 *
 * With dropout each element of softmax(S) is 0 with probability p, else divided by 1 - p; LSE has nothing of it.
 * With sinks the softmax has a column more, of score sink[h] in every row, which has no value: it is in
 * the sum of the softmax, and so in LSE, and adds nothing to O. A row that sees no key has LSE = sink[h].
 *
 * after Dao, "FlashAttention-2" (2023): tiled, online softmax, S never in memory. Products are
 * fp16 or bf16 with fp32 accumulation; P is rounded to the input type before the second product; tanh is the
 * hardware's, right to 2^-11 of itself (PTX ISA, tanh.approx).
 * And backward, from what forward gave and dO, the gradient of a loss for O: its gradients for Q, K
 * and V, the last two summed over the query heads h of kv:
 *
 *     P = exp(S - LSE)                 delta[i] = sum over d of dO[i,d] O[i,d]
 *     dV = P^T dO                      dS = P * (dO V^T - delta)
 *     dbias[b,h,i,j] = dS[i,j]                          with a bias whose gradient is wanted
 *     dS = dS * (1 - (S / softcap)^2)                   if scores are capped: S is what was capped
 *     dQ = softmax_scale * dS K        dK = softmax_scale * dS^T Q
 *
 * A dbias that several b, h, i or j share is the sum over these. With dropout dV is of what is left of P, and dO V^T
 * is dropped and divided alike. With sinks their LSE has the sink, and dsink[h] = -sum over b, i of
 * exp(sink[h] - LSE) * delta.
 *
 * Shapes and layout. Q, O, dO and dQ are [batch, seq_q, heads_q, head_dim], K, V, dK and dV are
 * [batch, seq_k, heads_kv, head_dim], in any order of the first three dimensions: each has its own
 * stride, in elements. head_dim is contiguous; V, O, dO and dV may have head_dim_v columns. Rows are
 * 16-byte aligned: the base pointer is a multiple of 16 bytes and every stride a multiple of 8 elements.
 * LSE is [batch, heads_q, seq_q] fp32, contiguous, natural logarithm.
 *
 * Masks are aligned bottom-right: query i stands at key p = i + seq_k - seq_q, where seq_k is the
 * sequence's own if sequences have lengths. When causal it sees
 * keys j <= p; with a window p - window_left <= j <= p + window_right, both inclusive; a prefix and chunks:
 * fa2_window. A row that
 * sees no key gives O = 0 and LSE = -infinity, and its dQ is 0; so are dK and dV of a key that no row
 * sees.
 *
 * Hidden keys. K or V may hold NaN or infinity in keys that a row does not see. Such a row is safe if zeros there would
 * give it the same O and LSE. In backward its dQ, and the gradients of keys that it sees, are the same, too:
 *
 *     keys hidden by                        in K                      in V
 *     seqused_k, leftpad, other sequences   safe, backward too        safe, backward too
 *     causal, window, prefix, chunk         safe forward alone        not safe
 *     boolean mask, bias of -infinity       not safe                  not safe
 *
 * A row that is not safe may be NaN, as in PyTorch. Write zeros into K and V where a mask hides NaN. A row that sees
 * NaN is NaN.
 *
 * Errors. Every function that can fail returns a fa2_status; FA2_OK is 0. On an error the outputs
 * are untouched, nothing was launched, and fa2_last_message() says in a sentence what was wrong.
 * But where a launch is several kernels, and it is a later one that fails with FA2_E_CUDA, those
 * before it were launched, and write outputs and workspace. The library never prints, exits or
 * aborts.
 *
 * Threads. One fa2_context may be used by several threads at once, except that
 * fa2_context_destroy must be the last call on it. The last message belongs to the thread.
 *
 * Processes. CUDA does not survive fork(). In a child, every function refuses a context of the parent at once, with
 * FA2_E_INVALID. It never waits for a lock that another thread of the parent held.
 * fa2_context_destroy does nothing there. A child may make contexts of its own if CUDA was not used before the fork.
 *
 * Memory. A context remembers the last 8192 problems that were prepared or called. It remembers 8192 more that need
 * another kernel for their strides or bias (fa2_prepare), and 4096 answers of the cost model. Together they take at
 * most 64 MB of host memory, however many problems come. The cost of a call does not grow with their number. A program
 * whose problems round to more than 4096 others pays for some answers again, milliseconds each.
 *
 * Ownership. The library owns no tensors: all of them, and the workspace, are the caller's.
 *
 * Environment. FA2_CAPTURE=FILE makes every context count its calls of each problem there, in a
 * shape file for fa2-tune, which processes may share; also those that fail with FA2_E_NO_NVRTC or
 * FA2_E_FORBIDDEN, as there is no kernel, but for calls whose strides alone lack one. One that cannot be
 * written is FA2_E_IO from fa2_context_create.
 * A program with more rights than its caller (set-user-ID, set-group-ID, file capabilities) reads no variable. HOME
 * counts as unset, too: name the database in fa2_config. The libraries of NVIDIA read variables of their own.
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
#define FA2_VERSION_MINOR 1
#define FA2_VERSION_PATCH 0
#define FA2_VERSION       (FA2_VERSION_MAJOR * 10000 + FA2_VERSION_MINOR * 100 + FA2_VERSION_PATCH)

/* FA2_VERSION of the library that runs, which need not be that of this header. While the major
 * version is 0, the minor ones must agree. */
FA2_API int fa2_version(void);

/* X(name, value, text). The values are part of the ABI and never change. */
#define FA2_STATUS_LIST(X)                                                                         \
    X(FA2_OK, 0, "success")                                                                        \
    X(FA2_E_INVALID, 1, "invalid argument")                                                        \
    X(FA2_E_UNSUPPORTED, 2, "not supported on this device or by this version")                     \
    X(FA2_E_NO_DRIVER, 3, "no CUDA driver")                                                        \
    X(FA2_E_NO_DEVICE, 4, "no such CUDA device")                                                   \
    X(FA2_E_NO_NVRTC, 5, "a kernel must be compiled and there is no NVRTC")                        \
    X(FA2_E_COMPILE, 6, "a kernel does not compile")                                               \
    X(FA2_E_CUDA, 7, "a CUDA call failed")                                                         \
    X(FA2_E_DATABASE, 8, "the tuning database cannot be used")                                     \
    X(FA2_E_MEMORY, 9, "out of host memory")                                                       \
    X(FA2_E_CAPTURE, 10, "not while the stream is being captured")                                 \
    X(FA2_E_GENERATOR, 11, "the kernel generator failed")                                          \
    X(FA2_E_IO, 12, "a file cannot be read or written")                                            \
    X(FA2_E_NOT_FOUND, 13, "no such record")                                                       \
    X(FA2_E_FORBIDDEN, 14, "a kernel must be compiled and the context's config forbids compiling")

typedef enum fa2_status {
#define FA2_STATUS_ENUM(name, value, text) name = value,
    FA2_STATUS_LIST(FA2_STATUS_ENUM)
#undef FA2_STATUS_ENUM
} fa2_status;

/* A fixed text for a status; "unknown status" for a number that is none. Never NULL. */
FA2_API const char *fa2_status_string(fa2_status status);

/* What went wrong in this thread's last failing call: argument, limit, CUDA error, file. Never
 * NULL. Borrowed; valid until this thread's next fa2 call. */
FA2_API const char *fa2_last_message(void);

typedef enum fa2_op { FA2_OP_FORWARD = 0, FA2_OP_BACKWARD = 1 } fa2_op;
typedef enum fa2_dtype { FA2_FP16 = 0, FA2_BF16 = 1 } fa2_dtype;

/* What is added to scores: numbers of one of these types, or a mask, one byte each: 0 hides the key. The last three are
 * for backward: numbers whose gradient is wanted, too. */
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

/* Which keys a query at position p sees; n: window_left. */
typedef enum fa2_window {
    FA2_WINDOW_NONE = 0,    /* all, or when causal those up to p */
    FA2_WINDOW_SLIDING = 1, /* p - window_left ... p + window_right */
    FA2_WINDOW_PREFIX = 2,  /* of a causal problem: those up to p, and the first n */
    FA2_WINDOW_CHUNK = 3    /* those of its own chunk: n * c ... n * c + n - 1, of which p is one. When
                             * causal, those up to p */
} fa2_window;

/* Which columns of Q and K are turned together by an angle that grows with the position: t and t + rotary_dim / 2,
 * or 2 t and 2 t + 1. */
typedef enum fa2_rotary {
    FA2_ROTARY_NONE = 0,
    FA2_ROTARY_HALVES = 1,
    FA2_ROTARY_INTERLEAVED = 2
} fa2_rotary;

/* What is asked for: everything that decides which kernel is the best one. Zero-initialise it, so
 * that fields added later mean "off".
 * The sizes have a common limit, so that every kernel can be launched: fewer than 2^33 rows in all.
 * Forward counts batch * heads_q * seq_q, with seq_q rounded up to a multiple of 16.
 * Backward rounds up to 128. It limits batch * heads_kv * seq_k in the same way.
 * Packed sequences count heads_q * (total_q + 16 * batch); backward has 128 for 16, and the same for keys.
 * Every function refuses a problem beyond a limit with FA2_E_INVALID, and the message names the limit. */
typedef struct fa2_problem {
    fa2_op op;
    fa2_dtype dtype;  /* bf16 needs compute capability 8.0 */
    int32_t batch;    /* >= 1 */
    int32_t heads_q;  /* 1 ... 2^16, a multiple of heads_kv */
    int32_t heads_kv; /* >= 1 */
    int32_t seq_q;    /* 1 ... 2^29; times heads_q / heads_kv: at most 2^30 */
    int32_t seq_k;    /* 1 ... 2^29 */
    int32_t head_dim; /* a multiple of 8; forward 8 ... 576, backward 8 ... 256 */
    int32_t causal;   /* 0 or 1 */
    int32_t softcap;  /* 1: scores are capped, by the value in the arguments; else 0 */
    int32_t window;   /* a fa2_window; if that is NONE, the next two are 0 */
    int32_t window_left;   /* keys before the query's own position, 0 ... 2^29; -1: all of them. PREFIX:
                            * keys that all queries see, 0 ... 2^29; CHUNK: keys of a chunk, 1 ... 2^29 */
    int32_t window_right;  /* keys behind it, likewise; with causal none is seen. PREFIX, CHUNK: -1 */
    int32_t deterministic; /* backward. 1: every launch gives the same bits; 0: of dK and dV alone,
                            * as dQ may be summed in any order */
    int32_t alibi;         /* 1: with the slopes in the arguments; else 0 */
    int32_t sinks;         /* 1: with the sinks in the arguments; else 0 */
    fa2_bias bias;         /* Other than NONE: there is one in the arguments */
    int32_t dropout;       /* 1: by the probability and seed in the arguments; else 0 */
    int32_t seqused; /* forward (backward has varlen). 1: how many keys each sequence has is in device memory;
                            * seq_k is then the most. Else 0 */
    int32_t varlen;        /* 1: sequences of different lengths, packed one behind the other; where
                            * each begins is in device memory, seq_q and seq_k are the most that one
                            * has. Q, O, dO and dQ are [total_q, heads_q, head_dim], K, V, dK and dV
                            * [total_k, heads_kv, head_dim], without a stride of the batch, LSE is
                            * [heads_q, total_q]. Else 0, and so are the next two */
    int32_t total_q;       /* 1 ... 2^29; 0: batch times seq_q, which is at most that */
    int32_t total_k;       /* 1 ... 2^29; 0: batch times seq_k, likewise */
    int32_t paged;         /* forward. 1: K and V lie in pages, [pages, page, heads_kv, head_dim], which a
                            * table in device memory names for each sequence: stride_batch is from page
                            * to page. Else 0, and so is the next one */
    int32_t page;          /* rows of a page: a power of two, 1 ... 2^20; 0: 16 */
    int32_t leftpad;    /* forward, not with varlen. 1: the first keys of each sequence are padding; how
                         * many is in device memory. Else 0 */
    int32_t cache_rows; /* forward, not with varlen or paged. 1: K and V are [cache_row_count, seq_k,
                         * heads_kv, head_dim]; which row is a sequence's is in device memory. Else 0 */
    int32_t head_dim_v;   /* Columns of V, O, dO and dV, a multiple of 8 below head_dim; 0: as many as
                            * Q and K have. V may be the first columns of K, in the same memory: v_in_k
                            * says so beforehand, and they are read once */
    int32_t append;     /* forward. 1: new keys and values, in the arguments, are written into K and V
                         * first, behind the keys that a sequence has, and seen. Else 0, and so are the next
                         * two */
    fa2_rotary rotary;  /* Other than NONE: new keys and Q are rotated, by the tables in the arguments. Else
                         * the next one is 0 */
    int32_t rotary_dim; /* columns that are rotated, the first ones: a multiple of 16, 16 ... head_dim,
                         * at most 256 */
    int32_t v_in_k;     /* forward. 1: V is the first columns of K, or all of them, in the same memory;
                         * args.v and args.append.v are not read. Else 0 */
    int32_t reserved[1];  /* 0 */
} fa2_problem;

/* A tensor on the device. Strides count elements, are multiples of 8 and not negative; that of a
 * dimension whose extent is 1 may be anything. A sequence's rows do not overlap; batches and heads
 * of an input may be the same memory (stride 0). The last element is below address 2^60. */
typedef struct fa2_tensor {
    void *data; /* device pointer, 16-byte aligned */
    int64_t stride_batch;
    int64_t stride_seq;
    int64_t stride_head;
} fa2_tensor;

/* Slopes of ALiBi: fp32 on the device, of head h in batch b at slopes[b * stride_batch + h]. */
typedef struct fa2_alibi {
    const float *slopes;  /* 4-byte aligned */
    int64_t stride_batch; /* elements, not negative; 0: all batches have the same */
} fa2_alibi;

/* A bias or a mask, on the device: that of query i and key j of head h in batch b is at
 * b * stride_batch + h * stride_head + i * stride_query + j * stride_key. Strides count elements and are not
 * negative; 0: all have the same. Numbers are not NaN or +infinity. The keys of a row are hidden, as by -infinity,
 * where all scores, scaled and with the bias, are below about -524288: O is 0 then, and LSE -infinity or the sink.
 * Beside others such keys count for nothing anyway: so -infinity, -1e9 and the least numbers of bf16 and fp32 hide
 * keys. That of fp16, -65504, does beside others only: a row that has it for all keys attends nearly as with 0, as
 * scores so far from 0 are told apart to 1/100. With numbers of bf16 the softmax scale is rounded, by at most 2^-17 of
 * it. Of packed sequences, i and j count from where a sequence begins, and b is its number; of padded ones j counts the
 * padding, whose numbers are not read. Fastest where stride_key
 * is 1, the other strides are multiples of 8 and data is aligned to 8 elements or 16 bytes. A bias of fp16 or bf16
 * without aligned pairs (stride_key is not 1, another stride is odd, or data not 4-byte aligned; strides whose extent
 * is 1 do not count) may be served by another kernel than the one that was prepared and explained: fa2_prepare.
 */
typedef struct fa2_bias_tensor {
    const void *data; /* aligned to an element */
    int64_t stride_batch;
    int64_t stride_head;
    int64_t stride_query;
    int64_t stride_key;
} fa2_bias_tensor;

/* The gradient of a bias, on the device, in fp32: that of query i and key j of head h in batch b is written to
 * b * stride_batch + h * stride_head + i * stride_query + j * stride_key. What was there is lost: it is not added to.
 * Strides count elements, are not negative, and are 0 where the bias is the same for all: what is written is the sum
 * of dS, before the cap's factor, over all that have the place, in any order. But for such sums no two elements share
 * memory. */
typedef struct fa2_bias_gradient {
    float *data; /* 4-byte aligned */
    int64_t stride_batch;
    int64_t stride_head;
    int64_t stride_query;
    int64_t stride_key;
} fa2_bias_gradient;

/* Dropout. Whether an element is dropped is a function of seed, offset, batch, head, row and column alone; offsets
 * that differ by less than 2^32 draw anew. Of packed sequences the batch is the sequence's number, and rows and
 * columns count from where it begins. In padded sequences columns count from the end of the padding. Kept elements are
 * multiplied by 1 / (1 - p), in fp32. No two decisions have a covariance above 4e-6 (runtime/ops/dropout.h). */
typedef struct fa2_dropout {
    float p; /* 0 <= p < 1; the probability that an element is dropped, right to 2^-16 */
    uint64_t seed, offset;
    /* Device, 8-byte aligned, or NULL: the seed, in the place of that value; and what is added to the offset, so that
     * a captured graph draws anew at each replay. */
    const uint64_t *seed_at, *offset_at;
} fa2_dropout;

/* New keys and values, on the device. */
typedef struct fa2_append {
    fa2_tensor k, v; /* read, [batch, seq, heads_kv, head_dim], of v head_dim_v columns if these are fewer; v not with
                      * v_in_k. With varlen they are packed as Q is, [total_q, heads_kv, head_dim] */
    int32_t seq;     /* of each sequence: 1 ... seq_k; seq_q of them are fastest. Not read with varlen, where each has
                      * as many as queries */
} fa2_append;

/* Cosines and sines of a position's angles, on the device: [rows, rotary_dim / 2] of the problem's dtype, contiguous,
 * 16-byte aligned. */
typedef struct fa2_rotary_tables {
    const void *cos, *sin;
    int32_t rows; /* at least seq_k */
} fa2_rotary_tables;

/* What is written (o, lse, gradients, and of the workspace what fa2_workspace_size says) shares no
 * byte with anything else here, and no row of a tensor with another one: that is FA2_E_INVALID. The
 * rows themselves count, not what lies between them, so Q, K, V and O may be slices of one packed
 * tensor; only where strides are so odd that this would take long to find out is it the caller's
 * word. So it is that launches which may run at the same time, as those of two streams, have
 * workspaces of their own: a launch counts and adds in its own, whatever was there before. */
typedef struct fa2_forward_args {
    fa2_tensor q, k, v;  /* read. Elements of V are below 2^60 in magnitude: O of larger ones may be infinite or NaN */
    fa2_tensor o;        /* written */
    float *lse;          /* written, [batch, heads_q, seq_q]; NULL: not wanted */
    float softmax_scale; /* > 0, at most 2e38; 0 means 1 / sqrt(head_dim). Scores, scaled and with all
                          * that is added, are told apart between -524288 and 524288 */
    void *workspace;     /* fa2_workspace_size bytes, 256-byte aligned; NULL when that is 0 */
    size_t workspace_bytes;
    /* What follows is read only if the problem asks for it, so that programs built before it was
     * added go on working. */
    float softcap; /* problem.softcap: > 0, at most 2e38 */
    /* problem.alibi. Where something is added to scores, their scale (the softcap if there is one) is at
     * least 1e-30 */
    fa2_alibi alibi;
    const float *sinks;   /* problem.sinks: fp32 [heads_q], 4-byte aligned; -infinity is no sink, others
                           * are within +-2e38 */
    fa2_bias_tensor bias; /* problem.bias */
    fa2_dropout dropout;  /* problem.dropout */
    /* problem.seqused: device, [batch]. A sequence has that many keys, the first ones of its seq_k; what
     * is less than 0 or more than seq_k counts as 0 or seq_k. It is read when the kernel runs, so that
     * a graph may be launched again with others. What K and V hold behind it, or in padding, counts for nothing,
     * NaN neither. */
    const int32_t *seqused_k;
    /* problem.varlen: device, [batch + 1], not falling. Sequence b has the rows cu_seqlens[b] ...
     * cu_seqlens[b + 1] - 1, none where they are equal, and no more than seq_q or seq_k; what is less
     * than 0 or beyond the tensor counts as its ends. Rows before cu_seqlens_q[0] and from cu_seqlens_q[batch]
     * on belong to no sequence: O is written as 0 there, and LSE as -infinity. A sequence of more than seq_q rows
     * ends after seq_q; its other rows are left alone. Where bounds fall, a sequence that would end before it begins
     * has no rows. Other rows may be left alone or 0 then, and a row of two sequences is written by either, or both.
     * Nothing outside the tensors is read or written. With seqused, a sequence has its first seqused_k[b] keys. */
    const int32_t *cu_seqlens_q;
    const int32_t *cu_seqlens_k;
    /* problem.paged: device, [batch, seq_k / page, rounded up], its rows block_table_stride elements apart. Key j
     * of sequence b is row j % page of page block_table[b][j / page]; a number that is none of 0 ... page_count - 1
     * counts as the last one. Behind a sequence's length the table is not read; for pages of padding alone it may
     * say anything, and they are not read. With varlen, cu_seqlens_k says how many keys a sequence has, and nothing
     * else. Of K and of V, rows lie at multiples of the greatest number that divides stride_batch and stride_seq
     * (the other one where there is one page, or a page is one row): that is less than 2^31, 4 GiB, and the last
     * row of the last page less than 2^32 times as far. So it is wherever rows are less than 4 GiB apart and pages
     * by whole rows, for at most 2^32 rows in all. */
    const int32_t *block_table; /* of which what lies between rows counts, too, where memory must not be shared */
    int64_t block_table_stride;
    int32_t page_count; /* at least 1 */
    /* problem.leftpad: device, [batch]. The keys of sequence b begin with number leftpad[b] of its seq_k, and
     * end as seqused_k says, which counts the padding, too. What is less than 0 or more than seq_k counts as
     * 0 or seq_k. Queries end where keys end, as always; prefixes and chunks count from behind the padding, rotary
     * positions with it. */
    const int32_t *leftpad;
    /* problem.cache_rows: device, [batch]: the row of K and V that is sequence b's; a number that is none of
     * 0 ... cache_row_count - 1 counts as the last one. Sequences may share a row. */
    const int32_t *cache_rows;
    int32_t cache_row_count; /* at least 1 */
    /* problem.append: row i of append.k and append.v becomes key seqused_k[b] + i of sequence b (without
     * seqused, its last append.seq keys), and attention sees it; what has no room before seq_k is left out.
     * With varlen it is row cu_seqlens_q[b] + i, there are as many as b has queries (without seqused, its last so
     * many keys; all from key 0 on where it has fewer), and there is room for as many keys as cu_seqlens_k gives b.
     * So k and v are written here, and share no byte with anything else, nor rows or pages of sequences that get
     * new keys; into a page or a row of the cache that is none nothing is written. */
    fa2_append append;
    /* problem.rotary: new key i stands at the position of the key that it becomes, query i at that of new key i, too,
     * if causal or windowed; else all queries stand at that of new key 0. Behind the tables a position counts as
     * their last. Q itself is left as it is. Where V lies in K, it is of the rotated keys. */
    fa2_rotary_tables rotary;
} fa2_forward_args;

/* A gradient whose data is NULL is not wanted; at least one is. Without dq neither its product nor its sums are
 * computed, and without dk and dv, where the kernel's dQ has blocks of its own (dq=apart), nothing of theirs, unless
 * the gradient of the bias is wanted, which is computed with them. dk or dv alone saves only what is written: kernels
 * compute both, as one that asks while it runs has no registers left for the answer, and kernels of their own would
 * spare one product of five. */
typedef struct fa2_backward_args {
    fa2_tensor q, k, v;    /* read, as forward had them */
    fa2_tensor o;          /* read, what forward gave */
    fa2_tensor d_o;        /* read: dO */
    fa2_tensor dq, dk, dv; /* written */
    const float *lse;      /* read, what forward gave, [batch, heads_q, seq_q] */
    float softmax_scale;   /* as forward had it: > 0, at most 2e38; 0 means 1 / sqrt(head_dim) */
    void *workspace;       /* as forward's */
    size_t workspace_bytes;
    float softcap; /* problem.softcap: as forward had it */
    /* As forward had them; of slopes there is no gradient. */
    fa2_alibi alibi;      /* problem.alibi */
    fa2_bias_tensor bias; /* problem.bias */
    fa2_dropout dropout;  /* problem.dropout */
    const float *sinks;   /* problem.sinks */
    float *dsinks; /* problem.sinks: written, [heads_q] fp32, 4-byte aligned; NULL: not wanted */
    /* problem.varlen: as forward had them. With deterministic a launch whose cu_seqlens_k falls somewhere may
     * not end: blocks wait for those before them. Rows that belong to no sequence are written as 0 in every gradient,
     * whatever the inputs hold there. A row whose sequence has nothing on the other side is 0, too. The size of the
     * workspace depends on batch and totals, not on the bounds. So a graph may be launched again with other lengths.
     * It grows with the rows, however many sequences share them. */
    const int32_t *cu_seqlens_q;
    const int32_t *cu_seqlens_k;
    /* problem.bias with a gradient: written; of packed sequences, zeros where nothing is added. With deterministic no
     * stride is 0 whose extent is more than 1. */
    fa2_bias_gradient dbias;
} fa2_backward_args;

/* How a context is set up. Zero-initialise: every zero is the default. */
typedef struct fa2_config {
    /* Database file. NULL: $FA2_DB, else $XDG_CACHE_HOME/fa2/fa2.db, else ~/.cache/fa2/fa2.db.
     * "": work without a database. Copied.
     *
     * A file at a path that was named, here or by FA2_DB, must be usable: else creating the context fails with
     * FA2_E_DATABASE. A named file that is not there and cannot be made is done without, and the log says why.
     * At the default path nothing is an error: neither a damaged file nor a lock, a full disk or another owner.
     * The log says it in one line, and the context works without a database. Later no call fails because of the
     * database, named or not. Calls that prepare a problem look at the file once a second:
     *   - without a file that was deleted the context goes on, and makes it anew to store a kernel;
     *   - another file in its place is used from then on;
     *   - a file that could not be used is tried again when it changes, else once a minute.
     *
     * If others can write the file, it is refused. If they can write its folder, the context reads it once, when it is
     * created, and writes nothing. It does not see later changes. */
    const char *database;
    /* 0: the CUDA context that is current in the calling thread, else the primary context of
     * device 0. n > 0: the primary context of device n - 1. */
    int device_plus_one;
    /* 0: generate for the device's own SM. 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121:
     * generate for that SM and load it as PTX, which the driver compiles. For testing one card's
     * kernels on another. */
    int arch;
    /* 1: never write to the database. 0: store kernels that had to be compiled here. */
    int read_only;
    /* Called, once per cause, with things worth knowing that are no error of the call: a damaged
     * record that was skipped, a kernel compiled because nothing was tuned. May be NULL; may be
     * called from any thread that uses the context; must not call into that context. */
    void (*log)(void *user, const char *message);
    void *log_user;
    /* 1: never compile a kernel, nor open NVRTC: only what the database holds is used, as where there is no NVRTC. A
     * call for which it holds nothing that can be loaded fails with FA2_E_FORBIDDEN, and the message says "the
     * context's config forbids compiling"; so does an explanation of what was passed over for that. What the database
     * holds as PTX is used: the driver compiles it as it loads it. Not together with arch, for which the database's
     * kernels are not taken. 0: compile what is missing and pays. */
    int never_compile;
    /* For finding mistakes. 1: before each launch the host reads the numbers that the call has in device memory
     * (cu_seqlens_q and _k, seqused_k, leftpad, cache_rows, and block_table as far as sequences have keys, but for
     * pages of padding alone), for which it waits for the stream. One that would count as another fails the call
     * with FA2_E_INVALID, nothing is launched, and the message names operand, place, value and range:
     * "block_table[3][17] is 4711; it must be from 0 to 511 (page_count - 1)". So do a packed sequence longer than
     * seq_q or seq_k, bounds that fall, more padding, or more keys used, than a sequence has keys, and a page or a
     * row of the cache that is named twice where new keys are written into it; that new keys have no room is no
     * mistake. While the stream is being captured nothing can be read: FA2_E_CAPTURE; and what a graph reads when
     * it is replayed is not checked. 0: the host reads none of them. */
    int check_numbers;
} fa2_config;

typedef struct fa2_context fa2_context;

/* Open the device and the database. Neither NVRTC nor a kernel is loaded. config may be NULL. On
 * FA2_OK *ret_context belongs to the caller (fa2_context_destroy). A database that does not exist
 * is no error. If the caller named one that is not usable, that is FA2_E_DATABASE (fa2_config.database). */
FA2_API fa2_status fa2_context_create(const fa2_config *config, fa2_context **ret_context);

/* Release everything, kernels included. No launch of this context may be in flight. NULL is
 * fine. In a forked child this does nothing for a context of the parent: its memory goes with the process. */
FA2_API void fa2_context_destroy(fa2_context *context);

/* Choose and load the kernel for a problem, compiling it if nothing in the database is as good (see
 * fa2_rule) and the config does not forbid that. Later fa2_forward or fa2_backward calls on the same problem only
 * launch. Not inside stream capture. It takes
 *   - at most 10 microseconds on an ordinary machine, when batch, seq_q, seq_k and totals round up to those of an
 *     earlier problem;
 *   - milliseconds, when this very problem was tuned, or an earlier process stored its choice;
 *   - tenths of a second for the first problem of a kind for which kernels must be compared;
 *   - a second or two when a kernel must be compiled.
 * The database keeps each choice beside its kernel. It drops the choice when measurements, verifications, kernels of
 * its kind or fa2 itself change, so that later measurements always count.
 *
 * But a kernel that reads by tensor maps, as those of SM 9.0 may, is left to another one by calls with strides that no
 * map expresses, and by calls of fa2_forward with a bias of 16 bits without aligned pairs (fa2_bias_tensor), which
 * it would read slowly. That one is chosen, and compiled if it must be, at the first such call for the problem; later
 * ones only launch, too. Where it cannot be had, or not yet, as the stream is being captured, such strides fail
 * the call (FA2_E_CAPTURE: make the call once before), and such a bias is read slowly by the kernel that was prepared;
 * that it cannot be had is told through the log, and not asked again.
 *
 * This function, fa2_workspace_size, fa2_explain and calls prepare a problem. It stays prepared until 8192 others were
 * prepared or called after it. Then the context may forget it, and prepares it again when it comes again. It may then
 * choose another kernel, because the database was written or the model was asked anew. Another kernel may need more
 * workspace. So ask fa2_workspace_size before each call, and do not keep its answer. Asking costs a look-up. */
FA2_API fa2_status fa2_prepare(fa2_context *context, const fa2_problem *problem);

/* Bytes of device workspace that a launch needs for this problem. As fa2_prepare, so that the
 * answer stays right for as long. More bytes than that are always fine. A shorter seq_k can need more than a
 * longer one: its keys may be split among more blocks. For growing lengths, ask for each, or take
 * the largest answer. It is enough for any strides: a call whose strides no tensor map expresses is
 * served by another kernel within the same bytes, which is prepared at the first such call (not
 * inside stream capture). */
FA2_API fa2_status fa2_workspace_size(fa2_context *context, const fa2_problem *problem,
                                      size_t *ret_bytes);

/* Launch attention on the caller's stream (a CUstream or cudaStream_t; NULL is the default stream)
 * and return without waiting. The stream belongs to the context's device. A problem that was not
 * prepared is prepared first. While the stream is being captured, the kernel must be known and loaded already, else the
 * call fails with FA2_E_CAPTURE.
 *
 * A launch may be several kernels, one behind the other. On SM 9.0 and newer, with a driver for CUDA 12.3, one that
 * combines what blocks found of their shares of the keys begins while those are at work (programmatic dependent
 * launch). What is enqueued behind the call waits for all of it, as always; but where the call is captured, the edge
 * between the two is a programmatic one: cuGraphGetEdges answers CUDA_ERROR_LOSSY_QUERY, and cuGraphGetEdges_v2 and
 * those like it, which give the data of edges, are to be used.
 *
 * A new problem that rounds up to a known one costs microseconds, under a lock (fa2_prepare). It may also be captured,
 * because its kernel is loaded. Once a second, for each head_dim, dtype, causal and set of features, a new problem asks
 * the database for changes. If another process has it locked, the call waits, 10 s at most in all.
 * After a wait in vain no call waits, until the lock is gone or a minute has passed. */
FA2_API fa2_status fa2_forward(fa2_context *context, const fa2_problem *problem,
                               const fa2_forward_args *args, void *stream);

/* The same for the gradients: problem.op is FA2_OP_BACKWARD. */
FA2_API fa2_status fa2_backward(fa2_context *context, const fa2_problem *problem,
                                const fa2_backward_args *args, void *stream);

/* For tests: what a call with this dropout keeps, 1, or drops, 0, to the host: [batch, heads_q, seq_q, seq_k].
 * Computed on the CPU, without a device; seed_at and offset_at are NULL. */
FA2_API fa2_status fa2_dropout_mask(const fa2_problem *problem, const fa2_dropout *dropout,
                                    uint8_t *mask);

/* What a choice rests on, best first. Whatever it is, the kernel is the one that is estimated to be the
 * fastest of all that are in the database for the problem's kind and that the cost model would try; what
 * must be compiled has to be faster by more than 2 per cent. So a database never makes a choice worse
 * than none. */
typedef enum fa2_rule {
    FA2_RULE_EXACT = 0, /* measured on this device for this very problem */
    FA2_RULE_NEAREST =
        1,             /* measured on this device for near problems; the cost model carries over */
    FA2_RULE_ARCH = 2, /* the same, from another card of this SM, or ranked for one offline */
    FA2_RULE_DEFAULT = 3, /* of this kernel nothing near was measured: the cost model, corrected by what other
                           * kinds of problems measured of its family */
    FA2_RULE_SHIPPED = 4  /* as exact, nearest or arch, by measurements that come with fa2: better than the
                           * default, and than nothing of this device's own */
} fa2_rule;

FA2_API const char *fa2_rule_string(fa2_rule rule); /* "exact", "nearest", "arch", "default", "shipped" */

typedef struct fa2_explanation {
    size_t struct_bytes; /* set by the caller, to sizeof(fa2_explanation); not written. Members that
                          * were added after the program was built are then left out */
    fa2_rule rule;
    int measured; /* 1: the estimate rests on measurements of the kernel; 0: on the model */
    /* The nearest on which it was measured, or for which it was ranked. By the default rule: the problem with
     * batch, seq_q and seq_k rounded up, about which the model was asked. */
    fa2_problem tuned_problem;
    double median_us;    /* its time on tuned_problem; 0 if not measured */
    char device[128];    /* the card that was measured, or the model's */
    char variant[256];   /* family and parameters, as the database prints them */
    char target[16];     /* "sm_86", or "compute_86" for PTX that the driver compiles */
    int registers;       /* per thread */
    int spill_bytes;     /* per thread; 0 is what you want to see */
    int smem_bytes;      /* dynamic shared memory per block */
    char reason[512];    /* one sentence */
    double estimate_us;  /* of its time on the problem */
    double runner_up_us; /* of the kernel that would be next; 0: there is none */
    char runner_up[256]; /* that kernel; "": there is none */
} fa2_explanation;

/* Tell which kernel the problem gets and why. It prepares the problem, so the answer stays true for as long. It says
 * nothing of the kernel that serves in its place for some strides or a bias (fa2_prepare). FA2_E_INVALID when
 * no program can have this struct_bytes. */
FA2_API fa2_status fa2_explain(fa2_context *context, const fa2_problem *problem,
                               fa2_explanation *ret_explanation);

#ifdef __cplusplus
}
#endif

#endif
