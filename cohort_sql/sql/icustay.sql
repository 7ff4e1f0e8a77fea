-- one row per row of icustays, typed, with its place in the file; `unreadable` names its first bad column
select
    row_number() over () as position,
    as_id(subject_id) as subject_id,
    as_id(hadm_id) as hadm_id,
    as_id(stay_id) as stay_id,
    as_time(intime) as intime,
    as_time(outtime) as outtime,
    as_number(los) as los,
    case
        when as_id(subject_id) is null then 'subject_id'
        when as_id(stay_id) is null then 'stay_id'
        when hadm_id is not null and as_id(hadm_id) is null then 'hadm_id'
        when intime is not null and as_time(intime) is null then 'intime'
        when outtime is not null and as_time(outtime) is null then 'outtime'
        when los is not null and as_number(los) is null then 'los'
    end as unreadable
from icustays
