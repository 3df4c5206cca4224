/*
 * The rules for columns (rules.def) as data, as checks, and in SQL.
 *
 * Pure, except for the registration; thread-safe.
 */
#pragma once

#include "cache/internal.h"
#include "runtime/base/text.h"

typedef enum fa2i_rule_kind {
    FA2I_RULE_INT,
    FA2I_RULE_REAL,
    FA2I_RULE_FINITE,
    FA2I_RULE_TEXT,
    FA2I_RULE_REMARK,
    FA2I_RULE_VARIANT,
    FA2I_RULE_RECIPE,
    FA2I_RULE_OUTCOME,
    FA2I_RULE_ORIGIN,
    FA2I_RULE_TARGET,
    FA2I_RULE_HEX16,
    FA2I_RULE_MOMENT,
    FA2I_RULE_ENDED,
    FA2I_RULE_LOG,
    FA2I_RULE_ID,
    FA2I_RULE_BYTES,
    FA2I_RULE_KEY,
    FA2I_RULE_PROBLEM
} fa2i_rule_kind;

/* A line of rules.def, which explains the kinds. */
typedef struct fa2i_rule {
    const char *table, *column;
    fa2i_rule_kind kind;
    int64_t least, most;
    const char *mend; /* NULL: the row goes */
} fa2i_rule;

/* Returns the rule for a column, which must have one. */
const fa2i_rule *fa2i_rule_of(const char *table, const char *column);

bool fa2i_rule_takes_real(const fa2i_rule *rule, double value);
bool fa2i_rule_takes_text(const fa2i_rule *rule, const char *text, size_t bytes);

/* Write a sentence such as "'arch' must be a whole number from 10 to 999, and is '7'". A value that is NULL or not
 * printable is not shown. */
enum { FA2I_RULE_CHARS = 320 };
void fa2i_rule_sentence(const fa2i_rule *rule, const char *value, char out[FA2I_RULE_CHARS]);

/* Check how the columns of a result relate: return NULL, or what is wrong. Readers use these checks, too, and a row
 * that fails them counts as missing. */
const char *fa2i_winner_fault(const fa2i_winner *winner);
bool fa2i_card_is_sound(const fa2i_card *card);
const char *fa2i_measurement_fault(const fa2i_measurement *measurement);

/* Register the SQL functions that the expressions below need. Returns SQLite's result code. *mended counts mended
 * values. */
int fa2i_rules_register(sqlite3 *db, size_t *mended);

/* Add an SQL expression over the columns of a table. It gives NULL, or the sentence about the first column with an
 * invalid value. */
void fa2i_rules_add_fault(fa2i_text *sql, const char *table);

/* Add an SQL expression for a column of the row t: its value, in the type of its rule if the bytes can be read so, or
 * what mends it. A value that nothing mends stays. A column without a rule is added as it is. */
void fa2i_rules_add_mended(fa2i_text *sql, const char *table, const char *column);

/* Mend the values of all tables in place. Inside a transaction for writing. */
fa2_status fa2i_rules_mend(fa2i_cache *cache);
