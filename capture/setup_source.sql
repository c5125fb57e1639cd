-- What `penstock setup-source` installs in a source database: event triggers that write into the WAL what happened to a
-- table. They read the catalog and nothing else; no statement of a user fails by them. To be run again after an upgrade.

create schema if not exists penstock;

-- The owner of the schema can replace what lies in it, and it runs with the rights of whoever runs this.
do $$
declare
    owner text := (select r.rolname from pg_catalog.pg_namespace n join pg_catalog.pg_roles r on r.oid = n.nspowner
                    where n.nspname = 'penstock' and r.rolname <> current_user and not r.rolsuper);
begin
    if owner is not null then
        raise exception 'schema penstock belongs to %, who could replace what the triggers run', owner
            using hint = 'Run `alter schema penstock owner to current_user;`, and look at what lies in it.';
    end if;
end
$$;

drop event trigger if exists penstock_ddl;
drop event trigger if exists penstock_rewrite;
drop event trigger if exists penstock_drop;
drop function if exists penstock.tell_ddl();
drop function if exists penstock.tell_table(oid, boolean, text[]);

create function penstock.tell_table(relation oid, rewritten boolean, dropped text[]) returns void
    language sql
    set search_path = pg_catalog, pg_temp
    set datestyle = 'ISO'
    set intervalstyle = 'postgres'
    set timezone = 'UTC'
    set extra_float_digits = 1
    set bytea_output = 'hex'
    set lc_monetary = 'C'
as $$
    select pg_logical_emit_message(true, 'penstock.ddl', convert_to(json_build_object(
        'table', c.oid::bigint,
        'schema', n.nspname,
        'name', c.relname,
        'rewritten', rewritten,
        'dropped', dropped,
        'identity', c.relreplident,
        'key', (select i.indkey::int2[] from pg_index i
                 where i.indrelid = c.oid and case when c.relreplident = 'i' then i.indisreplident
                                                   else i.indisprimary and i.indimmediate end),
        'columns', (select json_agg(json_build_object('number', a.attnum, 'name', a.attname,
                                                      'type', a.atttypid::bigint, 'modifier', a.atttypmod,
                                                      'not_null', a.attnotnull, 'generated', a.attgenerated <> '',
                                                      'missing', a.attmissingval::text) order by a.attnum)
                      from pg_attribute a
                     where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped)
    )::text, 'UTF8'))
      from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where c.oid = relation and c.relkind in ('r', 'p') and c.relpersistence = 'p'
$$;

-- As its owner, so that it may write to the WAL whoever alters a table, and where others may not.
create function penstock.tell_ddl() returns event_trigger
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    case tg_event
    when 'table_rewrite' then
        -- 2: a value was computed for each row, 4: values have another type. What else rewrites changes no value.
        if (pg_event_trigger_table_rewrite_reason() & 6) <> 0 then
            perform penstock.tell_table(r.relation, true, '{}'::text[])
               from (select pg_event_trigger_table_rewrite_oid() as relation
                      union
                     select a.relid::oid from pg_partition_ancestors(pg_event_trigger_table_rewrite_oid()) a) r;
        end if;
    when 'sql_drop' then
        perform penstock.tell_table(d.objid, false, array_agg(d.address_names[3]))
           from pg_event_trigger_dropped_objects() d
          where d.object_type = 'table column' and not d.is_temporary
          group by d.objid;
    else
        perform penstock.tell_table(a.relation, false, '{}'::text[])
           from (with recursive altered as (
                     select d.objid as relation
                       from pg_event_trigger_ddl_commands() d
                      where d.classid = 'pg_class'::regclass
                      union
                     select i.inhrelid from altered p join pg_inherits i on i.inhparent = p.relation)
                 select relation from altered) a;
    end case;
exception when others then
    raise warning 'penstock could not write what was altered into the WAL: %', sqlerrm
        using hint = 'Run `penstock resync` for the tables that were altered.';
end
$$;

create event trigger penstock_ddl on ddl_command_end when tag in ('ALTER TABLE') execute function penstock.tell_ddl();
create event trigger penstock_rewrite on table_rewrite execute function penstock.tell_ddl();
create event trigger penstock_drop on sql_drop execute function penstock.tell_ddl();
alter event trigger penstock_ddl enable always;
alter event trigger penstock_rewrite enable always;
alter event trigger penstock_drop enable always;
