/*
 * Calls on a context. The first call of a problem asks for its workspace, which prepares the problem, without the GIL.
 * Later calls are one look-up in a table here, and fa2_forward.
 */
#include <stdlib.h>
#include "context.h"

bool fa2py_context_prepare(fa2py_context *context, const fa2_problem *problem, size_t *ret_bytes)
{
    fa2_status st = FA2_OK;
    Py_BEGIN_ALLOW_THREADS st = fa2_workspace_size(context->handle, problem, ret_bytes);
    Py_END_ALLOW_THREADS if (st != FA2_OK)
    {
        fa2py_raise(st);
        return false;
    }
    return fa2py_prepared_add(&context->prepared, problem, *ret_bytes);
}

static bool workspace_bytes(fa2py_context *context, const fa2_problem *problem, void *stream, size_t *ret_bytes)
{
    if (fa2py_prepared_find(&context->prepared, problem, ret_bytes))
        return true;
    if (fa2py_is_capturing(stream)) {
        fa2py_raise_with(FA2_E_CAPTURE, "this problem is not prepared and the stream is being captured: call "
                                        "fa2_attn.prepare, or attention once, before the capture begins");
        return false;
    }
    return fa2py_context_prepare(context, problem, ret_bytes);
}

/* Finds workspace that only this stream uses, so that the stream's order keeps calls apart. */
static bool own_workspace(fa2py_context *context, size_t bytes, void *stream, void **ret_address, size_t *ret_bytes)
{
    const fa2py_block *last = NULL;
    for (const fa2py_block *b = context->blocks; b != NULL && last == NULL; b = b->next)
        if (b->stream == stream)
            last = b;
    if (last == NULL || last->bytes < bytes) {
        const size_t least = last != NULL ? 2 * last->bytes : 0;
        fa2py_block *made = calloc(1, sizeof *made);
        if (made == NULL) {
            PyErr_NoMemory();
            return false;
        }
        *made = (fa2py_block){context->blocks, stream, 0, bytes > least ? bytes : least};
        made->address = fa2py_allocate(context->device, made->bytes);
        if (made->address == 0) {
            PyErr_Format(PyExc_MemoryError, "no %zu bytes of device memory for a workspace", made->bytes);
            free(made);
            return false;
        }
        context->blocks = made;
        last = made;
    }
    *ret_address = (void *)(uintptr_t)last->address;
    *ret_bytes = last->bytes;
    return true;
}

static bool get_workspace(fa2py_context *context, const fa2py_launch *launch, fa2py_view *lent, void **ret_address,
                          size_t *ret_bytes)
{
    const dl_device device = {DL_CUDA, context->device};
    size_t bytes = 0;
    if (!workspace_bytes(context, launch->problem, launch->stream, &bytes))
        return false;
    if (bytes == 0)
        return true;
    if (launch->lender != NULL && fa2py_workspace(launch->lender, launch->like, &device, bytes, launch->stream, lent)) {
        *ret_address = (char *)lent->tensor.data + lent->tensor.byte_offset;
        *ret_bytes = bytes;
        return true;
    }
    return !PyErr_Occurred() && own_workspace(context, bytes, launch->stream, ret_address, ret_bytes);
}

static fa2_status launch_op(const fa2py_context *context, fa2py_launch *launch, void *workspace, size_t workspace_bytes)
{
    fa2_forward_args *forward = &launch->args.forward;
    fa2_backward_args *backward = &launch->args.backward;
    fa2_merge_args *merge = &launch->args.merge;
    switch (launch->problem->op) {
    case FA2_OP_FORWARD:
        forward->workspace = workspace;
        forward->workspace_bytes = workspace_bytes;
        return fa2_forward(context->handle, launch->problem, forward, launch->stream);
    case FA2_OP_BACKWARD:
        backward->workspace = workspace;
        backward->workspace_bytes = workspace_bytes;
        return fa2_backward(context->handle, launch->problem, backward, launch->stream);
    case FA2_OP_MERGE:
        merge->workspace = workspace;
        merge->workspace_bytes = workspace_bytes;
        return fa2_merge(context->handle, launch->problem, merge, launch->stream);
    }
    return FA2_E_INVALID;
}

bool fa2py_context_launch(fa2py_context *context, fa2py_launch *launch)
{
    fa2py_view lent = {.keep = NULL};
    fa2_status st = FA2_OK;
    void *workspace = NULL;
    size_t bytes = 0;
    if (!fa2py_context_begin(context))
        return false;
    bool ok = get_workspace(context, launch, &lent, &workspace, &bytes);
    if (ok) {
        if (!context->is_default && !context->captured)
            context->captured = fa2py_is_capturing(launch->stream);
        Py_BEGIN_ALLOW_THREADS st = launch_op(context, launch, workspace, bytes);
        Py_END_ALLOW_THREADS if (st != FA2_OK) fa2py_raise(st);
        ok = st == FA2_OK;
    }
    fa2py_view_done(&lent); /* the framework reuses the memory in the stream's order */
    fa2py_context_end(context);
    return ok;
}
