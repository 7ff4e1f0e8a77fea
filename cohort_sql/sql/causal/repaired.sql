-- one row per kind of unit repair: how many usable readings it made
select
    repair,
    count(*) as readings
from judged
where repair is not null
group by repair
order by repair
