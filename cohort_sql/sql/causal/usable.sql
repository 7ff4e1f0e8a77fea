-- one row per usable reading in a range of parts: judged once, since it is read twice
select
    stay_id,
    signal,
    itemid,
    charttime,
    hour,
    valuenum,
    value
from judged
where reason is null and part between $first_part and $last_part
