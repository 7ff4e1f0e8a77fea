-- one row per stay, signal and time with identical copies of a row: how many of its rows are copies of another
with counted as (
    select
        judged.stay_id,
        judged.signal,
        judged.charttime,
        count(*) as readings
    from judged
    inner join reading
        on
            judged.stay_id = reading.stay_id
            and judged.signal = reading.signal
            and judged.charttime = reading.charttime
    where
        judged.reason is null
        and judged.part between $first_part and $last_part
        -- Two different values cannot be copies of each other.
        and (reading.readings > 2 or (reading.readings = 2 and reading.low = reading.high))
    group by judged.stay_id, judged.signal, judged.charttime, judged.itemid, judged.valuenum
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
