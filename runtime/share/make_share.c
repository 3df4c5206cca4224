/*
 * Makes the database of times that comes with fa2 from exports: fa2_make_share FILE.db EXPORT...
 *
 * It is made in memory, so that it does not matter who can write the folder. It has no code, and anybody may read it.
 */
#include <stdio.h>
#include "cache/internal.h"
#include "cache/content/report.h"

static fa2_status import(fa2i_cache *cache, const char *path)
{
    FILE *in = fopen(path, "r");
    if (in == NULL)
        return fa2i_fail(FA2_E_IO, "%s: cannot be read", path);
    const fa2_status st = fa2i_cache_import(cache, in, path, NULL, NULL, NULL);
    fclose(in);
    return st;
}

static fa2_status write_database(fa2i_cache *cache, const char *path)
{
    sqlite3_int64 bytes = 0;
    unsigned char *data = sqlite3_serialize(cache->db, "main", &bytes, 0);
    FILE *out = data == NULL ? NULL : fopen(path, "wb");
    bool written = out != NULL && fwrite(data, 1, (size_t)bytes, out) == (size_t)bytes;
    if (out != NULL)
        written = fclose(out) == 0 && written;
    if (!written)
        (void)remove(path);
    sqlite3_free(data);
    return written ? FA2_OK : fa2i_fail(FA2_E_IO, "%s: cannot be written", path);
}

int main(int argc, char **argv)
{
    fa2i_cache *cache = NULL;
    if (argc < 3) {
        fputs("usage: fa2_make_share FILE.db EXPORT...\n", stderr);
        return 2;
    }
    fa2_status st = fa2i_cache_open_empty(argv[1], &cache);
    for (int i = 2; st == FA2_OK && i < argc; i++)
        st = import(cache, argv[i]);
    if (st == FA2_OK)
        st = write_database(cache, argv[1]);
    fa2i_cache_close(cache);
    if (st != FA2_OK)
        fprintf(stderr, "fa2_make_share: %s\n", fa2_last_message());
    return st == FA2_OK ? 0 : 1;
}
