/* A library that prints with whose rights its code runs: test_set_user_id loads it in place of CUDA. */
#include <stdio.h>
#include <unistd.h>

__attribute__((constructor)) static void tell(void)
{
    printf("told library: runs as user %lu\n", (unsigned long)geteuid());
}
