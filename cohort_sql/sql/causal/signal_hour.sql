-- one row per stay, hour, signal and whether its pressures are inverted: rows without copies, copies, and the mean
with checked as (
    select
        reading.stay_id,
        reading.hour,
        reading.signal,
        inverted.stay_id is not null as inverted,
        reading.readings,
        coalesce(copied.copies, 0) as copies,
        cast((reading.low + reading.high) / 2 as decimal(18, 15)) as value
    from reading
    inner join vital_item as item on reading.signal = item.itemid
    left join copied
        on
            reading.stay_id = copied.stay_id
            and reading.signal = copied.signal
            and reading.charttime = copied.charttime
    left join inverted
        on
            reading.stay_id = inverted.stay_id
            and reading.charttime = inverted.charttime
            and item.precedence = inverted.precedence
            and item.channel in ('sbp', 'dbp')
),

hourly as (
    select
        stay_id,
        hour,
        signal,
        inverted,
        cast(sum(readings - copies) as bigint) as readings,
        cast(sum(copies) as bigint) as copies,
        avg(value) as value
    from checked
    group by stay_id, hour, signal, inverted
)

select
    hourly.*,
    item.channel,
    item.precedence
from hourly
inner join vital_item as item on hourly.signal = item.itemid
