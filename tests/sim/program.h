/*
 * A kernel in its compact form: one sim_op per instruction, with its handler, and with operands as offsets into the
 * register file of a warp.
 *
 * Register file of a warp: a 32-bit register is 32 lanes of uint32_t, a 64-bit register 32 lanes of uint64_t. Offsets
 * count uint32_t. Virtual registers whose lifetimes do not overlap share a place. Predicates have one bit per lane.
 * Immediates and addresses of variables are constants: 32 equal lanes in an array of their own, addressed by the
 * complement of the offset.
 *
 * Immutable once made, so blocks on several host threads share it.
 */
#pragma once

#include "ptx.h"

struct sim_warp;
struct sim_op;
typedef void (*sim_handler)(const struct sim_op *op, struct sim_warp *warp);

typedef enum sim_kind {
    SIM_KIND_INTEGER,
    SIM_KIND_FLOAT,
    SIM_KIND_SPECIAL, /* ex2, rcp, sqrt, ... */
    SIM_KIND_CONVERT,
    SIM_KIND_MOVE,
    SIM_KIND_TENSOR,
    SIM_KIND_PRODUCT, /* wgmma */
    SIM_KIND_SHARED,
    SIM_KIND_GLOBAL, /* global and local memory */
    SIM_KIND_ASYNC,
    SIM_KIND_EXCHANGE, /* shfl, vote */
    SIM_KIND_BARRIER,
    SIM_KIND_CONTROL,
    SIM_KIND_PARAM, /* parameters and constants */
    SIM_KINDS
} sim_kind;

const char *sim_kind_name(sim_kind kind);

/* How an instruction is recognised: by its exact opcode, and the form of its arguments. form has one word per argument.
 * A word may begin with a count (the elements of a vector). Then follows
 *   r d q   destination: 32-bit register, 64-bit register, predicate
 *   R       destination r that is also read; then all destinations of the instruction are
 *   s S Q   source of these kinds; s and S may also be immediates and addresses of variables
 *   o       destination r with an optional predicate: r|q
 *   e       destination q with an optional second: q|q
 *   a       address
 *   t       address followed by coordinates, sources s; the count says how many
 *   i       immediate
 *   k       immediate, as a source s
 *   T       truth value: source Q, or an immediate, which becomes part of the op and no source
 *   b       label
 * A word that begins with ? is optional. */
typedef struct sim_row {
    const char *opcode, *form;
    sim_handler handler;
    sim_kind kind;
    int info; /* for the handler */
} sim_row;

typedef struct sim_rows {
    const sim_row *rows;
    size_t count;
} sim_rows;

extern const sim_rows sim_rows_integer, sim_rows_wide, sim_rows_float, sim_rows_half, sim_rows_convert,
    sim_rows_predicate, sim_rows_move, sim_rows_memory, sim_rows_atomic, sim_rows_async, sim_rows_matrix,
    sim_rows_products, sim_rows_mbarrier, sim_rows_bulk, sim_rows_exchange, sim_rows_control;

enum { SIM_DST_LEAST = 4, SIM_DST_MAX = 128, SIM_SRC_MAX = 10, SIM_ADDRESSES_MAX = 3 };
enum { SIM_BRANCH = 1, SIM_EXIT }; /* info of rows that change the control flow */
enum { SIM_FP16_SUMS = 8 };        /* bit of the info of mma.sync */
#define SIM_NONE INT32_MIN         /* a missing operand */

typedef struct sim_op {
    sim_handler handler;
    int32_t *dst;             /* in order, vectors flattened; of predicates: their number */
    int32_t src[SIM_SRC_MAX]; /* likewise, including the base registers of addresses */
    uint8_t dst_count, src_count;
    bool reads_dst;
    bool address_64[SIM_ADDRESSES_MAX]; /* the base register is 64 bits wide */
    int64_t offset[SIM_ADDRESSES_MAX];  /* of the addresses, including a named variable's offset */
    int64_t immediate;
    uint32_t negated; /* bit i: source predicate i is negated */
    int32_t guard;    /* predicate; SIM_NONE: always */
    bool guard_negated;
    int32_t info;      /* the row's */
    int32_t target;    /* branch: index of an op */
    int32_t join;      /* branch: where its sides meet again; SIM_NONE: nowhere */
    int32_t block_end; /* the op after its basic block */
    sim_kind kind;
    bool late; /* it arrives at an mbarrier before words that ldmatrix reads are used: late.c */
    const ptx_instruction *source;
} sim_op;

typedef enum sim_special {
    SIM_TID, /* x, y, z */
    SIM_NTID = SIM_TID + 3,
    SIM_CTAID = SIM_NTID + 3,
    SIM_NCTAID = SIM_CTAID + 3,
    SIM_LANEID = SIM_NCTAID + 3,
    SIM_WARPID,
    SIM_SPECIALS
} sim_special;

typedef struct sim_program {
    const ptx_module *module;
    const ptx_function *function;
    sim_op *ops;
    int op_count;
    bool late; /* one of its ops is late */
    uint32_t *constants;
    size_t constant_words, constant_capacity;
    size_t file_words; /* size of a warp's register file */
    int predicates;
    int32_t special[SIM_SPECIALS]; /* their offsets in the register file; SIM_NONE: not used */
    int registers;                 /* per thread: the maximum that is alive at once, in 32-bit registers */
    size_t static_shared_bytes, local_bytes;
} sim_program;

/* Decodes a function of a parsed module. Memory comes from the module's arena. Returns false on an error;
 * module->message names the instruction and its line. */
bool sim_decode(ptx_module *module, const ptx_function *function, sim_program *ret_program);

/* ---- shared by the decoder's files ---- */

/* Returns the rows of an opcode in the order in which they must be tried. *ret_count may be 0. */
const sim_row *const *sim_find_rows(const char *opcode, size_t *ret_count);

/* Returns why a module for that SM cannot have the instruction, or NULL. */
const char *sim_row_needs(const sim_row *row, const ptx_module *module);

/* The control flow. Operands are virtual registers until the allocator has placed them. Constants are placed at once,
 * as complements. */
typedef struct sim_flow {
    int op_count;
    int block_count;
    int *block_first;     /* [block_count + 1] */
    int *block_of;        /* [op_count] */
    int (*successors)[2]; /* [block_count]: -1: none; block_count: the exit */
} sim_flow;

void sim_flow_init(sim_arena *arena, sim_op *ops, int op_count, sim_flow *ret_flow);
void sim_flow_joins(sim_arena *arena, const sim_flow *flow, sim_op *ops);
bool sim_is_branch(const sim_op *op);
bool sim_is_exit(const sim_op *op);

/* Gives instructions that misuse registers of wgmma products another handler, which stops the launch. */
void sim_hazards(sim_arena *arena, const sim_flow *flow, const ptx_class *registers, size_t register_count,
                 sim_program *program);

/* Marks arrivals before which words that ldmatrix reads were not used. */
void sim_find_late(sim_arena *arena, const sim_flow *flow, const ptx_class *registers, size_t register_count,
                   sim_program *program);

/* Handlers that stop the launch. info: the other instruction, or SIM_NONE. */
void sim_unfenced(const sim_op *op, struct sim_warp *warp);        /* of a product */
void sim_other_shape(const sim_op *op, struct sim_warp *warp);     /* of a product */
void sim_touches_pending(const sim_op *op, struct sim_warp *warp); /* of other instructions */

void sim_allocate(sim_arena *arena, const sim_flow *flow, const ptx_class *registers, size_t register_count,
                  sim_program *program);
