/*
 * attention_backward(d_out, q, k, v, out, lse, ...): the gradients of tensors, without autograd.
 */
#include <stdio.h>
#include "native.h"
#include "runtime/base/problem.h"

enum { Q, K, V, OUT, D_OUT, LSE, DQ, DK, DV, DSINKS, DBIAS, OPERANDS };

enum {
    ARG_D_OUT,
    ARG_Q,
    ARG_K,
    ARG_V,
    ARG_OUT,
    ARG_LSE,
    ARG_CAUSAL,
    ARG_DETERMINISTIC = ARG_CAUSAL + FA2PY_SETTINGS,
    ARG_DQ,
    ARG_DK,
    ARG_DV,
    ARG_DSINKS,
    ARG_DBIAS,
    ARG_PARTIAL,
    ARG_ORIGIN,
    ARG_SHIFT,
    ARGS
};

static const char *const words[] = {"d_out",
                                    "q",
                                    "k",
                                    "v",
                                    "out",
                                    "lse",
                                    "deterministic",
                                    "dq",
                                    "dk",
                                    "dv",
                                    "dsinks",
                                    "dbias",
                                    "partial",
                                    "dropout_origin",
                                    "distance_shift"};
static PyObject *interned[ARGS];
static const fa2py_signature signature = {"attention_backward", ARGS,           6,       6, words,
                                          ARG_CAUSAL,           FA2PY_SETTINGS, interned};

/* Opens a gradient. given: False, not wanted; a tensor to write; else None or True, which create it like its input. */
static bool open_gradient(const fa2py_call *call, int which, PyObject *given, void *stream, fa2py_operand *o)
{
    static const char *const names[] = {"dq", "dk", "dv"};
    static const char *const arguments[] = {"dq=", "dk=", "dv="};
    if (given == Py_False)
        return true;
    return fa2py_open_output(call, &o[Q], &o[Q + which], names[which], arguments[which],
                             given == Py_None || given == Py_True ? NULL : given, stream, &o[DQ + which]);
}

static bool open_all(const fa2py_call *call, const fa2py_backward *given, fa2_problem *problem, fa2py_launch *launch,
                     fa2py_operand *o, fa2py_features *features, bool *ret_is_empty)
{
    if (!fa2py_begin(call, o, features, &launch->stream, &launch->lender) ||
        !fa2py_make_problem(call, o, features, problem))
        return false;
    *ret_is_empty = fa2py_is_empty(o, problem);
    if (*ret_is_empty) {
        const fa2_problem full = fa2py_as_if_full(problem);
        if (!fa2py_check_problem(&full))
            return false;
    }
    const fa2py_operand like_out = fa2py_like_out(&o[Q], &o[V]);
    if (!fa2py_open(call, &o[Q], "out", given->out, launch->stream, &o[OUT]) ||
        !fa2py_check_shape(&o[OUT], &like_out) ||
        !fa2py_open_copied(call, &o[Q], "d_out", given->d_out, launch->stream, &o[D_OUT]) ||
        !fa2py_check_shape(&o[D_OUT], &like_out) || !fa2py_open_lse(call, &o[Q], given->lse, launch->stream, &o[LSE]))
        return false;
    for (int i = 0; i < 3; i++)
        if (!open_gradient(call, i, given->gradients[i], launch->stream, o))
            return false;
    return true;
}

/* The gradients of features' tensors. DSINKS + i is theirs. */
static const struct {
    fa2i_operand_id input, gradient;
} of_features[FA2PY_FEATURE_GRADIENTS] = {{FA2I_OPERAND_sinks, FA2I_OPERAND_dsinks},
                                          {FA2I_OPERAND_bias, FA2I_OPERAND_dbias}};

/* Creates float32 in the input's shape. With deterministic, every batch, head and query has its own entries of
 * dbias. */
static bool open_of_feature(const fa2py_features *features, int which, fa2_problem *problem, void *stream,
                            fa2py_operand *o)
{
    const int input = of_features[which].input;
    const bool is_bias = input == FA2I_OPERAND_bias;
    const char *name = fa2i_operands[of_features[which].gradient].name;
    char advice[80];
    const dl_tensor *like = &features->of[input].view.tensor;
    const int64_t most[FA2PY_RANK] = {problem->batch, problem->heads_q, problem->seq_q, problem->seq_k};
    if (features->of[input].object == NULL || (is_bias && problem->bias == FA2_BIAS_BOOL))
        return fa2py_refuse(PyExc_ValueError, "%s is wanted, and there %s %s%s", name, is_bias ? "is no" : "are no",
                            fa2i_operands[input].name, is_bias ? " of numbers" : "");
    snprintf(advice, sizeof advice, "%s=False, or tensors of a library that fa2 knows", name);
    PyObject *made = fa2py_empty(o[Q].framework, o[Q].object, &o[Q].view.tensor, (dl_dtype){DL_FLOAT, 32, 1},
                                 like->ndim, is_bias && problem->deterministic ? most : like->shape, advice);
    const bool ok = made != NULL && fa2py_open_any(&o[Q], name, made, stream, &o[DSINKS + which]);
    Py_XDECREF(made);
    if (is_bias)
        problem->bias += FA2_BIAS_BOOL; /* the same type with a gradient; problem.h asserts this order */
    return ok;
}

static bool open_of_features(const fa2py_backward *given, const fa2py_features *features, fa2_problem *problem,
                             void *stream, fa2py_operand *o)
{
    for (int i = 0; i < FA2PY_FEATURE_GRADIENTS; i++)
        if (given->want[i] && !open_of_feature(features, i, problem, stream, o))
            return false;
    return true;
}

/* Returns the gradients of q, k and v, None for each that is not wanted; then those wanted of features. */
static PyObject *gradients_of(const fa2py_operand *o)
{
    Py_ssize_t count = DSINKS - DQ;
    PyObject *objects[OPERANDS - DQ];
    for (int i = DQ; i < DSINKS; i++)
        objects[i - DQ] = o[i].object != NULL ? o[i].object : Py_None;
    for (int i = DSINKS; i <= DBIAS; i++)
        if (o[i].object != NULL)
            objects[count++] = o[i].object;
    return fa2py_tuple(objects, count);
}

static bool launch_backward(const fa2py_call *call, const fa2py_operand *o, const fa2py_features *features,
                            fa2py_launch *launch)
{
    launch->args.backward = (fa2_backward_args){.struct_bytes = sizeof(fa2_backward_args),
                                                .q = fa2py_tensor_of(call, &o[Q]),
                                                .k = fa2py_tensor_of(call, &o[K]),
                                                .v = fa2py_tensor_of(call, &o[V]),
                                                .o = fa2py_tensor_of(call, &o[OUT]),
                                                .d_o = fa2py_tensor_of(call, &o[D_OUT]),
                                                .dq = fa2py_tensor_of(call, &o[DQ]),
                                                .dk = fa2py_tensor_of(call, &o[DK]),
                                                .dv = fa2py_tensor_of(call, &o[DV]),
                                                .lse = fa2py_floats_of(&o[LSE])};
    fa2py_features_put(call, &o[K], features, &launch->args);
    for (int i = 0; i < FA2PY_FEATURE_GRADIENTS; i++)
        fa2py_feature_put(call, of_features[i].gradient, &o[DSINKS + i], &launch->args);
    return fa2py_launch_on(call, &o[Q], launch);
}

/* Writes the gradients of an empty call: zeros, where they are not added. In a partial call, out and lse are those over
 * all keys. So dsinks is 0 only if there are no queries. */
static bool answer(const fa2py_call *call, const fa2py_operand *o, void *stream)
{
    const bool has_queries = o[Q].shape[0] > 0 && o[Q].shape[1] > 0 && o[Q].shape[2] > 0;
    if (call->partial != FA2_PARTIAL_NONE && has_queries && o[DSINKS].object != NULL)
        return fa2py_refuse(PyExc_ValueError, "k has no rows: with partial, take dsinks from a call that has keys");
    for (int i = call->partial == FA2_PARTIAL_MERGE ? DSINKS : DQ; i <= DBIAS; i++)
        if (!fa2py_set_zero(&o[i], stream))
            return false;
    return true;
}

PyObject *fa2py_run_backward(const fa2py_call *call, const fa2py_backward *given)
{
    fa2py_operand o[OPERANDS] = {{.name = NULL}};
    fa2py_features features = {.of = {{.name = NULL}}};
    fa2_problem problem;
    fa2py_launch launch = {.problem = &problem};
    PyObject *result = NULL;
    bool is_empty = false;
    if (open_all(call, given, &problem, &launch, o, &features, &is_empty) &&
        open_of_features(given, &features, &problem, launch.stream, o) &&
        (is_empty ? answer(call, o, launch.stream) : launch_backward(call, o, &features, &launch)))
        result = gradients_of(o);
    fa2py_features_done(&features);
    fa2py_operands_done(o, OPERANDS);
    return result;
}

/* Gradients that are added to must be given. */
static bool check_merged(const fa2py_call *call, const fa2py_backward *given)
{
    static const char *const names[] = {"dq", "dk", "dv"};
    for (int i = 0; i < 3 && call->partial == FA2_PARTIAL_MERGE; i++) {
        PyObject *gradient = given->gradients[i];
        if (gradient != NULL && gradient != Py_None && gradient != Py_True)
            continue;
        return fa2py_refuse(
            PyExc_ValueError,
            "partial is \"merge\", but %s is not given: give the float32 tensor that is added to, or False", names[i]);
    }
    return true;
}

PyObject *fa2py_attention_backward(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *values[FA2PY_PARAMETERS_MAX];
    (void)module;
    if (!fa2py_arguments(&signature, args, count, names, values))
        return NULL;
    fa2py_call call = {.op = FA2_OP_BACKWARD, .tensors = {values[ARG_Q], values[ARG_K], values[ARG_V]}};
    fa2py_backward given = {.d_out = values[ARG_D_OUT],
                            .out = values[ARG_OUT],
                            .lse = values[ARG_LSE],
                            .gradients = {values[ARG_DQ], values[ARG_DK], values[ARG_DV]}};
    if (!fa2py_parse_settings(values + ARG_CAUSAL, &call) ||
        !fa2py_parse_truth(values[ARG_DETERMINISTIC], "deterministic", &call.deterministic) ||
        !fa2py_parse_truth(values[ARG_DSINKS], "dsinks", &given.want[0]) ||
        !fa2py_parse_truth(values[ARG_DBIAS], "dbias", &given.want[1]) ||
        !fa2py_parse_partial(values[ARG_PARTIAL], &call.partial) ||
        !fa2py_parse_origin(values[ARG_ORIGIN], &call.origin) ||
        !fa2py_parse_shift(values[ARG_SHIFT], &call.distance_shift))
        return NULL;
    if (!check_merged(&call, &given))
        return NULL;
    if (values[ARG_DQ] == Py_False && values[ARG_DK] == Py_False && values[ARG_DV] == Py_False)
        return PyErr_Format(PyExc_ValueError, "dq, dk and dv are False; at least one gradient is wanted");
    return fa2py_run_backward(&call, &given);
}
