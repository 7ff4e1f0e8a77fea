-- one row: how many admissions there are, and how many rows cannot be read or repeat an admission
select
    count(*) as found,
    count_if(as_id(hadm_id) is null) as hadm_id_unreadable,
    count_if(deathtime is not null and as_time(deathtime) is null) as deathtime_unreadable,
    count(as_id(hadm_id)) - count(distinct as_id(hadm_id)) as repeated
from admissions
