WITH c AS (
  SELECT c.*, encode(convert_to(n.nspname::text, 'UTF8'), 'hex') || E'\t'
      || encode(convert_to(c.relname::text, 'UTF8'), 'hex') AS id
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
      AND n.nspname NOT LIKE 'pg\_temp\_%' AND n.nspname NOT LIKE 'pg\_toast%')
SELECT 'table' || E'\t' || id || E'\t' || CASE relkind WHEN 'v' THEN 'view' WHEN 'S' THEN 'sequence'
    WHEN 'f' THEN 'foreign' ELSE 'heap' END FROM c
UNION ALL
SELECT 'view' || E'\t' || id || E'\t' || encode(convert_to(pg_catalog.pg_get_viewdef(oid), 'UTF8'), 'hex')
  FROM c WHERE relkind = 'v'
UNION ALL
-- What a function of a trigger does is not looked into; those that come with the server change the new row at most.
SELECT 'trigger' || E'\t' || id || E'\t' || CASE WHEN t.tgfoid < 16384 THEN encode('NONE', 'hex') ELSE '444f' END
  FROM c JOIN pg_catalog.pg_trigger t ON t.tgrelid = c.oid WHERE NOT t.tgisinternal
UNION ALL
-- A default that calls somebody's function is as good as a trigger.
SELECT DISTINCT 'trigger' || E'\t' || id || E'\t444f'
  FROM c JOIN pg_catalog.pg_attrdef a ON a.adrelid = c.oid JOIN pg_catalog.pg_depend d
    ON d.classid = 'pg_catalog.pg_attrdef'::regclass AND d.objid = a.oid
      AND d.refclassid = 'pg_catalog.pg_proc'::regclass
UNION ALL
SELECT 'opaque' || E'\t' || id FROM c
  WHERE relrowsecurity OR EXISTS (
    SELECT 1 FROM pg_catalog.pg_rewrite r WHERE r.ev_class = c.oid AND r.rulename <> '_RETURN')
UNION ALL
SELECT 'cascade' || E'\t' || c.id || E'\t' || child.id
  FROM pg_catalog.pg_constraint f JOIN c ON c.oid = f.confrelid JOIN c child ON child.oid = f.conrelid
  WHERE f.contype = 'f' AND (f.confdeltype IN ('c', 'n', 'd') OR f.confupdtype IN ('c', 'n', 'd'))
UNION ALL
SELECT 'part' || E'\t' || c.id || E'\t' || child.id
  FROM pg_catalog.pg_inherits i JOIN c ON c.oid = i.inhparent JOIN c child ON child.oid = i.inhrelid
UNION ALL
SELECT 'column' || E'\t' || id || E'\t' || encode(convert_to(a.attname::text, 'UTF8'), 'hex') || E'\t'
    || CASE WHEN t.typname IN ('int2', 'int4', 'int8') THEN t.typname::text ELSE 'string' END || E'\t1000000000'
  FROM c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
  WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' AND t.oid < 16384
    AND t.typname IN ('int2', 'int4', 'int8', 'text', 'varchar', 'bpchar')
    AND coalesce(l.collisdeterministic, true)
    AND EXISTS (SELECT 1 FROM pg_catalog.pg_index x WHERE x.indrelid = c.oid AND a.attnum = ANY (x.indkey::int2[]))
UNION ALL
SELECT DISTINCT 'routine' || E'\t' || encode(convert_to(p.proname::text, 'UTF8'), 'hex') || E'\t' || CASE
    WHEN p.prokind IN ('a', 'p') OR p.provolatile = 'v' THEN 'anything'
    WHEN p.provolatile = 'i' AND l.lanname IN ('c', 'internal') THEN 'computes' ELSE 'reads' END
  FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    JOIN pg_catalog.pg_language l ON l.oid = p.prolang
  WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') OR p.oid >= 16384
UNION ALL
SELECT 'setting' || E'\tdatabase\t' || encode(convert_to(current_database()::text, 'UTF8'), 'hex')
UNION ALL
SELECT 'setting' || E'\tstandard_conforming_strings\t'
    || encode(convert_to(current_setting('standard_conforming_strings'), 'UTF8'), 'hex')
UNION ALL
SELECT 'setting' || E'\thidden_writers\t' || encode(CASE WHEN pg_catalog.pg_is_in_recovery()
    OR EXISTS (SELECT 1 FROM pg_catalog.pg_stat_subscription WHERE pid IS NOT NULL)
    OR EXISTS (SELECT 1 FROM pg_catalog.pg_subscription WHERE subenabled)
    OR EXISTS (SELECT 1 FROM pg_catalog.pg_stat_activity WHERE backend_type NOT IN ('client backend', 'parallel worker',
        'autovacuum launcher', 'autovacuum worker', 'logical replication launcher', 'background writer', 'checkpointer',
        'archiver', 'startup', 'walreceiver', 'walsender', 'walwriter', 'walsummarizer', 'slotsync worker', 'io worker',
        'autoprewarm leader', 'autoprewarm worker'))
    THEN '1' ELSE '0' END::bytea, 'hex')
UNION ALL
SELECT 'end'
