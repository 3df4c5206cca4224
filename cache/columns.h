/*
 * The columns of the table `problem` that are fields of problem.def, and what lists them in the
 * database: the unique index and the views. A field that was added to problem.def is added to a
 * database when that is opened for writing.
 *
 * A statement that lists all fields includes problem.def in its text:
 *     "SELECT id"
 *     #define FA2I_FIELD(name, ...) ", " #name
 *     #include "runtime/base/problem.def"
 *     #undef FA2I_FIELD
 *     " FROM problem"
 * The order is problem.def's; the views have the table's, in which fields that came later stand last.
 */
#ifndef FA2I_CACHE_COLUMNS_H
#define FA2I_CACHE_COLUMNS_H

#include "cache/internal.h"

/* "op, batch, ...": all fields, in the order of problem.def. */
extern const char *const fa2i_columns_fields;

/* A value for each field, to bind in the order of problem.def. The problem is valid. */
void fa2i_columns_values(const fa2_problem *problem, fa2i_sql_value out[FA2I_FIELD_COUNT]);

/* Read a field from a value; false where the value is of another type than the field, or none of the field's. */
bool fa2i_columns_parse(int field, sqlite3_value *value, int32_t *ret_value);

/* The problem in the columns from `first` on, in the order of problem.def; FA2_E_DATABASE when they
 * are none of this fa2, *ret_problem then untouched. */
fa2_status fa2i_columns_read(const fa2i_cache *cache, sqlite3_stmt *stmt, int first,
                             fa2_problem *ret_problem);

/* Make known to SQL, with all fields in the order of problem.def: fa2_problem_fault(field, ...), which is NULL, or why
 * they are no problem; fa2_misfiled(class, field, ...), 1 when they are none or the class is not theirs;
 * fa2_class(field, ...) and fa2_gflop(field, ...), NULL when they are none. SQLite's result code. */
int fa2i_columns_register(sqlite3 *db);

/* Are the table's columns the fields that this fa2 knows? FA2_E_NOT_FOUND names the one that is not there, with
 * what to do. FA2_E_DATABASE names the one that is not known: a newer fa2 wrote it. */
fa2_status fa2i_columns_check(fa2i_cache *cache);

/* Add the columns that are missing, with the fields' value 0, and make index and views anew where
 * they are others. FA2_E_DATABASE: an unknown column, as above. */
fa2_status fa2i_columns_bring_forward(fa2i_cache *cache);

/* The same inside a transaction for writing. */
fa2_status fa2i_columns_make(fa2i_cache *cache);

/* Inside a transaction: make the temporary views `winners` and `measurements`, as a new file has them. Statements that
 * name these read them, and not the file's own, which may be anything. */
fa2_status fa2i_columns_make_views(fa2i_cache *cache);

/* Inside a transaction: type and name of the first of them that is another than would be made; "" when
 * none is. */
fa2_status fa2i_columns_find_changed(fa2i_cache *cache, char *type, size_t type_bytes, char *name,
                                     size_t name_bytes);

#endif
