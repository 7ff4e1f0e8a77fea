-- one row per reason for leaving readings out (null when used): how many readings it took
with judged as (
    select
        reading_hour.readings,
        case
            when reading_hour.reason is not null then reading_hour.reason
            when not grid.kept then 'stay_under_48_hours'
        end as reason
    from reading_hour
    left join grid on reading_hour.stay_id = grid.stay_id
)

select
    reason,
    cast(sum(readings) as bigint) as readings
from judged
group by reason
order by reason
