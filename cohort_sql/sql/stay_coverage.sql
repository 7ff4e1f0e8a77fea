-- one row per stay: its hours and, for each channel, the hours measured, with an event, and both
select
    stay_id,
    count(*) as hours,
    count_if(
        hr_measured
        or sbp_measured
        or dbp_measured
        or rr_measured
        or spo2_measured
        or temp_measured
    ) as measured_hours,
    count_if(
        hr_event
        or sbp_event
        or rr_event
        or spo2_event
        or temp_event
    ) as event_hours,
    count_if(hr_measured) as hr_measured_hours,
    count_if(sbp_measured) as sbp_measured_hours,
    count_if(dbp_measured) as dbp_measured_hours,
    count_if(rr_measured) as rr_measured_hours,
    count_if(spo2_measured) as spo2_measured_hours,
    count_if(temp_measured) as temp_measured_hours,
    count_if(hr_event) as hr_event_hours,
    count_if(hr_event and hr_measured) as hr_measured_event_hours,
    count_if(sbp_event) as sbp_event_hours,
    count_if(sbp_event and sbp_measured) as sbp_measured_event_hours,
    count_if(rr_event) as rr_event_hours,
    count_if(rr_event and rr_measured) as rr_measured_event_hours,
    count_if(spo2_event) as spo2_event_hours,
    count_if(spo2_event and spo2_measured) as spo2_measured_event_hours,
    count_if(temp_event) as temp_event_hours,
    count_if(temp_event and temp_measured) as temp_measured_event_hours
from filled
group by stay_id
order by stay_id
