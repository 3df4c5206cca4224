#include "tuner/bench/kernels.h"

#include <string.h>
#include "runtime/base/alloc.h"
#include "tuner/search/compile_all.h"

/* Reads a kernel by its key from the database, or compiles it. */
static fa2_status get(const fa2i_kernel_list *list, const fa2i_variant *variant, const fa2i_key *key,
                      fa2i_kernel *ret_kernel)
{
    static const fa2i_key none;
    char *source = NULL;
    fa2_status st = FA2_OK;
    if (list->cache != NULL && key != NULL && memcmp(key, &none, sizeof none) != 0) {
        st = fa2i_cache_get_kernel(list->cache, key, variant->recipe.abi, true, ret_kernel);
        if (st != FA2_E_NOT_FOUND)
            return st;
    }
    if (!list->gpu->compiles)
        return fa2i_fail(FA2_E_NO_NVRTC, "%s must be compiled, and there is no NVRTC", variant->text);
    FA2_TRY(fa2i_generator_source(list->generator, variant->text, &source));
    FA2_TRY(fa2i_compile(variant, source, &list->gpu->target, fa2i_generator_id(list->generator), ret_kernel));
    fa2i_dump_or_say(ret_kernel, source);
done:
    fa2i_free(source);
    return st;
}

fa2_status fa2i_kernel_list_find(fa2i_kernel_list *list, const fa2i_variant *variant, const fa2i_key *key,
                                 uint32_t *ret_id)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i].variant.text, variant->text) == 0) {
            *ret_id = (uint32_t)i;
            return FA2_OK;
        }
    }
    fa2i_kernel *items = fa2i_realloc(list->items, (list->count + 1) * sizeof *items);
    if (items == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for %zu kernels", list->count + 1);
    list->items = items;
    fa2i_kernel kernel = {0};
    const fa2_status st = get(list, variant, key, &kernel);
    if (st != FA2_OK)
        return st;
    *ret_id = (uint32_t)list->count;
    list->items[list->count++] = kernel;
    return FA2_OK;
}

const fa2i_kernel *fa2i_kernel_list_get(void *list, uint32_t id)
{
    return &((const fa2i_kernel_list *)list)->items[id];
}

void fa2i_kernel_list_done(fa2i_kernel_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        fa2i_kernel_done(&list->items[i]);
    fa2i_free(list->items);
    list->items = NULL;
    list->count = 0;
}
