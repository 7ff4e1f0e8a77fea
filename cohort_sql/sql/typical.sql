-- one row: the median over the measured hourly means of each channel, in the stays that statistics may use
select
    median(measured.hr) as hr,
    median(measured.sbp) as sbp,
    median(measured.dbp) as dbp,
    median(measured.rr) as rr,
    median(measured.spo2) as spo2,
    median(measured.temp) as temp
from measured_hour as measured
inner join cohort on measured.stay_id = cohort.stay_id
where cohort.fits
