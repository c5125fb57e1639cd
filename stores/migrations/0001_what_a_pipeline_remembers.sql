-- What a pipeline remembers: one row of store_pipelines for each, which writers lock, and everything else below it.
-- The schema is shared with destinations in the same database; `store_` keeps the names apart.

create table penstock.store_pipelines (
    pipeline text primary key,
    revision bigint not null
);

create table penstock.store_phases (
    pipeline text not null references penstock.store_pipelines on delete cascade,
    owner text not null,
    table_schema text not null,
    table_name text not null,
    history json not null,
    primary key (pipeline, owner, table_schema, table_name)
);

create table penstock.store_progress (
    pipeline text not null references penstock.store_pipelines on delete cascade,
    owner text not null,
    lsn pg_lsn not null,
    primary key (pipeline, owner)
);

create table penstock.store_copies (
    pipeline text not null references penstock.store_pipelines on delete cascade,
    table_schema text not null,
    table_name text not null,
    log_id text not null,
    generation pg_lsn not null,
    schema_id bigint not null,
    filenode text not null,
    fingerprint text not null,
    finished boolean not null,
    row_count bigint not null,
    primary key (pipeline, table_schema, table_name)
);

create table penstock.store_destination_tables (
    pipeline text not null references penstock.store_pipelines on delete cascade,
    owner text not null,
    table_schema text not null,
    table_name text not null,
    destination_schema text not null,
    destination_name text not null,
    schema_id bigint not null,
    state text not null,
    primary key (pipeline, owner, table_schema, table_name)
);

create table penstock.store_mappings (
    pipeline text not null references penstock.store_pipelines on delete cascade,
    owner text not null,
    table_schema text not null,
    table_name text not null,
    destination_schema text not null,
    destination_name text not null,
    primary key (pipeline, owner, table_schema, table_name)
);

create table penstock.store_schema_versions (
    pipeline text not null references penstock.store_pipelines on delete cascade,
    table_schema text not null,
    table_name text not null,
    since pg_lsn not null,
    schema_id bigint not null,
    table_shape json not null,
    primary key (pipeline, table_schema, table_name, since)
);
