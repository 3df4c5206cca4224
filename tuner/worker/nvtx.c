#include "tuner/worker/nvtx.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include "runtime/base/environment.h"

/* State of the process: looked up once. */
static struct {
    bool tried;
    int (*push)(const char *name);
    int (*pop)(void);
} nvtx;

static void load(void)
{
    const char *given = fa2i_environment("FA2_NVTX_LIBRARY");
    void *library = dlopen(given != NULL ? given : "libnvToolsExt.so.1", RTLD_NOW | RTLD_LOCAL);
    nvtx.tried = true;
    if (library == NULL)
        return;
    *(void **)&nvtx.push = dlsym(library, "nvtxRangePushA");
    *(void **)&nvtx.pop = dlsym(library, "nvtxRangePop");
}

void fa2i_nvtx_begin(const char *name)
{
    if (!nvtx.tried)
        load();
    if (nvtx.push != NULL && nvtx.pop != NULL)
        (void)nvtx.push(name);
}

void fa2i_nvtx_end(void)
{
    if (nvtx.push != NULL && nvtx.pop != NULL)
        (void)nvtx.pop();
}
