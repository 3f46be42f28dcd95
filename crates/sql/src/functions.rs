//! What is known of the functions that servers bring along. A name that is in no list may do anything.

use crate::target::Dialect;

/// What calling a function means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The result depends on the arguments alone.
    Pure,
    /// The result depends on clock, chance, server or connection.
    Volatile,
    /// The result depends on what the connection did before.
    Session,
    /// Changes a sequence, and at once.
    Sequence,
    /// Not known.
    Unknown,
}

/// Of both families.
const PURE: &[&str] = &[
    "abs", "acos", "adddate", "addtime", "aes_decrypt", "aes_encrypt", "any_value", "array_agg", "array_append",
    "array_cat", "array_length", "array_position", "array_remove", "array_to_string", "array_upper", "ascii", "asin",
    "atan", "atan2", "avg", "bin", "bit_and", "bit_count", "bit_length", "bit_or", "bit_xor", "bool_and", "bool_or",
    "btrim", "cardinality", "cbrt", "ceil", "ceiling", "char", "char_length", "character_length", "charset", "chr", "coalesce",
    "coercibility", "collation", "compress", "concat", "concat_ws", "conv", "convert", "convert_tz", "cos", "cot",
    "count", "crc32", "cume_dist", "date", "date_add", "date_format", "date_part", "date_sub", "date_trunc",
    "datediff", "day", "dayname", "dayofmonth", "dayofweek", "dayofyear", "decode", "degrees", "dense_rank", "div",
    "elt", "encode", "every", "exp", "export_set", "extract", "extractvalue", "field", "find_in_set", "first_value",
    "floor", "format", "from_base64", "from_days", "from_unixtime", "generate_series", "geomfromtext", "get_format",
    "greatest", "group_concat", "grouping", "hex", "hour", "if", "ifnull", "in", "inet6_aton", "inet6_ntoa",
    "inet_aton", "inet_ntoa", "initcap", "insert", "instr", "interval", "isnull", "json_agg", "json_array",
    "json_array_length", "json_arrayagg", "json_build_array", "json_build_object", "json_contains",
    "json_contains_path", "json_depth", "json_each", "json_extract", "json_insert", "json_keys", "json_length",
    "json_object", "json_object_agg", "json_objectagg", "json_quote", "json_remove", "json_replace", "json_search",
    "json_set", "json_type", "json_unquote", "json_valid", "json_value", "jsonb_agg", "jsonb_array_elements",
    "jsonb_array_elements_text", "jsonb_array_length", "jsonb_build_array", "jsonb_build_object", "jsonb_each",
    "jsonb_each_text", "jsonb_extract_path", "jsonb_extract_path_text", "jsonb_object_agg", "jsonb_set",
    "jsonb_typeof", "jsonb_path_exists", "jsonb_path_query", "lag", "last_day", "last_value", "lcase", "lead",
    "least", "left", "length", "ln", "locate", "log", "log10", "log2", "lower", "lpad", "ltrim", "make_date",
    "make_set", "makedate", "maketime", "max", "md5", "microsecond", "mid", "min", "minute", "mod", "month",
    "monthname", "nth_value", "ntile", "nullif", "oct", "octet_length", "ord", "overlay", "percent_rank",
    "percentile_cont", "percentile_disc", "period_add", "period_diff", "pi", "plainto_tsquery", "point", "position",
    "pow", "power", "quarter", "quote", "quote_ident", "quote_literal", "radians", "rank", "regexp_instr",
    "regexp_match", "regexp_matches", "regexp_replace", "regexp_split_to_array", "regexp_split_to_table",
    "regexp_substr", "repeat", "replace", "reverse", "right", "round", "row", "row_number", "row_to_json", "rpad",
    "rtrim", "schema_name", "sec_to_time", "second", "sha", "sha1", "sha2", "sha256", "sign", "sin", "soundex",
    "space", "split_part", "sqrt", "st_asgeojson", "st_astext", "st_contains", "st_distance", "st_distance_sphere",
    "st_geomfromtext", "st_within", "st_x", "st_y", "std", "stddev", "stddev_pop", "stddev_samp", "str_to_date",
    "strcmp", "string_agg", "string_to_array", "strpos", "subdate", "substr", "substring", "substring_index",
    "subtime", "sum", "tan", "time", "time_format", "time_to_sec", "timediff", "timestamp", "timestampadd",
    "timestampdiff", "to_base64", "to_char", "to_date", "to_days", "to_hex", "to_json", "to_jsonb", "to_number",
    "to_seconds", "to_timestamp", "to_tsquery", "to_tsvector", "translate", "trim", "trunc", "truncate", "ts_headline",
    "ts_rank", "ts_rank_cd", "ucase", "uncompress", "unhex", "unnest", "updatexml", "upper", "values", "var_pop",
    "var_samp", "variance", "week", "weekday", "weekofyear", "weight_string", "width_bucket", "year", "yearweek",
];

/// Depend on clock, chance, or on the server.
const VOLATILE: &[&str] = &[
    "age", "benchmark", "clock_timestamp", "curdate", "current_date", "current_time", "current_timestamp", "curtime",
    "gen_random_uuid", "is_free_lock", "is_used_lock", "localtime", "localtimestamp", "now", "pg_size_pretty",
    "random", "rand", "random_bytes", "sleep", "statement_timestamp", "sysdate", "timeofday", "transaction_timestamp",
    "txid_current", "unix_timestamp", "utc_date", "utc_time", "utc_timestamp", "uuid", "uuid_short", "version",
    "pg_sleep", "pg_database_size", "pg_relation_size", "pg_total_relation_size", "pg_table_size", "pg_is_in_recovery",
    "pg_postmaster_start_time", "sys_guid",
];

/// Depend on the connection, or on what it did before.
const SESSION: &[&str] = &[
    "connection_id", "current_catalog", "current_database", "current_role", "current_schema", "current_schemas",
    "current_setting", "current_user", "currval", "database", "found_rows", "get_lock", "inet_client_addr",
    "last_insert_id", "lastval", "pg_advisory_lock", "pg_advisory_unlock", "pg_advisory_unlock_all",
    "pg_advisory_xact_lock", "pg_backend_pid", "pg_try_advisory_lock", "pg_try_advisory_xact_lock", "release_all_locks",
    "release_lock", "row_count", "schema", "session_user", "system_user", "user", "format_type", "pg_get_constraintdef",
    "pg_get_expr", "pg_get_indexdef", "pg_get_serial_sequence", "pg_get_userbyid", "pg_get_viewdef",
    "pg_table_is_visible", "pg_type_is_visible", "col_description", "obj_description", "has_table_privilege",
    "has_schema_privilege", "to_regclass", "pg_encoding_to_char",
];

/// The names that are called without parentheses.
pub(crate) const BARE: &[&str] = &[
    "current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "utc_date", "utc_time",
    "utc_timestamp", "current_user", "current_role", "current_schema", "current_catalog", "session_user",
    "system_user", "user", "sysdate",
];

/// Functions of PostgreSQL's own catalogue that run what they are given, change something, or read tables.
const POSTGRES_INDIRECT: &[&str] = &[
    "binary_upgrade", "cursor_to_xml", "database_to_xml", "dblink", "lo_", "loread", "lowrite", "pg_", "query_to_xml",
    "schema_to_xml", "set_config", "setval", "table_to_xml", "ts_rewrite", "ts_stat", "brin_", "gin_clean", "txid_",
    "xpath_table", "suppress_",
];

/// Functions of MySQL and MariaDB that run what they are given, change something, or read files.
const MYSQL_INDIRECT: &[&str] =
    &["load_file", "master_pos_wait", "master_gtid_wait", "sys_exec", "sys_eval", "wait_for_executed_gtid_set"];

fn is_in(list: &[&str], name: &str) -> bool {
    list.contains(&name)
}

/// What calling `name` means; `name` is in lower case and has no schema, or PostgreSQL's own.
pub(crate) fn kind(dialect: Dialect, name: &str) -> Kind {
    if is_in(SESSION, name) {
        Kind::Session
    } else if is_in(VOLATILE, name) {
        Kind::Volatile
    } else if matches!(name, "nextval" | "setval") || (dialect == Dialect::MySql && name == "lastval") {
        Kind::Sequence
    } else if is_in(PURE, name) {
        Kind::Pure
    } else {
        Kind::Unknown
    }
}

/// Is a function that is in no list, and that nobody has defined, one that the server brings along and that does
/// no more than compute?
pub(crate) fn is_harmless_if_built_in(dialect: Dialect, name: &str) -> bool {
    let indirect = match dialect {
        Dialect::MySql => MYSQL_INDIRECT,
        Dialect::Postgres => POSTGRES_INDIRECT,
    };
    !indirect.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_do_not_overlap() {
        for name in PURE {
            assert!(!is_in(VOLATILE, name) && !is_in(SESSION, name), "{name}");
        }
        assert_eq!(kind(Dialect::MySql, "concat"), Kind::Pure);
        assert_eq!(kind(Dialect::MySql, "now"), Kind::Volatile);
        assert_eq!(kind(Dialect::MySql, "found_rows"), Kind::Session);
        assert_eq!(kind(Dialect::Postgres, "nextval"), Kind::Sequence);
        assert_eq!(kind(Dialect::Postgres, "my_function"), Kind::Unknown);
        assert!(!is_harmless_if_built_in(Dialect::Postgres, "pg_terminate_backend"));
        assert!(is_harmless_if_built_in(Dialect::Postgres, "cbrt"));
    }
}
