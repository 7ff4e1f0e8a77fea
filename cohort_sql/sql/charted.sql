-- one row per row of chartevents that charts a vital or an unreadable item, typed; `unreadable` is its first bad column
select
    as_id(stay_id) as stay_id,
    as_id(itemid) as itemid,
    as_time(charttime) as charttime,
    as_number(valuenum) as valuenum,
    case
        when itemid is not null and as_id(itemid) is null then 'itemid'
        when stay_id is not null and as_id(stay_id) is null then 'stay_id'
        when charttime is not null and as_time(charttime) is null then 'charttime'
        when valuenum is not null and as_number(valuenum) is null then 'valuenum'
    end as unreadable,
    coalesce(abs(as_id(stay_id)), 0) % 16 as part
from chartevents
where
    try_cast(itemid as bigint) in (select item.itemid from vitals as item)
    or (itemid is not null and try_cast(itemid as bigint) is null)
