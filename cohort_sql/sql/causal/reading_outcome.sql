-- one row per reason for leaving readings out (null when used): how many readings it took
with counted as (
    select
        reason,
        count(*) as readings
    from judged
    where reason is not null
    group by reason
    union all
    select
        reason,
        readings
    from reading_fate
)

select
    reason,
    cast(sum(readings) as bigint) as readings
from counted
group by reason
order by reason
