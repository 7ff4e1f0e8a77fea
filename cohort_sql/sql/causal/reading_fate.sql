-- one row per fate of the usable readings of a pass: how many were copies, inverted, of a later instrument, used
with channel_hour as (
    select
        sum(copies) as copies,
        sum(readings) filter (where inverted) as inverted,
        sum(readings) filter (where not inverted) as sound,
        arg_min(readings, precedence) filter (where not inverted) as used
    from signal_hour
    group by stay_id, hour, channel
),

total as (
    select
        coalesce(sum(copies), 0) as copies,
        coalesce(sum(inverted), 0) as inverted,
        coalesce(sum(sound) - sum(used), 0) as later_instrument,
        coalesce(sum(used), 0) as used
    from channel_hour
)

select
    'identical_copy' as reason,
    copies as readings
from total
union all
select
    'systolic_below_diastolic' as reason,
    inverted as readings
from total
union all
select
    'other_instrument_first' as reason,
    later_instrument as readings
from total
union all
select
    null as reason,
    used as readings
from total
