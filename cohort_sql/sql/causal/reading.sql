-- one row per stay, signal and time of a usable reading in a pass: how many rows chart it, lowest and highest
-- the value at a time is the midpoint of its distinct values, so it depends neither on their order nor on copies
select
    stay_id,
    signal,
    charttime,
    min(hour) as hour,
    count(*) as readings,
    min(value) as low,
    max(value) as high
from usable
group by stay_id, signal, charttime
