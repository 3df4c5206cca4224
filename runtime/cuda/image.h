/*
 * Looks into compiled code without loading it by a driver. Pure function; thread-safe.
 */
#pragma once

#include "runtime/base/record.h"

/* Returns whether the image (a cubin, or PTX) defines an entry point of this name. A damaged image defines none. */
bool fa2i_image_has_entry(const fa2i_blob *image, const char *name);
