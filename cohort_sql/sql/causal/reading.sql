-- one row per stay, signal and time of a usable reading, and one per reason of the others: how many, lowest and highest
-- the value at a time is the midpoint of its distinct values, so it depends neither on their order nor on copies
with keyed as (
    select
        reason,
        case when reason is null then stay_id end as stay_id,
        case when reason is null then signal end as signal,
        case when reason is null then charttime end as charttime,
        case when reason is null then hour end as hour,
        case when reason is null then value end as value
    from judged
)

select
    reason,
    stay_id,
    signal,
    charttime,
    hour,
    count(*) as readings,
    min(value) as low,
    max(value) as high
from keyed
group by reason, stay_id, signal, charttime, hour
