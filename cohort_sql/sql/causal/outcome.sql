-- one row per stay of the source: its grid (every hour from intime to its end) where used, else why it is left out
with measured as (
    select distinct stay_id
    from measured_hour
)

select
    stay.stay_id,
    stay.subject_id,
    stay.hadm_id,
    stay.intime,
    stay.age_years,
    0 as first_hour,
    (date_diff('microsecond', stay.intime, stay.end_time) + 3599999999) // 3600000000 as end_hour,
    case
        when stay.reason is not null then stay.reason
        when measured.stay_id is null then 'no_vitals'
    end as reason
from stay
left join measured on stay.stay_id = measured.stay_id
order by stay.stay_id
