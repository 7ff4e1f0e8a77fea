-- one row per stay-hour of one block: values, whether and how long ago measured, standardised values, event flags
select
    filled.stay_id,
    filled.hour,
    filled.hr,
    filled.sbp,
    filled.dbp,
    filled.rr,
    filled.spo2,
    filled.temp,
    filled.hr_measured,
    filled.sbp_measured,
    filled.dbp_measured,
    filled.rr_measured,
    filled.spo2_measured,
    filled.temp_measured,
    filled.hr_age,
    filled.sbp_age,
    filled.dbp_age,
    filled.rr_age,
    filled.spo2_age,
    filled.temp_age,
    (filled.hr - center.hr) / spread.hr as hr_z,
    (filled.sbp - center.sbp) / spread.sbp as sbp_z,
    (filled.dbp - center.dbp) / spread.dbp as dbp_z,
    (filled.rr - center.rr) / spread.rr as rr_z,
    (filled.spo2 - center.spo2) / spread.spo2 as spo2_z,
    (filled.temp - center.temp) / spread.temp as temp_z,
    filled.hr_event,
    filled.sbp_event,
    filled.rr_event,
    filled.spo2_event,
    filled.temp_event,
    filled.hr_event
    or filled.sbp_event
    or filled.rr_event
    or filled.spo2_event
    or filled.temp_event as event
from filled
cross join center
cross join spread
where
    filled.bucket = $bucket
    and filled.stay_id between $first_stay and $last_stay
    and filled.hour between $first_hour and $last_hour
order by filled.stay_id, filled.hour
