/*
 * - File names have at most 255 bytes. The name of a longer variant is a part of its text and a part of the kernel's
 *   key.
 * - A source that does not compile has no code. Old code of an earlier source must not remain beside it.
 */
#include "runtime/cuda/dump.h"

#include <stdio.h>
#include <string.h>
#include "runtime/base/environment.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"
#include "runtime/cuda/compile.h"

enum { TEXT_CHARS = 200, NAME_CHARS = TEXT_CHARS + 32 };

static void make_name(const fa2i_kernel *kernel, char out[NAME_CHARS])
{
    char hex[2 * FA2I_KEY_BYTES + 1], text[FA2I_VARIANT_CHARS];
    fa2i_key_format(&kernel->key, hex);
    snprintf(text, sizeof text, "%s", kernel->variant.text);
    for (char *space = text; (space = strchr(space, ' ')) != NULL;)
        *space = ',';
    const bool fits = strlen(text) <= TEXT_CHARS;
    snprintf(out, NAME_CHARS, "%.*s%s%.8s,%s%s", TEXT_CHARS, text, fits ? "" : "~", fits ? "" : hex, kernel->target,
             kernel->variant.recipe.suffix);
}

static fa2_status write_file(const char *folder, const char *name, const char *ending, const void *data, size_t bytes)
{
    fa2i_text path = {0};
    const char *why = "out of memory";
    fa2i_text_add(&path, "%s/%s%s", folder, name, ending);
    bool done = !path.failed;
    if (done && data != NULL)
        done = fa2i_file_write(path.data, data, bytes, &why);
    else if (done)
        remove(path.data);
    fa2i_text_done(&path);
    return done ? FA2_OK : fa2i_fail(FA2_E_IO, "FA2_DUMP=%s: cannot write %s%s (%s)", folder, name, ending, why);
}

fa2_status fa2i_dump(const fa2i_kernel *kernel, const char *source)
{
    const char *folder = fa2i_environment("FA2_DUMP");
    const bool ptx = fa2i_target_is_ptx(kernel->target);
    char name[NAME_CHARS];
    fa2_status st = FA2_OK;
    if (folder == NULL)
        return FA2_OK;
    make_name(kernel, name);
    FA2_TRY(write_file(folder, name, ".cu", source, strlen(source)));
    FA2_TRY(write_file(folder, name, ptx ? ".ptx" : ".cubin", kernel->image.data,
                       ptx && kernel->image.data != NULL ? strnlen(kernel->image.data, kernel->image.bytes)
                                                         : kernel->image.bytes));
done:
    return st;
}
