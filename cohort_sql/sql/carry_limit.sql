-- one row: for each channel, the greatest number of hours a measurement is carried forward (null: without limit)
select
    max(fill_hours) filter (where channel = 'hr' and $limited) as hr,
    max(fill_hours) filter (where channel = 'sbp' and $limited) as sbp,
    max(fill_hours) filter (where channel = 'dbp' and $limited) as dbp,
    max(fill_hours) filter (where channel = 'rr' and $limited) as rr,
    max(fill_hours) filter (where channel = 'spo2' and $limited) as spo2,
    max(fill_hours) filter (where channel = 'temp' and $limited) as temp
from channels
