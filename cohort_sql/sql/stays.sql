-- one row per stay used, as it is written to stays.parquet
select
    cohort.stay_id,
    cohort.subject_id,
    cohort.hadm_id,
    cohort.split,
    cohort.bucket,
    cohort.hours,
    cohort.first_hour,
    cast(stay_coverage.measured_hours as bigint) as measured_hours,
    cast(stay_coverage.event_hours as bigint) as event_hours,
    cohort.intime,
    cast(cohort.age_years as bigint) as age_years
from cohort
inner join stay_coverage on cohort.stay_id = stay_coverage.stay_id
order by cohort.stay_id
