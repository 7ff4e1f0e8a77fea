-- one row: how many of the first rows of chartevents chart each vital as a number, and how many cannot be read
with head as (
    select *
    from chartevents
    limit $row_limit -- noqa: AM09
),

checked as (
    select
        item.channel,
        as_number(head.valuenum) is not null as numeric,
        head.itemid is not null and as_id(head.itemid) is null as bad_item,
        head.stay_id is not null and as_id(head.stay_id) is null as bad_stay,
        head.charttime is not null and as_time(head.charttime) is null as bad_time,
        head.valuenum is not null and as_number(head.valuenum) is null as bad_number
    from head
    left join vital_item as item on as_id(head.itemid) = item.itemid
)

select
    count(*) as found,
    count_if(channel = 'hr' and numeric) as hr_numbers,
    count_if(channel = 'sbp' and numeric) as sbp_numbers,
    count_if(channel = 'dbp' and numeric) as dbp_numbers,
    count_if(channel = 'rr' and numeric) as rr_numbers,
    count_if(channel = 'spo2' and numeric) as spo2_numbers,
    count_if(channel = 'temp' and numeric) as temp_numbers,
    count_if(bad_item) as itemid_unreadable,
    count_if(bad_stay) as stay_id_unreadable,
    count_if(bad_time) as charttime_unreadable,
    count_if(bad_number) as valuenum_unreadable
from checked
