-- one row per kind of unit repair: how many usable readings it made
select
    repair,
    cast(sum(readings) as bigint) as readings
from verdict
where repair is not null
group by repair
order by repair
