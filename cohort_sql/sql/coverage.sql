-- one row per channel: stay-hours, hours measured, with an event (null without a threshold), both; stays without it
select
    'hr' as channel,
    sum(hours) as hours,
    sum(hr_measured_hours) as measured_hours,
    sum(hr_measured_hours) / sum(hours) as measured_share,
    sum(hr_event_hours) as event_hours,
    sum(hr_measured_event_hours) as measured_event_hours,
    count_if(hr_measured_hours = 0) as stays_without
from stay_coverage
union all
select
    'sbp' as channel,
    sum(hours) as hours,
    sum(sbp_measured_hours) as measured_hours,
    sum(sbp_measured_hours) / sum(hours) as measured_share,
    sum(sbp_event_hours) as event_hours,
    sum(sbp_measured_event_hours) as measured_event_hours,
    count_if(sbp_measured_hours = 0) as stays_without
from stay_coverage
union all
select
    'dbp' as channel,
    sum(hours) as hours,
    sum(dbp_measured_hours) as measured_hours,
    sum(dbp_measured_hours) / sum(hours) as measured_share,
    null as event_hours,
    null as measured_event_hours,
    count_if(dbp_measured_hours = 0) as stays_without
from stay_coverage
union all
select
    'rr' as channel,
    sum(hours) as hours,
    sum(rr_measured_hours) as measured_hours,
    sum(rr_measured_hours) / sum(hours) as measured_share,
    sum(rr_event_hours) as event_hours,
    sum(rr_measured_event_hours) as measured_event_hours,
    count_if(rr_measured_hours = 0) as stays_without
from stay_coverage
union all
select
    'spo2' as channel,
    sum(hours) as hours,
    sum(spo2_measured_hours) as measured_hours,
    sum(spo2_measured_hours) / sum(hours) as measured_share,
    sum(spo2_event_hours) as event_hours,
    sum(spo2_measured_event_hours) as measured_event_hours,
    count_if(spo2_measured_hours = 0) as stays_without
from stay_coverage
union all
select
    'temp' as channel,
    sum(hours) as hours,
    sum(temp_measured_hours) as measured_hours,
    sum(temp_measured_hours) / sum(hours) as measured_share,
    sum(temp_event_hours) as event_hours,
    sum(temp_measured_event_hours) as measured_event_hours,
    count_if(temp_measured_hours = 0) as stays_without
from stay_coverage
