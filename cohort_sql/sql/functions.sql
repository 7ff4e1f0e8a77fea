-- scalar macros, no table: what a text field must look like to be read; anything else gives null, which callers count
create or replace macro as_id(field) as
case when regexp_full_match(field, '\s*[+-]?\d{1,19}(\.0*)?\s*') then try_cast(field as bigint) end;

create or replace macro as_time(field) as
case
    when regexp_full_match(field, '\s*\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d{1,9})?)?\s*')
        then try_cast(field as timestamp)
end;

create or replace macro as_number(field) as
try_cast(field as double);
