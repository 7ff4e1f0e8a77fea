-- one row per stay of the source: its grid where it is used, else why it is left out
select
    stay.stay_id,
    stay.subject_id,
    stay.hadm_id,
    stay.intime,
    null as age_years,
    grid.first_hour,
    grid.end_hour,
    case
        when stay.reason is not null then stay.reason
        when grid.stay_id is null then 'no_vitals'
        when not grid.kept then 'under_48_hours'
    end as reason
from stay
left join grid on stay.stay_id = grid.stay_id
order by stay.stay_id
