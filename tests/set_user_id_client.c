/* Prints what the library takes from the environment, for test_set_user_id: a line for each thing that a variable
 * names. Exit status 77: this process has no more rights than its caller. --plain allows that. */
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include "cache/cache.h"
#include "runtime/base/alloc.h"
#include "runtime/cuda/cuda_api.h"
#include "runtime/lua/generator_files.h"
#include "runtime/plan/share.h"

static void tell(const char *what, char *path)
{
    printf("%s: %s\n", what, path != NULL ? path : "none");
    fa2i_free(path);
}

int main(int argc, char **argv)
{
    const fa2i_cuda_table *cuda = NULL;
    const fa2i_nvrtc_table *nvrtc = NULL;
    fa2i_generator_files files = {0};
    char *database = NULL, *share = NULL;
    if (getauxval(AT_SECURE) == 0 && (argc < 2 || strcmp(argv[1], "--plain") != 0))
        return 77;
    setvbuf(stdout, NULL, _IONBF, 0);
    (void)fa2i_cuda_get(&cuda);
    (void)fa2i_nvrtc_get(&nvrtc);
    (void)fa2i_cache_default_path(&database);
    tell("database", database);
    (void)fa2i_share_find(&share);
    tell("share", share);
    printf("scripts: %s\n", fa2i_generator_files_open(&files) == FA2_OK ? "own" : fa2_last_message());
    fa2i_generator_files_done(&files);
    return 0;
}
