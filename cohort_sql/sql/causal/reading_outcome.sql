-- one row per reason for leaving readings out (null when used): how many readings it took
-- sound readings that went into no measured hour were of an instrument that does not come first there
with counted as (
    select
        reason,
        readings
    from verdict
    where reason is not null
    union all
    select
        fate as reason,
        readings
    from reading_fate
    where fate <> 'sound'
    union all
    select
        'other_instrument_first' as reason,
        readings
    from reading_fate
    where fate = 'sound'
    union all
    select
        'other_instrument_first' as reason,
        -readings as readings
    from measured_hour
    union all
    select
        null as reason,
        readings
    from measured_hour
)

select
    reason,
    cast(coalesce(sum(readings), 0) as bigint) as readings
from counted
group by reason
order by reason
