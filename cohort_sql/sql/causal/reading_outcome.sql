-- one row per reason for leaving readings out (null when used): how many readings it took
with judged as (
    select
        reason,
        readings
    from reading
    where reason is not null
    union all
    select
        'identical_copy' as reason,
        copies as readings
    from signal_hour
    union all
    select
        case
            when inverted then 'systolic_below_diastolic'
            when precedence > first_precedence then 'other_instrument_first'
        end as reason,
        readings
    from signal_hour
)

select
    reason,
    cast(coalesce(sum(readings), 0) as bigint) as readings
from judged
group by reason
order by reason
