/*
 * attention(q, k, v, ...), and problem(q, k, v, ...), which describes such a call.
 *
 * The order is: check the tensors, create the outputs, launch. So a call that is refused leaves nothing behind.
 */
#include <string.h>
#include "native.h"
#include "runtime/base/problem.h"

enum { Q, K, V, OUT, LSE, CARRIED, OPERANDS };

/* Returns true if the problem has a feature of inference. Models that use one outside torch.no_grad() seldom want a
 * gradient, so forward runs, and backward raises. */
static bool is_inference(const fa2_problem *problem)
{
    return problem->seqused || problem->paged || problem->leftpad || problem->cache_rows || problem->kv;
}

/* Checks that a call has a gradient. Its caller will want one. The check comes before forward runs, not when the
 * backward pass begins. */
static bool check_differentiable(const fa2_problem *problem)
{
    static fa2_problem last; /* the last problem that had one, because most calls repeat the problem before */
    fa2_problem backward = *problem;
    if (is_inference(problem) || memcmp(problem, &last, sizeof last) == 0)
        return true;
    backward.op = FA2_OP_BACKWARD;
    backward.v_in_k = 0;           /* because the gradients of K and V are two tensors */
    fa2py_permit(&backward, NULL); /* because permissions are forward's */
    if (fa2i_problem_check(problem) != FA2_OK)
        return true; /* forward reports the error */
    if (fa2i_problem_check(&backward) == FA2_OK) {
        last = *problem;
        return true;
    }
    return fa2py_refuse(PyExc_NotImplementedError,
                        "q, k or v requires a gradient, and fa2 has none for this call yet (%s): call it "
                        "under torch.no_grad() or on detached tensors",
                        fa2_last_message());
}

PyObject *fa2py_check_differentiable(PyObject *module, PyObject *fields)
{
    fa2_problem problem;
    (void)module;
    if (!fa2py_problem_parse(fields, &problem) || !check_differentiable(&problem))
        return NULL;
    Py_RETURN_NONE;
}

/* Launches with checked operands. */
static bool launch_forward(const fa2py_call *call, const fa2py_operand *o, const fa2py_features *features,
                           fa2py_launch *launch)
{
    launch->args.forward = (fa2_forward_args){.struct_bytes = sizeof(fa2_forward_args),
                                              .q = fa2py_tensor_of(call, &o[Q]),
                                              .k = fa2py_tensor_of(call, &o[K]),
                                              .v = fa2py_tensor_of(call, &o[V]),
                                              .o = fa2py_tensor_of(call, &o[OUT]),
                                              .lse = fa2py_floats_of(&o[LSE])};
    if (call->carried != NULL)
        launch->args.forward.carried = fa2py_tensor_of(call, &o[CARRIED]);
    fa2py_features_put(call, &o[K], features, &launch->args);
    return fa2py_launch_on(call, &o[Q], launch);
}

/* Writes the results of an empty call. Merging an empty result changes nothing, unless its LSE is finite. */
static bool answer(const fa2py_call *call, const fa2py_operand *o, const fa2py_features *features, void *stream)
{
    if (call->carried != NULL)
        return fa2py_refuse(PyExc_ValueError, "k has no rows: with carried, give keys, or convert carried");
    const fa2py_operand *start = &features->of[FA2I_OPERAND_sinks];
    if (call->partial == FA2_PARTIAL_MERGE && start->object == NULL)
        return true;
    if (call->partial == FA2_PARTIAL_MERGE)
        return fa2py_refuse(PyExc_ValueError, "k has no rows: with partial=\"merge\", give %s to a call that has keys",
                            start->name);
    return fa2py_set_zero(&o[OUT], stream) && fa2py_set_lse(&o[LSE], start, stream);
}

/* Opens the result that is merged: float32, in the shape of out. */
static bool open_carried(const fa2py_call *call, void *stream, fa2py_operand *o)
{
    return fa2py_open_fp32(call, &o[Q], "carried", call->carried, stream, &o[CARRIED]) &&
           fa2py_check_shape(&o[CARRIED], &o[OUT]);
}

PyObject *fa2py_run(const fa2py_call *call)
{
    fa2py_operand o[OPERANDS] = {{.name = NULL}};
    fa2py_features features = {.of = {{.name = NULL}}};
    fa2_problem problem;
    fa2py_launch launch = {.problem = &problem};
    PyObject *result = NULL;
    bool ok = fa2py_begin(call, o, &features, &launch.stream, &launch.lender) &&
              (call->fits == NULL || call->fits(call, o)) && fa2py_make_problem(call, o, &features, &problem);
    const bool is_empty = ok && fa2py_is_empty(o, &problem);
    if (is_empty)
        problem = fa2py_as_if_full(&problem);
    ok = ok && (!is_empty || fa2py_check_problem(&problem)) &&
         (!call->differentiable || check_differentiable(&problem)) &&
         fa2py_open_out(call, &o[Q], &o[V], call->out, launch.stream, &o[OUT]) &&
         (!call->want_lse || fa2py_open_lse(call, &o[Q], call->lse, launch.stream, &o[LSE])) &&
         (call->carried == NULL || open_carried(call, launch.stream, o));
    if (ok && (is_empty ? answer(call, o, &features, launch.stream) : launch_forward(call, o, &features, &launch))) {
        result = call->want_lse ? PyTuple_Pack(2, o[OUT].object, o[LSE].object) : o[OUT].object;
        if (!call->want_lse)
            Py_INCREF(result);
    }
    fa2py_features_done(&features);
    fa2py_operands_done(o, OPERANDS);
    return result;
}

/* ---- the functions ---- */

enum {
    ARG_CAUSAL = 3,
    ARG_OUT = ARG_CAUSAL + FA2PY_SETTINGS,
    ARG_RETURN_LSE,
    ARGS,
    ARG_GRAD = ARGS,
    ARG_ORIGIN,
    ARG_SHIFT,
    LAUNCH_ARGS
};

static const char *const words[] = {
    "q", "k", "v", "out", "return_lse", "differentiable", "dropout_origin", "distance_shift"};
static PyObject *interned[LAUNCH_ARGS];
static const fa2py_signature attention_signature = {"attention", ARGS,           3,       3, words,
                                                    ARG_CAUSAL,  FA2PY_SETTINGS, interned};
static const fa2py_signature launch_signature = {"launch",   LAUNCH_ARGS,    3,       3, words,
                                                 ARG_CAUSAL, FA2PY_SETTINGS, interned};

static bool parse(PyObject *const *values, fa2py_call *call)
{
    *call = (fa2py_call){.op = FA2_OP_FORWARD, .tensors = {values[Q], values[K], values[V]}};
    if (values[ARG_OUT] != Py_None)
        call->out = values[ARG_OUT];
    return fa2py_parse_settings(values + ARG_CAUSAL, call) &&
           fa2py_parse_truth(values[ARG_RETURN_LSE], "return_lse", &call->want_lse) &&
           fa2py_parse_truth(values[ARG_GRAD], "differentiable", &call->differentiable) &&
           fa2py_parse_origin(values[ARG_ORIGIN], &call->origin) &&
           fa2py_parse_shift(values[ARG_SHIFT], &call->distance_shift);
}

PyObject *fa2py_launch_function(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *values[FA2PY_PARAMETERS_MAX];
    fa2py_call call;
    (void)module;
    if (!fa2py_arguments(&launch_signature, args, count, names, values) || !parse(values, &call))
        return NULL;
    return fa2py_run(&call);
}

static bool is_given(PyObject *value)
{
    return value != NULL && value != Py_None;
}

/* ---- partial results ---- */

enum {
    PARTIAL_OUT = ARG_CAUSAL + FA2PY_SETTINGS,
    PARTIAL_LSE,
    PARTIAL_HOW,
    PARTIAL_CARRIED,
    PARTIAL_ORIGIN,
    PARTIAL_SHIFT,
    PARTIAL_ARGS
};

static const char *const partial_words[] = {
    "q", "k", "v", "out", "lse", "partial", "carried", "dropout_origin", "distance_shift"};
static PyObject *partial_interned[PARTIAL_ARGS];
static const fa2py_signature partial_signature = {"attention_partial", PARTIAL_ARGS,    3, 3, partial_words, ARG_CAUSAL,
                                                  FA2PY_SETTINGS,      partial_interned};

/* Raises ValueError unless what is merged is given, once. */
static bool check_merged(const fa2py_call *call)
{
    const char *wrong = NULL;
    if (call->carried != NULL && call->partial != FA2_PARTIAL_NONE)
        wrong = "partial and carried are both given; with carried, out is in q's type";
    else if (call->carried != NULL && call->lse == NULL)
        wrong = "carried is given, but lse is not: it holds the LSE of carried";
    else if (call->partial == FA2_PARTIAL_MERGE && (call->out == NULL || call->lse == NULL))
        wrong = "partial is \"merge\", but out and lse are not both given: they hold the result that is merged";
    if (wrong != NULL)
        PyErr_SetString(PyExc_ValueError, wrong);
    return wrong == NULL;
}

PyObject *fa2py_attention_partial(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *values[FA2PY_PARAMETERS_MAX];
    (void)module;
    if (!fa2py_arguments(&partial_signature, args, count, names, values))
        return NULL;
    fa2py_call call = {.op = FA2_OP_FORWARD,
                       .tensors = {values[Q], values[K], values[V]},
                       .out = is_given(values[PARTIAL_OUT]) ? values[PARTIAL_OUT] : NULL,
                       .lse = is_given(values[PARTIAL_LSE]) ? values[PARTIAL_LSE] : NULL,
                       .carried = is_given(values[PARTIAL_CARRIED]) ? values[PARTIAL_CARRIED] : NULL,
                       .want_lse = true};
    if (!fa2py_parse_settings(values + ARG_CAUSAL, &call) || !fa2py_parse_partial(values[PARTIAL_HOW], &call.partial) ||
        !fa2py_parse_origin(values[PARTIAL_ORIGIN], &call.origin) ||
        !fa2py_parse_shift(values[PARTIAL_SHIFT], &call.distance_shift) || !check_merged(&call))
        return NULL;
    if (call.partial == FA2_PARTIAL_NONE && call.carried == NULL)
        call.partial = FA2_PARTIAL_WRITE;
    return fa2py_run(&call);
}

/* ---- which way a call goes ---- */

/* Returns whether PyTorch may want the gradient of an operand: integers have none. */
static bool is_of_numbers(int id)
{
    return fa2i_operands[id].elem != FA2I_ELEM_INT32 && fa2i_operands[id].elem != FA2I_ELEM_UINT64;
}

/* Chooses the path of a call. If PyTorch must draw the dropout seed, that is the dispatcher's. */
static fa2py_way find_way(PyObject *const *values)
{
    PyObject *const *settings = values + ARG_CAUSAL;
    PyObject *const *features = settings + FA2PY_SET_FEATURES;
    PyObject *tensors[3 + FA2PY_FEATURES] = {values[Q], values[K], values[V]};
    int count = 3;
    for (int i = 0; i < FA2PY_FEATURES; i++)
        if (features[i] != NULL && is_of_numbers(i))
            tensors[count++] = features[i];
    const fa2py_way way = fa2py_torch_way(tensors, count);
    if (way == FA2PY_WAY_PLAIN && is_given(settings[FA2PY_SET_dropout_p]) &&
        !is_given(features[FA2I_OPERAND_seed_at])) {
        const int drops = PyObject_IsTrue(settings[FA2PY_SET_dropout_p]);
        if (drops <= 0)
            return drops == 0 ? way : FA2PY_WAY_ERROR;
        const fa2py_framework *framework = fa2py_framework_of(values[Q]);
        if (framework == NULL)
            return FA2PY_WAY_ERROR;
        return framework->kind == FA2PY_TORCH ? FA2PY_WAY_DISPATCHER : way;
    }
    return way;
}

/* Checks arguments that PyTorch's functions would accept because Python gives every object a truth value. */
static bool check_simple(PyObject *const *values)
{
    PyObject *const *settings = values + ARG_CAUSAL;
    PyObject *seed = settings[FA2PY_SET_FEATURES + FA2I_OPERAND_seed_at];
    bool truth = false;
    int32_t permissions[FA2PY_PERMISSIONS];
    uint64_t number = 0;
    return fa2py_parse_truth(settings[FA2PY_SET_causal], "causal", &truth) &&
           fa2py_parse_truth(settings[FA2PY_SET_rotary_interleaved], "rotary_interleaved", &truth) &&
           fa2py_parse_permissions(settings + FA2PY_SET_PERMISSIONS, permissions) &&
           fa2py_parse_truth(values[ARG_RETURN_LSE], "return_lse", &truth) &&
           (seed == NULL || !PyLong_Check(seed) || fa2py_parse_seed(seed, "dropout_seed", &number));
}

/* Calls PyTorch's functions. They may keep the window until backward, so a mutable one becomes a tuple. */
static PyObject *attend_by_torch(fa2py_way way, PyObject **values)
{
    PyObject **window = &values[ARG_CAUSAL + FA2PY_SET_window], *tuple = NULL, *result = NULL;
    if (!check_simple(values) || !fa2py_check_new(values + ARG_CAUSAL + FA2PY_SET_FEATURES))
        return NULL;
    if (is_given(*window) && !PyTuple_Check(*window)) {
        if ((tuple = fa2py_window(NULL, *window)) == NULL)
            return NULL;
        *window = tuple;
    }
    result = fa2py_torch_call(way, values, ARGS);
    Py_XDECREF(tuple);
    return result;
}

PyObject *fa2py_attention(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *values[FA2PY_PARAMETERS_MAX];
    fa2py_call call;
    (void)module;
    if (!fa2py_arguments(&attention_signature, args, count, names, values))
        return NULL;
    const fa2py_way way = find_way(values);
    if (way == FA2PY_WAY_ERROR)
        return NULL;
    if (way != FA2PY_WAY_PLAIN)
        return attend_by_torch(way, values);
    return parse(values, &call) ? fa2py_run(&call) : NULL;
}

/* ---- problem ---- */

enum { PROBLEM_OP = ARG_CAUSAL + FA2PY_SETTINGS_OF_PROBLEM, PROBLEM_DETERMINISTIC, PROBLEM_ARGS };

static const char *const problem_words[] = {"q", "k", "v", "op", "deterministic"};
static PyObject *problem_interned[PROBLEM_ARGS];
static const fa2py_signature problem_signature = {
    "problem", PROBLEM_ARGS, 3, 3, problem_words, ARG_CAUSAL, FA2PY_SETTINGS_OF_PROBLEM, problem_interned};

static bool parse_op(PyObject *value, fa2_op *ret_op)
{
    int32_t op = FA2_OP_FORWARD;
    bool known = value == NULL || value == Py_None;
    PyObject *bytes = !known && PyUnicode_Check(value) ? PyUnicode_AsUTF8String(value) : NULL;
    if (bytes != NULL)
        known = fa2i_field_parse_word(FA2I_FIELD_op, PyBytes_AsString(bytes), &op);
    Py_XDECREF(bytes);
    *ret_op = (fa2_op)op;
    if (known && op != FA2_OP_MERGE) /* a merge has no q */
        return true;
    PyErr_Clear();
    return fa2py_refuse(PyExc_ValueError, "op is %R; it must be \"forward\" or \"backward\"", value);
}

PyObject *fa2py_problem(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *values[FA2PY_PARAMETERS_MAX], *settings[FA2PY_SETTINGS] = {NULL}, *result = NULL;
    fa2py_operand o[OPERANDS] = {{.name = NULL}};
    fa2py_features features = {.of = {{.name = NULL}}};
    const fa2py_framework *lender = NULL;
    fa2_problem problem;
    void *stream = NULL;
    (void)module;
    if (!fa2py_arguments(&problem_signature, args, count, names, values))
        return NULL;
    fa2py_call call = {.tensors = {values[Q], values[K], values[V]}};
    for (int i = 0; i < FA2PY_SETTINGS_OF_PROBLEM; i++)
        settings[i] = values[ARG_CAUSAL + i];
    if (fa2py_parse_settings(settings, &call) && parse_op(values[PROBLEM_OP], &call.op) &&
        fa2py_parse_truth(values[PROBLEM_DETERMINISTIC], "deterministic", &call.deterministic) &&
        fa2py_begin(&call, o, &features, &stream, &lender) && fa2py_make_problem(&call, o, &features, &problem)) {
        if (fa2py_is_empty(o, &problem))
            PyErr_SetString(PyExc_ValueError, "the tensors have no queries or no keys: such a call "
                                              "is answered without a kernel");
        else
            result = fa2py_problem_dict(&problem);
    }
    fa2py_features_done(&features);
    fa2py_operands_done(o, OPERANDS);
    return result;
}
