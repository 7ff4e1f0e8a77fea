-- scalar macros, no table: what a text field must look like to be read; anything else gives null, which callers count
-- most fields are written as DuckDB writes them: comparing with that is faster than a pattern, which decides the others
create or replace macro as_id(field) as
case
    when cast(try_cast(field as bigint) as varchar) = field then try_cast(field as bigint)
    when regexp_full_match(field, '\s*[+-]?\d{1,19}(\.0*)?\s*') then try_cast(field as bigint)
end;

create or replace macro as_time(field) as
case
    -- A year of five digits is written as DuckDB writes it, too, but is longer.
    when strlen(field) = 19 and cast(try_cast(field as timestamp) as varchar) = field then try_cast(field as timestamp)
    when regexp_full_match(field, '\s*\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d{1,9})?)?\s*')
        then try_cast(field as timestamp)
end;

create or replace macro as_number(field) as
try_cast(field as double);
