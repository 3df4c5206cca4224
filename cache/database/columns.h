/*
 * The columns of the table `problem` that are fields of problem.def, and the objects of the database that list these
 * columns: the unique index and the views. A field that was added to problem.def is added to a database when the
 * database is opened for writing.
 *
 * A statement that lists all fields includes problem.def in its text:
 *     "SELECT id"
 *     #define FA2I_FIELD(name, ...) ", " #name
 *     #include "runtime/base/problem.def"
 *     " FROM problem"
 * The order is problem.def's. The views have the table's order, in which fields that came later stand last.
 */
#pragma once

#include "cache/internal.h"

/* "op, batch, ...": all fields, in the order of problem.def. */
extern const char *const fa2i_columns_fields;

/* Set one value for each field, to bind in the order of problem.def. The problem must be valid. */
void fa2i_columns_values(const fa2_problem *problem, fa2i_sql_value out[FA2I_FIELD_COUNT]);

/* Read the problem from the columns from `first` on, in the order of problem.def. FA2_E_DATABASE: they are no problem
 * of this fa2; *ret_problem is then untouched. */
fa2_status fa2i_columns_read(const fa2i_cache *cache, sqlite3_stmt *stmt, int first, fa2_problem *ret_problem);

/* Register functions with SQLite, and return its result code. All take the fields in the order of problem.def:
 *
 *     fa2_problem_fault(field, ...)     why they are no problem; NULL: they are one
 *     fa2_misfiled(class, field, ...)   1: they are no problem, or the class is not theirs
 *     fa2_class(field, ...)             their class; NULL: they are no problem
 *     fa2_gflop(field, ...)             their gflop; NULL: they are no problem */
int fa2i_columns_register(sqlite3 *db);

/* Are the table's columns the fields that this fa2 knows? FA2_E_NOT_FOUND: a column is missing; the message names it
 * and says what to do. FA2_E_DATABASE: a column is unknown, because a newer fa2 wrote it; the message names it. */
fa2_status fa2i_columns_check(fa2i_cache *cache);

/* Add missing columns, with the value 0, and make the index and the views anew if they differ. FA2_E_DATABASE: an
 * unknown column, as above. */
fa2_status fa2i_columns_bring_forward(fa2i_cache *cache);

/* The same inside a transaction for writing. */
fa2_status fa2i_columns_make(fa2i_cache *cache);

/* Inside a transaction: make the temporary views `winners` and `measurements`, equal to a new file's. Statements that
 * name these views read them, and not the file's own, which may be anything. */
fa2_status fa2i_columns_make_views(fa2i_cache *cache);

/* Inside a transaction: get type and name of the first object (the index or a view) that differs from the one that
 * would be made; "" if none differs. */
fa2_status fa2i_columns_find_changed(fa2i_cache *cache, char *type, size_t type_bytes, char *name, size_t name_bytes);
