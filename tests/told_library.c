/* A library that tells whose rights its code has: for test_set_user_id, in the place of CUDA. */
#include <stdio.h>
#include <unistd.h>

__attribute__((constructor)) static void tell(void)
{
    printf("told library: runs as user %lu\n", (unsigned long)geteuid());
}
