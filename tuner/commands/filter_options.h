/*
 * Options that select a part of a database, and the rules for --shape together with --op.
 *
 * All commands that read the database use one rule for --device. A whole number up to FA2I_DEVICE_MAX is that device of
 * this machine, as `fa2-tune devices` counts. "all" is every device. Anything else is a part of a device's name, in any
 * case. Commands that run on a device take the number, or all.
 *
 * Errors: FA2_E_INVALID names the option and what is accepted. Texts are borrowed from argv.
 */
#pragma once

#include "tuner/commands/commands.h"

enum { FA2I_DEVICE_MAX = 1023 };

/* Parses a whole number from 0 to limit, in digits. Returns false if text is something else. */
bool fa2i_whole_parse(const char *text, int limit, int *ret_number);

/* Stores the value of an option in *options. For show, a --shape with all required fields is a problem. Otherwise it is
 * a filter, and only one is allowed. */
fa2_status fa2i_options_apply_shape(const char *value, fa2i_options *options);
fa2_status fa2i_filter_apply_shape(const char *value, fa2i_options *options);
fa2_status fa2i_filter_apply_shown(const char *value, fa2i_options *options);
fa2_status fa2i_filter_apply_device(const char *value, fa2i_options *options);
fa2_status fa2i_filter_apply_variant(const char *value, fa2i_options *options);

/* Call it after all options are read: adds the operation of --op to the filter. (Shapes have it already, because --op
 * is read before the other options. A --shape that names another operation is refused.) */
void fa2i_filter_settle_op(fa2i_options *options, int accepted);

/* Call it after all shapes are read: says on stderr how many rows of files --op left out. Returns FA2_E_INVALID if no
 * row is left. */
fa2_status fa2i_options_say_left_out(const fa2i_options *options);

/* Says whether a filter has any condition. */
bool fa2i_filter_is_given(const fa2i_filter *filter);

/* Replaces a device number in the filter by the device's name. Returns FA2_E_NO_DRIVER or FA2_E_NO_DEVICE. */
fa2_status fa2i_filter_find_device(fa2i_options *options);
