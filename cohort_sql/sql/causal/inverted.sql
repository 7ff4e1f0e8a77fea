-- one row per stay, instrument and time whose systolic pressure is below its diastolic: both are left out
select
    systolic.stay_id,
    systolic.charttime,
    systolic_item.precedence
from reading as systolic
inner join vital_item as systolic_item on systolic.signal = systolic_item.itemid
inner join reading as diastolic on systolic.stay_id = diastolic.stay_id and systolic.charttime = diastolic.charttime
inner join vital_item as diastolic_item on diastolic.signal = diastolic_item.itemid
where
    systolic_item.channel = 'sbp'
    and diastolic_item.channel = 'dbp'
    and systolic_item.precedence = diastolic_item.precedence
    and systolic.low + systolic.high < diastolic.low + diastolic.high
order by systolic.stay_id, systolic.charttime, systolic_item.precedence
