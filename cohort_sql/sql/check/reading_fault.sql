-- one row: how many of the first rows of chartevents chart a vital, and how many cannot be read
with head as (
    select *
    from chartevents
    limit $row_limit -- noqa: AM09
),

checked as (
    select
        *,
        itemid is not null and as_id(itemid) is null as bad_item,
        stay_id is not null and as_id(stay_id) is null as bad_stay,
        charttime is not null and as_time(charttime) is null as bad_time,
        valuenum is not null and as_number(valuenum) is null as bad_number
    from head
)

select
    count(*) as found,
    count_if(as_id(itemid) in (select vitals.itemid from vitals)) as vitals,
    count_if(bad_item) as itemid_unreadable,
    count_if(bad_stay) as stay_id_unreadable,
    count_if(bad_time) as charttime_unreadable,
    count_if(bad_number) as valuenum_unreadable
from checked
