SELECT CONCAT_WS('\t', 'table', HEX(TABLE_SCHEMA), HEX(TABLE_NAME),
    CASE WHEN TABLE_TYPE = 'VIEW' THEN 'view' WHEN TABLE_TYPE = 'SEQUENCE' THEN 'sequence' ELSE IFNULL(ENGINE, 'unknown') END)
  FROM information_schema.TABLES WHERE TABLE_SCHEMA NOT IN ('information_schema', 'performance_schema')
UNION ALL
SELECT CONCAT_WS('\t', 'view', HEX(TABLE_SCHEMA), HEX(TABLE_NAME), HEX(VIEW_DEFINITION))
  FROM information_schema.VIEWS WHERE TABLE_SCHEMA NOT IN ('information_schema', 'performance_schema')
UNION ALL
SELECT CONCAT_WS('\t', 'trigger', HEX(EVENT_OBJECT_SCHEMA), HEX(EVENT_OBJECT_TABLE), HEX(ACTION_STATEMENT))
  FROM information_schema.TRIGGERS
UNION ALL
SELECT CONCAT_WS('\t', 'cascade', HEX(UNIQUE_CONSTRAINT_SCHEMA), HEX(REFERENCED_TABLE_NAME), HEX(CONSTRAINT_SCHEMA),
    HEX(TABLE_NAME))
  FROM information_schema.REFERENTIAL_CONSTRAINTS
  WHERE UPDATE_RULE NOT IN ('RESTRICT', 'NO ACTION') OR DELETE_RULE NOT IN ('RESTRICT', 'NO ACTION')
UNION ALL
SELECT DISTINCT CONCAT_WS('\t', 'column', HEX(c.TABLE_SCHEMA), HEX(c.TABLE_NAME), HEX(c.COLUMN_NAME),
    CASE WHEN c.DATA_TYPE IN ('tinyint', 'smallint', 'mediumint', 'int', 'bigint')
      THEN CONCAT(c.DATA_TYPE, IF(c.COLUMN_TYPE LIKE '%unsigned%', ' unsigned', '')) ELSE 'string' END,
    IFNULL(c.CHARACTER_MAXIMUM_LENGTH, 0))
  FROM information_schema.COLUMNS c JOIN information_schema.STATISTICS s
    ON s.TABLE_SCHEMA = c.TABLE_SCHEMA AND s.TABLE_NAME = c.TABLE_NAME AND s.COLUMN_NAME = c.COLUMN_NAME
  WHERE c.TABLE_SCHEMA NOT IN ('information_schema', 'performance_schema') AND IFNULL(c.GENERATION_EXPRESSION, '') = ''
    AND c.DATA_TYPE IN ('tinyint', 'smallint', 'mediumint', 'int', 'bigint', 'char', 'varchar', 'binary', 'varbinary',
      'tinytext', 'text', 'mediumtext', 'longtext')
    AND IFNULL(c.CHARACTER_SET_NAME, '') <> 'swe7'
UNION ALL
SELECT CONCAT_WS('\t', 'unique', HEX(s.TABLE_SCHEMA), HEX(s.TABLE_NAME), HEX(s.INDEX_NAME),
    IF(s.SUB_PART IS NULL, HEX(IFNULL(s.COLUMN_NAME, '')), ''),
    IF(c.DATA_TYPE = 'bigint' AND c.EXTRA LIKE '%auto_increment%', '1', '0'))
  FROM information_schema.STATISTICS s LEFT JOIN information_schema.COLUMNS c
    ON s.TABLE_SCHEMA = c.TABLE_SCHEMA AND s.TABLE_NAME = c.TABLE_NAME AND s.COLUMN_NAME = c.COLUMN_NAME
  WHERE s.NON_UNIQUE = 0 AND s.TABLE_SCHEMA NOT IN ('information_schema', 'performance_schema')
UNION ALL
SELECT CASE WHEN ROUTINE_TYPE = 'PROCEDURE' THEN CONCAT_WS('\t', 'routine', HEX(ROUTINE_NAME), 'procedure')
    /*M! WHEN ROUTINE_TYPE = 'FUNCTION' AND ROUTINE_BODY = 'SQL' THEN CONCAT_WS('\t', 'function', HEX(ROUTINE_NAME),
      IFNULL((SELECT HEX(body) FROM mysql.proc p
        WHERE p.type = 'FUNCTION' AND BINARY p.db = BINARY ROUTINE_SCHEMA AND BINARY p.name = BINARY ROUTINE_NAME), HEX('/*'))) */
    ELSE CONCAT_WS('\t', 'routine', HEX(ROUTINE_NAME), 'anything') END
  FROM information_schema.ROUTINES
UNION ALL
SELECT CONCAT_WS('\t', 'routine', HEX(name), 'anything') FROM mysql.func
UNION ALL
SELECT CONCAT_WS('\t', 'setting', 'autocommit', HEX(IF(@@GLOBAL.autocommit, '1', '0')))
UNION ALL
SELECT CONCAT_WS('\t', 'setting', 'isolation', HEX(@@GLOBAL.tx_isolation))
UNION ALL
SELECT CONCAT_WS('\t', 'setting', 'completion_type', HEX(@@GLOBAL.completion_type))
UNION ALL
SELECT CONCAT_WS('\t', 'setting', 'init_connect', HEX(@@GLOBAL.init_connect))
UNION ALL
SELECT CONCAT_WS('\t', 'setting', 'sql_mode', HEX(@@GLOBAL.sql_mode))
UNION ALL
SELECT CONCAT_WS('\t', 'setting', 'hidden_writers', HEX(IF(
    (@@GLOBAL.event_scheduler = 'ON' AND EXISTS (SELECT 1 FROM information_schema.EVENTS WHERE STATUS = 'ENABLED'))
    OR EXISTS (SELECT 1 FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Slave%')
    OR EXISTS (SELECT 1 FROM information_schema.GLOBAL_VARIABLES
        WHERE VARIABLE_NAME = 'WSREP_PROVIDER' AND VARIABLE_VALUE NOT IN ('', 'none')), '1', '0')))
UNION ALL
SELECT 'end'
