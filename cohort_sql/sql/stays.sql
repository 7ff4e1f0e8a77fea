-- one row per stay used, as it is written to stays.parquet
select
    cohort.stay_id,
    cohort.subject_id,
    cohort.hadm_id,
    cohort.split,
    cohort.bucket,
    cohort.hours,
    cohort.first_hour,
    stay_coverage.measured_hours,
    stay_coverage.event_hours,
    cohort.intime,
    cohort.age_years
from cohort
inner join stay_coverage on cohort.stay_id = stay_coverage.stay_id
order by cohort.stay_id
