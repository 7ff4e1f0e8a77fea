-- one row: the population standard deviation of each channel over the same stay-hours; below 1e-6 it becomes 1
with deviation as (
    select
        sqrt(avg(cast((filled.hr - center.hr) ** 2 as decimal(18, 12)))) as hr,
        sqrt(avg(cast((filled.sbp - center.sbp) ** 2 as decimal(18, 12)))) as sbp,
        sqrt(avg(cast((filled.dbp - center.dbp) ** 2 as decimal(18, 12)))) as dbp,
        sqrt(avg(cast((filled.rr - center.rr) ** 2 as decimal(18, 12)))) as rr,
        sqrt(avg(cast((filled.spo2 - center.spo2) ** 2 as decimal(18, 12)))) as spo2,
        sqrt(avg(cast((filled.temp - center.temp) ** 2 as decimal(18, 12)))) as temp
    from filled
    inner join cohort on filled.stay_id = cohort.stay_id
    cross join center
    where cohort.fits
)

select
    case when hr < 1e-6 then 1.0 else hr end as hr,
    case when sbp < 1e-6 then 1.0 else sbp end as sbp,
    case when dbp < 1e-6 then 1.0 else dbp end as dbp,
    case when rr < 1e-6 then 1.0 else rr end as rr,
    case when spo2 < 1e-6 then 1.0 else spo2 end as spo2,
    case when temp < 1e-6 then 1.0 else temp end as temp
from deviation
