-- How a copy that is not finished is divided, and which of its ranges Kafka has; where the changes after a copy begin.
-- A copy from before has no ranges, so it is not resumed, and nobody asks where its changes begin.

alter table penstock.store_copies
    add column log_from bigint not null default 0,
    add column changes_from bigint not null default 0;

create table penstock.store_copy_ranges (
    pipeline text not null references penstock.store_pipelines on delete cascade,
    table_schema text not null,
    table_name text not null,
    range_index integer not null,
    generation pg_lsn not null,
    file bigint,
    first_block bigint not null,
    end_block bigint,
    snapshot pg_lsn,
    row_count bigint,
    byte_count bigint,
    topic_end bigint,
    primary key (pipeline, table_schema, table_name, range_index)
);
