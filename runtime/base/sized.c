#include "runtime/base/sized.h"

/* last: the last member that every program has. */
#define SIZED(name, type, last)                                                                                        \
    {                                                                                                                  \
        name, #type, offsetof(type, last) + sizeof((type *)0)->last, sizeof(type)                                      \
    }

const fa2i_sized fa2i_sized_problem = SIZED("problem", fa2_problem, causal);
const fa2i_sized fa2i_sized_config = SIZED("config", fa2_config, device_plus_one);
const fa2i_sized fa2i_sized_forward_args = SIZED("args", fa2_forward_args, workspace_bytes);
const fa2i_sized fa2i_sized_backward_args = SIZED("args", fa2_backward_args, workspace_bytes);
const fa2i_sized fa2i_sized_merge_args = SIZED("args", fa2_merge_args, lse);
const fa2i_sized fa2i_sized_explanation = SIZED("explanation", fa2_explanation, measured);
const fa2i_sized fa2i_sized_counters = SIZED("counters", fa2_counters, struct_bytes);

fa2_status fa2i_sized_check(const fa2i_sized *as, size_t struct_bytes)
{
    if (struct_bytes >= as->least && struct_bytes <= as->bytes + FA2I_NEWER_BYTES)
        return FA2_OK;
    return fa2i_fail(FA2_E_INVALID, "%s.struct_bytes is %zu; it must be sizeof(%s), which is %zu in this version",
                     as->name, struct_bytes, as->type, as->bytes);
}

static fa2_status check_newer(const fa2i_sized *as, const char *given, size_t struct_bytes)
{
    for (size_t i = as->bytes; i < struct_bytes; i++) {
        if (given[i] != 0)
            return fa2i_fail(FA2_E_INVALID,
                             "%s has a member at byte %zu that is not 0 and that this version (%d.%d.%d) does not know",
                             as->name, i, FA2_VERSION_MAJOR, FA2_VERSION_MINOR, FA2_VERSION_PATCH);
    }
    return FA2_OK;
}

fa2_status fa2i_sized_convert(const fa2i_sized *as, const void *given, void *copy, const void **ret_struct)
{
    size_t struct_bytes;
    if (given == NULL)
        return fa2i_fail(FA2_E_INVALID, "%s is NULL", as->name);
    memcpy(&struct_bytes, given, sizeof struct_bytes);
    fa2_status st = fa2i_sized_check(as, struct_bytes);
    if (st == FA2_OK)
        st = check_newer(as, given, struct_bytes);
    if (st != FA2_OK)
        return st;
    memset(copy, 0, as->bytes);
    memcpy(copy, given, struct_bytes < as->bytes ? struct_bytes : as->bytes);
    memcpy(copy, &as->bytes, sizeof as->bytes);
    *ret_struct = copy;
    return FA2_OK;
}
