-- one row per stay, signal and time with identical copies of a row: how many of its rows are copies of another
with counted as (
    select
        usable.stay_id,
        usable.signal,
        usable.charttime,
        count(*) as readings
    from usable
    inner join reading
        on
            usable.stay_id = reading.stay_id
            and usable.signal = reading.signal
            and usable.charttime = reading.charttime
    where
        -- Two different values cannot be copies of each other.
        reading.readings > 2 or (reading.readings = 2 and reading.low = reading.high)
    group by usable.stay_id, usable.signal, usable.charttime, usable.itemid, usable.valuenum
)

select
    stay_id,
    signal,
    charttime,
    cast(sum(readings - 1) as bigint) as copies
from counted
group by stay_id, signal, charttime
having sum(readings - 1) > 0
order by stay_id, signal, charttime
