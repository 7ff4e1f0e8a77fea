-- one row per stay, elapsed hour and reason for leaving readings out (null when used): their count, each channel's mean
-- a mean is the exact decimal sum over the count, so it does not depend on the order of the rows
with told_stay as (
    select
        *,
        'stay_' || reason as left_out
    from stay
),

judged as (
    select
        charted.stay_id,
        item.channel,
        date_diff('microsecond', stay.intime, charted.charttime) // 3600000000 as hour,
        (charted.valuenum - item.subtract) * item.multiply / item.divide as value,
        case
            when charted.stay_id is null then 'no_stay_id'
            when stay.stay_id is null then 'stay_unknown'
            when stay.left_out is not null then stay.left_out
            when charted.charttime is null then 'no_charttime'
            when charted.valuenum is null then 'no_number'
            when charted.valuenum not between item.low and item.high then 'implausible_' || item.channel
            when charted.charttime < stay.intime then 'before_intime'
        end as reason
    from charted
    inner join vital_item as item on charted.itemid = item.itemid
    left join told_stay as stay on charted.stay_id = stay.stay_id
),

usable as (
    select
        channel,
        reason,
        case when reason is null then stay_id end as stay_id,
        case when reason is null then hour end as hour,
        case when reason is null then cast(value as decimal(18, 15)) end as value
    from judged
)

select
    stay_id,
    hour,
    reason,
    count(*) as readings,
    avg(value) filter (where channel = 'hr') as hr,
    avg(value) filter (where channel = 'sbp') as sbp,
    avg(value) filter (where channel = 'dbp') as dbp,
    avg(value) filter (where channel = 'rr') as rr,
    avg(value) filter (where channel = 'spo2') as spo2,
    avg(value) filter (where channel = 'temp') as temp
from usable
group by stay_id, hour, reason
