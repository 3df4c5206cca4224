/*
 * Options that name a part of a database, and what --shape and --op say together.
 *
 * --device is one rule for all that read the database: a whole number up to FA2I_DEVICE_MAX is that device of this
 * machine, as `fa2-tune devices` counts them; all is every device; anything else is a part of a device's name, in any
 * case. What runs on a device takes the number, or all.
 *
 * Errors: FA2_E_INVALID naming the option and what is accepted. Texts are borrowed from argv.
 */
#ifndef FA2I_FILTER_OPTIONS_H
#define FA2I_FILTER_OPTIONS_H

#include "tuner/commands/commands.h"

enum { FA2I_DEVICE_MAX = 1023 };

/* A whole number from 0 to limit, in digits; false: it is none. */
bool fa2i_whole_parse(const char *text, int limit, int *ret_number);

/* What the options say, into *options. A --shape of show is a problem if it has all that a problem must have, else a
 * filter, of which there may be one. */
fa2_status fa2i_options_apply_shape(const char *value, fa2i_options *options);
fa2_status fa2i_filter_apply_shape(const char *value, fa2i_options *options);
fa2_status fa2i_filter_apply_shown(const char *value, fa2i_options *options);
fa2_status fa2i_filter_apply_device(const char *value, fa2i_options *options);
fa2_status fa2i_filter_apply_variant(const char *value, fa2i_options *options);

/* When all options are read: the filter is for the operation of --op. (The shapes are already, for that is looked for
 * before the others; a --shape that says another one contradicts it, and is refused.) */
void fa2i_filter_settle_op(fa2i_options *options, int accepted);

/* When all shapes are read: how many rows of files --op left out, on standard error; FA2_E_INVALID where there is
 * nothing else. */
fa2_status fa2i_options_say_left_out(const fa2i_options *options);

/* Whether a filter says anything; whether it does of the problem. */
bool fa2i_filter_is_given(const fa2i_filter *filter);
bool fa2i_filter_names_problem(const fa2i_filter *filter);

/* A device that the filter names by its number becomes its name. FA2_E_NO_DRIVER, FA2_E_NO_DEVICE. */
fa2_status fa2i_filter_find_device(fa2i_options *options);

#endif
