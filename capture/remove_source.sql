-- What `penstock setup-source --remove` runs. The schema stays where something else lies in it.

drop event trigger if exists penstock_ddl;
drop event trigger if exists penstock_rewrite;
drop event trigger if exists penstock_drop;
drop function if exists penstock.tell_ddl();
drop function if exists penstock.tell_table(oid, boolean, text[]);
do $$
begin
    drop schema if exists penstock;
exception when dependent_objects_still_exist or insufficient_privilege then
    null;
end
$$;
