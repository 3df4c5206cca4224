/*
 * fa2_attn.Context: a fa2_context and its lifetime.
 *
 * - `users` counts running calls that have released the GIL. If a context is closed meanwhile, the last of them
 *   destroys it.
 * - A context is destroyed when its last reference goes, after its device has finished. A context that launched into a
 *   captured stream is never destroyed, because the graph may be replayed at any time. Default contexts are never
 *   destroyed either, because their calls do not spend the time to check for captures.
 * - In a forked child nothing is destroyed, because it belongs to the parent.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "context.h"

#include "runtime/plan/counters.h"

enum { DEVICES_MAX = 64 };

static PyTypeObject *context_type;
static fa2py_context *defaults[DEVICES_MAX];

/* ---- begin and end ---- */

static void log_message(void *user, fa2_log_level level, const char *message)
{
    fa2py_context *context = user;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *log = context->log;
    if (log != NULL) {
        Py_INCREF(log);
        PyObject *text = fa2py_message(message);
        PyObject *result = NULL;
        if (text != NULL && context->log_takes_level)
            result = PyObject_CallFunction(log, "Oi", text, (int)level);
        else if (text != NULL)
            result = PyObject_CallFunctionObjArgs(log, text, NULL);
        if (result == NULL)
            PyErr_WriteUnraisable(log);
        Py_XDECREF(text);
        Py_XDECREF(result);
        Py_DECREF(log);
    }
    PyGILState_Release(state);
}

/* Warns once, naming the head that lost most. */
static void warn_of_rounding(void *user, const fa2_problem *problem, const fa2_rounding *heads)
{
    fa2py_context *context = user;
    int32_t worst = 0;
    for (int32_t h = 1; h < problem->heads_kv; h++)
        if ((double)heads[h].zeros * (double)heads[worst].values > (double)heads[worst].zeros * (double)heads[h].values)
            worst = h;
    const fa2_rounding *most = &heads[worst];
    if (4 * most->zeros <= most->values)
        return;
    PyGILState_STATE state = PyGILState_Ensure();
    if (!context->warned_of_rounding &&
        PyErr_WarnFormat(
            PyExc_RuntimeWarning, 1,
            "scores=\"int8\" rounded %d %% of the numbers of k in head %d to 0, because others are much larger; "
            "leave scores out for exact products",
            (int)(100 * most->zeros / most->values), (int)worst) < 0)
        PyErr_WriteUnraisable(NULL);
    context->warned_of_rounding = true;
    PyGILState_Release(state);
}

static void destroy(fa2py_context *context)
{
    fa2_context *handle = context->handle;
    context->handle = NULL;
    if (fa2py_is_forked() || context->captured || context->is_default)
        return;
    if (handle != NULL) {
        fa2py_synchronize(context->device);
        Py_BEGIN_ALLOW_THREADS fa2_context_destroy(handle);
        Py_END_ALLOW_THREADS
    }
    while (context->blocks != NULL) {
        fa2py_block *first = context->blocks;
        context->blocks = first->next;
        fa2py_free(context->device, first->address);
        free(first);
    }
}

bool fa2py_context_begin(fa2py_context *context)
{
    if (!fa2py_check_process())
        return false;
    if (context->handle == NULL || context->closing)
        return fa2py_refuse(PyExc_ValueError, "the fa2_attn.Context is closed");
    context->users++;
    Py_INCREF((PyObject *)context);
    return true;
}

void fa2py_context_end(fa2py_context *context)
{
    context->users--;
    if (context->users == 0 && context->closing)
        destroy(context);
    Py_DECREF((PyObject *)context);
}

static bool parse_arch(PyObject *value, int *ret_arch)
{
    *ret_arch = 0;
    if (value == NULL || value == Py_None)
        return true;
    if (PyLong_Check(value)) {
        *ret_arch = (int)PyLong_AsLong(value);
        return !PyErr_Occurred();
    }
    PyObject *bytes = PyUnicode_Check(value) ? PyUnicode_AsASCIIString(value) : NULL;
    if (bytes != NULL) {
        const char *text = PyBytes_AsString(bytes);
        char *end = NULL;
        const long number = strncmp(text, "sm_", 3) == 0 ? strtol(text + 3, &end, 10) : 0;
        *ret_arch = end != NULL && *end == '\0' && number < 1000 ? (int)number : 0;
        Py_DECREF(bytes);
    }
    if (*ret_arch > 0)
        return true;
    PyErr_Clear();
    return fa2py_refuse(PyExc_ValueError, "arch is %R; it must be \"sm_75\", \"sm_80\", ... or the number", value);
}

/* database: None means the default, "" none, else it is a path. *ret_bytes is a new bytes object, or NULL. */
static bool parse_database(PyObject *value, PyObject **ret_bytes)
{
    *ret_bytes = NULL;
    return value == NULL || value == Py_None || PyUnicode_FSConverter(value, ret_bytes) != 0;
}

static PyObject *default_log(void)
{
    PyObject *frameworks_module = PyImport_ImportModule("fa2_attn._frameworks");
    PyObject *log = frameworks_module != NULL ? PyObject_GetAttrString(frameworks_module, "log") : NULL;
    Py_XDECREF(frameworks_module);
    return log;
}

/* config: all but device and log. log: NULL means the logger. */
static fa2py_context *make_context(PyTypeObject *type, int device, fa2_config config, PyObject *log)
{
    if (!fa2py_check_process())
        return NULL;
    if (device < 0 || device >= DEVICES_MAX)
        return (fa2py_context *)PyErr_Format(PyExc_ValueError, "device is %d; it must be 0 ... %d", device,
                                             DEVICES_MAX - 1);
    PyObject *find = PyImport_ImportModule("fa2_attn._frameworks");
    PyObject *found = find != NULL ? PyObject_CallMethod(find, "find_nvrtc", NULL) : NULL;
    Py_XDECREF(find);
    if (found == NULL)
        return NULL;
    Py_DECREF(found);

    fa2py_context *context = (fa2py_context *)PyType_GenericAlloc(type, 0);
    if (context == NULL)
        return NULL;
    context->device = device;
    context->log_takes_level = log == NULL;
    context->log = log != NULL ? log : default_log();
    if (context->log == NULL) {
        Py_DECREF((PyObject *)context);
        return NULL;
    }
    if (log != NULL)
        Py_INCREF(log);
    config.device_plus_one = device + 1;
    config.log_at = log_message;
    config.log_user = context;
    config.rounding_user = context;
    fa2_context *handle = NULL;
    fa2_status st = FA2_OK;
    Py_BEGIN_ALLOW_THREADS st = fa2_context_create(&config, &handle);
    Py_END_ALLOW_THREADS if (st != FA2_OK)
    {
        fa2py_raise(st);
        Py_DECREF((PyObject *)context);
        return NULL;
    }
    fa2py_device_is_open();
    context->handle = handle;
    return context;
}

static bool check_log(PyObject *log)
{
    if (log == NULL || log == Py_None || PyCallable_Check(log))
        return true;
    return fa2py_refuse(PyExc_TypeError, "log is %R; it must be a function of one text, or None", log);
}

static bool parse_log_level(const char *name, int *ret_level)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    *ret_level = 0;
    for (int i = 0; name != NULL && i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(name, names[i]) == 0)
            *ret_level = i + 1;
    if (name == NULL || *ret_level != 0)
        return true;
    return fa2py_refuse(PyExc_ValueError, "log_level is '%s'; it must be \"error\", \"warning\", \"info\" or \"debug\"",
                        name);
}

/* value: NULL leaves the number as it is. */
static bool parse_whole(PyObject *value, const char *name, int *number)
{
    if (value == NULL)
        return true;
    PyObject *index = PyNumber_Index(value);
    if (index == NULL) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(PyExc_TypeError, "%s is %R; it must be a whole number", name, value);
        return false;
    }
    int beyond = 0;
    const long wide = PyLong_AsLongAndOverflow(index, &beyond);
    Py_DECREF(index);
    if (beyond != 0 || wide < INT_MIN || wide > INT_MAX)
        return fa2py_refuse(PyExc_ValueError, "%s is %R; its limit is %d", name, value, INT_MAX);
    *number = (int)wide;
    return true;
}

static bool check_keywords(const char *const *keywords, int count, PyObject *given)
{
    PyObject *interned[FA2PY_PARAMETERS_MAX] = {NULL}, *name = NULL;
    const fa2py_signature signature = {
        .name = "Context", .count = count, .words = keywords, .settings_at = count, .interned = interned};
    Py_ssize_t at = 0;
    while (given != NULL && PyDict_Next(given, &at, &name, NULL))
        if (fa2py_find_parameter(&signature, name) < 0)
            return false;
    return true;
}

static PyObject *context_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    static const char *const keywords[] = {"database",      "device",        "arch",      "read_only",      "log",
                                           "never_compile", "check_numbers", "log_level", "check_rounding", NULL};
    PyObject *database = NULL, *bytes = NULL, *arch = NULL, *log = NULL, *truths[3] = {NULL};
    PyObject *number = NULL, *rounding = NULL;
    const char *log_level = NULL;
    fa2py_context *context = NULL;
    int device = 0;
    fa2_config config = {.struct_bytes = sizeof(fa2_config), .read_only = 0};
    bool read_only = false, never_compile = false, check_numbers = false;
    if (!check_keywords(keywords, sizeof keywords / sizeof *keywords - 1, names) ||
        !PyArg_ParseTupleAndKeywords(args, names, "|O$OOOOOOzO:Context", (char **)(uintptr_t)keywords, &database,
                                     &number, &arch, &truths[0], &log, &truths[1], &truths[2], &log_level, &rounding) ||
        !parse_whole(number, "device", &device) || !parse_whole(rounding, "check_rounding", &config.rounding_every) ||
        !fa2py_parse_truth(truths[0], "read_only", &read_only) ||
        !fa2py_parse_truth(truths[1], "never_compile", &never_compile) ||
        !fa2py_parse_truth(truths[2], "check_numbers", &check_numbers) || !check_log(log) ||
        !parse_log_level(log_level, &config.log_level) || !parse_arch(arch, &config.arch) ||
        !parse_database(database, &bytes))
        return NULL;
    config.read_only = read_only;
    config.never_compile = never_compile;
    config.check_numbers = check_numbers;
    config.rounding = config.rounding_every > 0 ? warn_of_rounding : NULL;
    config.database = bytes != NULL ? PyBytes_AsString(bytes) : NULL;
    context = make_context(type, device, config, log == Py_None ? NULL : log);
    Py_XDECREF(bytes);
    return (PyObject *)context;
}

static int context_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT((PyObject *)Py_TYPE(self));
    Py_VISIT(((fa2py_context *)self)->log);
    return 0;
}

static int context_clear(PyObject *self)
{
    Py_CLEAR(((fa2py_context *)self)->log);
    return 0;
}

static void context_dealloc(PyObject *self)
{
    fa2py_context *context = (fa2py_context *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject *kind, *value, *trace;
    PyObject_GC_UnTrack(self);
    PyErr_Fetch(&kind, &value, &trace); /* preserve an exception that is being handled */
    destroy(context);
    PyErr_Restore(kind, value, trace);
    Py_CLEAR(context->log);
    fa2py_prepared_done(&context->prepared);
    PyObject_GC_Del(self);
    Py_DECREF((PyObject *)type);
}

/* ---- default contexts ---- */

fa2py_context *fa2py_default_context(int device)
{
    if (device < 0 || device >= DEVICES_MAX)
        return (fa2py_context *)PyErr_Format(PyExc_ValueError, "there is no CUDA device %d", device);
    if (defaults[device] == NULL) {
        const fa2_config every_default = {.struct_bytes = sizeof every_default};
        fa2py_context *made = make_context(context_type, device, every_default, NULL);
        if (made == NULL)
            return NULL;
        /* Another thread may have been faster while the GIL was released. Then ours is dropped. */
        if (defaults[device] == NULL) {
            made->is_default = true;
            defaults[device] = made;
        } else {
            Py_DECREF((PyObject *)made);
        }
    }
    Py_INCREF((PyObject *)defaults[device]);
    return defaults[device];
}

PyObject *fa2py_get_default_context(PyObject *module, PyObject *number)
{
    const long device = PyLong_AsLong(number);
    (void)module;
    if (PyErr_Occurred())
        return NULL;
    return (PyObject *)fa2py_default_context(device > DEVICES_MAX ? DEVICES_MAX : (int)device);
}

PyObject *fa2py_set_default_context(PyObject *module, PyObject *args)
{
    PyObject *object = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!:set_default_context", context_type, &object))
        return NULL;
    fa2py_context *context = (fa2py_context *)object;
    fa2py_context *old = defaults[context->device];
    Py_INCREF(object);
    defaults[context->device] = context;
    Py_XDECREF((PyObject *)old);
    Py_RETURN_NONE;
}

bool fa2py_is_context(PyObject *object)
{
    return Py_TYPE(object) == context_type;
}

int fa2py_context_device(const fa2py_context *context)
{
    return context->device;
}

/* ---- methods ---- */

/* Prepares a problem. Returns the bytes of its workspace. */
static PyObject *context_workspace_size(PyObject *self, PyObject *fields)
{
    fa2py_context *context = (fa2py_context *)self;
    fa2_problem problem;
    size_t bytes = 0;
    if (!fa2py_problem_parse(fields, &problem) || !fa2py_context_begin(context))
        return NULL;
    const bool ok = fa2py_context_prepare(context, &problem, &bytes);
    fa2py_context_end(context);
    return ok ? PyLong_FromSize_t(bytes) : NULL;
}

static PyObject *context_prepare(PyObject *self, PyObject *fields)
{
    PyObject *bytes = context_workspace_size(self, fields);
    if (bytes == NULL)
        return NULL;
    Py_DECREF(bytes);
    Py_RETURN_NONE;
}

/* Returns the explanation as a dict with the keys that fa2_attn/_tuner.py uses, too. */
static PyObject *explanation_dict(const fa2_problem *problem, const fa2_explanation *e)
{
    PyObject *asked = fa2py_problem_dict(problem);
    PyObject *tuned = fa2py_problem_dict(&e->tuned_problem), *dict = NULL;
    if (asked != NULL && tuned != NULL)
        dict = Py_BuildValue("{s:O,s:s,s:O,s:O,s:d,s:d,s:s,s:s,s:s,s:i,s:i,s:i,s:s,s:d,s:s,s:O,s:O}", "problem", asked,
                             "rule", fa2_rule_string(e->rule), "measured", e->measured ? Py_True : Py_False,
                             "tuned_problem", tuned, "median_us", e->median_us, "estimate_us", e->estimate_us, "device",
                             e->device, "variant", e->variant, "target", e->target, "registers", e->registers,
                             "spill_bytes", e->spill_bytes, "smem_bytes", e->smem_bytes, "reason", e->reason,
                             "runner_up_us", e->runner_up_us, "runner_up", e->runner_up, "model_us", Py_None,
                             "candidates", Py_None);
    Py_XDECREF(asked);
    Py_XDECREF(tuned);
    return dict;
}

static PyObject *context_explain(PyObject *self, PyObject *fields)
{
    fa2py_context *context = (fa2py_context *)self;
    fa2_problem problem;
    fa2_explanation explanation = {.struct_bytes = sizeof explanation};
    fa2_status st = FA2_OK;
    size_t bytes = 0;
    if (!fa2py_problem_parse(fields, &problem) || !fa2py_context_begin(context))
        return NULL;
    bool ok = fa2py_context_prepare(context, &problem, &bytes); /* keeps our table equal to the library's */
    if (ok) {
        Py_BEGIN_ALLOW_THREADS st = fa2_explain(context->handle, &problem, &explanation);
        Py_END_ALLOW_THREADS if (st != FA2_OK) fa2py_raise(st);
        ok = st == FA2_OK;
    }
    fa2py_context_end(context);
    return ok ? explanation_dict(&problem, &explanation) : NULL;
}

static PyObject *context_counters(PyObject *self, PyObject *unused)
{
    fa2py_context *context = (fa2py_context *)self;
    fa2_counters counters = {.struct_bytes = sizeof counters};
    (void)unused;
    if (!fa2py_context_begin(context))
        return NULL;
    const fa2_status st = fa2_read_counters(context->handle, &counters);
    fa2py_context_end(context);
    if (st != FA2_OK)
        return fa2py_raise(st);
    const uint64_t *values = &counters.calls_exact;
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < FA2I_COUNTERS; i++) {
        PyObject *value = PyLong_FromUnsignedLongLong(values[i]);
        if (value == NULL || PyDict_SetItemString(dict, fa2i_counter_names[i], value) != 0)
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

static PyObject *context_close(PyObject *self, PyObject *unused)
{
    fa2py_context *context = (fa2py_context *)self;
    (void)unused;
    context->closing = true;
    if (context->users == 0)
        destroy(context);
    Py_RETURN_NONE;
}

static PyObject *context_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    Py_INCREF(self);
    return self;
}

static PyObject *context_exit(PyObject *self, PyObject *unused)
{
    return context_close(self, unused);
}

static PyObject *context_get_device(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromLong(((fa2py_context *)self)->device);
}

static PyObject *context_get_closed(PyObject *self, void *closure)
{
    const fa2py_context *context = (fa2py_context *)self;
    (void)closure;
    return PyBool_FromLong(context->closing || context->handle == NULL);
}

static PyObject *context_repr(PyObject *self)
{
    const fa2py_context *context = (fa2py_context *)self;
    return PyUnicode_FromFormat("<fa2_attn.Context device=%d%s at %p>", context->device,
                                context->handle == NULL || context->closing ? " closed" : "", self);
}

static PyMethodDef methods[] = {
    {"prepare", context_prepare, METH_O,
     "prepare($self, problem, /)\n--\n\n"
     "Chooses and loads the kernel of a problem, a dict as fa2_attn.problem returns it. Compiles it if nothing in the\n"
     "database fits. Later calls on this problem only launch."},
    {"workspace_size", context_workspace_size, METH_O,
     "workspace_size($self, problem, /)\n--\n\n"
     "Returns the bytes of device memory that a call on the problem needs while it runs. Prepares the problem."},
    {"explain", context_explain, METH_O,
     "explain($self, problem, /)\n--\n\n"
     "Returns a dict that says which kernel the problem gets, and by which rule: see fa2_attn.explain. Prepares the\n"
     "problem."},
    {"counters", context_counters, METH_NOARGS,
     "counters($self, /)\n--\n\n"
     "Returns a dict of what this context did: calls_exact, calls_nearest, calls_arch, calls_default, calls_shipped\n"
     "(calls by the rule that chose their kernel), calls_failed, misses (problems that had to be prepared), miss_ns\n"
     "(how long callers waited for that), loaded, compiled, compile_ns and unstored (kernels)."},
    {"close", context_close, METH_NOARGS,
     "close($self, /)\n--\n\n"
     "Waits for the device and releases every kernel. Later calls fail. CUDA graphs that were captured with this\n"
     "context stay valid."},
    {"__enter__", context_enter, METH_NOARGS, NULL},
    {"__exit__", context_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef attributes[] = {{"device", context_get_device, NULL, "The CUDA device, counted from 0.", NULL},
                                   {"closed", context_get_closed, NULL, "True after close was called.", NULL},
                                   {NULL, NULL, NULL, NULL, NULL}};

static const char context_doc[] =
    "Context(database=None, *, device=0, arch=None, read_only=False, log=None, never_compile=False, "
    "check_numbers=False, log_level=None, check_rounding=0)\n--\n\n"
    "A device and a tuning database. Calls without a context use the default context of their device.\n\n"
    "database: a path. None: $FA2_DB, else $XDG_CACHE_HOME/fa2/fa2.db, else ~/.cache/fa2/fa2.db. \"\": no database.\n"
    "A path that is named, here or in FA2_DB, must be usable. If the default path is not, calls work without a "
    "database, and the log says why.\n"
    "device: the CUDA device, counted from 0.\n"
    "arch: \"sm_86\" generates for that SM, and the driver compiles its PTX for the device.\n"
    "read_only: never write to the database.\n"
    "log: called with a sentence about events that are no errors. None: logger \"fa2_attn\", by their levels.\n"
    "log_level: \"error\", \"warning\", \"info\" (default) or \"debug\", which tells each choice.\n"
    "never_compile: use only kernels in the database. A call for which it has none raises fa2_attn.Error with status\n"
    "FA2_E_FORBIDDEN. Not together with arch.\n"
    "check_numbers: for debugging. Before each launch, read back lengths, bounds, block tables and cache rows,\n"
    "which waits for the stream. A number out of range raises ValueError with its name.\n"
    "check_rounding: N reads after each N-th call with scores=\"int8\" how many numbers of k became 0, which waits "
    "for\n"
    "the stream. Beyond a quarter of a head's numbers it warns once, with the head.\n\n"
    "Many threads may use one context. It ends by close(), at the end of `with`, or with its last reference.";

bool fa2py_context_init(PyObject *module)
{
    static PyType_Slot slots[] = {{Py_tp_new, (void *)(uintptr_t)context_new},
                                  {Py_tp_dealloc, (void *)(uintptr_t)context_dealloc},
                                  {Py_tp_traverse, (void *)(uintptr_t)context_traverse},
                                  {Py_tp_clear, (void *)(uintptr_t)context_clear},
                                  {Py_tp_repr, (void *)(uintptr_t)context_repr},
                                  {Py_tp_methods, methods},
                                  {Py_tp_getset, attributes},
                                  {Py_tp_doc, (void *)(uintptr_t)context_doc},
                                  {0, NULL}};
    static PyType_Spec spec = {"fa2_attn.Context", sizeof(fa2py_context), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                               slots};
    if (context_type == NULL)
        context_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (context_type == NULL)
        return false;
    Py_INCREF((PyObject *)context_type);
    if (PyModule_AddObject(module, "Context", (PyObject *)context_type) != 0) {
        Py_DECREF((PyObject *)context_type);
        return false;
    }
    return true;
}
