-- Which server and database the LSNs of a pipeline belong to. A system identifier is an unsigned 64-bit number.

create table penstock.store_sources (
    pipeline text not null references penstock.store_pipelines on delete cascade,
    owner text not null,
    system_id text not null,
    database_oid bigint not null,
    timeline bigint not null,
    primary key (pipeline, owner)
);
