//! Tables of `pg_catalog` of what is not supported: they have no rows, and clients that look there find nothing.

/// The tables, with the columns of PostgreSQL 15: each one's name and type.
pub const DEFINITIONS: &[(&str, &str)] = &[
    ("pg_description", "objoid oid, classoid oid, objsubid int4, description text"),
    ("pg_shdescription", "objoid oid, classoid oid, description text"),
    (
        "pg_proc",
        "oid oid, proname name, pronamespace oid, proowner oid, prolang oid, procost float4, prorows \
         float4, provariadic oid, prosupport oid, prokind char, prosecdef bool, proleakproof bool, \
         proisstrict bool, proretset bool, provolatile char, proparallel char, pronargs int2, \
         pronargdefaults int2, prorettype oid, proargtypes int8[], proallargtypes int8[], proargmodes \
         text[], proargnames text[], proargdefaults text, protrftypes int8[], prosrc text, probin text, \
         prosqlbody text, proconfig text[], proacl text[]",
    ),
    ("pg_enum", "oid oid, enumtypid oid, enumsortorder float4, enumlabel name"),
    (
        "pg_range",
        "rngtypid oid, rngsubtype oid, rngmultitypid oid, rngcollation oid, rngsubopc oid, rngcanonical \
         oid, rngsubdiff oid",
    ),
    ("pg_inherits", "inhrelid oid, inhparent oid, inhseqno int4, inhdetachpending bool"),
    (
        "pg_depend",
        "classid oid, objid oid, objsubid int4, refclassid oid, refobjid oid, refobjsubid int4, deptype \
         char",
    ),
    (
        "pg_sequence",
        "seqrelid oid, seqtypid oid, seqstart int8, seqincrement int8, seqmax int8, seqmin int8, seqcache \
         int8, seqcycle bool",
    ),
    (
        "pg_sequences",
        "schemaname name, sequencename name, sequenceowner name, data_type oid, start_value int8, min_value \
         int8, max_value int8, increment_by int8, cycle bool, cache_size int8, last_value int8",
    ),
    (
        "pg_extension",
        "oid oid, extname name, extowner oid, extnamespace oid, extrelocatable bool, extversion text, \
         extconfig int8[], extcondition text[]",
    ),
    (
        "pg_stat_activity",
        "datid oid, datname name, pid int4, leader_pid int4, usesysid oid, usename name, application_name \
         text, client_addr text, client_hostname text, client_port int4, backend_start timestamptz, \
         xact_start timestamptz, query_start timestamptz, state_change timestamptz, wait_event_type text, \
         wait_event text, state text, backend_xid int8, backend_xmin int8, query_id int8, query text, \
         backend_type text",
    ),
    (
        "pg_policy",
        "oid oid, polname name, polrelid oid, polcmd char, polpermissive bool, polroles int8[], polqual \
         text, polwithcheck text",
    ),
    (
        "pg_policies",
        "schemaname name, tablename name, policyname name, permissive text, roles text[], cmd text, qual \
         text, with_check text",
    ),
    (
        "pg_publication",
        "oid oid, pubname name, pubowner oid, puballtables bool, pubinsert bool, pubupdate bool, pubdelete \
         bool, pubtruncate bool, pubviaroot bool",
    ),
    ("pg_publication_rel", "oid oid, prpubid oid, prrelid oid, prqual text, prattrs int4[]"),
    ("pg_publication_namespace", "oid oid, pnpubid oid, pnnspid oid"),
    (
        "pg_publication_tables",
        "pubname name, schemaname name, tablename name, attnames text[], rowfilter text",
    ),
    (
        "pg_subscription",
        "oid oid, subdbid oid, subskiplsn text, subname name, subowner oid, subenabled bool, subbinary \
         bool, substream bool, subtwophasestate char, subdisableonerr bool, subconninfo text, subslotname \
         name, subsynccommit text, subpublications text[]",
    ),
    ("pg_foreign_table", "ftrelid oid, ftserver oid, ftoptions text[]"),
    (
        "pg_foreign_server",
        "oid oid, srvname name, srvowner oid, srvfdw oid, srvtype text, srvversion text, srvacl text[], \
         srvoptions text[]",
    ),
    (
        "pg_foreign_data_wrapper",
        "oid oid, fdwname name, fdwowner oid, fdwhandler oid, fdwvalidator oid, fdwacl text[], fdwoptions \
         text[]",
    ),
    (
        "pg_statistic_ext",
        "oid oid, stxrelid oid, stxname name, stxnamespace oid, stxowner oid, stxstattarget int4, stxkeys \
         int4[], stxkind text[], stxexprs text",
    ),
    ("pg_auth_members", "roleid oid, member oid, grantor oid, admin_option bool"),
    (
        "pg_opclass",
        "oid oid, opcmethod oid, opcname name, opcnamespace oid, opcowner oid, opcfamily oid, opcintype \
         oid, opcdefault bool, opckeytype oid",
    ),
    ("pg_opfamily", "oid oid, opfmethod oid, opfname name, opfnamespace oid, opfowner oid"),
    (
        "pg_operator",
        "oid oid, oprname name, oprnamespace oid, oprowner oid, oprkind char, oprcanmerge bool, oprcanhash \
         bool, oprleft oid, oprright oid, oprresult oid, oprcom oid, oprnegate oid, oprcode oid, oprrest \
         oid, oprjoin oid",
    ),
    ("pg_cast", "oid oid, castsource oid, casttarget oid, castfunc oid, castcontext char, castmethod char"),
    (
        "pg_language",
        "oid oid, lanname name, lanowner oid, lanispl bool, lanpltrusted bool, lanplcallfoid oid, laninline \
         oid, lanvalidator oid, lanacl text[]",
    ),
    (
        "pg_aggregate",
        "aggfnoid oid, aggkind char, aggnumdirectargs int2, aggtransfn oid, aggfinalfn oid, aggcombinefn \
         oid, aggserialfn oid, aggdeserialfn oid, aggmtransfn oid, aggminvtransfn oid, aggmfinalfn oid, \
         aggfinalextra bool, aggmfinalextra bool, aggfinalmodify char, aggmfinalmodify char, aggsortop oid, \
         aggtranstype oid, aggtransspace int4, aggmtranstype oid, aggmtransspace int4, agginitval text, \
         aggminitval text",
    ),
    (
        "pg_partitioned_table",
        "partrelid oid, partstrat char, partnatts int2, partdefid oid, partattrs int4[], partclass int8[], \
         partcollation int8[], partexprs text",
    ),
    (
        "pg_matviews",
        "schemaname name, matviewname name, matviewowner name, tablespace name, hasindexes bool, \
         ispopulated bool, definition text",
    ),
    (
        "pg_event_trigger",
        "oid oid, evtname name, evtevent name, evtowner oid, evtfoid oid, evtenabled char, evttags text[]",
    ),
    (
        "pg_locks",
        "locktype text, database oid, relation oid, page int4, tuple int2, virtualxid text, transactionid \
         int8, classid oid, objid oid, objsubid int2, virtualtransaction text, pid int4, mode text, granted \
         bool, fastpath bool, waitstart timestamptz",
    ),
    (
        "pg_seclabels",
        "objoid oid, classoid oid, objsubid int4, objtype text, objnamespace oid, objname text, provider \
         text, label text",
    ),
    ("pg_available_extensions", "name name, default_version text, installed_version text, comment text"),
    ("pg_default_acl", "oid oid, defaclrole oid, defaclnamespace oid, defaclobjtype char, defaclacl text[]"),
    ("pg_ts_config", "oid oid, cfgname name, cfgnamespace oid, cfgowner oid, cfgparser oid"),
    (
        "pg_conversion",
        "oid oid, conname name, connamespace oid, conowner oid, conforencoding int4, contoencoding int4, \
         conproc oid, condefault bool",
    ),
    (
        "pg_prepared_statements",
        "name text, statement text, prepare_time timestamptz, parameter_types int8[], from_sql bool, \
         generic_plans int8, custom_plans int8",
    ),
    (
        "pg_cursors",
        "name text, statement text, is_holdable bool, is_binary bool, is_scrollable bool, creation_time \
         timestamptz",
    ),
    (
        "pg_stat_user_tables",
        "relid oid, schemaname name, relname name, seq_scan int8, seq_tup_read int8, idx_scan int8, \
         idx_tup_fetch int8, n_tup_ins int8, n_tup_upd int8, n_tup_del int8, n_tup_hot_upd int8, n_live_tup \
         int8, n_dead_tup int8, n_mod_since_analyze int8, n_ins_since_vacuum int8, last_vacuum timestamptz, \
         last_autovacuum timestamptz, last_analyze timestamptz, last_autoanalyze timestamptz, vacuum_count \
         int8, autovacuum_count int8, analyze_count int8, autoanalyze_count int8",
    ),
    ("pg_rules", "schemaname name, tablename name, rulename name, definition text"),
    (
        "pg_shdepend",
        "dbid oid, classid oid, objid oid, objsubid int4, refclassid oid, refobjid oid, deptype char",
    ),
    ("pg_group", "groname name, grosysid oid, grolist int8[]"),
    ("pg_timezone_names", "name text, abbrev text, utc_offset text, is_dst bool"),
    ("pg_prepared_xacts", "transaction int8, gid text, prepared timestamptz, owner name, database name"),
    (
        "pg_stat_replication",
        "pid int4, usesysid oid, usename name, application_name text, client_addr text, client_hostname \
         text, client_port int4, backend_start timestamptz, backend_xmin int8, state text, sent_lsn text, \
         write_lsn text, flush_lsn text, replay_lsn text, write_lag text, flush_lag text, replay_lag text, \
         sync_priority int4, sync_state text, reply_time timestamptz",
    ),
    ("pg_largeobject_metadata", "oid oid, lomowner oid, lomacl text[]"),
    ("pg_init_privs", "objoid oid, classoid oid, objsubid int4, privtype char, initprivs text[]"),
];
