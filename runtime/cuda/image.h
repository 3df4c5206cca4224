/*
 * What is in compiled code, without a driver to load it. Pure; thread-safe.
 */
#ifndef FA2I_IMAGE_H
#define FA2I_IMAGE_H

#include "runtime/base/record.h"

/* Does the image (a cubin, or PTX) define an entry point of this name? Damaged images have none. */
bool fa2i_image_has_entry(const fa2i_blob *image, const char *name);

#endif
