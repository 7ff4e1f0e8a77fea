-- one row: the mean of each channel over the stay-hours that statistics may use, after filling
select
    avg(cast(filled.hr as decimal(18, 15))) as hr,
    avg(cast(filled.sbp as decimal(18, 15))) as sbp,
    avg(cast(filled.dbp as decimal(18, 15))) as dbp,
    avg(cast(filled.rr as decimal(18, 15))) as rr,
    avg(cast(filled.spo2 as decimal(18, 15))) as spo2,
    avg(cast(filled.temp as decimal(18, 15))) as temp
from filled
inner join cohort on filled.stay_id = cohort.stay_id
where cohort.fits
