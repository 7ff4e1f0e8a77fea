-- one row per row of chartevents that charts a vital or an unreadable item, typed; `unreadable` is its first bad column
with typed as (
    -- Typed once: a case of the same casts would cast again.
    select
        as_id(stay_id) as stay_id,
        as_id(itemid) as itemid,
        as_time(charttime) as charttime,
        as_number(valuenum) as valuenum,
        itemid is not null as itemid_told,
        stay_id is not null as stay_id_told,
        charttime is not null as charttime_told,
        valuenum is not null as valuenum_told
    from chartevents
    where
        try_cast(itemid as bigint) in (select item.itemid from vitals as item)
        or (itemid is not null and try_cast(itemid as bigint) is null)
)

select
    stay_id,
    itemid,
    charttime,
    valuenum,
    case
        when itemid_told and itemid is null then 'itemid'
        when stay_id_told and stay_id is null then 'stay_id'
        when charttime_told and charttime is null then 'charttime'
        when valuenum_told and valuenum is null then 'valuenum'
    end as unreadable,
    coalesce(abs(stay_id), 0) % 16 as part
from typed
