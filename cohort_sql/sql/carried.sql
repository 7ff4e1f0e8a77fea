-- one row per run of hours of a stay: an hour with a reading (or the first of the grid) and the empty hours after it
-- <channel>_last holds the latest measurement of the channel and its hour
with anchored as (
    select
        cohort.bucket,
        cohort.stay_id,
        cohort.end_hour,
        measured.hour,
        measured.hr,
        measured.sbp,
        measured.dbp,
        measured.rr,
        measured.spo2,
        measured.temp
    from measured_hour as measured
    inner join cohort on measured.stay_id = cohort.stay_id
    union all by name
    select
        cohort.bucket,
        cohort.stay_id,
        cohort.end_hour,
        cohort.first_hour as hour
    from cohort
    left join measured_hour as measured
        on cohort.stay_id = measured.stay_id and cohort.first_hour = measured.hour
    where measured.stay_id is null
)

select
    bucket,
    stay_id,
    hour,
    lead(hour, 1, end_hour) over stay_hours - hour as span,
    last_value(case when hr is not null then { 'hour': hour, 'value': hr } end ignore nulls)
        over stay_hours as hr_last,
    last_value(case when sbp is not null then { 'hour': hour, 'value': sbp } end ignore nulls)
        over stay_hours as sbp_last,
    last_value(case when dbp is not null then { 'hour': hour, 'value': dbp } end ignore nulls)
        over stay_hours as dbp_last,
    last_value(case when rr is not null then { 'hour': hour, 'value': rr } end ignore nulls)
        over stay_hours as rr_last,
    last_value(case when spo2 is not null then { 'hour': hour, 'value': spo2 } end ignore nulls)
        over stay_hours as spo2_last,
    last_value(case when temp is not null then { 'hour': hour, 'value': temp } end ignore nulls)
        over stay_hours as temp_last
from anchored
window stay_hours as (partition by stay_id order by hour)
