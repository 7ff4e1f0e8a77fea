-- one row per charted vital: its value in the channel's unit, the repair it needed, and why it is left out (or null)
-- a number outside its item's range but inside that of the channel's other unit was charted under the wrong item
with told_stay as (
    select
        *,
        'stay_' || reason as left_out
    from stay
),

placed as (
    select
        charted.part,
        charted.itemid,
        charted.charttime,
        charted.valuenum,
        item.signal,
        item.channel,
        stay.stay_id,
        date_diff('microsecond', stay.intime, charted.charttime) // 3600000000 as hour,
        charted.valuenum between item.low and item.high as plausible,
        coalesce(charted.valuenum between item.other_low and item.other_high, false) as plausible_in_other,
        (charted.valuenum - item.subtract) * item.multiply / item.divide as value,
        (charted.valuenum - item.other_subtract) * item.other_multiply / item.other_divide as other_value,
        item.repair,
        case
            when charted.stay_id is null then 'no_stay_id'
            when stay.stay_id is null then 'stay_unknown'
            when stay.left_out is not null then stay.left_out
            when charted.charttime is null then 'no_charttime'
            when charted.charttime < stay.intime then 'before_intime'
            when charted.charttime >= stay.outtime then 'at_or_after_outtime'
            when charted.charttime >= stay.end_time then 'at_or_after_death'
            when charted.valuenum is null then 'no_number'
        end as reason
    from charted
    inner join vital_item as item on charted.itemid = item.itemid
    left join told_stay as stay on charted.stay_id = stay.stay_id
)

select
    part,
    stay_id,
    signal,
    itemid,
    charttime,
    hour,
    valuenum,
    case when plausible then value when plausible_in_other then other_value end as value,
    case when reason is null and not plausible and plausible_in_other then repair end as repair,
    case
        when reason is null and not plausible and not plausible_in_other then 'implausible_' || channel
        else reason
    end as reason
from placed
