/*
 * From parsed instructions to ops: finds the row that fits opcode and arguments, then operands and constants, then the
 * control flow and the places of the registers.
 *
 * - An opcode must equal that of a handler's row exactly. A modifier that no row names is never ignored.
 * - Special registers are ordinary registers that no instruction writes. Each warp begins with their values.
 */
#include "program.h"
#include "machine.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct decoder {
    ptx_module *module;
    const ptx_function *function;
    sim_program *program;
    ptx_class *registers; /* the function's registers, then special ones and sinks */
    size_t register_count;
    int32_t sinks[3];          /* per class */
    uint64_t *constant_values; /* the value of each 32 words of constants, to find it again */
    size_t constant_count, constant_capacity;
    uint64_t dynamic_shared;  /* where it begins */
    int32_t dst[SIM_DST_MAX]; /* of the current instruction */
} decoder;

const char *sim_kind_name(sim_kind kind)
{
    static const char *const names[SIM_KINDS] = {"integer",  "float",   "special", "convert",  "move",
                                                 "tensor",   "product", "shared",  "global",   "async",
                                                 "exchange", "barrier", "control", "parameter"};
    return names[kind];
}

/* ---- operands ---- */

static int32_t new_register(decoder *d, ptx_class class)
{
    d->registers[d->register_count] = class;
    return (int32_t)d->register_count++;
}

/* Returns a constant operand: 32 lanes of value. */
static int32_t constant(decoder *d, uint64_t value, bool wide)
{
    sim_program *p = d->program;
    const uint64_t key = wide ? value : value & UINT32_MAX;
    for (size_t i = 0; i < d->constant_count; i++) {
        const bool is_wide = d->constant_values[2 * i + 1] & 1;
        if (d->constant_values[2 * i] == key && is_wide == wide)
            return ~(int32_t)(d->constant_values[2 * i + 1] >> 1);
    }
    const size_t at = p->constant_words;
    p->constants =
        sim_arena_grow(&d->module->arena, p->constants, at / 64, &p->constant_capacity, 64 * sizeof *p->constants);
    for (size_t l = 0; l < SIM_LANES; l++) {
        p->constants[at + (wide ? 2 * l : l)] = (uint32_t)key;
        if (wide)
            p->constants[at + 2 * l + 1] = (uint32_t)(key >> 32);
    }
    p->constant_words += 64;
    d->constant_values = sim_arena_grow(&d->module->arena, d->constant_values, d->constant_count, &d->constant_capacity,
                                        2 * sizeof *d->constant_values);
    d->constant_values[2 * d->constant_count] = key;
    d->constant_values[2 * d->constant_count++ + 1] = (uint64_t)at << 1 | wide;
    return ~(int32_t)at;
}

static bool find_variable(const decoder *d, const char *name, uint64_t *ret_address)
{
    const ptx_function *f = d->function;
    const ptx_module *m = d->module;
    for (size_t i = 0; i < f->variable_count + m->variable_count; i++) {
        const ptx_variable *v = i < f->variable_count ? &f->variables[i] : &m->variables[i - f->variable_count];
        if (strcmp(v->name, name) != 0)
            continue;
        *ret_address = v->offset;
        return true;
    }
    return false;
}

static int find_special(const char *name)
{
    static const char *const vectors[] = {"%tid.", "%ntid.", "%ctaid.", "%nctaid."};
    for (int i = 0; i < 4; i++) {
        const size_t length = strlen(vectors[i]);
        if (strncmp(name, vectors[i], length) == 0 && name[length] >= 'x' && name[length] <= 'z' &&
            name[length + 1] == '\0')
            return 3 * i + (name[length] - 'x');
    }
    return strcmp(name, "%laneid") == 0 ? SIM_LANEID : strcmp(name, "%warpid") == 0 ? SIM_WARPID : -1;
}

static bool bind_symbol(decoder *d, const ptx_arg *arg, bool wide, int32_t *out)
{
    uint64_t address = 0;
    if (find_variable(d, arg->name, &address)) {
        *out = constant(d, address, wide);
        return true;
    }
    const int special = find_special(arg->name);
    if (special < 0 || wide)
        return false;
    if (d->program->special[special] == SIM_NONE)
        d->program->special[special] = new_register(d, PTX_B32);
    *out = d->program->special[special];
    return true;
}

static bool bind_source(decoder *d, const ptx_arg *arg, ptx_class class, sim_op *op)
{
    int32_t *out = &op->src[op->src_count];
    if (arg->kind == PTX_ARG_REGISTER && arg->second < 0 && d->registers[arg->reg] == class) {
        *out = arg->reg;
        op->negated |= (uint32_t)arg->negated << op->src_count;
    } else if (arg->kind == PTX_ARG_IMMEDIATE && class != PTX_PRED) {
        *out = constant(d, arg->bits, class == PTX_B64);
    } else if (arg->kind != PTX_ARG_SYMBOL || class == PTX_PRED || !bind_symbol(d, arg, class == PTX_B64, out)) {
        return false;
    }
    op->src_count++;
    return true;
}

static bool bind_destination(const decoder *d, const ptx_arg *arg, ptx_class class, bool pair, sim_op *op)
{
    if (arg->kind == PTX_ARG_SINK)
        op->dst[op->dst_count++] = d->sinks[class];
    else if (arg->kind == PTX_ARG_REGISTER && d->registers[arg->reg] == class && !arg->negated)
        op->dst[op->dst_count++] = arg->reg;
    else
        return false;
    if (!pair)
        return arg->second < 0;
    op->dst[op->dst_count++] = arg->second < 0 ? SIM_NONE : arg->second;
    return true;
}

static bool bind_address(decoder *d, const ptx_arg *arg, int which, sim_op *op)
{
    uint64_t address = 0;
    if (arg->kind != PTX_ARG_ADDRESS || (arg->name != NULL && !find_variable(d, arg->name, &address)))
        return false;
    const ptx_class class = arg->reg >= 0 ? d->registers[arg->reg] : PTX_B64;
    op->offset[which] = arg->offset + (int64_t)address;
    op->address_64[which] = class == PTX_B64;
    op->src[op->src_count++] = arg->reg >= 0 ? arg->reg : SIM_NONE;
    return class != PTX_PRED;
}

/* Binds an address followed by coordinates. */
static bool bind_place(decoder *d, const ptx_arg *arg, int count, int which, sim_op *op)
{
    if (!bind_address(d, arg, which, op) || arg->item_count != count)
        return false;
    for (int i = 0; i < count; i++)
        if (!bind_source(d, &arg->items[i], PTX_B32, op))
            return false;
    return true;
}

static bool bind_truth(decoder *d, const ptx_arg *arg, sim_op *op)
{
    if (arg->kind != PTX_ARG_IMMEDIATE)
        return bind_source(d, arg, PTX_PRED, op);
    op->immediate = arg->bits != 0;
    op->src[op->src_count++] = SIM_NONE;
    return true;
}

static bool bind_label(const decoder *d, const ptx_arg *arg, sim_op *op)
{
    if (arg->kind != PTX_ARG_SYMBOL)
        return false;
    const int from = (int)(op->source - d->function->instructions);
    const ptx_label *innermost = NULL;
    for (size_t i = 0; i < d->function->label_count; i++) {
        const ptx_label *l = &d->function->labels[i];
        if (from >= l->first && from < l->last && strcmp(l->name, arg->name) == 0 &&
            (innermost == NULL || l->last - l->first < innermost->last - innermost->first))
            innermost = l;
    }
    if (innermost != NULL)
        op->target = innermost->instruction;
    return innermost != NULL;
}

static bool bind_one(decoder *d, const ptx_arg *arg, char letter, int *addresses, sim_op *op)
{
    switch (letter) {
    case 'r':
        return bind_destination(d, arg, PTX_B32, false, op);
    case 'R':
        op->reads_dst = true;
        return arg->kind == PTX_ARG_REGISTER && bind_destination(d, arg, PTX_B32, false, op);
    case 'd':
        return bind_destination(d, arg, PTX_B64, false, op);
    case 'q':
        return bind_destination(d, arg, PTX_PRED, false, op);
    case 'o':
        return bind_destination(d, arg, PTX_B32, true, op);
    case 'e':
        return bind_destination(d, arg, PTX_PRED, true, op);
    case 's':
        return bind_source(d, arg, PTX_B32, op);
    case 'S':
        return bind_source(d, arg, PTX_B64, op);
    case 'Q':
        return bind_source(d, arg, PTX_PRED, op);
    case 'T':
        return bind_truth(d, arg, op);
    case 'k':
        return arg->kind == PTX_ARG_IMMEDIATE && bind_source(d, arg, PTX_B32, op);
    case 'a':
        return arg->item_count == 0 && bind_address(d, arg, (*addresses)++, op);
    case 'b':
        return bind_label(d, arg, op);
    default: /* form i, an immediate */
        op->immediate = (int64_t)arg->bits;
        return arg->kind == PTX_ARG_IMMEDIATE;
    }
}

static bool bind_vector(decoder *d, const ptx_arg *arg, int count, char letter, int *addresses, sim_op *op)
{
    if (letter == 't')
        return bind_place(d, arg, count, (*addresses)++, op);
    if (arg->kind != PTX_ARG_VECTOR || arg->item_count != count)
        return false;
    for (int i = 0; i < count; i++)
        if (!bind_one(d, &arg->items[i], letter, addresses, op))
            return false;
    return true;
}

static sim_op empty_op(decoder *d, const sim_row *row, const ptx_instruction *instruction)
{
    sim_op op = {.handler = row->handler,
                 .dst = d->dst,
                 .guard = instruction->guard >= 0 ? instruction->guard : SIM_NONE,
                 .guard_negated = instruction->guard_negated,
                 .info = row->info,
                 .join = SIM_NONE,
                 .kind = row->kind,
                 .source = instruction};
    for (int i = 0; i < SIM_SRC_MAX; i++)
        op.src[i] = SIM_NONE;
    for (int i = 0; i < SIM_DST_LEAST; i++)
        op.dst[i] = SIM_NONE;
    return op;
}

/* Returns true if the row fits the arguments. Then it fills op; the destinations stay in the decoder until they are
 * kept. */
static bool bind(decoder *d, const sim_row *row, const ptx_instruction *instruction, sim_op *op)
{
    int arg = 0, addresses = 0;
    *op = empty_op(d, row, instruction);
    for (const char *at = row->form; *at != '\0'; arg++) {
        const bool optional = *at == '?';
        at += optional;
        int count = 0;
        while (*at >= '0' && *at <= '9')
            count = 10 * count + (*at++ - '0');
        const char letter = *at++;
        at += *at == ' ';
        if (arg >= instruction->arg_count)
            return optional;
        const ptx_arg *actual = &instruction->args[arg];
        if (count > 0 ? !bind_vector(d, actual, count, letter, &addresses, op)
                      : !bind_one(d, actual, letter, &addresses, op))
            return false;
    }
    return arg == instruction->arg_count;
}

/* Missing destinations become SIM_NONE, as far as handlers may read them. */
static void keep_destinations(decoder *d, sim_op *op)
{
    const size_t count = op->dst_count > SIM_DST_LEAST ? op->dst_count : SIM_DST_LEAST;
    op->dst = sim_arena_get(&d->module->arena, count, sizeof *op->dst);
    memcpy(op->dst, d->dst, count * sizeof *op->dst);
}

static bool fail(const decoder *d, const ptx_instruction *instruction, const char *what)
{
    ptx_module *m = d->module;
    int used = snprintf(m->message, sizeof m->message, "PTX line %d", instruction->line);
    if (instruction->location >= 0) {
        const ptx_location *l = &m->locations[instruction->location];
        used += snprintf(m->message + used, sizeof m->message - (size_t)used, " (%s:%d)", ptx_file_name(m, l->file),
                         l->line);
    }
    snprintf(m->message + used, sizeof m->message - (size_t)used, ": %s: %s", what, instruction->text);
    return false;
}

static bool decode_one(decoder *d, const ptx_instruction *instruction, sim_op *op)
{
    size_t count = 0;
    const sim_row *const *found = sim_find_rows(instruction->opcode, &count);
    if (count == 0)
        return fail(d, instruction, "the software device does not know this instruction");
    const char *needed = sim_row_needs(found[0], d->module);
    if (needed != NULL)
        return fail(d, instruction, needed);
    if (instruction->guard >= 0 && d->registers[instruction->guard] != PTX_PRED)
        return fail(d, instruction, "the guard is no predicate");
    for (size_t i = 0; i < count; i++)
        if (bind(d, found[i], instruction, op)) {
            keep_destinations(d, op);
            return true;
        }
    return fail(d, instruction, "the software device does not know this form of the arguments");
}

/* ---- variables of the function ---- */

static void place_list(ptx_variable *list, size_t count, sim_program *program)
{
    for (size_t i = 0; i < count; i++) {
        ptx_variable *v = &list[i];
        size_t *used = v->space == PTX_SPACE_SHARED  ? &program->static_shared_bytes
                       : v->space == PTX_SPACE_LOCAL ? &program->local_bytes
                                                     : NULL;
        if (used == NULL || (v->space == PTX_SPACE_SHARED && v->bytes == 0))
            continue;
        const size_t at = (*used + v->align - 1) / v->align * v->align;
        *used = at + v->bytes;
        v->offset = at + (v->space == PTX_SPACE_SHARED ? SIM_SHARED_BASE : 0);
    }
}

/* Dynamic shared memory begins after the static one. */
static void place_dynamic(ptx_variable *list, size_t count, const sim_program *program)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].space == PTX_SPACE_SHARED && list[i].bytes == 0)
            list[i].offset = SIM_SHARED_BASE + program->static_shared_bytes;
}

static void place_variables(decoder *d)
{
    sim_program *program = d->program;
    ptx_variable *own = d->function->variables, *shared = d->module->variables;
    place_list(shared, d->module->variable_count, program);
    place_list(own, d->function->variable_count, program);
    program->static_shared_bytes = (program->static_shared_bytes + 127) / 128 * 128;
    program->local_bytes = (program->local_bytes + 15) / 16 * 16;
    place_dynamic(shared, d->module->variable_count, program);
    place_dynamic(own, d->function->variable_count, program);
}

/* ---- the whole ---- */

static void decoder_init(decoder *d, ptx_module *module, const ptx_function *function, sim_program *program)
{
    *d = (decoder){.module = module, .function = function, .program = program};
    d->registers = sim_arena_get(&module->arena, function->register_count + SIM_SPECIALS + 3, sizeof *d->registers);
    if (function->register_count > 0)
        memcpy(d->registers, function->registers, function->register_count * sizeof *d->registers);
    d->register_count = function->register_count;
    for (int c = 0; c < 3; c++)
        d->sinks[c] = new_register(d, (ptx_class)c);
    for (int s = 0; s < SIM_SPECIALS; s++)
        program->special[s] = SIM_NONE;
}

static bool ends(const sim_op *last)
{
    return (sim_is_exit(last) || sim_is_branch(last)) && last->guard == SIM_NONE;
}

bool sim_decode(ptx_module *module, const ptx_function *function, sim_program *ret_program)
{
    decoder d;
    sim_flow flow;
    sim_program *p = ret_program;
    const int count = (int)function->instruction_count;

    *p = (sim_program){.module = module, .function = function, .op_count = count};
    decoder_init(&d, module, function, p);
    place_variables(&d);
    p->ops = sim_arena_get(&module->arena, (size_t)count + 1, sizeof *p->ops);
    for (int i = 0; i < count; i++)
        if (!decode_one(&d, &function->instructions[i], &p->ops[i]))
            return false;
    if (count == 0 || !ends(&p->ops[count - 1])) {
        snprintf(module->message, sizeof module->message, "%s runs over its end", function->name);
        return false;
    }
    sim_flow_init(&module->arena, p->ops, count, &flow);
    sim_flow_joins(&module->arena, &flow, p->ops);
    sim_hazards(&module->arena, &flow, d.registers, d.register_count, p);
    sim_find_late(&module->arena, &flow, d.registers, d.register_count, p);
    sim_allocate(&module->arena, &flow, d.registers, d.register_count, p);
    return true;
}
