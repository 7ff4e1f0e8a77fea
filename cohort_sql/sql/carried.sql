-- one row per run of hours of a stay: an hour with a reading (or the first of the grid) and the empty hours after it
with anchored as (
    select
        cohort.bucket,
        cohort.stay_id,
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
        cohort.first_hour as hour
    from cohort
    left join measured_hour as measured
        on cohort.stay_id = measured.stay_id and cohort.first_hour = measured.hour
    where measured.stay_id is null
)

select
    anchored.bucket,
    anchored.stay_id,
    anchored.hour,
    lead(anchored.hour, 1, cohort.end_hour) over stay_hours - anchored.hour as span,
    anchored.hr is not null as hr_here,
    last_value(anchored.hr ignore nulls) over stay_hours as hr_last,
    last_value(case when anchored.hr is not null then anchored.hour end ignore nulls) over stay_hours as hr_hour,
    case when $backward then first_value(anchored.hr ignore nulls) over whole_stay end as hr_next,
    anchored.sbp is not null as sbp_here,
    last_value(anchored.sbp ignore nulls) over stay_hours as sbp_last,
    last_value(case when anchored.sbp is not null then anchored.hour end ignore nulls) over stay_hours as sbp_hour,
    case when $backward then first_value(anchored.sbp ignore nulls) over whole_stay end as sbp_next,
    anchored.dbp is not null as dbp_here,
    last_value(anchored.dbp ignore nulls) over stay_hours as dbp_last,
    last_value(case when anchored.dbp is not null then anchored.hour end ignore nulls) over stay_hours as dbp_hour,
    case when $backward then first_value(anchored.dbp ignore nulls) over whole_stay end as dbp_next,
    anchored.rr is not null as rr_here,
    last_value(anchored.rr ignore nulls) over stay_hours as rr_last,
    last_value(case when anchored.rr is not null then anchored.hour end ignore nulls) over stay_hours as rr_hour,
    case when $backward then first_value(anchored.rr ignore nulls) over whole_stay end as rr_next,
    anchored.spo2 is not null as spo2_here,
    last_value(anchored.spo2 ignore nulls) over stay_hours as spo2_last,
    last_value(case when anchored.spo2 is not null then anchored.hour end ignore nulls) over stay_hours as spo2_hour,
    case when $backward then first_value(anchored.spo2 ignore nulls) over whole_stay end as spo2_next,
    anchored.temp is not null as temp_here,
    last_value(anchored.temp ignore nulls) over stay_hours as temp_last,
    last_value(case when anchored.temp is not null then anchored.hour end ignore nulls) over stay_hours as temp_hour,
    case when $backward then first_value(anchored.temp ignore nulls) over whole_stay end as temp_next
from anchored
inner join cohort on anchored.stay_id = cohort.stay_id
window
    stay_hours as (partition by anchored.stay_id order by anchored.hour),
    whole_stay as (
        partition by anchored.stay_id order by anchored.hour
        rows between unbounded preceding and unbounded following
    )
order by anchored.bucket, anchored.stay_id, anchored.hour
